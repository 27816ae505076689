"""Every public name comes from `allranks` itself, and the notebooks take nothing from anywhere else."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import allranks
import pytest

pytestmark = pytest.mark.core
ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted([*ROOT.glob("chapters/source/*/*.py"), *ROOT.glob("solutions/*/source/*.py")])


@pytest.mark.parametrize("name", allranks.__all__)
def test_a_public_name_is_there_and_is_listed(name):
    found = getattr(allranks, name)
    assert name in dir(allranks)
    module = sys.modules.get(f"allranks.{name}")
    assert module is None or found is module, "a file of the package has this name and would hide it"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'wrld'"):
        allranks.wrld  # noqa: B018


def test_what_asks_the_warm_server_imports_little():
    """The second `allranks check` of a shell should cost little more than Python and click."""
    code = (
        "import sys, allranks.cli.check, allranks.exercises, allranks.ranks.engines.forkserver.idle\n"
        "assert allranks.exercises.exists('ring_shift')\n"
        "heavy = {'torch', 'numpy', 'rich', 'urllib.request', 'allranks.base.board', 'allranks.judge'}\n"
        "heavy |= {f'allranks.ranks.engines.forkserver.{name}' for name in ('loop', 'server', 'idle_server')}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_loads_neither_torch_nor_ipython():
    code = "import sys, allranks; print([m for m in sys.modules if m in ('torch', 'IPython') or m.startswith('allranks.')])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "['allranks.base', 'allranks.base.notebook']\n"
    )


def test_a_public_module_is_one_module_by_both_names():
    code = (
        "from allranks.schedules import ring_all_reduce\n"
        "import allranks.schedules.ring, allranks.theory.schedules.ring, allranks\n"
        "assert allranks.schedules.ring is allranks.theory.schedules.ring\n"
        "assert allranks.schedules.__spec__.name == 'allranks.theory.schedules'\n"
        "from allranks.cost import nccl_price\n"
        "try: import allranks.cost.nccl_price\n"
        "except ModuleNotFoundError as error: print(error)\n"
        "assert callable(allranks.cost.nccl_price)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "allranks.cost.nccl_price is a function; its module is allranks.theory.cost.nccl_price\n"


def foreign(tree: ast.AST) -> list[str]:
    """The names of the package that a notebook takes and that are not public."""
    public_modules = {f"allranks.{name}": importlib.import_module(at) for name, at in allranks._BY_PATH.items()}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.startswith("allranks.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "allranks":
            names = allranks.__all__ if node.module == "allranks" else ()
            if node.module in public_modules:
                names = getattr(public_modules[node.module], "__all__", ())
            found += [f"{node.module}.{a.name}" for a in node.names if a.name not in names]
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_takes_public_names_only(script):
    assert foreign(ast.parse(script.read_text(encoding="utf-8"))) == []


def test_a_name_that_is_not_public_is_found():
    text = "from allranks.schedules.trees import two_trees\nimport allranks.ranks.engines.rank\nfrom allranks import Player"
    assert foreign(ast.parse(text)) == ["allranks.schedules.trees.two_trees", "allranks.ranks.engines.rank"]

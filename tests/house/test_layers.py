"""A room of the package imports only from floors below, or from a room named before it on its own floor; no files
import each other.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Collection
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import allranks
import pytest

pytestmark = pytest.mark.core
PACKAGE = Path(__file__).resolve().parents[2] / "utils" / "allranks"
# On one floor a room may import those named before it, never the other way.
FLOORS = {
    1: ("base",),
    2: ("theory",),
    3: ("ranks", "show", "jobs"),
    4: ("judge", "machine"),
    5: ("exercises", "course"),
    6: ("cli",),
}
PLACE_OF = {room: (floor, place) for floor, rooms in FLOORS.items() for place, room in enumerate(rooms)}
FRONT_DOOR = (7, 0)  # allranks/__init__.py opens onto every room; no room may go through it to one above
# names that two files have: what they hold is alike, in two rooms
ALIKE = set(
    (
        "bounds chapters clock devices drawing failures faults folder formulas idle job judging kernels live "
        "machine moves nccl orders page rank reading record rehearsal run server shared state steps sweeps "
        "variants verdict "
    ).split()
)
WITHOUT_TORCH = ("base", "theory", "jobs", "show.pictures")


def rooms(package: Path) -> dict[str, list[Path]]:
    """The files of each room: NAME.py, or everything under NAME/."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        # the front door and `python -m allranks` are above all floors; jupyter/ has settings for programs of Jupyter's
        if room not in ("__init__", "__main__", "jupyter"):
            found.setdefault(room, []).append(path)
    return found


def dynamic(node: ast.AST) -> str:
    """The module of ours that `import_module` or `__import__` names, as far as its text is known; "" for any other
    code.
    """
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[called, *_]) if "import" in name:
            match called:
                case ast.Constant(value=str(text)) | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
                    return text.rstrip(".") if text.startswith("allranks") else ""
    return ""


def real_name(module: str) -> str:
    """A public module's place: `allranks.schedules` lies in a room."""
    top, inner, rest = [*module.split(".", 2), "", ""][:3]
    return (
        ".".join(part for part in (allranks._MODULES.get(inner, f"{top}.{inner}"), rest) if part) if inner else module
    )


def imported_rooms(path: Path, package: Path, there: Collection[str]) -> set[str]:
    """Those of the rooms `there` that a file imports, also inside functions; "" stands for a name of the package
    itself.
    """
    here = ("allranks", *path.relative_to(package).with_suffix("").parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [(alias.name.split("."), []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level]) if node.level else []
            modules = [(base + (node.module.split(".") if node.module else []), [a.name for a in node.names])]
        elif named := dynamic(node):
            modules = [(named.split("."), [])]
        else:
            continue
        for module, names in modules:
            if module[0] != "allranks":
                continue
            module = real_name(".".join(module)).split(".")
            if len(module) > 1:
                found.add(module[1])
            else:
                found |= {name if name in there else "" for name in names if not name.startswith("__")}
    return found - {here[1]}


def upward(package: Path) -> list[str]:
    """One sentence for each arrow that points up or to the right, and for each room that has no floor."""
    faults, there = [], rooms(package)
    for room, files in there.items():
        if room not in PLACE_OF:
            faults.append(f"{room} is on no floor; name its floor in tests/house/test_layers.py.")
            continue
        for path in files:
            for other in imported_rooms(path, package, there):
                place = FRONT_DOOR if other == "" else PLACE_OF.get(other, (0, 0))
                if place > PLACE_OF[room]:
                    name = path.relative_to(package)
                    faults.append(
                        f"{name} (floor {PLACE_OF[room][0]}) imports {other or 'allranks'} (floor {place[0]})."
                    )
    return faults


def alike(*folders: Path) -> set[str]:
    """Names that two files have. A command's file has the command's name, and an entry of the race its algorithm's."""
    files = [path for folder in folders for path in folder.rglob("[a-z]*.py")]
    names = [path.stem for path in files if path.parent.name not in ("cli", "commands", "entries", "jupyter")]
    return {name for name in names if names.count(name) > 1}


def modules(package: Path) -> dict[str, Path]:
    """The files of the package by the name under which they are imported."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(("allranks", *parts)).removesuffix(".__init__")] = path
    return found


def imported_modules(name: str, known: dict[str, Path]) -> set[str]:
    """Those of the known files that a file imports, also inside functions; what only a type checker reads does not
    count.
    """
    own = name if known[name].name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(known[name].read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = own.split(".")[: len(own.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
        elif named := dynamic(node):
            found.add(named)
    return (set(map(real_name, found)) & set(known)) - {name}


def circle(package: Path) -> list[str]:
    """Files that import each other in a circle, or nothing."""
    known = modules(package)
    try:
        TopologicalSorter({name: imported_modules(name, known) for name in known}).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_arrow_points_up():
    assert upward(PACKAGE) == []


def test_no_files_import_each_other():
    assert circle(PACKAGE) == []


def test_contributors_see_the_same_floors():
    page = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| `(\w+)` \| .+ \|$", page, flags=re.M)
    assert rows == [(str(floor), room) for floor in sorted(FLOORS, reverse=True) for room in FLOORS[floor]]


@pytest.mark.parametrize(
    "text",
    ["def line():\n    from . import router\n", "import importlib\nimportlib.import_module('allranks.wire.router')\n"],
)
def test_a_circle_of_files_is_found(tmp_path, text):
    folder = tmp_path / "ranks" / "wire"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("", encoding="utf-8")
    (folder / "router.py").write_text("from allranks.ranks.wire.source import line\n", encoding="utf-8")
    (folder / "source.py").write_text(text, encoding="utf-8")
    assert set(circle(tmp_path)) == {"allranks.ranks.wire.router", "allranks.ranks.wire.source"}


def test_every_import_of_ours_is_there():
    """Also inside functions. The type checker says nothing of a module that is gone: many are of optional packages."""
    root, lost = PACKAGE.parents[1], []
    for folder in (PACKAGE, root / "autograder", root / "bench", root / "deploy", root / "tools"):
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                for name in map(real_name, names):
                    place = (root if name.startswith("autograder") else PACKAGE.parent).joinpath(*name.split("."))
                    if name.split(".")[0] in ("allranks", "autograder"):
                        lost += [] if place.is_dir() or place.with_suffix(".py").exists() else [f"{path}: {name}"]
    assert lost == []


def test_the_package_never_imports_the_autograder():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if isinstance(node, ast.Call) and "import" in ast.unparse(node.func):
                names += [ast.unparse(word).strip("fbr'\"") for word in node.args[:1]]
            assert not any(name.split(".")[0] == "autograder" for name in names), path


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("from allranks.ranks.wire import run\n", "theory/trace.py (floor 2) imports ranks (floor 3)."),
        ("from allranks.wire import run\n", "theory/trace.py (floor 2) imports ranks (floor 3)."),
        ("def f():\n    import allranks.ranks.wire.router\n", "theory/trace.py (floor 2) imports ranks (floor 3)."),
        ("from .. import ranks\n", "theory/trace.py (floor 2) imports ranks (floor 3)."),
        ("from allranks import World\n", "theory/trace.py (floor 2) imports allranks (floor 7)."),
        ("from ..ranks.wire import run\n", "theory/trace.py (floor 2) imports ranks (floor 3)."),
        ("importlib.import_module('allranks.ranks.wire')\n", "theory/trace.py (floor 2) imports ranks (floor 3)."),
        ("import_module(f'allranks.jobs.{name}')\n", "theory/trace.py (floor 2) imports jobs (floor 3)."),
    ],
)
def test_an_upward_arrow_is_found(tmp_path, text, fault):
    (tmp_path / "theory").mkdir()
    (tmp_path / "theory" / "trace.py").write_text(text, encoding="utf-8")
    for room in ("ranks", "jobs"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("from allranks.theory import trace\n", encoding="utf-8")
    assert upward(tmp_path) == [fault]


def test_a_room_without_a_floor_is_found(tmp_path):
    (tmp_path / "attic.py").write_text("", encoding="utf-8")
    assert upward(tmp_path) == ["attic is on no floor; name its floor in tests/house/test_layers.py."]


@pytest.mark.parametrize("room", WITHOUT_TORCH)
def test_imports_without_torch(room):
    here = f"allranks.{room}"
    inside = [
        name for name in modules(PACKAGE) if (name == here or name.startswith(f"{here}.")) and ".entries." not in name
    ]
    code = f"import sys; sys.modules['torch'] = None\nfor name in {inside}: __import__(name)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_few_files_share_a_name():
    """Who searches for a name should find one file. The list only shrinks: a new file gets a name of its own."""
    assert alike(PACKAGE, PACKAGE.parents[1] / "autograder") == ALIKE


def test_test_files_have_names_of_their_own():
    """pytest imports each by its name alone: of two with one name, it refuses the second, and a run of one folder
    doesn't show it.
    """
    files = [path.name for path in Path(__file__).parents[1].rglob("test_*.py")]
    assert sorted(name for name in set(files) if files.count(name) > 1) == []

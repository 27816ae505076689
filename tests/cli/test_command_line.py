"""What every command shares: an example in its help that it takes, versions, completion, and a start without torch."""

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from allranks.cli import main
from allranks.cli._examples import EXAMPLES
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]


def commands() -> list[tuple[str, ...]]:
    """The words of each command and of each command below it."""
    found = []
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        found.append((name,))
        if isinstance(command, click.Group):
            found += [(name, below) for below in command.list_commands(context)]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_commands_help_ends_with_an_example(words):
    done = CliRunner().invoke(main, [*words, "--help"])
    assert done.exit_code == 0 and "Example" in done.output, done.output
    assert f"allranks {' '.join(words)}" in done.output.partition("Example")[2]


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines if line.startswith("allranks")])
def test_every_example_is_one_that_the_command_takes(line):
    words = shlex.split(line.partition(" > ")[0])[1:]
    context, command = click.Context(main, info_name="allranks"), main
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
        context = click.Context(command, info_name=name, parent=context)
    command.make_context(words and command.name, words, parent=context.parent)  # raises a UsageError


def test_no_example_is_of_a_command_that_is_gone():
    assert set(EXAMPLES) <= {" ".join(words) for words in commands()}


@pytest.mark.parametrize("module", ["allranks", "allranks.cli"])
def test_the_module_is_the_same_command_line(module):
    done = subprocess.run([sys.executable, "-m", module, "fit", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("Usage: allranks fit "), done.stderr


def test_each_command_of_the_grader_has_its_entry_point():
    """In pyproject.toml, and in what is installed: after a change of pyproject.toml, `make setup`."""
    from allranks.cli._grader import GROUP, commands

    wanted = {}
    for path in (ROOT / "autograder" / "commands").glob("[a-z]*.py"):
        wanted[path.stem.rstrip("_").replace("_", "-")] = f"autograder.commands.{path.stem}:command"
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]
    assert declared == wanted == {name: point.value for name, point in commands().items()}


def test_another_packages_commands_replace_none_and_break_none(tmp_path):
    """Of one name, the course's own counts, whichever is found last; a command that can't be loaded is one sentence."""
    about = tmp_path / "other-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[allranks.commands]\ngrade = other:grade\nbroken = other:broken\nnone = json:none\n"
    )

    def typed(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    for where in (f"insert(0, {str(tmp_path)!r})", f"append({str(tmp_path)!r})"):
        start = f"import sys; sys.path.{where}; from allranks.cli import main; "
        done = typed(f"{start}main(['grade', '--help'])")
        assert done.returncode == 0 and "--force" in done.stdout, done.stderr
        assert done.stderr == "The package other has a command grade too: that of allranks is used.\n"
        for name in ("broken", "none"):
            done = typed(f"{start}main([{name!r}])")
            assert done.returncode == 2 and done.stderr.startswith(f"`allranks {name}` can't be loaded from other (")
            assert done.stderr.count("\n") == 1
        done = typed(f"{start}main(['--help'])")
        assert done.returncode == 0 and "simulate" in done.stdout, done.stderr


def test_the_list_of_commands_looks_once_at_what_is_installed():
    code = (
        "from allranks.cli import _grader, main\n"
        "look, looks = _grader.entry_points, []\n"
        "_grader.entry_points = lambda **wanted: looks.append(wanted) or look(**wanted)\n"
        "try: main(['--help'])\nfinally: print(len(looks))"
    )
    lines = python(code).splitlines()
    assert any(line.split()[:1] == ["grade"] for line in lines) and lines[-1] == "1"


def test_without_the_grader_its_commands_are_not_there_and_one_sentence_says_so(tmp_path):
    code = (
        "from allranks.base import course_files; course_files.teacher = lambda: None\n"
        "import sys, click; from allranks.cli import main\n"
        "print(*main.list_commands(click.Context(main)), flush=True)\n"
        "main(['grade', 'lab03_all_reduce'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert {"check", "lab"} <= set(done.stdout.split()) and not {"grade", "course"} & set(done.stdout.split())
    assert done.returncode == 2 and "this installation has no grader" in done.stderr and done.stderr.count("\n") == 1


def python(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | env, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_names_torch_nccl_and_the_backend_without_importing_torch():
    code = "import sys\nfrom allranks.cli import main\ntry: main(['--version'])\nfinally: print('torch' in sys.modules)"
    lines = python(code).splitlines()
    told = dict(line.rsplit(" ", 1) for line in lines[:2])
    from importlib.metadata import version

    assert told["allranks"] == version("allranks") and f"torch {version('torch')}" in lines
    assert any(line.startswith("NCCL ") for line in lines) and any(line.startswith("backend ") for line in lines)
    assert lines[-1] == "False"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion(shell):
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0 and f"_ALLRANKS_COMPLETE={shell}_complete" in done.output


def test_the_completion_completes_commands_exercises_and_labs():
    code = "from allranks.cli import main; main(prog_name='allranks')"

    def completed(typed: str) -> list[str]:
        words = f"allranks {typed}"
        told = python(
            f"try:\n {code}\nexcept SystemExit: pass",
            _ALLRANKS_COMPLETE="bash_complete",
            COMP_WORDS=words,
            COMP_CWORD=str(len(words.split(" ")) - 1),
        )
        return [line.partition(",")[2] for line in told.splitlines()]

    assert completed("che") == ["check"]
    assert {"ring_all_reduce", "ring_shift"} <= set(completed("check ring_"))
    assert "lab03_all_reduce" in completed("grade lab03")


def test_the_package_imports_little():
    """Under 50 ms (docs/benchmarks.md): no third-party package, and of the standard library nothing that reads or
    talks.
    """
    code = "import sys; before = set(sys.modules)\nimport allranks\nprint(*(set(sys.modules) - before))"
    names = python(code).split()
    assert {name for name in names if name.startswith("allranks.")} <= {"allranks.base", "allranks.base.notebook"}
    loaded = {name.partition(".")[0] for name in names}
    assert loaded - {"allranks"} <= set(sys.stdlib_module_names)
    assert not loaded & {"asyncio", "json", "socket", "subprocess", "logging", "multiprocessing", "inspect"}


def test_no_service_of_roots_is_loaded_by_a_learner():
    """All public names and every command of the package: none of them loads what only root or a teacher runs."""
    code = (
        "import importlib, sys, allranks\nfrom allranks import cli\n"
        "for name in dir(allranks): getattr(allranks, name)\n"
        "for name in cli._in_this_package(): importlib.import_module(f'allranks.cli.{name}')\n"
        "print(*sys.modules)"
    )
    loaded = set(python(code).split())
    services = {"forkserver.machine", "forkserver.server", "gpu_service", "gpu_metrics"}
    assert "allranks.ranks.world.world" in loaded
    assert {f"allranks.ranks.engines.{name}" for name in services} & loaded == set()
    assert not {name for name in loaded if name.startswith(("allranks.machine.gpu_page", "autograder", "jupyterhub"))}

"""Every public error of the package and of the grader is a CourseError: a notebook and a command show one sentence."""

import ast
import builtins
from pathlib import Path

import click
import pytest
from allranks.base.errors import CourseError
from allranks.cli import _Commands
from click.testing import CliRunner

pytestmark = pytest.mark.core
ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "utils" / "allranks", ROOT / "autograder")
# click prints the first itself; a rank raises the second in the student's code, where torch would raise a ValueError
OF_OTHERS = {"CommandError", "MisuseError"}


def errors(*folders: Path) -> dict[str, set[str]]:
    """The public exception classes that the files in these folders define, each with the names of all its ancestors."""
    bases = {}
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                # a class may have the name of its base in another file
                bases[node.name] = {ast.unparse(base).split(".")[-1] for base in node.bases} - {node.name}

    def ancestors(name: str) -> set[str]:
        return bases.get(name, set()).union(*map(ancestors, bases.get(name, set())))

    def is_exception(name: str) -> bool:
        kind = getattr(builtins, name, None) or getattr(click, name, None)
        return isinstance(kind, type) and issubclass(kind, Exception)

    found = {name: ancestors(name) for name in bases if not name.startswith("_")}
    return {name: above for name, above in found.items() if any(map(is_exception, above))}


def test_every_public_error_is_a_course_error():
    strays = {name for name, above in errors(*FOLDERS).items() if "CourseError" not in above} - {"CourseError"}
    assert strays == OF_OTHERS


def test_an_error_of_another_kind_is_found(tmp_path):
    text = (
        "class Base(ValueError): pass\nclass LostError(Base): pass\nclass _Inner(Exception): pass\nclass Plain: pass\n"
    )
    (tmp_path / "room.py").write_text(text, encoding="utf-8")
    assert errors(tmp_path) == {"Base": {"ValueError"}, "LostError": {"Base", "ValueError"}}


def test_a_notebook_shows_one_sentence():
    from allranks.theory.schedules import ScheduleError, ring_all_reduce

    with pytest.raises(ScheduleError) as caught:
        ring_all_reduce(0)
    assert caught.value._render_traceback_() == ["ScheduleError: ranks is 0; it must be between 1 and 65536"]


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("the world has gone", "The world has gone.\n"),
        ("ranks_per_node is 4; it must divide 10.", "ranks_per_node is 4; it must divide 10.\n"),
    ],
)
def test_a_command_prints_one_sentence_and_exits_with_2(message, printed):
    group = _Commands("allranks")

    @click.command()
    def broken():
        raise CourseError(message)

    group.get_command = lambda ctx, name: broken
    ran = CliRunner().invoke(group, ["broken"])
    assert (ran.exit_code, ran.stdout, ran.stderr) == (2, "", printed)

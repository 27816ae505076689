"""`allranks new exercise NAME`: the files of an exercise that works at once, to be changed."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click

from allranks.cli._shared import CommandError

SKELETON = Path(__file__).with_name("skeleton")


@click.group(name="new")
def command() -> None:
    """Makes the files of something new."""


@command.command(name="exercise")
@click.argument("name")
@click.option(
    "--package",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Make a package of your own in FOLDER, outside of a clone of the course: pip install it, and it is found.",
)
def exercise(name: str, package: Path | None) -> None:
    """Makes the exercise NAME, a right and a wrong answer. They work as they are: change them into yours.

    In a clone of the course the files go to their places; docs/exercises.md says what each part is for.
    """
    from allranks.exercises import names

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise CommandError(f"{name!r} can't be a function's name: use small letters, digits and underscores.")
    if name in names():
        raise CommandError(f"There is an exercise {name} already: choose another name.")
    if package is None:
        root = _clone(Path.cwd())
        tests = root / "tests" / "exercises"
        wanted = {
            root / "utils" / "allranks" / "exercises" / f"{name}.py": "exercise.py",
            tests / "right" / name / "batch.py": "right.py",
            tests / "wrong" / name / "own_tensor.py": "wrong.py",
        }
        after = (
            f"Try it: allranks check {name} {tests / 'right' / name / 'batch.py'}\n"
            f"Add right answers (3) and wrong ones (5): python -m pytest -q tests/exercises -k {name}\n"
            "Then the lab: docs/instructor.md, Adding a lab."
        )
    else:
        wanted = {
            package / "pyproject.toml": "pyproject.toml",
            package / f"allranks_{name}.py": "exercise.py",
            package / "right" / "batch.py": "right.py",
            package / "wrong" / "own_tensor.py": "wrong.py",
        }
        after = f"Try it: pip install -e {package} && allranks check {name} {package / 'right' / 'batch.py'}"
    if there := [path for path in wanted if path.exists()]:
        raise CommandError(f"{there[0]} is there already; nothing was written.")
    for path, part in wanted.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = (SKELETON / f"{part}.txt").read_text(encoding="utf-8")
            path.write_text(re.sub(r"NAME", name, text), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{path} can't be written ({error.strerror}).") from None
        click.echo(path)
    click.echo(after)


def _clone(start: Path) -> Path:
    """The clone of the course that holds this folder. Raises CommandError."""
    for folder in (start, *start.parents):
        if (folder / "utils" / "allranks" / "exercises").is_dir() and (folder / "tests" / "exercises").is_dir():
            return folder
    raise CommandError("This is no clone of the course: go into one, or make a package with --package FOLDER.")

"""The known answers: right/EXERCISE/NAME.py and wrong/EXERCISE/NAME.py, and wrong ones that differ from another in a few lines only.

A wrong answer names in its docstring what its verdict must say (`Must get: ...`) and must not say (`Must not get: ...`). Near copies of
one answer lie in wrong/EXERCISE/changed.toml.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

from changed import changed

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Answer:
    """One answer: the exercise, its name, its text, what its verdict must and must not say, and the file that holds it."""

    exercise: str
    name: str
    text: str
    must_get: tuple[str, ...]
    must_not_get: tuple[str, ...]
    path: Path

    def __str__(self) -> str:
        return f"{self.exercise}/{self.name}"


def answers(kind: str) -> list[Answer]:
    """All answers that are "right" or "wrong"."""
    files = [_of_file(path) for path in sorted((HERE / kind).glob("*/*.py"))]
    near = [answer for path in sorted((HERE / kind).glob("*/changed.toml")) for answer in _of_changes(path)]
    return sorted([*files, *near], key=str)


def _of_file(path: Path) -> Answer:
    text = path.read_text(encoding="utf-8")
    said = (ast.get_docstring(ast.parse(text)) or "").splitlines()

    def after(label: str) -> tuple[str, ...]:
        return tuple(line.removeprefix(label).strip() for line in said if line.startswith(label))

    return Answer(path.parent.name, path.stem, text, after("Must get:"), after("Must not get:"), path)


def _of_changes(path: Path) -> list[Answer]:
    def base(name: str) -> str:
        kind, _, stem = name.partition("/")
        return _without_docstring(HERE / kind / path.parent.name / f"{stem}.py")

    found = []
    for name, entry, text in changed(path, base):
        must = (tuple(entry.get(key, ())) for key in ("must_get", "must_not_get"))
        found.append(Answer(path.parent.name, name, text, *must, path))
    return found


@functools.cache
def _without_docstring(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    if ast.get_docstring(tree) is None:
        return text
    return "".join(text.splitlines(keepends=True)[tree.body[0].end_lineno :]).lstrip("\n")

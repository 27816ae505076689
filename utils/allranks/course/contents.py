"""What each chapter holds, read off its notebook: minutes, checks, predictions and quizzes. Nobody writes these numbers down.

A chapter's checks are the exercises that its own cells check, and those of the lab to which it leads that no chapter's cell checks.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from allranks.base.chapters import Chapter, chapters
from allranks.base.record import name_of


class Kind(StrEnum):
    """What can be proved or said in a chapter."""

    CHECK = "check"
    PREDICTION = "prediction"
    QUIZ = "quiz"


_CALLS = {"check": Kind.CHECK, "predict": Kind.PREDICTION, "Quiz": Kind.QUIZ, "Drill": Kind.QUIZ}


@dataclass(frozen=True)
class Item:
    """A check, prediction or quiz: its name in the record, the notebook in which it stands (from the course's folder), its cell."""

    kind: Kind
    name: str
    notebook: Path
    cell: str


@dataclass(frozen=True)
class Contents:
    """What a chapter's notebook holds. `places` says how far into the chapter, from 0 to 1, the cell of each of its own items stands."""

    minutes: int
    checks: tuple[Item, ...]
    questions: tuple[Item, ...]  # predictions and quizzes
    places: tuple[tuple[str, float], ...]


@cache
def contents(root: Path) -> dict[str, Contents]:
    """The contents of every chapter in `root`, the folder with chapters/ and labs/, by the chapter's number.

    Raises OSError or ValueError where a notebook of the course is missing or broken.
    """
    books = {chapter.number: _read(root, chapter.path) for chapter in chapters()}
    own = {chapter.number: list(_items(books[chapter.number], chapter.path)) for chapter in chapters()}
    checked = {item.name for items in own.values() for item, _ in items if item.kind is Kind.CHECK}
    labs = {path.parent.name: path.relative_to(root) for path in sorted(root.glob("labs/*/*.ipynb"))}
    home = _homes(books, labs)
    found = {}
    for chapter in chapters():
        items = own[chapter.number]
        checks = [item for item, _ in items if item.kind is Kind.CHECK]
        for lab in (lab for lab, number in home.items() if number == chapter.number):
            checks += [item for item in _graded(_read(root, labs[lab]), labs[lab]) if item.name not in checked]
        found[chapter.number] = Contents(
            _minutes(books[chapter.number], chapter),
            tuple(checks),
            tuple(item for item, _ in items if item.kind is not Kind.CHECK),
            tuple((item.name, place) for item, place in items),
        )
    return found


def _read(root: Path, notebook: Path) -> list[dict[str, Any]]:
    """The cells of a notebook."""
    cells: list[dict[str, Any]] = json.loads((root / notebook).read_text(encoding="utf-8"))["cells"]
    return cells


def _source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def calls(source: str) -> Iterator[ast.Call]:
    """The calls in a code cell, whose magics are no Python.

    Example:
        >>> [ast.unparse(call) for call in calls("%%ranks\\nprint(1)")]
        ['print(1)']
    """
    plain = "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("%"))
    return (node for node in ast.walk(ast.parse(plain)) if isinstance(node, ast.Call))


def _minutes(cells: list[dict[str, Any]], chapter: Chapter) -> int:
    stated = re.search(r"(\d+) minutes", _source(cells[0]))
    if stated is None:
        raise ValueError(f"{chapter.path} does not say in its first cell how many minutes it takes")
    return int(stated[1])


def _items(cells: list[dict[str, Any]], notebook: Path) -> Iterator[tuple[Item, float]]:
    """The items of a notebook in order, each with how far into the notebook it stands, by the length of what is to read and run."""
    lengths = [len(_source(cell)) for cell in cells]
    whole, before = max(1, sum(lengths)), 0
    for cell, length in zip(cells, lengths, strict=True):
        before += length
        if cell["cell_type"] == "code":
            for kind, name in _named(_source(cell)):
                yield Item(kind, name, notebook, cell["id"]), before / whole


def _named(source: str) -> Iterator[tuple[Kind, str]]:
    """What a cell checks and asks, by the calls in it. A name that only a run would tell is left out."""
    if not any(f"{call}(" in source for call in _CALLS):
        return
    for call in calls(source):
        if not isinstance(call.func, ast.Name) or call.func.id not in _CALLS:
            continue
        kind = _CALLS[call.func.id]
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        first = call.args[0] if call.args else None
        if kind is Kind.CHECK:
            if isinstance(first, ast.Name):
                yield kind, _text(given.get("exercise")) or first.id
        elif named := _text(given.get("name")) or name_of(_text(first)):
            yield kind, named


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _homes(books: dict[str, list[dict[str, Any]]], labs: dict[str, Path]) -> dict[str, str]:
    """The chapter to which each lab belongs: the one of the lab's name, else the first one whose end leads to it."""
    leading: dict[str, list[str]] = {lab: [] for lab in labs}
    for chapter in chapters():
        text = "\n".join(_source(cell) for cell in books[chapter.number] if cell["cell_type"] == "markdown")
        for lab in dict.fromkeys(re.findall(r"labs/(lab\d\d_\w+)/", text.partition("**Now you:**")[2])):
            if lab in leading:
                leading[lab].append(chapter.number)
    stems = {chapter.number: chapter.stem[3:] for chapter in chapters()}
    return {
        lab: next((number for number in numbers if stems[number] == lab[6:]), numbers[0])
        for lab, numbers in leading.items()
        if numbers
    }


def _graded(cells: list[dict[str, Any]], notebook: Path) -> Iterator[Item]:
    """The exercises that a lab grades."""
    for cell in cells:
        if name := cell["metadata"].get("allranks", {}).get("exercise"):
            yield Item(Kind.CHECK, name, notebook, cell["id"])

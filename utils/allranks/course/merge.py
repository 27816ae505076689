"""Merges a new version of a notebook into the learner's, cell by cell: nothing that was written is lost.

A cell is known by its id, which `tools/notebooks.py` sets and which stays the same between versions. Colab and old editors
drop ids; there a cell is known by its name in the metadata, or by its text.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Notebook = dict[str, Any]
Cell = dict[str, Any]


@dataclass(frozen=True)
class Merged:
    """The merged notebook; the cells of the learner that were `kept`, and of these the ones that have a new version below them."""

    notebook: Notebook
    kept: tuple[str, ...]
    doubled: tuple[str, ...]


def text_of(cell: Cell) -> str:
    """The cell's source as one text."""
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else str(source)


def merge(base: Notebook, mine: Notebook, new: Notebook, version: str) -> Merged:
    """`mine` with the changes that lead from `base` to `new`. `version` is that of `new`, for the learner to read.

    - A cell that the learner left as it was becomes the new one; if that is the same, it keeps its outputs.
    - A cell that the learner changed stays. If the course changed it too, the new text stands below it, in a text cell.
    - The learner's own cells stay behind the cell that they followed; cells that the learner deleted stay away.
    """
    bases = {cell["id"]: cell for cell in base["cells"]}
    names = _names(mine["cells"], bases)
    own = {name: cell for name, cell in zip(names, mine["cells"], strict=True)}
    placed: list[tuple[str, Cell]] = []
    kept, doubled = [], []
    for cell in new["cells"]:
        name = cell["id"]
        was, is_now = bases.get(name), own.get(name)
        if is_now is None:
            if was is None:
                placed.append((name, copy.deepcopy(cell)))
            continue  # the learner deleted it
        changed = was is None or not _same(is_now, was)
        if not changed and not _same(cell, is_now):
            placed.append((name, copy.deepcopy(cell)))
            continue
        metadata = {**is_now.get("metadata", {}), **cell.get("metadata", {})}
        placed.append((name, {**copy.deepcopy(is_now), "id": name, "metadata": metadata}))
        if not changed or _same(cell, is_now):
            continue
        kept.append(name)
        if was is None or not _same(cell, was):
            doubled.append(name)
            placed.append((f"new {name}", _note(cell, version)))
    there = {name for name, _ in placed}
    before: list[str] = []  # the names of the learner's cells so far
    for name, cell in zip(names, mine["cells"], strict=True):
        if name not in there and (name not in bases or not _same(cell, bases[name])):
            at = _behind(placed, before)
            placed.insert(at, (name, {**copy.deepcopy(cell), "id": name}))
            kept.append(name)
        before.append(name)
    merged = {**copy.deepcopy(mine), "cells": [cell for _, cell in _with_own_ids(placed)]}
    merged["nbformat"], merged["nbformat_minor"] = new["nbformat"], new["nbformat_minor"]
    return Merged(merged, tuple(kept), tuple(doubled))


def _same(a: Cell, b: Cell) -> bool:
    return a.get("cell_type") == b.get("cell_type") and text_of(a) == text_of(b)


def _names(cells: list[Cell], bases: dict[str, Cell]) -> list[str]:
    """A name for each of the learner's cells, each once: the id of the base's cell that it is, or one of its own."""
    taken: set[str] = set()
    found: list[str | None] = []
    for cell in cells:
        name = next((name for name in _told(cell) if name in bases and name not in taken), None)
        found.append(name)
        taken |= {name} if name else set()
    for at, cell in enumerate(cells):  # by its text, among those that no cell claims
        if found[at] is None:
            found[at] = next((name for name, b in bases.items() if name not in taken and _same(b, cell)), None)
            taken |= {name for name in found[at : at + 1] if name}
    names: list[str] = []
    for cell, name in zip(cells, found, strict=True):
        own = re.sub(r"[^A-Za-z0-9_-]", "-", str(cell.get("id") or "own"))[:50] or "own"
        number = 1
        while name is None or name in names:
            candidate = own if number == 1 else f"{own}-{number}"
            name = None if candidate in taken or candidate in bases else candidate
            number += 1
        taken.add(name)
        names.append(name)
    return names


def _told(cell: Cell) -> Iterator[str]:
    """What the cell calls itself: its id, or the name in its metadata where an editor dropped the id."""
    metadata = cell.get("metadata", {})
    nbgrader = metadata.get("nbgrader")
    grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    yield from (str(name) for name in (cell.get("id"), grade_id, metadata.get("name"), metadata.get("id")) if name)


def _behind(placed: list[tuple[str, Cell]], before: list[str]) -> int:
    """The place behind the last cell of `before` that is placed, and behind the note on that cell's new version."""
    at = {name: index for index, (name, _) in enumerate(placed)}
    for name in reversed(before):
        if name in at:
            return at.get(f"new {name}", at[name]) + 1
    return 0


def _note(cell: Cell, version: str) -> Cell:
    """A text cell with the new version of a cell that the learner changed."""
    text = text_of(cell)
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    shown = f"{fence}python\n{text}\n{fence}" if cell.get("cell_type") == "code" else text
    note = f"**The cell above is yours. In version {version} the course has this in its place:**\n\n{shown}"
    return {"cell_type": "markdown", "id": "", "metadata": {}, "source": note}


def _with_own_ids(placed: list[tuple[str, Cell]]) -> list[tuple[str, Cell]]:
    """The cells with a different id each; notes have none yet."""
    taken = {cell["id"] for _, cell in placed}
    for name, cell in placed:
        if not cell["id"]:
            stem, number = name.replace(" ", "-")[:50], 1
            while (candidate := f"{stem}-{number}") in taken:
                number += 1
            cell["id"] = candidate
            taken.add(candidate)
    return placed

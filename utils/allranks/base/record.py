"""What a reader did, kept beside the notebooks: questions answered, checks made, chapters ended. Nothing of it leaves
the machine.

It is one file, `FILE`, in the folder that holds chapters/: a line of JSON for each deed, the latest last. Only a
notebook that lies in such a folder is recorded: a notebook that a test or the site's build runs is not, because no
Jupyter server names its file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from allranks.base import kept as kept_files
from allranks.base.course_files import FIRST_CHAPTER
from allranks.base.notebook import notebook_file

FILE = Path(".allranks-progress.jsonl")
# where the browser keeps the answers to predictions, in a notebook's metadata: js/src/predict/answers.js
ANSWERS = "allranks_predictions"
_MAX_LINE = 20_000  # bytes; a longer line is none of ours


class Did(StrEnum):
    """What can be recorded."""

    ASKED = "asked"  # the reader ran the cell that asks a question
    ANSWERED = "answered"  # a prediction locked in, or a quiz answered
    TOOK_BACK = "took back"
    CHECKED = "checked"
    ENDED = "ended"  # the reader ran the last cell of a chapter


@dataclass(frozen=True)
class Checked:
    """The verdict that counts: the first that passed, else the last. `properties` say which of its properties held."""

    passed: bool
    properties: Mapping[str, bool] = field(default_factory=dict)


@dataclass
class Record:
    """What a reader did, by name: `answered` questions, `checks` of exercises, `ended` chapters (their numbers).

    `taken_back` are questions whose answer was withdrawn. `order` has (what, name) of every deed, the latest last.
    """

    answered: set[str] = field(default_factory=set)
    taken_back: set[str] = field(default_factory=set)
    checks: dict[str, Checked] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    order: list[tuple[Did, str]] = field(default_factory=list)


def name_of(question: str) -> str:
    """The name under which the answer to a question is kept, if the question was given none.

    >>> name_of("Who holds the sum?")
    'who-holds-the-sum'
    """
    return re.sub(r"[^a-z0-9]+", "-", question.lower()).strip("-")[:60]


def folder_of(start: Path) -> Path | None:
    """The folder with chapters/ that holds `start`, a notebook or a folder; None if there is none."""
    here = start.resolve()
    return next((folder for folder in (here, *here.parents) if (folder / FIRST_CHAPTER).is_file()), None)


def own_folder() -> Path | None:
    """The folder whose record this notebook belongs to; None for a notebook elsewhere, and outside of notebooks."""
    notebook = notebook_file()
    return None if notebook is None else folder_of(notebook)


def note(did: Did, name: str, **more: Any) -> None:
    """Records a deed of this notebook's reader. Never raises: a folder that can't be written must stop nobody."""
    folder = own_folder()
    if folder is None:
        return
    line = json.dumps({"at": int(time.time()), "did": did, "name": name} | more) + "\n"
    # one write to a file opened for appending: the kernels of several notebooks may do so at once
    with contextlib.suppress(OSError):
        where = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(where, line.encode())
        finally:
            os.close(where)


def read(folder: Path) -> Record:
    """What the reader of the notebooks in `folder` did; nothing if there is no record, or none that can be read."""
    found = Record()
    for line in _lines(folder / FILE):
        match line:
            case {"did": str(did), "name": str(name)} if did in set(Did):
                _take(found, Did(did), name, line)
    return found


def _take(found: Record, did: Did, name: str, line: Mapping[str, Any]) -> None:
    found.order.append((did, name))
    if did is Did.ANSWERED:
        found.answered.add(name)
        found.taken_back.discard(name)
    elif did is Did.TOOK_BACK:
        found.answered.discard(name)
        found.taken_back.add(name)
    elif did is Did.ENDED:
        found.ended.add(name)
    elif did is Did.CHECKED:
        before = found.checks.get(name)
        if before is None or not before.passed:  # what was proved once stays proved
            properties = line.get("properties")
            held = {str(k): v is True for k, v in properties.items()} if isinstance(properties, dict) else {}
            found.checks[name] = Checked(line.get("passed") is True, held)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines that are JSON objects; a line that a full disk cut short is left out."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(line) if len(line) <= _MAX_LINE else None
            if isinstance(found, dict):
                yield found


def saved_answers(notebook: Path) -> frozenset[str]:
    """The questions that are answered in a saved notebook, by name."""
    try:
        about = notebook.stat()
    except OSError:
        return frozenset()
    return _saved_answers(notebook, about.st_mtime_ns, about.st_size)


_KEPT: dict[
    Path, tuple[tuple[int, int], frozenset[str]]
] = {}  # the last answers of each notebook, with its time and size


def _saved_answers(notebook: Path, *stamp: int) -> frozenset[str]:
    kept = _KEPT.get(notebook)
    if kept is not None and kept[0] == stamp:
        return kept[1]
    found: frozenset[str] = frozenset()
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
        content = notebook.read_bytes()
        if ANSWERS.encode() in content:  # most notebooks have none, and may be large
            answers = json.loads(content)["metadata"].get(ANSWERS, {})
            found = frozenset(name for name, said in answers.items() if isinstance(said, dict) and "value" in said)
    _KEPT[notebook] = (stamp, found)  # type: ignore[assignment]
    return found


def clear(folder: Path, notebooks: list[Path]) -> list[Path]:
    """Removes the record of `folder`, its axes of *my model* and the answers in its `notebooks`; returns the files that
    changed. Raises OSError.

    Nothing else in a notebook changes: not its cells, not its outputs.
    """
    changed = []
    for notebook in notebooks:
        try:
            book = json.loads(notebook.read_text(encoding="utf-8"))
            there = ANSWERS in book.get("metadata", {})
        except (FileNotFoundError, ValueError, RecursionError, AttributeError):
            continue
        if there:
            del book["metadata"][ANSWERS]
            # as Jupyter writes it
            notebook.write_text(json.dumps(book, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
            changed.append(notebook)
    for path in [folder / FILE, kept_files.place(kept_files.MY_MODEL, folder)]:
        if path.exists():
            path.unlink()
            changed.append(path)
    return changed

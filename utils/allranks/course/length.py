"""How long a chapter takes, from what its notebook holds: words to read, code to read and run, questions, exercises. Nobody writes it down."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from allranks.course.contents import calls

WORDS = 200  # a minute
LINES = 15  # of code, a minute
RUN = 1 / 3  # minutes to run a cell and to look at what it shows
QUESTION, PICTURE, DRILL = 0.5, 1.0, 10.0  # to answer a prediction; to drag or to play; all questions of a drill
EXERCISE, SEARCH = 10.0, 3.0  # to write a function; to find a place in torch
ROUND = 5  # minutes

_CALLS = {"predict": QUESTION, "Player": PICTURE, "my_model": PICTURE, "explore": PICTURE, "Drill": DRILL}


def minutes(cells: Sequence[Mapping[str, Any]]) -> int:
    """The minutes of a notebook's cells for one person who works alone, rounded to five.

    Nobody was timed. Sources and pictures are not read; a chapter's lab is not counted.

    Example:
        >>> minutes([{"cell_type": "markdown", "source": "word " * 1500}])
        10
    """
    return max(1, round(taken(cells) / ROUND)) * ROUND


def taken(cells: Sequence[Mapping[str, Any]]) -> float:
    """The same before it is rounded, for a part of a notebook, too."""
    minutes = 0.0
    for cell in cells:
        source = "".join(cell["source"])
        minutes += _prose(source) if cell["cell_type"] == "markdown" else _code(source, read=not _is_helper(cell))
    return minutes


def _is_helper(cell: Mapping[str, Any]) -> bool:
    """Whether the notebook folds code away that need not be read; cells that reveal an answer are short, and counted."""
    folded = cell.get("metadata", {}).get("jupyter", {}).get("source_hidden", False)
    return folded and ".reveal(" not in "".join(cell["source"])


def _prose(source: str) -> float:
    """To read a text cell, with the answers that it folds, and to do what it asks for."""
    asked = EXERCISE * source.count("<b>An answer</b>") + SEARCH * source.count("**Your task.**")
    read = source.partition("**Sources.**")[0]
    for without in (r"```.*?```", r"<[^>]*>", r"(?<=\])\([^)]*\)"):  # an exercise's answer, tags, addresses
        read = re.sub(without, "", read, flags=re.DOTALL)
    return asked + len(read.split()) / WORDS


def _code(source: str, read: bool) -> float:
    """To read a code cell, if it shall be read, run it, and answer or try what it shows."""
    lines = [line for line in source.splitlines() if line.strip()] if read else []
    return len(lines) / LINES + RUN + sum(_CALLS.get(_first_name(call.func), 0) for call in calls(source))


def _first_name(call: ast.expr) -> str:
    """The name with which a call begins: explore of explore.fsdp(...)."""
    while isinstance(call, ast.Attribute):
        call = call.value
    return call.id if isinstance(call, ast.Name) else ""

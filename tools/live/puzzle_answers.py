"""What the page of the ten puzzles asks of the package: the verdict on the reader's code, as plain data in and out.

It runs in the reader's browser; the zip for the browser has what this file imports.
"""

from __future__ import annotations

import json
from typing import Any

from allranks.exercises.puzzles import catalogue, judge


def answer(name: str, request: str) -> str:
    """The answer as JSON; `judge` itself says what is wrong with the code."""
    if name != "judge":
        raise ValueError(f"there is no question {name!r}; there is judge")
    asked = json.loads(request)
    return json.dumps(judged(asked["puzzle"], asked["code"]))


def judged(puzzle: str, code: str) -> dict[str, Any]:
    """The verdict as the page takes it: it draws "drawn", and needs no trace."""
    return judge(puzzle, code) | {"trace": None}


def warm() -> None:
    """Judges each puzzle's own beginning: what is loaded then is what the page needs."""
    for puzzle in catalogue():
        judge(puzzle["id"], puzzle["starter"])

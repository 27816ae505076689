"""Ten puzzles: a reader's own sends and receives, judged in this process, without torch. They also run in a browser (Pyodide).

    from allranks import puzzles
    puzzles.judge("ring", code)["headline"]

`judge` gives plain data that JSON can hold; the site's pages and `allranks puzzle` show it.
"""

from __future__ import annotations

from typing import Any

from allranks.base.errors import CourseError
from allranks.exercises.puzzles.judging import Judging, next_line, rules_of
from allranks.exercises.puzzles.link import LinkError, pack, unpack
from allranks.exercises.puzzles.table import PUZZLES, Puzzle
from allranks.exercises.puzzles.vector import NAMES

__all__ = ["LinkError", "PuzzleError", "catalogue", "judge", "pack", "unpack"]
_CALLS = ("rank", "world_size", "send", "recv", "isend", "irecv", "batch", "wait")


class PuzzleError(CourseError, ValueError):
    """There is no such puzzle."""


def find(puzzle: str | int) -> Puzzle:
    """The puzzle of that number, from 1, or of that id. Raises PuzzleError if there is none."""
    for number, one in enumerate(PUZZLES, 1):
        if str(puzzle) in (one.id, str(number)):
            return one
    raise PuzzleError(
        f"There is no puzzle {puzzle!r}; there are 1 to {len(PUZZLES)}: {', '.join(one.id for one in PUZZLES)}."
    )


def catalogue() -> list[dict[str, Any]]:
    """The puzzles in order, as plain data: what each asks for, the code to begin with, a hint, its rules and rank counts.

    >>> [row["id"] for row in puzzles.catalogue()][:3]
    ['pass', 'sum', 'circle']
    """
    return [
        {
            "id": one.id,
            "number": number,
            "title": one.title,
            "short": one.short,
            "task": one.task,
            "function": one.function,
            "signature": f"{one.function}(x)",
            "starter": one.starter,
            "hint": one.hint,
            "rules": [{"code": code, "text": text} for code, text in rules_of(one)],
            "names": [*_CALLS, *(["node_size"] if one.nodes else []), *sorted(NAMES)],
            "ranks": one.counts[0],
            "counts": sorted(one.counts),
            "next": next_line(one),
        }
        for number, one in enumerate(PUZZLES, 1)
    ]


def judge(puzzle: str | int, code: str) -> dict[str, Any]:
    """The verdict on a reader's code, as plain data; `puzzle` is a number from 1 or an id.

    "right", and if not: the cause's "code", a "headline", the "line" and a "note"; of the run that is shown also the "trace", what
    each chunk holds before each step ("drawn"), the "first_wrong" move, or who "waits" for whom. The code is run in this process,
    without files and without other modules, and is no sandbox. Raises PuzzleError for a puzzle that is not there, and nothing else.

    >>> puzzles.judge("circle", "def pass_right(x):\\n    send(x, (rank + 1) % world_size)")["code"]
    'sends before it receives'
    """
    return Judging(find(puzzle), code).result()

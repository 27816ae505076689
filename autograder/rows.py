"""A student's row, as grading tells it: on a terminal, in the overview of the class, on pages."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

KINDS = {
    "timed out": "ran out of time",
    "crashed": "crashed",
    "changed": "handed in cells that are not as released",
    "suspicious": "used what no exercise asks for",
    "new": "were not in the gradebook, and were entered",
    "beside": "handed in files that were not read",
    "unreadable": "could not be graded",
}


def not_graded(student: str, reason: str, marking_s: float = 0.0) -> dict[str, Any]:
    """The row of a submission that was not graded. `autograder.grading` uses it too."""
    incident = {"kind": "unreadable", "where": "", "what": reason}
    row = {"student": student, "score": None, "max_score": None, "late_penalty": 0.0, "seconds": marking_s}
    return row | {"reason": reason, "incidents": [incident]}


def in_words(row: dict[str, Any]) -> str:
    """A student's row for a terminal."""
    if row["score"] is None:
        return printable(f"{row['student']}: not graded. {row['reason']}")
    late = f", less {row['late_penalty']:g} for being late" if row["late_penalty"] else ""
    return printable(f"{row['student']}: {row['score']:g} of {row['max_score']:g}{late}, {row['seconds']:.1f} s")


def report(rows: list[dict[str, Any]]) -> str:
    """The students who ran out of time, crashed, or did what a teacher may want to look at; "" if there are none."""
    groups = by_kind((row["student"], incident) for row in rows for incident in row["incidents"])
    return "\n\n".join("\n".join(lines) for lines in groups)


def by_kind(incidents: Iterable[tuple[str, dict[str, str]]]) -> list[list[str]]:
    """For each kind of incident how many students had one, and then who, where and what.

    >>> by_kind([("ada", {"kind": "crashed", "where": "", "what": "by signal 9"})])
    [['1 crashed:', '  ada: by signal 9']]
    """
    found, told = list(incidents), []
    for kind, words in KINDS.items():
        theirs = [(student, one) for student, one in found if one["kind"] == kind]
        if theirs:
            lines = [f"{student}: {one['where']}{': ' if one['where'] else ''}{one['what']}" for student, one in theirs]
            count = len({student for student, _ in theirs})
            told.append([f"{count} {words}:", *(printable(f"  {line}") for line in lines)])
    return told


def printable(text: str) -> str:
    """The text without control characters: a student chose the name, and a program the reason."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c).startswith("C") else c for c in text)

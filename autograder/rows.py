"""A student's row, as grading tells it: on a terminal, in the overview of the class, on pages."""

from __future__ import annotations

import unicodedata
from typing import Any

KINDS = {
    "timed out": "ran out of time",
    "crashed": "crashed",
    "changed": "handed in cells that are not as released",
    "suspicious": "used what no exercise asks for",
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
    lines = []
    for kind, words in KINDS.items():
        theirs = [(row["student"], i) for row in rows for i in row["incidents"] if i["kind"] == kind]
        if theirs:
            lines.append(f"\n{len({student for student, _ in theirs})} {words}:")
            for student, incident in theirs:
                where = f"{incident['where']}: " if incident["where"] else ""
                lines.append(printable(f"  {student}: {where}{incident['what']}"))
    return "\n".join(lines).lstrip("\n")


def printable(text: str) -> str:
    """The text without control characters: a student chose the name, and a program the reason."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c).startswith("C") else c for c in text)

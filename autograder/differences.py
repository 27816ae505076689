"""Whose points change between two looks at a class, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from autograder.classroom import Overview, Part, Row


@dataclass(frozen=True)
class Change:
    """One student's points in all, less the penalty, before and after; None where there were none. `why` is one sentence a reason."""

    student: str
    before: float | None
    after: float | None
    why: tuple[str, ...]

    @property
    def down(self) -> bool:
        """Whether the student loses points that stood in the gradebook."""
        return self.before is not None and (self.after is None or self.after < self.before)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {"why": list(self.why), "down": self.down}

    def lines(self) -> list[str]:
        """For a terminal: the points, and each reason below."""
        marked = ", LESS than before" if self.down else ""
        return [f"{self.student}: {points(self.before)} -> {points(self.after)}{marked}", *(f"  {w}" for w in self.why)]


def points(score: float | None) -> str:
    """Points as text.

    >>> points(None), points(2.5)
    ('no points', '2.5')
    """
    return "no points" if score is None else f"{round(score, 2):g}"


def differences(before: Overview | None, after: Overview) -> list[Change]:
    """The students whose marks or penalty differ, in the order of their names. `before` is None if nothing was graded yet."""
    rows = {row.student: row for row in before.rows} if before is not None else {}
    found = []
    for row in after.rows:
        old = rows.get(row.student, Row(row.student, "", "", "", "not handed in"))
        why = _why(after.parts, old, row)
        if why:
            found.append(Change(row.student, old.total, row.total, tuple(why)))
    return found


def _why(parts: tuple[Part, ...], old: Row, new: Row) -> list[str]:
    told = []
    for part in parts:
        was, now = old.marks.get(part.cell), new.marks.get(part.cell)
        if now is None:
            if was is not None and was.score is not None:
                told.append(f"{part.name}: {points(was.score)} -> no mark")
            continue
        cause = f", {now.mistake}" if now.mistake else ""
        if was is None:  # of a first grading only what costs points is news
            if now.score is not None and now.score < part.points:
                told.append(f"{part.name}: {points(now.score)} of {part.points:g}{cause}")
        elif now.score is None and was.score is not None:
            told.append(f"{part.name}: {points(was.score)} -> waits to be read")
        elif now.score is not None and was.score != now.score:
            told.append(f"{part.name}: {points(was.score)} -> {points(now.score)} of {part.points:g}{cause}")
    if old.late_penalty != new.late_penalty:
        told.append(f"late by {new.late_s / 3600:.1f} h: {points(old.late_penalty)} -> {points(new.late_penalty)} off")
    if new.state == "graded" and old.state != "graded":
        told.insert(0, "graded for the first time")
    elif told and old.handed_in != new.handed_in:
        told.insert(0, f"handed in anew, {(new.handed_in or 'without a time')[:16].replace('T', ' ')}")
    return told

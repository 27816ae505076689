"""Points by exercise for other systems: a file for Canvas, one for Moodle, and nbgrader's own export with the exercises.

The formats are those that the systems' importers read: Canvas's lib/gradebook_importer.rb and Moodle's grade/import/csv. A cell without
a mark is empty, in both systems "no change": nobody gets a 0 for what was not read yet, and for what was not handed in only by choice.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from allranks.base.errors import CourseError
from allranks.base.whole import write_whole
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from nbgrader.plugins.export import ExportPlugin

from autograder.classroom import NoClass, Overview, Row, overview_of

CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
OF_CANVAS = {*CANVAS, "Integration ID", "Root Account"}  # a file from Canvas may have these too
MOODLE = ("Username", "ID number", "First name", "Last name", "Email address")
NBGRADER = (
    *("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"),
    *("raw_score", "late_submission_penalty", "score", "max_score"),
)


class ExportError(CourseError):
    """No file can be made; the message is one sentence."""


@dataclass(frozen=True)
class Wanted:
    """What a file shall hold: one column with the sum, of this name, and 0 for who handed in nothing."""

    as_sum: bool = False
    column: str | None = None
    zero_missing: bool = False

    def titles(self, found: Overview) -> list[str]:
        """The names of the columns with points."""
        return [self.column or found.lab] if self.as_sum else [f"{found.lab}: {part.name}" for part in found.parts]

    def points_of(self, found: Overview, row: Row) -> list[str]:
        """A student's points as text, empty where there is no mark. A sum is less the penalty, and empty while an answer waits."""
        if self.zero_missing and row.state == "not handed in":
            return ["0"] * len(self.titles(found))
        marks = [row.marks.get(part.cell) for part in found.parts]
        told = ["" if mark is None or mark.score is None else _number(mark.score) for mark in marks]
        if not self.as_sum:
            return told
        return ["" if row.total is None or "" in told else _number(row.total)]


def _number(points: float) -> str:
    return f"{max(0.0, points):.2f}".rstrip("0").rstrip(".")


def _as_text(words: str | None) -> str:
    """A text that no spreadsheet takes for a formula: on some platforms students choose their names.

    >>> _as_text("=1+1"), _as_text("Bo")
    ("'=1+1", 'Bo')
    """
    return (
        f"'{words}" if words and words.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else words or ""
    )


def remarks(found: Overview, wanted: Wanted) -> list[str]:
    """What the file does not say, in sentences."""
    so = "these students have no sum yet" if wanted.as_sum else "they count for nothing in the file"
    told = []
    for part in found.parts:
        marks = [(row.student, row.marks[part.cell]) for row in found.rows if part.cell in row.marks]
        # one that waits with points, as after a correction in formgrader, has them in the file
        if unread := [student for student, mark in marks if mark.score is None]:
            answers = f"{len(unread)} answers to {part.name} are" if len(unread) != 1 else f"1 answer to {part.name} is"
            told.append(f"{answers} not marked yet: {so} ({', '.join(unread)}).")
    if empty := [row.student for row in found.rows if row.state == "not graded"]:
        told.append(f"{', '.join(empty)}: not graded, so without points in the file.")
    late = [row.student for row in found.rows if row.late_penalty]
    if late and not wanted.as_sum:
        lose = "students lose" if len(late) != 1 else "student loses"
        told.append(f"{len(late)} {lose} points for being late, which no exercise shows: use --sum.")
    return told


# --------------------------------------------------------------------------------------------------------------- Canvas


def canvas(
    found: Overview,
    file: TextIO,
    roster: Path | None,
    wanted: Wanted = Wanted(),
) -> tuple[int, list[str]]:
    """Writes the file for Canvas's *Grades*, *Import*; returns how many students are in it, and sentences about who is not.

    `roster` is a file that Canvas exported: its students' columns are kept as they are, so that Canvas knows everybody, and a
    column that Canvas knows keeps its number. Without it students are told apart by SIS Login ID. Raises ExportError.
    """
    told: list[str] = []
    named = wanted.titles(found)
    if roster is None:
        heads: Sequence[str] = CANVAS
        people = [([_as_text(row.name or row.student), "", "", _as_text(row.student), ""], row) for row in found.rows]
    else:
        heads, known, people, told = _from_canvas(found, roster)
        if wanted.column and wanted.column not in (*known, *known.values()):
            there = ", ".join(known) or "none"
            raise ExportError(f"{roster} has no column {wanted.column!r}. It has: {there}.")
        named = [known.get(title, title) for title in named]
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow([*heads, *named])
    possible = [sum(part.points for part in found.parts)] if wanted.as_sum else [part.points for part in found.parts]
    writer.writerow(["    Points Possible", *[""] * (len(heads) - 1), *map(_number, possible)])
    for cells, row in people:
        writer.writerow([*cells, *wanted.points_of(found, row)])
    return len(people), told


def _from_canvas(
    found: Overview, roster: Path
) -> tuple[list[str], dict[str, str], list[tuple[list[str], Row]], list[str]]:
    """Of a file that Canvas exported: its students' columns, the columns that it numbers, its students, and who is missing."""
    lines = [line for line in _read(roster) if any(cell.strip(" ;,") for cell in line)]
    if not lines or not {"Student", "ID", "Section"} <= set(lines[0]):
        raise ExportError(
            f"{roster} is not an export of Canvas's Grades: its first line has no Student, ID and Section."
        )
    heads = [head for head in lines[0] if head in OF_CANVAS]
    places = [lines[0].index(head) for head in heads]
    known = {found_[1]: head for head in lines[0] if (found_ := re.fullmatch(r"(.*) \(\d+\)", head))}
    rows, people, told = {row.student: row for row in found.rows}, [], []
    for line in lines[1:]:
        cells = [line[place] if place < len(line) else "" for place in places]
        about = dict(zip(heads, cells, strict=True))
        names = [
            about.get("SIS Login ID", ""),
            about.get("SIS User ID", ""),
            about.get("SIS Login ID", "").partition("@")[0],
        ]
        student = next((name for name in names if name in rows), None)
        if student is not None:
            cells[heads.index("Student")] = _as_text(about["Student"])  # Canvas goes by the number
            people.append((cells, rows.pop(student)))
        elif (
            found.others.isdisjoint(names)
            and not about["Student"].strip().startswith(("Points Possible", "Student, Test"))
            and about["ID"]
        ):
            told.append(f"{about['Student']} of {roster.name} is not in the gradebook.")
    told += [f"{row.student} is not in {roster.name}." for row in rows.values() if row.state != "not handed in"]
    if not people:
        raise ExportError(f"Nobody of {roster} is in the gradebook by SIS Login ID or SIS User ID.")
    return heads, known, people, told


def _read(path: Path) -> list[list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{path} can't be read ({getattr(error, 'strerror', None) or 'it is no UTF-8'}).") from None
    return list(csv.reader(text.splitlines(), delimiter=";" if ";" in text.partition("\n")[0] else ","))


# --------------------------------------------------------------------------------------------------------------- Moodle


def moodle(found: Overview, file: TextIO, wanted: Wanted = Wanted()) -> int:
    """Writes the file for Moodle's *Grades*, *Import*, *CSV file*, in UTF-8 with commas; returns how many students are in it.

    Map *Username* (or *ID number*, or *Email address*) to the same of Moodle, and each other column to a grade item.
    """
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow([*MOODLE, *wanted.titles(found)])
    for row in found.rows:
        people = [row.student, row.student, row.first_name, row.last_name, row.email]
        writer.writerow([*map(_as_text, people), *wanted.points_of(found, row)])
    return len(found.rows)


# -------------------------------------------------------------------------------------------------------------- nbgrader


class Exercises(ExportPlugin):
    """`nbgrader export` with a column for each exercise behind nbgrader's own; names with commas are quoted."""

    def export(self, gradebook: Gradebook) -> None:
        """Writes the file: one row for each assignment and student."""
        path = self.to or "grades.csv"
        self.log.info("Exporting grades to %s", path)
        labs = [lab for lab in gradebook.assignments if not self.assignment or lab.name in self.assignment]
        course = CourseDirectory(config=self.parent.config if self.parent is not None else None)
        found = {lab.name: overview_of(course, lab.name) for lab in labs if lab.notebooks}
        for row in (row for one in found.values() for row in one.rows if row.state == "not graded"):
            self.log.warning("%s was not graded: the score 0 in the file is no mark.", row.student)
        columns = [title for one in found.values() for title in Wanted().titles(one)]
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [*NBGRADER, *columns], restval="", lineterminator="\n")
            writer.writeheader()
            for lab in labs:
                rows = {row.student: row for row in found[lab.name].rows} if lab.name in found else {}
                for student in gradebook.students:
                    if self.student and student.id not in map(str, self.student):
                        continue
                    about = self._about(gradebook, lab, student)
                    if (row := rows.get(student.id)) is not None:
                        one = found[lab.name]
                        about |= zip(Wanted().titles(one), Wanted().points_of(one, row), strict=True)
                    writer.writerow(about)

    def _about(self, gradebook: Gradebook, lab: Any, student: Any) -> dict[str, Any]:
        """What nbgrader's own export says."""
        about = {
            "assignment": lab.name,
            "duedate": lab.duedate,
            "student_id": _as_text(student.id),
            "last_name": _as_text(student.last_name),
        }
        about |= {"first_name": _as_text(student.first_name), "email": _as_text(student.email)}
        about |= {"max_score": lab.max_score, "timestamp": ""}
        scores = dict.fromkeys(("raw_score", "late_submission_penalty", "score"), 0.0)
        try:
            submission = gradebook.find_submission(lab.name, student.id)
        except MissingEntry:
            return about | scores
        penalty = submission.late_submission_penalty or 0.0
        about |= {"timestamp": submission.timestamp, "raw_score": submission.score, "late_submission_penalty": penalty}
        return about | {"score": max(0.0, submission.score - penalty)}


def write(found: Overview, system: str, path: Path, roster: Path | None, wanted: Wanted) -> tuple[int, list[str]]:
    """Writes the file for "canvas" or "moodle"; returns how many students it has, and what it does not say. Raises ExportError."""
    if not found.graded:
        raise NoClass(f"Nobody's work in {found.lab} has grades yet: type `allranks grade {found.lab}` first.")
    if wanted.column and not wanted.as_sum:
        raise ExportError("One column has one sum: give --sum with --column.")
    told: Iterable[str] = ()
    try:
        file = io.StringIO(newline="")
        if system == "canvas":
            count, told = canvas(found, file, roster, wanted)
        else:
            count = moodle(found, file, wanted)
        write_whole(path, file.getvalue())
    except OSError as error:
        raise ExportError(f"{path} can't be written ({error.strerror}).") from None
    return count, [*told, *remarks(found, wanted)]

"""Sections of a class and who grades them, from the class list `autograder/class.csv`.

It is the file that `nbgrader db student import` takes (a column `id`, and names and address), with a column `section`, and if there are
several graders a column `grader`. nbgrader leaves columns alone that it does not know.
"""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allranks.base.errors import CourseError
from nbgrader.api import Gradebook

from autograder import classroom
from autograder.classroom import Overview
from autograder.folder import directory_of, has_gradebook, table_of

FILE = "class.csv"
STUDENT = "id"  # the column
MINE = "mine"


class SectionsError(CourseError):
    """There is no such section; the message is one sentence that says what to do."""


@dataclass(frozen=True)
class Section:
    """A section: its students and its graders, by name."""

    name: str
    students: tuple[str, ...]
    graders: tuple[str, ...] = ()


def sections(course: Path) -> list[Section]:
    """The sections in the order of their names; none without a class list that names some. Raises SectionsError."""
    path = course / "autograder" / FILE
    students: dict[str, list[str]] = {}
    graders: dict[str, list[str]] = {}
    of: dict[str, str] = {}
    for number, row in enumerate(table_of(path, (STUDENT,), SectionsError), 2):
        student, name, grader = (row.get(column, "") for column in (STUDENT, "section", "grader"))
        if not name:
            continue
        if not student:
            raise SectionsError(f"{path}, line {number}: there is no {STUDENT}.")
        if of.setdefault(student, name) != name:
            raise SectionsError(f"{path}, line {number}: {student} is in {of[student]} already.")
        for found, one in ((students, student), (graders, grader)):
            if one and one not in found.setdefault(name, []):
                found[name].append(one)
    return [Section(name, tuple(students[name]), tuple(graders.get(name, ()))) for name in sorted(students)]


def chosen(course: Path, names: Iterable[str]) -> frozenset[str] | None:
    """The students of these sections; None if none is named, which stands for everybody. Raises SectionsError.

    `mine` stands for those whose grader is this account, unless a section has that name.
    """
    names = list(names)
    if not names:
        return None
    there = {one.name: one for one in sections(course)}
    if MINE in names and MINE not in there:
        me = getpass.getuser()
        mine = [one.name for one in there.values() if me in one.graders]
        if not mine:
            raise SectionsError(f"{me} is the grader of no section in autograder/{FILE}: give the section's name.")
        names = [name for name in names if name != MINE] + mine
    for name in names:
        if name not in there:
            known = ", ".join(there) or f"none: autograder/{FILE} needs a column section"
            raise SectionsError(f"There is no section {name!r}. There are: {known}.")
    return frozenset(student for name in names for student in there[name].students)


def only(found: Overview, students: frozenset[str] | None) -> Overview:
    """The class without all others; the same if `students` is None."""
    if students is None:
        return found
    rows = tuple(row for row in found.rows if row.student in students)
    return replace(found, rows=rows, others=frozenset(row.student for row in found.rows) - students)


def overview(course: Path, lab: str, students: frozenset[str] | None = None) -> Overview:
    """The class and one lab, of these students or of all. Raises NoClass."""
    return only(classroom.overview(course, lab), students)


def told(course: Path, found: Overview | None = None) -> list[dict[str, Any]]:
    """For each section, and for who is in none (named ""): its graders, how many students, and of a lab how far it is.

    `missing` are students of the list who are not in the gradebook. Nothing if there are no sections.
    """
    there = sections(course)
    if not there:
        return []
    about = directory_of(course)
    known: set[str] = set()
    if has_gradebook(about):
        with Gradebook(about.db_url, about.course_id) as gradebook:
            known = {student.id for student in gradebook.students}
    left = sorted(known - {student for one in there for student in one.students})
    made: list[dict[str, Any]] = []
    for one in [*there, *([Section("", tuple(left))] if left else [])]:
        line: dict[str, Any] = {"section": one.name, "graders": list(one.graders), "students": len(one.students)}
        line["missing"] = [student for student in one.students if student not in known]
        if found is not None:
            part = only(found, frozenset(one.students))
            marks = [mark for row in part.rows for mark in row.marks.values()]
            line |= {"graded": len(part.graded), "waiting": sum(mark.waits for mark in marks)}
            line["marked_by"] = dict(sorted(Counter(mark.by for mark in marks if mark.by).items()))
        made.append(line)
    return made

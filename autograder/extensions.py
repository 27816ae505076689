"""More time for one student: nbgrader's gradebook has an extension for each submission, but nbgrader no command for it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from allranks.base.errors import CourseError
from nbgrader.api import Gradebook, MissingEntry

from autograder.folder import directory_of


class ExtensionError(CourseError):
    """No extension can be given; the message is one sentence."""


def extend(course: Path, lab: str, student: str, more: timedelta) -> str:
    """Gives a student so much more time than the due date, in all; returns the student's due date in words. Raises ExtensionError."""
    about = directory_of(course)
    if more < timedelta():
        raise ExtensionError("An extension can't be negative.")
    with Gradebook(about.db_url, about.course_id) as gradebook:
        try:
            assignment = gradebook.find_assignment(lab)
            gradebook.find_student(student)
        except MissingEntry:
            raise ExtensionError(f"{lab} or {student} is not in the gradebook.") from None
        if assignment.duedate is None:
            raise ExtensionError(f"{lab} has no due date: set one by `allranks course due {lab} TIME`.")
        submission = gradebook.update_or_create_submission(lab, student)
        submission.extension = more or None
        gradebook.db.commit()
        return f"{submission.duedate:%Y-%m-%d %H:%M} UTC"

"""Regrade requests: a student writes `regrade.md` beside the notebook and hands in again; a teacher has the work marked again.

The request lies in `autograder/submitted/STUDENT/LAB/regrade.md`, from the exchange (`autograder.intake.Collect`) or copied by hand. What was
done about it is a line of `autograder/regrades.jsonl`: who, when, the points before and after. Points and comments given by hand stay.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from allranks.base.errors import CourseError
from allranks.course.handin import Refused, answers, read_notebook
from nbgrader.api import Gradebook, MissingEntry

from autograder.classroom import Part, overview_of
from autograder.folder import directory_of
from autograder.intake import REQUEST, check_files

LOG = "regrades.jsonl"
MAX_CHARACTERS = 5000
WAITS, ANSWERED, TOO_EARLY, UNREADABLE = "waits", "answered", "not graded yet", "can't be read"


class RegradeError(CourseError):
    """The work can't be marked again; the message is one sentence that says why, and nothing was changed."""


@dataclass(frozen=True)
class Request:
    """One student's request. `state` is WAITS, ANSWERED, TOO_EARLY or UNREADABLE; `told` says more on the state."""

    student: str
    state: str
    asked: str = ""
    words: str = ""
    score: float | None = None
    told: str = ""


@dataclass(frozen=True)
class Mark:
    """The points of one graded cell: the machine's, and those given by hand, which count in place of them."""

    machine: float | None
    by_hand: float | None
    extra: float | None
    waits: bool
    score: float
    most: float


@dataclass(frozen=True)
class Marks:
    """All marks of one submission, by (notebook, cell), with the comments that a person wrote and the penalty for being late."""

    marks: dict[tuple[str, str], Mark] = field(default_factory=dict)
    comments: dict[tuple[str, str], str] = field(default_factory=dict)
    penalty: float = 0.0

    @property
    def score(self) -> float:
        """The points in all, less the penalty."""
        return max(0.0, sum(mark.score for mark in self.marks.values()) - self.penalty)


# ------------------------------------------------------------------------------------------------------------ requests


def requests(course: Path, lab: str) -> list[Request]:
    """The requests on a lab, those that wait first. Raises NoClass if the gradebook does not know the lab."""
    found = overview_of(directory_of(course), lab)
    states = {row.student: row for row in found.rows}
    done = entries(course, lab)
    made = []
    for path in sorted((course / "autograder" / "submitted").glob(f"*/{lab}/{REQUEST}")):
        student = path.parent.parent.name
        try:
            raw = _bytes_of(path)
            words = raw.decode("utf-8").strip()
            if not words:
                raise Refused(f"{REQUEST} is empty.")
        except (OSError, UnicodeDecodeError, Refused) as error:
            why = str(error) if isinstance(error, Refused) else f"{REQUEST} can't be read as text."
            made.append(Request(student, UNREADABLE, told=why))
            continue
        asked = f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC"
        row = states.get(student)
        answered = [entry for entry in done if entry["student"] == student]
        same = [entry for entry in answered if entry["request"] == _digest(raw)]
        if row is None or row.state != "graded":
            made.append(Request(student, TOO_EARLY, asked, words, told=f"type `allranks grade {lab}` first."))
        elif same:
            made.append(Request(student, ANSWERED, asked, words, row.score, _in_short(same[-1])))
        else:
            before = f"asks again; before: {_in_short(answered[-1])}" if answered else ""
            made.append(Request(student, WAITS, asked, words, row.score, before))
    return sorted(made, key=lambda one: (one.state != WAITS, one.state, one.student))


def _bytes_of(path: Path) -> bytes:
    """The request as it was handed in. Raises Refused for a link, a device or a flood, OSError if it can't be read."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Refused(f"{REQUEST} is no file.")
        raw = file.read(4 * MAX_CHARACTERS + 1)
    if len(raw) > 4 * MAX_CHARACTERS or len(raw.decode("utf-8", "replace")) > MAX_CHARACTERS:
        raise Refused(f"{REQUEST} has more than {MAX_CHARACTERS} characters.")
    return raw


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw.strip()).hexdigest()


def _in_short(entry: dict[str, Any]) -> str:
    return f"{entry['when'][:16].replace('T', ' ')} UTC by {entry['who']}: {entry['before']:g} -> {entry['after']:g}"


# ------------------------------------------------------------------------------------------------------------- the log


def entries(course: Path, lab: str, student: str | None = None) -> list[dict[str, Any]]:
    """What was done about a lab's requests, in order; a line that is damaged is left out."""
    try:
        lines = (course / "autograder" / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
            if entry["lab"] == lab and student in (None, entry["student"]):
                found.append(entry)
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _record(course: Path, entry: dict[str, Any]) -> None:
    with open(course / "autograder" / LOG, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(entry) + "\n")


# ------------------------------------------------------------------------------------------------------- marking again


def marks_of(course: Path, lab: str, student: str) -> Marks:
    """What the gradebook has of a student's work. Raises RegradeError where nothing is marked that could be marked again."""
    about = directory_of(course)
    submitted = Path(about.format_path(about.submitted_directory, student, lab))
    if not submitted.is_dir():
        raise RegradeError(f"{student} has not handed in {lab}.")
    try:
        check_files(submitted)
    except Refused as reason:
        raise RegradeError(f"{student}: {reason}") from None
    graded = Path(about.format_path(about.autograded_directory, student, lab))
    with Gradebook(about.db_url, about.course_id) as gradebook:
        try:
            submission = gradebook.find_submission(lab, student)
        except MissingEntry:
            raise RegradeError(f"{student} is not graded yet: type `allranks grade {lab}` first.") from None
        marks: dict[tuple[str, str], Mark] = {}
        comments: dict[tuple[str, str], str] = {}
        for notebook in submission.notebooks:
            for grade in notebook.grades:
                marks[notebook.name, grade.name] = Mark(
                    grade.auto_score,
                    grade.manual_score,
                    grade.extra_credit,
                    bool(grade.needs_manual_grade),
                    float(grade.score),
                    float(grade.max_score),
                )
            comments |= {(notebook.name, c.name): c.manual_comment for c in notebook.comments if c.manual_comment}
        penalty = float(submission.late_submission_penalty or 0.0)
    if all(mark.machine is None and mark.by_hand is None for mark in marks.values()):
        raise RegradeError(f"{student} is not graded yet: type `allranks grade {lab}` first.")
    for path in sorted(submitted.glob("*.ipynb")):
        theirs = graded / path.name
        # a course that was copied has newer times and the same answers
        if theirs.exists() and theirs.stat().st_mtime < path.stat().st_ctime and _answers_differ(path, theirs):
            raise RegradeError(
                f"{student} handed in {path.name} again after it was graded, so points given by hand are not about this work: "
                f"`allranks grade {lab} --student {student} --force` grades it as new."
            )
    return Marks(marks, comments, penalty)


def _answers_differ(submitted: Path, graded: Path) -> bool:
    """Whether an answer in the graded notebook is another one in what was handed in."""
    try:
        there = _answers(read_notebook(submitted))
        marked = _answers(nbformat.read(graded, as_version=4))
    except (Refused, OSError, ValueError, nbformat.ValidationError):
        return True
    return any(there.get(name) != text for name, text in marked.items())


def _answers(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """The students' cells by name; of two cells with one name nothing is said, so they differ from any answer."""
    found: dict[str, str] = {}
    for name, text in answers(notebook):
        found[name] = "\0" if name in found else text
    return found


@contextmanager
def keeping(course: Path, lab: str, student: str) -> Iterator[None]:
    """Keeps the graded notebook while the work is marked again: an error puts it back."""
    about = directory_of(course)
    graded = Path(about.format_path(about.autograded_directory, student, lab))
    kept = graded.with_name(f".{graded.name}.before")
    shutil.rmtree(kept, ignore_errors=True)
    if graded.is_dir():
        shutil.copytree(graded, kept, symlinks=True)
    try:
        yield
    except BaseException:
        if kept.is_dir():
            shutil.rmtree(graded, ignore_errors=True)
            kept.rename(graded)
        raise
    finally:
        shutil.rmtree(kept, ignore_errors=True)


def settle(course: Path, lab: str, student: str, before: Marks, answer: str = "") -> dict[str, Any]:
    """Puts back what a person gave, and records who had the work marked again, and when; returns that entry."""
    about = directory_of(course)
    with Gradebook(about.db_url, about.course_id) as gradebook:
        for (notebook, cell), mark in before.marks.items():
            grade = gradebook.find_grade(cell, notebook, lab, student)
            if mark.by_hand is not None or mark.extra is not None:
                grade.manual_score, grade.extra_credit = mark.by_hand, mark.extra
                grade.needs_manual_grade = mark.waits
        for (notebook, cell), words in before.comments.items():
            gradebook.find_comment(cell, notebook, lab, student).manual_comment = words
        gradebook.db.commit()
    after = marks_of(course, lab, student)
    path = course / "autograder" / "submitted" / student / lab / REQUEST
    try:
        request = _digest(_bytes_of(path))
    except (OSError, Refused):
        request = ""
    entry = {
        "lab": lab,
        "student": student,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "who": getpass.getuser(),
        "request": request,
        "before": before.score,
        "after": after.score,
        "changes": changes(overview_of(about, lab).parts, before, after),
        "answer": answer,
    }
    _record(course, entry)
    return entry


def changes(parts: tuple[Part, ...], before: Marks, after: Marks) -> list[str]:
    """What differs, in words, part by part; and what a person gave, which stays."""
    told = []
    for part in parts:
        old, new = before.marks.get((part.notebook, part.cell)), after.marks.get((part.notebook, part.cell))
        if old is None or new is None:
            continue
        if new.by_hand is not None and not part.in_words:
            differs = (
                ""
                if old.machine == new.machine
                else f" (the machine: {_number(old.machine)} -> {_number(new.machine)})"
            )
            told.append(f"{part.name}: {new.by_hand:g} of {new.most:g} by hand stays{differs}")
        elif old.score != new.score:
            told.append(f"{part.name}: {old.score:g} -> {new.score:g} of {new.most:g}")
    if before.penalty != after.penalty:
        told.append(f"penalty for being late: {before.penalty:g} -> {after.penalty:g}")
    return told


def _number(points: float | None) -> str:
    return "no mark" if points is None else f"{points:g}"

"""A class at a glance, from nbgrader's gradebook and the graded notebooks: points, mistakes by cause, what waits for the teacher.

`allranks class LAB` shows it; `autograder.class_page` makes the page. Nothing here runs a submission or writes a file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from allranks.base.errors import CourseError
from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry, SubmittedAssignment
from nbgrader.coursedir import CourseDirectory

from autograder.folder import directory_of, has_gradebook
from autograder.pairs import partner
from autograder.rubric import Place, Rubric
from autograder.trusted import exercises_of, incidents_of, is_graded

OLD = "graded before causes were kept: grade again with --force"
SHOWN_CAUSES = 3
SHOWN_CASES = 5


class NoClass(CourseError):
    """There is nothing to show; the message is one sentence that says what to do."""


@dataclass(frozen=True)
class Part:
    """One graded cell of the lab: an exercise that the machine marks, or an answer in words."""

    name: str
    cell: str
    notebook: str
    points: float
    in_words: bool

    def place(self, lab: str) -> Place:
        """Where it is in the gradebook."""
        return Place(lab, self.notebook, self.cell, self.points)


@dataclass(frozen=True)
class Mark:
    """What one student has of one part. `score` is None where nothing was marked; `waits` if the teacher must read it.

    `failed` are the failed cases, (property, case), of `cases` that were judged; `mistake` is the cause in a few words, and `code` what it
    is counted by, whatever the words; `variant` is
    what the course drew for this student, if it draws; `card` is the verdict as the grader drew it for the student, in HTML. Of an answer in
    words, `by` is who marked it and `items` are the rubric items of the mark, where that is known.
    """

    score: float | None
    waits: bool = False
    mistake: str = ""
    cases: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    variant: str = ""
    card: str = ""
    code: tuple[str, ...] = ()
    by: str = ""
    items: tuple[str, ...] = ()

    @property
    def counted_by(self) -> tuple[str, ...]:
        """The code; of marks without one, as of an incident, the words."""
        return self.code or (self.mistake,)


@dataclass(frozen=True)
class Row:
    """One student. `state` is "graded", "not graded" (handed in, but without grades) or "not handed in"."""

    student: str
    first_name: str
    last_name: str
    email: str
    state: str
    score: float | None = None
    late_penalty: float = 0.0
    handed_in: str | None = None
    late_s: float = 0.0
    marks: dict[str, Mark] = field(default_factory=dict)
    incidents: tuple[dict[str, str], ...] = ()
    partner: str = ""  # of a pair, whose work is the same

    @property
    def name(self) -> str:
        """The student's own name; "" if the gradebook does not have it."""
        return " ".join(filter(None, (self.first_name, self.last_name)))

    @property
    def total(self) -> float | None:
        """The points in all, less the penalty for being late; None where there are none."""
        return None if self.score is None else max(0.0, self.score - self.late_penalty)


@dataclass(frozen=True)
class Cause:
    """A mistake in one exercise, and the students who make it."""

    exercise: str
    mistake: str
    students: tuple[str, ...]
    counted_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hard:
    """A case that fails answers which are right elsewhere: `failed` of `tried` answers that pass most cases."""

    exercise: str
    case: str
    failed: int
    tried: int


@dataclass(frozen=True)
class Overview:
    """A class and one lab. `parts` are in the order of the lab, `rows` in that of the students' names; `others` were left out."""

    lab: str
    due: str | None
    parts: tuple[Part, ...]
    rows: tuple[Row, ...]
    others: frozenset[str] = frozenset()

    @property
    def graded(self) -> list[Row]:
        """The students whose work has grades."""
        return [row for row in self.rows if row.state == "graded"]

    def one_run(self, cause: Cause) -> str:
        """The drawn verdict of one student with this mistake, of those the one with most points; "" if none was kept.

        A verdict on a variant names its student, so none is given.
        """
        cell = next(part.cell for part in self.parts if part.name == cause.exercise)
        marks = [row.marks[cell] for row in self.graded if cell in row.marks and row.student in cause.students]
        drawn = [mark for mark in marks if mark.card and not mark.variant and mark.counted_by == cause.counted_by]
        return max(drawn, key=lambda mark: mark.score or 0.0).card if drawn else ""

    @property
    def causes(self) -> list[Cause]:
        """The mistakes, the commonest first; of equally common ones, in the order of the lab."""
        found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        words: dict[tuple[str, ...], str] = {}
        for part in self.parts:
            for row in self.graded:
                mark = row.marks.get(part.cell)
                if mark is not None and mark.mistake:
                    found.setdefault((part.name, mark.counted_by), []).append(row.student)
                    words.setdefault(mark.counted_by, mark.mistake)
        causes = [Cause(exercise, words[by], tuple(who), by) for (exercise, by), who in found.items()]
        return sorted(causes, key=lambda cause: -len(cause.students))

    @property
    def hardest(self) -> list[Hard]:
        """The cases that most answers fail, counted among answers that pass more than half of the exercise's cases."""
        found = []
        for part in self.parts:
            marks = [mark for row in self.graded if (mark := row.marks.get(part.cell)) is not None and mark.cases]
            partly = [mark for mark in marks if 2 * len(mark.failed) < mark.cases]
            counts = Counter(case for mark in partly for _, case in mark.failed)
            found += [Hard(part.name, case, count, len(partly)) for case, count in counts.items()]
        return sorted(found, key=lambda hard: -hard.failed)

    @property
    def waiting(self) -> list[tuple[str, list[str]]]:
        """For each answer in words that somebody must read: its name, and whose."""
        found = []
        for part in self.parts:
            who = [row.student for row in self.rows if (mark := row.marks.get(part.cell)) is not None and mark.waits]
            if who:
                found.append((part.name, who))
        return found

    def to_dict(self) -> dict[str, Any]:
        """The JSON that `allranks class --json` prints."""
        return {
            "lab": self.lab,
            "due": self.due,
            "exercises": [asdict(part) for part in self.parts],
            "students": [_row_as_dict(row, self.parts) for row in self.rows],
            "causes": [asdict(cause) | {"students": list(cause.students)} for cause in self.causes],
            "hardest": [asdict(hard) for hard in self.hardest[:SHOWN_CASES]],
            "waiting": [{"answer": name, "students": who} for name, who in self.waiting],
        }


def _row_as_dict(row: Row, parts: Iterable[Part]) -> dict[str, Any]:
    about = {"name": row.name} | {name: value for name, value in asdict(row).items() if name != "marks"}
    marks = {}
    for part in parts:
        if (mark := row.marks.get(part.cell)) is not None:
            marks[part.name] = {"score": mark.score, "points": part.points, "waits": mark.waits, "cause": mark.mistake}
            if mark.variant:
                marks[part.name]["variant"] = mark.variant
            if mark.by:
                marks[part.name] |= {"by": mark.by, "items": list(mark.items)}
    return about | {"exercises": marks}


def overview(course: Path, lab: str) -> Overview:
    """The class of a course's folder. Raises NoClass if the gradebook does not know the lab."""
    return overview_of(directory_of(course), lab)


def overview_of(course: CourseDirectory, lab: str) -> Overview:
    """The same, where nbgrader is configured already."""
    nothing = f"{lab} is not in the gradebook yet: type `allranks grade {lab}` first."
    if not has_gradebook(course):
        raise NoClass(nothing)
    with Gradebook(course.db_url, course.course_id) as gradebook:
        try:
            assignment = gradebook.find_assignment(lab)
        except MissingEntry:
            raise NoClass(nothing) from None
        if not assignment.notebooks:
            raise NoClass(nothing)
        parts = tuple(_parts(course, gradebook, lab))
        submissions = {submission.student_id: submission for submission in gradebook.assignment_submissions(lab)}
        folder = Path(course.format_path(course.submitted_directory, "*", lab)).parents[1]
        handed_in = {path.name for path in folder.glob("*") if os.path.lexists(path / lab)}
        members = {student.id: student for student in gradebook.students}
        rubric = Rubric(gradebook, lab)
        rows = []
        for student in sorted({*members, *submissions, *handed_in}, key=str.casefold):
            known = members.get(student)
            who = (
                (student, known.first_name or "", known.last_name or "", known.email or "")
                if known
                else (student, "", "", "")
            )
            if student in submissions:
                rows.append(_row(course, lab, who, submissions[student], parts, student in handed_in, rubric))
            else:
                rows.append(Row(*who, "not graded" if student in handed_in else "not handed in"))
        return Overview(lab, _time(assignment.duedate), parts, tuple(rows))


def _parts(course: CourseDirectory, gradebook: Gradebook, lab: str) -> Iterator[Part]:
    """The graded cells in the order of the instructor's notebooks."""
    for notebook in sorted(gradebook.find_assignment(lab).notebooks, key=lambda notebook: notebook.name):
        asked = exercises_of(course, lab, notebook.name)
        order = {cell.name: number for number, cell in enumerate(notebook.source_cells)}
        cells = sorted([*notebook.grade_cells, *notebook.task_cells], key=lambda cell: order.get(cell.name, len(order)))
        machine = [cell for cell in cells if cell.name in asked]
        words = [cell for cell in cells if cell.name not in asked]
        for cell in [*machine, *words]:
            name = asked[cell.name]["exercise"] if cell.name in asked else cell.name
            yield Part(name, cell.name, notebook.name, float(cell.max_score), cell.name not in asked)


def _marked(rubric: Rubric, place: Place, student: str) -> tuple[str, tuple[str, ...]]:
    """Who marked an answer in words, and with which items."""
    given = rubric.given(place, student) if rubric.has(place, student) else None
    if given is None:
        return "", ()
    return given.who, tuple(item.name for item in rubric.chosen(place, given.items))


def _row(
    course: CourseDirectory,
    lab: str,
    who: tuple[str, str, str, str],
    submission: SubmittedAssignment,
    parts: Iterable[Part],
    has_files: bool,
    rubric: Rubric,
) -> Row:
    grades = {(n.name, grade.name): grade for n in submission.notebooks for grade in n.grades}
    told, incidents = _of_notebooks(course, lab, who[0])
    if all(grade.auto_score is None and grade.manual_score is None for grade in grades.values()):
        grades = {}  # only an extension, or a run that was stopped
    marks = {}
    for part in parts:
        grade = grades.get((part.notebook, part.cell))
        if grade is None or (grade.auto_score is None and grade.manual_score is None and not grade.needs_manual_grade):
            continue
        waits = bool(grade.needs_manual_grade)
        score = None if waits and grade.manual_score is None and part.in_words else float(grade.score)
        about = told.get((part.notebook, part.cell), {})
        mistake = str(about.get("mistake") or "")
        if not about and not part.in_words and score is not None and score < part.points:
            mistake = OLD
        failed = tuple((str(group), str(case)) for group, case in about.get("failed", ()))
        variant, card = str(about.get("variant") or ""), str(about.get("card", ""))
        marks[part.cell] = Mark(
            score,
            waits,
            mistake,
            int(about.get("cases", 0)),
            failed,
            variant,
            card,
            tuple(map(str, about.get("code", ()))),
            *(_marked(rubric, part.place(lab), who[0]) if part.in_words else ()),
        )
    return Row(
        *who,
        "graded" if marks else "not graded" if has_files else "not handed in",
        float(submission.score) if marks else None,
        float(submission.late_submission_penalty or 0.0),
        _time(submission.timestamp),
        float(submission.total_seconds_late or 0),
        marks,
        incidents,
        partner(Path(course.root), lab, who[0]),
    )


def _of_notebooks(
    course: CourseDirectory, lab: str, student: str
) -> tuple[dict[tuple[str, str], dict[str, Any]], tuple[dict[str, str], ...]]:
    """What the grader wrote into a student's graded notebooks: of each cell the verdict in short, and all incidents."""
    folder = Path(course.format_path(course.autograded_directory, student, lab))
    told: dict[tuple[str, str], dict[str, Any]] = {}
    incidents: list[dict[str, str]] = []
    for path in sorted(folder.glob("*.ipynb")):
        try:
            notebook = nbformat.read(path, as_version=4)
        except (OSError, ValueError, nbformat.ValidationError):
            continue  # its points are in the gradebook
        incidents += incidents_of(notebook)
        for cell in notebook.cells:
            if cell.cell_type == "code" and is_graded(cell) and (about := verdict_in(cell)):
                card = next((o.data["text/html"] for o in cell.outputs if "text/html" in o.get("data", {})), "")
                told[path.stem, cell.metadata.nbgrader["grade_id"]] = about | {"card": card}
    return told, tuple(incidents)


def verdict_in(cell: NotebookNode) -> dict[str, Any]:
    """The verdict in short that the grader kept with a graded cell's output; {} if there is none."""
    for output in cell.get("outputs", ()):
        if about := output.get("metadata", {}).get("allranks"):
            return dict(about)
    return {}


def _time(when: datetime | None) -> str | None:
    """A time of the gradebook, which keeps UTC without saying so, as ISO 8601."""
    return None if when is None else when.replace(tzinfo=UTC).isoformat(timespec="seconds")


# ------------------------------------------------------------------------------------------------------------ in words


def counts(found: Overview) -> str:
    """How many handed in, how many wait, and the mean, in one line."""
    states = Counter(row.state for row in found.rows)
    late = sum(row.late_s > 0 for row in found.rows)
    scores = [row.score for row in found.graded if row.score is not None]
    parts = [f"{len(found.rows)} student{'s' * (len(found.rows) != 1)}"]
    parts += [f"{states[state]} {state}" for state in ("graded", "not graded", "not handed in") if states[state]]
    line = ", ".join([*parts, *([f"{late} late"] if late else [])])
    most = sum(part.points for part in found.parts)
    return line + (f". Mean {sum(scores) / len(scores):.1f} of {most:g} points." if scores else ".")


def first_lines(found: Overview) -> list[str]:
    """The counts, the commonest mistakes, and the answers that wait: what `allranks grade` ends with."""
    graded = len(found.graded)
    lines = [counts(found)]
    lines += [f"{len(c.students)} of {graded}: {c.mistake} ({c.exercise})" for c in found.causes[:SHOWN_CAUSES]]
    return lines + [f"{waits(who)}: {name}" for name, who in found.waiting]


def variants_of(row: Row, parts: Iterable[Part]) -> list[str]:
    """What the course drew for a student, "EXERCISE: VALUES" for each exercise that was drawn."""
    marks = [(part.name, row.marks[part.cell]) for part in parts if part.cell in row.marks]
    return [f"{name}: {mark.variant}" for name, mark in marks if mark.variant]


def waits(who: list[str]) -> str:
    """How many answers wait.

    >>> waits(["ada"])
    '1 answer waits to be read'
    """
    return f"{len(who)} answers wait to be read" if len(who) != 1 else "1 answer waits to be read"

"""Answers in words: all answers to one question with its rubric, and the points and comments that a person gives.

Everything is read from nbgrader's gradebook and the graded notebooks, and points and comments are written to the gradebook, where
formgrader and the feedback pages find them. `autograder.reading_server` shows it in a browser.
"""

from __future__ import annotations

import getpass
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from allranks.base.errors import CourseError
from nbformat import NotebookNode
from nbgrader.api import Gradebook

from autograder import rubric
from autograder.classroom import Part, overview_of
from autograder.folder import directory_of
from autograder.pairs import partner
from autograder.rubric import MAX_COMMENT_CHARACTERS, Changed, Given, Item, Rubric
from autograder.safe_prose import SafeProse, markdown2html


class ReadingError(CourseError):
    """A mark can't be recorded, or there is nothing to read; the message is one sentence."""


class MarkedMeanwhile(ReadingError):
    """Somebody marked the answer since it was shown; `given` is what holds now."""

    def __init__(self, given: Given) -> None:
        who = given.who or "somebody"
        super().__init__(
            f"{who} marked this answer meanwhile, and that mark is shown now: mark it again if it should be another."
        )
        self.given = given


@dataclass(frozen=True)
class Answer:
    """One student's answer, as HTML without scripts, and the mark that it has."""

    student: str
    shown: str
    given: Given


@dataclass(frozen=True)
class Question:
    """A question with all answers. `task` and `rubric` are HTML: the text before it in the lab, and the instructor's own answer in `solutions/`.

    `items` are the remarks that all who mark share, in the order in which they were made.
    """

    part: Part
    task: str
    rubric: str
    items: tuple[Item, ...]
    answers: tuple[Answer, ...]


class Reading:
    """The answers in words to one lab of a course, of these `students` or of all; `who` marks, by default this account."""

    def __init__(self, course: Path, lab: str, students: frozenset[str] | None = None, who: str = "") -> None:
        self.course, self.lab, self.students = directory_of(course), lab, students
        self.who = who or getpass.getuser()
        self.parts = [part for part in overview_of(self.course, lab).parts if part.in_words]
        if not self.parts:
            raise ReadingError(f"{lab} asks for no answer in words.")

    def number_of(self, cell: str | None) -> int:
        """The number of a question, by its cell; of a lab with one question, without a name too. Raises ReadingError."""
        names = [part.cell for part in self.parts]
        if cell is None and len(names) == 1:
            return 0
        if cell not in names:
            raise ReadingError(f"{self.lab} has the questions {', '.join(names)}: give one of them as --question.")
        return names.index(cell)

    def question(self, number: int) -> Question:
        """The question of that number, from 0, with all answers in the order of the students' names."""
        part = self.parts[number]
        folder = Path(self.course.format_path(self.course.source_directory, ".", self.lab))
        task, own = _task_and_rubric(folder / f"{part.notebook}.ipynb", part.cell)
        answers = []
        with self._gradebook() as gradebook:
            marks, place = Rubric(gradebook, self.lab), part.place(self.lab)
            for submission in gradebook.assignment_submissions(self.lab):
                student = submission.student_id
                if self.students is not None and student not in self.students:
                    continue
                text = self._text(student, part)
                given = None if text is None else marks.given(place, student)
                if given is not None:
                    answers.append(Answer(student, safe_html(text), given))
            items = tuple(marks.of(place))
        return Question(part, task, own, items, tuple(sorted(answers, key=lambda answer: answer.student.casefold())))

    def rubric(self) -> list[dict[str, Any]]:
        """Each question with its items, as data; `used` is in how many marks an item is."""
        with self._gradebook() as gradebook:
            marks = Rubric(gradebook, self.lab)
            found = []
            for part in self.parts:
                place = part.place(self.lab)
                used = marks.used(place)
                items = [vars(item) | {"used": used[item.number]} for item in marks.of(place)]
                found.append({"question": part.cell, "points": part.points, "items": items})
        return found

    def items(self, number: int) -> list[Item]:
        """The rubric's items for this question, as they are now."""
        with self._gradebook() as gradebook:
            return Rubric(gradebook, self.lab).of(self.parts[number].place(self.lab))

    def mark(
        self,
        number: int,
        student: str,
        points: float | None,
        comment: str,
        items: Sequence[int] = (),
        seen: str | None = None,
    ) -> Given:
        """Records points, the numbers of rubric items and a comment, of a pair for both; without points and items the answer waits again.

        `seen` is the state of the mark that was shown to who marks. Returns what holds now. Raises ReadingError, and records nothing
        then: MarkedMeanwhile if the mark is another one by now.
        """
        part = self.parts[number]
        if points is not None and not (math.isfinite(points) and 0 <= points <= part.points):
            raise ReadingError(f"The points must be between 0 and {part.points:g}.")
        if len(comment) > MAX_COMMENT_CHARACTERS:
            raise ReadingError(f"A comment has at most {MAX_COMMENT_CHARACTERS} characters.")
        other = partner(Path(self.course.root), self.lab, student)
        place = part.place(self.lab)
        with self._gradebook() as gradebook:
            with rubric.writing(gradebook):
                marks = Rubric(gradebook, self.lab)
                before = marks.given(place, student)
                if before is None:
                    raise ReadingError(f"There is no answer by {student}.")
                if seen is not None and seen != before.seen:
                    raise MarkedMeanwhile(before)
                chosen = marks.chosen(place, items)
                for one in filter(None, (student, other)):
                    # the work of the other one of a pair may not be graded yet
                    if one == student or marks.given(place, one) is not None:
                        rubric.give(gradebook, place, one, (points, chosen, comment), self.who)
            return Rubric(gradebook, self.lab).given(place, student)

    def change(self, number: int, name: str, dry_run: bool = False, **about: Any) -> Changed:
        """Makes, changes or removes an item of the question, as `rubric.change` does, with the marks of all students, not only of those here."""
        with self._gradebook() as gradebook:
            return rubric.change(
                gradebook, self.parts[number].place(self.lab), self.who, name, dry_run=dry_run, **about
            )

    def _gradebook(self) -> Gradebook:
        return Gradebook(self.course.db_url, self.course.course_id)

    def _text(self, student: str, part: Part) -> str | None:
        """The answer as the student typed it; None where there is no graded notebook."""
        folder = Path(self.course.format_path(self.course.autograded_directory, student, self.lab))
        try:
            notebook = nbformat.read(folder / f"{part.notebook}.ipynb", as_version=4)
        except (OSError, ValueError, nbformat.ValidationError):
            return None
        return next((cell.source for cell in notebook.cells if _grade_id(cell) == part.cell), None)


def safe_html(text: str) -> str:
    """The HTML of a Markdown text of a student's, as formgrader shows it: without scripts, links lead to web pages only."""
    cell = nbformat.v4.new_markdown_cell(text)
    cell, _ = SafeProse().preprocess_cell(cell, {}, 0)
    return markdown2html(cell.source)


def _task_and_rubric(path: Path, cell_id: str) -> tuple[str, str]:
    """The text before the instructor's answer in the solution, and that answer, as HTML; "" where there is none."""
    try:
        cells = nbformat.read(path, as_version=4).cells
    except (OSError, ValueError, nbformat.ValidationError):
        return "", ""
    place = next((number for number, cell in enumerate(cells) if _grade_id(cell) == cell_id), None)
    if place is None:
        return "", ""
    before = cells[place - 1] if place and cells[place - 1].cell_type == "markdown" else None
    return safe_html(before.source) if before is not None else "", safe_html(cells[place].source)


def _grade_id(cell: NotebookNode) -> str | None:
    return cell.metadata.get("nbgrader", {}).get("grade_id")

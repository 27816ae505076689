"""Answers in words: all answers to one question with its rubric, and the points and comments that a person gives.

Everything is read from nbgrader's gradebook and the graded notebooks, and points and comments are written to the gradebook, where
formgrader and the feedback pages find them. `autograder.reading_server` shows it in a browser.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import nbformat
from allranks.base.errors import CourseError
from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry

from autograder.classroom import Part, overview_of
from autograder.folder import directory_of
from autograder.pairs import partner
from autograder.safe_prose import SafeProse, markdown2html

MAX_COMMENT_CHARACTERS = 5000


class ReadingError(CourseError):
    """A mark can't be recorded, or there is nothing to read; the message is one sentence."""


@dataclass(frozen=True)
class Answer:
    """One student's answer, as HTML without scripts. `score` is None until somebody has marked it."""

    student: str
    shown: str
    score: float | None
    comment: str


@dataclass(frozen=True)
class Question:
    """A question with all answers. `task` and `rubric` are HTML: the text before it in the lab, and the instructor's own answer."""

    part: Part
    task: str
    rubric: str
    answers: tuple[Answer, ...]


class Reading:
    """The answers in words to one lab of a course."""

    def __init__(self, course: Path, lab: str) -> None:
        self.course, self.lab = directory_of(course), lab
        self.parts = [part for part in overview_of(self.course, lab).parts if part.in_words]
        if not self.parts:
            raise ReadingError(f"{lab} asks for no answer in words.")

    def question(self, number: int) -> Question:
        """The question of that number, from 0, with all answers in the order of the students' names."""
        part = self.parts[number]
        folder = Path(self.course.format_path(self.course.source_directory, ".", self.lab))
        task, rubric = _task_and_rubric(folder / f"{part.notebook}.ipynb", part.cell)
        answers = []
        with self._gradebook() as gradebook:
            for submission in gradebook.assignment_submissions(self.lab):
                student = submission.student_id
                text = self._text(student, part)
                if text is None:
                    continue
                try:
                    grade = gradebook.find_grade(part.cell, part.notebook, self.lab, student)
                except MissingEntry:
                    continue
                waits = grade.needs_manual_grade and grade.manual_score is None
                comment = _comment(gradebook, part, self.lab, student)
                answers.append(Answer(student, safe_html(text), None if waits else float(grade.score), comment))
        return Question(part, task, rubric, tuple(sorted(answers, key=lambda answer: answer.student.casefold())))

    def comments(self, number: int) -> list[str]:
        """The comments on this question so far, the commonest first: to be given again."""
        with self._gradebook() as gradebook:
            part = self.parts[number]
            given = [
                _comment(gradebook, part, self.lab, submission.student_id)
                for submission in gradebook.assignment_submissions(self.lab)
            ]
        return [comment for comment, _ in Counter(filter(None, given)).most_common()]

    def mark(self, number: int, student: str, score: float | None, comment: str) -> None:
        """Records points and a comment, of a pair for both; without points the answer waits again.

        Raises ReadingError, and records nothing then.
        """
        part = self.parts[number]
        if score is not None and not (math.isfinite(score) and 0 <= score <= part.points):
            raise ReadingError(f"The points must be between 0 and {part.points:g}.")
        if len(comment) > MAX_COMMENT_CHARACTERS:
            raise ReadingError(f"A comment has at most {MAX_COMMENT_CHARACTERS} characters.")
        other = partner(Path(self.course.root), self.lab, student)
        with self._gradebook() as gradebook:
            for one in filter(None, (student, other)):
                try:
                    grade = gradebook.find_grade(part.cell, part.notebook, self.lab, one)
                    said = gradebook.find_comment(part.cell, part.notebook, self.lab, one)
                except MissingEntry:
                    if one == other:  # not graded yet
                        continue
                    raise ReadingError(f"There is no answer by {student}.") from None
                grade.manual_score, grade.needs_manual_grade = score, score is None
                said.manual_comment = comment or None
            try:
                gradebook.db.commit()
            except Exception as error:  # SQLAlchemy's errors: the gradebook is locked, or can't be written
                gradebook.db.rollback()
                raise ReadingError(f"The gradebook can't be written now ({type(error).__name__}): try again.") from None

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


def _comment(gradebook: Gradebook, part: Part, lab: str, student: str) -> str:
    try:
        return gradebook.find_comment(part.cell, part.notebook, lab, student).comment or ""
    except MissingEntry:
        return ""


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

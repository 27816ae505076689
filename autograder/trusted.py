"""The steps of `nbgrader autograde` that make a grade mean something; `nbgrader_config.py` puts them in.

`RestoreCells` gives a submission the shape in which it was released: its own text in its own cells, every graded cell as
the gradebook knows it. `TrustedStep` takes the place of nbgrader's Execute: the text of the cells goes to the judge,
another process; the judge's verdict becomes the outputs of the graded cells, where nbgrader looks for the points. No
line of a submission ever runs in the process that writes the gradebook.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Enum, Float, Unicode

from autograder.feedback import outputs_for
from autograder.judge import Died, Judge, JudgeError, OutOfTime

MAX_CELLS = 5000
GRACE_S = 20.0  # the judge keeps the limit itself; only one that is held up is killed after it


class RestoreCells(NbGraderPreprocessor):
    """Puts a submission back into the shape of the released notebook, whatever was done to its cells' metadata."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook with trusted metadata: known cells as the gradebook has them, all others without any."""
        about = resources["nbgrader"]
        _refuse_links(_coursedir(self), about)
        if len(nb.cells) > MAX_CELLS:
            raise ValueError(f"The notebook of {about['student']} has {len(nb.cells)} cells; the limit is {MAX_CELLS}.")
        released = _released_cells(about)
        found: set[str] = set()
        for cell in reversed(nb.cells):  # of two cells with one id the later one counts, as it does when both are run
            grade_id = _grade_id(cell)
            cell.metadata.pop("nbgrader", None)
            cell.metadata.pop("allranks", None)
            if grade_id not in released:
                continue
            if grade_id in found:
                self.log.warning(
                    "%s: the cell %s is there more than once; the last one counts", about["student"], grade_id
                )
                continue
            found.add(grade_id)
            original = released[grade_id]
            if original.metadata.nbgrader["locked"] and cell.source != original.source:
                self.log.warning("%s: the locked cell %s was changed; it is put back", about["student"], grade_id)
            _restore(cell, original)
        for grade_id, original in released.items():
            if grade_id not in found and original.metadata.nbgrader["grade"]:
                self.log.warning("%s: the graded cell %s was deleted; it is put back", about["student"], grade_id)
                nb.cells.append(original)
        return nb, resources


class TrustedStep(NbGraderPreprocessor):
    """Marks the graded code cells by the judge, and writes points and feedback into their outputs."""

    sandbox = Enum(
        ["bubblewrap", "none"],
        "bubblewrap",
        help="What shuts in the ranks of a submission. With bubblewrap missing, nothing is graded. 'none' grades all the "
        "same: a submission could then read and write whatever the instructor can.",
    ).tag(config=True)
    seconds_per_cell = Float(
        60.0, help="How long the judge may take for one graded cell; past it the cell gets no points."
    ).tag(config=True)
    secret_file = Unicode(
        "autograder/secret.txt",
        help="The file, relative to the course, that holds the number from which the hidden inputs are made. It is "
        "made at the first use; keep it to yourself, and keep it: with the same one a regrading uses the same inputs.",
    ).tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook with outputs in its graded code cells, and none anywhere else.

        Raises JudgeError where nothing can be marked: then nbgrader leaves the submission without a grade.
        """
        about = resources["nbgrader"]
        course = _coursedir(self)
        exercises = _exercises(course, about)
        secret = self._secret(Path(course.root))
        code = [cell for cell in nb.cells if cell.cell_type == "code"]
        graded = [cell for cell in code if _is_graded(cell)]
        # the graded cells stay in the count, so that "cell 5" is what the student finds there
        sources = ["" if _is_graded(cell) else cell.source for cell in code]
        for cell in code:
            cell.outputs, cell.execution_count = [], None
        for cell in graded:
            metadata = cell.metadata.nbgrader
            exercise = exercises.get(metadata["grade_id"])
            if exercise is None:
                raise JudgeError(
                    f"The graded cell {metadata['grade_id']} names no exercise in the instructor's notebook; add "
                    "allranks metadata to it and run `nbgrader generate_assignment` again."
                )
            request = {
                "exercise": exercise,
                "cells": sources,
                "filename": f"{about['notebook']}.ipynb",
                "secret": secret,
                "wall_s": self.seconds_per_cell,
            }
            verdict = self._verdict(request, about["student"])
            cell.outputs, cell.execution_count = outputs_for(verdict, float(metadata["points"])), 1
        return nb, resources

    def _verdict(self, request: dict, student: str) -> dict:
        """The judge's verdict; none but a right answer survives a judge that is held up or brought down."""
        judge = Judge.shared(self.sandbox)
        try:
            return judge.mark(request, self.seconds_per_cell + GRACE_S)
        except OutOfTime:
            reason = f"The marking was stopped after {self.seconds_per_cell:g} s."
        except Died as how:
            reason = f"The marking broke down ({how}). Ask your teacher to look at it."
        self.log.warning("%s: %s: %s", student, request["exercise"], reason)
        return {"exercise": request["exercise"], "passed": False, "score": 0.0, "cases": [], "reason": reason}

    def _secret(self, course: Path) -> int:
        path = course / self.secret_file
        try:
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(f"{secrets.randbits(62)}\n", encoding="ascii")
        except FileExistsError:
            pass
        try:
            return int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            raise JudgeError(f"{path} must hold one whole number; write one, or delete the file.") from None


def _coursedir(step: NbGraderPreprocessor) -> CourseDirectory:
    """The course that nbgrader is at work on."""
    converter = step.parent.parent if step.parent is not None else None
    return getattr(converter, "coursedir", None) or CourseDirectory(parent=step)


def _exercises(course: CourseDirectory, about: dict) -> dict[str, str]:
    """The exercise of each graded code cell, from the instructor's notebook: never from the submission."""
    folder = Path(course.format_path(course.source_directory, ".", about["assignment"]))
    path = folder / f"{about['notebook']}.ipynb"
    try:
        notebook = nbformat.read(path, as_version=4)
    except OSError as error:
        raise JudgeError(f"The instructor's notebook {path} can't be read ({error.strerror}).") from None
    return {
        cell.metadata.nbgrader["grade_id"]: cell.metadata["allranks"]["exercise"]
        for cell in notebook.cells
        if cell.cell_type == "code" and _is_graded(cell) and "exercise" in cell.metadata.get("allranks", {})
    }


def _is_graded(cell: NotebookNode) -> bool:
    """Whether the machine gives the points of this cell."""
    about = cell.metadata.get("nbgrader", {})
    return bool(about.get("grade")) and not about.get("solution") and not about.get("task")


def _grade_id(cell: NotebookNode) -> str | None:
    about = cell.metadata.get("nbgrader")
    grade_id = about.get("grade_id") if isinstance(about, dict) else None
    return grade_id if isinstance(grade_id, str) else None


def _released_cells(about: dict) -> dict[str, NotebookNode]:
    """Every cell that the gradebook knows of this notebook, by grade_id and in order, as it was released."""
    cells = {}
    with Gradebook(about["db_url"]) as gradebook:
        notebook = gradebook.find_notebook(about["notebook"], about["assignment"])
        points = {cell.name: float(cell.max_score) for cell in [*notebook.grade_cells, *notebook.task_cells]}
        grades = {cell.name for cell in notebook.grade_cells}
        solutions = {cell.name for cell in notebook.solution_cells}
        tasks = {cell.name for cell in notebook.task_cells}
        for known in notebook.source_cells:
            new = nbformat.v4.new_code_cell if known.cell_type == "code" else nbformat.v4.new_markdown_cell
            cell = new(known.source)
            cell.metadata.nbgrader = {
                "schema_version": 3,
                "grade_id": known.name,
                "grade": known.name in grades,
                "solution": known.name in solutions,
                "task": known.name in tasks,
                "locked": bool(known.locked),
                "checksum": known.checksum,
                "cell_type": known.cell_type,
            }
            if known.name in points:
                cell.metadata.nbgrader["points"] = points[known.name]
            cells[known.name] = cell
    return cells


def _restore(cell: NotebookNode, original: NotebookNode) -> None:
    """Makes a submitted cell what it was, but for the answer in it."""
    cell.metadata["nbgrader"] = original.metadata.nbgrader
    if original.metadata.nbgrader["locked"]:
        cell.source = original.source
    if cell.cell_type != original.cell_type:
        cell.cell_type = original.cell_type
        cell.pop("attachments", None)
        if original.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        else:
            cell.pop("outputs", None)
            cell.pop("execution_count", None)


def _refuse_links(course: CourseDirectory, about: dict) -> None:
    """Raises ValueError where a submission's notebook is a link: it would be somebody else's file that is marked."""
    folder = Path(course.format_path(course.submitted_directory, about["student"], about["assignment"]))
    path = folder / f"{about['notebook']}.ipynb"
    if path.is_symlink() or folder.is_symlink():
        raise ValueError(f"{path} is a symbolic link; a submission must be a file of its own. It was not graded.")

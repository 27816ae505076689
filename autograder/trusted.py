"""The steps of `nbgrader autograde` that make a grade mean something; `nbgrader_config.py` puts them in.

`RestoreCells` gives a submission the shape in which it was released: its own text in its own cells, every graded cell as
the gradebook knows it. `TrustedStep` takes the place of nbgrader's Execute: the text of the cells goes to the judge,
another process; the judge's verdict becomes the outputs of the graded cells, where nbgrader looks for the points. No
line of a submission ever runs in the process that writes the gradebook.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Dict, Enum, Float, Unicode

from autograder.feedback import outputs_for
from autograder.intake import check_files, check_shape
from autograder.judge import Judge, JudgeError


class RestoreCells(NbGraderPreprocessor):
    """Puts a submission back into the shape of the released notebook, whatever was done to its cells' metadata."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook with trusted metadata: known cells as the gradebook has them, all others without any."""
        about = resources["nbgrader"]
        course = _coursedir(self)
        check_files(Path(course.format_path(course.submitted_directory, about["student"], about["assignment"])))
        check_shape(nb, f"{about['notebook']}.ipynb")
        incidents = []
        for grade_id, remark in restore(nb, released_cells(about["db_url"], about["assignment"], about["notebook"])):
            self.log.warning("%s: %s", about["student"], remark)
            incidents.append({"kind": "tampered", "where": grade_id, "what": remark})
        nb.metadata["allranks"] = {"incidents": incidents}
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
        60.0,
        help="How long the judge may take for one graded cell; past it the cell gets no points. A cell whose metadata says "
        '`allranks={"exercise": ..., "seconds": 120}` in the instructor\'s notebook has a limit of its own.',
    ).tag(config=True)
    secret_file = Unicode(
        "autograder/secret.txt",
        help="The file, relative to the course, that holds the number from which the hidden inputs are made. It is "
        "made at the first use; keep it to yourself, and keep it: with the same one a regrading uses the same inputs.",
    ).tag(config=True)
    given = Dict(help="Verdicts that `allranks grade` has already, by `key_of` their requests.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook with outputs in its graded code cells, and none anywhere else.

        Raises JudgeError where nothing can be marked: then nbgrader leaves the submission without a grade.
        """
        about = resources["nbgrader"]
        questions = self.questions(_coursedir(self), nb, about["assignment"], about["notebook"])
        incidents = nb.metadata["allranks"]["incidents"]  # RestoreCells has begun the list
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        for question in questions:
            verdict = self.given.get(key_of(question.request))
            if verdict is None:
                verdict = Judge.shared(self.sandbox).verdict(question.request)
            for incident in verdict["incidents"]:
                self.log.warning("%s: %s: %s", about["student"], question.grade_id, incident["what"])
                incidents.append({"kind": incident["kind"], "where": question.grade_id, "what": incident["what"]})
            question.cell.outputs, question.cell.execution_count = outputs_for(verdict, question.points), 1
        Judge.release_shared()
        return nb, resources

    def questions(self, course: CourseDirectory, nb: NotebookNode, lab: str, notebook: str) -> list[Question]:
        """What is to be asked of the judge about a restored notebook, one question a graded cell.

        Raises JudgeError where the instructor's notebook does not say which exercise marks a cell.
        """
        exercises = _exercises(course, lab, notebook)
        secret = self._secret(Path(course.root))
        code = [cell for cell in nb.cells if cell.cell_type == "code"]
        # the graded cells stay in the count, so that "cell 5" is what the student finds there
        sources = ["" if is_graded(cell) else cell.source for cell in code]
        found = []
        for cell in filter(is_graded, code):
            about = cell.metadata.nbgrader
            asked = exercises.get(about["grade_id"])
            if asked is None:
                raise JudgeError(
                    f"The graded cell {about['grade_id']} names no exercise in the instructor's notebook; add "
                    "allranks metadata to it and run `nbgrader generate_assignment` again."
                )
            request = {
                "exercise": asked["exercise"],
                "cells": sources,
                "filename": f"{notebook}.ipynb",
                "secret": secret,
                "wall_s": float(asked.get("seconds", self.seconds_per_cell)),
            }
            found.append(Question(about["grade_id"], float(about["points"]), request, cell))
        return found

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


@dataclass(frozen=True)
class Question:
    """A graded cell and what is asked of the judge about it (see autograder.judge)."""

    grade_id: str
    points: float
    request: dict
    cell: NotebookNode


def key_of(request: dict) -> str:
    """A short name of a request: the same for the same question, and for no other."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def incidents_of(notebook: NotebookNode) -> list[dict]:
    """What the two steps noted about a submission: {"kind", "where" (the cell), "what"}, from its graded notebook."""
    return list(notebook.metadata.get("allranks", {}).get("incidents", ()))


def restore(notebook: NotebookNode, released: Mapping[str, NotebookNode]) -> list[tuple[str, str]]:
    """Gives every known cell its released metadata and, where it is locked, its text; puts back graded cells that are gone.

    Returns what had been done to them: the cell and a phrase.
    """
    remarks = []
    found: set[str] = set()
    for cell in reversed(notebook.cells):  # of two cells with one id the later one counts, as it does when both are run
        grade_id = _grade_id(cell)
        forged = _forged(cell, released.get(grade_id))
        cell.metadata.pop("nbgrader", None)
        cell.metadata.pop("allranks", None)
        if grade_id not in released:
            continue
        if grade_id in found:
            remarks.append((grade_id, f"the cell {grade_id} is there more than once; the last one counts"))
            continue
        found.add(grade_id)
        original = released[grade_id]
        if original.metadata.nbgrader["locked"] and cell.source != original.source:
            remarks.append((grade_id, f"the locked cell {grade_id} is not as released; it is put back"))
        if forged:
            remark = f"the metadata of the cell {grade_id} is not as released ({forged}); it is put back"
            remarks.append((grade_id, remark))
        _restore(cell, original)
    for grade_id, original in released.items():
        if grade_id not in found and original.metadata.nbgrader["grade"]:
            remarks.append((grade_id, f"the graded cell {grade_id} was deleted; it is put back"))
            notebook.cells.append(original)
    return remarks


def _forged(cell: NotebookNode, original: NotebookNode | None) -> str:
    """The names of what nbgrader knows of the cell and is not as it was released.

    A checksum that is not there accuses nobody: a notebook in the instructor's version has none, and nothing is gained.
    """
    if original is None:
        return ""
    theirs, ours = cell.metadata["nbgrader"], original.metadata.nbgrader
    ignored = {"cell_type"} if "checksum" in theirs else {"cell_type", "checksum"}
    names = [name for name in ours if name not in ignored and theirs.get(name) != ours[name]]
    if cell.cell_type != original.cell_type:
        names.append("cell_type")
    return ", ".join(names)


def _coursedir(step: NbGraderPreprocessor) -> CourseDirectory:
    """The course that nbgrader is at work on."""
    converter = step.parent.parent if step.parent is not None else None
    return getattr(converter, "coursedir", None) or CourseDirectory(parent=step)


def _exercises(course: CourseDirectory, lab: str, notebook_name: str) -> dict[str, dict]:
    """What marks each graded code cell, from the instructor's notebook: never from the submission."""
    folder = Path(course.format_path(course.source_directory, ".", lab))
    path = folder / f"{notebook_name}.ipynb"
    try:
        notebook = nbformat.read(path, as_version=4)
    except OSError as error:
        raise JudgeError(f"The instructor's notebook {path} can't be read ({error.strerror}).") from None
    return {
        cell.metadata.nbgrader["grade_id"]: dict(cell.metadata["allranks"])
        for cell in notebook.cells
        if cell.cell_type == "code" and is_graded(cell) and "exercise" in cell.metadata.get("allranks", {})
    }


def is_graded(cell: NotebookNode) -> bool:
    """Whether the machine gives the points of this cell."""
    about = cell.metadata.get("nbgrader", {})
    return bool(about.get("grade")) and not about.get("solution") and not about.get("task")


def _grade_id(cell: NotebookNode) -> str | None:
    about = cell.metadata.get("nbgrader")
    grade_id = about.get("grade_id") if isinstance(about, dict) else None
    return grade_id if isinstance(grade_id, str) else None


def released_cells(db_url: str, lab: str, notebook_name: str) -> dict[str, NotebookNode]:
    """Every cell that the gradebook knows of this notebook, by grade_id and in order, as it was released."""
    cells = {}
    with Gradebook(db_url) as gradebook:
        notebook = gradebook.find_notebook(notebook_name, lab)
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

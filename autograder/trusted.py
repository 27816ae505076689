"""The steps of `nbgrader autograde` that make grades trustworthy; `nbgrader_config.py` adds them.

`RestoreCells` gives a submission the form of the released notebook: graded and locked cells as the gradebook knows
them, and the student's text in the other cells. `TrustedStep` replaces nbgrader's Execute: it sends the text of the
cells to the judge, which is another process, and writes the verdict into the outputs of the graded cells, where
nbgrader reads the points. The code of a submission never runs in the process that writes the gradebook.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
from allranks.base import variants
from allranks.course.handin import check_shape
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Dict, Enum, Float, Unicode

from autograder.feedback import outputs_for
from autograder.intake import check_files, unread
from autograder.judge import Judge, JudgeError
from autograder.pairs import author
from autograder.showing import strip


class RestoreCells(NbGraderPreprocessor):
    """Gives a submission the form of the released notebook again, however its cells' metadata was changed."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook with trusted metadata: from the gradebook for the cells that it knows, none for all others."""
        about = resources["nbgrader"]
        course = coursedir_of(self)
        folder = Path(course.format_path(course.submitted_directory, about["student"], about["assignment"]))
        check_files(folder)
        check_shape(nb, f"{about['notebook']}.ipynb")
        incidents = []
        released = released_cells(about["db_url"], about["assignment"], about["notebook"])
        for grade_id, remark in restore(nb, released, prose_of(course, about["assignment"], about["notebook"])):
            self.log.warning("%s: %s", about["student"], remark)
            incidents.append({"kind": "changed", "where": grade_id, "what": remark})
        given = Path(course.format_path(course.source_directory, ".", about["assignment"]))
        first = min((path.stem for path in folder.glob("*.ipynb") if (given / path.name).exists()), default="")
        for name in unread(folder, given) if about["notebook"] == first else ():
            self.log.warning("%s: %s was not read", about["student"], name)
            incidents.append({"kind": "beside", "where": "", "what": name})
        nb.metadata["allranks"] = {"incidents": incidents}
        strip(nb)
        return nb, resources


class TrustedStep(NbGraderPreprocessor):
    """Marks the graded code cells by the judge, and writes points and feedback into their outputs."""

    sandbox = Enum(
        ["bubblewrap", "none"],
        "bubblewrap",
        help="The sandbox for the ranks of a submission. If bubblewrap is missing, nothing is graded. 'none' grades without "
        "a sandbox: a submission can then read and write all that the instructor can.",
    ).tag(config=True)
    seconds_per_cell = Float(
        60.0,
        help="How long the judge may take for one graded cell; after that, the cell gets no points. A cell can have its own "
        'limit in the instructor\'s notebook, by the metadata `allranks={"exercise": ..., "seconds": 120}`.',
    ).tag(config=True)
    secret_file = Unicode(
        "autograder/secret.txt",
        help="The file, relative to the course, with the number from which the hidden inputs are made. It is made at the "
        "first use. Keep it secret, and do not delete it: with the same number, a regrading uses the same inputs.",
    ).tag(config=True)
    given = Dict(help="Verdicts that `allranks grade` already has, by the `key_of` their requests.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook with outputs only in its graded code cells.

        Raises JudgeError if the judge can't mark; nbgrader then gives the submission no grade.
        """
        about = resources["nbgrader"]
        questions = self.questions(coursedir_of(self), nb, about["assignment"], about["notebook"], about["student"])
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

    def questions(
        self, course: CourseDirectory, nb: NotebookNode, lab: str, notebook: str, student: str
    ) -> list[Question]:
        """The questions for the judge about a restored notebook: one for each graded cell.

        Raises JudgeError if the instructor's notebook does not say which exercise marks a cell.
        """
        exercises = exercises_of(course, lab, notebook)
        key = variants_key(course, lab)
        variant = None if key is None else {"key": key, "student": author(Path(course.root), lab, student)}
        return questions_of(nb, notebook, exercises, self.secret(Path(course.root)), self.seconds_per_cell, variant)

    def secret(self, course: Path) -> int:
        """The course's number, from which hidden inputs follow; it is made if it is missing. Raises JudgeError."""
        path = course / self.secret_file
        try:
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(f"{secrets.randbits(128)}\n", encoding="ascii")
        except FileExistsError:
            pass
        try:
            return int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            raise JudgeError(f"{path} must hold one whole number; write one, or delete the file.") from None


@dataclass(frozen=True)
class Question:
    """A graded cell, and the request to the judge about it (see autograder.judge)."""

    grade_id: str
    points: float
    request: dict
    cell: NotebookNode


def variants_key(course: CourseDirectory, lab: str) -> str | None:
    """The key of the students' variants of a lab, from the instructor's folder, never from a submission; None if there are none."""
    try:
        return variants.key_of(Path(course.format_path(course.source_directory, ".", lab)))
    except variants.VariantError as error:
        raise JudgeError(f"{error} (`allranks course variants {lab}` writes it again.)") from None


def questions_of(
    nb: NotebookNode,
    notebook: str,
    exercises: Mapping[str, dict],
    secret: int,
    seconds_per_cell: float,
    variant: dict[str, str] | None = None,
) -> list[Question]:
    """The questions about a restored notebook; `exercises` has the exercise and limit of each graded cell.

    `variant` has the student and the key of the course's variants; without it everybody has the same exercises.

    Raises JudgeError if a graded cell has no exercise.
    """
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    # graded cells count too, so that "cell 5" in a message is cell 5 in the student's notebook
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
            "wall_s": float(asked.get("seconds", seconds_per_cell)),
        }
        if variant is not None:
            request["variant"] = variant
        found.append(Question(about["grade_id"], float(about["points"]), request, cell))
    return found


def key_of(request: dict) -> str:
    """The SHA-256 of a request: equal requests have equal keys."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def incidents_of(notebook: NotebookNode) -> list[dict]:
    """The incidents that the two steps wrote into a graded notebook: each is {"kind", "where" (the cell), "what"}."""
    return list(notebook.metadata.get("allranks", {}).get("incidents", ()))


def restore(
    notebook: NotebookNode, released: Mapping[str, NotebookNode], prose: Collection[str] | None = None
) -> list[tuple[str, str]]:
    """Gives every known cell its released metadata and, if it is locked, its released text.

    Puts back graded cells and locked code, such as imports, that are missing. With `prose`, the texts of the lab, it takes words
    beside an answer that is empty for the answer. Returns what a student had changed: (the cell, a phrase) for each change.
    """
    remarks = []
    found: set[str] = set()
    for cell in reversed(notebook.cells):  # of two cells with one id the later one counts, as when both are run
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
    place = 0  # behind the released cell before
    for grade_id, original in released.items():
        about = original.metadata.nbgrader
        if grade_id in found:
            place = next(n for n, cell in enumerate(notebook.cells) if _grade_id(cell) == grade_id) + 1
        elif about["grade"] or (about["locked"] and original.cell_type == "code"):
            kind = "graded" if about["grade"] else "locked"
            remarks.append((grade_id, f"the {kind} cell {grade_id} was deleted; it is put back"))
            notebook.cells.insert(place, original)
            place += 1
    return remarks + ([] if prose is None else _words_beside(notebook, released, prose))


def _words_beside(
    notebook: NotebookNode, released: Mapping[str, NotebookNode], prose: Collection[str]
) -> list[tuple[str, str]]:
    """Moves words into the answer that they are: text cells of the student's own next to an answer in words that is as released."""
    remarks = []
    for answer in list(notebook.cells):
        original = released.get(_grade_id(answer))
        if original is None or original.cell_type != "markdown" or answer.source.strip() != original.source.strip():
            continue
        if not (original.metadata.nbgrader["grade"] and original.metadata.nbgrader["solution"]):
            continue
        place = next(n for n, cell in enumerate(notebook.cells) if cell is answer)
        beside: list[NotebookNode] = []
        for step, cells in ((-1, notebook.cells[:place][::-1]), (1, notebook.cells[place + 1 :])):
            own = list(itertools.takewhile(lambda cell: _grade_id(cell) not in released, cells))
            words = [cell for cell in own if cell.cell_type == "markdown" and cell.source.strip() not in {"", *prose}]
            beside += words[::step]
        if beside:
            answer.source = "\n\n".join(cell.source for cell in beside)
            notebook.cells = [cell for cell in notebook.cells if not any(cell is one for one in beside)]
            name = original.metadata.nbgrader["grade_id"]
            remarks.append((name, f"the answer {name} is empty; the words beside it are taken for it"))
    return remarks


def _forged(cell: NotebookNode, original: NotebookNode | None) -> str:
    """The names of nbgrader's metadata that differ from the released cell.

    A missing checksum does not count: the instructor's version of a notebook has none, and removing it gains nothing.
    """
    if original is None:
        return ""
    theirs, ours = cell.metadata["nbgrader"], original.metadata.nbgrader
    ignored = {"cell_type"} if "checksum" in theirs else {"cell_type", "checksum"}
    names = [name for name in ours if name not in ignored and theirs.get(name) != ours[name]]
    if cell.cell_type != original.cell_type:
        names.append("cell_type")
    return ", ".join(names)


def coursedir_of(step: NbGraderPreprocessor) -> CourseDirectory:
    """The course that nbgrader is grading."""
    converter = step.parent.parent if step.parent is not None else None
    return getattr(converter, "coursedir", None) or CourseDirectory(parent=step)


def exercises_of(course: CourseDirectory, lab: str, notebook_name: str) -> dict[str, dict]:
    """The exercise and limit of each graded code cell, from the instructor's notebook, never from the submission."""
    return exercises_in(_instructors(course, lab, notebook_name))


def prose_of(course: CourseDirectory, lab: str, notebook_name: str) -> set[str]:
    """The texts of the lab, from the instructor's notebook."""
    cells = _instructors(course, lab, notebook_name).cells
    return {cell.source.strip() for cell in cells if cell.cell_type == "markdown" and _grade_id(cell) is None}


def _instructors(course: CourseDirectory, lab: str, notebook_name: str) -> NotebookNode:
    path = Path(course.format_path(course.source_directory, ".", lab)) / f"{notebook_name}.ipynb"
    try:
        return nbformat.read(path, as_version=4)
    except OSError as error:
        raise JudgeError(f"The instructor's notebook {path} can't be read ({error.strerror}).") from None


def exercises_in(notebook: NotebookNode) -> dict[str, dict]:
    """The exercise and limit of each graded code cell of a notebook that is not a submission."""
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

"""A submission gets back the shape in which it was released, whatever was done to it."""

from __future__ import annotations

import copy

import nbformat
import pytest
from grading_course import LAB, NOTEBOOK, Course, cell_of
from nbconvert.exporters import NotebookExporter
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.nbgraderformat import MetadataValidator

from autograder.trusted import RestoreCells, incidents_of

GRADED = "ring_all_reduce-graded"


def restored(course: Course, notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook after the step, which is told the same as by nbgrader."""
    directory = CourseDirectory(
        root=str(course.root), submitted_directory="autograder/submitted", source_directory="solutions"
    )
    step = RestoreCells(parent=NotebookExporter(parent=Autograde(coursedir=directory)))
    database = f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}"
    about = {"student": "someone", "assignment": LAB, "notebook": NOTEBOOK, "db_url": database}
    notebook, _ = step.preprocess(copy.deepcopy(notebook), {"nbgrader": about})
    MetadataValidator().validate_nb(notebook)
    return notebook


def as_released(course: Course, notebook: nbformat.NotebookNode, grade_id: str) -> bool:
    """Whether the cell is what the students were given, and graded as it was."""
    found, wanted = cell_of(notebook, grade_id), cell_of(course.notebook("labs"), grade_id)
    keys = ("grade", "solution", "locked", "task", "points", "grade_id", "checksum", "schema_version")
    about, should = found.metadata.nbgrader, wanted.metadata.nbgrader
    return (
        found.cell_type == wanted.cell_type
        and found.source == wanted.source
        and all(about.get(key) == should.get(key) for key in keys)
    )


def test_an_honest_submission_keeps_every_word(course):
    submitted = course.answers()
    found = restored(course, submitted)
    assert [cell.source for cell in found.cells] == [cell.source for cell in submitted.cells]
    assert as_released(course, found, GRADED)


def test_a_checksum_that_is_not_there_accuses_nobody(course):
    """The instructor's own version, handed in to try the way, has none."""
    notebook = course.answers()
    del cell_of(notebook, GRADED).metadata.nbgrader["checksum"]
    found = restored(course, notebook)
    assert as_released(course, found, GRADED)
    assert incidents_of(found) == []


@pytest.mark.parametrize(
    "forged",
    [
        {"grade": False},
        {"solution": True, "locked": False},
        {"points": 600},
        {"task": True},
        {"schema_version": 99},
        {"schema_version": 0},
        {"locked": False, "checksum": "0" * 32},
        {"cell_type": "markdown"},
    ],
)
def test_forged_metadata_is_put_back(course, forged):
    notebook = course.answers()
    cell_of(notebook, GRADED).metadata.nbgrader.update(forged)
    cell_of(notebook, GRADED).source = "6.0"
    assert as_released(course, restored(course, notebook), GRADED)


@pytest.mark.parametrize(
    "nonsense", [5, [], "x", {}, {"grade_id": 3}, {"grade": True}, {"grade_id": "unknown", "grade": True}]
)
def test_nonsense_for_metadata_is_dropped(course, nonsense):
    notebook = course.answers()
    notebook.cells[0].metadata["nbgrader"] = nonsense
    found = restored(course, notebook)
    assert "nbgrader" not in found.cells[0].metadata
    assert as_released(course, found, GRADED)


def test_a_graded_cell_turned_into_prose_is_code_again(course):
    notebook = course.answers()
    index = notebook.cells.index(cell_of(notebook, GRADED))
    about = notebook.cells[index].metadata
    notebook.cells[index] = nbformat.v4.new_markdown_cell("nothing to see", metadata=about)
    assert as_released(course, restored(course, notebook), GRADED)


def test_deleted_graded_cells_come_back(course):
    notebook = course.answers()
    notebook.cells = [c for c in notebook.cells if not c.metadata.get("nbgrader", {}).get("grade")]
    found = restored(course, notebook)
    for grade_id in ("distributed_mean-graded", GRADED, "when_not_a_ring"):
        assert as_released(course, found, grade_id)


def test_deleted_imports_come_back_in_their_place(course):
    """Without them two right answers had no `dist`, and 0 of 9 points."""
    notebook = course.answers()
    place = notebook.cells.index(cell_of(notebook, "imports"))
    del notebook.cells[place]
    found = restored(course, notebook)
    before = [cell.source for cell in course.answers().cells]
    code = [cell.source for cell in found.cells if cell.cell_type == "code"]
    assert as_released(course, found, "imports") and sorted(cell.source for cell in found.cells) == sorted(before)
    assert code.index(cell_of(found, "imports").source) == 0
    assert any("the locked cell imports was deleted" in incident["what"] for incident in incidents_of(found))


def test_words_in_a_cell_of_ones_own_are_the_answer_where_that_is_empty(course):
    """A cell that was copied has no metadata: its words got 0 points, and nobody was asked to read them."""
    name = "when_not_a_ring"
    for delete in (False, True):
        notebook = course.notebook("labs")
        answer = cell_of(notebook, name)
        place = notebook.cells.index(answer)
        notebook.cells.insert(place + 1, nbformat.v4.new_markdown_cell("For short tensors, latency counts."))
        if delete:
            notebook.cells.remove(answer)
        found = restored(course, notebook)
        assert cell_of(found, name).source == "For short tensors, latency counts."
        assert len(found.cells) == len(course.notebook("labs").cells)
        assert cell_of(found, name).metadata.nbgrader.points == 2


def test_the_labs_own_words_and_an_answer_that_is_there_are_left_alone(course):
    untouched = restored(course, course.notebook("labs"))
    assert [cell.source for cell in untouched.cells] == [cell.source for cell in course.notebook("labs").cells]
    notebook = course.notebook("labs")
    cell_of(notebook, "when_not_a_ring").source = "My answer."
    place = notebook.cells.index(cell_of(notebook, "when_not_a_ring"))
    notebook.cells.insert(place, nbformat.v4.new_markdown_cell("A note."))
    assert cell_of(restored(course, notebook), "when_not_a_ring").source == "My answer."


def test_of_two_cells_with_one_id_the_last_counts(course):
    notebook = course.answers()
    twin = copy.deepcopy(cell_of(notebook, "ring_all_reduce"))
    twin.id, twin.source = "twin", "def ring_all_reduce(tensor):\n    return 1"
    notebook.cells.append(twin)
    assert cell_of(restored(course, notebook), "ring_all_reduce").source == twin.source


def test_a_link_is_refused(course):
    path = course.submission("someone")
    path.symlink_to(course.root / "solutions" / LAB / f"{NOTEBOOK}.ipynb")
    try:
        with pytest.raises(ValueError, match="is a symbolic link; hand in the file itself"):
            restored(course, course.answers())
    finally:
        path.unlink()

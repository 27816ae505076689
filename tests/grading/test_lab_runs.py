"""The instructor's lab runs from the first cell to the last: a live world, the player, instant checks, full points."""

from __future__ import annotations

import nbformat
import pytest
from grading_course import LAB, NOTEBOOK, ROOT
from nbclient import NotebookClient

pytestmark = [pytest.mark.live, pytest.mark.notebooks]


def text_of(cell: nbformat.NotebookNode) -> str:
    """What a cell printed and showed, as plain text."""
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


def test_every_cell_of_the_solution_runs():
    notebook = nbformat.read(ROOT / "solutions" / LAB / f"{NOTEBOOK}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()  # raises where a cell does
    said = {cell.id: text_of(cell) for cell in notebook.cells if cell.cell_type == "code"}
    assert said["first_all_reduce"].count("[10.0, 20.0, 30.0]") == 4
    assert said["try_mean"].count("1.5000, 1.5000") == 4
    assert said["try_ring"].count("10., 20., 30.") == 4
    assert said["try_argmax"].count("(9.0, 1, 2)") == 4
    assert "distributed_argmax: passed" in said["check_argmax"]
    assert "distributed_mean: passed" in said["check_mean"] and "ring_all_reduce: passed" in said["check_ring"]
    graded = [said[f"{name}-graded"] for name in ("distributed_mean", "distributed_argmax", "ring_all_reduce")]
    assert graded == ["3.0", "4.0", "6.0"]

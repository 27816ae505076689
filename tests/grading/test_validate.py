"""What nbgrader's own commands say to students and in a shell: `validate` with the verdict, `collect` with the hub's exchange."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest
from classes import wrong
from grading_course import cell_of, make_course
from traitlets.config import PyFileConfigLoader

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]


def test_validate_says_which_cases_and_why(small_class, tmp_path):
    notebook = small_class.course.notebook("labs")
    answer, graded = (cell_of(notebook, name) for name in ("distributed_mean", "distributed_mean-graded"))
    answer.source = wrong("distributed_mean", "sum")
    notebook.cells = [cell_of(notebook, "imports"), answer, graded]  # without a world, which takes seconds
    nbformat.write(notebook, tmp_path / "small.ipynb")
    command = [sys.executable, "-m", "nbgrader", "validate", "small.ipynb"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = " ".join(done.stdout.split())
    assert "VALIDATION FAILED ON 1 CELL(S)" in said and "Partial credit" not in said
    assert "Cause: The sum instead of the mean: divide by the number of ranks." in said
    assert "✗ any rank count 3/6" in said
    assert "..." not in done.stdout, "no line is cut"


def test_check_is_silent_elsewhere(capfd):
    from allranks import check

    def distributed_mean(tensor):
        return tensor

    assert not check(distributed_mean).passed
    assert capfd.readouterr().err == ""


def test_nbgrader_finds_the_hubs_exchange_in_any_shell(tmp_path):
    course = make_course(tmp_path / "course", record=False)
    folder = course.root / "autograder"

    def root() -> str | None:
        config = PyFileConfigLoader("nbgrader_config.py", path=str(folder)).load_config()
        return config.Exchange.get("root")

    assert not isinstance(root(), str)
    (folder / "exchange.txt").write_text(f"{tmp_path / 'exchange'}\n", encoding="utf-8")
    assert root() == str(tmp_path / "exchange")

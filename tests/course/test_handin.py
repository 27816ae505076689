"""`ready()` in a lab's last cell says before handing in what the grader says afterwards, and the hub's submit refuses the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from allranks import ready
from allranks.course.handin import Refused, answers, check_folder, read_notebook

ROOT = Path(__file__).resolve().parents[2]
LAB, NAME = "lab03_all_reduce", "all_reduce.ipynb"


@pytest.fixture
def mine(tmp_path) -> Path:
    """A student's copy of the lab."""
    shutil.copytree(ROOT / "labs" / LAB, tmp_path / "labs" / LAB)
    return tmp_path / "labs" / LAB / NAME


def with_outputs(path: Path, mib: int) -> None:
    book = json.loads(path.read_text(encoding="utf-8"))
    cell = next(cell for cell in book["cells"] if cell["cell_type"] == "code")
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["x" * (mib << 20)]}]
    path.write_text(json.dumps(book), encoding="utf-8")


def test_what_the_grader_takes_is_ready_and_empty_answers_are_named(mine):
    found = ready(mine)
    assert found and "would be taken, as saved at" in repr(found)
    assert found.empty == ("distributed_mean", "distributed_argmax", "ring_all_reduce", "when_not_a_ring")
    solved = nbformat.read(ROOT / "solutions" / LAB / NAME, as_version=4)
    nbformat.write(solved, mine)
    assert ready(mine).empty == ()


def test_50_mib_of_outputs_are_taken_and_70_are_refused_with_what_to_press(mine):
    with_outputs(mine, 50)
    assert ready(mine) and read_notebook(mine)
    with_outputs(mine, 70)
    found = ready(mine)
    assert not found and "70 MiB, of which 70 MiB are outputs. Clear the outputs (in JupyterLab: Edit," in repr(found)
    with pytest.raises(Refused, match="clear the outputs"):
        read_notebook(mine)


def test_a_name_a_link_and_a_broken_file_are_said_before(mine):
    other = mine.with_name("all_reduce (1).ipynb")
    shutil.copy(mine, other)
    assert "must keep its name. Call it all_reduce.ipynb again" in repr(ready(other))
    other.unlink()
    (mine.parent / "data").symlink_to("/etc/passwd")
    assert "data is a symbolic link" in repr(ready(mine))
    (mine.parent / "data").unlink()
    mine.write_text("{", encoding="utf-8")
    assert "is not a notebook" in repr(ready(mine)) and "not graded" not in repr(ready(mine))


def test_a_cell_whose_metadata_a_student_broke_is_no_answer(mine):
    book = nbformat.read(mine, as_version=4)
    names = [name for name, _ in answers(book)]
    cell = next(c for c in book.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "ring_all_reduce")
    for odd in ([], "solution", None, 7):
        cell.metadata["nbgrader"] = odd
        assert [name for name, _ in answers(book)] == [name for name in names if name != "ring_all_reduce"]


def test_where_nobody_names_the_notebook_nothing_is_claimed():
    assert repr(ready()).startswith("Nothing was checked: ") and not ready()


@pytest.mark.parametrize("lab", sorted(path.name for path in (ROOT / "labs").iterdir()))
def test_every_labs_last_cell_checks(lab):
    for path in (ROOT / "labs" / lab).glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        assert cells[-1].source.endswith("world.stop()\nready()"), path


@pytest.mark.notebooks
def test_the_hubs_submit_refuses_the_same_and_says_why(mine, tmp_path):
    exchange = tmp_path / "exchange"
    for folder in ("inbound", f"outbound/{LAB}"):
        (exchange / "allranks" / folder).mkdir(parents=True)
    for folder in (exchange, exchange / "allranks/inbound"):
        folder.chmod(0o777)
    shutil.copy(ROOT / "labs" / LAB / NAME, exchange / "allranks/outbound" / LAB)
    told = {"ALLRANKS_HUB_ROLE": "learner", "ALLRANKS_EXCHANGE": str(exchange), "HOME": str(tmp_path)}
    told["JUPYTER_CONFIG_PATH"] = str(ROOT / "deploy" / "jupyter" / "common")

    def submit() -> subprocess.CompletedProcess:
        options = [f"--Exchange.assignment_dir={mine.parents[1]}", f"--Exchange.cache={tmp_path / '.cache'}"]
        options += ["--Authenticator.plugin_class=nbgrader.auth.base.NoAuthPlugin"]  # no hub to ask here
        return subprocess.run(
            [sys.executable, "-m", "nbgrader", "submit", LAB, *options],
            cwd=tmp_path,
            env=os.environ | told,
            capture_output=True,
            text=True,
            check=False,
        )

    with_outputs(mine, 70)
    said = submit()
    assert said.returncode != 0 and "Nothing was handed in. all_reduce.ipynb would be refused: 70 MiB" in said.stderr
    assert not list((exchange / "allranks/inbound").iterdir())
    with_outputs(mine, 1)
    mine.with_name("scratch.ipynb").write_text("{", encoding="utf-8")  # the grader reads no other name
    said = submit()
    assert said.returncode == 0, said.stderr
    assert len(list((exchange / "allranks/inbound").iterdir())) == 1
    mine.rename(mine.with_name("all_reduce (1).ipynb"))
    said = submit()
    assert (
        said.returncode != 0 and "all_reduce (1).ipynb would be refused: a notebook must keep its name" in said.stderr
    )
    assert len(list((exchange / "allranks/inbound").iterdir())) == 1


def test_who_hands_in_too_much_reads_that_outputs_count(tmp_path):
    with open(tmp_path / "lab.ipynb", "wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(Refused, match="; outputs of notebooks count, so clear them"):
        check_folder(tmp_path)

"""What a reader does in a real kernel stands on the map: predictions, a check, the end of a chapter; and one command clears it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from allranks.base import kept, record
from allranks.base.chapters import chapters, find
from allranks.base.record import Checked, Did, Record
from allranks.course.contents import Kind, contents
from allranks.course.state import _state, state
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[3]
CELLS = (
    'from allranks import check, done, predict\nwho = predict("Who holds the sum?", choices=["rank 0", "all"], name="{name}")',
    'who.lock_in("all")',
    "def ring_shift(tensor, k):\n    return tensor\ncheck(ring_shift).passed",
    'done("03")',
)


@pytest.fixture
def course(tmp_path) -> Path:
    """A folder with the course's notebooks, as a learner has it."""
    for part in ("chapters", "labs"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("source", ".ipynb_checkpoints"))
    return tmp_path


def question(number: str) -> str:
    """The name of a chapter's first question."""
    return contents(ROOT)[number].questions[0].name


def run(course: Path, cells: list[str], named: bool = True) -> list:
    """Runs cells in a kernel of chapter 03, which Jupyter's server names to it; the last cell's outputs."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    where = course / find("03").path
    env = {**os.environ, "JPY_SESSION_NAME": str(where)} if named else dict(os.environ)
    client = NotebookClient(
        book, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(where.parent)}}
    )
    client.execute(env=env)
    return book.cells[-1].outputs


def allranks(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "allranks.cli", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.live
def test_what_a_kernel_did_is_on_the_map_until_it_is_cleared(course):
    assert state(course).here is None
    outputs = run(course, [cell.replace("{name}", question("03")) for cell in CELLS])
    [card] = [output["data"]["text/html"] for output in outputs if "data" in output]
    assert (
        "You are at the end of 03 Point to point: proved 0 of 3" in card
        and "../2_collectives" not in card
        and 'href="04_all_reduce.ipynb"' in card
    )
    found = state(course)
    there = found["03"]
    assert found.here == find("03") and found.go_on == find("04")
    assert question("03") in there.answered and there.ended and 0 < there.minutes_left < 40
    ring = next(item for item in there.contents.checks if item.name == "ring_shift")
    assert not there.passed(ring) and there.missing(ring)
    said = json.loads(allranks("map", str(course), "--json").stdout)
    assert said["here"] == "03" and said["go_on"] == "04"
    assert "You are at the end of 03 Point to point: proved 0 of 3" in allranks("map", str(course)).stdout
    assert (course / record.FILE).stat().st_mode & 0o077 == 0
    notebook = course / find("03").path
    book = json.loads(notebook.read_text(encoding="utf-8"))
    book["metadata"][record.ANSWERS] = {question("03"): {"value": "all"}}
    notebook.write_text(json.dumps(book), encoding="utf-8")
    kept.write("my_model", {"open": ["dp"]}, course)
    assert allranks("map", str(course), "--clear", "--yes").returncode == 0
    assert not kept.read("my_model", course)
    assert not (course / record.FILE).exists() and state(course).here is None
    assert json.loads(notebook.read_text(encoding="utf-8"))["cells"] == book["cells"]


@pytest.mark.live
def test_a_notebook_that_no_server_names_is_not_recorded(course):
    run(course, [cell.replace("{name}", question("03")) for cell in (*CELLS[:2], CELLS[3])], named=False)
    assert not (course / record.FILE).exists()


def test_answers_that_the_browser_saved_count_and_may_be_taken_back(course):
    notebook = course / find("04").path
    book = json.loads(notebook.read_text(encoding="utf-8"))
    book["metadata"][record.ANSWERS] = {question("04"): {"value": 6}, "of another time": {"value": 1}}
    notebook.write_text(json.dumps(book), encoding="utf-8")
    assert state(course)["04"].answered == {question("04")} and state(course).here == find("04")
    (course / record.FILE).write_text(json.dumps({"did": "took back", "name": question("04")}) + '\n{"did": "ans')
    assert not state(course)["04"].answered


def test_every_chapter_says_its_minutes_and_ends_with_its_own_card():
    holds = contents(ROOT)
    for chapter in chapters():
        assert holds[chapter.number].minutes >= 5 and chapter.can and not chapter.can.endswith(".")
        cells = nbformat.read(ROOT / chapter.path, as_version=4).cells
        assert cells[-1].source.endswith(f'done("{chapter.number}")'), chapter.path
    named = [item.name for one in holds.values() for item in one.questions]
    assert len(named) == len(set(named))


def test_each_exercise_of_the_labs_is_a_check_of_some_chapter():
    checks = {item.name for one in contents(ROOT).values() for item in one.checks if item.kind is Kind.CHECK}
    graded = {
        cell.metadata["allranks"]["exercise"]
        for path in ROOT.glob("labs/*/*.ipynb")
        for cell in nbformat.read(path, as_version=4).cells
        if "exercise" in cell.metadata.get("allranks", {})
    }
    assert graded <= checks


def test_a_check_that_several_chapters_have_does_not_move_the_reader():
    did = Record(
        checks={"distributed_mean": Checked(True)},
        order=[(Did.ASKED, question("02")), (Did.CHECKED, "distributed_mean")],
    )
    found = _state(contents(ROOT), did, {})
    assert found.here == find("02") and not any(found.walked)
    assert found["20"].proved == 1 and not found["20"].seen


def test_a_jump_ahead_leaves_what_was_skipped():
    found = _state(contents(ROOT), Record(ended={"48"}, order=[(Did.ENDED, "48")]), {})
    skipped = sum(progress.contents.minutes for progress in found.core if progress.chapter.number != "48")
    assert found.minutes_left == skipped + found["48"].minutes_left > skipped

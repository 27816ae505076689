"""A class with one submission of each kind that once stopped the others: everybody gets a feedback page, and is named.

By nbgrader's own commands on a real exchange: collect, `allranks grade`, generate_feedback, release_feedback. `make test`
takes a class of 12; the nightly run takes 30, with answers from the hostile corpus.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nbformat
import pytest
from grading_course import LAB, NOTEBOOK, Course, cell_of, make_course
from nbformat import NotebookNode

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hostile"))

from corpus import ANSWERS, NOTEBOOKS, answered

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(1800)]

NIGHTLY = bool(os.environ.get("ALLRANKS_NIGHTLY"))
SIZE = 30 if NIGHTLY else 12
HOSTILE = (
    "exits prints_a_verdict a_tensor_that_lies searches_its_memory fork_bomb fills_memory_bit_by_bit raises_markup "
    "an_exception_that_bites does_not_parse whispers_by_the_key_ring endless_while_it_is_read a_gigabyte_of_output".split()
)
DEADLOCK = "def distributed_mean(tensor):\n    dist.recv(tensor, (dist.get_rank() + 1) % dist.get_world_size())\n    return tensor"
PANDAS = "def distributed_mean(tensor):\n    import pandas as pd\n    return pd.Series(tensor).mean()"
MAGICS = "x = %pwd\nfiles = !ls\n"
ESCAPES = "def distributed_mean(tensor):\n    raise RuntimeError('\\x1b[2J\\r\\nada: 15 of 15\\u202e')"


def mean_is(course: Course, code: str) -> NotebookNode:
    return course.answers(lambda grade_id, source: code if grade_id == "distributed_mean" else source)


def blank_lines(course: Course) -> NotebookNode:
    made = course.answers()
    made.cells.insert(0, nbformat.v4.new_code_cell(" \n\t\n" * 12_000))
    cell_of(made, "when_not_a_ring").source = "\n" * 60_000
    return made


def colab(course: Course) -> NotebookNode:
    made = course.answers()
    state = {"a": {"model_module": "@jupyter-widgets/controls", "model_name": "HTMLModel", "state": {}}}
    made.metadata["widgets"] = nbformat.from_dict({"application/vnd.jupyter.widget-state+json": state})
    made.metadata["colab"] = {"provenance": []}
    return made


def forged(course: Course) -> NotebookNode:
    return NOTEBOOKS["forged_points"](course)


KINDS = {  # who hands in what; the page says the words
    "blank": (blank_lines, "blank lines are left out of the page"),
    "colab": (colab, "distributed_mean: passed"),
    "secretless": (lambda course: course.answers(), "distributed_mean: passed"),
    "escapes": (lambda course: mean_is(course, ESCAPES), "distributed_mean: not yet"),
    "backdated": (lambda course: course.answers(), "distributed_mean: passed"),
    "pandas": (lambda course: mean_is(course, PANDAS), "distributed_mean: not yet"),
    "magics": (
        lambda course: course.answers(lambda g, s: MAGICS + s if g == "distributed_mean" else s),
        "ring_all_reduce: ",
    ),
    "endless": (
        lambda course: mean_is(course, "def distributed_mean(t):\n    while True:\n        pass"),
        "not yet",
    ),
    "deadlock": (lambda course: mean_is(course, DEADLOCK), "not yet"),
    "forged": (forged, "not yet"),
    "junk": (None, "is not a notebook"),
}


def students() -> list[str]:
    """Everybody of whom there is one, then hostile answers, then honest ones."""
    hostile = list(HOSTILE) if NIGHTLY else []
    names = [*KINDS, *hostile]
    return names + [f"honest{n}" for n in range(SIZE - len(names))]


def notebook_of(course: Course, student: str) -> NotebookNode:
    if student in KINDS:
        return KINDS[student][0](course)
    return answered(course, ANSWERS[student][0]) if student in ANSWERS else course.answers()


def lay(inbound: Path, student: str, when: datetime) -> Path:
    """A folder as `nbgrader submit` makes it."""
    words = f"{when:%Y-%m-%d %H:%M:%S.%f} UTC"
    folder = inbound / f"{student}+{LAB}+{words}+random"
    folder.mkdir()
    (folder / "timestamp.txt").write_text(words, encoding="ascii")
    (folder / "submission_secret.txt").write_text((student * 64)[:128], encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Course:
    """A course whose roster is the class, and whose lab was due a day ago."""
    from nbgrader.api import Gradebook

    made = make_course(tmp_path_factory.mktemp("class"))
    exchange = tmp_path_factory.mktemp("exchange")
    exchange.chmod(0o777)
    with open(made.root / "autograder" / "nbgrader_config.py", "a", encoding="utf-8") as config:
        config.write(f"\nc.Exchange.root = {str(exchange)!r}\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    due = datetime.now(UTC) - timedelta(days=1)
    with Gradebook(f"sqlite:///{made.root / 'autograder' / 'gradebook.db'}") as book:
        for student in students():
            book.update_or_create_student(student)
        book.update_or_create_assignment(LAB, duedate=f"{due:%Y-%m-%d %H:%M}")
    inbound = exchange / "allranks" / "inbound"
    inbound.mkdir(parents=True)
    for student in [*students(), "stranger"]:
        back = timedelta(days=2) if student == "backdated" else timedelta()
        folder = lay(inbound, student, datetime.now(UTC) - back)
        path = folder / f"{NOTEBOOK}.ipynb"
        if student == "junk":
            path.write_bytes(b"\x00junk")
        elif student == "stranger":
            nbformat.write(made.answers(), path)
        else:
            nbformat.write(notebook_of(made, student), path)
        if student == "secretless":
            (folder / "submission_secret.txt").unlink()
    return made


@pytest.fixture(scope="module")
def told(course) -> dict[str, str]:
    """What each command said, in order; "grade" is JSON."""
    said = {"collect": course.nbgrader("collect", LAB).stdout}
    program = [str(Path(sys.executable).parent / "allranks"), "grade", LAB, "--course", str(course.root), "--json"]
    done = subprocess.run([*program, "--jobs", "2"], capture_output=True, text=True, check=False)
    said["grade"] = done.stdout
    began = time.monotonic()
    said["generate"] = course.nbgrader("generate_feedback", LAB).stdout
    said["generate_s"] = str(time.monotonic() - began)
    said["release"] = course.nbgrader("release_feedback", LAB).stdout
    print({name: text[-2000:] for name, text in said.items() if name != "grade"})
    return said


def page_of(course: Course, student: str) -> str:
    return (course.root / "autograder" / "feedback" / student / LAB / f"{NOTEBOOK}.html").read_text(encoding="utf-8")


def test_everybody_is_graded_or_named(told):
    rows = {row["student"]: row for row in json.loads(told["grade"])["students"]}
    assert sorted(rows) == sorted(students())
    assert [name for name, row in rows.items() if row["score"] is None] == ["junk"]
    assert all(row["score"] == 13.0 for name, row in rows.items() if name.startswith("honest"))
    assert {name: rows[name]["score"] for name in ("blank", "colab", "secretless", "backdated")} == {
        "blank": 13.0,
        "colab": 13.0,
        "secretless": 13.0,
        "backdated": 13.0,
    }
    assert not any("tamper" in json.dumps(row) for row in rows.values())


@pytest.mark.parametrize("student", students())
def test_everybody_gets_a_page(course, told, student):
    page = page_of(course, student)
    assert KINDS.get(student, (None, f"{NOTEBOOK}"))[1] in page, told["generate"][-3000:]
    assert "\x1b" not in page and "<script>alert(1)" not in page


def test_the_pages_of_all_but_one_are_released_and_that_one_is_named(course, told):
    from traitlets.config import PyFileConfigLoader

    root = PyFileConfigLoader("nbgrader_config.py", path=str(course.root / "autograder")).load_config().Exchange.root
    released = list((Path(root) / "allranks" / "feedback").glob("*.html"))
    assert len(released) == SIZE - 1, told["release"]
    assert "Not released: secretless: there is no submission_secret.txt" in told["release"]
    assert "1 pages were not released; they are named above" in told["release"]
    assert "Traceback" not in told["release"]


def test_who_is_no_member_is_named_and_not_collected(course, told):
    assert "the gradebook does not know them: stranger." in told["collect"]
    assert not (course.root / "autograder" / "submitted" / "stranger").exists()


def test_a_time_that_was_set_back_does_not_count(course, told):
    rows = {row["student"]: row for row in json.loads(told["grade"])["students"]}
    assert "backdated: the work says that it was handed in at" in told["collect"]
    assert rows["backdated"]["late_penalty"] == 13.0


def test_no_line_of_the_log_is_forged(course, told):
    said = course.nbgrader("autograde", LAB, "--student=escapes", "--force")
    for text in (told["collect"], told["generate"], told["release"], said.stdout):
        lines = [line for line in text.split("\n") if line]
        assert not any(line.startswith(("ada:", "\x1b[2J")) for line in lines)
        assert not any(mark in text for mark in ("\x1b[2J", "\r", "\u202e"))

"""One run of `nbgrader autograde` over a class of honest and clumsy students, and what the gradebook then says.

The dishonest ones are in tests/hostile.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import psutil
import pytest
from grading_course import LAB, NOTEBOOK, Course, cell_of, is_answer, serving
from nbconvert.exporters import HTMLExporter
from nbgrader.api import Gradebook
from waiting import until

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]

MEAN, ARGMAX, RING, WORDS = (
    "distributed_mean-graded",
    "distributed_argmax-graded",
    "ring_all_reduce-graded",
    "when_not_a_ring",
)
MAXIMUM = {MEAN: 3.0, ARGMAX: 4.0, RING: 6.0}

# Right in every other way, but every rank sends before it receives.
SENDS_FIRST = (
    "pair = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, incoming, left)]\n"
    "        for work in dist.batch_isend_irecv(pair):\n            work.wait()",
    "dist.send(outgoing, right)\n        dist.recv(incoming, left)",
)

ENDLESS = """
def ring_all_reduce(tensor):
    while True:
        pass
"""

# What an answer in words may hold that a browser would run.
SCRIPTS = """My answer & its reason: 2 < 3.
<script>alert(2)</script> <img src=x onerror=alert(3)> <svg onload=alert(4)>
[click](javascript:alert(5)) [this](JaVaScript&#58;alert(6)) <a href="javascript:alert(7)">or this</a>
[that](javascript\\:alert(8)) [these](&#106;avascript&colon;alert(9)) [those][1]

[1]: java&#115;cript:alert(10)
"""


class Harmless(HTMLParser):
    """Reads a page as a browser would; `found` are the things in it that would run one of our alerts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text, self.inside = "", ""

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.inside = tag
        for name, value in attrs:
            runs = name.startswith("on") or re.sub(r"\s", "", value or "").lower().startswith("javascript:")
            if runs and "alert" in (value or ""):
                self.found.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.inside == "script" and "alert(" in data and len(data) < 1000:
            self.found.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


def hand_in(course: Course) -> None:
    course.submit("solution", course.answers())
    course.submit("untouched", course.notebook("labs"))
    sends_first = course.answers(lambda _, source: source.replace(*SENDS_FIRST))
    assert sends_first != course.answers()
    course.submit("sends_first", sends_first)
    course.submit("endless", course.answers(lambda g, source: ENDLESS if g == "ring_all_reduce" else source))

    scratch = course.answers()  # scratch cells that don't parse, or raise, belong to a student's notebook
    scratch.cells.insert(4, nbformat.v4.new_code_cell("this is ( no Python"))
    scratch.cells.insert(5, nbformat.v4.new_code_cell("1 / 0\n%timeit x\n!ls"))
    course.submit("scratch", scratch)

    swapped = course.answers(lambda g, source: source if g == "distributed_mean" else "pass")
    cell_of(swapped, RING).metadata.allranks = {"exercise": "distributed_mean"}
    course.submit("swapped", swapped)

    page = course.answers(lambda g, source: "pass" if g != WORDS else SCRIPTS)
    course.submit("scripts", page)


@pytest.fixture(scope="module")
def graded(course) -> subprocess.CompletedProcess:
    hand_in(course)
    return course.nbgrader("autograde", LAB)


@pytest.mark.core
def test_the_solution_gets_full_marks(course, graded):
    assert course.scores("solution") == {**MAXIMUM, WORDS: None}, graded.stdout


@pytest.mark.core
def test_the_untouched_release_gets_nothing(course, graded):
    assert course.scores("untouched") == {MEAN: 0.0, ARGMAX: 0.0, RING: 0.0, WORDS: 0.0}


def test_scratch_cells_do_no_harm(course, graded):
    assert course.scores("scratch") == {**MAXIMUM, WORDS: None}


@pytest.mark.core
def test_a_nearly_right_answer_gets_part_of_the_points(course, graded):
    found = course.scores("sends_first")
    assert found[MEAN] == 3.0
    assert 3.0 < found[RING] < 6.0


@pytest.mark.core
def test_an_endless_loop_is_stopped_and_costs_its_own_cell_only(course, graded):
    assert course.scores("endless") == {MEAN: 3.0, ARGMAX: 4.0, RING: 0.0, WORDS: None}


def test_a_cell_can_not_name_another_exercise(course, graded):
    assert course.scores("swapped") == {MEAN: 3.0, ARGMAX: 0.0, RING: 0.0, WORDS: None}


def test_no_process_is_left(course, graded):
    """Neither the judge (its environment names the course) nor the sandbox (its command line does)."""

    def left() -> list[list[str]]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = [*process.cmdline(), process.environ().get("PYTHONPATH", "")]
                if any(word.startswith(str(course.root)) for word in words):
                    found.append(words)
        return found

    until(lambda: not left(), says=left)


def test_the_points_stand_where_nbgrader_looks_for_them(course, graded):
    outputs = cell_of(course.graded("sends_first"), RING).outputs
    assert [o.output_type for o in outputs] == ["display_data", "execute_result"]
    assert float(outputs[1].data["text/plain"]) == course.scores("sends_first")[RING]
    shown = outputs[0].data["text/plain"]
    assert "ring_all_reduce: not passed" in shown and "wait" in shown


def test_only_graded_cells_have_outputs(course, graded):
    for student in ("solution", "swapped"):
        cells = [c for c in course.graded(student).cells if c.cell_type == "code"]
        with_outputs = {c.metadata.get("nbgrader", {}).get("grade_id") for c in cells if c.outputs}
        assert with_outputs == {MEAN, ARGMAX, RING}


def test_feedback_and_export_work_as_ever(course, graded):
    """nbgrader's own feedback and export, on what the trusted step wrote."""
    said = course.nbgrader("generate_feedback", LAB, "--student=s*")
    assert said.returncode == 0, said.stdout
    page = course.root / "autograder" / "feedback" / "sends_first" / LAB / f"{NOTEBOOK}.html"
    assert "ring_all_reduce: not yet" in page.read_text(encoding="utf-8")
    # what a student wrote is shown, and nothing of it runs
    page = course.root / "autograder" / "feedback" / "scripts" / LAB / f"{NOTEBOOK}.html"
    runs = Harmless()
    runs.feed(page.read_text(encoding="utf-8"))
    assert runs.found == [] and "its reason: 2 < 3." in runs.text
    said = course.nbgrader("export")
    assert said.returncode == 0, said.stdout
    lines = (course.root / "autograder" / "grades.csv").read_text(encoding="utf-8").splitlines()
    column = lines[0].split(",").index("raw_score")
    by_student = {
        line.split(",")[lines[0].split(",").index("student_id")]: line.split(",")[column] for line in lines[1:]
    }
    assert by_student["solution"] == "13.0" and by_student["untouched"] == "0.0"


@pytest.fixture
def formgrader(course, graded, tmp_path) -> Callable[[str], str]:
    """Asks formgrader for a page."""
    with serving(course, tmp_path) as address:

        def page(path: str) -> str:
            with urllib.request.urlopen(f"{address}{path}?token=secret") as answer:
                return answer.read().decode()

        yield page


def test_formgrader_shows_the_points_and_runs_no_script_of_a_student(formgrader):
    found = json.loads(formgrader(f"api/submitted_notebooks/{LAB}/{NOTEBOOK}"))
    by_student = {submission["student"]: submission for submission in found}
    assert by_student["solution"]["code_score"] == 13.0 and by_student["solution"]["needs_manual_grade"]
    assert by_student["untouched"]["code_score"] == 0.0
    html = formgrader(f"submissions/{by_student['scripts']['id']}/")
    runs = Harmless()
    runs.feed(html)
    assert runs.found == [] and "its reason: 2 < 3." in runs.text
    assert "ring_all_reduce: not yet" in html


@pytest.mark.parametrize("place", ["gradebook", "manage_submissions", "manage_students"])
@pytest.mark.parametrize("named", ['";attacks();"', "<script>attacks()<%2Fscript>"])
def test_a_link_into_formgrader_runs_no_script_that_it_names(formgrader, place, named):
    """A student sends the teacher a link to formgrader itself, in which a lab or a student has such a name."""
    html = formgrader(f"{place}/{urllib.parse.quote(named, safe='%')}")
    shown = [line for line in html.splitlines() if "attacks()" in line]
    assert shown and not [line for line in shown if '"";' in line or "<script>" in line]


def test_a_students_name_runs_no_script_in_formgrader(course, formgrader):
    """A platform lets students choose their names, and `allranks course roster` enters them."""
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        book.update_or_create_student(
            "scratch", first_name="<img src=x onerror=alert(11)>", last_name="<script>alert(11)</script>"
        )
    found = json.loads(formgrader(f"api/submitted_notebooks/{LAB}/{NOTEBOOK}"))
    number = next(one["id"] for one in found if one["student"] == "scratch")
    runs = Harmless()
    runs.feed(formgrader(f"submissions/{number}/"))
    assert runs.found == [] and "<script>alert(11)</script>, <img src=x onerror=alert(11)>" in runs.text


def test_regrading_gives_the_same_points(course, graded):
    before = course.scores("sends_first")
    said = course.nbgrader("autograde", LAB, "--student=sends_first", "--force")
    assert said.returncode == 0, said.stdout
    assert course.scores("sends_first") == before


def test_without_a_sandbox_nothing_is_graded(course, graded, tmp_path):
    """Where bubblewrap is missing, autograde says so, and the gradebook stays as it was."""
    for name in ("alembic", "python"):
        (tmp_path / name).symlink_to(Path(sys.executable).parent / name)
    course.submit("unlucky", course.answers())
    said = course.nbgrader("autograde", LAB, "--student=unlucky", path=str(tmp_path))
    assert said.returncode != 0
    assert "bubblewrap is missing" in said.stdout and "Nothing was graded" in said.stdout
    assert not any(course.scores("unlucky").values())


def test_every_answer_cell_is_still_the_students(course, graded):
    sources = {c.metadata.nbgrader.grade_id: c.source for c in course.graded("scratch").cells if is_answer(c)}
    assert sources == {c.metadata.nbgrader.grade_id: c.source for c in course.answers().cells if is_answer(c)}


def test_as_it_comes_nbconvert_would_have_run_those_scripts():
    """So that the two tests above are known to look for something that is there."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(SCRIPTS)])
    runs = Harmless()
    runs.feed(HTMLExporter().from_notebook_node(notebook)[0])
    assert len(runs.found) == 9

"""The whole way of a lab on nbgrader's real exchange: from the instructor's source to the page that the student reads.

Two students and an instructor, each with a folder and a cache of their own, and nothing but nbgrader's commands and
`allranks grade` between them.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from grading_course import LAB, NOTEBOOK, ROOT, Course, is_answer, make_course, serving

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(900)]

LATE = """
c.LateSubmissionPlugin.penalty_method = "zero"
"""
WORDS = "Where the tensor is small, the 2(p-1) latencies of the ring cost more than a tree's 2 lg p."
WRONG_MEAN = ("return total / dist.get_world_size()", "return total")


@dataclass(frozen=True)
class Student:
    """Somebody with a folder and nbgrader."""

    name: str
    home: Path
    exchange: Path

    def nbgrader(self, command: str, *arguments: str) -> str:
        """What `nbgrader COMMAND` said, in their folder."""
        options = [f"--Exchange.root={self.exchange}", f"--Exchange.cache={self.home / '.cache'}", "--course=allranks"]
        whose = [] if command == "validate" else [*options, f"--student={self.name}"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        said = subprocess.run(
            [sys.executable, "-m", "nbgrader", command, *arguments, *whose],
            cwd=self.home,
            env=os.environ | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stdout
        return said.stdout

    @property
    def notebook(self) -> Path:
        return self.home / LAB / f"{NOTEBOOK}.ipynb"

    def answer(self, answers: dict[str, str]) -> None:
        """Writes into the notebook that was fetched."""
        notebook = nbformat.read(self.notebook, as_version=4)
        for cell in filter(is_answer, notebook.cells):
            cell.source = answers.get(cell.metadata.nbgrader.grade_id, cell.source)
        nbformat.write(notebook, self.notebook)


@pytest.fixture(scope="module")
def exchange(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("exchange")
    path.chmod(0o777)
    return path


@pytest.fixture(scope="module")
def course(tmp_path_factory, exchange) -> Course:
    """The instructor's folder; the lab is due long after today, and late work gets nothing."""
    made = make_course(tmp_path_factory.mktemp("course"), record=False)
    with open(made.root / "autograder" / "nbgrader_config.py", "a", encoding="utf-8") as config:
        config.write(f"{LATE}c.Exchange.root = {str(exchange)!r}\n")
    return made


@pytest.fixture(scope="module")
def students(tmp_path_factory, exchange) -> dict[str, Student]:
    return {name: Student(name, tmp_path_factory.mktemp(name), exchange) for name in ("ada", "bob")}


def done(course: Course, *command: str) -> str:
    said = course.nbgrader(*command)
    assert said.returncode == 0, said.stdout
    return said.stdout


@pytest.fixture(scope="module")
def graded(course, students) -> list[dict]:
    """Generate, release, fetch, submit, collect, grade; the rows of the last."""
    from nbgrader.api import Gradebook

    done(course, "generate_assignment", LAB, "--force")
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as gradebook:
        gradebook.update_or_create_assignment(LAB, duedate="2099-12-31 23:59")
    done(course, "release_assignment", LAB)
    right = {c.metadata.nbgrader.grade_id: c.source for c in course.answers().cells if is_answer(c)}
    for student in students.values():
        student.nbgrader("fetch_assignment", LAB)
        assert student.notebook.is_file() and not list(student.home.rglob("*.py"))
    students["ada"].answer({**right, "when_not_a_ring": WORDS})
    students["bob"].answer({**right, "distributed_mean": right["distributed_mean"].replace(*WRONG_MEAN)})
    for student in students.values():
        student.nbgrader("submit", LAB)
    done(course, "collect", LAB)
    program = str(Path(sys.executable).parent / "allranks")
    # for two a second judge takes longer to start than to mark
    command = [program, "grade", LAB, "--course", str(course.root), "--jobs", "1", "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    return json.loads(said.stdout)["students"]


@pytest.fixture(scope="module")
def server(course, graded, tmp_path_factory):
    with serving(course, tmp_path_factory.mktemp("runtime")) as address:
        yield address


def ask(address: str, path: str, data: dict | None = None):
    """formgrader's answer, as its own page asks for it."""
    request = urllib.request.Request(f"{address}{path}", headers={"Authorization": "token secret"})
    if data is not None:
        request.method, request.data = "PUT", json.dumps(data).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


def test_what_the_machine_gives(graded):
    assert [(row["student"], row["score"], row["max_score"]) for row in graded] == [
        ("ada", 13.0, 15.0),
        ("bob", graded[1]["score"], 15.0),
    ]
    assert 10.0 <= graded[1]["score"] < 13.0
    assert all(row["incidents"] == [] and row["late_penalty"] == 0.0 for row in graded)


def test_a_person_adds_points_in_formgrader_and_all_is_given_back(course, students, server):
    """formgrade, feedback, release_feedback, fetch_feedback, export: one after the other, as in a term."""
    found = json.loads(ask(server, f"api/submitted_notebooks/{LAB}/{NOTEBOOK}"))
    ada = next(notebook for notebook in found if notebook["student"] == "ada")
    assert ada["code_score"] == 13.0 and ada["max_score"] == 15.0 and ada["needs_manual_grade"]
    page = ask(server, f"submissions/{ada['id']}/")
    assert "distributed_mean: passed" in page and "latencies of the ring" in page
    grades = json.loads(ask(server, f"api/grades?submission_id={ada['id']}"))
    (words,) = [grade for grade in grades if grade["name"] == "when_not_a_ring"]
    ask(server, f"api/grade/{words['id']}", {"manual_score": 1.5, "extra_credit": None})

    done(course, "generate_feedback", LAB)
    done(course, "release_feedback", LAB)
    for student in students.values():
        student.nbgrader("fetch_feedback", LAB)
    pages = {
        name: next((student.home / LAB / "feedback").rglob("*.html")).read_text(encoding="utf-8")
        for name, student in students.items()
    }
    for page in pages.values():  # the parts in their order, before the notebook
        places = [page.find(words) for words in ('class="bars"', "The one thing to look at", "Exercise by exercise")]
        assert places[0] > 0 and places[2] > max(places[:2])
    assert "<strong>14.5</strong> of 15 points" in pages["ada"]
    assert "distributed_mean: not yet" in pages["bob"] and "sum instead of the mean" in pages["bob"]
    assert 'alt="what the ranks did" src="data:image/svg+xml' in pages["bob"]  # a picture of his own messages

    done(course, "export")
    with open(course.root / "autograder" / "grades.csv", encoding="utf-8") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert rows["ada"]["score"] == "14.5" and rows["ada"]["late_submission_penalty"] in ("", "0", "0.0")


def test_grading_again_keeps_what_a_person_gave(course, server):
    program = str(Path(sys.executable).parent / "allranks")
    command = [program, "grade", LAB, "--course", str(course.root), "--student", "ada", "--force", "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(said.stdout)["students"][0]["score"] == 14.5, said.stdout


def test_late_work_loses_its_points_by_nbgraders_own_plugin(course, graded, students):
    """The due date was yesterday after all: graded again, nothing is left; the machine's own points stay on record."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as gradebook:
        gradebook.update_or_create_assignment(LAB, duedate="2020-01-01 00:00")
    program = str(Path(sys.executable).parent / "allranks")
    command = [program, "grade", LAB, "--course", str(course.root), "--student", "bob", "--force"]
    said = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    (row,) = json.loads(said.stdout)["students"]
    assert row["late_penalty"] == row["score"] == graded[1]["score"]
    said = subprocess.run(command[:-1], capture_output=True, text=True, check=False)
    assert f"bob: {row['score']:g} of 15, less {row['score']:g} for being late" in said.stdout
    done(course, "export")
    with open(course.root / "autograder" / "grades.csv", encoding="utf-8") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert float(rows["bob"]["score"]) == 0.0


def test_the_policy_in_the_instructors_page_is_one():
    """Its plugin, as printed there: ten per cent for each day begun, and no more than there is."""
    from nbgrader.plugins import BasePlugin

    page = (ROOT / "docs" / "instructor.md").read_text(encoding="utf-8")
    (code,) = (block.split("```")[0] for block in page.split("```python\n") if "class TenPercentADay" in block)
    scope: dict = {}
    exec(code, scope)
    plugin = scope["TenPercentADay"]()
    assert isinstance(plugin, BasePlugin)
    late = {hours: plugin.late_submission_penalty("ada", 13.0, 3600 * hours) for hours in (1, 25, 24 * 30)}
    assert late == {1: pytest.approx(1.3), 25: pytest.approx(2.6), 24 * 30: 13.0}


def test_validate_tells_a_student_the_truth(students, graded):
    """Right: success. Wrong: the cell is named. Not begun: every graded cell is."""
    ada, bob = students["ada"], students["bob"]
    assert "Success! Your notebook passes all the tests." in ada.nbgrader("validate", str(ada.notebook))
    said = bob.nbgrader("validate", str(bob.notebook))
    assert "VALIDATION FAILED" in said and "check(distributed_mean)" in said
    assert "check(ring_all_reduce)" not in said

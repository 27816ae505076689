"""The corpus on the real route: handed in among honest work, graded by `allranks grade`, and by nbgrader's own command.

Nothing gains a point, nobody else's grade changes, and each is named in the report. Who reaches for a module does the same with
each of many: a run of everything takes every third module, and all when this file or its folder is named, and nightly.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from corpus import ANSWERS, MODULES, NOTEBOOKS, TAMPER, answered
from grading_course import LAB, NOTEBOOK, Course, make_course
from waiting import until

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(900)]

HONEST = {"ada": 13.0, "Zoë Ünal-Ødegård": 13.0, "学生 一": 0.0, "zz last": 13.0}
FILES = (
    "junk",
    "linked",
    "linked_folder",
    "linked_beside",
    "pipe",
    "pipe_beside",
    "huge",
    "empty",
    "nothing",
    "deep",
    "a*",
    "no_time",
    "tags",
)
# honest work in files that editors and students make: by what is odd in their cells
ODD = {
    "many outputs": lambda cell: cell.update(outputs=[{}] * 6000),
    "large outputs": lambda cell: cell.update(
        outputs=[{"output_type": "stream", "name": "stdout", "text": "x" * (20 << 20)}]
    ),
    "no outputs": lambda cell: cell.pop("outputs"),
    "odd ids": lambda cell: cell.update(id="an id! " * 20),
}
HONEST |= dict.fromkeys(ODD, 13.0)


def tampers(module: str) -> str:
    return f"tampers_{module.replace('.', '_')}"


REACHING = [
    pytest.param(tampers(module), marks=pytest.mark.nightly if turn % 3 else ()) for turn, module in enumerate(MODULES)
]


def hand_in(course: Course, modules: list[str]) -> None:
    for student, points in HONEST.items():
        course.submit(student, course.answers() if points else course.notebook("labs"))
    for name, (code, _) in ANSWERS.items():
        course.submit(name, answered(course, code))
    for module in modules:
        course.submit(tampers(module), answered(course, TAMPER.replace("{module!r}", repr(module))))
    for name, make in NOTEBOOKS.items():
        course.submit(name, make(course))
    hand_in_files(course)


def hand_in_files(course: Course) -> None:
    """What is no notebook, or not only one."""
    solution = course.root / "solutions" / LAB / f"{NOTEBOOK}.ipynb"
    course.submission("junk").write_bytes(random.Random(7).randbytes(100_000))
    course.submission("linked").symlink_to(solution)
    folder = course.submission("linked_folder").parent
    folder.rmdir()
    folder.symlink_to(course.root / "solutions" / LAB)
    for student in (
        "linked_beside",
        "pipe_beside",
    ):  # a right notebook, and beside it what nbgrader would copy or wait for
        course.submit(student, course.answers())
    (course.submission("linked_beside").parent / "notes.txt").symlink_to(course.root / "autograder" / "gradebook.db")
    os.mkfifo(course.submission("pipe"))
    os.mkfifo(course.submission("pipe_beside").parent / "timestamp.txt")
    with open(course.submission("huge"), "wb") as file:
        file.truncate(1 << 30)
    course.submission("empty").touch()
    course.submission("nothing")
    course.submission("deep").write_text("[" * 100_000, encoding="utf-8")
    for student in ("a*", "no_time"):
        course.submit(student, course.answers())
    (course.submission("no_time").parent / "timestamp.txt").write_text("the day before", encoding="ascii")
    # nbformat compares each tag with each
    for student, change in {
        **ODD,
        "tags": lambda cell: cell["metadata"].update(tags=[{"a": i} for i in range(800)]),
    }.items():
        notebook = json.loads(nbformat.writes(course.answers()))
        change(next(cell for cell in notebook["cells"] if cell["cell_type"] == "code"))
        course.submission(student).write_text(json.dumps(notebook), encoding="utf-8")


@pytest.fixture(scope="module")
def modules(request) -> list[str]:
    """The modules whose tests are in this run."""
    tested = {item.callspec.params.get("student") for item in request.session.items if hasattr(item, "callspec")}
    return [module for module in MODULES if tampers(module) in tested]


@pytest.fixture(scope="module")
def course(tmp_path_factory, modules) -> Course:
    made = make_course(tmp_path_factory.mktemp("hostile"))
    hand_in(made, modules)
    return made


@pytest.fixture(scope="module")
def told(course) -> dict[str, dict]:
    """Each student's row of the report."""
    command = [str(Path(sys.executable).parent / "allranks"), "grade", LAB, "--course", str(course.root), "--json"]
    said = subprocess.run([*command, "--jobs", "2"], capture_output=True, text=True, check=False)
    assert said.returncode == 1, said.stdout + said.stderr  # some could not be graded
    return {row["student"]: row for row in json.loads(said.stdout)["students"]}


def test_everybody_is_named_once(told, modules):
    everybody = {*HONEST, *ANSWERS, *map(tampers, modules), *NOTEBOOKS, *FILES}
    assert set(told) == everybody


@pytest.mark.parametrize("student", HONEST)
def test_honest_work_among_them_is_worth_what_it_was(course, told, student):
    assert told[student]["score"] == HONEST[student], told[student]
    assert told[student]["incidents"] == []


@pytest.mark.parametrize("student", [*ANSWERS, *REACHING, *NOTEBOOKS])
def test_nothing_is_gained(course, told, student):
    assert told[student]["score"] == 0.0, told[student]
    machine = {name: score for name, score in course.scores(student).items() if name.endswith("-graded")}
    assert machine and set(machine.values()) == {0.0}


@pytest.mark.parametrize("student", [name for name, (_, kind) in ANSWERS.items() if kind is not None])
def test_what_it_did_is_in_the_report(told, student):
    found = told[student]["incidents"]
    assert {incident["kind"] for incident in found} & set(ANSWERS[student][1].split("|")), told[student]
    assert all(incident["where"] == "distributed_mean-graded" for incident in found)


@pytest.mark.parametrize("student", REACHING)
def test_who_reaches_for_a_module_is_named(told, student):
    assert any("importlib" in incident["what"] for incident in told[student]["incidents"])


@pytest.mark.parametrize("student", NOTEBOOKS)
def test_who_changed_the_notebook_is_named(told, student):
    found = told[student]["incidents"]
    if student != "other_exercise":
        assert any(i["kind"] == "changed" and i["where"].endswith("-graded") for i in found), found
    assert found


@pytest.mark.parametrize(
    ("student", "said"),
    {
        "junk": "is not a notebook",
        "linked": "is a symbolic link",
        "linked_folder": "is a symbolic link",
        "linked_beside": "notes.txt is a symbolic link",
        "pipe": "is a pipe",
        "pipe_beside": "timestamp.txt is a pipe",
        "huge": "more than 200 files or 64 MiB",
        "empty": "is not a notebook",
        "nothing": f"There is no {NOTEBOOK}.ipynb",
        "deep": "is not a notebook",
        "no_time": "timestamp.txt holds no time",
        "a*": "its folder's name holds one of * ?",
        "tags": "has 800 tags at cell 3; the limit is 50",
    }.items(),
)
def test_what_is_no_submission_is_not_graded_and_named(course, told, student, said):
    assert told[student]["score"] is None and said in told[student]["reason"]
    assert [incident["kind"] for incident in told[student]["incidents"]] == ["unreadable"]
    assert course.scores(student) == {}


def test_nothing_ran_here(told):
    assert not Path("/tmp/allranks-was-here").exists()


def test_no_process_is_left(course, told):
    """Neither a judge, nor the writer, nor a sandbox, nor what a submission started."""

    def left() -> list[list[str]]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = [*process.cmdline(), process.environ().get("PYTHONPATH", ""), process.cwd()]
                if any(str(course.root) in word for word in words):
                    found.append(words)
        return found

    until(lambda: not left(), says=left)


@pytest.mark.nightly
def test_by_nbgraders_own_command_it_is_the_same(course, told):
    """The route of formgrader's buttons: the same refusals, and no link is followed on the way."""
    said = course.nbgrader("autograde", LAB, "--student=linked_beside")
    assert said.returncode != 0 and "notes.txt is a symbolic link" in said.stdout
    assert not list((course.root / "autograder" / "autograded").glob("linked*/**/*.txt"))
    for student in ("pipe_beside", "huge", "junk"):
        assert course.nbgrader("autograde", LAB, f"--student={student}").returncode != 0
    said = course.nbgrader("autograde", LAB, "--student=tags")
    assert said.returncode != 0 and "800 tags at cell 3; the limit is" in said.stdout
    for student in ODD:
        said = course.nbgrader("autograde", LAB, f"--student={student}", "--force")
        assert said.returncode == 0, said.stdout
    said = course.nbgrader("autograde", LAB, "--student=forged_points", "--force")
    assert said.returncode == 0, said.stdout
    assert set(course.scores("forged_points").values()) == {0.0}
    assert "forged_points: the locked cell distributed_mean-graded is not as released" in said.stdout


def test_what_lies_beside_a_notebook_is_not_served_to_the_instructor(course, told):
    course.submit("page", course.answers())
    (course.submission("page").parent / "page.html").write_text("<script>alert(1)</script>", encoding="utf-8")
    (course.submission("page").parent / "plot.png").write_bytes(b"\x89PNG")
    assert course.nbgrader("autograde", LAB, "--student=page").returncode == 0
    graded = course.root / "autograder" / "autograded" / "page" / LAB
    assert sorted(path.name for path in graded.iterdir()) == [f"{NOTEBOOK}.ipynb", "plot.png"]

"""`allranks grade`: one command from a folder of submissions to points, and again after it was killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from click.testing import CliRunner
from grading_course import LAB, NOTEBOOK, Course, cell_of, make_course

from autograder.commands._course import GradeError
from autograder.commands.grade import _Writer, command, default_jobs
from autograder.rows import in_words, report

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(600)]

GRADED = "distributed_mean-graded"
ENDLESS = "def distributed_mean(tensor):\n    while True:\n        pass"
MEAN_ONLY = {"distributed_argmax": "pass", "ring_all_reduce": "pass"}  # the quickest to mark


def allranks(course: Course, *arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "allranks"), "grade", LAB, "--course", str(course.root), *arguments]


def graded(course: Course, *arguments: str) -> list[dict]:
    """The rows of a run to its end."""
    said = subprocess.run(allranks(course, *arguments, "--json"), capture_output=True, text=True, check=False)
    assert said.returncode in (0, 1), said.stdout + said.stderr
    return json.loads(said.stdout)["students"]


def mean_only(course: Course, mean: str | None = None) -> nbformat.NotebookNode:
    """An answer to the first exercise alone; the right one by default."""
    answers = MEAN_ONLY if mean is None else {**MEAN_ONLY, "distributed_mean": mean}
    return course.answers(lambda grade_id, right: answers.get(grade_id, right))


def hand_in(course: Course) -> None:
    """Five students, of whom one can't be graded."""
    course.submit("ada", mean_only(course))
    course.submit("bob", course.notebook("labs"))
    course.submit("cy", mean_only(course, ENDLESS))
    course.submission("eve").write_bytes(b"\x80 no notebook")
    course.submit("fay", mean_only(course))


def points(course: Course) -> list[tuple]:
    """Every grade that the gradebook holds, one row a cell of a student."""
    with contextlib.closing(sqlite3.connect(course.root / "autograder" / "gradebook.db")) as database:
        return sorted(
            database.execute(
                "select student.id, base_cell.name, grade.auto_score, grade.manual_score, grade.needs_manual_grade,"
                " submitted_notebook.late_submission_penalty from grade"
                " join base_cell on grade.cell_id = base_cell.id"
                " join submitted_notebook on grade.notebook_id = submitted_notebook.id"
                " join submitted_assignment on submitted_notebook.assignment_id = submitted_assignment.id"
                " join student on submitted_assignment.student_id = student.id"
            )
        )


def written(course: Course) -> dict[str, float]:
    """When each student's graded notebook was written."""
    found = (course.root / "autograder" / "autograded").glob("*/*/*.ipynb")
    return {path.parts[-3]: path.stat().st_mtime for path in found}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Course, list[dict]]:
    """A course graded in one go, and what was told of it."""
    course = make_course(tmp_path_factory.mktemp("undisturbed"))
    hand_in(course)
    return course, graded(course, "--jobs", "2")


def twin(course: Course, root: Path) -> Course:
    """The same course with the same secret, in which nothing is graded."""
    made = make_course(root)
    shutil.copy(course.root / "autograder" / "secret.txt", root / "autograder" / "secret.txt")
    hand_in(made)
    return made


def test_one_command_marks_them_all_and_says_who_did_what(undisturbed):
    course, rows = undisturbed
    assert [(row["student"], row["score"], row["max_score"]) for row in rows] == [
        ("ada", 3.0, 15.0),
        ("bob", 0.0, 15.0),
        ("cy", 0.0, 15.0),
        ("eve", None, None),
        ("fay", 3.0, 15.0),
    ]
    by_student = {row["student"]: row for row in rows}
    assert by_student["cy"]["incidents"] == [
        {"kind": "timed out", "where": GRADED, "what": "used up its processor time"}
    ]
    assert (
        by_student["eve"]["reason"]
        == "all_reduce.ipynb is not a notebook: it holds no JSON in UTF-8. It was not graded."
    )
    assert report(rows).splitlines() == [
        "1 ran out of time:",
        f"  cy: {GRADED}: used up its processor time",
        "",
        "1 could not be graded:",
        f"  eve: {by_student['eve']['reason']}",
    ]
    assert len(points(course)) == 4 * 4


@pytest.mark.nightly
def test_a_run_that_is_killed_again_and_again_ends_in_the_same_gradebook(undisturbed, tmp_path):
    whole, rows = undisturbed
    course = twin(whole, tmp_path)
    first: dict[str, float] = {}
    for wait_s in (0.0, 0.15, 0.6):  # after a line is printed, the next submission is at another stage each time
        with subprocess.Popen(allranks(course, "--jobs", "2"), stdout=subprocess.PIPE, text=True) as run:
            for _ in range(len(first) + 2):
                run.stdout.readline()
            time.sleep(wait_s)
            run.send_signal(signal.SIGKILL)
        first = written(course)
    again = graded(course, "--jobs", "1")
    assert points(course) == points(whole)
    tell = ("student", "score", "max_score", "reason")
    assert [{k: row[k] for k in tell} for row in again] == [{k: row[k] for k in tell} for row in rows]
    # on a busy machine an endless loop may meet the limit of wall time before that of processor time
    assert [[i["kind"] for i in row["incidents"]] for row in again] == [
        [i["kind"] for i in row["incidents"]] for row in rows
    ]
    assert [
        s for s in ("ada", "bob") if first.get(s) not in (None, written(course)[s])
    ] == []  # nobody was graded twice


@pytest.mark.nightly
def test_a_grade_that_was_written_in_half_is_written_again(undisturbed, tmp_path):
    """Killed while a newer submission is graded: the gradebook still has the old points, and the notebook is there."""
    whole, _ = undisturbed
    course = twin(whole, tmp_path)
    graded(course, "--student", "fay")
    path = course.root / "autograder" / "autograded" / "fay" / LAB / f"{NOTEBOOK}.ipynb"
    for spoil in ("outputs", "torn"):
        path.chmod(0o644)
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = []  # as nbgrader leaves it before the marks
        path.write_text(nbformat.writes(notebook)[: None if spoil == "outputs" else 1000], encoding="utf-8")
        (row,) = graded(course, "--student", "fay")
        assert row["score"] == 3.0 and nbformat.read(path, as_version=4) != notebook
    before = written(course)["fay"]
    graded(course, "--student", "fay")
    assert written(course)["fay"] == before
    course.submit("fay", mean_only(course, ENDLESS))  # handed in again, by hand: newer than what was graded
    (row,) = graded(course, "--student", "fay")
    assert row["score"] == 0.0
    course.submit("gus", mean_only(course))  # a file that was written long ago, and put there now
    os.utime(course.submission("gus"), (0, 0))
    course.submission("gus").replace(course.submission("fay"))
    (row,) = graded(course, "--student", "fay")
    assert row["score"] == 3.0
    before = written(course)["fay"]
    graded(course, "--student", "fay")
    assert written(course)["fay"] == before


def test_the_writer_may_die_and_nobody_else_pays_for_it(undisturbed, tmp_path):
    whole, _ = undisturbed
    course = twin(whole, tmp_path)
    with subprocess.Popen(allranks(course, "--jobs", "1"), stdout=subprocess.PIPE, text=True) as run:
        lines = [run.stdout.readline()]
        (writer,) = (p for p in psutil.Process(run.pid).children() if "autograder.grading" in p.cmdline())
        writer.kill()
        lines += run.stdout.read().splitlines()
    assert any("the grader ended with code -9" in line for line in lines)
    assert sum("the grader ended" in line for line in lines if ": not graded" in line) == 1
    graded(course, "--jobs", "1")
    assert points(course) == points(whole)


def test_a_writer_that_ended_before_it_was_asked_is_one_sentence(tmp_path):
    with _Writer(tmp_path, LAB, force=False) as writer:
        writer.process = subprocess.Popen(
            [sys.executable, "-c", "raise SystemExit(3)"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        writer.process.wait(30)
        assert writer.ask({"read": "ada"}) == {"ended": "the grader ended with code 3."}


def test_a_notebook_that_the_writer_can_not_finish_is_one_row(tmp_path, monkeypatch):
    (tmp_path / "autograder").mkdir()
    with _Writer(tmp_path, LAB, force=False) as writer:
        says = "print('{\"sandbox\": 1}', flush=True); import time; time.sleep(600)"
        writer.command = [sys.executable, "-c", says]
        writer.prepare()
        monkeypatch.setattr("autograder.commands.grade.ASK_S", 1)
        assert writer.ask({"read": "eve"}) == {"ended": "reading or recording it took longer than 1 s."}
        writer.prepare()  # the next one has a writer again


def test_stopped_from_the_keyboard_it_leaves_nothing_running(undisturbed, tmp_path):
    whole, _ = undisturbed
    course = twin(whole, tmp_path)
    with subprocess.Popen(allranks(course, "--jobs", "2"), stdout=subprocess.PIPE, text=True) as run:
        run.stdout.readline()
        family = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGINT)
        run.stdout.read()
    assert run.returncode == 1
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []


def test_only_one_writes(undisturbed):
    course, _ = undisturbed
    import fcntl

    with open(course.root / "autograder" / "gradebook.db.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = subprocess.run(allranks(course, "--json"), capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "another `allranks grade` is running in this course" in json.loads(said.stdout)["reason"]


@pytest.mark.nightly
def test_the_engines_of_a_cluster_mark_the_same(undisturbed, tmp_path):
    """Two engines, each of which is seen to have a judge of its own; they stay, and their judges go."""
    import ipyparallel as ipp

    whole, rows = undisturbed
    course = twin(whole, tmp_path / "course")
    cluster = ipp.Cluster(n=2, profile_dir=str(tmp_path / "profile"), engines="local", log_level=40)
    cluster.start_cluster_sync()
    judges: set[int] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            for engine in engines:
                with contextlib.suppress(psutil.Error):
                    if any("autograder.judge" in child.cmdline() for child in engine.children()):
                        judges.add(engine.pid)

    try:
        with cluster.connect_client_sync() as client:
            client.wait_for_engines(2, timeout=60)
            engines = [psutil.Process(pid) for pid in client[:].apply_sync(os.getpid)]
        watcher = threading.Thread(target=watch)
        watcher.start()
        found = graded(course, "--cluster", cluster.cluster_file)
        over.set()
        watcher.join()
        assert judges == {engine.pid for engine in engines}
        assert all(engine.is_running() and not judge_of(engine) for engine in engines)
    finally:
        over.set()
        cluster.stop_cluster_sync()
    assert [(row["student"], row["score"]) for row in found] == [(row["student"], row["score"]) for row in rows]
    assert points(course) == points(whole)


def judge_of(engine: psutil.Process) -> list[psutil.Process]:
    return [child for child in engine.children() if "autograder.judge" in child.cmdline()]


def test_a_cluster_that_is_not_there_is_one_sentence(undisturbed, tmp_path):
    course, _ = undisturbed
    result = CliRunner().invoke(command, [LAB, "--course", str(course.root), "--cluster", str(tmp_path / "none.json")])
    assert result.exit_code == 2 and "There is no cluster file" in result.output


def test_a_cell_has_its_own_time_limit(tmp_path):
    course = make_course(tmp_path, record=False)
    path = course.root / "solutions" / LAB / f"{NOTEBOOK}.ipynb"
    source = nbformat.read(path, as_version=4)
    for cell in source.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == GRADED:
            cell.metadata.allranks["seconds"] = 1
    nbformat.write(source, path)
    sleeps = "import time\ndef distributed_mean(tensor):\n    time.sleep(0.4)\n    return tensor"
    course.submit("dan", mean_only(course, sleeps))
    (row,) = graded(course)
    assert row["score"] == 0.0
    said = (course.root / "autograder" / "autograded" / "dan" / LAB / f"{NOTEBOOK}.ipynb").read_text(encoding="utf-8")
    assert "the time for this check is used up" in said


def test_a_lab_that_is_changed_after_it_went_out(tmp_path):
    """As docs/instructor.md says: all are marked by the new version, and who has the old one did nothing."""
    course = make_course(tmp_path)
    course.submit("ada", mean_only(course))
    (row,) = graded(course)
    assert (row["score"], row["max_score"], row["incidents"]) == (3.0, 15.0, [])
    path = course.root / "solutions" / LAB / f"{NOTEBOOK}.ipynb"
    source = nbformat.read(path, as_version=4)
    cell = cell_of(source, GRADED)
    cell.metadata.nbgrader["points"] = 4
    cell.source = cell.source.replace("3", "4")
    nbformat.write(source, path)
    said = course.nbgrader("generate_assignment", LAB, "--force")
    assert said.returncode == 0, said.stdout
    (row,) = graded(course, "--force")
    assert (row["score"], row["max_score"]) == (4.0, 16.0)
    words = "is not as released"
    assert report([row]).splitlines() == [
        "1 handed in cells that are not as released:",
        f"  ada: {GRADED}: the locked cell {GRADED} {words}; it is put back",
        f"  ada: {GRADED}: the metadata of the cell {GRADED} {words} (checksum, points); it is put back",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lab99"], "There is no lab 'lab99'. There are: lab03_all_reduce."),
        ([""], "There is no lab ''. There are: lab03_all_reduce."),
        (["."], "There is no lab '.'. There are: lab03_all_reduce."),
        (["/"], "There is no lab ''. There are: lab03_all_reduce."),
        ([f"solutions/{LAB}/"], f"There is no lab 'solutions/{LAB}'. There are: {LAB}."),
        ([LAB], f"Nobody has handed in {LAB}: put notebooks into autograder/submitted/STUDENT/{LAB}/."),
        ([f"{LAB}/"], f"Nobody has handed in {LAB}: put notebooks into autograder/submitted/STUDENT/{LAB}/."),
        ([LAB, "--student", "zoe"], f"zoe has not handed in {LAB}: there is no autograder/submitted/zoe/{LAB}."),
    ],
)
def test_what_it_can_not_do_is_one_sentence(tmp_path, arguments, said):
    course = make_course(tmp_path, record=False)
    result = CliRunner().invoke(command, [*arguments, "--course", str(course.root)])
    assert (result.exit_code, result.output.strip()) == (2, said)
    result = CliRunner().invoke(command, [*arguments, "--course", str(course.root), "--json"])
    assert result.exit_code == 2 and json.loads(result.stdout)["reason"] == said


@pytest.mark.parametrize("path", ["", ".", f"{LAB}/", f"./{LAB}"])
def test_the_writer_takes_a_lab_by_its_name_only(tmp_path, path):
    """nbgrader takes such a path for a lab without a name: it would remove the students' version, and not make it again."""
    course = make_course(tmp_path, record=False)
    with _Writer(course.root, path, force=False) as writer, pytest.raises(GradeError, match="there is no lab"):
        writer.prepare()
    assert (course.root / "labs" / LAB / f"{NOTEBOOK}.ipynb").is_file()
    assert not (course.root / "autograder" / "gradebook.db").exists()


def test_by_default_there_is_a_judge_for_each_core_that_may_be_used(monkeypatch):
    for cores, jobs in ((1, 1), (2, 2), (9, 9), (256, 64)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        assert default_jobs() == jobs


def test_without_a_sandbox_it_stops_at_once(tmp_path):
    course = make_course(tmp_path)
    course.submit("ada", course.answers())
    for name in ("alembic", "python"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to(Path(sys.executable).parent / name)
    environment = os.environ | {"PATH": str(tmp_path / "bin")}
    said = subprocess.run(allranks(course, "--json"), env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 2, said.stdout + said.stderr
    assert "bubblewrap is missing" in json.loads(said.stdout)["reason"]


def test_outside_of_a_course_it_says_where_to_go(tmp_path):
    result = CliRunner().invoke(command, [LAB, "--course", str(tmp_path)])
    assert result.exit_code == 2 and "is in no course: go to the folder that holds autograder/" in result.output


def test_a_name_can_not_draw_on_the_terminal():
    row = {"student": "x\x1b[2J\nada", "score": 0.0, "max_score": 15.0, "seconds": 1.0, "late_penalty": 0.0}
    assert in_words(row) == "x\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}ada: 0 of 15, 1.0 s"


def test_the_process_that_writes_the_gradebook_does_without_torch():
    """To import it took most of its start."""
    code = "import sys, autograder.grading; print('torch' in sys.modules)"
    course = Path(__file__).resolve().parents[2]
    said = subprocess.run([sys.executable, "-c", code], cwd=course, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False"]


def test_the_gradebooks_of_one_course_share_an_engine(tmp_path, monkeypatch):
    """Each engine would compile every statement for itself. One that is closed leaves the other at work."""
    import nbgrader.api

    from autograder.grading import keep_engine

    monkeypatch.setenv(
        "PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )  # nbgrader calls alembic
    monkeypatch.setattr(nbgrader.api, "create_engine", nbgrader.api.create_engine)
    keep_engine()
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "one", "other")]
    with nbgrader.api.Gradebook(urls[0], "demo") as first, nbgrader.api.Gradebook(urls[2], "demo") as other:
        with nbgrader.api.Gradebook(urls[1], "demo") as second:
            second.add_student("ada")
            assert second.engine is first.engine is not other.engine
        assert [student.id for student in first.students] == ["ada"]
        assert other.students == []


def test_nbgrader_checks_its_schema_once_and_each_cell_as_before(monkeypatch):
    import jsonschema
    import nbformat
    from nbgrader.nbgraderformat import common
    from nbgrader.nbgraderformat.v3 import MetadataValidatorV3

    from autograder.grading import keep_validators

    checked = []
    of_draft = jsonschema.Draft4Validator
    monkeypatch.setattr(of_draft, "check_schema", lambda schema, *_: checked.append(schema))
    monkeypatch.setattr(common, "jsonschema", jsonschema)
    keep_validators()
    about = {
        "schema_version": 3,
        "grade_id": "one",
        "grade": True,
        "solution": False,
        "locked": True,
        "task": False,
        "points": 1,
        "cell_type": "code",
    }
    validator = MetadataValidatorV3()
    assert jsonschema.validators.validator_for(validator.schema) is of_draft
    for name in ("one", "two"):
        validator.validate_cell(nbformat.v4.new_code_cell(metadata={"nbgrader": about | {"grade_id": name}}))
    assert len(checked) == 1
    with pytest.raises(jsonschema.ValidationError):
        validator.validate_cell(nbformat.v4.new_code_cell(metadata={"nbgrader": about | {"points": "all"}}))

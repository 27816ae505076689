"""Gradescope and GitHub Classroom: the layouts that they document, their scripts really run, and the points of `allranks grade`."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
import yaml
from allranks.course import teaching
from classes import allranks, wrong
from grading_course import LAB, NOTEBOOK, ROOT

from autograder.github import write
from autograder.gradescope import pack

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(400)]
EXERCISES = ["distributed_mean", "distributed_argmax", "ring_all_reduce"]
STATUSES = {"passed", "failed"}
VISIBILITIES = {"visible", "after_due_date", "after_published", "hidden"}


class Container:
    """The folder /autograder of Gradescope's image, as its specification describes it."""

    def __init__(self, root: Path, packed: Path) -> None:
        self.root = root
        for name in ("source", "results", "submission"):
            (root / name).mkdir(parents=True)
        with zipfile.ZipFile(packed) as archive:
            self.modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
            archive.extractall(root / "source")
        shutil.copy(root / "source" / "run_autograder", root)
        (root / "run_autograder").chmod(0o755)

    def mark(
        self, notebook: Path | None, name: str = f"{NOTEBOOK}.ipynb", path: str | None = None
    ) -> tuple[int, str, dict]:
        """Exit status, standard output and results.json of a submission."""
        for old in (*self.root.glob("submission/*"), *self.root.glob("results/*")):
            old.unlink()
        if notebook is not None:
            shutil.copy(notebook, self.root / "submission" / name)
        environment = os.environ | {"AUTOGRADER": str(self.root), "AUTOGRADER_PYTHON": sys.executable}
        done = subprocess.run(
            [self.root / "run_autograder"],
            cwd=self.root,
            env=environment | ({"PATH": path} if path else {}),
            capture_output=True,
            text=True,
            check=False,
        )
        results = self.root / "results" / "results.json"
        return done.returncode, done.stdout + done.stderr, json.loads(results.read_text()) if results.exists() else {}


@pytest.fixture(scope="module")
def container(small_class, tmp_path_factory) -> Container:
    packed = tmp_path_factory.mktemp("packed") / "autograder.zip"
    pack(ROOT, LAB, packed)
    return Container(tmp_path_factory.mktemp("container"), packed)


@pytest.fixture(scope="module")
def of(small_class):
    """Where a student's notebook lies."""
    return lambda student: small_class.course.root / "autograder" / "submitted" / student / LAB / f"{NOTEBOOK}.ipynb"


@pytest.mark.parametrize("student", ["ada", "di", "flo"])
def test_gradescope_gives_the_points_of_the_gradebook(small_class, container, of, student):
    code, said, results = container.mark(of(student))
    assert code == 0, said
    told = {test["name"]: test["score"] for test in results["tests"]}
    scores = small_class.course.scores(student)
    assert told == {name: scores[f"{name}-graded"] for name in EXERCISES}
    assert [test["max_score"] for test in results["tests"]] == [3, 4, 6]
    assert {test["status"] for test in results["tests"]} <= STATUSES
    assert results["visibility"] in VISIBILITIES and results["stdout_visibility"] == "hidden"
    assert "when not a ring: 2 more points, which a person gives" in results["output"]


def test_a_test_of_gradescope_says_why(container, of):
    _, _, results = container.mark(of("di"))
    mean = results["tests"][0]
    assert "the sum instead of the mean" in mean["output"].lower() and mean["output_format"] == "text"
    assert mean["extra_data"]["mistake"] == "the sum instead of the mean"


def test_the_zip_is_what_gradescope_asks_for(container):
    assert container.modes["setup.sh"] & 0o111 and container.modes["run_autograder"] & 0o111
    assert not any("solutions" in name or "secret" in name or name.endswith(".db") for name in container.modes)
    notebook = (container.root / "source" / "course" / "labs" / LAB / f"{NOTEBOOK}.ipynb").read_text(encoding="utf-8")
    assert "BEGIN SOLUTION" not in notebook
    assert subprocess.run(["bash", "-n", container.root / "source" / "setup.sh"], check=False).returncode == 0


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (None, "", "Hand in the notebook all_reduce.ipynb: there are 0"),
        (b"\x00junk", f"{NOTEBOOK}.ipynb", "is not a notebook"),
        (b"{}", "notes.txt", "Hand in the notebook all_reduce.ipynb: there are 0"),
    ],
)
def test_what_can_not_be_marked_is_told_to_the_student(container, tmp_path, content, name, said):
    path = tmp_path / "handed_in"
    if content is not None:
        path.write_bytes(content)
    code, _, results = container.mark(path if content is not None else None, name)
    assert code == 0 and said in results["output"] and results["score"] == 0.0


@pytest.mark.nightly
def test_another_name_of_the_only_notebook_will_do(container, of):
    _, _, results = container.mark(of("ada"), name="all_reduce (1).ipynb")
    assert sum(test["score"] for test in results["tests"]) == 13.0


def test_without_a_sandbox_nothing_is_marked(container, of, tmp_path):
    for program in ("bash", "env"):
        (tmp_path / program).symlink_to(shutil.which(program))
    code, said, results = container.mark(of("ada"), path=str(tmp_path))
    assert code == 1 and results == {} and "Nothing was graded" in said


@pytest.mark.nightly
def test_trusted_by_name_it_marks_without_a_sandbox(small_class, of, tmp_path):
    packed = tmp_path / "trusting.zip"
    done = allranks(small_class.course, "gradescope", "-o", str(packed), "--trust-submissions")
    assert done.returncode == 2, "the package can't be packed from a folder that has none"
    assert "pack from a clone of the course" in done.stderr
    pack(ROOT, LAB, packed, sandbox="none")
    (tmp_path / "bin").mkdir()
    for program in ("bash", "env"):
        (tmp_path / "bin" / program).symlink_to(shutil.which(program))
    code, said, results = Container(tmp_path / "container", packed).mark(of("ada"), path=str(tmp_path / "bin"))
    assert code == 0, said
    assert sum(test["score"] for test in results["tests"]) == 13.0


# ---------------------------------------------------------------------------------------------------- GitHub Classroom


def test_githubs_steps_give_the_points_of_the_gradebook(small_class, of, tmp_path):
    write(ROOT, LAB, tmp_path)
    shutil.copy(of("di"), tmp_path / f"{NOTEBOOK}.ipynb")
    workflow = yaml.safe_load((tmp_path / ".github" / "workflows" / "classroom.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    *steps, report = job["steps"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    results = {}
    for step in (step for step in steps if "id" in step):
        output = tmp_path / f"{step['id']}.txt"
        environment = os.environ | {"PATH": path, "GITHUB_OUTPUT": str(output)}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]  # as GitHub's runner does
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        results[step["id"]] = json.loads(base64.b64decode(output.read_text().removeprefix("result=")))
    assert report["with"]["runners"].split(",") == EXERCISES == list(results)
    for name in EXERCISES:
        assert report["env"][f"{name.upper()}_RESULTS"] == f"${{{{steps.{name}.outputs.result}}}}"
    scores = small_class.course.scores("di")
    assert {name: result["tests"][0]["score"] for name, result in results.items()} == {
        name: scores[f"{name}-graded"] for name in EXERCISES
    }
    assert sum(result["max_score"] for result in results.values()) == 13
    assert [result["status"] for result in results.values()] == ["fail", "pass", "fail"]
    print(json.dumps(results))


def test_a_function_that_is_not_there_is_a_fail_with_its_reason(tmp_path):
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "empty.ipynb")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = "{ allranks check ring_shift empty.ipynb --json --points 4 || true; } | python result.py"
    shutil.copy(ROOT / "autograder" / "templates" / "github" / "result.py", tmp_path)
    done = subprocess.run(
        ["bash", "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(base64.b64decode(done.stdout.removeprefix("result=")))
    assert result["status"] == "fail" and result["max_score"] == 4 and result["tests"][0]["score"] == 0
    assert "ring_shift" in result["tests"][0]["message"]


def test_pip_installs_the_packed_package(tmp_path):
    write(ROOT, LAB, tmp_path / "repository")
    archive = tmp_path / "repository" / ".github" / "classroom" / "allranks.zip"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation", "--target"]
    done = subprocess.run([*command, tmp_path / "there", archive], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "there" / "allranks" / "base" / "theme.css").is_file()


def test_check_tells_the_points(tmp_path):
    path = tmp_path / "answer.py"
    path.write_text(wrong("distributed_mean", "sum"), encoding="utf-8")
    program = [str(Path(sys.executable).parent / "allranks"), "check", "distributed_mean", str(path), "--json"]
    done = subprocess.run([*program, "--points", "3"], capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert (told["points"], told["max_points"]) == (0.0, 3.0)


def test_a_folder_of_course_init_is_packed_too(tmp_path):
    """It has no package and no grader of its own: both come from where allranks runs."""
    course = teaching.init(tmp_path / "course", (LAB,)).folder
    pack(course, LAB, tmp_path / "gradescope.zip")
    with zipfile.ZipFile(tmp_path / "gradescope.zip") as archive:
        names = set(archive.namelist())
    assert {"run_autograder", "course/pyproject.toml", "course/autograder/gradescope.py"} <= names
    assert f"course/labs/{LAB}/{NOTEBOOK}.ipynb" in names
    written = write(course, LAB, tmp_path / "repository")
    assert ".github/workflows/classroom.yml" in written and f"{NOTEBOOK}.ipynb" in written

"""`allranks new exercise`: what it makes works at once, in a clone and as a package that is found by its entry point."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from allranks import exercises
from allranks.judge.judging import judge
from allranks.judge.source import read_source

ALLRANKS = str(Path(sys.executable).parent / "allranks")
OFFERED = "ring_example"


def allranks(*arguments: str, cwd: Path, path: Path | None = None) -> subprocess.CompletedProcess:
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    return subprocess.run([ALLRANKS, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder into which pip has installed the package of a new exercise; the answers are beside it."""
    folder = tmp_path_factory.mktemp("own")
    done = allranks("new", "exercise", OFFERED, "--package", str(folder / "package"), cwd=folder)
    assert done.returncode == 0, done.stderr
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation", "--target"]
    done = subprocess.run([*command, folder / "there", folder / "package"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_package_of_ones_own_is_found_and_judges(installed):
    right = allranks("check", OFFERED, "package/right/batch.py", "--json", cwd=installed, path=installed / "there")
    assert json.loads(right.stdout)["score"] == 1.0, right.stdout + right.stderr
    wrong = allranks("check", OFFERED, "package/wrong/own_tensor.py", "--json", cwd=installed, path=installed / "there")
    told = json.loads(wrong.stdout)
    assert wrong.returncode == 1 and "each rank's own tensor came back" in told["reason"]
    without = allranks("check", OFFERED, "package/right/batch.py", cwd=installed)
    assert without.returncode == 2 and "There is no exercise" in without.stderr


def test_the_sandbox_hides_what_another_package_knows(installed, monkeypatch):
    from autograder import sandbox

    monkeypatch.syspath_prepend(str(installed / "there"))
    monkeypatch.setattr(sandbox, "_folders", lambda: [installed / "there"])
    assert OFFERED in exercises.names()
    hidden = [path.name for path in sandbox._oracles_elsewhere()]
    assert hidden[0] == f"allranks_{OFFERED}.py"
    arguments = sandbox._without_oracles()
    assert arguments[arguments.index("/dev/null") + 1].endswith(f"allranks_{OFFERED}.py")


def test_a_package_that_is_broken_is_one_sentence(installed, tmp_path, monkeypatch):
    shutil.copytree(installed / "there", tmp_path / "there")
    (tmp_path / "there" / f"allranks_{OFFERED}.py").write_text("EXERCISE = 1 / 0\n", encoding="utf-8")
    done = allranks(
        "check", OFFERED, str(installed / "package" / "right" / "batch.py"), cwd=tmp_path, path=tmp_path / "there"
    )
    assert done.returncode == 2 and "can't be loaded (ZeroDivisionError" in done.stderr and done.stderr.count("\n") == 1
    (tmp_path / "there" / f"allranks_{OFFERED}.py").write_text("EXERCISE = 1\n", encoding="utf-8")
    done = allranks(
        "check", OFFERED, str(installed / "package" / "right" / "batch.py"), cwd=tmp_path, path=tmp_path / "there"
    )
    assert done.returncode == 2 and "is no exercise of the name" in done.stderr


def test_in_a_clone_the_files_go_to_their_places(tmp_path, monkeypatch):
    for folder in ("utils/allranks/exercises", "tests/exercises"):
        (tmp_path / folder).mkdir(parents=True)
    done = allranks("new", "exercise", "my_ring", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(
        exercises, "__path__", [*exercises.__path__, str(tmp_path / "utils" / "allranks" / "exercises")]
    )
    assert "my_ring" in exercises.names()
    right = tmp_path / "tests" / "exercises" / "right" / "my_ring" / "batch.py"
    assert judge(exercises.get("my_ring"), read_source(right, "my_ring")).passed
    wrong = tmp_path / "tests" / "exercises" / "wrong" / "my_ring" / "own_tensor.py"
    assert "each rank's own tensor" in judge(exercises.get("my_ring"), read_source(wrong, "my_ring")).reason
    again = allranks("new", "exercise", "my_ring", cwd=tmp_path)
    assert again.returncode == 2 and "is there already; nothing was written" in again.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Ring", "can't be a function's name"),
        ("lambda", "can't be"),
        ("ring_shift", "already"),
        ("ring_new", "no clone"),
    ],
)
def test_what_can_not_be_made_is_one_sentence(tmp_path, name, said):
    done = allranks("new", "exercise", name, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

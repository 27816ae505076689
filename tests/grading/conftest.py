"""A copy of the course with its own gradebook, graded by the real nbgrader with the real judge and sandbox."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # autograder is no part of the installed package

from classes import ROSTER, SMALL, allranks, enter, hand_in
from grading_course import Course, made_once, make_course


@pytest.fixture(scope="session")
def course(tmp_path_factory) -> Course:
    """The course with its gradebook; every module hands in for students of its own."""
    return make_course(tmp_path_factory.mktemp("course"))


@dataclass(frozen=True)
class SmallClass:
    """Seven graded submissions, a student who handed in nothing, and what `allranks grade` printed."""

    course: Course
    said: str


@pytest.fixture(scope="session")
def small_class(tmp_path_factory) -> SmallClass:
    """A class that nobody changes: tests that write take a copy."""

    def grade(root: Path) -> None:
        made = make_course(root)
        enter(made, ROSTER)
        hand_in(made, SMALL)
        done = allranks(made, "grade")
        assert done.returncode == 0, done.stdout + done.stderr
        (root / "said.txt").write_text(done.stdout, encoding="utf-8")

    root = tmp_path_factory.mktemp("small")
    shutil.copytree(made_once("small", grade), root, dirs_exist_ok=True)
    return SmallClass(Course(root), (root / "said.txt").read_text(encoding="utf-8"))

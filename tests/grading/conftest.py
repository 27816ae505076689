"""A copy of the course with its own gradebook, graded by the real nbgrader with the real judge and sandbox."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # autograder is no part of the installed package

from grading_course import Course, make_course


@pytest.fixture(scope="session")
def course(tmp_path_factory) -> Course:
    """The course with its gradebook; every module hands in for students of its own."""
    return make_course(tmp_path_factory.mktemp("course"))

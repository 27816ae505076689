"""More time for one student, by nbgrader's own penalty."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import timedelta

import pytest
from classes import allranks, typed
from grading_course import LAB, Course
from nbgrader.api import Gradebook

from autograder.extensions import ExtensionError, extend

pytestmark = pytest.mark.notebooks


@pytest.fixture
def course(small_class, tmp_path) -> Course:
    """Two students handed in at the same hour, a day late; late is worth nothing."""
    made = Course(tmp_path / "course")
    shutil.copytree(small_class.course.root, made.root)
    for student in ("ada", "bo"):
        path = made.root / "autograder" / "submitted" / student / LAB / "timestamp.txt"
        path.write_text("2026-11-02 12:00:00 UTC", encoding="ascii")
    with open(made.root / "autograder" / "nbgrader_config.py", "a", encoding="utf-8") as config:
        config.write("\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    with Gradebook(f"sqlite:///{made.root / 'autograder' / 'gradebook.db'}") as book:
        book.update_or_create_assignment(LAB, duedate="2026-11-01 12:00:00 UTC")
    return made


def test_more_time_takes_the_penalty_of_one_student_away(course):
    said = command(course, "ada", "25")
    assert said.stdout == "ada has until 2026-11-02 13:00 UTC.\n", said.stderr
    assert f"keeps its penalty until `allranks course run {LAB}`" in said.stderr
    two = ("--student", "ada", "--student", "bo", "--jobs", "1")  # a second judge takes longer to start than to mark
    done = allranks(course, "grade", "--force", *two, "--json")
    penalties = {row["student"]: row["late_penalty"] for row in json.loads(done.stdout)["students"]}
    assert penalties["ada"] == 0.0 and penalties["bo"] > 0
    told = {row["student"]: row for row in json.loads(allranks(course, "class", "--json").stdout)["students"]}
    assert told["ada"]["late_s"] == 0 and told["bo"]["late_s"] == 86400
    assert command(course, "ada", "0").stdout == "ada has until 2026-11-01 12:00 UTC.\n"
    assert command(course, "bo", "25").stdout == "bo has until 2026-11-02 13:00 UTC.\n"
    graded = course.graded("bo")
    settled = typed("course", "run", LAB, "--course", course.root, "--no-collect", "--no-feedback", "--json")
    changes = {one["student"]: one for one in json.loads(settled.stdout)["changes"]}
    assert changes["ada"]["down"] and not changes["bo"]["down"] and course.graded("bo") == graded


def test_who_handed_in_nothing_yet_can_have_more_time(course):
    assert extend(course.root, LAB, "hal", timedelta(days=2)) == "2026-11-03 12:00 UTC"
    told = {row["student"]: row for row in json.loads(allranks(course, "class", "--json").stdout)["students"]}
    assert told["hal"]["state"] == "not handed in"


def test_what_can_not_be_extended_is_one_sentence(course, small_class):
    assert "is not in the gradebook" in command(course, "nobody", "3").stderr
    with pytest.raises(ExtensionError, match="no due date: set one by `allranks course due"):
        extend(small_class.course.root, LAB, "hal", timedelta(days=2))


def command(course: Course, student: str, hours: str) -> subprocess.CompletedProcess:
    return typed("extend", LAB, student, hours, "--course", course.root)

"""`allranks grade`: one command from a folder of submissions to points, and again after it was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from allranks.cli.grade import command
from click.testing import CliRunner
from grading_course import LAB, Course, make_course

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]


def allranks(course: Course, *arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "allranks"), "grade", LAB, "--course", str(course.root), *arguments]


def autograded(course: Course) -> dict[str, float]:
    """When each student's graded notebook was written."""
    return {
        path.parts[-3]: path.stat().st_mtime for path in (course.root / "autograder" / "autograded").glob("*/*/*.ipynb")
    }


def test_a_killed_run_is_taken_up_where_it_stopped(tmp_path):
    course = make_course(tmp_path, record=False)
    course.submit("ada", course.answers())
    course.submit("bob", course.notebook("labs"))
    course.submission("eve").write_bytes(b"\x80 no notebook")

    with subprocess.Popen(allranks(course, "--jobs", "1"), stdout=subprocess.PIPE, text=True) as run:
        line = run.stdout.readline()
        run.send_signal(signal.SIGKILL)
    assert line.startswith("ada: 9 of 11, ")
    first = autograded(course)["ada"]

    again = subprocess.run(allranks(course, "--jobs", "2", "--json"), capture_output=True, text=True, check=False)
    found = json.loads(again.stdout)
    assert again.returncode == 1  # eve's could not be graded
    assert [(s["student"], s["score"], s["max_score"]) for s in found["students"][:2]] == [
        ("ada", 9.0, 11.0),
        ("bob", 0.0, 11.0),
    ]
    eve = found["students"][2]
    assert (eve["student"], eve["score"]) == ("eve", None) and eve["reason"]
    assert all(s["seconds"] >= 0 for s in found["students"])
    assert autograded(course)["ada"] == first  # she was not graded twice


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lab99"], "There is no lab 'lab99'. There are: lab03_all_reduce."),
        ([LAB], f"Nobody has handed in {LAB}: put notebooks into autograder/submitted/STUDENT/{LAB}/."),
        ([LAB, "--student", "zoe"], f"zoe has not handed in {LAB}: there is no autograder/submitted/zoe/{LAB}."),
    ],
)
def test_what_it_can_not_do_is_one_sentence(tmp_path, arguments, said):
    course = make_course(tmp_path, record=False)
    result = CliRunner().invoke(command, [*arguments, "--course", str(course.root)])
    assert (result.exit_code, result.output.strip()) == (2, said)
    result = CliRunner().invoke(command, [*arguments, "--course", str(course.root), "--json"])
    assert result.exit_code == 2 and json.loads(result.stdout)["reason"] == said


def test_outside_of_a_course_it_says_where_to_go(tmp_path):
    result = CliRunner().invoke(command, [LAB, "--course", str(tmp_path)])
    assert result.exit_code == 2 and "is in no course: go to the folder that holds autograder/" in result.output

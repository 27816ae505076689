"""Requests to mark again: who asks, what changes, and that nothing given by hand is lost."""

from __future__ import annotations

import getpass
import json
import os
import shutil

import nbformat
import pytest
from classes import allranks, hand_in
from grading_course import LAB, NOTEBOOK, Course, cell_of
from nbgrader.api import Gradebook

from autograder.reading import Reading
from autograder.regrades import MAX_CHARACTERS, RegradeError, entries, keeping, marks_of, requests

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def course(small_class, tmp_path_factory) -> Course:
    """bo's argmax was marked wrongly once, bo's mean has points by hand, and the answer in words was read."""
    made = Course(tmp_path_factory.mktemp("regrade") / "course")
    shutil.copytree(small_class.course.root, made.root)
    with book_of(made) as book:
        book.find_grade("distributed_argmax-graded", NOTEBOOK, LAB, "bo").auto_score = 1.0
        mean = book.find_grade("distributed_mean-graded", NOTEBOOK, LAB, "bo")
        mean.manual_score, mean.needs_manual_grade = 2.5, False
        words = book.find_grade("when_not_a_ring", NOTEBOOK, LAB, "bo")
        words.manual_score, words.needs_manual_grade = 1.5, False
        book.find_comment("when_not_a_ring", NOTEBOOK, LAB, "bo").manual_comment = "Good figures."
        book.db.commit()
    return made


def book_of(course: Course) -> Gradebook:
    return Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}")


def ask(course: Course, student: str, words: str | bytes) -> None:
    path = course.submission(student).parent / "regrade.md"
    path.write_bytes(words.encode() if isinstance(words, str) else words)


def listed(course: Course) -> dict[str, dict]:
    return {one["student"]: one for one in json.loads(allranks(course, "regrade", "--json").stdout)["requests"]}


def test_a_regrade_from_the_request_to_the_answer(course):
    assert allranks(course, "regrade").stdout == "Nobody asks.\n"
    ask(course, "bo", "My argmax is right:\nI tried ties by hand. \x1b[2J")
    said = allranks(course, "regrade").stdout
    assert "1 request waits." in said and "My argmax is right: I tried ties by hand." in said and "\x1b" not in said
    before = marks_of(course.root, LAB, "bo")
    done = allranks(course, "regrade", "--student", "bo", "--answer", "You are right; the judge was not.")
    assert done.returncode == 0, done.stderr
    assert f"bo: {before.score:g} -> {before.score + 3:g} points" in done.stdout
    assert "distributed_argmax: 1 -> 4 of 4" in done.stdout
    assert "distributed_mean: 2.5 of 3 by hand stays" in done.stdout
    after = marks_of(course.root, LAB, "bo")
    assert after.comments == before.comments and after.penalty == before.penalty
    for place, mark in before.marks.items():
        assert (after.marks[place].by_hand, after.marks[place].waits) == (mark.by_hand, mark.waits)
    (entry,) = entries(course.root, LAB)
    assert entry["who"] == getpass.getuser() and entry["when"].endswith("+00:00")
    assert listed(course)["bo"]["state"] == "answered" and entry["who"] in listed(course)["bo"]["told"]
    course.nbgrader("generate_feedback", LAB, "--student", "bo", "--force")
    page = (course.root / "autograder" / "feedback" / "bo" / LAB / f"{NOTEBOOK}.html").read_text(encoding="utf-8")
    assert "Marked again" in page and "You are right; the judge was not." in page
    ask(course, "bo", "And my ring?")
    again = listed(course)["bo"]
    assert again["state"] == "waits" and again["told"].startswith("asks again; before: ")


def test_what_can_not_be_read_or_is_too_early_is_said(course):
    hand_in(course, {"kim": {}})
    ask(course, "kim", "Now?")
    ask(course, "cy", "")
    ask(course, "di", b"\xff\xfe")
    ask(course, "ed", "x" * (MAX_CHARACTERS + 1))
    (course.submission("flo").parent / "regrade.md").symlink_to("/etc/passwd")
    found = listed(course)
    assert (found["kim"]["state"], found["kim"]["told"]) == ("not graded yet", f"type `allranks grade {LAB}` first.")
    assert found["cy"]["told"] == "regrade.md is empty."
    assert found["di"]["told"] == found["flo"]["told"] == "regrade.md can't be read as text."
    assert found["ed"]["told"] == f"regrade.md has more than {MAX_CHARACTERS} characters."
    assert "root" not in json.dumps(found["flo"]), "a line of /etc/passwd"
    done = allranks(course, "regrade", "--student", "kim", "--student", "hal", "--student", "../x")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines() == [
        f"kim is not graded yet: type `allranks grade {LAB}` first.",
        f"hal has not handed in {LAB}.",
        f"../x has not handed in {LAB}.",
    ]
    for student in ("kim", "cy", "di", "ed", "flo"):
        os.unlink(course.submission(student).parent / "regrade.md")


def test_a_newer_hand_in_is_not_marked_under_old_points(course):
    nbformat.write(course.answers(), course.submission("gus"))
    before = course.scores("gus")
    done = allranks(course, "regrade", "--student", "gus")
    assert done.returncode == 1 and "points given by hand are not about this work" in done.stderr
    assert course.scores("gus") == before and not entries(course.root, LAB, "gus")


def test_an_error_puts_the_graded_notebook_back(course):
    folder = course.root / "autograder" / "autograded" / "ada" / LAB
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(RegradeError), keeping(course.root, LAB, "ada"):
        shutil.rmtree(folder)
        raise RegradeError("stopped")
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert [path.name for path in folder.parent.iterdir()] == [LAB]


def test_a_damaged_line_of_the_log_is_left_out(course):
    path = course.root / "autograder" / "regrades.jsonl"
    before = len(entries(course.root, LAB))
    with open(path, "a", encoding="utf-8") as file:
        file.write("{broken\n[]\n")
    assert len(entries(course.root, LAB)) == before
    assert all(one.state for one in requests(course.root, LAB))


def test_who_was_read_is_not_read_again_unless_the_answer_is_another(small_class, tmp_path):
    made = Course(tmp_path / "course")
    shutil.copytree(small_class.course.root, made.root)
    with book_of(made) as book:
        words = book.find_grade("when_not_a_ring", NOTEBOOK, LAB, "bo")
        words.manual_score, words.needs_manual_grade = 1.5, False
        book.db.commit()

    def waits_with() -> tuple[bool, float | None, bool]:
        """Whether the gradebook waits, with which points, and whether the page for answers says so."""
        assert allranks(made, "grade", "--force", "--student", "bo").returncode == 0
        question = Reading(made.root, LAB).question(0)
        (shown,) = [answer.given.score for answer in question.answers if answer.student == "bo"]
        with book_of(made) as book:
            words = book.find_grade("when_not_a_ring", NOTEBOOK, LAB, "bo")
            return words.needs_manual_grade, words.manual_score, shown is None

    assert waits_with() == (False, 1.5, False)
    path = made.submission("bo")
    notebook = nbformat.read(path, as_version=4)
    cell_of(notebook, "when_not_a_ring").source = "Now I say something else: a tree of 18 rounds."
    nbformat.write(notebook, path)
    assert waits_with() == (True, 1.5, True)

"""Answers in words: read on one page, marked by keyboard in a real browser, and found in nbgrader's gradebook."""

from __future__ import annotations

import json
import re
import shutil
import urllib.error
import urllib.request

import pytest
from classes import IN_WORDS as CELL
from classes import add_copies, answers, marks
from grading_course import LAB, Course
from nbgrader.api import Gradebook
from playwright.sync_api import expect

from autograder.classroom import overview
from autograder.reading import Reading, ReadingError, safe_html
from autograder.rubric import MAX_COMMENT_CHARACTERS

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]
STUDENTS = [f"s{number:02}" for number in range(30)]
HOSTILE = '<script>window.stolen = 1</script><img src=x onerror="window.stolen = 1">[here](javascript:alert(1)) $\\frac{p}{2}$'


@pytest.fixture
def course(small_class, tmp_path) -> Course:
    """Thirty answers by students of whom nobody else handed in; one is hostile."""
    made = Course(tmp_path / "course")
    shutil.copytree(small_class.course.root, made.root)
    with Gradebook(f"sqlite:///{made.root / 'autograder' / 'gradebook.db'}") as book:
        for submission in book.assignment_submissions(LAB):
            if submission.student_id != "ada":
                book.remove_student(submission.student_id)
    words = {student: f"Answer of {student}: a tree, 9 rounds, 45 µs." for student in STUDENTS[1:]}
    add_copies(made, "ada", {STUDENTS[0]: HOSTILE, **words})
    with Gradebook(f"sqlite:///{made.root / 'autograder' / 'gradebook.db'}") as book:
        book.remove_student("ada")
    return made


def test_a_question_has_its_rubric_and_all_answers(course):
    reading = Reading(course.root, LAB)
    question = reading.question(0)
    assert [answer.student for answer in question.answers] == STUDENTS
    assert "512 ranks" in question.task and "1 point for the number" in question.rubric
    assert all(answer.given.score is None for answer in question.answers)


def test_points_and_comments_reach_the_gradebook_and_the_overview(course):
    reading = Reading(course.root, LAB)
    reading.mark(0, "s03", 1.5, "Say also why.")
    assert marks(course)["s03"] == (1.5, False, "Say also why.")
    found = overview(course.root, LAB)
    assert next(row for row in found.rows if row.student == "s03").marks[CELL].score == 1.5
    assert found.waiting == [(CELL, [student for student in STUDENTS if student != "s03"])]
    reading.mark(0, "s03", None, "")
    assert marks(course)["s03"] == (None, True, None)


@pytest.mark.parametrize("score", [-0.5, 2.5, float("nan"), float("inf")])
def test_points_that_there_are_not_are_refused(course, score):
    with pytest.raises(ReadingError, match="between 0 and 2"):
        Reading(course.root, LAB).mark(0, "s01", score, "")
    assert marks(course)["s01"] == (None, True, None)


def test_what_can_not_be_recorded_is_one_sentence(course):
    with pytest.raises(ReadingError, match="no answer by nobody"):
        Reading(course.root, LAB).mark(0, "nobody", 1, "")
    with pytest.raises(ReadingError, match="at most"):
        Reading(course.root, LAB).mark(0, "s01", 1, "x" * (MAX_COMMENT_CHARACTERS + 1))


def test_a_hostile_answer_is_text():
    shown = safe_html(HOSTILE)
    assert "<script" not in shown and "<img src=x" not in shown and "href" not in shown
    assert 'class="formula"' in shown


@pytest.mark.browser
def test_a_teacher_marks_thirty_answers_by_keyboard(course, new_page):
    with answers(course) as (address, _):
        page = new_page()
        page.set_default_timeout(60_000)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        expect(page.locator("article")).to_have_count(30)
        assert "token" not in page.url
        assert page.evaluate("window.stolen") is None
        assert "s01" not in page.locator("article .who").nth(1).inner_text(), "answers have no names"
        page.keyboard.press("3")
        assert "At most 2 points" in page.locator("#said").inner_text()
        page.keyboard.press("c")
        page.keyboard.type("Say also why.")
        page.keyboard.press("Escape")
        page.keyboard.press("i")  # the comment becomes an item, which the answer then has
        expect(page.locator("#name")).to_have_value("Say also why.")
        page.keyboard.press("Enter")
        expect(page.locator("#items li")).to_have_count(1)
        expect(page.locator("article .given").first).to_have_text("Say also why.")
        page.keyboard.press("2")  # and to the next
        page.keyboard.press("Alt+1")
        page.keyboard.press("1")
        page.keyboard.press("0")
        page.keyboard.press("+")
        page.keyboard.press("+")
        page.keyboard.press("+")
        page.keyboard.press("j")
        for number in range(4, 30):
            page.keyboard.press(str(number % 3))
        expect(page.locator("#left")).to_have_text("all 30 are marked")
        page.evaluate("queue")
        assert page.locator("#said").inner_text() == ""
        assert {url.split("/")[2] for url in asked if not url.startswith("data:")} == {address.split("/")[2]}
        page.reload()
        expect(page.locator("#left")).to_have_text("all 30 are marked")
    found = marks(course)
    assert found["s00"] == (2.0, False, "Say also why.")
    assert found["s01"] == (1.0, False, "Say also why.")
    assert found["s02"][0] == 0.0 and found["s03"][0] == 1.5
    assert [found[student][0] for student in STUDENTS[4:]] == [float(number % 3) for number in range(4, 30)]
    assert overview(course.root, LAB).waiting == []


@pytest.mark.browser
def test_what_is_not_recorded_is_not_shown(course, new_page):
    page = new_page()
    with answers(course) as (address, _):
        page.goto(address)
        expect(page.locator("article")).to_have_count(30)
    page.keyboard.press("2")
    expect(page.locator("#said")).to_contain_text("Not recorded")
    assert page.locator("#left").inner_text() == "30 of 30 wait"
    assert marks(course)["s00"] == (None, True, None)


def test_nobody_else_reads_or_marks(course):
    def status(url: str, **about) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, **about), timeout=60) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    seen = next(answer.given.seen for answer in Reading(course.root, LAB).question(0).answers)
    mark = json.dumps({"student": "s00", "points": 2, "items": [], "comment": "", "seen": seen}).encode()
    with answers(course) as (address, _):
        site, token = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=(.+)", address).groups()
        assert status(f"{site}/questions/0") == 403
        assert status(f"{site}/questions/0?token=guess") == 403
        assert status(f"{site}/questions/0?token={token}") == 200
        assert status(f"{site}/questions/0?token={token}", headers={"Host": "evil.example"}) == 403
        assert status(f"{site}/questions/7?token={token}") == 404
        cookie = {"Cookie": f"allranks-reading={token}"}
        assert status(f"{site}/questions/0/mark", data=mark, headers=cookie) == 403, (
            "a form elsewhere has only the cookie"
        )
        headers = {**cookie, "X-Allranks-Token": token}
        assert status(f"{site}/questions/0/mark", data=b"junk", headers=headers) == 400
        assert (
            status(f"{site}/questions/0/mark", data=mark.replace(b'points": 2', b'points": 3'), headers=headers) == 409
        )
        assert marks(course)["s00"] == (None, True, None)
        assert status(f"{site}/questions/0/mark", data=mark, headers=headers) == 200
    assert marks(course)["s00"][0] == 2.0

"""Rubric items: a remark costs the same wherever it is given, by whoever; a change changes all its marks, and a dry run shows whose."""

from __future__ import annotations

import json
import shutil
import threading

import pytest
from classes import IN_WORDS as CELL
from classes import answers, digest, marks
from classes import typed_here as typed
from grading_course import LAB, NOTEBOOK, Course
from nbgrader.api import Gradebook
from playwright.sync_api import expect

from autograder import pairs, rubric
from autograder.classroom import overview
from autograder.reading import MarkedMeanwhile, Reading
from autograder.rubric import RubricError

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]
UNIT = "The unit is missing. (-0.5)"


@pytest.fixture
def course(small_class, tmp_path) -> Course:
    """Seven graded submissions, whose answers in words wait."""
    made = Course(tmp_path / "course")
    shutil.copytree(small_class.course.root, made.root)
    return made


def item(course: Course, *words: object) -> dict:
    """What `allranks course rubric LAB WORDS --json` said."""
    done = typed("course", "rubric", LAB, *words, "--course", course.root, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def unit(course) -> int:
    """An item that takes half a point off; its number."""
    made = item(course, "unit", "--points", "-0.5", "--comment", "The unit is missing.", "--as", "ida")
    assert made["changes"] == [] and made["item"]["points"] == -0.5
    return made["item"]["number"]


def elsewhere(course: Course, student: str, score: float) -> None:
    """A mark as formgrader gives it."""
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        book.find_grade(CELL, NOTEBOOK, LAB, student).manual_score = score
        book.db.commit()


def rows(course: Course, student: str) -> list[dict]:
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        return rubric.history(book, student)


def test_a_remark_costs_the_same_wherever_it_is_given_and_nbgrader_has_the_sum(course, unit):
    ida, joe = Reading(course.root, LAB, who="ida"), Reading(course.root, LAB, who="joe")
    assert ida.mark(0, "ada", 2, "", [unit]).score == 1.5
    assert joe.mark(0, "bo", 1, "And say why.", [unit]).score == 0.5
    assert joe.mark(0, "cy", 0, "", [unit]).score == 0, "never below 0"
    found = marks(course)
    assert found["ada"] == (1.5, False, UNIT) and found["bo"] == (0.5, False, f"{UNIT}\n\nAnd say why.")
    assert found["cy"][0] == 0 and found["di"] == (None, True, None)
    (row,) = (row for row in overview(course.root, LAB).rows if row.student == "bo")
    assert (row.marks[CELL].score, row.marks[CELL].by, row.marks[CELL].items) == (0.5, "joe", ("unit",))
    told = json.loads(typed("class", LAB, "--course", course.root, "--json").stdout)["students"]
    (bo,) = (one for one in told if one["student"] == "bo")
    assert bo["exercises"][CELL]["by"] == "joe" and bo["exercises"][CELL]["items"] == ["unit"]
    assert item(course)["questions"][0]["items"][0] == {
        **{"number": unit, "name": "unit", "points": -0.5, "comment": "The unit is missing."},
        "used": 3,
    }


def test_items_that_give_points_start_at_none(course):
    numbers = [item(course, name, "--points", "1")["item"]["number"] for name in ("number", "reason")]
    reading = Reading(course.root, LAB)
    assert reading.mark(0, "ada", None, "", numbers).score == 2
    assert marks(course)["ada"] == (2, False, "number (+1)\n\nreason (+1)")
    assert reading.mark(0, "ada", 1, "", numbers).score == 2, "never more than the question has"
    assert reading.mark(0, "ada", None, "", []).score is None and marks(course)["ada"] == (None, True, None)


def test_a_change_changes_all_its_marks_and_a_dry_run_shows_whose(course, unit):
    reading = Reading(course.root, LAB, who="ida")
    for student, points in (("ada", 2), ("bo", 1.5), ("cy", 0), ("di", 2)):
        reading.mark(0, student, points, "", [unit])
    reading.mark(0, "ed", 2, "")
    elsewhere(course, "di", 1.75)
    before, all_before = marks(course), digest(course.root)
    trial = item(course, "unit", "--points", "-1", "--dry-run")
    assert digest(course.root) == all_before
    assert trial["changes"] == [
        {"student": "ada", "before": 1.5, "after": 1},
        {"student": "bo", "before": 1, "after": 0.5},
        {"student": "cy", "before": 0, "after": 0},
    ]
    assert trial["left"] == ["di"]
    said = typed("course", "rubric", LAB, "unit", "--points", "-1", "--dry-run", "--course", course.root).stdout
    assert said == (
        "ada: 1.5 -> 1\nbo: 1 -> 0.5\ndi was marked elsewhere since, and stays as it is.\n"
        "unit -1: in 3 marks, 2 with other points.\nNothing was written.\n"
    )
    done = item(course, "unit", "--points", "-1")
    assert done["changes"] == trial["changes"] and done["left"] == trial["left"]
    after = marks(course)
    assert after["ada"] == (1, False, "The unit is missing. (-1)") and after["bo"][0] == 0.5
    assert {name: after[name] for name in ("di", "ed", "flo")} == {name: before[name] for name in ("di", "ed", "flo")}
    item(course, "unit", "--comment", "Give the unit, please.", "--rename", "units")
    assert marks(course)["ada"] == (1, False, "Give the unit, please. (-1)")
    gone = item(course, "units", "--remove")
    assert gone["item"] is None and {"student": "ada", "before": 1, "after": 2} in gone["changes"]
    assert marks(course)["ada"] == (2, False, None) and item(course)["questions"][0]["items"] == []


def test_a_mark_whose_item_was_removed_while_another_held_counts_as_given_elsewhere(course, unit):
    Reading(course.root, LAB, who="ida").mark(0, "ada", 2, "", [unit])
    elsewhere(course, "ada", 1.75)
    assert item(course, "unit", "--remove")["left"] == ["ada"]
    elsewhere(course, "ada", 1.5)  # as before, in formgrader
    (row,) = (row for row in overview(course.root, LAB).rows if row.student == "ada")
    assert (row.marks[CELL].score, row.marks[CELL].by, row.marks[CELL].items) == (1.5, "", ())
    assert Reading(course.root, LAB).mark(0, "ada", 2, "").score == 2


def test_who_gave_which_mark_is_kept_with_what_was_before(course, unit):
    Reading(course.root, LAB, who="ida").mark(0, "ada", 2, "", [unit])
    Reading(course.root, LAB, who="joe").mark(0, "ada", 1, "Read on.", [unit])
    item(course, "unit", "--points", "-1", "--as", "eva")
    found = rows(course, "ada")
    assert [(one["who"], one["score"], one["why"]) for one in found] == [
        ("ida", 1.5, ""),
        ("joe", 0.5, ""),
        ("eva", 0, "unit: -0.5 -> -1"),
    ]
    assert found[1]["said"] == f"{UNIT}\n\nRead on." and found[1]["at"] <= found[2]["at"]
    elsewhere(course, "ada", 2)
    (row,) = (row for row in overview(course.root, LAB).rows if row.student == "ada")
    assert (row.marks[CELL].score, row.marks[CELL].by, row.marks[CELL].items) == (2, "", ()), "given elsewhere"
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        rubric.forget(book, "ada")
    assert rows(course, "ada") == []


def test_a_mark_keeps_its_items_when_the_work_is_marked_again(course, unit):
    Reading(course.root, LAB).mark(0, "ada", 2, "", [unit])
    assert typed("grade", LAB, "--course", course.root, "--student", "ada", "--force").returncode == 0
    assert marks(course)["ada"][0] == 1.5
    assert item(course, "unit", "--points", "-1")["changes"] == [{"student": "ada", "before": 1.5, "after": 1}]


def test_what_somebody_marked_meanwhile_is_not_overwritten(course, unit):
    ida, joe = Reading(course.root, LAB, who="ida"), Reading(course.root, LAB, who="joe")
    seen = {answer.student: answer.given.seen for answer in ida.question(0).answers}
    joe.mark(0, "ada", 1, "Half of it.", [unit], seen["ada"])
    with pytest.raises(MarkedMeanwhile, match=r"^joe marked this answer meanwhile") as refused:
        ida.mark(0, "ada", 2, "", [], seen["ada"])
    assert refused.value.given.score == 0.5 and marks(course)["ada"][0] == 0.5
    elsewhere(course, "bo", 1)
    with pytest.raises(MarkedMeanwhile, match=r"^somebody marked"):
        ida.mark(0, "bo", 2, "", [], seen["bo"])
    assert ida.mark(0, "ada", 2, "", [], refused.value.given.seen).score == 2


def test_of_two_who_mark_one_answer_at_once_one_is_told_and_no_mark_is_lost(course, unit):
    students = "ada bo cy di ed flo gus".split()
    seen = {answer.student: answer.given.seen for answer in Reading(course.root, LAB).question(0).answers}
    won: dict[str, list[str]] = {student: [] for student in students}
    together = threading.Barrier(2)

    def mark(who: str) -> None:
        reading = Reading(course.root, LAB, who=who)
        for student in students:
            together.wait(60)
            try:
                reading.mark(0, student, 2, f"by {who}", [unit], seen[student])
                won[student].append(who)
            except MarkedMeanwhile:
                pass

    both = [threading.Thread(target=mark, args=(who,)) for who in ("ida", "joe")]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert all(len(who) == 1 for who in won.values()), won
    found = marks(course)
    for student, (who,) in won.items():
        assert found[student][2] == f"{UNIT}\n\nby {who}" and [one["who"] for one in rows(course, student)] == [who]


def test_both_of_a_pair_have_the_items(course, unit):
    pairs.write_state(course.root, LAB, {"bo": ("ada", "")})
    Reading(course.root, LAB).mark(0, "bo", 2, "", [unit])
    assert marks(course)["ada"] == marks(course)["bo"] == (1.5, False, UNIT)
    changed = item(course, "unit", "--points", "0")["changes"]
    assert [(one["student"], one["after"]) for one in changed] == [("ada", 2), ("bo", 2)]


def test_while_another_program_writes_nothing_is_recorded_and_one_sentence_says_so(course, unit):
    reading = Reading(course.root, LAB)
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        book.find_student("ada").first_name = "Ada of another program"
        book.db.flush()
        with pytest.raises(RubricError, match=r"can't be written now .* try again"):
            reading.mark(0, "ada", 2, "", [unit])
        book.db.rollback()
    assert marks(course)["ada"] == (None, True, None) and rows(course, "ada") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("unit", "--points", "3"), "must be between -2 and 2"),
        (("unit", "--points", "nan"), "must be between -2 and 2"),
        (("x" * 81, "--points", "1"), "has 1 to 80 characters"),
        (("nothing", "--remove"), "has no item 'nothing'. There are: unit."),
        (("unit", "--remove", "--points", "1"), "not both"),
        (("unit",), "Say what to do with 'unit'"),
        (("--points", "1"), "Give the item's name too"),
        (("unit", "--points", "1", "--question", "other"), f"has the questions {CELL}"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(course, unit, words, said):
    before = digest(course.root)
    done = typed("course", "rubric", LAB, *words, "--course", course.root)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert digest(course.root) == before


def test_looking_at_a_course_without_items_writes_nothing(course):
    before = digest(course.root)
    assert item(course)["questions"] == [{"question": CELL, "points": 2, "items": []}]
    assert item(course, "unit", "--points", "-1", "--dry-run")["changes"] == []
    assert Reading(course.root, LAB).question(0).items == ()
    for words in (("--remove",), ("--rename", "units")):
        done = typed("course", "rubric", LAB, "unit", *words, "--dry-run", "--course", course.root)
        assert (done.returncode, done.stderr) == (2, f"{CELL} has no item 'unit'. There are: none.\n")
    assert digest(course.root) == before


def test_nbgraders_own_commands_do_not_mind_the_tables(course, unit):
    Reading(course.root, LAB).mark(0, "ada", 2, "", [unit])
    said = course.nbgrader("db", "upgrade")
    assert said.returncode == 0, said.stdout
    assert marks(course)["ada"] == (1.5, False, UNIT) and len(rows(course, "ada")) == 1
    page = course.nbgrader("generate_feedback", LAB, "--student", "ada")
    assert page.returncode == 0, page.stdout
    (html,) = (course.root / "autograder" / "feedback" / "ada").glob("*/*.html")
    assert "The unit is missing. (-0.5)" in html.read_text(encoding="utf-8")


@pytest.mark.browser
def test_two_people_mark_in_two_browsers_with_the_same_items(course, new_page):
    with answers(course, "--as", "ida") as (one, _), answers(course, "--as", "joe") as (other, _):
        ida, joe = new_page(), new_page()
        for page, address in ((ida, one), (joe, other)):
            page.set_default_timeout(20_000)
            page.goto(address)
            expect(page.locator("article")).to_have_count(7)
        ida.get_by_role("button", name="New item").click()
        ida.locator("#name").fill("unit")
        ida.locator("#points").fill("-0.5")
        ida.locator("#words").fill("The unit is missing.")
        ida.get_by_role("button", name="Keep").click()
        expect(ida.locator("article .given").first).to_have_text("unit (-0.5)")
        ida.keyboard.press("2")
        expect(ida.locator("article .by").first).to_have_text("by ida")
        joe.keyboard.press("1")  # on the answer that ida has marked since
        expect(joe.locator("#said")).to_contain_text("Not recorded: ida marked this answer meanwhile")
        expect(joe.locator("article .score").first).to_have_text("1.5 of 2")
        expect(joe.locator("#items li")).to_have_count(1)  # her item came along
        joe.keyboard.press("Alt+1")
        joe.keyboard.press("2")
        expect(joe.locator("article .score").nth(1)).to_have_text("1.5 of 2")
        expect(joe.locator("article .by").nth(1)).to_have_text("by joe")
        joe.get_by_role("button", name="Change unit").click()
        joe.locator("#points").fill("-1")
        joe.get_by_role("button", name="Keep").click()
        expect(joe.locator("#what")).to_contain_text(
            "2 marks have this item, 2 get other points: Answer 1 of 7: 1.5 → 1"
        )
        assert marks(course)["ada"][0] == 1.5, "only shown"
        joe.get_by_role("button", name="Change them").click()
        expect(joe.locator("article .score").first).to_have_text("1 of 2")
        assert joe.locator("#said").inner_text() == ""
    assert marks(course)["ada"] == marks(course)["bo"] == (1, False, "The unit is missing. (-1)")
    assert [(one["who"], one["score"]) for one in rows(course, "bo")][-2:] == [("joe", 1.5), ("joe", 1)]

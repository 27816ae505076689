"""Pairs: one work, points for both; and every way in which two students can fail to be a pair."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import nbformat
import pytest
from classes import allranks
from grading_course import LAB, NOTEBOOK, Course, cell_of, is_answer
from nbformat import NotebookNode

from autograder.pairs import PairsError, declared_in, settle, shared
from autograder.reading import Reading
from autograder.similarity import compare

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]
DECLARED = f"\nc.Pairs.declared = ['{LAB}']\n"


@pytest.fixture
def course(small_class, tmp_path) -> Course:
    """The small class with its gradebook, and nothing handed in yet."""
    made = Course(tmp_path / "course")
    shutil.copytree(small_class.course.root, made.root)
    shutil.rmtree(made.root / "autograder" / "submitted")
    return made


def pair_up(course: Course, *rows: str, head: str = "lab,student,partner") -> None:
    (course.root / "autograder" / "pairs.csv").write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")


def with_partner(course: Course, partner: str, answered: bool = True) -> NotebookNode:
    made = course.answers() if answered else course.notebook("labs")
    made.cells.append(nbformat.v4.new_code_cell(f'partner = "{partner}"'))
    return made


def told(course: Course) -> str:
    return "\n".join(settle(course.root, LAB).told)


def handed_in(course: Course, student: str) -> bytes | None:
    path = course.root / "autograder" / "submitted" / student / LAB / f"{NOTEBOOK}.ipynb"
    return path.read_bytes() if path.exists() else None


def test_both_get_the_points_the_page_and_the_export(small_class, tmp_path):
    course = Course(tmp_path / "course")
    shutil.copytree(small_class.course.root, course.root)
    pair_up(course, f"{LAB}, di, hal")
    done = allranks(course, "grade", "--jobs", "1")  # for few a second judge takes longer to start than to mark
    assert done.returncode == 0 and "di and hal: di handed in for both." in done.stdout, done.stderr
    assert course.scores("hal") == course.scores("di")
    rows = {row["student"]: row for row in json.loads(allranks(course, "class", "--json").stdout)["students"]}
    assert (rows["hal"]["partner"], rows["di"]["partner"], rows["ada"]["partner"]) == ("di", "hal", "")
    assert "hal (Hal Absent), with di" in allranks(course, "class").stdout
    assert allranks(course, "export", "moodle", "-o", str(tmp_path / "m.csv")).returncode == 0
    with open(tmp_path / "m.csv", encoding="utf-8", newline="") as file:
        lines = {line[0]: line[5:] for line in csv.reader(file)}
    assert lines["hal"] == lines["di"]
    Reading(course.root, LAB).mark(0, "hal", 1.5, "Which figures?")
    answers = {
        one.student: (one.given.score, one.given.comment) for one in Reading(course.root, LAB).question(0).answers
    }
    assert answers["hal"] == answers["di"] == (1.5, "Which figures?")
    course.nbgrader("generate_feedback", LAB, "--student", "hal")
    page = (course.root / "autograder" / "feedback" / "hal" / LAB / f"{NOTEBOOK}.html").read_text(encoding="utf-8")
    assert "the sum instead of the mean" in page.lower() and "with di" in page
    assert not any(set(pair.students) == {"di", "hal"} for pair in compare(course.root, LAB)[0])


def test_the_secret_stays_with_its_student_and_all_comes_back(course):
    for student in ("ada", "bo"):
        course.submit(student, course.answers() if student == "ada" else course.notebook("labs"))
        (course.submission(student).parent / "submission_secret.txt").write_text(student * 40)
        (course.submission(student).parent / "timestamp.txt").write_text("2026-11-01 12:00:00 UTC")
    own = handed_in(course, "bo")
    pair_up(course, f"{LAB},ada,bo")
    assert "ada's work counts; the other notebook has no answers." in told(course)
    assert handed_in(course, "bo") == handed_in(course, "ada") and shared(course.root, LAB) == {"bo": "ada"}
    assert (course.submission("bo").parent / "submission_secret.txt").read_text() == "bo" * 40
    before = handed_in(course, "bo")
    assert told(course) and handed_in(course, "bo") == before, "the second time changes nothing"
    pair_up(course)
    assert "bo and ada are no pair any more: bo has the own work again." in told(course)
    assert handed_in(course, "bo") == own and shared(course.root, LAB) == {}


def test_a_newer_work_of_either_is_seen(course):
    course.submit("ada", course.answers())
    pair_up(course, f"{LAB},ada,bo")
    settle(course.root, LAB)
    other = course.answers(lambda grade_id, right: "A ring." if grade_id == "when_not_a_ring" else right)
    course.submit("ada", other)
    settle(course.root, LAB)
    assert handed_in(course, "bo") == handed_in(course, "ada")
    changed = course.answers(lambda grade_id, right: "A tree." if grade_id == "when_not_a_ring" else right)
    course.submit("bo", changed)  # bo hands in after all, and it is collected
    newer = handed_in(course, "bo")
    assert "handed in different answers, so each has the own marks" in told(course)
    assert handed_in(course, "bo") == newer
    pair_up(course, f"{LAB},ada,bo,bo", head="lab,student,partner,counts")
    assert "bo's work counts, as pairs.csv says." in told(course) and handed_in(course, "ada") == newer


def test_of_two_equal_works_the_earlier_time_counts_for_both(course):
    for student, day in (("ada", 3), ("bo", 1)):
        course.submit(student, course.answers())
        (course.submission(student).parent / "timestamp.txt").write_text(f"2026-11-0{day} 12:00:00 UTC")
    pair_up(course, f"{LAB},ada,bo")
    assert "bo's came first: that time counts for both" in told(course)
    assert (course.submission("ada").parent / "timestamp.txt").read_text() == "2026-11-01 12:00:00 UTC"


def test_a_pair_of_the_file_that_can_not_be(course):
    course.submit("ada", course.answers())
    pair_up(course, f"{LAB},ada,bo", f"{LAB},bo,cy", f"{LAB},di,di", f"{LAB},hal,nobody")
    assert told(course).splitlines() == [
        "bo is in more than one pair of pairs.csv: ada and bo are none.",
        "bo is in more than one pair of pairs.csv: bo and cy are none.",
        "di can't be a pair alone.",
        "nobody is not in the gradebook: hal and nobody are no pair.",
    ]
    assert handed_in(course, "bo") is None
    pair_up(course, f"{LAB},di,hal")
    assert told(course) == "di and hal have handed in nothing."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\nx,y\n", "needs a first line with lab, student, partner"),
        ("lab,student,partner\nlab99,ada,bo\n", "line 2: there is no lab 'lab99'"),
        (f"lab,student,partner\n{LAB},ada,\n", "line 2: a pair has two students"),
        (f"lab,student,partner,counts\n{LAB},ada,bo,cy\n", "line 2: cy is neither of the two"),
        ("\udcff", "can't be read"),
    ],
)
def test_a_file_that_is_no_list_of_pairs_changes_nothing(course, text, said):
    course.submit("ada", course.answers())
    (course.root / "autograder" / "pairs.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(PairsError, match=said):
        settle(course.root, LAB)
    for command in ("pairs", "grade"):
        done = allranks(course, command)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


def test_declared_pairs_need_both_and_the_teachers_leave(course):
    course.submit("ada", with_partner(course, "bo"))
    course.submit("bo", with_partner(course, "ada", answered=False))
    assert told(course) == "" and shared(course.root, LAB) == {}
    with open(course.root / "autograder" / "nbgrader_config.py", "a", encoding="utf-8") as config:
        config.write(DECLARED)
    assert "ada and bo: ada's work counts; the other notebook has no answers." in told(course)
    assert told(course).count("\n") == 0, "and it is still so the second time"
    course.submit("cy", with_partner(course, "ada"))
    course.submit("di", with_partner(course, "hal"))
    course.submit("ed", with_partner(course, "edd"))
    course.submit("flo", with_partner(course, "gus"))
    course.submit("gus", course.answers())
    assert told(course).splitlines()[:4] == [
        "cy names ada, but ada names bo: no pair.",
        "di names hal, who has handed in nothing: both hand in, or you put the pair into pairs.csv.",
        "ed names edd, who is not in the gradebook: is the name spelt as the course spells it?",
        "flo names gus, but gus names nobody: no pair.",
    ]
    pair_up(course, f"{LAB},ada,hal")
    found = settle(course.root, LAB)
    assert found.shared == {"hal": "ada"}, "the teacher's file comes first"
    assert "bo names ada, who is in a pair of pairs.csv: no pair." in found.told


def test_a_name_is_read_and_nothing_is_run():
    cells = [
        "%pip install x\npartner = 'no'",
        "def f(:\n  partner",
        "partner = open('/etc/passwd').read()",
        "partner = ' bo '",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    assert declared_in(notebook) == "bo"
    assert declared_in(nbformat.v4.new_notebook()) == ""


def test_a_link_in_the_place_of_a_work_is_not_shared(course):
    folder = course.submission("ada").parent
    folder.rmdir()
    Path(folder).symlink_to(course.root / "solutions" / LAB)
    pair_up(course, f"{LAB},ada,bo")
    assert told(course) == "ada and bo have handed in nothing." and handed_in(course, "bo") is None
    assert any(is_answer(cell) for cell in course.notebook("solutions").cells)
    assert cell_of(course.notebook("labs"), "when_not_a_ring").cell_type == "markdown"

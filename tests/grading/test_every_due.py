"""Every submission gets its due: what an editor, a habit or a mishap does to a notebook costs no points, and what costs some is said.

One class with a student for each case, by the real `allranks grade` and the real `nbgrader generate_feedback`.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from classes import ANSWER, allranks, enter
from grading_course import LAB, NOTEBOOK, Course, cell_of, make_course
from nbgrader.api import Gradebook

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(900)]
WORDS = "when_not_a_ring"
FULL = 13.0  # what the machine gives
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]{2,}")


def as_json(course: Course) -> dict:
    """The notebook with all answers, as JSON that a test may break."""
    return json.loads(nbformat.writes(course.answers(lambda name, right: ANSWER if name == WORDS else right)))


def odd_ids(book: dict) -> None:
    """Ids that nbformat refuses: too long, with blanks, twice the same, none."""
    book["nbformat_minor"] = 5
    for number, cell in enumerate(book["cells"]):
        cell["id"] = ("not an id!", "x" * 200, "twice", "twice", 7)[number % 5]


def long_outputs(book: dict) -> None:
    """More than the 16 MiB that a notebook may have without its outputs."""
    cell = next(cell for cell in book["cells"] if cell["cell_type"] == "code")
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * (20 << 20)}]


def no_imports(book: dict) -> None:
    """The locked cell with the imports was deleted."""
    book["cells"] = [c for c in book["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") != "imports"]


def words_beside(book: dict) -> None:
    """The answer in words stands in a cell of the student's own, and the one for it is as released or gone."""
    place = next(n for n, c in enumerate(book["cells"]) if c["metadata"].get("nbgrader", {}).get("grade_id") == WORDS)
    book["cells"][place] = {"cell_type": "markdown", "metadata": {}, "source": "My own cell: 9 rounds, so no ring."}


def no_outputs(book: dict) -> None:
    """Code cells without outputs and execution_count, as some programs save them."""
    for cell in book["cells"]:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)


def other_function(book: dict) -> None:
    """A function with another name than the exercise's."""
    for cell in book["cells"]:
        text = "".join(cell["source"])
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "distributed_mean":
            cell["source"] = text.replace("def distributed_mean", "def my_mean")


CASES: dict[str, Callable[[dict], None]] = {
    "ids": odd_ids,
    "outputs": long_outputs,
    "imports": no_imports,
    "words": words_beside,
    "bare": no_outputs,
    "named": other_function,
    "honest": lambda book: None,
}


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> tuple[Course, dict[str, dict], str]:
    """The course after grading and feedback, the grader's row of each student, and what feedback said."""
    course = make_course(tmp_path_factory.mktemp("due") / "course")
    enter(course, {name: ("", "", "") for name in (*CASES, "renamed", "packed", "absent")})
    for student, change in CASES.items():
        book = as_json(course)
        change(book)
        course.submission(student).write_text(json.dumps(book), encoding="utf-8")
    book = as_json(course)
    course.submission("renamed").with_name("all_reduce (1).ipynb").write_text(json.dumps(book), encoding="utf-8")
    for name in ("stranger", "Honest"):  # not in the gradebook
        course.submission(name).write_text(json.dumps(as_json(course)), encoding="utf-8")
    course.submission("packed").with_name("lab.zip").write_bytes(b"PK")
    beside = course.submission("honest").parent
    for name in ("all_reduce-Copy1.ipynb", "old/mean.py", "data.csv", ".ipynb_checkpoints/all_reduce-checkpoint.ipynb"):
        (beside / name).parent.mkdir(exist_ok=True)
        (beside / name).write_text("{}", encoding="utf-8")
    done = allranks(course, "grade", "--json")
    assert done.returncode == 1, done.stderr  # two could not be graded
    rows = {row["student"]: row for row in json.loads(done.stdout)["students"]}
    said = course.nbgrader("generate_feedback", LAB)
    return course, rows, said.stdout


def page_of(course: Course, student: str) -> str:
    path = course.root / "autograder" / "feedback" / student / LAB / f"{NOTEBOOK}.html"
    text = re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", path.read_text(encoding="utf-8"), flags=re.S)
    return html.unescape(text)


@pytest.mark.parametrize("student", ["ids", "outputs", "imports", "words", "bare", "honest"])
def test_a_mishap_costs_nothing(told, student):
    assert told[1][student]["score"] == FULL, told[1][student]
    assert "of 15 points" in " ".join(page_of(told[0], student).split())


def test_words_in_ones_own_cell_wait_to_be_read(told):
    with Gradebook(f"sqlite:///{told[0].root / 'autograder' / 'gradebook.db'}") as book:
        waiting = [s for s in CASES if book.find_grade(WORDS, NOTEBOOK, LAB, s).needs_manual_grade]
    assert waiting == list(CASES)
    assert "My own cell: 9 rounds" in cell_of(told[0].graded("words"), WORDS).source
    assert any("the words beside it are taken" in incident["what"] for incident in told[1]["words"]["incidents"])


def test_what_was_put_back_is_said_to_the_teacher(told):
    assert any(
        "the locked cell imports was deleted" in incident["what"] for incident in told[1]["imports"]["incidents"]
    )
    assert not told[1]["bare"]["incidents"]


def test_work_that_nobody_reads_is_named(told):
    found = [(incident["kind"], incident["what"]) for incident in told[1]["honest"]["incidents"]]
    assert found == [("beside", "all_reduce-Copy1.ipynb"), ("beside", "old/mean.py")]
    assert "There is lab.zip:" in told[1]["packed"]["reason"]


def test_who_is_not_in_the_class_list_is_named(told):
    new = {name: [one["what"] for one in row["incidents"] if one["kind"] == "new"] for name, row in told[1].items()}
    assert new.pop("stranger") == ["nobody has this name"] and new.pop("Honest") == ["honest is another student"]
    assert not any(new.values())


def test_a_renamed_notebook_is_named_with_what_to_do(told):
    row = told[1]["renamed"]
    assert row["score"] is None
    assert "There is all_reduce (1).ipynb: a notebook must keep its name." in row["reason"]
    assert f"There is no {NOTEBOOK}.ipynb in what was handed in" in page_of(told[0], "renamed")


def test_feedback_names_no_option_or_command_that_students_do_not_have(told):
    course = told[0]
    pages = {
        path.parents[1].name: page_of(course, path.parents[1].name)
        for path in Path(course.root).glob("autograder/feedback/*/*/*.html")
    }
    assert set(pages) == {*CASES, "renamed", "packed", "stranger", "Honest"}
    mine = {
        student: page.partition("Lab 3: all-reduce")[0] for student, page in pages.items()
    }  # above the notebook itself
    named = " ".join(mine["named"].split())
    assert (
        "has no function distributed_mean: it defines" in named
        and "Name your function distributed_mean. Your code" in named
    )
    for student, page in mine.items():
        assert not OPTION.findall(page) and "allranks grade" not in page and "nbgrader" not in page, student


@pytest.mark.parametrize("options", [["canvas"], ["canvas", "--sum"], ["moodle", "--sum", "--zero-missing"]])
def test_a_sum_counts_no_answer_as_0_that_nobody_has_read(told, tmp_path, options):
    file = tmp_path / "points.csv"
    done = allranks(told[0], "export", *options, "-o", str(file))
    lines = file.read_text(encoding="utf-8").splitlines()
    (absent,) = [line for line in lines if "absent" in line]
    (honest,) = [line for line in lines if "honest" in line]
    assert done.returncode == 0 and f"{len(CASES) + 2} answers to {WORDS} are not marked yet" in done.stderr
    assert "outputs" in next(line for line in done.stderr.splitlines() if WORDS in line), "whose answers wait"
    (without,) = [line for line in done.stderr.splitlines() if "not graded, so without points" in line]
    assert "packed" in without and "renamed" in without and "honest" not in without
    assert honest.endswith(",") and absent.endswith(",0" if "--zero-missing" in options else ",")


def test_nbgraders_export_says_whose_0_is_no_mark(told, tmp_path):
    said = told[0].nbgrader("export", "--to", str(tmp_path / "all.csv"))
    assert said.returncode == 0 and "renamed was not graded: the score 0 in the file is no mark." in said.stdout
    assert "absent was not graded" not in said.stdout and "honest was not graded" not in said.stdout

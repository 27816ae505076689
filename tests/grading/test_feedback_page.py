"""A student's page as `nbgrader generate_feedback` writes it, opened in a browser without a network."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from grading_course import LAB, NOTEBOOK, Course, is_answer
from nbgrader.api import Gradebook

from autograder.formulas import MAX_CHARACTERS, formula
from autograder.safe_prose import markdown2html

pytestmark = pytest.mark.notebooks
OWN_LINE = "dist.all_reduce(total)"


@pytest.fixture(scope="module")
def page(small_class, tmp_path_factory) -> Path:
    """The page of one whose answer in words was read, and of one whose was not: (marked, not marked)."""
    course = Course(tmp_path_factory.mktemp("feedback") / "course")
    shutil.copytree(small_class.course.root, course.root)
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        grade = book.find_grade("when_not_a_ring", NOTEBOOK, LAB, "bo")
        grade.manual_score, grade.needs_manual_grade = 1.5, False
        book.db.commit()
    for student in ("bo", "ed"):
        said = course.nbgrader("generate_feedback", LAB, "--student", student)
        assert said.returncode == 0, said.stdout
    return course.root / "autograder" / "feedback"


def text_of(page: Path, student: str) -> str:
    return (page / student / LAB / f"{NOTEBOOK}.html").read_text(encoding="utf-8")


def test_an_answer_that_nobody_read_is_not_marked_yet(page):
    waiting, marked = text_of(page, "ed"), text_of(page, "bo")
    assert "not marked yet, 2" in waiting and "2 of them not marked yet" in waiting
    assert "0.0 / 2.0" not in waiting
    assert "not marked yet" not in marked and "1.5 of 2" in marked


def test_each_exercise_has_its_own_code(small_class, page):
    top = text_of(page, "ed").partition("Lab 3: all-reduce")[0]
    answers = [cell for cell in small_class.course.graded("ed").cells if is_answer(cell) and cell.cell_type == "code"]
    assert top.count("<summary>Your code</summary>") == len(answers) == 3
    bare = re.sub(r"<[^>]+>", "", top)
    assert OWN_LINE in bare


@pytest.mark.browser
def test_the_page_needs_no_network(page, new_page):
    opened = new_page(offline=True)
    asked: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto((page / "ed" / LAB / f"{NOTEBOOK}.html").as_uri())
    formulas = opened.locator("img.formula")
    assert formulas.count() > 10
    widths = formulas.evaluate_all("all => all.map(one => one.naturalWidth)")
    assert all(widths), "each formula is drawn"
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert opened.locator("table td").first.evaluate("one => getComputedStyle(one).paddingLeft") != "0px"


@pytest.mark.parametrize("tex", [r"2\frac{p-1}{p}n", r"(r-k) \bmod p", r"\lceil \lg p \rceil", r"v = \text{src}"])
def test_the_labs_formulas_are_drawn(tex):
    assert formula(tex).startswith("<img")


@pytest.mark.parametrize(
    "tex", [r"\frac{", r"\begin{matrix}1\end{matrix}", "x" * (MAX_CHARACTERS + 1), r"a\$b$c", "{" * 400]
)
def test_what_can_not_be_drawn_is_shown_as_typed(tex):
    assert formula(tex).startswith("<code>")


def test_a_formula_is_escaped_and_no_other_picture_gets_through():
    shown = markdown2html('$<b>"x$ and ![x](data:text/html;base64,AAAA) and [y](data:image/svg+xml;base64,AAAA)')
    assert "<b>" not in shown and "href" not in shown and "<img" not in shown

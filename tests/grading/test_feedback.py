"""From a verdict to the points that nbgrader records, and to what a student reads."""

from __future__ import annotations

import nbformat
import pytest
from nbgrader.utils import determine_grade

from autograder.feedback import as_html, as_text, outputs_for, points_for
from autograder.feedback_page import FeedbackTop


def verdict(score: float, passed: bool = False, **more) -> dict:
    return {"exercise": "ring_all_reduce", "passed": passed, "score": score, "cases": [], "reason": "", **more}


def graded_cell(outputs: list) -> nbformat.NotebookNode:
    about = {"grade": True, "solution": False, "grade_id": "x", "points": 6, "locked": True, "task": False}
    return nbformat.v4.new_code_cell("x", metadata={"nbgrader": about}, outputs=outputs)


@pytest.mark.parametrize(
    ("score", "passed", "points"),
    [(1.0, True, 6.0), (0.0, False, 0.0), (0.5, False, 3.0), (0.123456, False, 0.74), (0.9999, False, 5.99)],
)
def test_nbgrader_records_the_share(score, passed, points):
    found = verdict(score, passed)
    assert points_for(found, 6) == points
    assert determine_grade(graded_cell(outputs_for(found, 6))) == (points, 6)


@pytest.mark.parametrize("score", [7.0, -1.0, 1.0])
def test_a_score_out_of_range_earns_no_more_than_it_may(score):
    assert 0 <= points_for(verdict(score), 6) < 6


def test_what_a_submission_says_is_escaped():
    cases = [{"name": "<b>3 ranks</b>", "passed": False, "reason": "<script>alert(1)</script>"}]
    shown = as_html(verdict(0.2, cases=cases, reason="<img src=x onerror=f()>", svg="<svg onload='f()'></svg>"), 1.2, 6)
    for forbidden in ("<script", "<b>", "onerror=f()>", "<svg"):
        assert forbidden not in shown
    assert "&lt;script&gt;" in shown and "1.2 of 6 points" in shown


def test_each_case_is_told_with_its_reason():
    cases = [
        {"name": "4 ranks, 12 elements", "passed": True, "reason": ""},
        {"name": "3 ranks, 5 elements", "passed": False, "reason": "rank 1 lacks what rank 2 had"},
    ]
    text = as_text(verdict(0.5, cases=cases, reason="only right where p divides the size"))
    assert text.splitlines() == [
        "ring_all_reduce: not passed (1 of 2 cases).",
        "only right where p divides the size",
        "pass  4 ranks, 12 elements",
        "FAIL  3 ranks, 5 elements",
        "      rank 1 lacks what rank 2 had",
    ]


def test_a_flood_of_words_is_cut():
    assert len(as_html(verdict(0, reason="x" * 10**6), 0, 6)) < 10_000


def test_the_top_of_the_page_has_the_parts_in_their_order():
    cases = [{"name": "3 ranks", "passed": False, "reason": "rank 1 lacks what rank 2 had"}]
    told = verdict(0.5, cases=cases, reason="<b>rank 0 sends too much")
    cells = [graded_cell(outputs_for(told, 6)), graded_cell(outputs_for(verdict(1.0, True), 6))]
    cells[0].metadata.nbgrader.score, cells[1].metadata.nbgrader.score = 3.0, 6.0
    words = nbformat.v4.new_markdown_cell(
        "x", metadata={"nbgrader": dict(cells[0].metadata.nbgrader, grade_id="in_words")}
    )
    nb = nbformat.v4.new_notebook(cells=[*cells, words])
    nb, _ = FeedbackTop().preprocess(nb, {"nbgrader": {"score": 9.5, "max_score": 12}})
    shown = nb.cells[0].outputs[0].data["text/html"]
    order = [
        "<strong>9.5</strong> of 12 points",
        "The one thing to look at",
        "rank 1 lacks",
        "Exercise by exercise",
        "in words",
    ]
    places = [shown.index(part) for part in order[:-1]] + [shown.rindex(order[-1])]
    assert places == sorted(places)
    assert "<b>rank" not in shown and "&lt;b&gt;rank 0 sends too much" in shown
    assert shown.count("rank 1 lacks what rank 2 had") == 1, "the one thing is not told twice"
    assert not nb.cells[1].outputs, "the cards stand at the top only"
    assert nb.cells[0].metadata["transient"]["remove_source"]


def test_a_page_without_points_is_left_as_it_is():
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("x")])
    assert len(FeedbackTop().preprocess(nb, {"nbgrader": {}})[0].cells) == 1

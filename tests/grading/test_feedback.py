"""From a verdict to the points that nbgrader records, and to what a student reads."""

from __future__ import annotations

import nbformat
import pytest
from nbgrader.utils import determine_grade

from autograder.feedback import as_html, as_text, outputs_for, points_for


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

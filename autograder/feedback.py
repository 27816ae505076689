"""Turns a verdict into the outputs of a graded cell: the feedback for the student, and the points for nbgrader."""

from __future__ import annotations

import base64

import nbformat
from allranks.judge.card import card, cases_of, short, told_of, variant_of
from allranks.judge.verdict import points_of
from nbformat import NotebookNode


def points_for(verdict: dict, max_points: float) -> float:
    """The points for a verdict, to two decimals: in proportion to the score, all of them only if all cases passed."""
    return points_of(verdict["score"], verdict["passed"], max_points)


def outputs_for(verdict: dict, max_points: float) -> list[NotebookNode]:
    """Two outputs: a display of every case, then the points, a plain number as the result of the cell, for nbgrader.

    All text is escaped, because a submission chooses some of it (the messages of its exceptions), and an instructor
    reads it in a browser that can change the gradebook.
    """
    points = points_for(verdict, max_points)
    data = {"text/html": as_html(verdict, points, max_points), "text/plain": as_text(verdict)}
    shown = nbformat.v4.new_output("display_data", data=data, metadata={"allranks": summary_of(verdict)})
    number = nbformat.v4.new_output("execute_result", data={"text/plain": repr(points)}, execution_count=1)
    return [shown, number]


def summary_of(verdict: dict) -> dict:
    """What the overview of a class needs of a verdict, as data: no text of the student's own."""
    cases = [case for case in cases_of(verdict) if case["judged"]]
    failed = [[case["group"], case["name"]] for case in cases if not case["passed"]]
    variant = verdict.get("variant") or {}
    return {
        "exercise": verdict["exercise"],
        **({"variant": variant["brief"]} if variant else {}),
        "passed": bool(verdict["passed"]),
        "mistake": verdict.get("mistake", ""),
        "cases": len(cases),
        "failed": failed,
    }


def as_text(verdict: dict) -> str:
    """The verdict in lines of plain text."""
    lines = [_headline(verdict)]
    lines += [f"{'Cause: ' if kind == 'cause' else ''}{short(words)}" for kind, words in told_of(verdict)]
    lines += ["  ".join(row) for row in ([] if verdict["passed"] else verdict.get("rows", ()))]
    for case in cases_of(verdict):
        mark = "pass" if case["passed"] else "FAIL" if case["judged"] else "----"
        lines.append(f"{mark}  {case['name']}")
        if case["why"]:
            lines.append(f"      {short(case['why'])}")
    lines += variant_of(verdict)
    return "\n".join(lines)


def as_html(verdict: dict, points: float, max_points: float) -> str:
    """The verdict's card, as the notebook shows it, with points in place of the share."""
    picture = ""
    if verdict.get("svg"):
        # as an image, so that the browser runs no script in it
        data = base64.b64encode(verdict["svg"].encode()).decode()
        picture = f'<img alt="what the ranks did" src="data:image/svg+xml;base64,{data}"/>'
    return card(verdict, points=f"{points:g} of {max_points:g} points", picture=picture)


def _headline(verdict: dict) -> str:
    cases = cases_of(verdict)
    count = (
        f" ({sum(case['passed'] for case in cases)} of {sum(case['judged'] for case in cases)} cases)" if cases else ""
    )
    return f"{verdict['exercise']}: {'passed' if verdict['passed'] else 'not passed'}{count}."

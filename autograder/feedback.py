"""Turns a verdict into the outputs of a graded cell: the feedback for the student, and the points for nbgrader."""

from __future__ import annotations

import base64
import html

import nbformat
from nbformat import NotebookNode

MAX_CHARACTERS = 2000
STYLE = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


def points_for(verdict: dict, max_points: float) -> float:
    """The points for a verdict, to two decimals: in proportion to the score, all of them only if all cases passed."""
    if verdict["passed"]:
        return float(max_points)
    share = min(max(float(verdict["score"]), 0.0), 1.0)
    return min(round(share * max_points, 2), max(0.0, float(max_points) - 0.01))


def outputs_for(verdict: dict, max_points: float) -> list[NotebookNode]:
    """Two outputs: a display of every case, then the points, a plain number as the result of the cell, for nbgrader.

    All text is escaped, because a submission chooses some of it (the messages of its exceptions), and an instructor
    reads it in a browser that can change the gradebook.
    """
    points = points_for(verdict, max_points)
    shown = nbformat.v4.new_output(
        "display_data", data={"text/html": as_html(verdict, points, max_points), "text/plain": as_text(verdict)}
    )
    number = nbformat.v4.new_output("execute_result", data={"text/plain": repr(points)}, execution_count=1)
    return [shown, number]


def as_text(verdict: dict) -> str:
    """The verdict in lines of plain text."""
    lines = [_headline(verdict)]
    if verdict.get("reason") and not verdict["passed"]:
        lines.append(_short(verdict["reason"]))
    for case, why in _cases(verdict):
        lines.append(f"{'pass' if case['passed'] else 'FAIL'}  {case['name']}")
        if why:
            lines.append(f"      {_short(why)}")
    return "\n".join(lines)


def as_html(verdict: dict, points: float, max_points: float) -> str:
    """The verdict as a table with one row for each case, and a picture of what went wrong, if there is one."""
    parts = [f"<p><strong>{html.escape(_headline(verdict))}</strong> {points:g} of {max_points:g} points.</p>"]
    if verdict.get("reason") and not verdict["passed"]:
        parts.append(f"<p>{_escaped(verdict['reason'])}</p>")
    if verdict.get("svg"):
        # as an image, so that the browser runs no script in it
        data = base64.b64encode(verdict["svg"].encode()).decode()
        parts.append(f'<p><img alt="what the ranks did" src="data:image/svg+xml;base64,{data}"/></p>')
    if verdict["cases"]:
        rows = "".join(
            f'<tr><td style="{STYLE}">{"&#10003;" if case["passed"] else "&#10007;"}</td>'
            f'<td style="{STYLE}">{_escaped(case["name"])}</td>'
            f'<td style="{STYLE}">{_escaped(why)}</td></tr>'
            for case, why in _cases(verdict)
        )
        parts.append(f"<table><tbody>{rows}</tbody></table>")
    return "\n".join(parts)


def _cases(verdict: dict) -> list[tuple[dict, str]]:
    """Each case and its reason; "" if the case passed, or has no reason."""
    found = iter(verdict.get("already_said", ()))  # for the failed cases
    return [(c, "" if c["passed"] else next(found, "") or c.get("reason") or "") for c in verdict["cases"]]


def _headline(verdict: dict) -> str:
    cases = verdict["cases"]
    count = f" ({sum(case['passed'] for case in cases)} of {len(cases)} cases)" if cases else ""
    return f"{verdict['exercise']}: {'passed' if verdict['passed'] else 'not passed'}{count}."


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + " ..."


def _escaped(text: str) -> str:
    return html.escape(_short(str(text))).replace("\n", "<br/>")

"""Turns a verdict into the outputs of a graded cell: the feedback for the student, and the points for nbgrader."""

from __future__ import annotations

import base64
import html

import nbformat
from nbformat import NotebookNode

MAX_CHARACTERS = 2000
MARKS = {"pass": "&#10003;", "FAIL": "&#10007;", "----": "&ndash;"}
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
    lines += [f"{'Cause: ' if kind == 'cause' else ''}{_short(words)}" for kind, words in _told(verdict)]
    lines += ["  ".join(row) for row in _table(verdict)]
    for case, why, mark in _cases(verdict):
        lines.append(f"{mark}  {case['name']}")
        if why:
            lines.append(f"      {_short(why)}")
    return "\n".join(lines)


def as_html(verdict: dict, points: float, max_points: float) -> str:
    """The verdict as a table with one row for each case, and a picture of what went wrong, if there is one."""
    parts = [f"<p><strong>{html.escape(_headline(verdict))}</strong> {points:g} of {max_points:g} points.</p>"]
    for kind, words in _told(verdict):
        parts.append(f"<p>{'<b>Cause:</b> ' if kind == 'cause' else ''}{_escaped(words)}</p>")
    if _table(verdict):
        lines = "".join(
            "<tr>" + "".join(f"<td>{_escaped(cell)}</td>" for cell in row) + "</tr>" for row in _table(verdict)
        )
        parts.append(f"<table><caption>Without a partner</caption><tbody>{lines}</tbody></table>")
    if verdict.get("svg"):
        # as an image, so that the browser runs no script in it
        data = base64.b64encode(verdict["svg"].encode()).decode()
        parts.append(f'<p><img alt="what the ranks did" src="data:image/svg+xml;base64,{data}"/></p>')
    if verdict["cases"]:
        rows = "".join(
            f'<tr><td style="{STYLE}">{MARKS[mark]}</td>'
            f'<td style="{STYLE}">{_escaped(case["name"])}</td>'
            f'<td style="{STYLE}">{_escaped(why)}</td></tr>'
            for case, why, mark in _cases(verdict)
        )
        parts.append(f"<table><tbody>{rows}</tbody></table>")
    return "\n".join(parts)


def _told(verdict: dict) -> list[tuple[str, str]]:
    """What was seen, a question and the cause, (kind, words); or the reason as a whole."""
    if verdict["passed"]:
        return []
    whole = [("reason", verdict["reason"])] if verdict.get("reason") else []
    return [(kind, words) for kind, words in verdict.get("told") or whole]


def _table(verdict: dict) -> list[list[str]]:
    """The messages that found no partner."""
    return [] if verdict["passed"] else [list(row) for row in verdict.get("rows", ())]


def _cases(verdict: dict) -> list[tuple[dict, str, str]]:
    """Each case, its reason ("" if it passed, or has none), and its mark in a text."""
    found = iter(verdict.get("already_said", ()))  # for the failed cases
    judged = verdict.get("judged") or [True] * len(verdict["cases"])
    told = []
    for case, is_judged in zip(verdict["cases"], judged, strict=True):
        why = "" if case["passed"] else next(found, "") or case.get("reason") or ""
        told.append((case, why, "pass" if case["passed"] else "FAIL" if is_judged else "----"))
    return told


def _headline(verdict: dict) -> str:
    cases = verdict["cases"]
    count = (
        f" ({sum(case['passed'] for case in cases)} of {sum(verdict.get('judged') or [True] * len(cases))} cases)"
        if cases
        else ""
    )
    return f"{verdict['exercise']}: {'passed' if verdict['passed'] else 'not passed'}{count}."


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + " ..."


def _escaped(text: str) -> str:
    return html.escape(_short(str(text))).replace("\n", "<br/>")

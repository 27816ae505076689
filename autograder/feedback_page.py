"""The top of a student's feedback page: the score as a bar, the one thing to look at, and every exercise, folded.

`nbgrader_config.py` adds `FeedbackTop` to `nbgrader generate_feedback`, behind the step that reads the grades. It changes what
the page shows, never a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.preprocessors import NbGraderPreprocessor

from autograder.pages import page
from autograder.pairs import partner
from autograder.regrades import entries
from autograder.showing import highlight_code
from autograder.trusted import coursedir_of


class FeedbackExporter(HTMLExporter):
    """nbgrader's exporter of feedback pages, under a name of its own: `nbgrader_config.py` gives it another template than formgrader's."""


@dataclass(frozen=True)
class Part:
    """One graded cell: its name, its points, and of an exercise its card, its cause in a line and the student's code, as HTML.

    An answer that `waits` was not marked yet.
    """

    name: str
    score: float
    points: float
    shown: str = ""
    cause: str = ""
    code: str = ""
    waits: bool = False

    @property
    def lost(self) -> float:
        """The points that it did not get."""
        return 0.0 if self.waits else max(0.0, self.points - self.score)

    @property
    def told(self) -> str:
        """The points in words."""
        return f"not marked yet, {self.points:g}" if self.waits else f"{self.score:g} of {self.points:g}"


class FeedbackTop(NbGraderPreprocessor):
    """Puts the score, the one thing to look at and the exercises before the notebook; the cards move there from their cells."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook with a first cell that holds all this; unchanged if nothing in it is graded."""
        waiting, handed_in = _from_gradebook(resources["nbgrader"])
        code = {}
        for cell in nb.cells:
            about = cell.metadata.get("nbgrader", {})
            if about.get("grade_id") in waiting:
                about["waits"] = True
            if cell.cell_type == "code" and about.get("solution"):
                code[about["grade_id"]] = cell.source
        parts = [_part(cell, code) for cell in nb.cells if _has_points(cell)]
        parts.sort(key=lambda part: not part.shown)  # answers in words come last
        if parts:
            for cell in nb.cells:
                if cell.cell_type == "code" and _has_points(cell):
                    cell.outputs = []
            about = resources["nbgrader"]
            if "student" in about:
                other = partner(Path(coursedir_of(self).root), about["assignment"], about["student"])
                handed_in = ", ".join(filter(None, (handed_in, f"with {other}" if other else "")))
            score, most = float(about.get("score") or 0), float(about.get("max_score") or 0)
            shown = top_html(parts, score, most, handed_in, self._regraded(about))
            output = nbformat.v4.new_output("display_data", data={"text/html": shown})
            first = nbformat.v4.new_code_cell("", outputs=[output])
            first.metadata["transient"] = {"remove_source": True}
            nb.cells.insert(0, first)
        return nb, resources

    def _regraded(self, about: dict) -> dict[str, Any] | None:
        """What was done about this student's last request to mark again; None if nothing was."""
        if "assignment" not in about:
            return None
        done = entries(Path(coursedir_of(self).root), about["assignment"], about.get("student"))
        return done[-1] if done else None


def _has_points(cell: NotebookNode) -> bool:
    about = cell.metadata.get("nbgrader", {})
    return bool(about.get("grade") or about.get("task")) and bool(about.get("points"))


def _from_gradebook(about: dict) -> tuple[set[str], str]:
    """The cells of this notebook that a person must still read, and when it was handed in, in words."""
    if "db_url" not in about:
        return set(), ""
    with Gradebook(about["db_url"]) as gradebook:
        try:
            found = gradebook.find_submission_notebook(about["notebook"], about["assignment"], about["student"])
        except MissingEntry:
            return set(), ""
        when = found.assignment.timestamp
        waiting = {grade.name for grade in found.grades if grade.needs_manual_grade and grade.manual_score is None}
    return waiting, f"handed in {when:%Y-%m-%d %H:%M} UTC" if when else ""


def _part(cell: NotebookNode, code: dict[str, str]) -> Part:
    about = cell.metadata.nbgrader
    shown: dict = next((o for o in cell.get("outputs", ()) if "text/html" in o.get("data", {})), {})
    data = shown.get("data", {})
    words = data.get("text/plain", "").split("\n")
    head = words[0].partition(":")[0]
    cause = words[1] if shown.get("metadata", {}).get("allranks", {}).get("told") else ""
    score = float(about.get("score") or 0)
    # a machine's mark that waits for a second look has points already
    waits = bool(about.get("waits")) and cell.cell_type != "code"
    return Part(
        head or str(about["grade_id"]).replace("_", " "),
        score,
        float(about["points"]),
        data.get("text/html", ""),
        cause,
        highlight_code(code[head]) if code.get(head) else "",
        waits,
    )


def top_html(
    parts: list[Part], score: float, most: float, handed_in: str = "", again: dict[str, Any] | None = None
) -> str:
    """The HTML of the page's top. All names and causes are escaped; the cards are the grader's own.

    `again` is what was done about a request to mark again (`regrades.entries`).

    >>> "8.5" in top_html([Part("distributed_mean", 8.5, 10)], 8.5, 10)
    True
    """
    return page(
        "feedback_top.html.j2",
        parts=parts,
        worst=max((part for part in parts if part.shown and part.lost), key=lambda part: part.lost, default=None),
        score=score,
        most=most,
        waits=sum(part.points for part in parts if part.waits),
        handed_in=handed_in,
        again=again,
    )

"""The top of a student's feedback page: the score as a bar, the one thing to look at, and every exercise, folded.

`nbgrader_config.py` adds `FeedbackTop` to `nbgrader generate_feedback`, behind the step that reads the grades. It changes what
the page shows, never a file.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

import nbformat
from allranks.base.theme import style
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.preprocessors import NbGraderPreprocessor

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
            shown = top_html(parts, float(about.get("score") or 0), float(about.get("max_score") or 0), handed_in)
            shown += self._regraded(about)
            output = nbformat.v4.new_output("display_data", data={"text/html": shown})
            first = nbformat.v4.new_code_cell("", outputs=[output])
            first.metadata["transient"] = {"remove_source": True}
            nb.cells.insert(0, first)
        return nb, resources

    def _regraded(self, about: dict) -> str:
        """What was done about this student's last request to mark again, as HTML; "" if nothing was."""
        if "assignment" not in about:
            return ""
        done = entries(Path(coursedir_of(self).root), about["assignment"], about.get("student"))
        if not done:
            return ""
        last = done[-1]
        changed = "; ".join(last["changes"]) or "nothing changes"
        answer = f"<br>{html.escape(last['answer'])}" if last["answer"] else ""
        return (
            f'<p class="ar-theme"><b>Marked again</b> on {html.escape(last["when"][:10])}: {last["before"]:g} points before, '
            f"{last['after']:g} after. {html.escape(changed)}.{answer}</p>"
        )


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
    data: dict = next((o.data for o in cell.get("outputs", ()) if "text/html" in o.get("data", {})), {})
    words = data.get("text/plain", "").split("\n")
    head = words[0].partition(":")[0]
    cause = words[1] if len(words) > 1 and not words[1].startswith(("pass  ", "FAIL  ", "----  ")) else ""
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


def top_html(parts: list[Part], score: float, most: float, handed_in: str = "") -> str:
    """The HTML of the page's top. All names and causes are escaped; the cards are the grader's own.

    >>> "8.5" in top_html([Part("distributed_mean", 8.5, 10)], 8.5, 10)
    True
    """
    bars = "".join(map(_bar, parts))
    worst = max((part for part in parts if part.shown and part.lost), key=lambda part: part.lost, default=None)
    one = f"<h4>The one thing to look at</h4>{worst.shown}{_code(worst)}" if worst else ""
    waits = sum(part.points for part in parts if part.waits)
    later = f"<small>{waits:g} of them not marked yet</small>" if waits else ""
    when = f"<small>{html.escape(handed_in)}</small>" if handed_in else ""
    rows = "".join(_row(part, part is worst) for part in parts)
    return (
        f'{style()}{_STYLE}<div class="ar-theme ar-feedback"><div class="marks"><p><strong>{score:g}</strong> of {most:g} points{later}{when}</p>'
        f'<div class="bars">{bars}</div></div>{one}<h4>Exercise by exercise</h4>{rows}</div>'
    )


def _bar(part: Part) -> str:
    kind, rest = ("waits", part.points - part.score) if part.waits else ("lost", part.lost)
    return (
        f'<div style="flex:{part.points:g} 1 0"><strong>{html.escape(part.name)}</strong><div class="bar">'
        f'<i style="flex:{part.score:g}"></i><i class="{kind}" style="flex:{rest:g}"></i></div>'
        f"<small>{part.told}</small></div>"
    )


def _row(part: Part, is_above: bool) -> str:
    mark = "…" if part.waits else "✓" if not part.lost else "✗" if not part.score else "◐"
    cause = "as above" if is_above else html.escape(part.cause[:160])
    line = f"<b>{mark}</b><code>{html.escape(part.name)}</code><span>{part.told}</span><small>{cause}</small>"
    if is_above or not part.shown:
        return f'<div class="row">{line}</div>'
    return f'<details><summary class="row">{line}</summary>{part.shown}{_code(part)}</details>'


def _code(part: Part) -> str:
    """The student's own answer, folded; the card shows the line at fault."""
    return f'<details class="own"><summary>Your code</summary>{part.code}</details>' if part.code else ""


_STYLE = """<style>
.rendered_html table{border-collapse:collapse;margin:8px 0 12px}
.rendered_html :is(th,td){padding:4px 12px;border-bottom:1px solid #c9d0d8;text-align:left}
.ar-feedback{max-width:1000px;padding:4px 0 16px}
.ar-feedback .marks{display:flex;flex-wrap:wrap;gap:8px 40px;align-items:center;border-bottom:1px solid var(--ar-hair);padding-bottom:12px}
.ar-feedback .marks p{font-size:20px;color:var(--ar-soft);margin:0}
.ar-feedback .marks p strong{font-size:52px;line-height:1;color:var(--ar-ink);margin-right:10px}
.ar-feedback .bars{display:flex;flex-wrap:wrap;gap:8px 3px;flex:1 1 420px;font-size:13px}
.ar-feedback .bars>div{min-width:90px;overflow-wrap:anywhere}
.ar-feedback .bars small{font-size:12px}
.ar-feedback .bar{display:flex;height:24px;margin:4px 0;border-radius:4px;overflow:hidden}
.ar-feedback .bar i{background:var(--ar-ink)}
.ar-feedback .bar i.lost{background:repeating-linear-gradient(135deg,var(--ar-lost) 0 3px,transparent 3px 7px)}
.ar-feedback .bar i.waits{background:var(--ar-hair)}
.ar-feedback .marks p small{display:block;font-size:13px}
.ar-feedback .own summary{cursor:pointer;min-height:30px;margin-top:6px;display:list-item}
.ar-feedback .own pre{background:var(--ar-panel);color:var(--ar-ink);border:0;font:13px/1.5 var(--ar-mono)}
.ar-feedback>h4{font:600 15px var(--ar-font);margin:20px 0 8px;color:var(--ar-ink)}
.ar-feedback .row{display:flex;flex-wrap:wrap;gap:4px 20px;align-items:center;min-height:44px;margin:0 0 8px;padding:4px 16px;
border:1px solid var(--ar-line);border-radius:10px;cursor:default}
.ar-feedback .row::before,.ar-feedback .row::after{display:none}
.ar-feedback summary.row{cursor:pointer}
.ar-feedback .row code{flex:0 0 210px;background:none;color:var(--ar-ink);font:14px var(--ar-mono)}
.ar-feedback .row span{flex:0 0 130px}
.ar-feedback .row small{flex:1 1 200px;color:var(--ar-soft);font-size:13px}
.ar-feedback details[open]{margin-bottom:12px}
</style>"""

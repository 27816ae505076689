"""The top of a student's feedback page: the score as a bar, the one thing to look at, and every exercise, folded.

`nbgrader_config.py` adds `FeedbackTop` to `nbgrader generate_feedback`, behind the step that reads the grades. It changes what
the page shows, never a file.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

import nbformat
from allranks.theme import style
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor


@dataclass(frozen=True)
class Part:
    """One graded cell: its name, its points, and of an exercise its card and its cause in a line."""

    name: str
    score: float
    points: float
    shown: str = ""
    cause: str = ""

    @property
    def lost(self) -> float:
        """The points that it did not get."""
        return max(0.0, self.points - self.score)


class FeedbackTop(NbGraderPreprocessor):
    """Puts the score, the one thing to look at and the exercises before the notebook; the cards move there from their cells."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook with a first cell that holds all this; unchanged if nothing in it is graded."""
        parts = [_part(cell) for cell in nb.cells if _has_points(cell)]
        if parts:
            for cell in nb.cells:
                if cell.cell_type == "code" and _has_points(cell):
                    cell.outputs = []
            about = resources["nbgrader"]
            shown = top_html(parts, float(about.get("score") or 0), float(about.get("max_score") or 0))
            output = nbformat.v4.new_output("display_data", data={"text/html": shown})
            first = nbformat.v4.new_code_cell("", outputs=[output])
            first.metadata["transient"] = {"remove_source": True}
            nb.cells.insert(0, first)
        return nb, resources


def _has_points(cell: NotebookNode) -> bool:
    about = cell.metadata.get("nbgrader", {})
    return bool(about.get("grade") or about.get("task")) and bool(about.get("points"))


def _part(cell: NotebookNode) -> Part:
    about = cell.metadata.nbgrader
    data: dict = next((o.data for o in cell.get("outputs", ()) if "text/html" in o.get("data", {})), {})
    words = data.get("text/plain", "").split("\n")
    head = words[0].partition(":")[0]
    cause = words[1] if len(words) > 1 and not words[1].startswith(("pass  ", "FAIL  ", "----  ")) else ""
    score = float(about.get("score") or 0)
    return Part(
        head or str(about["grade_id"]).replace("_", " "),
        score,
        float(about["points"]),
        data.get("text/html", ""),
        cause,
    )


def top_html(parts: list[Part], score: float, most: float) -> str:
    """The HTML of the page's top. All names and causes are escaped; the cards are the grader's own.

    >>> "8.5" in top_html([Part("distributed_mean", 8.5, 10)], 8.5, 10)
    True
    """
    bars = "".join(
        f'<div style="flex:{part.points:g} 1 0"><strong>{html.escape(part.name)}</strong><div class="bar">'
        f'<i style="flex:{part.score:g}"></i><i class="lost" style="flex:{part.lost:g}"></i></div>'
        f"<small>{part.score:g} of {part.points:g}</small></div>"
        for part in parts
    )
    worst = max((part for part in parts if part.shown and part.lost), key=lambda part: part.lost, default=None)
    one = f"<h4>The one thing to look at</h4>{worst.shown}" if worst else ""
    rows = "".join(_row(part, part is worst) for part in parts)
    return (
        f'{style()}{_STYLE}<div class="ar-theme ar-feedback"><div class="marks"><p><strong>{score:g}</strong> of {most:g} points</p>'
        f'<div class="bars">{bars}</div></div>{one}<h4>Exercise by exercise</h4>{rows}</div>'
    )


def _row(part: Part, is_above: bool) -> str:
    mark = "✓" if not part.lost else "✗" if not part.score else "◐"
    cause = "as above" if is_above else html.escape(part.cause[:160])
    line = f"<b>{mark}</b><code>{html.escape(part.name)}</code><span>{part.score:g} of {part.points:g}</span><small>{cause}</small>"
    if is_above or not part.shown:
        return f'<div class="row">{line}</div>'
    return f'<details><summary class="row">{line}</summary>{part.shown}</details>'


_STYLE = """<style>
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
.ar-feedback>h4{font:600 15px var(--ar-font);margin:20px 0 8px;color:var(--ar-ink)}
.ar-feedback .row{display:flex;flex-wrap:wrap;gap:4px 20px;align-items:center;min-height:44px;margin:0 0 8px;padding:4px 16px;
border:1px solid var(--ar-line);border-radius:10px;cursor:default}
.ar-feedback .row::before,.ar-feedback .row::after{display:none}
.ar-feedback summary.row{cursor:pointer}
.ar-feedback .row code{flex:0 0 210px;background:none;color:var(--ar-ink);font:14px var(--ar-mono)}
.ar-feedback .row span{flex:0 0 90px}
.ar-feedback .row small{flex:1 1 200px;color:var(--ar-soft);font-size:13px}
.ar-feedback details[open]{margin-bottom:12px}
</style>"""

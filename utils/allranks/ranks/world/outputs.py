"""Shows what ranks print: in a notebook, one column for each rank; elsewhere, each line with its rank in front."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WIDEST = 64  # letters: a longer line of a rank is broken at a space
MAX_CHARS = 20_000  # how much text of one rank is shown: a notebook with megabytes of text can't be opened again
WIDGET = "application/vnd.jupyter.widget-view+json"

STYLE = """<style>
.ar-ranks{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,max(11em,var(--ar-letters)*7.3px + 20px)),1fr));gap:6px;margin:2px 0}
.ar-ranks>.ar-rank{border:1px solid var(--jp-border-color2,#bbb);border-radius:4px;overflow:auto}
.ar-ranks>.ar-rank>b{display:block;padding:1px 8px;font:600 12px var(--jp-ui-font-family,sans-serif);color:var(--jp-ui-font-color1,#222);background:var(--jp-layout-color2,#eee)}
.ar-ranks>.ar-rank>b.ar-bad{color:var(--jp-error-color0,#a30000)}
.ar-ranks>.ar-rank pre{margin:0!important;padding:4px 8px!important;white-space:pre-wrap;overflow-wrap:break-word;font-size:12px;background:transparent!important;color:var(--jp-content-font-color1,#222)}
.ar-ranks>.ar-rank img{max-width:100%}
.ar-ranks-note{font:12px var(--jp-ui-font-family,sans-serif);color:var(--jp-ui-font-color2,#555);margin:2px 0}
</style>"""


@dataclass
class RankOutput:
    """What one rank has shown so far."""

    stdout: str = ""
    stderr: str = ""
    shown: list[dict] = field(default_factory=list)
    failed: bool = False

    @property
    def text(self) -> str:
        """Everything as plain text, without terminal colours, cut in the middle if it is very long."""
        parts = [self.stdout, self.stderr, *(d["text/plain"] for d in self.shown if "text/plain" in d)]
        text = _ANSI.sub("", "\n".join(p.rstrip("\n") for p in parts if p))
        # a progress bar goes back to the start of the line and overwrites it
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
        if len(text) > MAX_CHARS:
            half = MAX_CHARS // 2
            text = f"{text[:half]}\n[... {len(text) - MAX_CHARS} characters left out ...]\n{text[-half:]}"
        return text

    def as_html(self) -> str:
        """Everything as HTML for a notebook, with pictures."""
        blocks = []
        plain = RankOutput(self.stdout, self.stderr, [d for d in self.shown if not _rich(d)]).text
        if plain:
            blocks.append(f"<pre>{html.escape(plain)}</pre>")
        for data in filter(_rich, self.shown):
            if "image/png" in data:
                blocks.append(f'<img alt="figure" src="data:image/png;base64,{data["image/png"].strip()}">')
            else:
                blocks.append(data["text/html"])
        return "".join(blocks)


def _rich(data: dict) -> bool:
    return "image/png" in data or "text/html" in data


class Grid:
    """The outputs of all ranks, and below them a note and a picture. A cell displays it, and updates it while it runs."""

    def __init__(self, ranks: int) -> None:
        self.ranks = [RankOutput() for _ in range(ranks)]
        self.note = ""
        self.below = ""  # HTML

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not self.note and not self.below and not any(r.text or r.shown for r in self.ranks)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {"text/html": self.as_html(), "text/plain": str(self)}

    def as_html(self) -> str:
        """One column for each rank that has shown something."""
        columns = [
            f'<div class="ar-rank"><b class="{"ar-bad" if r.failed else ""}">rank {number}'
            f"{' failed' if r.failed else ''}</b>{r.as_html()}</div>"
            for number, r in enumerate(self.ranks)
            if r.text or r.shown
        ]
        # a box is as wide as the longest line, so that no list of numbers is broken where a line has room
        letters = max((len(line) for r in self.ranks for line in r.text.split("\n")), default=0)
        width = f"--ar-letters:{min(letters, WIDEST)}"
        body = f'<div class="ar-ranks" style="{width}">{"".join(columns)}</div>' if columns else ""
        note = f'<div class="ar-ranks-note">{html.escape(self.note)}</div>' if self.note else ""
        return (STYLE if body or note else "") + body + note + self.below

    def __str__(self) -> str:
        lines = [f"[rank {n}] {line}" for n, r in enumerate(self.ranks) if r.text for line in r.text.split("\n")]
        return "\n".join([*lines, *([self.note] if self.note else [])])

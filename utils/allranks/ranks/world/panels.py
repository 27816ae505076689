"""Pictures of a call that does not return: a panel for each rank while it runs, and the report that takes their place.

HTML without scripts, so that every front end shows it. A rank's head has its colour; vermilion is kept for what waits or fails.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allranks.base.errors import name_ranks
from allranks.base.theme import style
from allranks.ranks.world.rank_status import RankStatus

MOST = 16  # ranks with a panel of their own: of more, those that do the same share one
_HUES = 4
_FEW_LINES = 8  # between two lines of code that are shown
_WIDTH, _GAP = 224, 12  # of the arrows' picture, which is stretched to the panels
_LONG = 80  # letters of a line of code

STYLE = """<style>
.ar-hang{font-size:14px;line-height:1.4;margin:4px 0;max-width:1160px;background:none;container-type:inline-size}
.ar-hang code,.ar-hang pre{font:13px/1.5 var(--jp-code-font-family,ui-monospace,monospace)!important;background:none!important;
color:var(--ar-ink)!important;padding:0;font-variant-ligatures:none}
.ar-hang td,.ar-hang th{color:var(--ar-ink)!important}
.ar-hang small{display:inline-block;margin-top:2px;font-size:13px;color:var(--ar-soft)}
.ar-hang svg{display:block;overflow:visible}
.ar-hang path{fill:none;stroke:var(--ar-lost);stroke-width:2}
.ar-panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(176px,1fr));gap:12px}
.ar-hang>svg{width:100%;height:50px}
.ar-hang>svg *{vector-effect:non-scaling-stroke}
@container (max-width:740px){.ar-hang>svg{display:none}}
.ar-panel{border:1px solid var(--ar-line);border-radius:10px;overflow:hidden;background:var(--ar-paper)}
.ar-panel>b{display:flex;justify-content:space-between;padding:6px 12px;font-weight:600}
.ar-panel>div{padding:8px 12px 12px;min-height:92px;overflow-wrap:anywhere}
.ar-panel p{margin:0 0 4px!important}
.ar-bad>b{background:var(--ar-lost)!important;color:#fff!important}
.ar-bad{border-color:var(--ar-lost)}
.ar-elapsed{height:8px;margin-top:8px;border-radius:4px;background:var(--ar-hair);overflow:hidden}
.ar-elapsed>i,.ar-call.ar-waits{background:repeating-linear-gradient(135deg,var(--ar-lost) 0 3px,transparent 3px 7px)}
.ar-elapsed>i{display:block;height:100%}
.ar-report{border:1px solid var(--ar-line);border-left:5px solid var(--ar-lost);border-radius:10px;padding:16px 20px;
background:var(--ar-paper);overflow-wrap:anywhere}
.ar-report h4{margin:0 0 6px!important;font:600 20px/1.3 var(--jp-ui-font-family,system-ui,sans-serif)!important;color:var(--ar-ink)!important}
.ar-report h4+p{margin:0 0 12px!important;color:var(--ar-soft)}
.ar-sides{display:flex;flex-wrap:wrap;gap:12px 40px;align-items:flex-start}
.ar-sides>*{min-width:0;max-width:100%;overflow-x:auto}
.ar-sides>.ar-panels{flex:1 1 100%}
.ar-hang .ar-calls{display:block;overflow-x:auto}
.ar-calls{border-spacing:4px;border-collapse:separate;margin:0!important;font-size:13px}
.ar-calls td,.ar-calls th{padding:0 4px!important;text-align:left!important;background:none!important;border:0!important;font-weight:400}
.ar-call{width:92px;height:16px;border-radius:4px;background:var(--ar-work);text-align:center;font-size:12px;line-height:14px}
.ar-call.ar-missing{background:none;border:2px dashed var(--ar-lost);color:var(--ar-lost-text)}
.ar-dot{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
.ar-hang pre.ar-blamed{background:var(--ar-panel)!important;border-radius:6px;padding:8px 12px!important;margin:0 0 8px!important;white-space:pre-wrap}
.ar-blamed mark{background:var(--ar-you);color:var(--ar-on-you);padding:1px 4px}
.ar-blamed u{text-decoration:none;color:var(--ar-soft);padding-right:12px}
</style>"""


@dataclass(frozen=True)
class Panel:
    """What a rank does at this moment. `since_s` is how long it has done that; `ended` is "done" or "failed"."""

    ranks: tuple[int, ...]
    status: RankStatus | None = None
    ended: str | None = None
    since_s: float = 0.0

    @property
    def waits(self) -> bool:
        """Whether it waits for another rank or for its GPU."""
        return self.ended is None and self.status is not None and self.status.waits


def shared(panels: Sequence[Panel]) -> list[Panel]:
    """One panel for each rank; if they are many, one for all ranks that do the same."""
    if len(panels) <= MOST:
        return list(panels)
    same: dict[tuple, list[Panel]] = {}
    for panel in panels:
        status = panel.status
        what = status and (status.op, status.line, status.seq, status.group, status.peer, status.known)
        same.setdefault((panel.ended, what), []).append(panel)
    return [
        Panel(tuple(r for p in alike for r in p.ranks), alike[0].status, alike[0].ended, max(p.since_s for p in alike))
        for alike in same.values()
    ]


def live(panels: Sequence[Panel], awaited: Mapping[int, tuple[int, ...]], elapsed_s: float, deadline_s: float) -> str:
    """The panels while the call runs, with arrows from each rank to those that it waits for."""
    panels = shared(panels)
    body = "".join(_panel(panel, elapsed_s / deadline_s) for panel in panels)
    left = max(0.0, deadline_s - elapsed_s)
    until = f"The deadline stops it in {left:.0f} s; to stop it now, interrupt the kernel (■)."
    return (
        f'{style()}{STYLE}<div class="ar-theme ar-hang" role="status">{_arrows(panels, awaited)}<div class="ar-panels">{body}</div>'
        f"<small>{elapsed_s:.1f} of {deadline_s:g} s. {until}</small></div>"
    )


def _panel(panel: Panel, share: float) -> str:
    name = name_ranks(panel.ranks)
    shown = {"done": "✓", "failed": "failed"}.get(panel.ended or "", f"{panel.since_s:.1f} s" if panel.waits else "")
    bar = f'<div class="ar-elapsed"><i style="width:{100 * min(1.0, share):.0f}%"></i></div>' if panel.waits else ""
    bad = " ar-bad" if panel.ended == "failed" else ""
    return (
        f'<div class="ar-panel{bad}"><b style="{_head(panel.ranks)}"><span>{name}</span><span>{shown}</span></b>'
        f"<div>{_doing(panel)}{bar}</div></div>"
    )


def _doing(panel: Panel) -> str:
    status = panel.status
    if panel.ended is not None or status is None:
        return f"<p>{'it raised an error' if panel.ended == 'failed' else 'done with the cell'}</p>"
    if not status.known:
        return "<p>does not answer</p>"
    lines = [f"<p>{_state(status)}</p>"]
    if status.line:
        text = f" <code>{_breakable(status.text)}</code>" if status.text else ""
        lines.append(f"<p><small>line {status.line}</small>{text}</p>")
    if status.dtype:
        lines.append(f"<p><small>tensor</small> <code>{status.dtype}{list(status.shape or ())}</code></p>")
    return "".join(lines)


def _breakable(code: str) -> str:
    """A line of code as HTML that may break before a dot and after another sign, so never in a name."""
    code = code if len(code) <= _LONG else f"{code[: _LONG - 1]}…"
    return "<wbr>".join(map(html.escape, re.split(r"(?=\.[^\W\d])|(?<=[(\[{,:])|(?<=\w=)", code)))


def _state(status: RankStatus) -> str:
    if status.waits_for is not None:
        op = f" in <code>{html.escape(status.op)}</code>" if status.op else ""
        return f"waiting for its {html.escape(status.waits_for)}{op}"
    if status.op:
        way = "" if status.peer is None else f" {'to' if 'send' in status.op else 'from'} rank {status.peer}"
        return f"waiting in <code>{html.escape(status.op)}</code>{way}"
    if status.waits:
        return "waiting in <code>wait()</code>"
    return "computing" if status.line else "between two cells"


def _head(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 1 or ranks[0] >= 2 * _HUES:
        return "background:var(--ar-panel);color:var(--ar-ink)"
    hue = ranks[0] % _HUES
    dots = (
        ""
        if ranks[0] < _HUES
        else "background-image:radial-gradient(#0004 1.5px,transparent 2px);background-size:8px 8px;"
    )
    return f"background-color:var(--ar-rank-{hue});{dots}color:var(--ar-on-rank{'-0' if hue == 0 else ''})"


def _arrows(panels: Sequence[Panel], awaited: Mapping[int, tuple[int, ...]]) -> str:
    """Who waits for whom, over the heads; only where all panels stand in one row of a usual page."""
    if len(panels) > 4 or any(len(p.ranks) > 1 for p in panels) or not awaited:
        return ""
    centre = {p.ranks[0]: i * (_WIDTH + _GAP) + _WIDTH // 2 for i, p in enumerate(panels)}
    edges = [(a, b) for a, others in sorted(awaited.items()) for b in others if a in centre and b in centre]
    paths = []
    for number, (a, b) in enumerate(edges):
        height = 8 + 9 * abs(a - b) + 2 * (number % 3)
        start, end = centre[a] + (14 if a > b else -14), centre[b] + (10 + 16 * (abs(a - b) - 1)) * (1 if a > b else -1)
        paths.append(
            f'<path d="M{start} 48C{start} {48 - height - 14},{end} {48 - height - 14},{end} 44"/>'
            f'<path d="M{end - 4} 40l4 7 4-7z" style="fill:var(--ar-lost)"/>'
        )
    width = len(panels) * (_WIDTH + _GAP) - _GAP
    named = "; ".join(f"rank {a} waits for rank {b}" for a, b in edges)
    return f'<svg viewBox="0 0 {width} 50" preserveAspectRatio="none" role="img" aria-label="{named}">{"".join(paths)}</svg>'


def report(
    headline: str,
    detail: str,
    panels: Sequence[Panel],
    counted: Mapping[int, int],
    source: str | None = None,
    blamed: int | None = None,
    reached: int | None = None,
) -> str:
    """What takes the panels' place at the end: one sentence and a detail, each rank's calls, and the line to blame.

    `counted[rank]` is how many collectives of the group the rank has begun; those that wait are in the last one. `blamed` and
    `reached` are lines of `source`: the one that keeps a rank away, and the one that the others wait in.
    """
    sides = [_calls(panels, counted) if counted else _states(panels)]
    if source is not None and reached is not None:
        sides.append(_code(source, blamed, reached))
    return (
        f'{style()}{STYLE}<div class="ar-theme ar-hang"><div class="ar-report"><h4>{html.escape(headline)}</h4>'
        f'<p>{html.escape(detail)}</p><div class="ar-sides">{"".join(sides)}</div></div></div>'
    )


def _calls(panels: Sequence[Panel], counted: Mapping[int, int]) -> str:
    most = max(counted.values())
    first = max(1, most - 3)
    head = "".join(f"<td>{number}</td>" for number in range(first, most + 1))
    rows = []
    for panel in shared(panels):
        rank = panel.ranks[0]
        done = counted.get(rank, most - 1)
        cells = []
        for number in range(first, most + 1):
            kind = (
                ""
                if number < most
                else " ar-waits"
                if done >= most and panel.waits
                else " ar-missing"
                if done < most
                else ""
            )
            cells.append(f'<td><div class="ar-call{kind}">{"never came" if "missing" in kind else ""}</div></td>')
        dot = f'<span class="ar-dot" style="{_head(panel.ranks)}"></span>'
        rows.append(f"<tr><th>{dot}{name_ranks(panel.ranks)}</th>{''.join(cells)}</tr>")
    return f'<table class="ar-calls"><tr><td>collective</td>{head}</tr>{"".join(rows)}</table>'


def _states(panels: Sequence[Panel]) -> str:
    return f'<div class="ar-panels">{"".join(_panel(panel, 1.0) for panel in shared(panels))}</div>'


def _code(source: str, blamed: int | None, reached: int) -> str:
    lines = source.splitlines()
    first, last = min(blamed or reached, reached), max(blamed or reached, reached)
    numbers = range(first, last + 1) if last - first < _FEW_LINES else (first, last)
    shown = []
    for number in numbers:
        text = html.escape(lines[number - 1]) if number <= len(lines) else ""
        shown.append(f"<u>{number}</u>" + (f"<mark>{text}</mark>" if number == (blamed or reached) else text))
    return f'<pre class="ar-blamed">{"<br>".join(shown)}</pre>'

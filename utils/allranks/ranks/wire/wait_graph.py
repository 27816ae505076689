"""The wait-for graph as a small self-contained SVG; colours come from the page (currentColor)."""

from __future__ import annotations

import html
import math
import textwrap

from allranks.ranks.wire.wait import Wait

_RADIUS, _NODE, _MARGIN, _ROW = 100, 17, 24, 18
_MOST, _TEXT_NCHARS, _LINE_NCHARS = 24, 60, 44


def waits_svg(waits: tuple[Wait, ...], cycle: tuple[int, ...], title: str) -> str:
    """Ranks on a circle with an arrow to whom each waits for (bold on `cycle`), and the list of waits below it; "" without waits.

    The words are in short lines, so that the picture is narrow and a page does not shrink them. Of more than 24 ranks only those of the cycle, or the first, are drawn.
    """
    if not any(w.peers for w in waits):
        return ""
    shown = list(waits)
    if len(shown) > _MOST:
        shown = [w for w in shown if w.rank in cycle or (w.peers and not cycle)][:_MOST]
    radius = max(_RADIUS, len(shown) * 3.4 * _NODE / (2 * math.pi))
    words = [line for wait in shown for line in _words(wait)]
    ring = 2 * (radius + _NODE + _MARGIN)
    width = max(int(ring), int(7.2 * max(map(len, words)) + 8))
    height = ring + _ROW * len(words) + _MARGIN
    place = _places([w.rank for w in shown], radius, width / 2, ring / 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" width="{width}" '
        f'height="{height:.0f}" role="img" style="max-width:100%;font:13px system-ui,sans-serif" '
        'fill="none" stroke="currentColor">',
        f"<title>{html.escape(title)}</title>",
    ]
    for wait in shown:
        for peer in wait.peers:
            if peer in place:
                bold = wait.rank in cycle and peer in cycle and peer == wait.peer
                parts.append(_arrow(place, wait, peer, bold))
    for wait in shown:
        x, y = place[wait.rank]
        dash = "" if wait.peers else ' stroke-dasharray="3 3"'
        weight = 2.5 if wait.rank in cycle else 1.2
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_NODE}" stroke-width="{weight}"{dash}/>')
        parts.append(_text(x, y + 4.5, str(wait.rank), "middle"))
    for number, word in enumerate(words):
        parts.append(_text(4, ring + _ROW * (number + 0.5), word, "start"))
    parts.append("</svg>")
    return "".join(parts)


def _words(wait: Wait) -> list[str]:
    text = wait.text or ""  # a rank that has returned is at no line
    text = text if len(text) <= _TEXT_NCHARS else text[: _TEXT_NCHARS - 3] + "..."
    lines = textwrap.wrap(text.strip(), _LINE_NCHARS)
    return textwrap.wrap(str(wait), _LINE_NCHARS) + [f"\u2003{line}" for line in lines]


def _places(ranks: list[int], radius: float, cx: float, cy: float) -> dict[int, tuple[float, float]]:
    if len(ranks) == 1:
        return {ranks[0]: (cx, cy)}
    angles = [2 * math.pi * i / len(ranks) - math.pi / 2 for i in range(len(ranks))]
    return {r: (cx + radius * math.cos(a), cy + radius * math.sin(a)) for r, a in zip(ranks, angles, strict=True)}


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" stroke="none">{html.escape(text)}</text>'


def _arrow(place: dict, wait: Wait, peer: int, bold: bool) -> str:
    """A line from rim to rim with a head of its own, bent outwards so that two opposite ones stay apart."""
    weight, opacity = (2.2, 1) if bold else (1, 0.45)
    (x1, y1), (x2, y2) = place[wait.rank], place[peer]
    label = f"<title>{html.escape(str(wait))}</title>"
    style = f'stroke-width="{weight}" opacity="{opacity}"'
    if wait.rank == peer:
        x, y = x1 + _NODE, y1
        loop = f"M{x - 4:.1f} {y - 9:.1f}C{x + 34:.1f} {y - 34:.1f} {x + 34:.1f} {y + 34:.1f} {x - 3:.1f} {y + 9:.1f}"
        return f"<g {style}>{label}<path d='{loop}'/></g>"
    length = math.hypot(x2 - x1, y2 - y1)
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    bend = 0.14 * length
    mx, my = (x1 + x2) / 2 + uy * bend, (y1 + y2) / 2 - ux * bend
    sx, sy = _towards(x1, y1, mx, my, _NODE)
    ex, ey = _towards(x2, y2, mx, my, _NODE + 2)
    hx, hy = ex - mx, ey - my
    h = math.hypot(hx, hy) or 1
    hx, hy = hx / h, hy / h
    left = (ex - 9 * hx - 4.5 * hy, ey - 9 * hy + 4.5 * hx)
    right = (ex - 9 * hx + 4.5 * hy, ey - 9 * hy - 4.5 * hx)
    curve = f'<path d="M{sx:.1f} {sy:.1f}Q{mx:.1f} {my:.1f} {ex:.1f} {ey:.1f}"/>'
    head = (
        f'<path d="M{ex:.1f} {ey:.1f}L{left[0]:.1f} {left[1]:.1f}L{right[0]:.1f} {right[1]:.1f}Z" fill="currentColor"/>'
    )
    return f"<g {style}>{label}{curve}{head}</g>"


def _towards(x: float, y: float, tx: float, ty: float, by: float) -> tuple[float, float]:
    length = math.hypot(tx - x, ty - y) or 1
    return x + (tx - x) / length * by, y + (ty - y) / length * by

"""Is my busbw normal? A sweep's curve over what others published for the same machine, as one page to send on.

The page is HTML with a drawing (SVG) in it: it needs no script and asks no other host for anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from allranks.base.errors import capital, size_in_words
from allranks.base.theme import DARK, LIGHT
from allranks.theory.cost.normal import LARGE, LOW, Curve, Normal, published

__all__ = ["busbw_page"]

WIDE, HIGH, LEFT, RIGHT, TOP, FOOT = 860, 560, 64, 826, 44, 520  # of the drawing, and the edges of its plot
DASHES = ("", "2 5", "9 5", "14 4 2 4", "5 3")
USED = ("ink", "paper", "panel", "hair", "soft", "you", "lost", "line")
MINIATURES = (
    ("late at small sizes", "launch, CPU affinity, a busy host", "M4 42 C30 42 40 40 60 26 S76 8 84 6"),
    ("a dent at one size", "protocol or channels changed there", "M4 42 C24 40 32 34 42 26 L48 32 L54 18 L84 8"),
    ("half, everywhere large", "a rail, ACS, a card at half width", "M4 42 C30 42 36 34 50 28 S70 25 84 24"),
)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root {{ {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 82rem; margin: 2rem auto; padding: 0 1.2rem;
  color: var(--ink); background: var(--paper) }}
h1 {{ font-size: 1.7rem; line-height: 1.25; margin: 0 }} .soft {{ color: var(--soft) }}
section {{ margin: 2.5rem 0 }} .both {{ display: flex; flex-wrap: wrap; gap: 2rem; margin-top: 1.2rem }}
.plot {{ flex: 3 1 34rem; min-width: 0 }} .why {{ flex: 1 1 17rem; min-width: 0 }}
svg {{ width: 100%; height: auto; font: 15px system-ui, sans-serif }} svg text {{ fill: var(--ink) }}
.big {{ font-size: 1.9rem; font-weight: 700; line-height: 1.2 }} .reason {{ font-size: 1.2rem; font-weight: 650 }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; background: var(--panel); border: 1px solid var(--hair);
  border-radius: 6px; padding: .6rem .8rem; font: 14px/1.5 ui-monospace, monospace }}
.other {{ display: flex; gap: .8rem; align-items: center; margin: .6rem 0 }} .other svg {{ width: 88px; flex: none }}
.foot {{ border-top: 1px solid var(--hair); padding-top: .7rem; font-size: .9rem }}
</style></head>
<body>
{body}
<p class="foot soft">{foot}</p></body></html>
"""


def busbw_page(compared: Sequence[Normal], name: str) -> str:
    """The page of these sweeps, one section each. `name` is what their file is called; no host stands in it.

    >>> from allranks.theory.cost.normal import Measured, normal
    >>> points = [(2**k, 2**k * 1.75 / 300e9 + 20e-6) for k in range(15, 34)]
    >>> page = busbw_page([normal(Measured("all_reduce", 8, 1, points, gpu="NVIDIA H100 80GB HBM3"))], "mine.txt")
    >>> "Is my busbw normal? Up to" in page, "<script" in page
    (True, False)
    """
    light, dark = (" ".join(f"--{name}: {theme[name]};" for name in USED) for theme in (LIGHT, DARK))
    body = "\n".join(_section(one, name) for one in compared)
    foot = "With fewer than five sites no percentile is given. Made by <code>allranks fit --html</code>."
    title = escape(f"Is my busbw normal? {name}")
    return _PAGE.format(title=title, light=light, dark=dark, body=body, foot=foot)


def _section(one: Normal, name: str) -> str:
    nodes = "one node" if one.nodes == 1 else f"{one.nodes} nodes"
    over = f", over what others published for {one.gpu}" if one.sites else ", over NCCL's model" if one.machine else ""
    return (
        f"<section><h1>Is my busbw normal? {_verdict(one)}</h1>\n"
        f'<p class="soft">{escape(one.collective)} of {escape(name)}, {one.ranks} ranks on {nodes}{escape(over)}.</p>\n'
        f'<div class="both"><div class="plot">{_drawing(one)}</div><div class="why">{_why(one)}</div></div></section>'
    )


def _verdict(one: Normal) -> str:
    if one.of_reference is None:
        return "Nobody's measurement or model of this machine is known"
    if one.rows[-1][0] < LARGE:
        return f"The sizes end before {size_in_words(LARGE)}, which is too early to tell"
    if one.falls_off is None:
        return "Yes" if one.of_reference >= LOW else f"At the largest size you get {_share(one.of_reference)}"
    before = [row[0] for row in one.rows if row[0] < one.falls_off]
    start = f"Up to {size_in_words(before[-1])}, yes; above it you get" if before else "No: you get"
    return f"{start} {_share(one.of_reference)}"


def _share(share: float) -> str:
    """A share in words where it is near a simple one, else in per cent."""
    simple = {0.25: "a quarter", 1 / 3: "a third", 0.5: "half", 2 / 3: "two thirds", 0.75: "three quarters"}
    near = min(simple, key=lambda value: abs(value - share))
    return simple[near] if abs(near - share) <= 0.03 else f"{share:.0%}"


class _Axes:
    """Where a size and a bandwidth lie in the drawing: sizes on a logarithmic scale, GB/s from 0."""

    def __init__(self, low: float, high: float, most: float) -> None:
        self.low, self.high = math.log2(low), max(math.log2(high), math.log2(low) + 1)
        step = 10.0 ** math.floor(math.log10(most / 2))
        self.step = next(step * n for n in (1, 2, 5, 10) if most / (step * n) <= 6)
        self.most = self.step * math.ceil(most * 1.04 / self.step)

    def x(self, nbytes: float) -> float:
        return LEFT + (RIGHT - LEFT) * (math.log2(nbytes) - self.low) / (self.high - self.low)

    def y(self, busbw: float) -> float:
        return FOOT - (FOOT - TOP) * min(busbw, self.most) / self.most

    def path(self, curve: Curve) -> str:
        return "M" + " L".join(f"{self.x(n):.1f} {self.y(b):.1f}" for n, b in curve)


def _drawing(one: Normal) -> str:
    own = [(row[0], row[1]) for row in one.rows]
    least, largest = one.rows[0][0], one.rows[-1][0]
    others = published(one.collective, one.ranks, one.domains, one.gpu) if one.sites else {}
    shown = {site: [p for p in curve if least <= p[0] <= largest] for site, curve in others.items()}
    model = [(row[0], row[3]) for row in one.rows if row[3] is not None]
    if not any(shown.values()) and model:
        shown = {"NCCL's model": model}
    curves = {site: curve for site, curve in shown.items() if len(curve) > 1}
    roofs = [(what, busbw) for what, busbw in one.roofs if busbw > 0]
    most = max([b for _, b in own] + [b for curve in curves.values() for _, b in curve] + [b for _, b in roofs])
    axes = _Axes(least, largest, most)
    parts = [*_grid(axes), *_lost(one, axes)]
    for number, curve in enumerate(curves.values()):
        dash = f' stroke-dasharray="{DASHES[number % len(DASHES)]}"' if number % len(DASHES) else ""
        parts.append(f'<path d="{axes.path(curve)}" fill="none" stroke="var(--soft)" stroke-width="1.8"{dash}/>')
    for what, busbw in roofs:
        y, label = (
            axes.y(busbw),
            f"roof of {what}: {busbw:.0f}" if not what.startswith("the switch") else f"roof, where {what}: {busbw:.0f}",
        )
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="var(--ink)" stroke-width="1.5" stroke-dasharray="7 5"/>'
        )
        parts.append(f'<text x="{LEFT + 8}" y="{y - 7:.1f}" font-weight="600">{escape(label)}</text>')
    for colour, width in (("ink", 8), ("you", 5)):
        parts.append(f'<path d="{axes.path(own)}" fill="none" stroke="var(--{colour})" stroke-width="{width}" '
                     'stroke-linecap="round" stroke-linejoin="round"/>')  # fmt: skip
    at = own[max(0, 2 * len(own) // 3)]
    parts.append(f'<text x="{axes.x(at[0]) + 12:.1f}" y="{axes.y(at[1]) + 26:.1f}" font-weight="700">you</text>')
    parts += _ring(one, axes)
    what = f"Busbw of {one.collective} by size: {own[-1][1]:.4g} GB/s at {size_in_words(own[-1][0])}"
    drawing = "".join(parts)
    svg = f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(what)}">{drawing}</svg>'
    return svg + _legend(one, list(curves))


def _grid(axes: _Axes) -> list[str]:
    parts = [f'<text x="8" y="{TOP - 26}" font-weight="650">GB/s</text>']
    for number in range(round(axes.most / axes.step) + 1):
        y = axes.y(number * axes.step)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="var(--hair)"/>')
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + 5:.1f}" text-anchor="end" opacity=".75">{number * axes.step:g}</text>'
        )
    every = max(1, math.ceil((axes.high - axes.low) / 7))
    for power in range(math.ceil(axes.low), math.floor(axes.high) + 1, every):
        x, size = axes.x(2.0**power), size_in_words(2.0**power)
        parts.append(f'<text x="{x:.1f}" y="{FOOT + 24}" text-anchor="middle" opacity=".75">{size}</text>')
    return parts


def _lost(one: Normal, axes: _Axes) -> list[str]:
    """What is lost against the reference, hatched, from where the curve leaves it."""
    rows = [(row[0], row[1], row[2] or row[3]) for row in one.rows]
    pairs = [
        (n, b, r) for n, b, r in rows if r is not None and one.falls_off is not None and n >= one.falls_off and r > b
    ]
    if len(pairs) < 2:
        return []
    there, back = axes.path([(n, r) for n, _, r in pairs]), axes.path([(n, b) for n, b, _ in reversed(pairs)])
    hatch = '<pattern id="lost" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    hatch += '<path d="M0 0V9" stroke="var(--lost)" stroke-width="4" opacity=".55"/></pattern>'
    return [f'<defs>{hatch}</defs><path d="{there} L{back[1:]}Z" fill="url(#lost)"/>']


def _ring(one: Normal, axes: _Axes) -> list[str]:
    """Where the curve leaves the others."""
    if one.falls_off is None:
        return []
    at = next((a for a, b in pairwise(one.rows) if b[0] == one.falls_off), None)
    if at is None:
        return []
    x, y = axes.x(at[0]), axes.y(at[1])
    return [
        f'<path d="M{x:.1f} {y + 12:.1f}V{FOOT - 40}" stroke="var(--lost)" stroke-width="2" stroke-dasharray="3 4"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="10" fill="var(--paper)" stroke="var(--lost)" stroke-width="3.5"/>',
        f'<text x="{x + 12:.1f}" y="{FOOT - 46}" font-weight="650">you leave the others here,</text>',
        f'<text x="{x + 12:.1f}" y="{FOOT - 26}" font-weight="650">after {size_in_words(at[0])}</text>',
    ]


def _legend(one: Normal, sites: Sequence[str]) -> str:
    items = []
    for number, site in enumerate(sites):
        dash = DASHES[number % len(DASHES)]
        line = f'<path d="M0 6H40" stroke="var(--soft)" stroke-width="2" stroke-dasharray="{dash or "none"}"/>'
        items.append(f'<svg viewBox="0 0 40 12" style="width:40px">{line}</svg> {escape(site)}')
    reference = one.rows[-1][2] or one.rows[-1][3]
    if one.falls_off is not None and reference:
        items.append(f"hatched: what you lose, {reference - one.top:.3g} GB/s at {size_in_words(one.rows[-1][0])}")
    return f'<p class="soft">{" &nbsp; ".join(items)}</p>'


def _why(one: Normal) -> str:
    """What the curve says, the usual reason for its shape, and the test that would tell."""
    parts = [f'<div class="big">{one.top:.4g} GB/s at {size_in_words(one.rows[-1][0])}</div>']
    if one.of_reference is not None:
        reference = one.rows[-1][2] or one.rows[-1][3] or 0.0
        whose = f"below {one.below} of {len(one.sites)} published" if one.below is not None else "of NCCL's model"
        parts.append(f'<p class="soft">{one.of_reference:.2f} of {reference:.4g}, {whose}</p>')
    for number, shape in enumerate(one.shapes):
        parts.append(
            f'<p class="soft">{"And also" if number else "The usual reason for this shape"}: {escape(shape.looks)}</p>'
        )
        parts.append(f'<div class="reason">{escape(capital(shape.usual))}.</div>')
        parts.append(f"<p>What would tell:</p><pre>{escape(shape.test)}</pre>")
    parts.append("<p><b>Other shapes, other reasons</b></p>")
    for looks, usual, path in MINIATURES:
        back = '<path d="M4 42 C24 40 36 12 84 6" fill="none" stroke="var(--soft)" stroke-width="1.5"/>'
        drawn = "".join(
            f'<path d="{path}" fill="none" stroke="var(--{c})" stroke-width="{w}"/>'
            for c, w in (("ink", 5), ("you", 3))
        )
        parts.append(f'<div class="other"><svg viewBox="0 0 88 48">{back}{drawn}</svg><div><b>{looks}</b><br>'
                     f'<span class="soft">{usual}</span></div></div>')  # fmt: skip
    return "\n".join(parts)

"""A pipeline's run as a picture: a row a rank, time to the right; as an SVG in both themes, and in characters."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from fractions import Fraction
from html import escape

from allranks.base import theme
from allranks.theory.pipelines.actions import KINDS, PipelineError
from allranks.theory.pipelines.clock import Span, Timeline

LEFT, ROW, GAP, HEAD, AXIS = 60, 28, 5, 44, 22
UNIT, WIDEST, SCROLLED = 24.0, 800.0, 1100.0  # pixels of a unit of time, and of a long run: more, so that numbers fit
DIGIT, INSET, TICK = 8.9, 0.8, 44.0  # pixels of a digit with its space, beside a box, between two numbers of the axis
KEEPS = 76  # pixels beside a lane for what its rank keeps
COLUMNS = 400  # of the picture in characters; a finer time is not drawn
# the looks of the widgets: what is lost is hatched, forward is nearer to the paper than backward
STYLE = (
    ".ar-pipeline{padding:8px}.ar-pipeline .ar-scroll{overflow-x:auto}.ar-pipeline svg{display:block;max-width:none}"
    ".ar-pipeline text{font:12px var(--ar-font);fill:var(--ar-ink)}.ar-pipeline .title{font-weight:600;font-size:15px}"
    ".ar-pipeline .F{fill:color-mix(in srgb,var(--ar-work) 55%,var(--ar-paper))}"
    ".ar-pipeline .B,.ar-pipeline .I{fill:var(--ar-work)}"
    ".ar-pipeline .W{fill:var(--ar-paper);stroke:var(--ar-soft)}.ar-pipeline .later{fill:var(--ar-ink)}"
    ".ar-pipeline .hatch{stroke:var(--ar-lost);stroke-width:2.5}"
    ".ar-pipeline .time{fill:var(--ar-soft)}.ar-pipeline .tick{stroke:var(--ar-line)}"
)
MEANING = {
    "F": "forward",
    "B": "backward, both gradients",
    "I": "backward: gradient of the input",
    "BI": "backward: both gradients, or the input's alone",  # one look
    "W": "backward: gradient of the weights",
    "wait": "waits",
    "later": "a later stage of the rank",
}


@dataclass(frozen=True)
class Picture:
    """One run or several, one below the other on the same scale of time. A notebook shows it; `print` gives characters.

    >>> pipelines.picture(pipelines.timeline(pipelines.orders("gpipe", ranks=2, micro_batches=2))).svg()[:4]
    '<svg'
    """

    timelines: tuple[Timeline, ...]

    def __str__(self) -> str:
        return "\n\n".join(_text(one) for one in self.timelines)

    __repr__ = __str__

    def svg(self) -> str:
        """The picture as an SVG, which takes its colours from a page with the style sheet of `allranks.base.theme`."""
        unit = _unit(float(max(one.makespan for one in self.timelines)), max(map(_least_unit, self.timelines)))
        widest = max(float(one.makespan) * unit for one in self.timelines)
        body, y = [], 0.0
        for one in self.timelines:
            body.append(f'<g transform="translate(0 {y:g})">{_panel(one, unit)}</g>')
            y += HEAD + one.orders.ranks * (ROW + GAP) + AXIS + 2 * GAP
        width = LEFT + max(widest + KEEPS, 420)
        legend, y = _legend(y, width, self._looks())
        words = "; ".join(map(str, self.timelines))
        # an id of its own: what a hidden picture on the same page defines is not drawn
        name = f"ar-hatch-{zlib.crc32(words.encode())}"
        hatch = (
            '<defs><pattern id="HATCH" width="7" height="7" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="7"/></pattern></defs>'
        )
        size = f'width="{math.ceil(width)}" height="{math.ceil(y)}" viewBox="0 0 {math.ceil(width)} {math.ceil(y)}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(words, quote=True)}">'
            f"{hatch}{''.join(body)}{legend}</svg>"
        ).replace("HATCH", name)

    def _looks(self) -> list[str]:
        """Which looks are in the picture, in the order of the legend."""
        there = {span.action.kind for one in self.timelines for own in one.spans for span in own}
        there = there - {"B", "I"} | {"BI"} if {"B", "I"} <= there else there
        there |= {"wait"} if any(one.idle_share() > 0 for one in self.timelines) else set()
        there |= {"later"} if any(one.orders.stages_per_rank > 1 for one in self.timelines) else set()
        return [look for look in MEANING if look in there]

    def _repr_html_(self) -> str:
        return (
            f'<div class="ar-theme ar-pipeline">{theme.style()}<style>{STYLE}</style><div class="ar-scroll" '
            f'tabindex="0">{self.svg()}</div></div>'
        )


def picture(*timelines: Timeline) -> Picture:
    """The picture of one run or of several, to compare. Numbers in the boxes are micro-batches.

    >>> print(pipelines.picture(pipelines.timeline(pipelines.orders("1f1b", ranks=2, micro_batches=2))))
    1F1B: takes 9 forward passes, 33% idle, keeps at most 2, 1 micro-batches
    rank 0  F0 F1 .  .  B0 -- .  B1 --
    rank 1  .  F0 B0 -- F1 B1 -- .  .
    """
    if not timelines:
        raise PipelineError("there is nothing to draw: name at least one timeline.")
    return Picture(timelines)


# ------------------------------------------------------------------------------------------------------------- SVG


def _panel(one: Timeline, unit: float) -> str:
    parts = [f'<text class="title" x="0" y="15">{escape(one.orders.name)}</text><text x="0" y="34">{one.length}</text>']
    end = LEFT + one.makespan * unit
    for rank, spans in enumerate(one.spans):
        y = HEAD + rank * (ROW + GAP)
        parts.append(f'<text x="0" y="{y + 18}">rank {rank}</text>')
        at = 0.0
        for span in spans:
            parts += _wait(at, float(span.start), y, unit)
            at = float(span.end)
        parts += _wait(at, one.makespan, y, unit)
        parts += [_box(span, y, unit, span.action.stage // one.orders.ranks) for span in spans]
        parts.append(f'<text class="time" x="{end + 10:g}" y="{y + 18}">keeps {one.kept(rank):g}</text>')
    parts.append(_axis(one, y + ROW, unit))
    return "".join(parts)


def _unit(longest: float, least: float) -> float:
    """Pixels for a unit of time: more where a number needs it, less for a long run."""
    if not longest:
        return UNIT
    return max(min(UNIT, WIDEST / longest), min(least, SCROLLED / longest))


def _least_unit(one: Timeline) -> float:
    """Pixels for a unit of time with which every box has room for its number."""
    return max((_room(span) / float(span.end - span.start) for own in one.spans for span in own), default=0.0)


def _room(span: Span) -> float:
    """Pixels that a box needs for the number of its micro-batch."""
    return DIGIT * len(str(span.action.micro_batch)) + 2 * INSET


def _axis(one: Timeline, y: float, unit: float) -> str:
    """The time, below the lanes: a number wherever one has room."""
    every = next(step for power in range(9) for f in (1, 2, 5) if (step := f * 10**power) * unit >= TICK)
    parts = []
    for time in range(0, int(one.makespan) + 1, every):
        x = LEFT + time * unit
        parts.append(f'<line class="tick" x1="{x:g}" y1="{y}" x2="{x:g}" y2="{y + 4}"/>')
        parts.append(f'<text class="time" x="{x:g}" y="{y + 16}" text-anchor="middle">{time}</text>')
    return f'<g><text class="time" x="0" y="{y + 16}">time</text>{"".join(parts)}</g>'


def _box(span: Span, y: float, unit: float, turn: int) -> str:
    """One action; `turn` says which of the rank's stages it is of."""
    action, x, wide = span.action, LEFT + float(span.start) * unit, float(span.end - span.start) * unit
    parts = [f"<title>{action.words}: {KINDS[action.kind]}, {float(span.start):g} to {float(span.end):g}</title>"]
    parts.append(_rect(action.kind, x, y, wide))
    if turn:
        mark = f'x="{x + INSET:g}" y="{y:g}" width="{max(0, wide - 2 * INSET):g}" height="{3 * turn}"'
        parts.append(f'<rect class="later" {mark}/>')
    if wide >= _room(span):
        place = f'x="{x + wide / 2:g}" y="{y + 19}" text-anchor="middle"'
        parts.append(f'<text class="number" {place}>{action.micro_batch}</text>')
    return f"<g>{''.join(parts)}</g>"


def _wait(start: float, end: float, y: float, unit: float) -> list[str]:
    return [_rect("wait", LEFT + start * unit, y, (end - start) * unit)] if end > start else []


def _rect(kind: str, x: float, y: float, wide: float) -> str:
    """The box of an action, or the hatching of a wait."""
    if kind == "wait":
        return f'<rect fill="url(#HATCH)" x="{x:g}" y="{y:g}" width="{wide:g}" height="{ROW}"/>'
    inside = f'x="{x + INSET:g}" y="{y:g}" width="{max(0.2, wide - 2 * INSET):g}"'
    return f'<rect class="{kind}" {inside} height="{ROW}" rx="{min(4, wide / 4):g}"/>'


def _legend(y: float, width: float, looks: list[str]) -> tuple[str, float]:
    """What the looks mean, in as many lines as it needs; and where they end."""
    parts, x = [], 0.0
    for look in looks:
        wide = 46 + 6.6 * len(MEANING[look])
        if x and x + wide > width:
            x, y = 0.0, y + ROW + GAP
        if look == "later":
            parts.append(f'<rect class="later" x="{x:g}" y="{y + 12:g}" width="20" height="3"/>')
        else:
            parts.append(_rect("B" if look == "BI" else look, x, y, 22))
        parts.append(f'<text x="{x + 28:g}" y="{y + 18:g}">{MEANING[look]}</text>')
        x += wide
    return "".join(parts), y + ROW + 2


# ------------------------------------------------------------------------------------------------------ characters


def _text(one: Timeline) -> str:
    """A row of characters for each rank. A column is the longest time of which all starts and ends are a multiple."""
    times = {t for spans in one.spans for span in spans for t in (span.start, span.end)}
    step = _common(times)
    columns = int(Fraction(one.makespan).limit_denominator(10**9) / step) if step else 0
    rows = [str(one)]
    if columns > COLUMNS:
        return rows[0]
    wide = max((len(text) for mine in one.orders.texts for text in mine), default=1) + 1
    for rank, (spans, words) in enumerate(zip(one.spans, one.orders.texts, strict=True)):
        cells = ["."] * columns
        for span, word in zip(spans, words, strict=True):
            first, last = int(span.start / step), int(span.end / step)
            cells[first:last] = [word, *["-" * (wide - 1)] * (last - first - 1)][: last - first]
        rows.append(f"rank {rank}  " + "".join(cell.ljust(wide) for cell in cells).rstrip())
    return "\n".join(rows)


def _common(times: set[Fraction]) -> Fraction:
    """The greatest common divisor."""
    under = math.lcm(*(t.denominator for t in times)) if times else 1
    return Fraction(math.gcd(*(int(t * under) for t in times)), under)

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

LEFT, UNIT, ROW, GAP, HEAD, AXIS = 52, 24.0, 24, 6, 44, 20
NARROW, WIDEST = (
    474.0,
    860.0,
)  # as wide as a cell beside an open sidebar; a long run takes as much as a whole window has
DIGIT, TICK = 8.9, 44.0  # pixels of a digit and the space beside it, and between two numbers below the lanes
HALO = 4  # pixels of the paper around a digit on hatching, which must not cover the digit beside it
COLUMNS = 400  # of the picture in characters; a finer time is not drawn
# dark: what makes activations. Grey and hatched are the two halves of backward, and B is both, one after the other.
STYLE = (
    ".ar-pipeline{padding:8px}.ar-pipeline .ar-scroll{overflow-x:auto}.ar-pipeline svg{display:block;max-width:none}"
    ".ar-pipeline text{font:12px var(--ar-font);fill:var(--ar-ink)}.ar-pipeline .title{font-weight:600}"
    ".ar-pipeline .F{fill:var(--ar-soft)}.ar-pipeline .I{fill:var(--ar-work)}.ar-pipeline .W{fill:var(--ar-paper)}"
    ".ar-pipeline .hatch{stroke:var(--ar-soft);stroke-width:1}.ar-pipeline .edge{fill:none;stroke:var(--ar-soft)}"
    ".ar-pipeline .lane{fill:var(--ar-panel)}.ar-pipeline .later{fill:var(--ar-ink)}"
    ".ar-pipeline .onF{fill:var(--ar-paper)}.ar-pipeline .edgeF{stroke:var(--ar-paper)}"
    ".ar-pipeline .time{fill:var(--ar-soft)}.ar-pipeline .tick{stroke:var(--ar-line)}"
    ".ar-pipeline .onW{paint-order:stroke;stroke:var(--ar-paper);"
    f"stroke-width:{HALO}px}}"
)
MEANING = {"F": "forward", "I": "gradient of the input", "W": "gradient of the weights"}


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
        longest = float(max(one.makespan for one in self.timelines))
        unit = _unit(longest, max(_least_unit(one) for one in self.timelines))
        widest = max(NARROW, longest * unit)
        body, y = [], 0.0
        for one in self.timelines:
            body.append(f'<g transform="translate(0 {y:g})">{_panel(one, unit)}</g>')
            y += HEAD + one.orders.ranks * (ROW + GAP) + AXIS + GAP
        legend, y = _legend(y, any(one.orders.stages_per_rank > 1 for one in self.timelines))
        body.append(legend)
        width, height = math.ceil(LEFT + widest + 12), math.ceil(y)
        words = "; ".join(map(str, self.timelines))
        # an id of its own: what a hidden picture on the same page defines is not drawn
        name = f"ar-hatch-{zlib.crc32(words.encode())}"
        hatch = (
            '<defs><pattern id="HATCH" width="5" height="5" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="5"/></pattern></defs>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} '
            f'{height}" role="img" aria-label="{escape(words, quote=True)}">{hatch}{"".join(body)}</svg>'
        ).replace("HATCH", name)

    def _repr_html_(self) -> str:
        return (
            f'<div class="ar-theme ar-pipeline">{theme.style()}<style>{STYLE}</style><div class="ar-scroll" '
            f'tabindex="0">{self.svg()}</div></div>'
        )


def picture(*timelines: Timeline) -> Picture:
    """The picture of one run or of several, to compare. Numbers in the boxes are micro-batches.

    >>> print(pipelines.picture(pipelines.timeline(pipelines.orders("1f1b", ranks=2, micro_batches=2))))
    1F1B: 9 long, 33% idle, keeps at most 2, 1
    rank 0  F0 F1 .  .  B0 -- .  B1 --
    rank 1  .  F0 B0 -- F1 B1 -- .  .
    """
    if not timelines:
        raise PipelineError("there is nothing to draw: name at least one timeline.")
    return Picture(timelines)


# ------------------------------------------------------------------------------------------------------------- SVG


def _panel(one: Timeline, unit: float) -> str:
    name, _, figures = str(one).partition(": ")
    parts = [f'<text class="title" x="0" y="17">{escape(name)}</text><text x="0" y="34">{escape(figures)}</text>']
    for rank, spans in enumerate(one.spans):
        y = HEAD + rank * (ROW + GAP)
        parts.append(f'<text x="0" y="{y + 16}">rank {rank}</text>')
        parts.append(f'<rect class="lane" x="{LEFT}" y="{y}" width="{one.makespan * unit:g}" height="{ROW}"/>')
        parts += [_box(span, y, unit, span.action.stage // one.orders.ranks) for span in spans]
    parts.append(_axis(float(one.makespan), y + ROW, unit))
    return "".join(parts)


def _unit(longest: float, least: float) -> float:
    """Pixels for a unit of time: in a narrow cell, where all numbers fit; else wider, up to a whole window."""
    if not longest:
        return UNIT
    return min(UNIT, max(NARROW / longest, min(least, WIDEST / longest)))


def _least_unit(one: Timeline) -> float:
    """Pixels for a unit of time with which every box has room for its number."""
    return max((_room(span) / float(span.end - span.start) for own in one.spans for span in own), default=0.0)


def _room(span: Span) -> float:
    """Pixels that the number of a micro-batch needs in its box: on hatching with paper around it, else its digits."""
    digits = _digits(span)
    return {"W": digits + HALO, "B": min(2 * digits, digits + HALO)}.get(span.action.kind, digits)


def _digits(span: Span) -> float:
    return DIGIT * len(str(span.action.micro_batch))


def _axis(longest: float, y: float, unit: float) -> str:
    """The time, below the lanes: a number wherever one has room."""
    every = next(step for power in range(9) for f in (1, 2, 5) if (step := f * 10**power) * unit >= TICK)
    parts = []
    for time in range(0, int(longest) + 1, every):
        x = LEFT + time * unit
        parts.append(f'<line class="tick" x1="{x:g}" y1="{y}" x2="{x:g}" y2="{y + 4}"/>')
        parts.append(f'<text class="time" x="{x:g}" y="{y + 16}" text-anchor="middle">{time}</text>')
    return f'<g><text class="time" x="0" y="{y + 16}">time</text>{"".join(parts)}</g>'


def _box(span: Span, y: float, unit: float, turn: int) -> str:
    """One action; `turn` says which of the rank's stages it is of."""
    action, x, wide = span.action, LEFT + float(span.start) * unit, float(span.end - span.start) * unit
    first = wide / 2 if action.kind == "B" else wide
    parts = [f"<title>{action.words}: {KINDS[action.kind]}, {float(span.start):g} to {float(span.end):g}</title>"]
    if action.kind == "B":
        parts += [_half("I", x, y, first), _half("W", x + first, y, first)]
    else:
        parts.append(_half(action.kind, x, y, wide))
    parts.append(
        f'<rect class="edge edge{action.kind}" x="{x:g}" y="{y + 0.5:g}" width="{wide:g}" height="{ROW - 1}"/>'
    )
    if turn:
        parts.append(f'<rect class="later" x="{x:g}" y="{y:g}" width="{wide:g}" height="{3 * turn}"/>')
    if wide >= _room(span):
        # over both halves of a backward where one has no room
        middle, on = (first / 2, action.kind) if first >= _digits(span) else (wide / 2, "W")
        label = f'<text class="on{on}" x="{x + middle:g}" y="{y + 17}" text-anchor="middle">{action.micro_batch}</text>'
        parts.append(label)
    return f"<g>{''.join(parts)}</g>"


def _half(kind: str, x: float, y: float, wide: float) -> str:
    made = f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{wide:g}" height="{ROW}"/>'
    if kind == "W":
        made += f'<rect fill="url(#HATCH)" x="{x:g}" y="{y:g}" width="{wide:g}" height="{ROW}"/>'
    return made


def _legend(y: float, several: bool) -> tuple[str, float]:
    """What the looks mean, in as many lines as it needs; and where they end."""
    parts, x = [], 0.0
    for kind, words in (*MEANING.items(), *([("later", "a later stage")] if several else [])):
        wide = 46 + 6.6 * len(words)
        if x + wide > LEFT + NARROW:
            x, y = 0.0, y + ROW + GAP
        if kind == "later":
            parts.append(f'<rect class="later" x="{x:g}" y="{y + 10:g}" width="20" height="3"/>')
        else:
            parts.append(f'{_half(kind, x, y, 20)}<rect class="edge" x="{x:g}" y="{y:g}" width="20" height="{ROW}"/>')
        parts.append(f'<text x="{x + 26:g}" y="{y + 16:g}">{words}</text>')
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

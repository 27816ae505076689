"""What the map is drawn with: elements of an SVG in the theme's colours, wrapped words, the line, the stations and their small pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from allranks.base.chapters import Chapter
from allranks.show.pictures.moves import MOVES
from allranks.show.pictures.pictogram import n, pictogram

Point = tuple[float, float]
STATION = 17  # the radius of a station
BEND = 34  # of the line
_NARROW = set("iljtfrI.,:;'!|()[] ")
_WIDE = set("mwMW@%")


def text(
    x: float, y: float, words: str, size: int = 13, *, kind: str = "ink", weight: int = 400, anchor: str = "start"
) -> str:
    """Words at a place; `kind` is the class that gives their colour."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    heavy = "" if weight == 400 else f' font-weight="{weight}"'
    return f'<text class="{kind}" x="{n(x)}" y="{n(y)}" font-size="{size}"{where}{heavy}>{escape(words)}</text>'


def width_of(words: str, size: float, weight: int = 400) -> float:
    """About how wide words are, in pixels; rather more than less, since the reader's font is not known."""
    ems = sum(0.33 if c in _NARROW else 0.86 if c in _WIDE else 0.68 if c.isupper() else 0.56 for c in words)
    return ems * size * (1.2 if weight > 400 else 1.07)


def wrapped(words: str, width: float, size: float, weight: int = 400) -> list[str]:
    """The words in lines that fit into a width; a word that is too long has a line of its own.

    >>> wrapped("when do weights come and go?", 110, 12)
    ['when do weights', 'come and go?']
    """
    lines: list[str] = []
    for word in words.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width_of(longer, size, weight) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def rect(x: float, y: float, w: float, h: float, kind: str, radius: float = 0, more: str = "") -> str:
    """A box."""
    return f'<rect class="{kind}" x="{n(x)}" y="{n(y)}" width="{n(w)}" height="{n(h)}" rx="{n(radius)}"{more}/>'


def circle(x: float, y: float, r: float, kind: str, more: str = "") -> str:
    """A disc."""
    return f'<circle class="{kind}" cx="{n(x)}" cy="{n(y)}" r="{n(r)}"{more}/>'


def path(d: str, kind: str, more: str = "") -> str:
    """A line."""
    return f'<path class="{kind}" d="{d}"{more}/>'


def inked(d: str, stops: Sequence[float], walked: Sequence[bool]) -> str:
    """The pieces of a line that were walked, in ink. `stops` says how far along the line each station lies, in pixels."""
    dashes, drawn = [0.0], True
    for piece, (a, b) in zip(walked, pairwise(stops), strict=True):
        if piece != drawn:
            dashes.append(0.0)
            drawn = piece
        dashes[-1] += b - a
    if drawn:
        dashes.append(0.0)
    dashes[-1] += 99999  # what lies behind the last station
    marks = " ".join(n(stop) for stop in stops)
    return path(d, "m-walked", f' stroke-dasharray="{" ".join(n(one) for one in dashes)}" data-stops="{marks}"')


class Line:
    """The line through all stations: right angles with round bends, and how far along it each place lies."""

    def __init__(self, corners: Sequence[Point]) -> None:
        self.corners = list(corners)

    def d(self) -> str:
        """The path."""
        (x, y), *_ = self.corners
        out = f"M{n(x)},{n(y)}"
        for before, at, after in zip(self.corners, self.corners[1:], self.corners[2:], strict=False):
            enter, leave = _towards(at, before, BEND), _towards(at, after, BEND)
            turn = (at[0] - before[0]) * (after[1] - at[1]) - (at[1] - before[1]) * (after[0] - at[0])
            out += f"L{n(enter[0])},{n(enter[1])}A{BEND},{BEND} 0 0 {int(turn > 0)} {n(leave[0])},{n(leave[1])}"
        x, y = self.corners[-1]
        return f"{out}L{n(x)},{n(y)}"

    def length_to(self, place: Point) -> float:
        """How far along the line a place on it lies, in pixels."""
        bend = BEND * (2 - math.pi / 2)  # what a round bend is shorter than its corner
        gone = 0.0
        for number, (a, b) in enumerate(zip(self.corners, self.corners[1:], strict=False)):
            whole, part = math.dist(a, b), math.dist(a, place)
            if abs(part + math.dist(place, b) - whole) < 0.01:
                return gone + part - bend * number
            gone += whole
        return gone - bend * (len(self.corners) - 2)


def _towards(at: Point, other: Point, far: float) -> Point:
    whole = math.dist(at, other)
    return at[0] + (other[0] - at[0]) * far / whole, at[1] + (other[1] - at[1]) * far / whole


def station(x: float, y: float, number: str, *, first: bool, radius: float = STATION) -> str:
    """A station of the core; the class of the group around it says whether it was walked, is here, comes next or lies ahead."""
    if first:
        side = 2 * radius - 4
        shape = rect(x - side / 2, y - side / 2, side, side, "m-stop", 7)
    else:
        shape = circle(x, y, radius, "m-stop")
    return shape + text(x, y + 5, number, 14, kind="m-number", weight=700, anchor="middle")


def proofs(x: float, y: float, checks: Sequence[bool], questions: Sequence[bool], *, anchor: str = "middle") -> str:
    """Squares for checks and circles for predictions and quizzes, filled where they are proved or answered."""
    left = x - proofs_width(len(checks), len(questions)) / 2 if anchor == "middle" else x
    out = ""
    for number, good in enumerate(checks):
        out += rect(left + number * 11 + 0.6, y - 3.4, 6.8, 6.8, "m-proof proved" if good else "m-proof", 1.2)
    left += len(checks) * 11 + (4 if checks else 0)
    for number, good in enumerate(questions):
        out += circle(left + number * 11 + 4, y, 3.4, "m-proof proved" if good else "m-proof")
    return out


def proofs_width(checks: int, questions: int) -> float:
    """How wide these squares and circles are."""
    return (checks + questions) * 11 - 3 + (4 if checks else 0)


def tag(x: float, y: float, words: str) -> str:
    """The yellow tag: where the reader is. Its class lets a page move it."""
    wide = width_of(words, 12, 700) + 10
    return (
        f'<g class="m-tag" transform="translate({n(x)},{n(y)})" data-width="{n(wide)}">{rect(-wide / 2, -10.5, wide, 21, "m-you", 4)}'
        f"{text(0, 4, words, 12, kind='m-onyou', weight=700, anchor='middle')}</g>"
    )


def picture_of(chapter: Chapter) -> str:
    """The name of the collective's pictogram that stands for a chapter, or ""."""
    for _, moves in MOVES:
        for move in moves:
            if move.chapter == f"{chapter.part}/{chapter.stem}":
                return move.name
    return ""


def placed(name: str, x: float, y: float, size: int) -> str:
    """A collective's pictogram at a place; screen readers skip it."""
    drawn = pictogram(name, size, inline=True)
    return drawn.replace("<svg ", f'<svg x="{n(x)}" y="{n(y)}" aria-hidden="true" ', 1).replace(' role="img"', "", 1)


def glyph(chapter: Chapter, x: float, y: float) -> str:
    """The small picture of a chapter of the core, 44 x 34: its collective, or in grey what it splits; "" if there is none."""
    name = picture_of(chapter)
    if name:
        return placed(name, x + 1, y - 3, 42)
    draw = _GLYPHS.get(chapter.unlocks or chapter.stem[3:])
    return f'<g aria-hidden="true" transform="translate({n(x)},{n(y)})">{draw()}</g>' if draw else ""


def _ranks() -> str:
    places = [(22, 4), (35, 17), (22, 30), (9, 17)]
    return "".join(circle(x, y, 5, f"m-rank{rank}") for rank, (x, y) in enumerate(places))


def _buckets() -> str:
    return "".join(rect(1 + 9 * i, 8, 8, 8, "m-work", 1.5) + rect(8 + 9 * i, 19, 8, 8, "m-wire", 1.5) for i in range(4))


def _shards() -> str:
    cells = [(i, j) for i in range(3) for j in range(3)]
    return "".join(rect(1 + 15 * i, 7 + 7 * j, 12, 6, "m-work" if i == j else "m-empty", 1.5) for i, j in cells)


def _triangle() -> str:
    cells = [(i, j) for i in range(5) for j in range(5)]
    return "".join(rect(9 + 5.4 * j, 3.5 + 5.4 * i, 4.6, 4.6, "m-work" if j <= i else "m-empty", 0.8) for i, j in cells)


def _experts() -> str:
    ways = "".join(
        path(f"M22,8C22,18 {4 + 12 * i},14 {4 + 12 * i},25", "m-workline")
        + rect(0.5 + 12 * i, 24, 7.5, 6, "m-work", 1.5)
        for i in range(4)
    )
    return ways + circle(22, 7, 4, "m-ink")


def _nodes() -> str:
    """Three nodes with four GPUs each, and what joins them."""
    joined = "".join(path(f"M{n(8 + 14 * i)},11V28", "m-workline") for i in range(3)) + path("M8,28H36", "m-workline")
    return joined + "".join(
        rect(2.5 + 14 * i + 6 * j, 4 + 6 * k, 5, 5, "m-work", 1) for i in range(3) for j in range(2) for k in range(2)
    )


def _all_but_one() -> str:
    """Ranks that wait, and the one that does not."""
    cells = [(i, j) for i in range(4) for j in range(5)]
    return "".join(
        rect(4 + 7.4 * j, 3 + 7.4 * i, 6, 6, "m-ink" if (i, j) == (2, 3) else "m-empty", 1) for i, j in cells
    )


def gpus() -> str:
    """64 GPUs."""
    return "".join(rect(8 + 3.7 * j, 2 + 3.7 * i, 2.9, 2.9, "m-ink", 0.5) for i in range(8) for j in range(8))


# by what the chapter unlocks of the reader's own model, else by the chapter's name
_GLYPHS = {
    "start_here": _ranks,
    "dp": lambda: "".join(rect(1 + 15 * i, 7 + 5 * j, 12, 4, "m-work", 1) for i in range(3) for j in range(4)),
    "bucket_nbytes": _buckets,
    "zero_stage": _shards,
    "tp": lambda: "".join(rect(4 + 9.4 * i, 5, 7.6, 24, "m-work", 1.5) for i in range(4)),
    "pp": lambda: "".join(rect(1 + 7 * (i + j), 5 + 6.4 * i, 6, 5.2, "m-work", 1) for i in range(4) for j in range(3)),
    "cp": _triangle,
    "ep": _experts,
    "topology": _nodes,
    "when_it_hangs": _all_but_one,
    "your_own_job": gpus,
}

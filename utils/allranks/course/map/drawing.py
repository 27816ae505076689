"""The map as one SVG: parts are fields, the core is a line through them, side trips hang on its stations.

Even rows run to the right and odd ones to the left, as a river does; the document's order is always that of the story.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape

from allranks.base.chapters import Chapter, Part, find, parts, side_trips
from allranks.course.map import words
from allranks.course.map.shapes import (
    STATION,
    Line,
    Point,
    circle,
    glyph,
    inked,
    path,
    picture_of,
    placed,
    proofs,
    rect,
    station,
    tag,
    text,
    width_of,
    wrapped,
)
from allranks.course.state import Progress, State
from allranks.show.pictures.pictogram import n

IN_A_ROW = 7  # stations
TABLE_TEXT = 48  # of a column of such a table, what the pictogram and the space after the words take
INSET = 16  # what a table of side trips leaves free on both sides
LINE_AT = 146  # below the upper edge of a row
EDGE, GAP, SIDE = 22, 10, 58  # where the line goes down; between fields; what a row leaves free for it
END = 124  # what the last row leaves free for the line's end
FIRST = 54  # what the first row leaves free for the tag, which stands before the first station: behind it, it would seem to name the next
# what each argument of `plan` is called on the line
WON = {
    "dp": "+ replicas",
    "bucket_nbytes": "+ overlap",
    "zero_stage": "+ ZeRO",
    "tp": "+ TP",
    "pp": "+ PP",
    "cp": "+ CP",
    "ep": "+ EP",
}


@dataclass(frozen=True)
class Manner:
    """How chapters are shown. `href` gives a chapter's address, or "" for none. With `counts`, a class's words by chapter replace one
    reader's squares and circles. `tag` is what the yellow tag says."""

    href: Callable[[Chapter], str] = lambda chapter: ""
    counts: Mapping[str, str] | None = None
    tag: str = "you are here"


@dataclass
class Stop:
    """A station with its place, and the right edge of what belongs to it."""

    progress: Progress
    x: float
    y: float
    right: float
    slot: tuple[float, float]

    @property
    def chapter(self) -> Chapter:
        """The chapter."""
        return self.progress.chapter


@dataclass
class Row:
    """The parts that stand side by side, their fields as (left, right), their stations in the order of the story."""

    parts: list[Part]
    top: float
    fields: list[tuple[float, float]] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    height: float = 0.0

    @property
    def y(self) -> float:
        """The height of the line."""
        return self.top + LINE_AT


def status(state: State, chapter: Chapter) -> str:
    """The class of a chapter: here, next, walked (something is proved), seen (nothing of it is) or ahead."""
    if chapter == (state.here or state.go_on):
        return "here"
    progress = state[chapter.number]
    if chapter.core and chapter == state.next:
        return "next"
    return "walked" if progress.walked else "seen" if progress.seen else "ahead"


def said_at(state: State, manner: Manner) -> str:
    """What the yellow tag says."""
    return manner.tag if state.here is not None else "begin here"


def linked(state: State, chapter: Chapter, manner: Manner, inside: str, place: Point | None = None) -> str:
    """A chapter as a link around its shapes, with what a screen reader says. `place` is where the tag stands if the reader is there."""
    progress, kind = state[chapter.number], status(state, chapter) if manner.counts is None else "ahead"
    said = manner.counts.get(chapter.number, "nobody yet") if manner.counts is not None else words.of_chapter(progress)
    here = f"{said_at(state, manner)}, " if kind == "here" and manner.counts is None else ""
    label = f"{words.named(chapter)}: {here}{said}{'. ' + chapter.why if chapter.why else ''}"
    href = manner.href(chapter)
    about = (
        f'class="m-chapter {kind} {"core" if chapter.core else "trip"}" data-chapter="{chapter.number}" '
        f'data-path="{chapter.path.as_posix()}" data-minutes="{progress.contents.minutes}" aria-label="{escape(label)}"'
        + (f' data-tag="{n(place[0])},{n(place[1])}"' if place else "")
    )
    current = ' aria-current="step"' if kind == "here" else ""
    tip = f"<title>{escape(label)}</title>"
    if not href:
        return f'<g {about} role="img"{current}>{tip}{inside}</g>'
    return f'<a href="{escape(href)}" {about}{current}>{tip}{inside}</a>'


def drawing(state: State, width: int = 1180, manner: Manner | None = None) -> str:
    """The map as an SVG element of this width in pixels, 1000 at least. Its colours are those of `page.STYLE`."""
    manner = manner or Manner()
    rows = _rows(state, width)
    body, top = "", 0.0
    for row in rows:
        row.top = top
        _place(row, state)
        inside = "".join(_stop(state, stop, manner) + _hanging(state, stop, manner) for stop in row.stops)
        fields = "".join(rect(a, row.top, b - a, row.height, "m-field", 14) for a, b in row.fields)
        heads = "".join(
            _head(part, at, row, rows, state, manner) for part, at in zip(row.parts, row.fields, strict=True)
        )
        body += f"{fields}{heads}\n{inside}\n"
        top += row.height + GAP
    line = _line(rows, width)
    extras, high = _extras(state, width, top + 8, manner)
    whole = _under(body, _drawn_line(line, rows, state, width)) + extras
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="m-map" width="{width}" height="{n(high)}" viewBox="0 0 {width} {n(high)}" '
        f'role="group" aria-label="The course as a line of {len(state.core)} chapters with side trips">{whole}</svg>'
    )


def _under(body: str, line: str) -> str:
    """The fields, then the line, then all that stands on it."""
    lines = body.split("\n")
    fields = "".join(part for part in lines if part.startswith("<rect"))
    return fields + line + "".join(part for part in lines if not part.startswith("<rect"))


def _rows(state: State, width: int) -> list[Row]:
    """The numbered parts, packed into rows of at most seven stations."""
    by_folder = {part.folder: part for part in parts()}
    rows = [Row([by_folder[folder] for folder in folders], 0.0) for folders in _packed()]
    for number, row in enumerate(rows):
        _stations(row, number, len(rows), state, width)
    return rows


def _pictured(chapter: Chapter) -> bool:
    """Whether the side trips of a chapter are shown as a table of pictograms."""
    return sum(bool(picture_of(trip)) for trip in _trips(chapter)) >= 3


def _trips(chapter: Chapter) -> list[Chapter]:
    """The side trips that hang on a chapter; the extras stand in a row of their own."""
    own = {part.folder for part in parts() if part.number}
    return [trip for trip in side_trips(chapter) if trip.part in own]


def _stations(row: Row, number: int, rows: int, state: State, width: int) -> None:
    """Gives the stations of a row their places from left to right, and the parts their fields."""
    stops = [progress for progress in state.core if progress.chapter.part in {part.folder for part in row.parts}]
    shown = stops if number % 2 == 0 else stops[::-1]
    weights = [
        _weight(one.chapter, after.chapter if after else None, row)
        for one, after in zip(shown, [*shown[1:], None], strict=True)
    ]
    left = FIRST if number == 0 else SIDE
    last = number == rows - 1
    right = width - (END if last else SIDE)
    each = (right - left) / sum(weights)
    at, found = float(left), []
    for progress, weight in zip(shown, weights, strict=True):
        slot = at, at + each * weight
        x = (slot[0] + slot[1]) / 2 if _pictured(progress.chapter) else slot[0] + min(60.0, each / 2)
        found.append(Stop(progress, x, 0.0, 0.0, slot))
        at = slot[1]
    ends = float(right if last else right + SIDE - EDGE - 8)
    for place, stop in enumerate(found):
        # side trips may lie below stations that have none
        after = next((other for other in found[place + 1 :] if _trips(other.chapter)), None)
        stop.right = after.slot[0] if after and _pictured(after.chapter) else after.x - 14 if after else ends
    row.stops = found if number % 2 == 0 else found[::-1]
    _fields(row, width)


def _weight(chapter: Chapter, after: Chapter | None, row: Row) -> float:
    """How wide the slot of a station is beside the others: a table of pictures needs more, and so do words that end at a field's edge, or
    in a full row at those of the station to its right, `after`."""
    if _pictured(chapter):
        return 2.6
    if after is not None and sum(one.core for part in row.parts for one in part.chapters) == IN_A_ROW:
        return 1.6 if _trips(chapter) and _trips(after) else 1.0
    edges = [[one for one in part.chapters if one.core][-1] for part in row.parts]
    if chapter not in edges or not _trips(chapter) or len(edges) == 1:
        return 1.0
    return 1.8 if chapter != edges[-1] else 1.5


def _fields(row: Row, width: int) -> None:
    """Neighbouring parts meet where the first station of the second begins."""
    edge = 0.0
    for number, part in enumerate(row.parts):
        after = row.parts[number + 1] if number + 1 < len(row.parts) else None
        ends = float(width)
        if after is not None:
            ends = next(stop.slot[0] for stop in row.stops if stop.chapter.part == after.folder) - GAP / 2
        row.fields.append((edge, ends))
        edge = ends + GAP
        for stop in row.stops:
            if stop.chapter.part == part.folder:
                stop.right = min(stop.right, ends - 16)


def _place(row: Row, state: State) -> None:
    """Sets the heights of a row: of its stations, and its own from what hangs on them."""
    for stop in row.stops:
        stop.y = row.y
    row.height = max(_depth(stop, state) for stop in row.stops) + LINE_AT + 14


def _depth(stop: Stop, state: State) -> float:
    """How far below the line the side trips of a station reach."""
    trips = _trips(stop.chapter)
    if _pictured(stop.chapter):
        return 44 + sum(_table_heights(stop, state))
    return max(36.0, 24 + sum(_trip_height(stop, trip, state) for trip in trips))


def _trip_height(stop: Stop, trip: Chapter, state: State) -> float:
    room = stop.right - stop.x - 32
    return (
        16 * len(wrapped(words.kept_together(trip), room, 13, 600)) + 15 * len(wrapped(_why(trip, state), room, 12)) + 8
    )


def _why(trip: Chapter, state: State) -> str:
    """Why one would go there, and how long it takes, which no line breaks."""
    length = words.time(state[trip.number].contents.minutes)
    return f"{trip.why} {length.replace(' ', chr(0xA0))}"


def _table_heights(stop: Stop, state: State) -> list[float]:
    room = _column(stop) - TABLE_TEXT
    trips = _trips(stop.chapter)
    each = [
        17 * len(wrapped(words.kept_together(t), room, 13, 600)) + 15 * len(wrapped(_why(t, state), room, 12)) + 8
        for t in trips
    ]
    return [max(each[i : i + 2]) for i in range(0, len(each), 2)]


def _column(stop: Stop) -> float:
    """How wide one of the two columns of a table of side trips is."""
    return (stop.slot[1] - stop.slot[0] - 2 * INSET) / 2


def _line(rows: list[Row], width: int) -> Line:
    corners: list[Point] = [(rows[0].stops[0].x, rows[0].y)]
    for number, (row, after) in enumerate(itertools.pairwise(rows)):
        x = width - EDGE if number % 2 == 0 else EDGE
        corners += [(float(x), row.y), (float(x), after.y)]
    return Line([*corners, (width - 70.0, rows[-1].y)])


def _drawn_line(line: Line, rows: list[Row], state: State, width: int) -> str:
    """The track, what is walked of it in ink, arrowheads, and where it leads."""
    stops = [stop for row in rows for stop in row.stops]
    gone = [line.length_to((stop.x, stop.y)) for stop in stops]
    d = line.d()
    out = path(d, "m-track") + path(d, "m-hollow") + inked(d, gone, state.walked)
    for number, row in enumerate(rows[:-1]):
        out += _arrow((width - EDGE if number % 2 == 0 else EDGE, (row.y + rows[number + 1].y) / 2), (0, 1))
    for number, row in enumerate(rows):
        for a, b in zip(row.stops[:-1], row.stops[1:], strict=True):
            if b is row.stops[-1] or row.stops.index(b) == len(row.stops) // 2:
                out += _arrow(((a.x + b.x) / 2, row.y), (1 if number % 2 == 0 else -1, 0))
    x, y = width - 70.0, rows[-1].y
    cells = "".join(
        rect(x - 28 + 3.6 * j, y - 18 + 9.4 * i, 2.8, 7.6, "m-work", 0.6) for i in range(4) for j in range(16)
    )
    end = (
        rect(x - 36, y - 26, 72, 52, "m-end", 8)
        + cells
        + text(x, y + 44, "my model", 12, kind="m-soft", anchor="middle")
    )
    return f'<g aria-hidden="true">{out}{end}{text(x, y + 59, "on 64 GPUs", 12, kind="m-soft", anchor="middle")}</g>'


def _arrow(at: Point, to: tuple[int, int]) -> str:
    (x, y), (dx, dy) = at, to
    points = (
        (x - 4 * dx - 5 * dy, y - 4 * dy - 5 * dx),
        (x + 4 * dx, y + 4 * dy),
        (x - 4 * dx + 5 * dy, y - 4 * dy + 5 * dx),
    )
    return path("M" + "L".join(f"{n(a)},{n(b)}" for a, b in points), "m-arrow")


def _head(part: Part, at: tuple[float, float], row: Row, rows: list[Row], state: State, manner: Manner) -> str:
    """A part's number, title and what is left of it; where the story's model enters, its size on one GPU."""
    x, y = at[0] + (62 if rows.index(row) == len(rows) - 1 and len(rows) % 2 else 20), row.top + 28
    after = x + 18 + width_of(part.title, 15, 600) + 16
    note = "" if manner.counts is not None else words.of_part(part, state)
    out = text(x, y, part.number, 15, kind="m-ink", weight=700) + text(
        x + 18, y, part.title, 15, kind="m-ink", weight=600
    )
    out += text(after, y, note, 13, kind="m-soft")
    if any(chapter.unlocks for chapter in part.chapters):
        out += _model(at[1] - 24, y, after + width_of(note, 13) + 24)
    return f"<g>{out}</g>"


def _model(right: float, y: float, left: float) -> str:
    """What the story's model needs on one GPU, beside what that has: what does not fit is hatched."""
    from allranks.show.widgets.my_model_story import START, step_of

    alone = step_of(START)
    wide = 134.0
    fits = wide * alone.gpu.nbytes / alone.nbytes
    said = f"my model needs {alone.nbytes / 1e9:.0f} GB; one GPU has {alone.gpu.nbytes / 1e9:.0f} GB"
    x = right - wide - 40
    if x - 14 - width_of(said, 12) < left:
        return ""
    return (
        text(x - 10, y, said, 12, kind="m-soft", anchor="end")
        + rect(x, y - 11, fits, 13, "m-work", 2)
        + _hatched(x + fits + 1.5, y - 11, wide - fits - 1.5, 13)
        + rect(x + fits - 0.7, y - 16, 2.5, 23, "m-ink")
    )


def _hatched(x: float, y: float, wide: float, high: float) -> str:
    """What does not fit."""
    stripes = "".join(f"M{n(x + 5 * i)},{n(y + high)}l{n(high)},{n(-high)}" for i in range(int((wide - high) / 5) + 1))
    return rect(x, y, wide, high, "m-over", 2) + path(stripes, "m-stripes")


def _stop(state: State, stop: Stop, manner: Manner) -> str:
    """A station: picture, name, what is proved, the station itself, and the yellow tag if the reader is there."""
    chapter, progress, x, y = stop.chapter, stop.progress, stop.x, stop.y
    kind = status(state, chapter)
    first = chapter == state.core[0].chapter
    weight = 700 if kind in ("here", "next") else 600
    inside = glyph(chapter, x - 22, y - 108) + text(
        x, y - 50, chapter.title, 15, kind="m-ink", weight=weight, anchor="middle"
    )
    if manner.counts is not None:
        inside += text(x, y - 29, manner.counts.get(chapter.number, ""), 12, kind="m-soft m-count", anchor="middle")
    else:
        checks, questions = _proved(progress)
        inside += proofs(x, y - 33, checks, questions)
    if won := WON.get(chapter.unlocks):
        inside += text(x - 22, y + 21, won, 12, kind="m-ink", weight=600, anchor="end")
    inside += station(x, y, chapter.number, first=first)
    said = said_at(state, manner)
    behind = -1 if _runs_right(chapter) else 1
    place = x + behind * (STATION + 13 + width_of(said, 12, 700) / 2), y
    if kind == "here" and manner.counts is None:
        inside += tag(*place, said)
    area = rect(x - 60, y - 110, 120, 110 + STATION, "m-area")
    return linked(state, chapter, manner, area + inside, place)


def _runs_right(chapter: Chapter) -> bool:
    """Whether the line runs to the right through this chapter: every second row does."""
    return next(number for number, row in enumerate(_packed()) if chapter.part in row) % 2 == 0


def _packed() -> list[list[str]]:
    """The folders of the parts in each row."""
    rows: list[tuple[int, list[str]]] = []
    for part in (part for part in parts() if part.number):
        count = sum(chapter.core for chapter in part.chapters)
        if rows and rows[-1][0] + count <= IN_A_ROW:
            rows[-1] = rows[-1][0] + count, [*rows[-1][1], part.folder]
        else:
            rows.append((count, [part.folder]))
    return [folders for _, folders in rows]


def _proved(progress: Progress) -> tuple[list[bool], list[bool]]:
    checks = [progress.passed(item) for item in progress.contents.checks]
    return checks, [item.name in progress.answered for item in progress.contents.questions]


def _hanging(state: State, stop: Stop, manner: Manner) -> str:
    """The side trips of a station."""
    trips = _trips(stop.chapter)
    if _pictured(stop.chapter):
        return _table(state, stop, trips, manner)
    out, y = "", stop.y + 44.0
    for trip in trips:
        room = stop.right - stop.x - 32
        elbow = f"M{n(stop.x)},{n(stop.y + STATION)}V{n(y - 14)}q0,10 10,10H{n(stop.x + 16)}"
        inside = path(elbow, "m-elbow", ' aria-hidden="true"') + circle(stop.x + 21, y - 4, 5, "m-dot")
        out += linked(state, trip, manner, inside + _words(state, trip, stop.x + 32, y, room, manner))
        y += _trip_height(stop, trip, state)
    return out


def _words(state: State, trip: Chapter, x: float, y: float, room: float, manner: Manner) -> str:
    """The name of a side trip and why one would go, below each other; the tag stands in place of the question where the reader is."""
    out = ""
    for line in wrapped(words.kept_together(trip), room, 13, 600):
        out += text(x, y, line, 13, kind="m-ink m-name", weight=600)
        y += 16
    if trip == state.here and manner.counts is None:
        return out + tag(x + width_of(manner.tag, 12, 700) / 2 + 7, y - 2, manner.tag)
    lines = (
        [manner.counts[trip.number]]
        if manner.counts and manner.counts.get(trip.number)
        else wrapped(_why(trip, state), room, 12)
    )
    for line in lines:
        out += text(x, y, line, 12, kind="m-soft")
        y += 15
    return out


def _table(state: State, stop: Stop, trips: list[Chapter], manner: Manner) -> str:
    """Side trips with their pictograms, two beside each other, below a bracket."""
    left, right, each = stop.slot[0] + INSET, stop.slot[1] - INSET, _column(stop)
    bracket = f"M{n(stop.x)},{n(stop.y + STATION)}v9M{n(left)},{n(stop.y + 34)}q0,-8 8,-8H{n(right - 8)}q8,0 8,8"
    out, y = path(bracket, "m-elbow", ' aria-hidden="true"'), stop.y + 52.0
    for number, high in enumerate(_table_heights(stop, state)):
        for column, trip in enumerate(trips[2 * number : 2 * number + 2]):
            x = left + column * each
            picture = placed(picture_of(trip), x + 2, y - 14, 30) if picture_of(trip) else circle(x + 16, y, 5, "m-dot")
            area = rect(x, y - 16, each - 8, high - 4, "m-area")
            out += linked(
                state, trip, manner, area + picture + _words(state, trip, x + 37, y, each - TABLE_TEXT, manner)
            )
        y += high
    return out


def _extras(state: State, width: float, y: float, manner: Manner) -> tuple[str, float]:
    """The extras as a row of small links, and where the row ends."""
    left = 20.0
    extras = next(part for part in parts() if not part.number)
    x, out = left, text(left, y + 20, extras.title, 13, kind="m-ink", weight=600)
    x += width_of(extras.title, 13, 600) + 20
    for chapter in extras.chapters:
        name = words.named(chapter)
        wide = width_of(name, 13) + 36
        if x + wide > width - left:
            x, y = left, y + 38
        inside = (
            rect(x, y, wide, 30, "m-chip", 15)
            + circle(x + 14, y + 15, 4, "m-dot")
            + text(x + 24, y + 19.5, name, 13, kind="m-ink")
        )
        out += linked(state, chapter, manner, inside)
        x += wide + 9
    return f"<g>{out}</g>", y + 38


def hangs_near(chapter: Chapter) -> Chapter:
    """The chapter of the core at which a chapter is found on the map."""
    return chapter if chapter.core else find(chapter.hangs_on)

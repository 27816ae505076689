"""A collective as a picture: above what each rank holds before, below what it holds after, ribbons in between.

Place is the rank, colour is whose numbers. Parts side by side are joined, stripes are added, the ink pill is the
adding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape

from allranks.show.pictures.flow import Flow, Part, Stream, flow
from allranks.show.pictures.palette import HUES, style

WIDE, SMALL = 800, 48


@dataclass(frozen=True)
class Frame:
    """Where a picture's boxes stand: its size, their height and gap, whether it is the small one, the lines' width."""

    width: float
    height: float
    ranks: int
    box: float
    gap: float
    top: float = 0.0
    small: bool = False
    line: float = 2.0

    @property
    def cell(self) -> float:
        """The width of a rank's box."""
        return (self.width - self.gap * (self.ranks - 1)) / self.ranks

    @property
    def upper(self) -> float:
        """Where the ribbons start."""
        return self.top + self.box

    @property
    def lower(self) -> float:
        """Where the ribbons end."""
        return self.top + self.height - self.box

    def x(self, rank: int, slot: float = 0, slots: int = 1) -> float:
        """The left edge of a slot of a rank."""
        return rank * (self.cell + self.gap) + slot * self.cell / slots


def pictogram(name: str, size: int = WIDE, *, inline: bool = False) -> str:
    """The SVG of a collective, or of "send_recv", `size` pixels wide; at 64 pixels and less it has three ranks and no
    plus sign.

    With `inline` it has no style sheet of its own: the page has that of `palette.page_style`.

    >>> pictogram("all_reduce")[:4]
    '<svg'
    """
    small = size <= 64
    f = flow(name, 3 if small else 4)
    width = SMALL if small else WIDE
    frame = replace(frame_of(f.ranks, width, small), line=0.9 if small else max(2.0, 0.8 * width / size))
    high = SMALL if small else frame.height
    title = name.replace("send_recv", "send and recv").replace("_", "-")
    return document(drawn(f, frame), width, high, size, title, f.words(), inline=inline)


def frame_of(ranks: int, width: float, small: bool = False, height: float | None = None) -> Frame:
    """The measures of a picture of this width."""
    if small:
        return Frame(width, 0.9 * width, ranks, 0.198 * width, 0.05 * width, 0.05 * width, True)
    height = height or 0.635 * width
    return Frame(width, height, ranks, 0.108 * width, 0.04 * width)


def document(
    body: str, width: float, height: float, size: float, title: str, words: str, *, inline: bool = False, more: str = ""
) -> str:
    """An SVG document, with its title and its description for screen readers; `more` is added to its style sheet."""
    side = 0.01 * width  # a pill is a little wider than what it adds
    tall = height + side / 2  # and half a line stands out above and below
    high = round(size * tall / (width + 2 * side), 1)
    box = f"{n(-side)} {n(-side / 4)} {n(width + 2 * side)} {n(tall)}"
    sheet = "" if inline else f"<style>{style(body)}{more}</style>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ar-pic" viewBox="{box}" '
        f'width="{n(size)}" height="{n(high)}" role="img">'
        f"<title>{escape(title)}</title><desc>{escape(words)}</desc>{sheet}{body}</svg>"
    )


def drawn(f: Flow, frame: Frame) -> str:
    """The picture's elements, the hindmost first."""
    out = [_outline(frame, rank, y) for rank in range(f.ranks) for y in (frame.top, frame.lower)]
    if f.name == "barrier":
        return "".join(out + _barrier(f, frame))
    far = [(part, stream) for stream in f.streams for part in stream.targets]
    middle = (f.ranks - 1) / 2
    far.sort(key=lambda found: (-abs(found[0].rank - middle), found[0]))
    pills = []
    for stream in f.streams:
        if stream.adds:
            pills.append(_pill(frame, stream, f.slots))
            out += _joining(frame, stream, f.slots)
    many = any(len(stream.targets) > 1 for stream in f.streams)
    for part, stream in far:
        out += _leaving(frame, stream, part, f.slots, "b" if many else "a")
    out += pills
    out += [_part(frame, part, f.slots, frame.top) for part in f.before]
    out += [_part(frame, part, f.slots, frame.lower) for part in f.after]
    return "".join(out)


def n(value: float) -> str:
    """A number as short as it can be to a hundredth."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if round(value, 2) else "0"


def ribbon(
    kind: str, start: tuple[float, float], above: float, end: tuple[float, float], below: float, edge: float
) -> str:
    """A ribbon from the places `start` at height `above` to the places `end` at height `below`, edged with paper."""
    half = (above + below) / 2
    (a, b), (c, d) = start, end
    path = (
        f"M{n(a)} {n(above)}C{n(a)} {n(half)} {n(c)} {n(half)} {n(c)} {n(below)}H{n(d)}C{n(d)} {n(half)} {n(b)} "
        f"{n(half)} {n(b)} {n(above)}Z"
    )
    return f'<path class="{kind} edge" stroke-width="{n(edge)}" d="{path}"/>'


def _outline(frame: Frame, rank: int, y: float) -> str:
    return (
        f'<rect class="line" x="{n(frame.x(rank))}" y="{n(y)}" width="{n(frame.cell)}" height="{n(frame.box)}" '
        f'rx="{n(0.18 * frame.box)}" fill="none" stroke-width="{n(frame.line)}"/>'
    )


def _span(frame: Frame, part: Part, slots: int) -> tuple[float, float]:
    """The left and right edge of a part; parts leave a little room between them."""
    inset = 0.03 * frame.cell / slots if slots > 1 else 0.0
    return frame.x(part.rank, part.slot, slots) + inset, frame.x(part.rank, part.slot + 1, slots) - inset


def _part(frame: Frame, part: Part, slots: int, y: float) -> str:
    left, right = _span(frame, part, slots)
    radius = (0.18 if slots == 1 else 0.072) * frame.box
    count = len(part.owners)
    each = frame.box / count
    return "".join(
        _stripe(left, y + i * each, right - left, each, radius, i == 0, i == count - 1, owner)
        for i, owner in enumerate(part.owners)
    )


def _stripe(x: float, y: float, w: float, h: float, radius: float, first: bool, last: bool, owner: int) -> str:
    """A bar whose upper corners are round if it is the first of its part, and whose lower ones if it is the last."""
    a, b = min(radius, h) * first, min(radius, h) * last
    path = f"M{n(x)} {n(y + a)}" + (f"q0 {n(-a)} {n(a)} {n(-a)}" if a else "") + f"h{n(w - 2 * a)}"
    path += (f"q{n(a)} 0 {n(a)} {n(a)}" if a else "") + f"v{n(h - a - b)}"
    path += (
        (f"q0 {n(b)} {n(-b)} {n(b)}" if b else "") + f"h{n(2 * b - w)}" + (f"q{n(-b)} 0 {n(-b)} {n(-b)}" if b else "")
    )
    return f'<path class="r{owner % HUES}" d="{path}z"/>'


def _meeting(frame: Frame, stream: Stream, slots: int) -> tuple[float, float, float]:
    """Where a stream's numbers are added: left edge, width, height; just above one target, or amid several."""
    spans = [_span(frame, part, slots) for part in stream.targets]
    wide = frame.cell / slots
    centre = (min(a for a, _ in spans) + max(b for _, b in spans)) / 2
    share = 0.5 if len(spans) > 1 else 0.8
    return centre - wide / 2, wide, frame.upper + share * (frame.lower - frame.upper)


def _joining(frame: Frame, stream: Stream, slots: int) -> list[str]:
    left, wide, y = _meeting(frame, stream, slots)
    each, edge = wide / len(stream.sources), _edge(frame)
    return [
        ribbon(
            f"a{part.owners[0] % HUES}",
            _span(frame, part, slots),
            frame.upper,
            (left + i * each, left + (i + 1) * each),
            y,
            edge,
        )
        for i, part in enumerate(stream.sources)
    ]


def _leaving(frame: Frame, stream: Stream, target: Part, slots: int, tint: str) -> list[str]:
    a, b = _span(frame, target, slots)
    if not stream.adds:
        source = stream.sources[0]
        start = _span(frame, source, slots)
        return [ribbon(f"{tint}{source.owners[0] % HUES}", start, frame.upper, (a, b), frame.lower, _edge(frame))]
    left, wide, y = _meeting(frame, stream, slots)
    count = len(stream.sources)
    out = []
    for i, source in enumerate(stream.sources):
        start = left + i * wide / count, left + (i + 1) * wide / count
        end = a + i * (b - a) / count, a + (i + 1) * (b - a) / count
        out.append(ribbon(f"{tint}{source.owners[0] % HUES}", start, y, end, frame.lower, _edge(frame)))
    return out


def _edge(frame: Frame) -> float:
    return 0.25 if frame.small else frame.width / 420


def _pill(frame: Frame, stream: Stream, slots: int) -> str:
    """The ink pill: here numbers are added. The small picture has no plus sign."""
    left, wide, y = _meeting(frame, stream, slots)
    high = (0.4 if frame.small else 0.46) * frame.box
    over = max(0.03 * wide, 0.0075 * frame.width)
    x, w, arm = left - over, wide + 2 * over, 0.32 * high
    out = (
        f'<rect class="ink edge" x="{n(x)}" y="{n(y - high / 2)}" width="{n(w)}" height="{n(high)}" rx="{n(high / 2)}" '
        f'stroke-width="{n(_edge(frame))}"/>'
    )
    if frame.small:
        return out
    path = f"M{n(x + w / 2 - arm)} {n(y)}h{n(2 * arm)}M{n(x + w / 2)} {n(y - arm)}v{n(2 * arm)}"
    return out + f'<path class="edge" d="{path}" stroke-width="{n(0.17 * high)}" stroke-linecap="round"/>'


def _barrier(f: Flow, frame: Frame) -> list[str]:
    """No bytes, so a line and no ribbon: who comes waits at the bar until all have come."""
    y, high = (frame.upper + frame.lower) / 2, 0.2 * frame.box
    wide = 0.09 * frame.cell
    out = []
    for part in (part for part in f.before if part.chunk == part.rank):
        x = frame.x(part.rank) + frame.cell / 2
        for top, bottom in ((frame.upper, y), (y, frame.lower)):
            out.append(
                ribbon(
                    f"a{part.rank % HUES}", (x - wide / 2, x + wide / 2), top, (x - wide / 2, x + wide / 2), bottom, 0
                )
            )
    for centre in (frame.top + frame.box / 2, frame.lower + frame.box / 2):
        out += [
            (
                f'<circle class="r{rank % HUES}" cx="{n(frame.x(rank) + frame.cell / 2)}" cy="{n(centre)}" '
                f'r="{n(0.22 * frame.box)}"/>'
            )
            for rank in range(f.ranks)
        ]
    return [
        *out,
        (
            f'<rect class="ink" x="0" y="{n(y - high / 2)}" width="{n(frame.width)}" height="{n(high)}" '
            f'rx="{n(high / 2)}"/>'
        ),
    ]

"""Pictures of chapters on sums and sizes, drawn like those in `scenes`."""

from __future__ import annotations

from itertools import accumulate

from allranks.show.pictures.pictogram import WIDE, n
from allranks.show.pictures.scenes import Scene, box, text


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path class="workline" d="M{n(x)} {n(y)}L{n(to_x)} {n(to_y)}" fill="none" stroke-width="3"/>'


def _dot(x: float, y: float) -> str:
    return f'<circle class="ink" cx="{n(x)}" cy="{n(y)}" r="9"/>'


def roundings(ranks: int = 8) -> Scene:
    """The chapter on bits: the additions of a chain and of a tree, each with a dot where its sum is rounded."""
    left, out = 150.0, []
    step = (WIDE - left) / ranks
    middles = [left + step * (rank + 0.5) for rank in range(ranks)]
    for rank, x in enumerate(middles):
        out.append(box(f"r{rank % 4}", x - 34, 160, 68, 46, 8) + text(x, 191, str(rank), f"on{rank % 4}"))
    out.append(text(0, 80, "ring", anchor="start") + text(0, 300, "tree", anchor="start"))
    # the chain climbs by one rank after the other
    before, dots = (middles[0], 158.0), []
    for rank in range(1, ranks):
        dot = (middles[rank], 140.0 - 17 * rank)
        out.append(_line(*before, *dot) + _line(middles[rank], 158, *dot))
        dots.append(_dot(*dot))
        before = dot
    tips, y = [(x, 208.0) for x in middles], 250.0
    while len(tips) > 1:
        tips, pairs = [((a[0] + b[0]) / 2, y) for a, b in zip(tips[::2], tips[1::2], strict=True)], tips
        for tip, (a, b) in zip(tips, zip(pairs[::2], pairs[1::2], strict=True), strict=True):
            out.append(_line(*a, *tip) + _line(*b, *tip))
            dots.append(_dot(*tip))
        y += 45
    words = (
        f"The numbers of {ranks} ranks in a row. Above, a ring adds them one after the other, with {ranks - 1} "
        "roundings in a chain, each a dot. Below, a tree adds them in pairs, with three roundings one after "
        "the other."
    )
    return "".join([*out, *dots]), y - 20, words


def unequal(counts: tuple[int, ...] = (3, 1, 7, 2)) -> Scene:
    """The chapter on uneven parts: each rank's rows, then all rows; where each part begins is the question."""
    side, high, out = 50.0, 52.0, []
    for rank, count in enumerate(counts):
        out.append(text(0, rank * high + 31, f"rank {rank}", anchor="start"))
        out += [box(f"r{rank}", 130 + side * i, rank * high, side - 6, high - 10) for i in range(count)]
    low = len(counts) * high + 50
    starts = [0, *accumulate(counts)]
    for rank, count in enumerate(counts):
        out += [box(f"r{rank}", 130 + side * (starts[rank] + i), low, side - 6, high - 10) for i in range(count)]
        out.append(text(130 + side * starts[rank] + 22, low - 12, "?", "ink"))
    words = (
        f"Four ranks with {', '.join(map(str, counts))} rows each. Below, all rows one after the other, with a "
        "question mark where each rank's part begins."
    )
    return "".join(out), low + high, words

"""One clock for two animations of which one is a schedule: a step lasts alpha and the bytes of its largest message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from allranks.show.player.animation import Animation, size

# seconds a message and seconds a byte: between two GPUs of one machine, as the course's chapters on cost have it
ALPHA = 5e-6
BETA = 1 / 50e9
# the vector of a schedule without a size
_NBYTES = 1_000_000


def on_one_clock(animations: Sequence[Animation]) -> list[Animation]:
    """The same animations with the times of the model; unchanged where one of them is a live or a simulated run.

    Example:
        >>> ring, tree = (animate(make(4), 4_000_000) for make in (ring_all_reduce, tree_all_reduce))
        >>> [round(1e6 * max(t.end for t in f.transfers)) for f in on_one_clock([ring, tree])]
        [150, 340]
    """
    if any(f.kind in ("live", "simulated") or f.bars or not f.transfers for f in animations):
        return list(animations)
    return [_paced(f) for f in animations]


def _paced(f: Animation) -> Animation:
    # a schedule without a size counts chunks as bytes
    sizeless = f.kind == "schedule" and f.nbytes == f.chunks
    unit = _NBYTES / max(1, f.chunks) if sizeless else 1.0
    most = [0.0] * f.steps
    for transfer in f.transfers:
        most[transfer.step] = max(most[transfer.step], transfer.nbytes * unit)
    ends = list(accumulate(ALPHA + BETA * nbytes for nbytes in most))
    starts = [0.0, *ends]
    transfers = tuple(replace(t, start=starts[t.step], end=ends[t.step] if t.delivered else None) for t in f.transfers)
    vector = f" of a vector of {size(_NBYTES)}" if sizeless else ""
    pace = f"a step takes {ALPHA * 1e6:g} µs + its bytes{vector} at {1e-9 / BETA:g} GB/s"
    return replace(f, transfers=transfers, timed=True, pace=pace)

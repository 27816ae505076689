"""Broadcasts of long vectors: scatter then all-gather, and the pipelined chain."""

from __future__ import annotations

from allranks.schedules.binomial import scatter_moves
from allranks.schedules.core import Move, Schedule, after, check_ranks, check_segments
from allranks.schedules.doubling import recursive_doubling_all_gather
from allranks.schedules.ring import ring_gather

SEGMENTS = 8


def scatter_allgather_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Van de Geijn's broadcast: binomial scatter, then ring all-gather.

    (ceil(lg p) + p-1)a + 2n(p-1)/p b for any p (MPICH): twice the bandwidth bound, however long the vector.
    """
    check_ranks(ranks, root)
    moves = after(scatter_moves(ranks, root), ring_gather(ranks, owner_shift=0))
    return Schedule("broadcast", "scatter-allgather", ranks, ranks, tuple(moves), root)


def scatter_doubling_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Binomial scatter, then recursive-doubling all-gather: 2 lg p a + 2n(p-1)/p b for powers of two, else the fold."""
    check_ranks(ranks, root)
    gather = list(recursive_doubling_all_gather(ranks).moves)
    return Schedule(
        "broadcast", "scatter-doubling", ranks, ranks, tuple(after(scatter_moves(ranks, root), gather)), root
    )


def pipelined_chain_broadcast(ranks: int, root: int = 0, segments: int = SEGMENTS) -> Schedule:
    """A chain of ranks that passes on segment after segment: (p+k-2)(a + nb/k) for k segments.

    Best with k = sqrt((p-2)nb/a) segments, and then close to nb for long vectors (`cost.best_segments`).
    """
    check_ranks(ranks, root)
    check_segments(segments)
    moves = [
        Move(i + segment, (root + i) % ranks, (root + i + 1) % ranks, (segment,))
        for segment in range(segments)
        for i in range(ranks - 1)
    ]
    moves.sort(key=lambda m: m.step)
    return Schedule("broadcast", "pipelined chain", ranks, segments, tuple(moves), root, {"segments": segments})

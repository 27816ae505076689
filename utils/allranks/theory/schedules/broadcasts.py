"""Broadcasts of long vectors: scatter then all-gather, and the pipelined chain."""

from __future__ import annotations

from allranks.theory.schedules.binomial import scatter_moves
from allranks.theory.schedules.core import Move, Schedule, check_ranks, check_segments, in_sequence
from allranks.theory.schedules.doubling import recursive_doubling_all_gather
from allranks.theory.schedules.ring import ring_gather

SEGMENTS = 8


def scatter_allgather_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Van de Geijn's broadcast: binomial scatter, then ring all-gather.

    (ceil(lg p) + p-1)a + 2n(p-1)/p b for any p (MPICH): twice the lower bound of bytes, for vectors of any length.

    >>> schedules.scatter_allgather_broadcast(8).steps
    10
    """
    check_ranks(ranks, root)
    moves = in_sequence(scatter_moves(ranks, root), ring_gather(ranks, owner_shift=0))
    return Schedule("broadcast", "scatter-allgather", ranks, ranks, tuple(moves), root)


def scatter_doubling_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Broadcast as a binomial scatter, then a recursive-doubling all-gather.

    2 lg p a + 2n(p-1)/p b for powers of two (MPICH). For other p some ranks take part in the all-gather only through a
    partner, as in `recursive_doubling_all_gather`.

    >>> schedules.scatter_doubling_broadcast(8).steps
    6
    """
    check_ranks(ranks, root)
    gather = list(recursive_doubling_all_gather(ranks).moves)
    return Schedule(
        "broadcast", "scatter-doubling", ranks, ranks, tuple(in_sequence(scatter_moves(ranks, root), gather)), root
    )


def pipelined_chain_broadcast(ranks: int, root: int = 0, segments: int = SEGMENTS) -> Schedule:
    """Broadcast along a chain of ranks: each rank sends a segment on while it receives the next one.

    (p+k-2)(a + nb/k) for k segments. The best k is sqrt((p-2)nb/a), with which long vectors take close to nb
    (`cost.best_segments`).

    >>> schedules.pipelined_chain_broadcast(4, segments=6).steps
    8
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

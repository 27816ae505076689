"""Round the ring: p-1 steps in which every rank sends one chunk to its right and takes one from its left."""

from __future__ import annotations

from allranks.schedules.core import Move, Schedule, check_ranks


def ring_reduce_scatter(ranks: int) -> Schedule:
    """Ring reduce-scatter: p-1 steps, each rank sends one chunk to its right and adds the one from its left.

    At the end rank i holds chunk i summed. Cost (p-1)a + n(p-1)/p (b + g); Patarasuk & Yuan 2009.
    """
    check_ranks(ranks)
    return Schedule("reduce_scatter", "ring", ranks, ranks, tuple(ring_reduce(ranks, owner_shift=0)))


def ring_all_gather(ranks: int) -> Schedule:
    """Ring all-gather: p-1 steps, each rank passes on the chunk that it received last. Cost (p-1)a + n(p-1)/p b."""
    check_ranks(ranks)
    return Schedule("all_gather", "ring", ranks, ranks, tuple(ring_gather(ranks, owner_shift=0)))


def ring_all_reduce(ranks: int) -> Schedule:
    """Ring all-reduce: reduce-scatter, then all-gather, round the same ring.

    2(p-1) steps, each rank sends exactly 2(p-1)/p of the bytes, which is the bandwidth lower bound over
    point-to-point links (Patarasuk & Yuan 2009). Cost 2(p-1)a + 2n(p-1)/p b + n(p-1)/p g.
    """
    check_ranks(ranks)
    # rank r starts by sending chunk r, so that the sum of chunk c ends on rank c-1 and travels on from there
    moves = [*ring_reduce(ranks, owner_shift=1), *ring_gather(ranks, owner_shift=1, first_step=ranks - 1)]
    return Schedule("all_reduce", "ring", ranks, ranks, tuple(moves))


def ring_reduce(p: int, owner_shift: int) -> list[Move]:
    """p-1 reducing steps after which rank r holds the sum of chunk (r + owner_shift) mod p."""
    return [
        Move(step, rank, (rank + 1) % p, ((rank - 1 + owner_shift - step) % p,), reduce=True)
        for step in range(p - 1)
        for rank in range(p)
    ]


def ring_gather(p: int, owner_shift: int, first_step: int = 0) -> list[Move]:
    """p-1 copying steps that start with rank r holding chunk (r + owner_shift) mod p."""
    return [
        Move(first_step + step, rank, (rank + 1) % p, ((rank + owner_shift - step) % p,))
        for step in range(p - 1)
        for rank in range(p)
    ]

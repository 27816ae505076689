"""Ring algorithms: in each of p-1 steps rank r sends one chunk to rank r+1 and receives one from rank r-1."""

from __future__ import annotations

from allranks.theory.schedules.core import Move, Schedule, check_ranks


def ring_reduce_scatter(ranks: int) -> Schedule:
    """Ring reduce-scatter: in each step every rank sends one chunk to the next rank, and adds the one that it receives.

    At the end rank i holds the sum of chunk i. (p-1)a + n(p-1)/p (b + g); Patarasuk & Yuan 2009.

    >>> [(m.src, m.dst, m.chunks) for m in schedules.ring_reduce_scatter(3).by_step[0]]
    [(0, 1, (2,)), (1, 2, (0,)), (2, 0, (1,))]
    """
    check_ranks(ranks)
    return Schedule("reduce_scatter", "ring", ranks, ranks, tuple(ring_reduce(ranks, owner_shift=0)))


def ring_all_gather(ranks: int) -> Schedule:
    """Ring all-gather: in each step every rank sends on the chunk that it received in the step before.

    (p-1)a + n(p-1)/p b.

    >>> schedules.ring_all_gather(4).bytes_sent(400)
    [300, 300, 300, 300]
    """
    check_ranks(ranks)
    return Schedule("all_gather", "ring", ranks, ranks, tuple(ring_gather(ranks, owner_shift=0)))


def ring_all_reduce(ranks: int) -> Schedule:
    """Ring all-reduce: a ring reduce-scatter, then a ring all-gather.

    2(p-1)a + 2n(p-1)/p b + n(p-1)/p g. Each rank sends 2n(p-1)/p bytes, which no algorithm over point-to-point links can
    beat (Patarasuk & Yuan 2009).

    >>> schedules.ring_all_reduce(4).bytes_sent(400)
    [600, 600, 600, 600]
    """
    check_ranks(ranks)
    # rank r starts with chunk r: the sum of chunk c is then complete on rank c-1, where the all-gather starts
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

"""Everybody to everybody: pairwise exchange, Bruck's algorithms, and the dissemination barrier."""

from __future__ import annotations

from allranks.schedules.core import Move, Schedule, check_ranks


def pairwise_reduce_scatter(ranks: int) -> Schedule:
    """Pairwise reduce-scatter: in step i rank r sends rank r+i its part and adds what rank r-i has for it.

    (p-1)a + n(p-1)/p (b + g), any p (MPICH). Unlike in a ring every part travels once and nothing is passed on.
    """
    check_ranks(ranks)
    moves = [
        Move(i - 1, r, (r + i) % ranks, ((r + i) % ranks,), reduce=True) for i in range(1, ranks) for r in range(ranks)
    ]
    return Schedule("reduce_scatter", "pairwise", ranks, ranks, tuple(moves))


def pairwise_all_to_all(ranks: int) -> Schedule:
    """Pairwise all-to-all: p-1 steps, in each of which every rank serves one other. (p-1)a + n(p-1)/p b.

    In step i partners are r xor i where p is a power of two; else rank r sends to r+i and receives from r-i (MPICH).
    """
    check_ranks(ranks)
    power = ranks & (ranks - 1) == 0
    moves = [
        Move(i - 1, r, dst, (r * ranks + dst,))
        for i in range(1, ranks)
        for r in range(ranks)
        for dst in [r ^ i if power else (r + i) % ranks]
    ]
    return Schedule("all_to_all", "pairwise", ranks, ranks * ranks, tuple(moves))


def bruck_all_gather(ranks: int) -> Schedule:
    """Bruck's all-gather: in step k each rank sends all that it has, at most what is missing, 2^k ranks down.

    ceil(lg p)a + n(p-1)/p b for any p (MPICH); a real one also rotates its buffer once at the end.
    """
    check_ranks(ranks)
    moves, have, step = [], 1, 0
    while have < ranks:
        count = min(have, ranks - have)
        moves += [Move(step, r, (r - have) % ranks, tuple((r + j) % ranks for j in range(count))) for r in range(ranks)]
        have, step = 2 * have, step + 1
    return Schedule("all_gather", "bruck", ranks, ranks, tuple(moves))


def bruck_all_to_all(ranks: int) -> Schedule:
    """Bruck's all-to-all: in step k each rank sends 2^k up what still has a way with bit k in it to go.

    ceil(lg p) steps of about n/2: ceil(lg p)a + (n/2)lg p b for powers of two. For small messages only.
    """
    check_ranks(ranks)
    moves = []
    for bit in range((ranks - 1).bit_length()):
        hop = 1 << bit
        for r in range(ranks):
            # what travels d ranks up has, before this step, gone the bits of d below this one
            chunks = [
                ((r - (d & (hop - 1))) % ranks) * ranks + (r - (d & (hop - 1)) + d) % ranks
                for d in range(1, ranks)
                if d & hop
            ]
            moves.append(Move(bit, r, (r + hop) % ranks, tuple(chunks)))
    return Schedule("all_to_all", "bruck", ranks, ranks * ranks, tuple(moves))


def dissemination_barrier(ranks: int) -> Schedule:
    """Dissemination barrier: in step k rank r tells rank r+2^k of all who it knows have come. ceil(lg p)a (MPICH)."""
    check_ranks(ranks)
    moves, know, step = [], 1, 0
    while know < ranks:
        moves += [Move(step, r, (r + know) % ranks, tuple((r - j) % ranks for j in range(know))) for r in range(ranks)]
        know, step = 2 * know, step + 1
    return Schedule("barrier", "dissemination", ranks, ranks, tuple(moves))

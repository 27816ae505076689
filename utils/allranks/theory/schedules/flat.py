"""Algorithms that go through one rank: the root sends to, or receives from, each other rank in turn."""

from __future__ import annotations

from allranks.theory.schedules.core import Move, Schedule, check_ranks


def flat_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Flat broadcast: the root sends the whole vector to each of the others in turn. (p-1)(a + nb).

    >>> [(m.step, m.src, m.dst) for m in schedules.flat_broadcast(4, root=1).moves]
    [(0, 1, 0), (1, 1, 2), (2, 1, 3)]
    """
    check_ranks(ranks, root)
    moves = [Move(i, root, r, (0,)) for i, r in enumerate(_others(ranks, root))]
    return Schedule("broadcast", "flat", ranks, 1, tuple(moves), root)


def flat_reduce(ranks: int, root: int = 0) -> Schedule:
    """Flat reduce: the root adds the others' vectors one by one. (p-1)(a + nb + ng).

    >>> schedules.flat_reduce(4).bytes_sent(100)
    [0, 100, 100, 100]
    """
    check_ranks(ranks, root)
    moves = [Move(i, r, root, (0,), reduce=True) for i, r in enumerate(_others(ranks, root))]
    return Schedule("reduce", "flat", ranks, 1, tuple(moves), root)


def flat_scatter(ranks: int, root: int = 0) -> Schedule:
    """Flat scatter: the root sends each rank its part. (p-1)a + n(p-1)/p b.

    >>> schedules.flat_scatter(4).bytes_sent(100)
    [75, 0, 0, 0]
    """
    check_ranks(ranks, root)
    moves = [Move(i, root, r, (r,)) for i, r in enumerate(_others(ranks, root))]
    return Schedule("scatter", "flat", ranks, ranks, tuple(moves), root)


def flat_gather(ranks: int, root: int = 0) -> Schedule:
    """Flat gather: the root receives each rank's part. (p-1)a + n(p-1)/p b.

    >>> schedules.flat_gather(4).bytes_sent(100)
    [0, 25, 25, 25]
    """
    check_ranks(ranks, root)
    moves = [Move(i, r, root, (r,)) for i, r in enumerate(_others(ranks, root))]
    return Schedule("gather", "flat", ranks, ranks, tuple(moves), root)


def flat_all_reduce(ranks: int, root: int = 0) -> Schedule:
    """All-reduce through one rank: every rank sends its whole vector to `root`, which adds them and sends the sum back.

    2(p-1) steps of whole vectors: 2(p-1)(a + nb) + (p-1)ng.

    >>> schedules.flat_all_reduce(4).steps
    6
    """
    check_ranks(ranks, root)
    others = _others(ranks, root)
    up = [Move(i, r, root, (0,), reduce=True) for i, r in enumerate(others)]
    down = [Move(len(others) + i, root, r, (0,)) for i, r in enumerate(others)]
    return Schedule("all_reduce", "flat", ranks, 1, (*up, *down), root)


def _others(ranks: int, root: int) -> list[int]:
    return [r for r in range(ranks) if r != root]

"""Through one rank: everybody's message meets the root's, one after the other."""

from __future__ import annotations

from allranks.schedules.core import Move, Schedule, check_ranks


def flat_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Flat broadcast: the root sends the whole vector to each of the others in turn. Cost (p-1)(a + nb)."""
    check_ranks(ranks, root)
    moves = [Move(i, root, r, (0,)) for i, r in enumerate(_others(ranks, root))]
    return Schedule("broadcast", "flat", ranks, 1, tuple(moves), root)


def flat_reduce(ranks: int, root: int = 0) -> Schedule:
    """Flat reduce: the root adds the others' vectors one by one. Cost (p-1)(a + nb + ng)."""
    check_ranks(ranks, root)
    moves = [Move(i, r, root, (0,), reduce=True) for i, r in enumerate(_others(ranks, root))]
    return Schedule("reduce", "flat", ranks, 1, tuple(moves), root)


def flat_scatter(ranks: int, root: int = 0) -> Schedule:
    """Flat scatter: the root sends each rank its part. Cost (p-1)a + n(p-1)/p b."""
    check_ranks(ranks, root)
    moves = [Move(i, root, r, (r,)) for i, r in enumerate(_others(ranks, root))]
    return Schedule("scatter", "flat", ranks, ranks, tuple(moves), root)


def flat_gather(ranks: int, root: int = 0) -> Schedule:
    """Flat gather: the root takes each rank's part. Cost (p-1)a + n(p-1)/p b."""
    check_ranks(ranks, root)
    moves = [Move(i, r, root, (r,)) for i, r in enumerate(_others(ranks, root))]
    return Schedule("gather", "flat", ranks, ranks, tuple(moves), root)


def flat_all_reduce(ranks: int, root: int = 0) -> Schedule:
    """All-reduce through one rank: everybody sends the whole vector to `root`, which adds and sends the sum back.

    2(p-1) steps of full vectors at the root: 2(p-1)(a + nb) + (p-1)ng.
    """
    check_ranks(ranks, root)
    others = _others(ranks, root)
    up = [Move(i, r, root, (0,), reduce=True) for i, r in enumerate(others)]
    down = [Move(len(others) + i, root, r, (0,)) for i, r in enumerate(others)]
    return Schedule("all_reduce", "flat", ranks, 1, (*up, *down), root)


def _others(ranks: int, root: int) -> list[int]:
    return [r for r in range(ranks) if r != root]

"""Binomial trees: in every step each rank that has something passes it to one that does not."""

from __future__ import annotations

from allranks.schedules.core import Move, Schedule, after, check_ranks


def binomial_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Binomial-tree broadcast: in each step every rank that has the vector sends it to one that does not.

    ceil(lg p) steps: ceil(lg p)(a + nb).
    """
    check_ranks(ranks, root)
    moves, have, step = [], 1, 0
    while have < ranks:
        for i in range(min(have, ranks - have)):
            moves.append(Move(step, (root + i) % ranks, (root + have + i) % ranks, (0,)))
        have, step = 2 * have, step + 1
    return Schedule("broadcast", "binomial", ranks, 1, tuple(moves), root)


def binomial_reduce(ranks: int, root: int = 0) -> Schedule:
    """Binomial-tree reduce: the broadcast's tree walked backwards, adding at each join. ceil(lg p)(a + nb + ng)."""
    tree = binomial_broadcast(ranks, root)
    last = tree.steps - 1
    moves = [Move(last - m.step, m.dst, m.src, m.chunks, reduce=True) for m in reversed(tree.moves)]
    return Schedule("reduce", "binomial", ranks, 1, tuple(moves), root)


def tree_all_reduce(ranks: int, root: int = 0) -> Schedule:
    """All-reduce as a binomial reduce to `root` and a binomial broadcast from it: 2 ceil(lg p) steps of full vectors."""
    up, down = binomial_reduce(ranks, root), binomial_broadcast(ranks, root)
    moves = after(list(up.moves), list(down.moves))
    return Schedule("all_reduce", "tree", ranks, 1, tuple(moves), root)


def binomial_scatter(ranks: int, root: int = 0) -> Schedule:
    """Binomial-tree scatter: whoever holds the parts of a run of ranks passes on the far half of them.

    ceil(lg p) steps, and the root sends each part but its own once: ceil(lg p)a + n(p-1)/p b.
    """
    check_ranks(ranks, root)
    return Schedule("scatter", "binomial", ranks, ranks, tuple(scatter_moves(ranks, root)), root)


def binomial_gather(ranks: int, root: int = 0) -> Schedule:
    """Binomial-tree gather: the scatter's tree walked backwards. ceil(lg p)a + n(p-1)/p b."""
    check_ranks(ranks, root)
    down = scatter_moves(ranks, root)
    last = max((m.step for m in down), default=0)
    moves = [Move(last - m.step, m.dst, m.src, m.chunks) for m in reversed(down)]
    return Schedule("gather", "binomial", ranks, ranks, tuple(moves), root)


def scatter_moves(ranks: int, root: int, chunks_per_rank: int = 1) -> list[Move]:
    """The moves of the binomial scatter. Distances halve, so that what is passed on is a run of ranks after `root`."""
    moves, distance, step = [], 1 << max(0, (ranks - 1).bit_length() - 1), 0
    while distance and ranks > 1:
        for i in range(0, ranks - distance, 2 * distance):
            run = [(root + j) % ranks for j in range(i + distance, min(i + 2 * distance, ranks))]
            chunks = tuple(r * chunks_per_rank + c for r in run for c in range(chunks_per_rank))
            moves.append(Move(step, (root + i) % ranks, run[0], chunks))
        distance, step = distance // 2, step + 1
    return moves

"""Binomial trees: in each step every rank that has the data sends it to one that does not have it."""

from __future__ import annotations

from allranks.theory.schedules.core import Move, Schedule, check_ranks, in_sequence


def binomial_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Binomial-tree broadcast: in each step every rank that has the vector sends it to one that does not have it.

    ceil(lg p) steps of whole vectors: ceil(lg p)(a + nb).

    >>> schedules.binomial_broadcast(8).by_step[1]
    (Move(step=1, src=0, dst=2, chunks=(0,), reduce=False), Move(step=1, src=1, dst=3, chunks=(0,), reduce=False))
    """
    check_ranks(ranks, root)
    moves, have, step = [], 1, 0
    while have < ranks:
        for i in range(min(have, ranks - have)):
            moves.append(Move(step, (root + i) % ranks, (root + have + i) % ranks, (0,)))
        have, step = 2 * have, step + 1
    return Schedule("broadcast", "binomial", ranks, 1, tuple(moves), root)


def binomial_reduce(ranks: int, root: int = 0) -> Schedule:
    """Binomial-tree reduce: the broadcast's messages in reverse, each added where it arrives. ceil(lg p)(a + nb + ng).

    >>> schedules.binomial_reduce(4).bytes_sent(100)
    [0, 100, 100, 100]
    """
    tree = binomial_broadcast(ranks, root)
    last = tree.steps - 1
    moves = [Move(last - m.step, m.dst, m.src, m.chunks, reduce=True) for m in reversed(tree.moves)]
    return Schedule("reduce", "binomial", ranks, 1, tuple(moves), root)


def tree_all_reduce(ranks: int, root: int = 0) -> Schedule:
    """All-reduce as a binomial reduce to `root`, then a binomial broadcast from it: 2 ceil(lg p) steps of whole
    vectors.

    >>> schedules.tree_all_reduce(8)
    <Schedule tree all_reduce: 8 ranks, 1 chunks, 6 steps, 14 messages>
    """
    up, down = binomial_reduce(ranks, root), binomial_broadcast(ranks, root)
    moves = in_sequence(list(up.moves), list(down.moves))
    return Schedule("all_reduce", "tree", ranks, 1, tuple(moves), root)


def binomial_scatter(ranks: int, root: int = 0) -> Schedule:
    """Binomial-tree scatter: in each step a rank that holds several ranks' parts sends half of them on.

    ceil(lg p) steps, and the root sends each part but its own once: ceil(lg p)a + n(p-1)/p b.

    >>> [(m.src, m.dst, m.chunks) for m in schedules.binomial_scatter(4).moves]
    [(0, 2, (2, 3)), (0, 1, (1,)), (2, 3, (3,))]
    """
    check_ranks(ranks, root)
    return Schedule("scatter", "binomial", ranks, ranks, tuple(scatter_moves(ranks, root)), root)


def binomial_gather(ranks: int, root: int = 0) -> Schedule:
    """Binomial-tree gather: the scatter's messages in reverse. ceil(lg p)a + n(p-1)/p b.

    >>> [(m.src, m.dst, m.chunks) for m in schedules.binomial_gather(4).moves]
    [(3, 2, (3,)), (1, 0, (1,)), (2, 0, (2, 3))]
    """
    check_ranks(ranks, root)
    down = scatter_moves(ranks, root)
    last = max((m.step for m in down), default=0)
    moves = [Move(last - m.step, m.dst, m.src, m.chunks) for m in reversed(down)]
    return Schedule("gather", "binomial", ranks, ranks, tuple(moves), root)


def scatter_moves(ranks: int, root: int) -> list[Move]:
    """The moves of the binomial scatter. The distance halves in each step; a message holds consecutive ranks' parts."""
    moves, distance, step = [], 1 << max(0, (ranks - 1).bit_length() - 1), 0
    while distance and ranks > 1:
        for i in range(0, ranks - distance, 2 * distance):
            run = [(root + j) % ranks for j in range(i + distance, min(i + 2 * distance, ranks))]
            moves.append(Move(step, (root + i) % ranks, run[0], tuple(run)))
        distance, step = distance // 2, step + 1
    return moves

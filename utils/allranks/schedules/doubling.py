"""Recursive doubling and halving: in step k ranks that differ in one bit swap; off powers of two with the fold.

The fold (MPICH, after Thakur, Rabenseifner & Gropp 2005): with q the largest 2^k <= p and r = p-q, each of the first r
even ranks first gives its data to the rank above it, q ranks run the algorithm, and at the end the r ranks get their
results back. `_Fold.active` names the q ranks in order; the first r of them stand for two ranks each.
"""

from __future__ import annotations

from dataclasses import dataclass

from allranks.schedules.core import Move, Schedule, after, check_ranks


@dataclass(frozen=True)
class _Fold:
    ranks: int
    q: int
    r: int
    active: tuple[int, ...]

    @property
    def rounds(self) -> int:
        return self.q.bit_length() - 1

    def into(self, chunks: tuple[int, ...]) -> list[Move]:
        """The idle ranks' vectors are added to their partners'."""
        return [Move(0, 2 * i, 2 * i + 1, chunks, reduce=True) for i in range(self.r)]

    def back(self, chunks: tuple[int, ...]) -> list[Move]:
        """The partners give the result back."""
        return [Move(0, 2 * i + 1, 2 * i, chunks) for i in range(self.r)]

    def owners(self, i: int) -> list[int]:
        """The ranks for which active rank i stands."""
        return [2 * i, 2 * i + 1] if i < self.r else [self.active[i]]

    def owned(self, first: int, count: int) -> tuple[int, ...]:
        """The chunks (one a rank) of the ranks for which `count` active ranks from `first` on stand."""
        return tuple(rank for i in range(first, first + count) for rank in self.owners(i))


def _fold(ranks: int) -> _Fold:
    check_ranks(ranks)
    q = 1 << (ranks.bit_length() - 1)
    r = ranks - q
    return _Fold(ranks, q, r, (*(2 * i + 1 for i in range(r)), *range(2 * r, ranks)))


def recursive_doubling_all_reduce(ranks: int) -> Schedule:
    """Recursive doubling: in step k ranks that differ in bit k swap their whole sums. lg p steps of a + nb + ng.

    Off powers of two the fold adds a step of a + nb + ng before and one of a + nb after.
    """
    fold = _fold(ranks)
    swaps = [
        Move(bit, rank, fold.active[i ^ (1 << bit)], (0,), reduce=True)
        for bit in range(fold.rounds)
        for i, rank in enumerate(fold.active)
    ]
    moves = after(fold.into((0,)), swaps, fold.back((0,)))
    return Schedule("all_reduce", "recursive doubling", ranks, 1, tuple(moves))


def recursive_doubling_all_gather(ranks: int) -> Schedule:
    """Recursive doubling all-gather: in step k ranks that differ in bit k swap all that they have gathered.

    lg p a + n(p-1)/p b. Off powers of two the fold: an even rank's part goes to its partner first, and the partner returns
    the others' parts last, n(p-1)/p more.
    """
    fold = _fold(ranks)
    return Schedule("all_gather", "recursive doubling", ranks, ranks, tuple(_gather_all(fold)))


def _gather_all(fold: _Fold) -> list[Move]:
    into = [Move(0, 2 * i, 2 * i + 1, (2 * i,)) for i in range(fold.r)]
    swaps = [
        Move(bit, rank, fold.active[i ^ (1 << bit)], fold.owned(i >> bit << bit, 1 << bit))
        for bit in range(fold.rounds)
        for i, rank in enumerate(fold.active)
    ]
    back = [Move(0, 2 * i + 1, 2 * i, tuple(c for c in range(fold.ranks) if c != 2 * i)) for i in range(fold.r)]
    return after(into, swaps, back)


def recursive_halving_reduce_scatter(ranks: int) -> Schedule:
    """Recursive halving: in each step a rank gives away half of what it still sums, and adds the half that it keeps.

    lg p a + n(p-1)/p (b + g). Off powers of two the fold: whole vectors to the partners first, the part back last, and
    ranks that stand for two have more to move in between.
    """
    fold = _fold(ranks)
    everything = tuple(range(ranks))
    halves = []
    for step in range(fold.rounds):
        distance = fold.q >> (step + 1)
        for i, rank in enumerate(fold.active):
            other = i ^ distance
            theirs = fold.owned(other // distance * distance, distance)
            halves.append(Move(step, rank, fold.active[other], theirs, reduce=True))
    back = [Move(0, 2 * i + 1, 2 * i, (2 * i,)) for i in range(fold.r)]
    return Schedule(
        "reduce_scatter", "recursive halving", ranks, ranks, tuple(after(fold.into(everything), halves, back))
    )


def rabenseifner_all_reduce(ranks: int) -> Schedule:
    """Rabenseifner's all-reduce: recursive halving reduce-scatter, then recursive doubling all-gather.

    2 lg p a + 2n(p-1)/p b + n(p-1)/p g for powers of two; else the fold adds 2a + 2nb + ng (Thakur et al. 2005).
    """
    fold = _fold(ranks)
    moves = after(fold.into(_whole(fold)), _halve(fold), _double(fold), fold.back(_whole(fold)))
    return Schedule("all_reduce", "rabenseifner", ranks, fold.q, tuple(moves))


def rabenseifner_reduce(ranks: int, root: int = 0) -> Schedule:
    """Rabenseifner's reduce: recursive halving reduce-scatter, then a binomial gather to `root`.

    2 lg p a + 2n(p-1)/p b + n(p-1)/p g for powers of two; else the fold adds a + nb + ng.
    """
    check_ranks(ranks, root)
    fold = _fold(ranks)
    # ranks are counted from the one after the root, so that the root comes last and is never folded away
    names = [(root + 1 + i) % ranks for i in range(ranks)]
    up = []
    for bit in range(fold.rounds):
        for i, rank in enumerate(fold.active):
            away = i ^ (fold.q - 1)  # how far from the root, bit by bit
            if away >> bit & 1 and not away & ((1 << bit) - 1):
                mine = tuple(range(i >> bit << bit, (i >> bit << bit) + (1 << bit)))
                up.append(Move(bit, rank, fold.active[i ^ (1 << bit)], mine))
    moves = after(fold.into(_whole(fold)), _halve(fold), up)
    named = tuple(Move(m.step, names[m.src], names[m.dst], m.chunks, m.reduce) for m in moves)
    return Schedule("reduce", "rabenseifner", ranks, fold.q, named, root)


def _whole(fold: _Fold) -> tuple[int, ...]:
    return tuple(range(fold.q))


def _halve(fold: _Fold) -> list[Move]:
    """Recursive halving of q chunks, after which active rank i holds the sum of chunk i."""
    moves = []
    for step in range(fold.rounds):
        distance = fold.q >> (step + 1)
        for i, rank in enumerate(fold.active):
            first = (i ^ distance) // distance * distance
            moves.append(
                Move(step, rank, fold.active[i ^ distance], tuple(range(first, first + distance)), reduce=True)
            )
    return moves


def _double(fold: _Fold) -> list[Move]:
    """Recursive doubling of q chunks, from active rank i holding chunk i."""
    moves = []
    for bit in range(fold.rounds):
        for i, rank in enumerate(fold.active):
            first = i >> bit << bit
            moves.append(Move(bit, rank, fold.active[i ^ (1 << bit)], tuple(range(first, first + (1 << bit)))))
    return moves

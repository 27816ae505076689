"""Recursive doubling and halving: in step k, ranks whose numbers differ in bit k exchange data.

The fold makes this work for p that are no powers of two (MPICH, after Thakur, Rabenseifner & Gropp 2005). Let q be the
largest power of two <= p, and r = p-q. First, each of the first r even ranks sends its data to the rank above it. Then q
ranks run the algorithm. At the end, the r ranks get their results back.
"""

from __future__ import annotations

from dataclasses import dataclass

from allranks.theory.schedules.core import Move, Schedule, check_ranks, in_sequence


@dataclass(frozen=True)
class _Fold:
    """The q ranks that take part, `active`, in order; the first r of them also act for the rank below."""

    ranks: int
    q: int
    r: int
    active: tuple[int, ...]

    @property
    def rounds(self) -> int:
        return self.q.bit_length() - 1

    def into(self, chunks: tuple[int, ...]) -> list[Move]:
        """The other r ranks send their vectors to their partners, which add them."""
        return [Move(0, 2 * i, 2 * i + 1, chunks, reduce=True) for i in range(self.r)]

    def back(self, chunks: tuple[int, ...]) -> list[Move]:
        """The partners send the results back."""
        return [Move(0, 2 * i + 1, 2 * i, chunks) for i in range(self.r)]

    def owners(self, i: int) -> list[int]:
        """The ranks for which the i-th active rank acts."""
        return [2 * i, 2 * i + 1] if i < self.r else [self.active[i]]

    def owned(self, first: int, count: int) -> tuple[int, ...]:
        """The chunks, one for each rank, of the ranks for which `count` active ranks act, from the `first` on."""
        return tuple(rank for i in range(first, first + count) for rank in self.owners(i))


def _fold(ranks: int) -> _Fold:
    check_ranks(ranks)
    q = 1 << (ranks.bit_length() - 1)
    r = ranks - q
    return _Fold(ranks, q, r, (*(2 * i + 1 for i in range(r)), *range(2 * r, ranks)))


def recursive_doubling_all_reduce(ranks: int) -> Schedule:
    """Recursive doubling all-reduce: in step k, ranks that differ in bit k exchange and add their whole vectors.

    lg p(a + nb + ng) for powers of two. For other p there is a fold: before the first step, p-q ranks send their vectors
    to partners and then only wait, where q is the largest power of two below p; after the last step the partners send
    them the result. The fold adds a step of a + nb + ng before and one of a + nb after.

    >>> [schedules.recursive_doubling_all_reduce(p).steps for p in (4, 8, 9)]
    [2, 3, 5]
    """
    fold = _fold(ranks)
    swaps = [
        Move(bit, rank, fold.active[i ^ (1 << bit)], (0,), reduce=True)
        for bit in range(fold.rounds)
        for i, rank in enumerate(fold.active)
    ]
    moves = in_sequence(fold.into((0,)), swaps, fold.back((0,)))
    return Schedule("all_reduce", "recursive doubling", ranks, 1, tuple(moves))


def recursive_doubling_all_gather(ranks: int) -> Schedule:
    """Recursive doubling all-gather: in step k, ranks that differ in bit k exchange all that they have gathered.

    lg p a + n(p-1)/p b for powers of two. For other p there is a fold, as in `recursive_doubling_all_reduce`: some ranks
    first send their part to a partner, which in the last step sends them all other parts, n(p-1)/p bytes more.

    >>> [len(step[0].chunks) for step in schedules.recursive_doubling_all_gather(8).by_step]
    [1, 2, 4]
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
    return in_sequence(into, swaps, back)


def recursive_halving_reduce_scatter(ranks: int) -> Schedule:
    """Recursive halving reduce-scatter: in each step a rank sends half of its chunks, and adds the half that it keeps.

    lg p a + n(p-1)/p (b + g) for powers of two. For other p there is a fold, as in `recursive_doubling_all_reduce`: some
    ranks first send their whole vectors to partners, and get their part of the result in the last step. In between, the
    partners act for two ranks and so send more.

    >>> [len(step[0].chunks) for step in schedules.recursive_halving_reduce_scatter(8).by_step]
    [4, 2, 1]
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
        "reduce_scatter", "recursive halving", ranks, ranks, tuple(in_sequence(fold.into(everything), halves, back))
    )


def rabenseifner_all_reduce(ranks: int) -> Schedule:
    """Rabenseifner's all-reduce: a reduce-scatter in which the pieces halve, then an all-gather in which they double.

    The nearest partner comes first, with halves of the vector, as in MPICH (allreduce_intra_reduce_scatter_allgather.c): so
    the largest pieces go to the nearest rank. 2 lg p a + 2n(p-1)/p b + n(p-1)/p g for powers of two. For other p the fold of
    `recursive_doubling_all_reduce` adds 2a + 2nb + ng (Thakur et al. 2005).

    >>> schedules.rabenseifner_all_reduce(8)
    <Schedule rabenseifner all_reduce: 8 ranks, 8 chunks, 6 steps, 48 messages>
    >>> move = schedules.rabenseifner_all_reduce(8).moves[0]
    >>> move.dst, len(move.chunks)
    (1, 4)
    """
    fold = _fold(ranks)
    near, rounds = [], fold.rounds
    for bit in range(rounds):  # in step `bit` the pieces are split by bit `bit` of the rank's number
        for i, rank in enumerate(fold.active):
            other = i ^ (1 << bit)
            near.append(Move(bit, rank, fold.active[other], _piece(other, bit, rounds), reduce=True))
    back = [Move(rounds - 1 - m.step, m.dst, m.src, m.chunks) for m in near]  # the same pieces, the last ones first
    moves = in_sequence(fold.into(_whole(fold)), near, back, fold.back(_whole(fold)))
    return Schedule("all_reduce", "rabenseifner", ranks, fold.q, tuple(moves))


def rabenseifner_far_first_all_reduce(ranks: int) -> Schedule:
    """Rabenseifner's all-reduce in the other order: the farthest partner comes first, and gets the largest pieces.

    The same steps and bytes as `rabenseifner_all_reduce`, with other partners. It is good where far ranks are on one machine.

    >>> move = schedules.rabenseifner_far_first_all_reduce(8).moves[0]
    >>> move.dst, len(move.chunks)
    (4, 4)
    """
    fold = _fold(ranks)
    moves = in_sequence(fold.into(_whole(fold)), _halve(fold), _double(fold), fold.back(_whole(fold)))
    return Schedule("all_reduce", "rabenseifner far first", ranks, fold.q, tuple(moves))


def rabenseifner_reduce(ranks: int, root: int = 0) -> Schedule:
    """Rabenseifner's reduce: recursive halving reduce-scatter, then a binomial gather to `root`.

    2 lg p a + 2n(p-1)/p b + n(p-1)/p g for powers of two. For other p the first step of the fold, as in
    `recursive_doubling_all_reduce`, adds a + nb + ng.

    >>> schedules.rabenseifner_reduce(8).steps
    6
    """
    check_ranks(ranks, root)
    fold = _fold(ranks)
    # counted from the rank after the root: the root is then the last rank, which always takes part
    names = [(root + 1 + i) % ranks for i in range(ranks)]
    up = []
    for bit in range(fold.rounds):
        for i, rank in enumerate(fold.active):
            away = i ^ (fold.q - 1)  # the bits in which this rank differs from the root
            if away >> bit & 1 and not away & ((1 << bit) - 1):
                mine = tuple(range(i >> bit << bit, (i >> bit << bit) + (1 << bit)))
                up.append(Move(bit, rank, fold.active[i ^ (1 << bit)], mine))
    moves = in_sequence(fold.into(_whole(fold)), _halve(fold), up)
    named = tuple(Move(m.step, names[m.src], names[m.dst], m.chunks, m.reduce) for m in moves)
    return Schedule("reduce", "rabenseifner", ranks, fold.q, named, root)


def _piece(i: int, bit: int, rounds: int) -> tuple[int, ...]:
    """The chunks that the i-th active rank keeps in step `bit`, if each step splits by the next bit of its number."""
    length = 1 << (rounds - 1 - bit)
    first = sum(length << (bit - b) for b in range(bit + 1) if i >> b & 1)
    return tuple(range(first, first + length))


def _whole(fold: _Fold) -> tuple[int, ...]:
    return tuple(range(fold.q))


def _halve(fold: _Fold) -> list[Move]:
    """Recursive halving of q chunks, after which the i-th active rank holds the sum of chunk i."""
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
    """Recursive doubling of q chunks; at its start the i-th active rank holds chunk i."""
    moves = []
    for bit in range(fold.rounds):
        for i, rank in enumerate(fold.active):
            first = i >> bit << bit
            moves.append(Move(bit, rank, fold.active[i ^ (1 << bit)], tuple(range(first, first + (1 << bit)))))
    return moves

"""Algorithms as data: who sends which chunk to whom, at which step, and the proof that it ends right.

A schedule says what *should* move. `Schedule.verify` runs it on symbols instead of numbers: every cell (rank, chunk)
holds a bag of contributions, a move copies or adds a bag, and the end is compared with what the collective promises.
Imports without torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from allranks.trace import Event, Trace

COLLECTIVES = ("broadcast", "scatter", "gather", "reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all")
MAX_RANKS = 65536


class ScheduleError(ValueError):
    """A schedule that can't be built, or that does not end with what its collective promises."""


@dataclass(frozen=True, slots=True)
class Move:
    """One message: at `step`, rank `src` sends its `chunks` to rank `dst`, which adds them (`reduce`) or stores them."""

    step: int
    src: int
    dst: int
    chunks: tuple[int, ...]
    reduce: bool = False


@dataclass(frozen=True)
class Schedule:
    """The moves of one algorithm for one world size, in order of their steps; within a step all moves are concurrent."""

    collective: str
    algorithm: str
    ranks: int
    chunks: int
    moves: tuple[Move, ...]
    root: int | None = None
    meta: dict = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many rounds of concurrent messages there are."""
        return max((m.step for m in self.moves), default=-1) + 1

    def chunk_nbytes(self, nbytes: int) -> list[int]:
        """Bytes of each chunk when a vector of `nbytes` is cut as torch.tensor_split cuts it: the first ones one longer."""
        if nbytes < 0:
            raise ScheduleError(f"nbytes is {nbytes}; it can't be negative")
        base, longer = divmod(nbytes, self.chunks)
        return [base + (i < longer) for i in range(self.chunks)]

    def initial(self) -> dict[tuple[int, int], Counter]:
        """What each (rank, chunk) holds before the first step, as a bag of contributing ranks."""
        p, cells = self.ranks, {}
        for rank in range(p):
            for chunk in range(self.chunks):
                owner = _owner(self.collective, chunk, p, self.chunks, self.root)
                if owner is None or owner == rank:
                    cells[rank, chunk] = Counter({rank: 1})
        return cells

    def verify(self) -> None:
        """Runs the schedule on symbols. Raises ScheduleError naming the first rank, step and chunk that goes wrong."""
        held = self.initial()
        everyone = Counter(range(self.ranks))
        ordered = sorted(self.moves, key=lambda m: m.step)
        for step in range(self.steps):
            now = [m for m in ordered if m.step == step]
            before = {key: held[key] for m in now for c in m.chunks if (key := (m.src, c)) in held}
            written: set[tuple[int, int]] = set()
            for move in now:
                for chunk in move.chunks:
                    where = f"step {step}: rank {move.src} to rank {move.dst}, chunk {chunk}"
                    if (move.src, chunk) not in before:
                        raise ScheduleError(f"{where}: rank {move.src} does not hold chunk {chunk} yet")
                    cargo, target = before[move.src, chunk], (move.dst, chunk)
                    if not move.reduce:
                        if target in written:
                            raise ScheduleError(f"{where}: chunk {chunk} is written twice in one step")
                        held[target] = cargo
                    else:
                        if target not in held:
                            raise ScheduleError(f"{where}: rank {move.dst} has nothing to add chunk {chunk} to")
                        held[target] = held[target] + cargo
                        twice = sorted(r for r, times in held[target].items() if times > 1)
                        if twice:
                            raise ScheduleError(f"{where}: the contribution of rank {twice[0]} was added twice")
                    written.add(target)
        for (rank, chunk), bag in self._required(everyone).items():
            if held.get((rank, chunk)) != bag:
                has = sorted(held.get((rank, chunk), Counter()).elements())
                raise ScheduleError(
                    f"at the end rank {rank} should hold chunk {chunk} with the contributions of ranks "
                    f"{sorted(bag.elements())}; it holds {has}"
                )

    def _required(self, everyone: Counter) -> dict[tuple[int, int], Counter]:
        p, last = self.ranks, {}
        for chunk in range(self.chunks):
            owner = _owner(self.collective, chunk, p, self.chunks, self.root)
            own = Counter({owner: 1})
            match self.collective:
                case "broadcast" | "all_gather":
                    last.update({(rank, chunk): own for rank in range(p)})
                case "all_reduce":
                    last.update({(rank, chunk): everyone for rank in range(p)})
                case "reduce":
                    last[self.root, chunk] = everyone
                case "gather":
                    last[self.root, chunk] = own
                case "scatter" | "reduce_scatter":
                    rank = chunk * p // self.chunks
                    last[rank, chunk] = everyone if self.collective == "reduce_scatter" else own
                case "all_to_all":
                    last[chunk % p, chunk] = own
        return last

    def bytes_sent(self, nbytes: int) -> list[int]:
        """Bytes that each rank sends for a vector of `nbytes`, indexed by rank."""
        sizes, sent = self.chunk_nbytes(nbytes), [0] * self.ranks
        for move in self.moves:
            sent[move.src] += sum(sizes[c] for c in move.chunks)
        return sent

    def price(self, nbytes: int, alpha: float | Fraction, beta: float | Fraction, gamma: float | Fraction = 0):
        """Seconds under alpha-beta-gamma: each step costs its busiest rank's alpha + bytes*beta + reduced bytes*gamma.

        Exact when given Fractions. Links are full duplex: a rank sends and receives at once, one message each way.
        """
        sizes, total = self.chunk_nbytes(nbytes), 0 * alpha
        for step in range(self.steps):
            out: dict[int, list] = {}
            into: dict[int, list] = {}
            for move in self.moves:
                if move.step == step:
                    size = sum(sizes[c] for c in move.chunks)
                    wire = alpha + size * beta
                    out.setdefault(move.src, []).append(wire)
                    into.setdefault(move.dst, []).append(wire + (size * gamma if move.reduce else 0))
            total += max(sum(costs) for costs in (*out.values(), *into.values()))
        return total

    def trace(self, nbytes: int | None = None) -> Trace:
        """The schedule as a trace: two events a message, numbered by step, with the contributions each payload holds.

        `nbytes` is the size of the full vector; without it one byte a chunk is assumed.
        """
        nbytes = self.chunks if nbytes is None else nbytes
        sizes, held, events = self.chunk_nbytes(nbytes), self.initial(), []
        for step in range(self.steps):
            now = [m for m in self.moves if m.step == step]
            before = {(m.src, c): held.get((m.src, c), Counter()) for m in now for c in m.chunks}
            for move in now:
                size, match = sum(sizes[c] for c in move.chunks), len(events) // 2
                # every chunk of one message carries the same contributions in all algorithms where they are summed
                contrib = tuple(sorted(before[move.src, move.chunks[0]].elements()))
                events.append(
                    Event(move.src, "send", move.dst, move.chunks, None, size, step, match=match, contrib=contrib)
                )
                kind = "reduce" if move.reduce else "recv"
                events.append(
                    Event(move.dst, kind, move.src, move.chunks, None, size, step, match=match, contrib=contrib)
                )
                for chunk in move.chunks:
                    cargo, target = before[move.src, chunk], (move.dst, chunk)
                    held[target] = held.get(target, Counter()) + cargo if move.reduce else cargo
        return Trace(
            kind="schedule",
            ranks=self.ranks,
            events=tuple(events),
            collective=self.collective,
            root=self.root,
            algorithm=self.algorithm,
            chunks=self.chunks,
            nbytes=nbytes,
            source="schedule",
        )

    def __repr__(self) -> str:
        return (
            f"<Schedule {self.algorithm} {self.collective}: {self.ranks} ranks, {self.chunks} chunks, "
            f"{self.steps} steps, {len(self.moves)} messages>"
        )


def _owner(collective: str, chunk: int, ranks: int, chunks: int, root: int | None) -> int | None:
    """The one rank that holds `chunk` at the start, or None when every rank holds its own version of it."""
    match collective:
        case "broadcast" | "scatter":
            return root
        case "gather" | "all_gather":
            return chunk * ranks // chunks
        case "all_to_all":
            return chunk // ranks
        case _:
            return None


def _check(ranks: int, root: int | None = None) -> None:
    if isinstance(ranks, bool) or not isinstance(ranks, int):
        raise ScheduleError(f"ranks is {ranks!r}; it must be a whole number")
    if not 1 <= ranks <= MAX_RANKS:
        raise ScheduleError(f"ranks is {ranks}; it must be between 1 and {MAX_RANKS}")
    if root is not None and not 0 <= root < ranks:
        raise ScheduleError(f"the root is {root}; it must be one of the ranks 0 to {ranks - 1}")


def ring_reduce_scatter(ranks: int) -> Schedule:
    """Ring reduce-scatter: p-1 steps, each rank sends one chunk to its right and adds the one from its left.

    At the end rank i holds chunk i summed. Cost (p-1)a + n(p-1)/p (b + g); Patarasuk & Yuan 2009.
    """
    _check(ranks)
    return Schedule("reduce_scatter", "ring", ranks, ranks, tuple(_ring_reduce(ranks, owner_shift=0)))


def ring_all_gather(ranks: int) -> Schedule:
    """Ring all-gather: p-1 steps, each rank passes on the chunk that it received last. Cost (p-1)a + n(p-1)/p b."""
    _check(ranks)
    return Schedule("all_gather", "ring", ranks, ranks, tuple(_ring_gather(ranks, owner_shift=0, first_step=0)))


def ring_all_reduce(ranks: int) -> Schedule:
    """Ring all-reduce: reduce-scatter, then all-gather, round the same ring.

    2(p-1) steps, each rank sends exactly 2(p-1)/p of the bytes, which is the bandwidth lower bound over
    point-to-point links (Patarasuk & Yuan 2009). Cost 2(p-1)a + 2n(p-1)/p b + n(p-1)/p g.
    """
    _check(ranks)
    # rank r starts by sending chunk r, so that the sum of chunk c ends on rank c-1 and travels on from there
    moves = [*_ring_reduce(ranks, owner_shift=1), *_ring_gather(ranks, owner_shift=1, first_step=ranks - 1)]
    return Schedule("all_reduce", "ring", ranks, ranks, tuple(moves))


def _ring_reduce(p: int, owner_shift: int) -> list[Move]:
    """p-1 reducing steps after which rank r holds the sum of chunk (r + owner_shift) mod p."""
    return [
        Move(step, rank, (rank + 1) % p, ((rank - 1 + owner_shift - step) % p,), reduce=True)
        for step in range(p - 1)
        for rank in range(p)
    ]


def _ring_gather(p: int, owner_shift: int, first_step: int) -> list[Move]:
    """p-1 copying steps that start with rank r holding chunk (r + owner_shift) mod p."""
    return [
        Move(first_step + step, rank, (rank + 1) % p, ((rank + owner_shift - step) % p,))
        for step in range(p - 1)
        for rank in range(p)
    ]


def flat_all_reduce(ranks: int, root: int = 0) -> Schedule:
    """All-reduce through one rank: everybody sends the whole vector to `root`, which adds and sends the sum back.

    2(p-1) steps of full vectors at the root: 2(p-1)(a + nb) + (p-1)ng.
    """
    _check(ranks, root)
    others = [r for r in range(ranks) if r != root]
    up = [Move(i, r, root, (0,), reduce=True) for i, r in enumerate(others)]
    down = [Move(len(others) + i, root, r, (0,)) for i, r in enumerate(others)]
    return Schedule("all_reduce", "flat", ranks, 1, (*up, *down), root)


def binomial_broadcast(ranks: int, root: int = 0) -> Schedule:
    """Binomial-tree broadcast: in each step every rank that has the vector sends it to one that does not.

    ceil(lg p) steps: ceil(lg p)(a + nb).
    """
    _check(ranks, root)
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
    after = [Move(up.steps + m.step, m.src, m.dst, m.chunks) for m in down.moves]
    return Schedule("all_reduce", "tree", ranks, 1, (*up.moves, *after), root)


def recursive_doubling_all_reduce(ranks: int) -> Schedule:
    """Recursive doubling: in step k ranks that differ in bit k swap their whole sums. lg p steps of a + nb + ng.

    Off powers of two the fold: with q the largest 2^k <= p and r = p-q, each of the first r even ranks first gives its
    vector to the rank above it and gets the result back at the end: two steps more (Thakur et al. 2005).
    """
    _check(ranks)
    q = 1 << (ranks.bit_length() - 1)
    r = ranks - q
    active = [2 * i + 1 for i in range(r)] + list(range(2 * r, ranks))
    moves, step = [], 0
    if r:
        moves += [Move(0, 2 * i, 2 * i + 1, (0,), reduce=True) for i in range(r)]
        step = 1
    for bit in range(int(math.log2(q))):
        moves += [Move(step, rank, active[i ^ (1 << bit)], (0,), reduce=True) for i, rank in enumerate(active)]
        step += 1
    if r:
        moves += [Move(step, 2 * i + 1, 2 * i, (0,)) for i in range(r)]
    return Schedule("all_reduce", "recursive doubling", ranks, 1, tuple(moves))


ALGORITHMS: dict[str, Callable[..., Schedule]] = {
    f.__name__: f
    for f in (
        ring_all_reduce,
        flat_all_reduce,
        tree_all_reduce,
        recursive_doubling_all_reduce,
        ring_reduce_scatter,
        ring_all_gather,
        binomial_broadcast,
        binomial_reduce,
    )
}

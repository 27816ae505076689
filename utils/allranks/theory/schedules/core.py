"""The types of a schedule, and the proof that its result is right."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from allranks.base.errors import CourseError
from allranks.theory.schedules.proof import fault_of
from allranks.theory.trace import Event, Trace

# The collectives that a schedule can be for.
COLLECTIVES = (
    "broadcast",
    "scatter",
    "gather",
    "reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
)
# The largest number of ranks of a schedule.
MAX_RANKS = 65536

# a figure of the cost model: exact if all figures are Fractions or integers
Number = float | Fraction


class ScheduleError(CourseError, ValueError):
    """A schedule that can't be built, or whose result is not what its collective promises."""


@dataclass(frozen=True, slots=True)
class Move:
    """One message: in step `step`, rank `src` sends its `chunks` to rank `dst`, which adds them (`reduce`) or stores them.

    `chunks` is a tuple of numbers, or a `range` where there are many.

    >>> schedules.Move(0, 1, 2, (3,))
    Move(step=0, src=1, dst=2, chunks=(3,), reduce=False)
    """

    step: int
    src: int
    dst: int
    chunks: tuple[int, ...] | range
    reduce: bool = False


@dataclass(frozen=True)
class Schedule:
    """The moves of one algorithm for one world size. Moves of the same step happen at the same time.

    `chunks` is the number of chunks of the vector. Where each rank owns a part of it (scatter, gather, all_gather,
    reduce_scatter), that is chunks/ranks consecutive chunks, in order of the ranks. In all_to_all chunk s*ranks + d is what
    rank s has for rank d. In a barrier chunk r says that rank r has come; it has no bytes. `root` is None if the
    collective and the algorithm have none; `meta` holds the options with which the schedule was built.

    >>> Schedule("broadcast", "by hand", ranks=2, chunks=1, moves=(schedules.Move(0, 0, 1, (0,)),), root=0).verify()
    """

    collective: str
    algorithm: str
    ranks: int
    chunks: int
    moves: tuple[Move, ...]
    root: int | None = None
    meta: dict[str, int] = field(default_factory=dict)

    @cached_property
    def by_step(self) -> tuple[tuple[Move, ...], ...]:
        """The moves of each step."""
        found: dict[int, list[Move]] = defaultdict(list)
        for move in self.moves:
            found[move.step].append(move)
        return tuple(tuple(found[step]) for step in range(max(found, default=-1) + 1))

    @property
    def steps(self) -> int:
        """How many rounds of concurrent messages there are."""
        return len(self.by_step)

    def chunk_nbytes(self, nbytes: int) -> list[int]:
        """Bytes of each chunk when a vector of `nbytes` is cut as torch.tensor_split does: the first ones may be 1 larger.

        `nbytes` is the size of the full vector; in all_to_all, of all that one rank sends. Raises ScheduleError if it is
        negative.
        """
        if nbytes < 0:
            raise ScheduleError(f"nbytes is {nbytes}; it can't be negative")
        if self.collective == "barrier":
            return [0] * self.chunks
        vectors = self.ranks if self.collective == "all_to_all" else 1
        base, longer = divmod(nbytes, self.chunks // vectors)
        return [base + (i < longer) for i in range(self.chunks // vectors)] * vectors

    def placed(self, seats: Sequence[int]) -> Schedule:
        """The same algorithm with rank `seats[i]` in the place of rank i, as if a launcher had given out other numbers.

        Raises ScheduleError if `seats` does not name each rank once, or if the collective gives each rank a part of its
        own, as all_gather does: these parts would go to other ranks. Only broadcast, reduce and all_reduce are possible.
        """
        if sorted(seats) != list(range(self.ranks)):
            raise ScheduleError(f"the seats are {list(seats)}; they must name each of the {self.ranks} ranks once")
        if self.collective not in ("broadcast", "reduce", "all_reduce"):
            raise ScheduleError(f"{self.collective} can't be placed otherwise: each rank has a part of its own in it")
        moves = tuple(Move(m.step, seats[m.src], seats[m.dst], m.chunks, m.reduce) for m in self.moves)
        return replace(self, moves=moves, root=None if self.root is None else seats[self.root])

    def initial(self) -> dict[tuple[int, int], Counter[int]]:
        """How often each rank's contribution is in what a (rank, chunk) holds before the first step."""
        single = {rank: Counter({rank: 1}) for rank in range(self.ranks)}
        return {place: single[mask.bit_length() - 1] for place, mask in self._initial().items()}

    def final(self) -> dict[tuple[int, int], Counter[int]]:
        """How often each rank's contribution must be in what a (rank, chunk) holds at the end.

        A (rank, chunk) that is left out may hold anything.
        """
        counts = {mask: Counter(_ranks(mask)) for mask in set(self._final().values())}
        return {place: counts[mask] for place, mask in self._final().items()}

    def _initial(self) -> dict[tuple[int, int], int]:
        """`initial` as bit masks: bit r says that the contribution of rank r is there, once."""
        p, held = self.ranks, {}
        for chunk in range(self.chunks):
            owner = _owner(self.collective, chunk, p, self.chunks, self.root)
            for rank in range(p) if owner is None else (owner,):
                held[rank, chunk] = 1 << rank
        return held

    def _final(self) -> dict[tuple[int, int], int]:
        """`final` as bit masks."""
        p = self.ranks
        last: dict[tuple[int, int], int] = {}
        everyone = (1 << p) - 1
        for chunk in range(self.chunks):
            owner = _owner(self.collective, chunk, p, self.chunks, self.root)
            own = 0 if owner is None else 1 << owner
            match self.collective:
                case "broadcast" | "all_gather" | "barrier":
                    last.update({(rank, chunk): own for rank in range(p)})
                case "all_reduce":
                    last.update({(rank, chunk): everyone for rank in range(p)})
                case "reduce":
                    last[self.needed_root, chunk] = everyone
                case "gather":
                    last[self.needed_root, chunk] = own
                case "scatter" | "reduce_scatter":
                    rank = chunk * p // self.chunks
                    last[rank, chunk] = everyone if self.collective == "reduce_scatter" else own
                case "all_to_all":
                    last[chunk % p, chunk] = own
        return last

    @property
    def needed_root(self) -> int:
        """The root of a collective that has one. Raises ScheduleError if it is None."""
        if self.root is None:
            raise ScheduleError(f"the root is None; {self.collective} needs one of the ranks 0 to {self.ranks - 1}")
        return self.root

    def verify(self) -> None:
        """Checks, without numbers, that the schedule does its collective.

        It follows which ranks' contributions each rank holds of each chunk, step by step. Raises ScheduleError, which
        names the first wrong step, rank and chunk. Each message carries what its sender held when its step began.
        """
        if fault := fault_of(self):
            raise ScheduleError(fault)

    def bytes_sent(self, nbytes: int) -> list[int]:
        """Bytes that each rank sends for a vector of `nbytes`, indexed by rank."""
        sizes, sent = self.chunk_nbytes(nbytes), [0] * self.ranks
        for move in self.moves:
            sent[move.src] += sum(sizes[c] for c in move.chunks)
        return sent

    def price(self, nbytes: int, alpha: Number, beta: Number, gamma: Number = 0) -> Number:
        """Seconds by the alpha-beta-gamma model: the sum over the steps of alpha + bytes*beta + reduced bytes*gamma.

        `alpha` is seconds a message, `beta` seconds a byte, `gamma` seconds a byte reduced; each step takes as long as its
        busiest rank. Exact if all are integers or Fractions. A rank can send one message and receive one at the same time.
        """
        sizes = self.chunk_nbytes(nbytes)
        total: Number = 0 * alpha
        for now in self.by_step:
            # (messages, bytes, reduced bytes) of each rank's two ports; many are equal, and Fractions are slow
            ports: dict[tuple[str, int], tuple[int, int, int]] = {}
            for move in now:
                size = sum(sizes[c] for c in move.chunks)
                for port, reduced in ((("out", move.src), 0), (("in", move.dst), size if move.reduce else 0)):
                    count, moved, added = ports.get(port, (0, 0, 0))
                    ports[port] = count + 1, moved + size, added + reduced
            total += max(c * alpha + moved * beta + added * gamma for c, moved, added in set(ports.values()))
        return total

    def trace(self, nbytes: int | None = None) -> Trace:
        """The schedule as a trace: two events a message, with its step and the contributions that its payload holds.

        `nbytes` is as in `chunk_nbytes`; without it, each chunk has one byte. The trace's own `nbytes` is the sum of all
        chunks: in all_to_all, of all ranks' vectors.
        """
        sizes, held = self.chunk_nbytes(self.chunks if nbytes is None else nbytes), self._initial()
        events: list[Event] = []
        for step, now in enumerate(self.by_step):
            before = {(m.src, c): held.get((m.src, c), 0) for m in now for c in m.chunks}
            for move in now:
                size, match = sum(sizes[c] for c in move.chunks), len(events) // 2
                contrib = 0
                for chunk in move.chunks:
                    contrib |= before[move.src, chunk]
                same = all(before[move.src, chunk] == contrib for chunk in move.chunks)
                chunks = tuple(move.chunks)
                # None if the chunks of the message hold different contributions, as in a gather
                contributions = tuple(_ranks(contrib)) if same else None
                events.append(
                    Event(move.src, "send", move.dst, chunks, None, size, step, match=match, contrib=contributions)
                )
                kind = "reduce" if move.reduce else "recv"
                events.append(
                    Event(move.dst, kind, move.src, chunks, None, size, step, match=match, contrib=contributions)
                )
                for chunk in move.chunks:
                    payload, target = before[move.src, chunk], (move.dst, chunk)
                    held[target] = held.get(target, 0) | payload if move.reduce else payload
        return Trace(
            kind="schedule",
            ranks=self.ranks,
            events=tuple(events),
            collective=self.collective,
            root=self.root,
            algorithm=self.algorithm,
            chunks=self.chunks,
            nbytes=sum(sizes),
            source="schedule",
        )

    def __repr__(self) -> str:
        return (
            f"<Schedule {self.algorithm} {self.collective}: {self.ranks} ranks, {self.chunks} chunks, "
            f"{self.steps} steps, {len(self.moves)} messages>"
        )


def ceil_lg(ranks: int) -> int:
    """ceil(log2(ranks)), the steps of a binomial tree over `ranks` ranks, computed in whole numbers.

    >>> [schedules.ceil_lg(p) for p in (1, 2, 5, 8)]
    [0, 1, 3, 3]
    """
    return (ranks - 1).bit_length()


def check_ranks(ranks: int, root: int | None = None) -> None:
    """Raises ScheduleError if `ranks` can't be a world size, or `root` is not one of the ranks."""
    if isinstance(ranks, bool) or not isinstance(ranks, int):
        raise ScheduleError(f"ranks is {ranks!r}; it must be a whole number")
    if not 1 <= ranks <= MAX_RANKS:
        raise ScheduleError(f"ranks is {ranks}; it must be between 1 and {MAX_RANKS}")
    if root is not None and not 0 <= root < ranks:
        raise ScheduleError(f"the root is {root}; it must be one of the ranks 0 to {ranks - 1}")


def check_segments(segments: int) -> None:
    """Raises ScheduleError if `segments` can't be a number of segments."""
    if isinstance(segments, bool) or not isinstance(segments, int) or segments < 1:
        raise ScheduleError(f"segments is {segments!r}; it must be a whole number above 0")


def in_sequence(*parts: list[Move]) -> list[Move]:
    """The moves of all parts, with steps numbered so that each part starts when the one before has ended."""
    moves: list[Move] = []
    for part in parts:
        first = max((m.step for m in moves), default=-1) + 1
        moves += [Move(first + m.step, m.src, m.dst, m.chunks, m.reduce) for m in part]
    return moves


def without_empty_steps(moves: list[Move]) -> list[Move]:
    """The moves in order of their steps, numbered anew so that no step is without a move."""
    number = {step: i for i, step in enumerate(sorted({m.step for m in moves}))}
    ordered = sorted(moves, key=lambda m: m.step)
    return [Move(number[m.step], m.src, m.dst, m.chunks, m.reduce) for m in ordered]


def _ranks(mask: int) -> Iterator[int]:
    """The ranks of a bit mask, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _owner(collective: str, chunk: int, ranks: int, chunks: int, root: int | None) -> int | None:
    """The one rank that holds `chunk` at the start, or None if every rank holds its own values for it."""
    match collective:
        case "broadcast" | "scatter":
            return root
        case "gather" | "all_gather" | "barrier":
            return chunk * ranks // chunks
        case "all_to_all":
            return chunk // ranks
        case _:
            return None

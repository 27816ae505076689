"""What a collective does to whose numbers, read off a schedule: what each rank holds before and after."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from allranks.theory import schedules
from allranks.theory.schedules import Move, Schedule

# The algorithm from which each picture is read: any other one of the collective starts and ends with the same.
ALGORITHMS = {
    "broadcast": "flat",
    "scatter": "flat",
    "gather": "flat",
    "reduce": "flat",
    "all_reduce": "flat",
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "all_to_all": "pairwise",
    "barrier": "dissemination",
}
NAMES = ("send_recv", *ALGORITHMS)


@dataclass(frozen=True, order=True)
class Part:
    """What one rank holds of one chunk: `slot` of its vector, with the contributions of `owners`."""

    rank: int
    slot: int
    chunk: int
    owners: tuple[int, ...]


@dataclass(frozen=True)
class Stream:
    """What becomes of one chunk: `sources` are added up if there are several, and each of `targets` gets the result."""

    sources: tuple[Part, ...]
    targets: tuple[Part, ...]

    @property
    def adds(self) -> bool:
        """Whether numbers of several ranks are added."""
        return len(self.sources) > 1


@dataclass(frozen=True)
class Flow:
    """A collective on `ranks` ranks whose vectors have `slots` chunks: parts before, parts after, and the streams."""

    name: str
    ranks: int
    slots: int
    before: tuple[Part, ...]
    after: tuple[Part, ...]
    streams: tuple[Stream, ...]

    def words(self) -> str:
        """Both states in words, for readers who don't see the picture.

        >>> flow("broadcast", 2).words()
        "Before: rank 0 has its own numbers; rank 1 has nothing of it. After: every rank has rank 0's numbers."
        """
        return f"Before: {_told(self, self.before, True)}. After: {_told(self, self.after, False)}."


def flow(name: str, ranks: int = 4) -> Flow:
    """The flow of a collective, or of "send_recv". Raises ScheduleError for another name.

    >>> len(flow("all_to_all", 3).streams)
    9
    """
    if name == "send_recv":
        return _sent(Move(0, 0, ranks - 1, (0,)), ranks)
    schedule = schedules.find(name, ALGORITHMS.get(name, ""))(ranks)
    schedule.verify()
    return of_schedule(schedule)


def of_schedule(schedule: Schedule) -> Flow:
    """The flow of a schedule, which must have passed `verify`: the picture promises what that has proved."""
    all_to_all, p = schedule.collective == "all_to_all", schedule.ranks

    def parts(held: dict[tuple[int, int], Counter[int]], before: bool) -> tuple[Part, ...]:
        found = []
        for (rank, chunk), owners in held.items():
            slot = (chunk % p if before else chunk // p) if all_to_all else chunk
            found.append(Part(rank, slot, chunk, tuple(sorted(owners))))
        return tuple(sorted(found))

    before, after = parts(schedule.initial(), True), parts(schedule.final(), False)
    slots = schedule.chunks // p if all_to_all else schedule.chunks
    return Flow(schedule.collective, p, slots, before, after, _streams(before, after))


def shifted(ranks: int = 4) -> Flow:
    """Each rank sends its numbers to its right-hand neighbour.

    >>> shifted(3).words().partition(" After: ")[2]
    "rank 0 has rank 2's numbers; rank 1 has rank 0's numbers; rank 2 has rank 1's numbers."
    """
    moves = [Move(0, rank, (rank + 1) % ranks, (rank,)) for rank in range(ranks)]
    before = tuple(Part(move.src, 0, move.chunks[0], (move.src,)) for move in moves)
    after = tuple(sorted(Part(move.dst, 0, move.chunks[0], (move.src,)) for move in moves))
    return Flow("send_recv", ranks, 1, before, after, _streams(before, after))


def _sent(move: Move, ranks: int) -> Flow:
    before = (Part(move.src, 0, 0, (move.src,)),)
    after = (Part(move.dst, 0, 0, (move.src,)),)
    return Flow("send_recv", ranks, 1, before, after, _streams(before, after))


def _streams(before: tuple[Part, ...], after: tuple[Part, ...]) -> tuple[Stream, ...]:
    targets = defaultdict(list)
    for part in after:
        targets[part.chunk, part.owners].append(part)
    streams = []
    for (chunk, owners), ends in targets.items():
        sources = tuple(part for part in before if part.chunk == chunk and set(part.owners) <= set(owners))
        streams.append(Stream(sources, tuple(ends)))
    return tuple(streams)


def _told(flow: Flow, parts: tuple[Part, ...], own: bool) -> str:
    """What each rank holds, in words; ranks that are alike and follow each other are named together."""
    by_rank = [[part for part in parts if part.rank == rank] for rank in range(flow.ranks)]
    said = enumerate(_holds(flow, held, own) for held in by_rank)
    alike = [(words, [rank for rank, _ in found]) for words, found in groupby(said, itemgetter(1))]
    return "; ".join(f"{_named(ranks, flow.ranks)} {words}" for words, ranks in alike)


def _named(ranks: list[int], all_: int) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "every rank" if len(ranks) == all_ else f"ranks {ranks[0]} to {ranks[-1]} each"


def _holds(flow: Flow, held: list[Part], own: bool) -> str:
    if not held:
        return "has nothing of it"
    if flow.name == "barrier":
        return "has come" if own else "knows that all have come"
    owners = sorted({owner for part in held for owner in part.owners})
    added = len(held[0].owners) > 1
    whose = "its own numbers" if own else f"rank {owners[0]}'s numbers"
    if len(owners) > 1:
        whose = f"the {'sum' if added else 'numbers'} of all ranks"
    if flow.slots == 1:
        return f"has {whose}"
    if len(held) > 1:
        return f"has {len(held)} parts, {'one of each rank' if len(owners) > 1 else whose}"
    return f"has its part of {whose}"

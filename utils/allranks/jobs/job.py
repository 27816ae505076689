"""What the files of a real job say: the calls of every rank, its other work, and what no file says.

Every reader of a format makes `RankRecord`s; the analysis and the words read them, and need not know the format. None
stands for what a file does not say.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, overload

from allranks.base.errors import CourseError, wrapped

__all__ = ["Call", "Cause", "Interval", "Intervals", "Job", "ProfileError", "RankRecord", "Skipped", "merged"]

Interval = tuple[float, float]  # start and end, in microseconds
MAX_RANKS = 1 << 20  # larger numbers come from damaged files; ranks are counted, so that they would take all memory
MOST_US = 1e18  # 30,000 years; clocks in files are at most nanoseconds since 1970


class ProfileError(CourseError, ValueError):
    """A file that holds nothing of a job, or a job of which nothing can be said."""


def is_time(*microseconds: float) -> bool:
    """Whether these can be times of a job: finite, and not beyond all clocks.

    >>> from allranks.jobs.job import is_time
    >>> is_time(3.5), is_time(float("nan")), is_time(1e300)
    (True, False, False)
    """
    return all(abs(time) <= MOST_US for time in microseconds)  # NaN is not


@dataclass(frozen=True, slots=True)
class Call:
    """One collective or point-to-point call of one rank.

    `op` is torch's spelling ("all_reduce", "all_to_all", "send", ...), or "unknown". `group` is one name for one group
    on all ranks. `seq` is the number of the call within its group: the file's own, or its place in the order within the
    group. `nbytes` are the bytes that nccl-tests would divide by the time: the input of one rank for all_reduce, all of
    the output for all_gather, all of the input for reduce_scatter and all_to_all. `where` is file:line of the user's
    program. `state` is "completed", "started" or "scheduled"; only a flight recorder tells the last two.

    >>> profiles.Call(0, "all_reduce", start_us=5.0, end_us=9.0).duration_us
    4.0
    """

    rank: int
    op: str
    group: str | None = None
    group_ranks: tuple[int, ...] | None = None
    group_size: int | None = None
    seq: int | None = None
    start_us: float | None = None
    end_us: float | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    nbytes: int | None = None
    dtype: str | None = None
    state: str = "completed"
    where: str | None = None
    peer: int | None = None
    stream: str | None = None
    label: str = ""
    in_split: tuple[int, ...] | None = None
    out_split: tuple[int, ...] | None = None

    @property
    def duration_us(self) -> float | None:
        """Microseconds from start to end, or None where one of them is unknown."""
        return None if self.start_us is None or self.end_us is None else self.end_us - self.start_us


class Intervals(Sequence[Interval]):
    """Intervals in two numbers each: a profile of a gigabyte has millions. Equal to any sequence of the same intervals.

    >>> Intervals([(0, 3), (4, 6)])[1], len(Intervals([(0, 3)]))
    ((4.0, 6.0), 1)
    """

    __slots__ = ("_ends",)

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self._ends = array("d", (end for interval in intervals for end in interval))

    def __len__(self) -> int:
        return len(self._ends) // 2

    def __iter__(self) -> Iterator[Interval]:
        ends = iter(self._ends)
        return zip(ends, ends, strict=True)

    @overload
    def __getitem__(self, at: int) -> Interval: ...
    @overload
    def __getitem__(self, at: slice) -> list[Interval]: ...
    def __getitem__(self, at: int | slice) -> Interval | list[Interval]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError("there is no such interval")
        at %= len(self)
        return self._ends[2 * at], self._ends[2 * at + 1]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Intervals({list(self)})"


@dataclass(frozen=True)
class RankRecord:
    """What one file says of one rank. Times are microseconds on the rank's own clock.

    `source` is "kineto", "flight recorder", "trace", "nccl inspector" or "ras". `rank_from` says where the rank's
    number is from: "the file", "the file's name", or "unknown" (then it is only the file's place in the list).
    `compute`, `communication` and `memory` are merged intervals in which at least one such kernel ran. `steps` are the
    profiler's steps. `groups` are the ranks of each group that the file names. `facts` may have backend, device, host,
    pid, versions, base_ns. `notes` are sentences on what the file does not say.

    >>> profiles.RankRecord(0, "rank0.json", "kineto").calls
    ()
    """

    rank: int
    file: str
    source: str
    world_size: int | None = None
    calls: tuple[Call, ...] = ()
    compute: Sequence[Interval] = ()
    communication: Sequence[Interval] = ()
    memory: Sequence[Interval] = ()
    span: Interval | None = None
    steps: tuple[tuple[str, float, float], ...] = ()
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rank_from: str = "the file"

    def __post_init__(self) -> None:
        for name in ("compute", "communication", "memory"):
            object.__setattr__(self, name, Intervals(getattr(self, name)))
        if not 0 <= self.rank < MAX_RANKS:
            raise ProfileError(f"it says that it is of rank {str(self.rank)[:20]}, and no job has such a rank")
        if self.world_size is not None and not 0 < self.world_size <= MAX_RANKS:
            note = f"it says that the world has {str(self.world_size)[:20]} ranks, which can't be"
            object.__setattr__(self, "world_size", None)
            object.__setattr__(self, "notes", (*self.notes, note))

    def with_notes(self, *sentences: str) -> RankRecord:
        """The same record with these notes added."""
        return replace(self, notes=(*self.notes, *sentences))


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or a part of it, of which nothing is told, and the sentence that says why.

    >>> profiles.Skipped("a.json", "it is empty").why
    'it is empty'
    """

    file: str
    why: str


@dataclass(frozen=True)
class Cause:
    """Something that costs the job time or stops it: the words, the evidence, and what it would gain.

    `saves_s` is None where the files can't say. `sure` is from 0 to 1. `kind` is a slug: "straggler", "desync",
    "missing_rank", "tiny_calls", "no_overlap", "wrong_interface", "skewed_all_to_all", "waiting", "idle", "healthy",
    ... `rank` is the one whose fault it is, where there is one.

    >>> profiles.Cause("Rank 3 comes last.", "in 9 of 10 calls", 0.5, 0.9, "straggler", 3).rank
    3
    """

    cause: str
    evidence: str
    saves_s: float | None
    sure: float
    kind: str
    rank: int | None = None

    def text(self) -> str:
        """The words, below them the evidence and how sure it is, in lines that a page need not break.

        >>> print(profiles.Cause("Rank 3 comes last.", "in 9 of 10 calls", 0.5, 0.9, "straggler", 3).text())
        Rank 3 comes last.
            in 9 of 10 calls
            sure: 90%
        """
        return "\n".join([*wrapped(self.cause), *wrapped(self.evidence, *2 * ["    "]), f"    sure: {self.sure:.0%}"])


@dataclass(frozen=True)
class Job:
    """All that the files say of one job: a record a file, in order of the ranks, and what was skipped.

    >>> profiles.Job((profiles.RankRecord(0, "a.json", "kineto", world_size=2),)).missing
    (1,)
    """

    records: tuple[RankRecord, ...]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def world_size(self) -> int | None:
        """The number of ranks that the files name, or None if none names it; a watchdog's texts name at least the
        highest rank."""
        logged = [r.rank + 1 for r in self.records if r.source == "watchdog"]
        return max([*logged, *(r.world_size for r in self.records if r.world_size is not None)], default=None)

    @property
    def at_least(self) -> bool:
        """Whether the world may have more ranks than `world_size`, as only the highest rank of a log tells it."""
        return (self.world_size or 1) > 1 and self.world_size not in (r.world_size for r in self.records)

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks of the world of which no file speaks."""
        here = {r.rank for r in self.records if r.rank_from != "unknown"}
        return tuple(rank for rank in range(self.world_size or 0) if rank not in here)

    def called(self, rank: int) -> str:
        """What a sentence calls a rank: its number, or its file where no file says the number.

        >>> profiles.Job((profiles.RankRecord(0, "/tmp/a.json", "kineto", rank_from="unknown"),)).called(0)
        'the rank of a.json'
        """
        file = next((r.file for r in self.records if r.rank == rank and r.rank_from == "unknown"), None)
        return f"rank {rank}" if file is None else f"the rank of {PurePath(file).name}"

    def numbered(self, rank: int | None) -> int | None:
        """The rank, or None where its number is only the file's place in the list."""
        known = all(r.rank_from != "unknown" for r in self.records if r.rank == rank)
        return rank if known else None

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of all ranks, rank by rank."""
        return tuple(call for record in self.records for call in record.calls)


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The union of intervals as intervals that do not touch, in order; those without a length are left out.

    >>> merged([(4, 6), (0, 2), (1, 3)])
    ((0, 3), (4, 6))
    """
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return tuple(found)

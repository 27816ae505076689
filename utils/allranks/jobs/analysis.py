"""The figures of a job: where each rank's time goes, and what each collective took. docs/explain.md defines each in a
sentence."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from allranks.jobs.formats import WORK
from allranks.jobs.job import Call, Interval, Job, RankRecord, merged
from allranks.jobs.matching import Match, Matching
from allranks.jobs.names import UNKNOWN
from allranks.jobs.reading import sources
from allranks.theory.cost import bus_factor, lower_bound
from allranks.theory.cost.nccl_tables import NVLINK_GB_PER_S
from allranks.theory.cost.terms import CostError

__all__ = ["Collective", "RankTimes", "collectives", "device_link_gb_per_s", "length", "rank_times", "shared"]

MANY_SIZES = 24  # a group whose calls have more sizes than this gets one row for each operation
# 7 links, one to each other GPU, each 48 of its 64 GB/s usable: "Understanding RCCL Bandwidth and xGMI Performance
# on AMD Instinct MI300X", rocm.blogs.amd.com
XGMI_LINKS, XGMI_GB_PER_S = 7, {"MI300X": 48.0}


def length(intervals: Iterable[Interval]) -> float:
    """The sum of the intervals' lengths.

    >>> length([(0, 2), (5, 6)])
    3
    """
    return sum(end - start for start, end in intervals)


def shared(one: Sequence[Interval], other: Sequence[Interval]) -> float:
    """How long both of two merged lists of intervals run at once.

    >>> shared([(0, 4), (6, 9)], [(3, 7)])
    2.0
    """
    total, i, j = 0.0, 0, 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        total += max(0, end - start)
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return total


@dataclass(frozen=True)
class RankTimes:
    """Where one rank's time went, in microseconds; `overlap` is None without communication.

    >>> RankTimes(0, 10.0, 5.0, 4.0, 3.0, 2.0, 0.25, 0.0).to_dict()["overlap"]
    0.25
    """

    rank: int | None
    span_us: float
    compute_us: float
    communication_us: float
    exposed_us: float
    idle_us: float
    overlap: float | None
    memory_us: float
    steps: int = 0

    @property
    def other_us(self) -> float:
        """The time in which something runs, but no compute: communication and copies that nothing hides."""
        return self.span_us - self.compute_us - self.idle_us

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        return asdict(self) | {"other_us": self.other_us}


def rank_times(record: RankRecord) -> RankTimes | None:
    """The figures of one rank, or None if its file does not say when the rank computed.

    >>> work = profiles.RankRecord(0, "", "kineto", compute=((0, 4),), communication=((3, 6),), span=(0.0, 10.0))
    >>> found = rank_times(work)
    >>> found.exposed_us, found.idle_us, round(found.overlap, 3)
    (2.0, 4.0, 0.333)
    """
    if record.span is None or record.source not in sources(WORK) or record.facts.get("unread"):
        return None
    both = shared(record.compute, record.communication)
    talk = length(record.communication)
    busy = length(merged((*record.compute, *record.communication, *record.memory)))
    span = record.span[1] - record.span[0]
    return RankTimes(
        None if record.rank_from == "unknown" else record.rank,
        span,
        length(record.compute),
        talk,
        talk - both,
        span - busy,
        both / talk if talk else None,
        length(record.memory),
        len([s for s in record.steps if s[1] < record.span[1]]),
    )


@dataclass(frozen=True)
class Collective:
    """The calls of one operation and size in one group, and what they took. Times are microseconds; None: the files
    don't say.

    `calls` counts a collective once, however many ranks' files have it. `time_us` is the time of one rank in all of
    them (the mean of the ranks here). `wait_us` of it passed before the last rank came, `moving_us` after. `call_us` is
    the median of one call's moving, or, where only one rank's file has the call, of its whole duration.
    `algbw_gb_per_s` and `busbw_gb_per_s` are those of `call_us`; `price_us` is what the bytes would take at the link's
    `link_gb_per_s`. `last` says how often each rank came last.
    """

    op: str
    group: str | None
    ranks: int | None
    nbytes: int | None
    dtype: str | None
    calls: int
    time_us: float | None
    wait_us: float | None
    moving_us: float | None
    call_us: float | None
    shortest_us: float | None
    algbw_gb_per_s: float | None
    busbw_gb_per_s: float | None
    link_gb_per_s: float | None
    price_us: float | None
    last: dict[int, int]

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


def collectives(job: Job, matching: Matching) -> list[Collective]:
    """A row for each operation, group and size, the longest time first.

    >>> call = profiles.Call(0, "all_reduce", "0", group_size=2, start_us=0.0, end_us=10.0, nbytes=10_000)
    >>> (row,) = collectives(profiles.Job((profiles.RankRecord(0, "", "kineto", 2, (call,)),)), Matching((), {}))
    >>> row.algbw_gb_per_s, row.wait_us
    (1.0, None)
    """
    inside = {id(call) for m in matching.matches for call in m.calls.values()}
    sizes: dict[tuple[str, str | None], set[int | None]] = defaultdict(set)
    for call in job.calls:
        sizes[call.op, call.group].add(call.nbytes)

    def row_of(call: Call) -> tuple[str, str | None, int | None, str | None]:
        many = len(sizes[call.op, call.group]) > MANY_SIZES
        return call.op, call.group, None if many else call.nbytes, None if many else call.dtype

    rows: dict[tuple[str, str | None, int | None, str | None], tuple[list[Match], list[Call]]] = defaultdict(
        lambda: ([], [])
    )
    for one in matching.matches:
        rows[row_of(max(one.calls.values(), key=lambda c: (c.group or "", c.nbytes or 0)))][0].append(one)
    for call in job.calls:
        if id(call) not in inside:
            rows[row_of(call)][1].append(call)
    found = [_row(key, matches, calls, job) for key, (matches, calls) in rows.items()]
    return sorted(found, key=lambda row: -(row.time_us or 0.0))


def _row(
    key: tuple[str, str | None, int | None, str | None], matches: list[Match], alone: list[Call], job: Job
) -> Collective:
    op, group, nbytes, dtype = key
    calls = [c for m in matches for c in m.calls.values()] + alone
    ranks = next((c.group_size for c in calls if c.group_size), None)
    waits = [sum(m.waited_us.values()) / len(m.calls) for m in matches]
    moving = [m.moving_us for m in matches]
    durations = [c.duration_us for c in alone if c.duration_us is not None]
    # a call on one rank only: of several ranks' lonely calls, those of one rank
    per_rank = len({c.rank for c in alone}) or 1
    times = [w + m for w, m in zip(waits, moving, strict=True)]
    all_times = times + durations
    typical = median(moving) if moving else median(durations) if durations else None
    sized = [c.nbytes for c in calls if c.nbytes]
    size = nbytes if nbytes is not None else (int(sum(sized) / len(sized)) if sized else None)
    algbw, busbw = _bandwidths(op, ranks, size, typical)
    link = device_link_gb_per_s(job, 2 if op in ("send", "recv") else ranks)
    here = link if link is not None and ranks is not None and ranks > 1 and size else None
    counts: dict[int, int] = defaultdict(int)
    for one in matches:
        counts[one.last] += 1
    return Collective(
        op, group, ranks, size, dtype, len(matches) + round(len(alone) / per_rank),
        sum(times) + sum(durations) / per_rank if all_times else None,
        sum(waits) if matches else None, sum(moving) if matches else None, typical,
        min(moving or durations, default=None), algbw, busbw, here, _price_us(op, ranks, size, here),
        dict(sorted(counts.items())),
    )  # fmt: skip


def _bandwidths(
    op: str, ranks: int | None, nbytes: int | None, time_us: float | None
) -> tuple[float | None, float | None]:
    """algbw and busbw in GB/s, as nccl-tests defines them."""
    if not nbytes or not time_us or time_us <= 0 or op == UNKNOWN:
        return None, None
    algbw = nbytes / time_us / 1e3
    if op in ("send", "recv"):
        return algbw, algbw
    try:
        return algbw, algbw * float(bus_factor(op, ranks)) if ranks else None
    except CostError:
        return algbw, None


def _price_us(op: str, ranks: int | None, nbytes: int | None, link: float | None) -> float | None:
    """Microseconds that the bytes take at the link's bandwidth, by the lower bound of what must be sent."""
    if not ranks or not nbytes or not link or op in (UNKNOWN, "send", "recv"):
        return None
    try:
        return float(lower_bound(op, ranks, nbytes).nbytes) / link / 1e3
    except CostError:
        return None


def device_link_gb_per_s(job: Job, ranks: int | None = None) -> float | None:
    """GB/s of all of one GPU's links inside its machine, in one direction, where the files name a known GPU.

    It holds between GPUs of one machine that are linked; the files do not say whether the ranks are on one. Where each
    pair of GPUs has a link of its own, a group of `ranks` has those between them only.

    >>> record = profiles.RankRecord(0, "", "kineto", facts={"device": "NVIDIA A100-SXM4-80GB"})
    >>> device_link_gb_per_s(profiles.Job((record,)))
    240.0
    """
    names = {str(r.facts["device"]) for r in job.records if "device" in r.facts}
    if len(names) != 1:
        return None
    (name,) = names
    if re.search("pcie", name, re.I):
        return None
    links = XGMI_LINKS if ranks is None else max(1, min(ranks - 1, XGMI_LINKS))
    known = NVLINK_GB_PER_S | {chip: links * one for chip, one in XGMI_GB_PER_S.items()}
    return next((known[chip] for chip in known if re.search(rf"\b{chip}\b", name)), None)

"""Which calls of the ranks are one collective, and what each rank's clock shows at one moment.

Calls match by group and order within it. A profile may begin or end in the middle, so that the order is shifted on one
rank, or calls are missing: then the operation, its bytes and the ends decide. Nobody leaves an all-reduce before the
last rank has come, so that its ends are close together, and the ends of matched collectives align the clocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from allranks.jobs.job import Call, Job, RankRecord

__all__ = ["Clock", "Match", "Matching", "match"]

# nobody leaves one of these before the last rank has come
ALL_WAIT = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
PAIRWISE = ("send", "recv")
# each rank's part of these may have a size of its own
UNEVEN = ("all_to_all", "gather", "scatter", "reduce", "broadcast", "barrier", "unknown")
SAMPLE = 400  # calls that decide on a shift
SHIFTS = 32
CLOSE_US = 1000.0


@dataclass(frozen=True)
class Clock:
    """What to subtract from a rank's times to have those of the first rank: from each moment on its own clock, a shift.

    `uncertain_us` is how far the ends of matched collectives lie apart after that; `calls` is their number, 0 where the
    two ranks are on one host and share its clock. `known` is False where nothing aligns the clock.

    >>> Clock(((float("-inf"), 5.0),)).at(12.0)
    7.0
    """

    shifts: tuple[tuple[float, float], ...] = ((float("-inf"), 0.0),)
    uncertain_us: float = 0.0
    calls: int = 0
    known: bool = True

    def at(self, time_us: float) -> float:
        """A time of this rank on the first rank's clock."""
        shift = self.shifts[0][1]
        for start, other in self.shifts[1:]:
            if time_us >= start:
                shift = other
        return time_us - shift


@dataclass(frozen=True)
class Match:
    """One collective: the call of each rank whose file has it, by rank, with times on the first rank's clock."""

    op: str
    group: str | None
    seq: int
    calls: dict[int, Call]
    start_us: dict[int, float]
    end_us: dict[int, float]

    @property
    def complete(self) -> bool:
        """Whether every rank of the group is here; False if the group's size is unknown."""
        size = next((c.group_size for c in self.calls.values() if c.group_size), None)
        return size == len(self.calls)

    @property
    def last(self) -> int:
        """The rank that came last."""
        return max(self.start_us, key=lambda rank: self.start_us[rank])

    @property
    def late_us(self) -> float:
        """How much later the last rank came than the one before it."""
        *_, before, last = sorted(self.start_us.values())
        return last - before

    @property
    def waited_us(self) -> dict[int, float]:
        """How long each rank waited for the last one, but no longer than its call took."""
        come = max(self.start_us.values())
        return {r: max(0.0, min(come, self.end_us[r]) - at) for r, at in self.start_us.items()}

    @property
    def moving_us(self) -> float:
        """From the last rank's coming to the end: the median of the ranks."""
        come = max(self.start_us.values())
        return max(0.0, median(self.end_us.values()) - come)


@dataclass(frozen=True)
class Matching:
    """The collectives of a job, in order of their first start, the ranks' clocks, and sentences on what is
    uncertain."""

    matches: tuple[Match, ...]
    clocks: dict[int, Clock]
    notes: tuple[str, ...] = field(default=())


Pairs = list[tuple[Call, Call]]


def match(job: Job) -> Matching:
    """Matches the calls of the job's ranks, and aligns their clocks.

    >>> ends = [profiles.Call(rank, "barrier", "0", end_us=9.0, start_us=float(rank)) for rank in (0, 1)]
    >>> found = match(profiles.Job(tuple(profiles.RankRecord(c.rank, "", "kineto", 2, (c,)) for c in ends)))
    >>> found.matches[0].last, found.matches[0].waited_us
    (1, {0: 1.0, 1: 0.0})
    """
    records = {r.rank: r for r in job.records if any(c.end_us is not None for c in r.calls)}
    timed = {rank: [c for c in record.calls if _timed(c)] for rank, record in records.items()}
    # where a file does not name the groups, the ends decide among the calls of all groups
    unnamed = any(c.group is None for calls in timed.values() for c in calls)
    pools: dict[str | None, dict[int, list[Call]]] = defaultdict(dict)
    for rank, calls in timed.items():
        for call in calls:
            pools[None if unnamed else call.group].setdefault(rank, []).append(call)
    linked: dict[tuple[int, int], Pairs] = defaultdict(list)
    sets: list[dict[int, Call]] = []
    # a profile has no numbers: its reader counts; the other formats have the program's own
    numbered = all(r.source != "kineto" for r in records.values())
    for pool in pools.values():
        by_number = numbered and all(c.seq is not None for calls in pool.values() for c in calls)
        sets += _sets(pool, linked, by_number, lambda a, b: _one_host(records[a], records[b]))
    clocks, notes = _clocks(records, linked)
    found = [_match(calls, clocks) for calls in sets if len(calls) > 1]
    found.sort(key=lambda m: min(m.start_us.values()))
    return Matching(_numbered(found), clocks, tuple(notes))


def _timed(call: Call) -> bool:
    return call.start_us is not None and call.end_us is not None and call.op not in PAIRWISE


def _sets(
    pool: dict[int, list[Call]],
    linked: dict[tuple[int, int], Pairs],
    numbered: bool,
    one_clock: Callable[[int, int], bool],
) -> Iterator[dict[int, Call]]:
    """The collectives in the calls of one group, as sets of calls; `linked` gets the pairs of each two ranks."""
    open_calls = {rank: sorted(calls, key=lambda c: c.start_us or 0.0) for rank, calls in sorted(pool.items())}
    for rank, mine in open_calls.items():
        found: dict[int, dict[int, Call]] = {id(call): {rank: call} for call in mine}
        for other in [r for r in open_calls if r > rank]:
            pairs = (
                _by_number(mine, open_calls[other])
                if numbered
                else _paired(mine, open_calls[other], one_clock(rank, other))
            )
            linked[rank, other] += pairs
            taken = set()
            for here, there in pairs:
                found[id(here)][other] = there
                taken.add(id(there))
            open_calls[other] = [c for c in open_calls[other] if id(c) not in taken]
        yield from found.values()


def _same(one: Call, other: Call) -> bool:
    """Whether the two may be one collective."""
    if one.op != other.op:
        return False
    if one.op in UNEVEN or one.nbytes is None or other.nbytes is None:
        return True
    return one.nbytes == other.nbytes


def _end(call: Call) -> float:
    return call.end_us or 0.0


def _apart(pairs: Sequence[tuple[Call, Call]]) -> list[float]:
    """How much later the second of each pair ended, for collectives in which all wait for all."""
    return [_end(b) - _end(a) for a, b in pairs if a.op in ALL_WAIT]


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return median(abs(v - middle) for v in values)


def _paired(mine: list[Call], theirs: list[Call], one_clock: bool) -> Pairs:
    """The calls of two ranks in one group that are one collective."""
    best: tuple[float, int] | None = None
    for shift in sorted(range(-SHIFTS, SHIFTS + 1), key=abs):
        pairs = _shifted(mine[: SAMPLE + SHIFTS], theirs[: SAMPLE + SHIFTS], shift)
        enough = len(pairs) >= min(len(mine), len(theirs), SAMPLE) - abs(shift) and len(pairs) >= 0.5 * min(
            len(mine), len(theirs), SAMPLE
        )
        if not enough or not all(_same(a, b) for a, b in pairs):
            continue
        apart = _apart(pairs)
        # on two clocks, from call to call: a clock may be ahead, drift, or step once
        scatter = [abs(b - a) for a, b in pairwise(apart)] if not one_clock else [abs(d) for d in apart]
        spread = median(scatter) if scatter else 0.0
        # another shift must be much better than the plain order: ends differ by chance too
        if best is None or spread < 0.3 * best[0] - 20:
            best = (spread, shift)
    if best is not None:
        whole = _shifted(mine, theirs, best[1])
        if all(_same(a, b) for a, b in whole):
            return whole
    # on the threads of one busy host, ends scatter more than on GPUs
    return _by_ends(mine, theirs, CLOSE_US * (10 if one_clock else 2))


def _by_number(mine: list[Call], theirs: list[Call]) -> Pairs:
    there = {call.seq: call for call in theirs}
    return [(call, there[call.seq]) for call in mine if call.seq in there]


def _shifted(mine: list[Call], theirs: list[Call], shift: int) -> Pairs:
    start = max(0, -shift)
    return list(zip(mine[start:], theirs[start + shift :], strict=False))


def _by_ends(mine: list[Call], theirs: list[Call], close_us: float) -> Pairs:
    """Where calls are missing on one rank: those of one kind whose ends agree after one shift of the clock."""
    apart = sorted(_end(b) - _end(a) for a in mine[:SAMPLE] if a.op in ALL_WAIT for b in theirs[:SAMPLE] if _same(a, b))
    if not apart:
        return []
    # the densest window of differences is the difference of the clocks
    first, best, begin = 0, 0, 0
    for last, value in enumerate(apart):
        while value - apart[first] > CLOSE_US:
            first += 1
        if last - first + 1 > best:
            best, begin = last - first + 1, first
    if best < 2 and not any(abs(v) < CLOSE_US for v in apart):
        return []
    shift = median(apart[begin : begin + best]) if best > 1 else min(apart, key=abs)
    pairs: Pairs = []
    i = j = 0
    while i < len(mine) and j < len(theirs):
        late = _end(theirs[j]) - _end(mine[i]) - shift
        if abs(late) <= close_us and _same(mine[i], theirs[j]):
            pairs.append((mine[i], theirs[j]))
            i, j = i + 1, j + 1
        elif late > 0:
            i += 1
        else:
            j += 1
    return pairs


def _clocks(records: dict[int, RankRecord], linked: dict[tuple[int, int], Pairs]) -> tuple[dict[int, Clock], list[str]]:
    """The clock of each rank, found along pairs of ranks with collectives in common."""
    clocks: dict[int, Clock] = {}
    notes: list[str] = []
    for root in sorted(records):
        if root in clocks:
            continue
        clocks[root] = Clock(known=not clocks)
        queue = [root]
        while queue:
            rank = queue.pop(0)
            for other in sorted(set(records) - set(clocks)):
                pairs = linked.get((rank, other)) or [(b, a) for a, b in linked.get((other, rank), [])]
                if _one_host(records[rank], records[other]):
                    clocks[other] = clocks[rank]
                elif len(_apart(pairs)) > 0:
                    clocks[other] = _aligned(clocks[rank], other, pairs, notes)
                else:
                    continue
                queue.append(other)
    lost = sorted(r for r, clock in clocks.items() if not clock.known)
    if lost:
        which = ", ".join(map(str, lost))
        notes.append(
            f"nothing aligns the clock of rank {which} with that of rank {min(records)}: no collective in common"
        )
    apart = [c for c in clocks.values() if c.calls]
    if apart:
        worst = max(c.uncertain_us for c in apart)
        notes.append(
            f"the ranks' clocks were aligned by the ends of {sum(c.calls for c in apart):,} matched collectives; "
            f"what is said of who came when is uncertain by {worst:,.0f} µs"
        )
    return clocks, notes


def _one_host(one: RankRecord, other: RankRecord) -> bool:
    """Whether both files name the same host, so that their times are of one clock."""
    host = one.facts.get("host")
    return (
        host is not None and host == other.facts.get("host") and one.facts.get("base_ns") == other.facts.get("base_ns")
    )


def _aligned(base: Clock, rank: int, pairs: Pairs, notes: list[str]) -> Clock:
    """The clock by the ends of collectives; with one step in it, if the ends show one."""
    ends = sorted((_end(b), _end(b) - base.at(_end(a))) for a, b in pairs if a.op in ALL_WAIT)
    apart = [difference for _, difference in ends]
    step = _step(apart)
    if step is None:
        shift = median(apart)
        left = sorted(abs(d - shift) for d in apart)
        return Clock(((float("-inf"), shift),), left[int(0.9 * (len(left) - 1))] + base.uncertain_us, len(apart))
    before, after = median(apart[:step]), median(apart[step:])
    left = sorted(abs(d - (before if i < step else after)) for i, d in enumerate(apart))
    notes.append(
        f"the clock of rank {rank} steps by {(after - before) / 1e3:,.1f} ms in the middle of the profile; "
        "times before and after were aligned each by themselves"
    )
    shifts = ((float("-inf"), before), (ends[step][0] - 1.0, after))
    return Clock(shifts, left[int(0.9 * (len(left) - 1))] + base.uncertain_us, len(apart))


def _step(apart: list[float]) -> int | None:
    """Where the differences change for good by far more than they scatter; None if they don't."""
    if len(apart) < 8:
        return None
    jumps = [(abs(median(apart[i : i + 4]) - median(apart[max(0, i - 4) : i])), i) for i in range(4, len(apart) - 3)]
    _, near = max(jumps)
    at = max(range(near - 2, near + 3), key=lambda i: abs(apart[i] - apart[i - 1]))
    before, after = apart[:at], apart[at:]
    if min(len(before), len(after)) < 3:
        return None
    jump = abs(median(after) - median(before))
    return at if jump > 500 and jump > 8 * max(_spread(before), _spread(after)) else None


def _match(calls: dict[int, Call], clocks: dict[int, Clock]) -> Match:
    first = min(calls.items())[1]
    start = {r: clocks[r].at(c.start_us or 0.0) for r, c in calls.items()}
    end = {r: max(start[r], clocks[r].at(c.end_us or 0.0)) for r, c in calls.items()}
    group = next((c.group for c in calls.values() if c.group is not None), None)
    return Match(first.op, group, 0, dict(sorted(calls.items())), start, end)


def _numbered(matches: list[Match]) -> tuple[Match, ...]:
    numbers: dict[str | None, int] = defaultdict(int)
    found = []
    for one in matches:
        found.append(Match(one.op, one.group, numbers[one.group], one.calls, one.start_us, one.end_us))
        numbers[one.group] += 1
    return tuple(found)

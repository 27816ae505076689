"""What costs a job its time: each cause with its evidence, how sure it is, and what it would gain.

A cause is told only if the files show it. What one rank's file cannot show (for whom it waits) is said to be open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from allranks.base.errors import capital, counted
from allranks.jobs.analysis import MANY_SIZES, Collective, RankTimes, length, shared
from allranks.jobs.job import Call, Cause, Job, merged
from allranks.jobs.matching import ALL_WAIT, Matching
from allranks.jobs.phrases import gigabytes, many, ms, percent, size

__all__ = ["Seen", "causes"]

WORTH = 0.03  # of the time: less is not worth a cause
LATE_US = 50.0  # launches differ by so much without a reason


@dataclass(frozen=True)
class Seen:
    """All that a cause may be read from: the job, its matched collectives, and the figures."""

    job: Job
    matching: Matching
    times: tuple[RankTimes, ...]
    rows: tuple[Collective, ...]

    @property
    def span_us(self) -> float:
        """The time that the figures cover: the mean of the ranks; without figures, from the first call to the last."""
        if self.times:
            return sum(t.span_us for t in self.times) / len(self.times)
        spans = [r.span[1] - r.span[0] for r in self.job.records if r.span is not None]
        return max(spans, default=0.0)

    @property
    def alone(self) -> bool:
        """Whether nothing says how the ranks waited for each other."""
        return not self.matching.matches

    def mean(self, name: str) -> float:
        """The mean of one figure of the ranks."""
        return sum(getattr(t, name) for t in self.times) / len(self.times) if self.times else 0.0


def causes(seen: Seen) -> list[Cause]:
    """The causes that the times show, what gains most first; "healthy" if there is none.

    >>> [c.kind for c in causes(Seen(profiles.Job(()), Matching((), {}), (), ()))]
    ['no_times']
    """
    if seen.span_us <= 0:
        words = (
            "What the files have in common does not differ between the ranks, and they have no times that would say "
            "more."
        )
        return [Cause("The files do not say what costs the time.", words, None, 0.5, "no_times")]
    unread = sorted({kind for r in seen.job.records for kind in r.facts.get("unread", ())})
    if unread:
        return [_unread(unread)]
    if seen.rows and not any(t.communication_us for t in seen.times) and all(r.time_us is None for r in seen.rows):
        return [_untimed(seen), *_absent(seen)]
    if not seen.rows and not any(t.communication_us for t in seen.times):
        words, sure = "no file has a collective or a message", 1.0
        if any("in the middle" in note or "damaged" in note for r in seen.job.records for note in r.notes):
            words, sure = f"{words}; but a file is not whole, and may have lost them", 0.3
        found = [Cause("The ranks do not communicate.", words, None, sure, "no_communication")]
    else:
        straggling = _straggler(seen)
        tiny = _tiny(seen)
        found = [*straggling, *tiny, *_slow_link(seen), *_skewed(seen), *_waiting(seen)]
        found += _no_overlap(seen, sum(c.saves_s or 0.0 for c in tiny))
    found += [*_idle(seen), *_absent(seen)]
    found = _folded(found)
    worth = [c for c in found if c.saves_s is None or c.saves_s * 1e6 >= WORTH * seen.span_us]
    most = max(((c.saves_s or 0.0) * c.sure for c in worth), default=0.0)

    def place(cause: Cause) -> tuple[int, float]:
        weight = (cause.saves_s or 0.0) * cause.sure
        root = cause.kind in ROOTS and cause.sure >= 0.6 and weight >= 0.3 * most
        return (ROOTS.index(cause.kind) if root else len(ROOTS)), -weight

    worth.sort(key=place)
    return worth if any(c.saves_s for c in worth) or not seen.rows else [_no_cause(seen), *worth]


def _unread(kinds: Sequence[str]) -> Cause:
    words = f"its events are {', '.join(kinds)}; read are kernel, gpu_memcpy and gpu_memset"
    return Cause(
        "The device's events are of a kind that is not read, so that nothing can be told of its time.",
        words,
        None,
        1.0,
        "unread_device",
    )  # fmt: skip


def _untimed(seen: Seen) -> Cause:
    """The calls are in the files, and how long they took is not."""
    calls: dict[str, int] = defaultdict(int)
    for row in seen.rows:
        calls[row.op] += row.calls
    words = ", ".join(many(op, n) for op, n in sorted(calls.items(), key=lambda item: -item[1]))
    evidence = f"they have {words}, and no event of a GPU: record with the activities CPU and CUDA"
    return Cause("The files do not say how long the calls take, nor what they cost.", evidence, None, 0.9, "no_times")


# these bring about the signs of the others, so that they are told first unless they cost little beside them
ROOTS = ("skewed_all_to_all", "wrong_interface", "straggler", "tiny_calls")


def _folded(found: list[Cause]) -> list[Cause]:
    """A rank with more bytes than the others also comes last: that is one cause, and what both would gain."""
    skewed = next((c for c in found if c.kind == "skewed_all_to_all" and c.rank is not None), None)
    same = next((c for c in found if c.kind == "straggler" and skewed and c.rank == skewed.rank), None)
    if skewed is None or same is None:
        return found
    both = replace(
        skewed, saves_s=(skewed.saves_s or 0.0) + (same.saves_s or 0.0), evidence=f"{skewed.evidence} {same.evidence}"
    )
    return [both if c is skewed else c for c in found if c is not same]


def _waited(seen: Seen) -> dict[int, float]:
    """For each rank, how long it waited in collectives for the last to come, and did not compute meanwhile.

    Profilers do not start at one moment on all ranks: waiting counts from when the last of them recorded.
    """
    found: dict[int, list[tuple[float, float]]] = {}
    unsure, begin = _unsure(seen), _begin(seen)
    for one in seen.matching.matches:
        if one.op in ALL_WAIT:
            for rank, waited in one.waited_us.items():
                own = (one.calls[rank].start_us or 0.0) - one.start_us[rank]  # from the common clock to the rank's
                first, last = max(one.start_us[rank], begin), one.start_us[rank] + (waited if waited > unsure else 0.0)
                found.setdefault(rank, []).append((first + own, max(first, last) + own))
    compute = {r.rank: r.compute for r in seen.job.records}
    waits = {rank: merged(intervals) for rank, intervals in found.items()}
    return {rank: length(w) - shared(w, compute[rank]) for rank, w in waits.items()}


def _begin(seen: Seen) -> float:
    """When the last rank's record begins, on the common clock."""
    clocks = seen.matching.clocks
    starts = [clocks[r.rank].at(r.span[0]) for r in seen.job.records if r.span is not None and r.rank in clocks]
    return max(starts, default=float("-inf"))


def _unsure(seen: Seen) -> float:
    """Microseconds below which nobody is late."""
    return max([LATE_US, *(c.uncertain_us for c in seen.matching.clocks.values())])


def _straggler(seen: Seen) -> Iterable[Cause]:
    """The rank that waits least of all with whom it has collectives: it has nobody to wait for.

    Who comes last in one collective may have been held up in another group's by the real straggler; that rank has
    waited there.
    """
    waited = _waited(seen)
    if len(waited) < 2 or max(waited.values()) < WORTH * seen.span_us:
        return
    unsure, begin = _unsure(seen), _begin(seen)
    peers: dict[int, set[int]] = defaultdict(set)
    often: dict[int, int] = defaultdict(int)
    late: dict[int, float] = defaultdict(float)
    for one in seen.matching.matches:
        for rank in one.calls:
            peers[rank] |= set(one.calls) - {rank}
        if one.op in ALL_WAIT and one.late_us > unsure and max(one.start_us.values()) > begin + unsure:
            often[one.last] += 1
            late[one.last] += one.late_us
    gain = {r: min(waited[p] for p in peers[r] & set(waited)) - w for r, w in waited.items() if peers[r] & set(waited)}
    rank = max(gain, key=lambda r: gain[r])
    matched = sum(1 for m in seen.matching.matches if m.op in ALL_WAIT and rank in m.calls)
    others = median(w for r, w in waited.items() if r in peers[rank])
    ranks = sorted({r for m in seen.matching.matches for r in m.calls})
    rank = max(late, key=lambda r: late[r])
    unknown = [r for r in seen.job.missing if r not in ranks]
    if len(unknown) > len(ranks):
        yield _later_of_few(seen.job, late, often, len(seen.matching.matches), len(unknown))
        return
    called = seen.job.called
    among = f" of the {len(ranks)} ranks whose files are here" if unknown else ""
    if gain[rank] < max(WORTH * seen.span_us, 0.5 * others):
        mean = sum(waited.values()) / len(waited)
        if mean > 4 * WORTH * seen.span_us:
            words = ", ".join(f"{called(r)} {ms(waited[r])}" for r in sorted(waited)[:8])
            yield Cause(
                f"The ranks wait for each other, and no one{among} is to blame.",
                f"In collectives they waited for the last to come, and did not compute meanwhile: {words} of "
                f"{ms(seen.span_us)}.",
                min(waited.values()) / 1e6, 0.5 if unknown else 0.6, "imbalance",
            )  # fmt: skip
        return
    calls = {r: median(m.end_us[r] - m.start_us[r] for m in seen.matching.matches if r in m.calls) for r in waited}
    typical = median(calls[r] for r in calls if r != rank)
    shorter = f"; its own calls are shorter ({ms(calls[rank])} in the median, {ms(typical)} on the others)"
    evidence = (
        f"{capital(called(rank))} comes last in {often[rank]:,} of {counted(matched, 'collective')}, and waits for "
        f"{ms(waited[rank])} in all, the others "
        f"for {ms(others)} in the median{shorter if calls[rank] < 0.95 * typical else ''}: it has nobody to wait for. "
        f"{_why_late(seen, rank)}"
    )
    sure = (0.95 - 0.4 * waited[rank] / others) * (0.7 if unknown else 1.0)
    cause = f"{capital(called(rank))} is the straggler{among}: the others wait for it."
    yield Cause(cause, evidence.strip(), gain[rank] / 1e6, round(sure, 2), "straggler", seen.job.numbered(rank))


def _later_of_few(job: Job, late: dict[int, float], often: dict[int, int], matched: int, unknown: int) -> Cause:
    """With files of less than half of the ranks, nobody can be called the straggler."""
    words = ", ".join(
        f"{job.called(r)} {counted(often[r], 'time')}, {ms(late[r])} in all"
        for r in sorted(late, key=lambda r: -late[r])[:4]
    )
    return Cause(
        "The ranks do not come at the same time, and wait for each other.",
        f"Of the ranks whose files are here, the last to come in {counted(matched, 'matched collective')} was: "
        f"{words}. Whether one of the other {unknown} ranks came later still, and who is to blame, only "
        "their files would say.",
        sum(late.values()) / 1e6, 0.4, "imbalance",
    )  # fmt: skip


def _why_late(seen: Seen, rank: int) -> str:
    """Whether the rank computes longer, or has nothing to do."""
    of = {t.rank: t for t in seen.times if t.rank is not None}
    if rank not in of or len(of) < 2:
        return ""
    compute = median(t.compute_us for r, t in of.items() if r != rank)
    idle = median(t.idle_us for r, t in of.items() if r != rank)
    mine = of[rank]
    if mine.compute_us > 1.1 * compute and mine.compute_us - compute > mine.idle_us - idle:
        return f"It computes for {ms(mine.compute_us)}, the others for {ms(compute)}: a slower device, or more work."
    if mine.idle_us > idle:
        return (
            f"It is idle for {ms(mine.idle_us)}, the others for {ms(idle)}: look at what its host does (data, Python, "
            f"other programs)."
        )
    return ""


def _exposed_share(seen: Seen, calls: Sequence[Call]) -> float:
    """The share of these calls' time in which their rank does not compute."""
    total = hidden = 0.0
    for record in seen.job.records:
        mine = merged(
            (c.start_us, c.end_us)
            for c in calls
            if c.rank == record.rank and c.start_us is not None and c.end_us is not None
        )
        total += length(mine)
        hidden += shared(mine, record.compute)
    return 1 - hidden / total if total else 1.0


SMALL = 256 << 10  # bytes: below, NCCL's and gloo's time is mostly latency
BUCKET = 25e6  # DDP's bucket
MANY = 20


def _tiny(seen: Seen) -> Iterable[Cause]:
    """Many calls whose time is latency, operation by operation; counts and times are those of one rank, in the mean."""
    ranks = max(1, len(seen.job.records))
    matched = {id(c) for m in seen.matching.matches for c in m.calls.values()}
    shortest = {(r.op, r.group, r.nbytes): r.shortest_us or 0.0 for r in seen.rows}
    for op in sorted({r.op for r in seen.rows} - {"send", "recv", "barrier", "unknown"}):
        small = [
            c
            for c in seen.job.calls
            if c.op == op and c.nbytes is not None and c.nbytes <= SMALL and c.end_us is not None
        ]
        if len(small) < MANY * ranks:
            continue
        ids = {id(c) for c in small}
        cost = sum(m.moving_us for m in seen.matching.matches if m.op == op for c in m.calls.values() if id(c) in ids)
        alone = [c for c in small if id(c) not in matched]
        cost += sum(shortest.get((c.op, c.group, c.nbytes), c.duration_us or 0.0) for c in alone)
        cost, nbytes, calls = cost / ranks, sum(c.nbytes or 0 for c in small) / ranks, round(len(small) / ranks)
        alpha, beta, fitted = _latency(seen, op)
        buckets = max(1, round(nbytes / BUCKET), max((t.steps for t in seen.times), default=0))
        after = buckets * alpha + nbytes * beta
        exposed = _exposed_share(seen, small)
        evidence = (
            f"The {many(op, calls)} of {size(nbytes / calls)} in the mean cost {ms(cost)} of {ms(seen.span_us)}; "
            f"in buckets of 25 MB about {ms(after)} by this job's own alpha ({alpha:,.0f} µs a call, {fitted})"
        )
        if exposed < 0.95:
            evidence += f"; {percent(1 - exposed)} of their time is hidden under compute"
        yield Cause(
            f"Too many small calls: {many(op, calls)}.", evidence + ".", max(0.0, cost - after) * exposed / 1e6,
            0.6 if len(alone) > len(small) / 2 else 0.85, "tiny_calls",
        )  # fmt: skip


def _latency(seen: Seen, op: str) -> tuple[float, float, str]:
    """Microseconds a call and a byte, from the job's own calls of one operation, and how they were found."""
    times: dict[int, list[float]] = defaultdict(list)
    for one in seen.matching.matches:
        nbytes = max((c.nbytes or 0 for c in one.calls.values()), default=0)
        if one.op == op and nbytes:
            times[nbytes].append(one.moving_us)
    if not times:
        for call in seen.job.calls:
            if call.op == op and call.nbytes and call.duration_us is not None:
                times[call.nbytes].append(call.duration_us)
    sizes = sorted(times)
    tenth = max(1, len(sizes) // 10)
    low, high = ((sum(p) / len(p), median(t for n in p for t in times[n])) for p in (sizes[:tenth], sizes[-tenth:]))
    if high[0] >= 8 * low[0] and high[1] > low[1]:
        beta = (high[1] - low[1]) / (high[0] - low[0])
        return max(0.0, low[1] - beta * low[0]), beta, "fitted to its smallest and its largest calls"
    return low[1], 0.0, "what its smallest calls take; what a byte takes can't be told from their sizes"


def _no_overlap(seen: Seen, told_s: float) -> Iterable[Cause]:
    exposed, compute, talk = seen.mean("exposed_us"), seen.mean("compute_us"), seen.mean("communication_us")
    if not talk:
        return
    hidden = talk - exposed
    waits = sum(r.wait_us or 0.0 for r in seen.rows)
    moves = sum(r.moving_us or 0.0 for r in seen.rows)
    moving = exposed * (moves / (waits + moves) if waits + moves else 1.0) - told_s * 1e6
    gain = min(moving, compute - hidden)
    if hidden / talk > 0.3 or exposed < 0.05 * seen.span_us or gain <= 0:
        return
    nothing = "Nothing" if hidden < 0.02 * talk else f"Only {percent(hidden / talk)}"
    yield Cause(
        "Communication is hardly hidden under compute.",
        f"{nothing} of the {ms(talk)} of communication runs while the rank computes; {ms(exposed)} of "
        f"{ms(seen.span_us)} are exposed, "
        f"beside {ms(compute)} of compute. At most {ms(gain)} could be hidden, where the next compute does not need "
        f"the result"
        + ("." if waits + moves else "; how much of it is waiting for other ranks, this file does not say."),
        gain / 1e6, 0.7 if waits + moves else 0.5, "no_overlap",
    )  # fmt: skip


LARGE = 1 << 20


def _slow_link(seen: Seen) -> Iterable[Cause]:
    by_rank = list(_slow_rank(seen))
    if by_rank:
        yield from by_rank
        return
    large = [r for r in seen.rows if (r.nbytes or 0) >= LARGE and r.busbw_gb_per_s and r.moving_us]
    best: dict[tuple[str, str | None], Collective] = {}
    for row in large:
        key = (row.op, row.group)
        if key not in best or (row.busbw_gb_per_s or 0) > (best[key].busbw_gb_per_s or 0):
            best[key] = row
    for row in best.values():
        like = [b for b in best.values() if b.op == row.op and b.ranks == row.ranks and b.group != row.group]
        mine, time_us = row.busbw_gb_per_s or 0.0, _time_of(large, row)
        if like and mine < 0.4 * (other := median(b.busbw_gb_per_s or 0.0 for b in like)):
            yield Cause(
                f"Group {row.group} runs over a slower link than groups like it: a wrong interface?",
                f"Its {many(row.op)} reach a busbw of {gigabytes(mine)}, those of "
                f"{counted(len(like), 'other group')} of {row.ranks} ranks {gigabytes(other)}; "
                "this is after all its ranks had come, so that it is not waiting.",
                time_us * (1 - mine / other) / 1e6, 0.8 if len(like) > 1 else 0.6, "wrong_interface",
            )  # fmt: skip
            return
    if large:
        yield from _slow_device(large)


def _slow_rank(seen: Seen) -> Iterable[Cause]:
    """A rank whose groups' large calls are all slow, while those without it are fast."""
    large = [
        (set(m.calls), float(max(c.nbytes or 0 for c in m.calls.values())), m.moving_us)
        for m in seen.matching.matches
        if m.complete and max(c.nbytes or 0 for c in m.calls.values()) >= LARGE and m.moving_us > 0
    ]
    speeds: dict[int, tuple[float, float, float]] = {}
    for rank in {r for ranks, _, _ in large for r in ranks}:
        theirs, others = [x for x in large if rank in x[0]], [x for x in large if rank not in x[0]]
        if theirs and others and len({frozenset(x[0]) for x in theirs}) > 1:
            slow, fast = (sum(n for _, n, _ in part) / sum(us for _, _, us in part) for part in (theirs, others))
            speeds[rank] = (fast / slow, slow / 1e3, sum(us for _, _, us in theirs))
    ranked = sorted(speeds, key=lambda r: -speeds[r][0])
    if len(ranked) < 2 or speeds[ranked[0]][0] < 2 or speeds[ranked[0]][0] < 1.25 * speeds[ranked[1]][0]:
        return
    ratio, slow_gb, time_us = speeds[ranked[0]]
    yield Cause(
        f"The link of {seen.job.called(ranked[0])} is slow: a wrong interface?",
        f"Large calls with it move {gigabytes(slow_gb)} after all ranks had come, those without it "
        f"{gigabytes(slow_gb * ratio)}; for every "
        "other rank the two are closer together.",
        time_us * (1 - 1 / ratio) / 1e6, 0.85, "wrong_interface", seen.job.numbered(ranked[0]),
    )  # fmt: skip


def _slow_device(large: Sequence[Collective]) -> Iterable[Cause]:
    """All large calls are slow, beside what the device or any network carries."""
    row = max(large, key=lambda b: b.busbw_gb_per_s or 0.0)
    mine, link = row.busbw_gb_per_s or 0.0, row.link_gb_per_s
    time_us = sum(r.moving_us or 0.0 for r in large)
    best = (
        f"The best of the large calls, {row.op} of {size(row.nbytes)}, reaches a busbw of {gigabytes(mine)} after all "
        f"ranks had come"
    )
    if link is not None and mine < 0.15 * link:
        floor = sum((r.price_us or 0.0) * r.calls for r in large)
        yield Cause(
            "The bytes move far below what the GPUs' links inside a machine carry: a wrong interface?",
            f"{best}; the links of this GPU carry {gigabytes(link)}. The files do not say whether the ranks are on one "
            f"machine; between "
            "machines a network card's bandwidth holds.",
            (time_us - floor) / 1e6, 0.5, "wrong_interface",
        )  # fmt: skip
    elif link is None and mine < 0.13:
        yield Cause(
            "The bytes move as over a link of 1 Gb/s or less: a wrong interface?",
            f"{best}; 1 Gb/s are 0.125 GB/s, and the loopback of one machine carries more.",
            time_us * (1 - mine / 1.25) / 1e6, 0.5, "wrong_interface",
        )  # fmt: skip


def _time_of(rows: Iterable[Collective], like: Collective) -> float:
    return sum(r.moving_us or 0.0 for r in rows if (r.op, r.group) == (like.op, like.group))


def _skewed(seen: Seen) -> Iterable[Cause]:
    loads: dict[int, float] = defaultdict(float)
    moved = [m for m in seen.matching.matches if m.op == "all_to_all"]
    for one in moved:
        for rank, call in one.calls.items():
            # whichever is more, what it sends or what it receives
            loads[rank] += max(call.in_elements or 0, call.out_elements or 0)
    mean = sum(loads.values()) / len(loads) if loads else 0.0
    if mean and max(loads.values()) >= 1.5 * mean:
        rank = max(loads, key=lambda r: loads[r])
        factor = loads[rank] / mean
        cost = sum(m.moving_us for m in moved if rank in m.calls) * (1 - 1 / factor)
        yield Cause(
            f"The all_to_alls are skewed: {seen.job.called(rank)} has the most to send or receive, and all wait for "
            f"it.",
            f"In {many('all_to_all', len(moved))} it moves {factor:.2f} times the mean of the ranks; evenly "
            f"spread, the same bytes would take {ms(cost)} less, and the work on them would be even too.",
            cost / 1e6, 0.85 if all(m.complete for m in moved) else 0.65, "skewed_all_to_all", seen.job.numbered(rank),
        )  # fmt: skip
        return
    split = [
        (max(s) * len(s) / sum(s), c)
        for c in seen.job.calls
        if c.op == "all_to_all"
        for s in (c.in_split, c.out_split)
        if s and sum(s)
    ]
    if seen.alone and split and median(f for f, _ in split) >= 1.5:
        cost = sum(c.duration_us or 0.0 for _, c in split) / 2
        yield Cause(
            "The all_to_alls are skewed: this rank's parts differ much.",
            f"In {counted(len(split), 'list')} of parts the largest is {median(f for f, _ in split):.1f} times the "
            "mean in the median. The other ranks' files would say who has the most in all.",
            cost / 1e6 * 0.5, 0.35, "skewed_all_to_all",
        )  # fmt: skip


def _waiting(seen: Seen) -> Iterable[Cause]:
    """With files of too few ranks: the calls take longer than their bytes need, and it is open for whom."""
    if not seen.alone:
        return
    exposed = seen.mean("exposed_us")
    rows = [r for r in seen.rows if r.time_us and r.shortest_us and r.op not in ("send", "recv")]
    time_us = sum(r.time_us or 0.0 for r in rows)
    if exposed < 0.05 * seen.span_us or not time_us:
        return
    priced = [r for r in rows if r.price_us and (r.nbytes or 0) >= LARGE]
    share = exposed / seen.mean("communication_us")
    words = (
        f"Communication takes {ms(seen.mean('communication_us'))} of {ms(seen.span_us)}, {ms(exposed)} of it exposed"
    )
    world = seen.job.world_size
    open_end = "This one file can't say which, nor for whom it waits; " + (
        f"the files of the other {world - 1} ranks would." if world and world > 1 else "the other ranks' files would."
    )
    if priced:
        row = max(priced, key=lambda r: r.time_us or 0.0)
        spent = sum(r.time_us or 0.0 for r in priced)
        floor = sum((r.price_us or 0.0) * r.calls for r in priced)
        times = (row.call_us or 0.0) / (row.price_us or 1.0)
        if times < 3:
            return
        even = (row.call_us or 0.0) / (row.shortest_us or 1.0)
        hint = (
            f"calls of one size take about the same time ({ms(row.shortest_us or 0)} to {ms(row.call_us or 0)}), as on "
            f"a slow link or behind a rank that is always late"
            if even < 1.15
            else f"calls of one size take from {ms(row.shortest_us or 0)} up, {ms(row.call_us or 0)} in the median, "
            f"as where ranks wait"
        )
        yield Cause(
            "The collectives take far longer than their bytes need: this rank waits for others, or the link is slow.",
            f"{words}. {row.op} of {size(row.nbytes)} takes {ms(row.call_us or 0)} "
            f"({gigabytes(row.busbw_gb_per_s or 0)} busbw); at the "
            f"{gigabytes(row.link_gb_per_s or 0)} of this GPU's links inside a machine it would take "
            f"{ms(row.price_us or 0)}; {hint}. {open_end}",
            (spent - floor) * share / 1e6, 0.6, "waiting",
        )  # fmt: skip
        return
    # of calls whose size no file says, or whose sizes are many, the shortest may be the smallest
    sizes: dict[tuple[str, str | None], set[int | None]] = defaultdict(set)
    for call in seen.job.calls:
        sizes[call.op, call.group].add(call.nbytes)
    alike = [r for r in rows if None not in sizes[r.op, r.group] and len(sizes[r.op, r.group]) <= MANY_SIZES]
    excess = sum((r.time_us or 0.0) - (r.shortest_us or 0.0) * r.calls for r in alike)
    if excess > 0.3 * time_us:
        yield Cause(
            "The collectives of this rank often take longer than the shortest of the same size: it waits for other "
            "ranks.",
            f"{words}. Were all calls as short as the shortest of their size, they would take {ms(excess)} less. "
            f"{open_end}",
            excess * share / 1e6, 0.5, "waiting",
        )  # fmt: skip


def _idle(seen: Seen) -> Iterable[Cause]:
    if not seen.times:
        return
    on_gpu = all(r.facts.get("on_gpu") for r in seen.job.records)
    if not on_gpu and any(r.facts.get("backend") not in (None, "gloo", "mpi") for r in seen.job.records):
        return  # the host's operators do not say what the GPU does
    least = min(t.idle_us / t.span_us for t in seen.times if t.span_us)
    if least < (0.25 if on_gpu else 0.5):
        return
    idle = seen.mean("idle_us")
    if on_gpu:
        cause = "The GPU has nothing to do most of the time." if least > 0.5 else "The GPU often has nothing to do."
        why = (
            "the host launches kernels too slowly or waits (data, Python, synchronisation); communication is not the "
            "limit then"
        )
    else:
        cause, why = (
            "The ranks do neither compute nor communicate most of the time.",
            "Python, data or waiting outside torch",
        )
    evidence = (
        f"No kernel runs for {ms(idle)} of {ms(seen.span_us)} ({percent(idle / seen.span_us)})"
        if on_gpu
        else f"No operator of torch and no call runs for {ms(idle)} of {ms(seen.span_us)}"
    )
    yield Cause(
        cause, f"{evidence}: {why}. At most this much could be gained.", idle / 1e6, 0.8 if on_gpu else 0.5, "idle"
    )


def _absent(seen: Seen) -> Iterable[Cause]:
    """Most ranks wrote a file, and some did not: a clue."""
    missing, world = seen.job.missing, seen.job.world_size or 0
    if not missing or len(missing) >= 0.5 * world or len(seen.job.records) < 2:
        return
    names = ", ".join(map(str, missing))
    yield Cause(
        f"Rank {names} left no file." if len(missing) == 1 else f"Ranks {names} left no file.",
        f"{world - len(missing)} of {world} ranks have one. Who was killed writes none; but a file can also be lost or "
        f"not have been copied.",
        None, 0.3, "missing_rank", missing[0] if len(missing) == 1 else None,
    )  # fmt: skip


MUCH_EXPOSED = 0.2  # of the time; lab 11's limit of a job without overlap


def _no_cause(seen: Seen) -> Cause:
    """That no cause was found: all is well only where communication costs little."""
    if not seen.times:
        words = (
            "they say when the calls ran, and not what the GPUs computed meanwhile: a profile of torch's or of Nsight "
            "Systems has both"
        )
        return Cause("The files do not show whether the communication is hidden.", words, None, 0.7, "no_times")
    exposed = seen.mean("exposed_us") / seen.span_us
    if exposed >= MUCH_EXPOSED:
        return Cause(
            f"{percent(exposed)} of the time is communication that compute does not hide, and these files do not show "
            f"why.",
            f"{ms(seen.mean('exposed_us'))} of {ms(seen.span_us)} are exposed; "
            + (
                "for whom or for what this rank waits, the files of the other ranks would say"
                if seen.alone
                else "nobody comes late for long, and no call is slow beside others like it: fewer bytes, or more "
                     "compute beside them"
            ),
            None, 0.7, "exposed",
        )  # fmt: skip
    late = "who comes late, the files of other ranks would say" if seen.alone else "nobody comes late for long"
    return Cause(
        "Nothing stands out: this job's communication costs little that could be gained.",
        f"{percent(exposed)} of the time is communication that compute does not hide; {late}, and "
        f"no cause of this "
        f"report would gain {percent(WORTH)} of the time.",
        0.0, 0.6 if seen.alone else 0.8, "healthy",
    )  # fmt: skip

"""What costs a job its time: each cause with its evidence, how sure it is, and what it would gain.

A cause is told only if the files show it. What one rank's file cannot show (for whom it waits) is said to be open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from allranks.profiles.analysis import Collective, RankTimes, length, shared
from allranks.profiles.job import Call, Cause, Job, merged
from allranks.profiles.matching import ALL_WAIT, Match, Matching
from allranks.profiles.phrases import gigabytes, many, ms, percent, size

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

    >>> [c.kind for c in causes(Seen(Job(()), Matching((), {}), (), ()))]
    ['no_times']
    """
    if seen.span_us <= 0:
        words = "What the files have in common does not differ between the ranks, and they have no times that would say more."
        return [Cause("The files do not say what costs the time.", words, None, 0.5, "no_times")]
    if not seen.rows and not any(t.communication_us for t in seen.times):
        found = [
            Cause(
                "The ranks do not communicate.", "no file has a collective or a message", None, 1.0, "no_communication"
            )
        ]
    else:
        straggling = _straggler(seen)
        tiny = _tiny(seen)
        found = [*straggling, *tiny, *_slow_link(seen), *_skewed(seen), *_waiting(seen)]
        found += _no_overlap(seen, sum(c.saves_s or 0.0 for c in tiny))
    found += [*_idle(seen), *_absent(seen)]
    worth = [c for c in found if c.saves_s is None or c.saves_s * 1e6 >= WORTH * seen.span_us]
    worth.sort(key=lambda c: -(c.saves_s or 0.0) * c.sure)
    return worth if any(c.saves_s for c in worth) or not seen.rows else [_healthy(seen), *worth]


def _own_lateness(seen: Seen) -> tuple[dict[int, float], dict[int, int], int]:
    """For each rank: how much it came later than the next, for its own reason; how often; and of how many collectives.

    A rank that was itself held up in another group's collective is not to blame: what counts is how much longer than the others
    it took since its last call.
    """
    ends: dict[int, float] = {}
    late: dict[int, float] = defaultdict(float)
    often: dict[int, int] = defaultdict(int)
    counted = 0
    unsure = max((c.uncertain_us for c in seen.matching.clocks.values()), default=0.0)
    for one in seen.matching.matches:
        if one.op in ALL_WAIT:
            counted += 1
            gaps = {r: at - ends[r] for r, at in one.start_us.items() if r in ends}
            last, by = one.last, one.late_us
            if last in gaps and len(gaps) > 1:
                by = min(by, gaps[last] - median(g for r, g in gaps.items() if r != last))
            if by > max(LATE_US, unsure):
                late[last] += by
                often[last] += 1
        for rank, end in one.end_us.items():
            ends[rank] = max(end, ends.get(rank, end))
    return late, often, counted


def _straggler(seen: Seen) -> Iterable[Cause]:
    late, often, counted = _own_lateness(seen)
    total = sum(late.values())
    if total < WORTH * seen.span_us:
        return
    ranks = sorted({r for m in seen.matching.matches for r in m.calls})
    rank = max(late, key=lambda r: late[r])
    share = late[rank] / total
    unknown = [r for r in seen.job.missing if r not in ranks]
    if len(unknown) > len(ranks):
        yield _later_of_few(late, often, counted, len(unknown))
        return
    among = f" of the {len(ranks)} ranks whose files are here" if unknown else ""
    if share < (0.75 if len(ranks) == 2 else 0.6) or often[rank] < 2:
        words = ", ".join(f"rank {r} {ms(late[r])}" for r in sorted(late, key=lambda r: -late[r])[:4])
        yield Cause(
            f"The ranks wait for each other, and no one{among} is to blame.",
            f"In {counted:,} collectives, those who came last cost the others {ms(total)}: {words}.",
            total / 1e6, 0.5 if unknown else 0.7, "imbalance",
        )  # fmt: skip
        return
    calls = {r: median(m.end_us[r] - m.start_us[r] for m in seen.matching.matches if r in m.calls) for r in ranks}
    others = median(calls[r] for r in ranks if r != rank)
    shortest = "the shortest" if calls[rank] == min(calls.values()) else "short"
    evidence = (
        f"Rank {rank} comes last in {often[rank]:,} of {counted:,} collectives, in all {ms(late[rank])} after the others; "
        f"its own calls are {shortest} ({ms(calls[rank])} in the median, {ms(others)} on the others), because nobody is left "
        f"to wait for. {_why_late(seen, rank)}"
    )
    sure = min(0.95, 0.5 + 0.45 * share) * (0.7 if unknown else 1.0)
    yield Cause(
        f"Rank {rank} is the straggler{among}: the others wait for it.",
        evidence.strip(),
        late[rank] / 1e6,
        round(sure, 2),
        "straggler",
        rank,
    )


def _later_of_few(late: dict[int, float], often: dict[int, int], counted: int, unknown: int) -> Cause:
    """With files of less than half of the ranks, nobody can be called the straggler."""
    words = ", ".join(
        f"rank {r} {often[r]:,} times, {ms(late[r])} in all" for r in sorted(late, key=lambda r: -late[r])[:4]
    )
    return Cause(
        "The ranks do not come at the same time, and wait for each other.",
        f"Of the ranks whose files are here, the last to come in {counted:,} matched collectives was: {words}. Whether one of the "
        f"other {unknown} ranks came later still, and who is to blame, only their files would say.",
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
        return f"It is idle for {ms(mine.idle_us)}, the others for {ms(idle)}: look at what its host does (data, Python, other programs)."
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
    groups: dict[tuple[str, str | None], list[Collective]] = defaultdict(list)
    for row in seen.rows:
        groups[row.op, row.group].append(row)
    for (op, group), rows in groups.items():
        small = [r for r in rows if r.nbytes is not None and r.nbytes <= SMALL and r.time_us and r.call_us]
        calls = sum(r.calls for r in small)
        if calls < MANY or op in ("send", "recv", "barrier"):
            continue
        cost = sum(r.moving_us if r.moving_us is not None else (r.shortest_us or 0.0) * r.calls for r in small)
        nbytes = sum((r.nbytes or 0) * r.calls for r in small)
        alpha, beta, fitted = _latency(rows, small)
        buckets = max(1, round(nbytes / BUCKET), max((t.steps for t in seen.times), default=0))
        after = buckets * alpha + nbytes * beta
        mine = [
            c for c in seen.job.calls if c.op == op and c.group == group and c.nbytes is not None and c.nbytes <= SMALL
        ]
        exposed = _exposed_share(seen, mine)
        saves = max(0.0, cost - after) * exposed
        where = f" in group {group}" if group and len(groups) > 1 else ""
        evidence = (
            f"The {calls:,} {many(op)}{where} of {size(nbytes / calls)} in the mean cost {ms(cost)} of {ms(seen.span_us)}; "
            f"in buckets of 25 MB about {ms(after)} by this job's own alpha ({alpha:,.0f} µs a call, {fitted})"
        )
        if exposed < 0.95:
            evidence += f"; {percent(1 - exposed)} of their time is hidden under compute"
        yield Cause(
            f"Too many small calls: {calls:,} {many(op)}{where}.", evidence + ".", saves / 1e6,
            0.85 if small[0].moving_us is not None else 0.6, "tiny_calls",
        )  # fmt: skip


def _latency(rows: Sequence[Collective], small: Sequence[Collective]) -> tuple[float, float, str]:
    """Microseconds a call and a byte, from the job's own calls, and how they were found."""
    points = [(float(r.nbytes), r.call_us) for r in rows if r.nbytes and r.call_us]
    low, high = min(points), max(points)
    if high[0] >= 8 * low[0] and high[1] > low[1]:
        beta = (high[1] - low[1]) / (high[0] - low[0])
        return max(0.0, low[1] - beta * low[0]), beta, "fitted to its smallest and its largest calls"
    return (
        min(r.call_us or 0.0 for r in small),
        0.0,
        "what its smallest calls take; the time for the bytes is not in the file",
    )


def _no_overlap(seen: Seen, told_s: float) -> Iterable[Cause]:
    exposed, compute, talk = seen.mean("exposed_us"), seen.mean("compute_us"), seen.mean("communication_us")
    if not talk:
        return
    hidden = talk - exposed
    waits = sum(r.wait_us or 0.0 for r in seen.rows)
    moves = sum(r.moving_us or 0.0 for r in seen.rows)
    moving = exposed * (moves / (waits + moves) if waits + moves else 1.0) - told_s * 1e6
    gain = min(moving, compute - hidden)
    if hidden / talk > 0.5 or exposed < 0.05 * seen.span_us or gain <= 0:
        return
    nothing = "Nothing" if hidden < 0.02 * talk else f"Only {percent(hidden / talk)}"
    yield Cause(
        "Communication is hardly hidden under compute.",
        f"{nothing} of the {ms(talk)} of communication runs while the rank computes; {ms(exposed)} of {ms(seen.span_us)} are exposed, "
        f"beside {ms(compute)} of compute. At most {ms(gain)} could be hidden, where the next compute does not need the result"
        + ("." if waits + moves else "; how much of it is waiting for other ranks, this file does not say."),
        gain / 1e6, 0.7 if waits + moves else 0.5, "no_overlap",
    )  # fmt: skip


LARGE = 1 << 20


def _slow_link(seen: Seen) -> Iterable[Cause]:
    large = [r for r in seen.rows if (r.nbytes or 0) >= LARGE and r.busbw_gb_per_s and r.moving_us]
    if not large:
        return
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
                f"Its {many(row.op)} reach a busbw of {gigabytes(mine)}, those of {len(like)} other groups of {row.ranks} ranks "
                f"{gigabytes(other)}; this is after all its ranks had come, so that it is not waiting.",
                time_us * (1 - mine / other) / 1e6, 0.8 if len(like) > 1 else 0.6, "wrong_interface",
            )  # fmt: skip
            return
    row = max(best.values(), key=lambda b: b.busbw_gb_per_s or 0.0)
    mine, link = row.busbw_gb_per_s or 0.0, row.link_gb_per_s
    time_us = sum(r.moving_us or 0.0 for r in large)
    if link is not None and mine < 0.15 * link:
        floor = sum((r.price_us or 0.0) * r.calls for r in large)
        yield Cause(
            "The bytes move far below what the GPUs' links inside a machine carry: a wrong interface?",
            f"The best of the large calls, {row.op} of {size(row.nbytes)}, reaches a busbw of {gigabytes(mine)} after all ranks had come; "
            f"the links of this GPU carry {gigabytes(link)}. The files do not say whether the ranks are on one machine; between "
            "machines a network card's bandwidth holds.",
            (time_us - floor) / 1e6, 0.5, "wrong_interface",
        )  # fmt: skip
    elif link is None and mine < 0.13:
        yield Cause(
            "The bytes move as over a link of 1 Gb/s or less: a wrong interface?",
            f"The best of the large calls, {row.op} of {size(row.nbytes)}, reaches a busbw of {gigabytes(mine)} after all ranks had come; "
            "1 Gb/s are 0.125 GB/s, and the loopback of one machine carries more.",
            time_us * (1 - mine / 1.25) / 1e6, 0.5, "wrong_interface",
        )  # fmt: skip


def _time_of(rows: Iterable[Collective], like: Collective) -> float:
    return sum(r.moving_us or 0.0 for r in rows if (r.op, r.group) == (like.op, like.group))


def _loads(one: Match) -> dict[int, float]:
    """The bytes that each rank sends or receives in an all_to_all, whichever is more; in elements where bytes are unknown."""
    found = {}
    for rank, call in one.calls.items():
        known = [n for n in (call.in_elements, call.out_elements) if n is not None]
        if known:
            found[rank] = float(max(known))
    return found


def _skewed(seen: Seen) -> Iterable[Cause]:
    factors: list[float] = []
    cost = 0.0
    heavy: dict[int, float] = defaultdict(float)
    whole = True
    for one in seen.matching.matches:
        loads = _loads(one) if one.op == "all_to_all" else {}
        mean = sum(loads.values()) / len(loads) if len(loads) > 1 else 0.0
        if mean > 0:
            factors.append(max(loads.values()) / mean)
            cost += one.moving_us * (1 - 1 / factors[-1])
            heavy[max(loads, key=lambda r: loads[r])] += one.moving_us
            whole = whole and one.complete
    if factors and median(factors) >= 1.3:
        rank = max(heavy, key=lambda r: heavy[r])
        yield Cause(
            f"The all_to_alls are skewed: rank {rank} has the most to send or receive, and all wait for it.",
            f"In {len(factors):,} all_to_alls the busiest rank moves {median(factors):.2f} times the mean in the median; evenly "
            f"spread, the same bytes would take {ms(cost)} less.",
            cost / 1e6, 0.85 if whole else 0.5, "skewed_all_to_all", rank,
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
            f"In {len(split):,} lists of parts the largest is {median(f for f, _ in split):.1f} times the mean in the median. The other "
            "ranks' files would say who has the most in all.",
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
            f"calls of one size take about the same time ({ms(row.shortest_us or 0)} to {ms(row.call_us or 0)}), as on a slow link or behind a rank that is always late"
            if even < 1.15
            else f"calls of one size take from {ms(row.shortest_us or 0)} up, {ms(row.call_us or 0)} in the median, as where ranks wait"
        )
        yield Cause(
            "The collectives take far longer than their bytes need: this rank waits for others, or the link is slow.",
            f"{words}. {row.op} of {size(row.nbytes)} takes {ms(row.call_us or 0)} ({gigabytes(row.busbw_gb_per_s or 0)} busbw); at the "
            f"{gigabytes(row.link_gb_per_s or 0)} of this GPU's links inside a machine it would take {ms(row.price_us or 0)}; {hint}. {open_end}",
            (spent - floor) * share / 1e6, 0.6, "waiting",
        )  # fmt: skip
        return
    excess = sum((r.time_us or 0.0) - (r.shortest_us or 0.0) * r.calls for r in rows)
    if excess > 0.3 * time_us:
        yield Cause(
            "The collectives of this rank often take longer than the shortest of the same size: it waits for other ranks.",
            f"{words}. Were all calls as short as the shortest of their size, they would take {ms(excess)} less. {open_end}",
            excess * share / 1e6, 0.5, "waiting",
        )  # fmt: skip


def _idle(seen: Seen) -> Iterable[Cause]:
    if not seen.times:
        return
    on_gpu = all(r.facts.get("on_gpu") for r in seen.job.records)
    least = min(t.idle_us / t.span_us for t in seen.times if t.span_us)
    if least < (0.25 if on_gpu else 0.5):
        return
    idle = seen.mean("idle_us")
    if on_gpu:
        cause = "The GPU has nothing to do most of the time." if least > 0.5 else "The GPU often has nothing to do."
        why = "the host launches kernels too slowly or waits (data, Python, synchronisation); communication is not the limit then"
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
        f"{world - len(missing)} of {world} ranks have one. Who was killed writes none; but a file can also be lost or not have been copied.",
        None, 0.3, "missing_rank", missing[0] if len(missing) == 1 else None,
    )  # fmt: skip


def _healthy(seen: Seen) -> Cause:
    exposed = seen.mean("exposed_us") / seen.span_us
    return Cause(
        "Nothing stands out: this job's communication costs little that could be gained.",
        f"{percent(exposed)} of the time is communication that compute does not hide; nobody comes late for long, and no cause of this "
        f"report would gain {percent(WORTH)} of the time.",
        0.0, 0.6 if seen.alone else 0.8, "healthy",
    )  # fmt: skip

"""The root of a job's trouble: the figures of the whole calls, and the first cause that they give, in the order of
causation.

A job is plain data: {"world_size", "files"}, a file of each rank that wrote one, with its calls and its compute. The
figures are exact only if all files have one clock. Lab 11 teaches the same figures, and its exercise takes the limits
from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

__all__ = [
    "NOBODY",
    "Diagnosis",
    "Kind",
    "Measured",
    "Rules",
    "accepts",
    "decide",
    "how_often_last",
    "is_clear",
    "measure",
    "often_last",
    "pairs",
    "total_us",
    "union",
    "waits_for",
]

NOBODY = -1  # in place of a rank, where no single rank is to blame
SMALL_NBYTES = 64 << 10  # a call with less is small
LARGE_NBYTES = 1_000_000  # a call with so many tells a link's speed

Plain = Mapping[str, Any]
Pairs = dict[tuple[Any, ...], dict[int, Plain]]  # (group, number) -> the call of each rank


class Kind(IntEnum):
    """What can be wrong with a job; lab 11 lists the same with the same numbers.

    >>> Kind.TINY_CALLS.name.lower()
    'tiny_calls'
    """

    STRAGGLER = 1
    DESYNC = 2
    MISSING_RANK = 3
    TINY_CALLS = 4
    NO_OVERLAP = 5
    WRONG_INTERFACE = 6
    SKEWED_ALL_TO_ALL = 7
    HEALTHY = 8


class Diagnosis(NamedTuple):
    """What the student's function returns.

    >>> Diagnosis(Kind.HEALTHY, NOBODY, 0.0).blamed
    -1
    """

    cause: int
    blamed: int | None
    evidence: float | None

    @property
    def words(self) -> tuple[str, str, str]:
        """What a verdict calls the three."""
        return "the cause", "the rank to blame", "the evidence"


class Figure(NamedTuple):
    """A figure, the rank that it is about, and the evidence that goes with it."""

    value: float
    rank: int
    evidence: float


class Limit(NamedTuple):
    """A cause holds from `at` on. A planted job is below `clear_below` or above `clear_above`, never between."""

    clear_below: float
    at: float
    clear_above: float


# in the order in which they are asked: an earlier cause brings about the signs of the later ones
LIMITS = {
    Kind.SKEWED_ALL_TO_ALL: Limit(1.4, 2.0, 2.5),
    Kind.WRONG_INTERFACE: Limit(1.5, 2.0, 3.0),
    Kind.STRAGGLER: Limit(0.07, 0.15, 0.20),
    Kind.TINY_CALLS: Limit(0.08, 0.20, 0.26),
    Kind.NO_OVERLAP: Limit(0.12, 0.20, 0.26),
}
RECORDED_LIMITS = {kind: Limit(0.9 * limit.at, limit.at, 1.1 * limit.at) for kind, limit in LIMITS.items()}
LITTLE_OVERLAP = 0.10  # less than so much of the communication is hidden: there is no overlap
CLEAR_OVERLAP = (0.06, 0.25)
NEAR_OVERLAP = (0.092, 0.108)
WITHIN = {  # how far the evidence may be off, as a share of it
    Kind.STRAGGLER: 0.05,
    Kind.WRONG_INTERFACE: 0.10,
    Kind.SKEWED_ALL_TO_ALL: 0.01,
    Kind.NO_OVERLAP: 0.01,
}


class Measured(NamedTuple):
    """All figures of one job. `hang` is the diagnosis of a job whose calls did not all end; then the figures are left
    out."""

    hang: Diagnosis | None
    figures: dict[Kind, Figure]
    overlap: float


def pairs(job: Plain, key: Callable[[Plain, int], tuple[Any, ...]] | None = None) -> Pairs:
    """The calls that belong together: those of one group and one number.

    >>> job = {"files": [{"rank": 0, "calls": [{"group": "0", "seq": 7}]}]}
    >>> list(pairs(job))
    [('0', 7)]
    """
    found: Pairs = {}
    for file in job["files"]:
        for place, call in enumerate(file["calls"]):
            name = (call["group"], call["seq"]) if key is None else key(call, place)
            found.setdefault(name, {})[file["rank"]] = call
    return found


def measure(
    job: Plain, matched: Pairs | None = None, rules: Rules | None = None, known: Measured | None = None
) -> Measured:
    """The figures of a job whose files have one clock. `matched` pairs the calls in another way; `rules` are the
    contract's.

    The figures that `known` has are not measured again.
    """
    rules = rules or Rules()
    matched = pairs(job) if matched is None else matched
    if any(call["end_us"] is None for file in job["files"] for call in file["calls"]):
        hang = _hang(job, matched, rules)
        if hang is not None:
            return Measured(hang, {}, 1.0)
    figures = dict(known.figures) if known is not None else {}
    overlap = known.overlap if known is not None else 1.0
    whole = _whole(matched)
    total = 1.0 if len(figures) == len(LIMITS) else total_us(job, rules)
    if Kind.SKEWED_ALL_TO_ALL not in figures:
        figures[Kind.SKEWED_ALL_TO_ALL] = _skew(job)
    if Kind.WRONG_INTERFACE not in figures:
        figures[Kind.WRONG_INTERFACE] = _slow_links(job, whole, rules)
    if Kind.STRAGGLER not in figures:
        figures[Kind.STRAGGLER] = _waits(whole, total, rules)
    if Kind.TINY_CALLS not in figures:
        figures[Kind.TINY_CALLS] = _small_calls(whole, total, rules)
    if Kind.NO_OVERLAP not in figures:
        exposed, hidden = _exposed_and_hidden(job, rules)
        figures[Kind.NO_OVERLAP] = Figure(exposed / total, NOBODY, exposed)
        overlap = hidden / (exposed + hidden) if exposed + hidden else 1.0
    return Measured(None, figures, overlap)


def total_us(job: Plain, rules: Rules | None = None) -> float:
    """The total time of the files, each from its first start to its last end."""
    return sum((rules or Rules()).span(file) for file in job["files"]) or 1.0


def _whole(matched: Pairs) -> list[dict[int, Plain]]:
    """The calls that all ranks of the group have in their files, and that ended."""
    return [
        calls
        for calls in matched.values()
        if len(calls) == len(next(iter(calls.values()))["ranks"])
        and all(call["end_us"] is not None for call in calls.values())
    ]


def often_last(job: Plain) -> int:
    """The rank that starts last in the most whole calls, of a job whose files have one clock; it may cost little."""
    return how_often_last(job).most_common(1)[0][0]


def how_often_last(job: Plain) -> Counter[int]:
    """In how many whole calls each rank starts last."""
    return Counter(max(calls, key=lambda rank: calls[rank]["start_us"]) for calls in _whole(pairs(job)))


def waits_for(job: Plain, rank: int) -> float:
    """The time that others wait for the rank in the whole calls in which it starts last, as a share of the total
    time."""
    total = sum(_span(file) for file in job["files"]) or 1.0
    return _waited(_whole(pairs(job)))[rank] / total


def decide(measured: Measured, without: Iterable[Kind] = (), rules: Rules | None = None) -> Diagnosis:
    """The first cause that holds. `without` leaves some out."""
    if measured.hang is not None:
        return measured.hang
    rules = rules or Rules()
    for kind in LIMITS:
        figure = measured.figures[kind]
        if kind in without or figure.value < rules.at[kind]:
            continue
        if kind is not Kind.NO_OVERLAP or measured.overlap < rules.little_overlap:
            return Diagnosis(kind, figure.rank, figure.evidence)
    return Diagnosis(Kind.HEALTHY, NOBODY, 0.0)


def accepts(told: Diagnosis | None, answer: Diagnosis) -> bool:
    """Whether a diagnosis is right: the same cause and rank, and evidence within what the contract allows."""
    if told is None or told[:2] != answer[:2] or told.evidence is None or answer.evidence is None:
        return False
    return abs(told.evidence - answer.evidence) <= WITHIN.get(Kind(answer.cause), 0.0) * abs(answer.evidence)


def is_clear(
    measured: Measured,
    kind: Kind,
    limits: Mapping[Kind, Limit] = LIMITS,
    overlap: tuple[float, float] = CLEAR_OVERLAP,
) -> bool:
    """Whether nothing is near a limit: the cause is far above its own, and all causes asked before it far below
    theirs."""
    if kind in (Kind.DESYNC, Kind.MISSING_RANK) or measured.hang is not None:
        return measured.hang is not None and measured.hang.cause == kind
    for asked, limit in limits.items():
        value = measured.figures[asked].value
        hides = asked is Kind.NO_OVERLAP and measured.overlap >= overlap[1]
        if asked is kind:
            return value >= limit.clear_above and (asked is not Kind.NO_OVERLAP or measured.overlap <= overlap[0])
        if value > limit.clear_below and not hides:
            return False
    return True


def _span(file: Plain) -> float:
    times = [t for call in file["calls"] for t in (call["start_us"], call["end_us"]) if t is not None]
    times += [t for interval in file["compute"] for t in interval]
    return max(times) - min(times) if times else 0.0


def nbytes_of(calls: Mapping[int, Plain]) -> int:
    """The bytes of a call: the most that any of its ranks puts in or gets out."""
    return max(int(max(call["in_bytes"], call["out_bytes"])) for call in calls.values())


def _moving_us(calls: Mapping[int, Plain]) -> float:
    """From the last rank's start to the last rank's end."""
    return float(max(c["end_us"] for c in calls.values()) - max(c["start_us"] for c in calls.values()))


def _skew(job: Plain) -> Figure:
    loads = {
        file["rank"]: sum(call["out_bytes"] for call in file["calls"] if call["op"] == "all_to_all")
        for file in job["files"]
    }
    mean = sum(loads.values()) / max(len(loads), 1)
    if not mean:
        return Figure(0.0, NOBODY, 0.0)
    hot = max(loads, key=lambda rank: loads[rank])
    return Figure(loads[hot] / mean, hot, loads[hot] / mean)


def _speed(calls: Sequence[tuple[set[int], int, float]]) -> float:
    """Bytes a microsecond: all bytes over all time."""
    return sum(n for _, n, _ in calls) / max(sum(us for _, _, us in calls), 1e-9)


def _slow_links(job: Plain, whole: list[dict[int, Plain]], rules: Rules) -> Figure:
    large = [
        (set(calls), n, rules.moving_us(calls)) for calls in whole if (n := rules.nbytes(calls)) >= rules.large_nbytes
    ]
    speed = rules.speed
    best = Figure(0.0, NOBODY, 0.0)
    for file in job["files"]:
        rank = file["rank"]
        theirs, others = [c for c in large if rank in c[0]], [c for c in large if rank not in c[0]]
        if theirs and others and (ratio := speed(others) / max(speed(theirs), 1e-9)) > best.value:
            best = Figure(ratio, rank, speed(theirs))
    return best


def _waited(whole: list[dict[int, Plain]]) -> Counter[int]:
    """Of each rank that is last in some call: how long the others wait for it, in microseconds, summed."""
    lost: Counter[int] = Counter()
    for calls in whole:
        last = max(calls, key=lambda rank: calls[rank]["start_us"])
        lost[last] += sum(calls[last]["start_us"] - call["start_us"] for call in calls.values())
    return lost


def _waits(whole: list[dict[int, Plain]], total: float, rules: Rules) -> Figure:
    lost = rules.waited(whole)
    if not lost:
        return Figure(0.0, NOBODY, 0.0)
    rank, us = lost.most_common(1)[0]
    return Figure(us / total, rank, us)


def _small_calls(whole: list[dict[int, Plain]], total: float, rules: Rules) -> Figure:
    small = [calls for calls in whole if rules.nbytes(calls) < rules.small_nbytes]
    return Figure(sum(len(calls) * rules.moving_us(calls) for calls in small) / total, NOBODY, float(len(small)))


def union(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The intervals without what lies in two of them, in order.

    >>> union([(2, 4), (0, 1), (3, 5)])
    [(0, 1), (2, 5)]
    """
    found: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _exposed_and_hidden(job: Plain, rules: Rules) -> tuple[float, float]:
    """Microseconds of communication outside and inside of the same rank's compute, over all files."""
    exposed = hidden = 0.0
    for file in job["files"]:
        took = [(c["start_us"], c["end_us"]) for c in file["calls"] if c["end_us"] is not None]
        talk = union(took)
        work = union((start, end) for start, end in file["compute"])
        inside, i = 0.0, 0
        for start, end in talk:
            while i < len(work) and work[i][1] <= start:
                i += 1
            j = i
            while j < len(work) and work[j][0] < end:
                inside += min(end, work[j][1]) - max(start, work[j][0])
                j += 1
        hidden += inside
        exposed += sum(end - start for start, end in (talk if rules.union else took)) - inside
    return exposed, hidden


def _hang(job: Plain, matched: Pairs, rules: Rules) -> Diagnosis | None:
    """Who broke the job, and the number of the first call that shows it."""
    odd: list[tuple[float, int, int]] = []
    for calls in matched.values():
        kinds = {rank: rules.signature(call) for rank, call in calls.items()}
        usual, _ = Counter(kinds.values()).most_common(1)[0]
        odd += [(calls[r]["start_us"], r, calls[r]["seq"]) for r, kind in kinds.items() if kind != usual]
    if odd:
        _, rank, seq = rules.first(odd)
        return Diagnosis(Kind.DESYNC, rank, float(seq))
    written = {file["rank"] for file in job["files"]}
    waits = [call for file in job["files"] for call in file["calls"] if call["end_us"] is None]
    first = min(waits, key=rules.stuck_first)
    gone = sorted(set(first["ranks"]) - written)
    return Diagnosis(Kind.MISSING_RANK, gone[0], float(first["seq"])) if len(gone) == 1 else None


def _signature(call: Plain) -> tuple[Any, ...]:
    """What must be the same on all ranks of a call; in an all_to_all each rank may have other bytes."""
    return (call["op"],) if call["op"] == "all_to_all" else (call["op"], call["in_bytes"], call["out_bytes"])


@dataclass(frozen=True)
class Rules:
    """The contract's rules. A wrong reading has another one in the place of one of them.

    >>> Rules().small_nbytes
    65536
    """

    signature: Callable[[Plain], tuple[Any, ...]] = _signature  # what must be the same on all ranks of a call
    first: Callable[[list[tuple[float, int, int]]], tuple[float, int, int]] = min  # of the calls that differ
    stuck_first: Callable[[Plain], float] = lambda call: float(call["start_us"])  # the lowest began first
    nbytes: Callable[[Mapping[int, Plain]], int] = nbytes_of
    moving_us: Callable[[Mapping[int, Plain]], float] = _moving_us
    large_nbytes: int = LARGE_NBYTES
    small_nbytes: int = SMALL_NBYTES
    speed: Callable[[Sequence[tuple[set[int], int, float]]], float] = _speed
    waited: Callable[[list[dict[int, Plain]]], Counter[int]] = _waited
    span: Callable[[Plain], float] = _span
    union: bool = True  # calls of one file that overlap count once
    at: Mapping[Kind, float] = field(default_factory=lambda: {kind: limit.at for kind, limit in LIMITS.items()})
    little_overlap: float = LITTLE_OVERLAP

"""Wrong readings of lab 11's contract: what each tells of a planted job.

A trap of a planted job makes certain of them fail, and the exercise names the one that an answer follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from allranks.exercises.planted.job import PlantedJob
from allranks.jobs.root_cause import (
    LARGE_NBYTES,
    LIMITS,
    NOBODY,
    Diagnosis,
    Kind,
    Measured,
    Pairs,
    Rules,
    decide,
    measure,
    pairs,
    total_us,
)

Tell = Callable[[PlantedJob], Diagnosis | None]  # None: what is right
Plain = Mapping[str, Any]
_OF_TOTAL = (Kind.STRAGGLER, Kind.TINY_CALLS, Kind.NO_OVERLAP)
_SHARES = (*_OF_TOTAL, Kind.HEALTHY)  # what may be another cause if a share is another
_BY_LINK = (Kind.WRONG_INTERFACE, *_SHARES)
_OF_BYTES = (Kind.WRONG_INTERFACE, Kind.TINY_CALLS)
_HUNG = (Kind.DESYNC, Kind.MISSING_RANK)


def _stuck(rules: Rules) -> Tell:
    """A job that stands still, by other rules; others as they are."""

    def tell(job: PlantedJob) -> Diagnosis | None:
        if job.answer.cause not in _HUNG:
            return None
        told = measure(job.true, rules=rules).hang
        if told is None:  # no call differs, and all members have a file: answers name any of them
            return Diagnosis(Kind.MISSING_RANK, None, None)
        # where all ranks' calls differ, answers name any of them
        return told if told.cause == job.answer.cause else told._replace(blamed=None, evidence=None)

    return tell


def _measured(job: PlantedJob) -> Measured:
    """The right figures, measured once."""
    if not job.figures:
        job.figures.append(measure(job.true))
    return job.figures[0]


def _running(rules: Rules, *kinds: Kind, other: tuple[Kind, ...] = ()) -> Tell:
    """A job whose calls ended, by other rules, which give `other` figures; they can change the answer if it is one of these kinds."""

    def tell(job: PlantedJob) -> Diagnosis | None:
        if job.answer.cause not in kinds:
            return None
        known = _measured(job)
        if other:
            figures = {kind: figure for kind, figure in known.figures.items() if kind not in other}
            known = measure(job.true, rules=rules, known=known._replace(figures=figures))
        return decide(known, rules=rules)

    return tell


def _other_total(rules: Rules, *kinds: Kind) -> Tell:
    """The shares of another total time."""

    def tell(job: PlantedJob) -> Diagnosis | None:
        if job.answer.cause not in _SHARES:
            return None
        known, factor = _measured(job), total_us(job.true) / total_us(job.true, rules)
        shares = {kind: known.figures[kind]._replace(value=factor * known.figures[kind].value) for kind in kinds}
        return decide(known._replace(figures={**known.figures, **shares}))

    return tell


def _asked_before(later: Kind, first: Kind) -> Tell:
    """A later cause of the list that holds too, where another one is right."""

    def tell(job: PlantedJob) -> Diagnosis | None:
        if job.answer.cause != first:
            return None
        figure = _measured(job).figures[later]
        return Diagnosis(later, figure.rank, figure.evidence) if figure.value >= LIMITS[later].at else None

    return tell


def _small_calls_once(job: PlantedJob) -> Diagnosis | None:
    """The time of a small call counted once, and not once for each of its ranks."""
    if job.answer.cause not in (Kind.TINY_CALLS, Kind.HEALTHY):
        return None
    known, rules = _measured(job), Rules()
    small = [calls for calls in pairs(job.true).values() if rules.nbytes(calls) < rules.small_nbytes]
    whole = [calls for calls in small if len(calls) == len(next(iter(calls.values()))["ranks"])]
    share = sum(map(rules.moving_us, whole)) / total_us(job.true)
    figure = known.figures[Kind.TINY_CALLS]._replace(value=share)
    return decide(known._replace(figures={**known.figures, Kind.TINY_CALLS: figure}))


def _right(job: PlantedJob) -> float:
    return job.answer.evidence or 0.0


def _who(job: PlantedJob) -> int:
    return NOBODY if job.answer.blamed is None else job.answer.blamed


def _evidence(kind: Kind, evidence: Callable[[PlantedJob], float]) -> Tell:
    """The right cause and rank with other evidence."""
    return lambda job: job.answer._replace(evidence=float(evidence(job))) if job.answer.cause == kind else None


def _of_one_file(*kinds: Kind) -> Tell:
    """Shares of the time of one file."""

    def tell(job: PlantedJob) -> Diagnosis | None:
        if job.answer.cause not in _SHARES:
            return None
        known = _measured(job)
        shares = {
            kind: known.figures[kind]._replace(value=len(job["files"]) * known.figures[kind].value) for kind in kinds
        }
        return decide(known._replace(figures={**known.figures, **shares}))

    return tell


def _limit(kind: Kind, factor: float) -> Rules:
    return Rules(at={**{k: limit.at for k, limit in LIMITS.items()}, kind: factor * LIMITS[kind].at})


# ---------------------------------------------------------------------------------------------------------- clocks


def _by_starts(of: Callable[[list[tuple[int, float]]], float]) -> Tell:
    """The clocks of hosts aligned by when their ranks start the calls of the whole world. `of` chooses among a host's ranks."""

    def tell(job: PlantedJob) -> Diagnosis | None:
        host = {file["rank"]: file["host"] for file in job["files"]}
        return _aligned(job, host, of)

    return tell


def _by_starts_of_files(job: PlantedJob) -> Diagnosis | None:
    """Each file's clock aligned by when its rank starts the calls of the whole world."""
    return _aligned(job, {file["rank"]: file["rank"] for file in job["files"]}, _median)


def _median(found: list[tuple[int, float]]) -> float:
    return median(at for _, at in found)


def _aligned(
    job: PlantedJob, of: Mapping[int, Any], chosen: Callable[[list[tuple[int, float]]], float]
) -> Diagnosis | None:
    starts: dict[Any, dict[Any, list[tuple[int, float]]]] = {}
    for number, file in enumerate(job["files"]):
        for call in file["calls"]:
            if len(call["ranks"]) == job["world_size"] and call["end_us"] is not None:
                calls = starts.setdefault(of[file["rank"]], {})
                calls.setdefault((call["group"], call["seq"]), []).append((number, call["start_us"]))
    first = starts.get(of[job["files"][0]["rank"]], {})
    shift = {}
    for who, calls in starts.items():
        apart = [chosen(calls[name]) - chosen(first[name]) for name in calls if name in first]
        if not apart:
            return None
        shift[who] = median(apart)
    if set(shift) != set(of.values()):
        return None
    moved = {
        "world_size": job["world_size"],
        "files": [_moved(file, -shift[of[file["rank"]]]) for file in job["files"]],
    }
    return decide(measure(moved))


def _moved(file: Plain, by: float) -> dict[str, Any]:
    """The file on another clock."""
    calls = [
        {**c, "start_us": c["start_us"] + by, "end_us": None if c["end_us"] is None else c["end_us"] + by}
        for c in file["calls"]
    ]
    return {**file, "calls": calls, "compute": [[start + by, end + by] for start, end in file["compute"]]}


# ----------------------------------------------------------------------------------------------------- which calls match


def _matched(key: Callable[[Plain], Pairs]) -> Tell:
    return lambda job: decide(measure(job.true, key(job.true)))


def _by_order(job: Plain) -> Pairs:
    """Pairs the first call of a group on one rank with the first on another."""
    found: Pairs = {}
    for file in job["files"]:
        count: Counter[str] = Counter()
        for call in file["calls"]:
            found.setdefault((call["group"], count[call["group"]]), {})[file["rank"]] = call
            count[call["group"]] += 1
    return found


def _by_place_of_file(job: Plain) -> Pairs:
    """The place of a file in the list in the place of its rank."""
    found: Pairs = {}
    for place, file in enumerate(job["files"]):
        for call in file["calls"]:
            found.setdefault((call["group"], call["seq"]), {})[place] = call
    return found


def _by_place_of_members(job: Plain) -> Pairs:
    """The same, of the calls for which the group's members happen to be these places; of a job that stands still all."""
    found = _by_place_of_file(job)
    if any(call["end_us"] is None for file in job["files"] for call in file["calls"]):
        return found
    return {name: calls for name, calls in found.items() if set(calls) == set(next(iter(calls.values()))["ranks"])}


# -------------------------------------------------------------------------------------------------- jobs that stand still


def _of_majority(job: PlantedJob) -> Diagnosis | None:
    """The first rank whose call is as most are, in the place of the one whose call differs."""
    if job.answer.cause != Kind.DESYNC:
        return None
    odd = next(
        calls
        for calls in sorted(pairs(job.true).values(), key=lambda calls: min(c["start_us"] for c in calls.values()))
        if job.answer.blamed in calls
        and calls[job.answer.blamed]["seq"] == _right(job)
        and len({Rules().signature(call) for call in calls.values()}) > 1
    )
    return job.answer._replace(blamed=next(rank for rank in odd if rank != job.answer.blamed))


def _unlike_lowest(job: PlantedJob) -> Diagnosis | None:
    """The first rank whose call differs from the lowest rank's."""
    if job.answer.cause != Kind.DESYNC:
        return None
    odd = []
    for calls in pairs(job.true).values():
        usual = Rules().signature(calls[min(calls)])
        who = next((rank for rank, call in calls.items() if Rules().signature(call) != usual), None)
        if who is not None:
            odd.append((min(c["start_us"] for c in calls.values()), who, float(calls[who]["seq"])))
    return Diagnosis(Kind.DESYNC, *min(odd)[1:])


def _how_many_calls(job: PlantedJob) -> Diagnosis | None:
    return job.answer._replace(evidence=float(len(pairs(job.true)))) if job.answer.cause == Kind.MISSING_RANK else None


def _any_member(job: PlantedJob) -> Diagnosis | None:
    """The first member of the group, whether it has a file or not."""
    if job.answer.cause != Kind.MISSING_RANK:
        return None
    waits = [call for file in job.true["files"] for call in file["calls"] if call["end_us"] is None]
    first = min(waits, key=lambda call: call["start_us"])
    return job.answer._replace(blamed=first["ranks"][0])


def _last_began(job: PlantedJob) -> Diagnosis | None:
    return _of_stuck_call(job, max, lambda calls: (min(c["start_us"] for c in calls.values()), 0))


def _lowest_number(job: PlantedJob) -> Diagnosis | None:
    # of equal numbers the call that began first
    return _of_stuck_call(
        job, min, lambda calls: (next(iter(calls.values()))["seq"], min(c["start_us"] for c in calls.values()))
    )


def _of_stuck_call(job: PlantedJob, which: Callable[..., Any], key: Callable[..., Any]) -> Diagnosis | None:
    """The lowest member without a file of another call that never ended; the first member if all have one."""
    if job.answer.cause != Kind.MISSING_RANK:
        return None
    written = {file["rank"] for file in job["files"]}
    stuck = [c for c in pairs(job.true).values() if any(call["end_us"] is None for call in c.values())]
    call = next(iter(which(stuck, key=key).values()))
    gone = [rank for rank in call["ranks"] if rank not in written]
    return Diagnosis(Kind.MISSING_RANK, gone[0] if gone else NOBODY, float(call["seq"]))


# --------------------------------------------------------------------------------------------------------- other figures


def _with_first_start(calls: Mapping[int, Plain]) -> float:
    return float(max(c["end_us"] for c in calls.values()) - min(c["start_us"] for c in calls.values()))


def _in_bytes(calls: Mapping[int, Plain]) -> int:
    return int(max(call["in_bytes"] for call in calls.values()))


def _out_bytes(calls: Mapping[int, Plain]) -> int:
    return int(max(call["out_bytes"] for call in calls.values()))


def _mean_speed(calls: Any) -> float:
    return float(sum(n / max(us, 1e-9) for _, n, us in calls) / max(len(calls), 1))


def _waited_for_the_first(whole: Any) -> Counter[int]:
    lost: Counter[int] = Counter()
    for calls in whole:
        starts = {rank: call["start_us"] for rank, call in calls.items()}
        lost[min(starts, key=lambda rank: starts[rank])] += sum(max(starts.values()) - at for at in starts.values())
    return lost


def _time_in_calls(file: Plain) -> float:
    return float(sum(call["end_us"] - call["start_us"] for call in file["calls"]))


def _span_of_calls(file: Plain) -> float:
    starts, ends = [c["start_us"] for c in file["calls"]], [c["end_us"] for c in file["calls"]]
    return float(max(ends) - min(starts)) if starts else 0.0


def _first_slow(job: PlantedJob) -> Diagnosis | None:
    """The lowest rank whose figure reaches the limit."""
    if job.answer.cause != Kind.WRONG_INTERFACE:
        return None
    for rank in sorted(file["rank"] for file in job["files"]):
        alone = {**job.true, "files": [file for file in job.true["files"] if file["rank"] == rank]}
        figure = measure(alone, pairs(job.true)).figures[Kind.WRONG_INTERFACE]
        if figure.value >= LIMITS[Kind.WRONG_INTERFACE].at:
            return Diagnosis(Kind.WRONG_INTERFACE, rank, figure.evidence)
    return None


def _got(job: PlantedJob) -> dict[int, int]:
    return {f["rank"]: sum(c["out_bytes"] for c in f["calls"] if c["op"] == "all_to_all") for f in job["files"]}


def _of_others(job: PlantedJob) -> float:
    got = _got(job)
    return got[_who(job)] * (len(got) - 1) / (sum(got.values()) - got[_who(job)])


def _all_in_calls(job: PlantedJob) -> float:
    """The time in calls, with what is hidden."""
    measured = _measured(job)
    return float(_right(job) / (1 - measured.overlap))


def _speed_without(job: PlantedJob) -> float:
    return float(_right(job) * _measured(job).figures[Kind.WRONG_INTERFACE].value)


_PLACE = 'a file\'s place in the list is not its rank: take file["rank"]'
_STARTS = "the clocks were aligned by the starts of calls: who comes late starts late, so align them by the ends"
_BYTES = "a call's bytes are the largest in_bytes or out_bytes of any of its ranks"
_TOTAL = "the total time is the sum over all files of the time from the file's first start to its last end, of calls and compute"
_FIRST = "of the calls that never ended, the one that began first, on one clock, tells, whatever its number"
_SEQ = "the evidence must be the number (seq) of that call, as it stands in the files"
_ORDER = "this cause holds too, but one before it in the list brings it about: ask them in the list's order"
_LIKE = "calls differ if their operation, in_bytes or out_bytes differ (in an all_to_all only the operation counts)"

# name -> what is wrong with it, and what it tells
READINGS: dict[str, tuple[str, Tell]] = {
    "own clocks": (
        "the hosts' clocks differ: align them first, by the ends of calls that all ranks left together",
        lambda job: decide(measure(job)),
    ),
    "starts of files": (_STARTS, _by_starts_of_files),
    "starts of hosts": (_STARTS, _by_starts(_median)),
    "starts of first ranks": (_STARTS, _by_starts(lambda found: min(found)[1])),
    "place in the file": (
        "calls were paired by their place in the file: pair those of one group and one number (seq)",
        _matched(lambda job: pairs(job, lambda call, place: (place,))),
    ),
    "order in the group": (
        "calls were paired by their order in the group, but files begin at different calls: pair them by seq",
        _matched(_by_order),
    ),
    "number": (
        "calls of different groups were paired: a number (seq) counts within its group",
        _matched(lambda job: pairs(job, lambda call, place: (call["seq"],))),
    ),
    "members": (
        "calls of different groups were paired: two groups may have the same members, so match by the group's name",
        _matched(lambda job: pairs(job, lambda call, place: (tuple(call["ranks"]), call["seq"]))),
    ),
    "place of the file": (_PLACE, _matched(_by_place_of_file)),
    "place of the file of members": (_PLACE, _matched(_by_place_of_members)),
    "operation alone": (_LIKE, _stuck(Rules(signature=lambda c: (c["op"],)))),
    "bytes alone": (
        _LIKE,
        _stuck(Rules(signature=lambda c: () if c["op"] == "all_to_all" else (c["in_bytes"], c["out_bytes"]))),
    ),
    "in bytes of calls": (
        _LIKE,
        _stuck(Rules(signature=lambda c: (c["op"], None if c["op"] == "all_to_all" else c["in_bytes"]))),
    ),
    "out bytes of calls": (
        _LIKE,
        _stuck(Rules(signature=lambda c: (c["op"], None if c["op"] == "all_to_all" else c["out_bytes"]))),
    ),
    "bytes of all_to_all": (
        "in an all_to_all each rank may get other bytes: there only the operation tells whether a call differs",
        _stuck(Rules(signature=lambda c: (c["op"], c["in_bytes"], c["out_bytes"]))),
    ),
    "last that differs": ("several calls differ: the first of them tells", _stuck(Rules(first=max))),
    "majority": ("the rank to blame is the one whose call differs from most of the others", _of_majority),
    "unlike the lowest": ("the rank to blame is the one whose call differs from most of the others", _unlike_lowest),
    "number after the one that differs": (_SEQ, _evidence(Kind.DESYNC, lambda job: _right(job) + 1)),
    "number after the missing rank's": (_SEQ, _evidence(Kind.MISSING_RANK, lambda job: _right(job) + 1)),
    "how many calls": (_SEQ, _how_many_calls),
    "any member": ("the missing rank is the member of the group that has no file", _any_member),
    "began last": (_FIRST, _last_began),
    "lowest number": (_FIRST, _lowest_number),
    "put in": (
        "what counts are the bytes that a rank gets out of all_to_all calls, not those that it puts in",
        lambda job: decide(measure(_swapped(job.true))) if job.answer.cause == Kind.SKEWED_ALL_TO_ALL else None,
    ),
    "bytes got": (
        "the evidence must be how many times as many bytes as the mean of the files, not the bytes",
        _evidence(Kind.SKEWED_ALL_TO_ALL, lambda job: _got(job)[_who(job)]),
    ),
    "mean of others": (
        "the mean is that of all files, with the rank's own",
        _evidence(Kind.SKEWED_ALL_TO_ALL, _of_others),
    ),
    "mean of the world": (
        "the mean is that of the files: a rank whose file is lost doesn't count",
        _evidence(Kind.SKEWED_ALL_TO_ALL, lambda job: _right(job) * job["world_size"] / len(job["files"])),
    ),
    "in bytes": (_BYTES, _running(Rules(nbytes=_in_bytes), *_BY_LINK, other=_OF_BYTES)),
    "out bytes": (_BYTES, _running(Rules(nbytes=_out_bytes), *_BY_LINK, other=_OF_BYTES)),
    "first start": (
        "a call moves bytes from the latest start of its ranks, not from the first: before that they wait",
        _running(Rules(moving_us=_with_first_start), *_BY_LINK, other=_OF_BYTES),
    ),
    "all sizes": (
        "only calls of at least 1,000,000 bytes tell a link's speed",
        _running(Rules(large_nbytes=0), *_BY_LINK, other=(Kind.WRONG_INTERFACE,)),
    ),
    "above the size": (
        "a call of just 1,000,000 bytes counts, too: it has at least so many",
        _running(Rules(large_nbytes=LARGE_NBYTES + 1), *_BY_LINK, other=(Kind.WRONG_INTERFACE,)),
    ),
    "mean of speeds": (
        "the speed is all bytes over all time, not the mean of the calls' speeds",
        _running(Rules(speed=_mean_speed), *_BY_LINK, other=(Kind.WRONG_INTERFACE,)),
    ),
    "first slow": ("of several ranks that reach the limit, the one with the largest ratio is to blame", _first_slow),
    "speed without": (
        "the evidence must be the bytes a microsecond of the calls with the rank, not of those without it",
        _evidence(Kind.WRONG_INTERFACE, _speed_without),
    ),
    "ratio of speeds": (
        "the evidence must be the bytes a microsecond of the calls with the rank, not the ratio",
        _evidence(Kind.WRONG_INTERFACE, lambda job: _speed_without(job) / _right(job)),
    ),
    "waits for the first": (
        "the time belongs to the rank that starts last, not to the one that waits longest",
        _running(Rules(waited=_waited_for_the_first), *_SHARES, other=(Kind.STRAGGLER,)),
    ),
    "low straggler limit": (
        "the time that others wait for a rank must be at least 15 % of the total time",
        _running(_limit(Kind.STRAGGLER, 0.02 / 0.15), *_SHARES),
    ),
    "one file's total": (_TOTAL, _of_one_file(*_OF_TOTAL)),
    "waits of one file's total": (_TOTAL, _of_one_file(Kind.STRAGGLER)),
    "time in calls": (_TOTAL, _other_total(Rules(span=_time_in_calls), *_OF_TOTAL)),
    "span of calls": (_TOTAL, _other_total(Rules(span=_span_of_calls), *_OF_TOTAL)),
    "small calls before stragglers": (_ORDER, _asked_before(Kind.TINY_CALLS, Kind.STRAGGLER)),
    "small calls before interfaces": (_ORDER, _asked_before(Kind.TINY_CALLS, Kind.WRONG_INTERFACE)),
    "small calls before loads": (_ORDER, _asked_before(Kind.TINY_CALLS, Kind.SKEWED_ALL_TO_ALL)),
    "interfaces before loads": (_ORDER, _asked_before(Kind.WRONG_INTERFACE, Kind.SKEWED_ALL_TO_ALL)),
    "small calls once": (
        "the time of a small call was counted once: it counts once for each of its ranks, as the total time is that of all files",
        _small_calls_once,
    ),
    "small or equal": (
        "a call is small if it has less than 65,536 bytes",
        _running(Rules(small_nbytes=65_537), Kind.TINY_CALLS, other=(Kind.TINY_CALLS,)),
    ),
    "overlapping calls twice": (
        "a rank's calls may overlap: take the union of their intervals, so that no time counts twice",
        _running(Rules(union=False), Kind.NO_OVERLAP, Kind.HEALTHY, other=(Kind.NO_OVERLAP,)),
    ),
    "with what is hidden": (
        "the evidence is the rest: the time in calls without what lies inside of compute",
        _evidence(Kind.NO_OVERLAP, _all_in_calls),
    ),
    "rest alone": (
        "no overlap has two conditions: less than 10 % of the time in calls lies inside of compute, and the rest is at least 20 %",
        _running(Rules(little_overlap=2.0), Kind.NO_OVERLAP, Kind.HEALTHY),
    ),
    "overlap alone": (
        "no overlap has two conditions: less than 10 % of the time in calls lies inside of compute, and the rest is at least 20 %",
        _running(_limit(Kind.NO_OVERLAP, 0.0), Kind.NO_OVERLAP, Kind.HEALTHY),
    ),
    "rank 0": (
        "where no single rank is to blame, the rank is NOBODY, which is -1",
        lambda job: job.answer._replace(blamed=0) if job.answer.blamed == NOBODY else None,
    ),
}


def _swapped(job: Plain) -> dict[str, Any]:
    """The job with what each rank puts in and gets out exchanged."""
    files = [
        {
            **file,
            "calls": [{**c, "in_bytes": c["out_bytes"], "out_bytes": c["in_bytes"]} for c in file["calls"]],
        }
        for file in job["files"]
    ]
    return {**job, "files": files}

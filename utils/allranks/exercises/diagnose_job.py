"""diagnose_job(job) -> (cause, blamed, evidence): what is wrong with a job, read from the traces of its ranks.

Each rank of a case is given another job. The jobs are drawn from the secret, with noise that was recorded on live ranks, so no
answer can be known before. The ranks send no messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from allranks.checking.cases import Args, Expected, Oracle, Setup
from allranks.checking.drawing import Draws
from allranks.checking.exercise import Exercise, Group, Mistake
from allranks.profiles.planted import PlantedJob, Trap, variant
from allranks.profiles.planted_measure import (
    LIMITS,
    NOBODY,
    SMALL_NBYTES,
    Diagnosis,
    Kind,
    Pairs,
    decide,
    measure,
    nbytes_of,
    often_last,
    pairs,
    waits_for,
)

OFF = {  # how far the evidence may be off, as a share of it
    Kind.STRAGGLER: 0.05,
    Kind.WRONG_INTERFACE: 0.10,
    Kind.SKEWED_ALL_TO_ALL: 0.01,
    Kind.NO_OVERLAP: 0.01,
}
Tell = Callable[[PlantedJob], Diagnosis | None]  # what a mistake would tell of a job; None: what is right

# the order in which the lab's text asks
_ORDER = (Kind.DESYNC, Kind.MISSING_RANK, *LIMITS, Kind.HEALTHY)

# the second job of a healthy pair is not healthy: else an answer that calls every job healthy would be right
_OTHERS = {Kind.HEALTHY: (Kind.STRAGGLER, Kind.NO_OVERLAP)}


# in the first pair of jobs: whether a shortcut fails is not left to the draw
_TRAPS = {
    Kind.STRAGGLER: (Trap.OFTEN_LATE, None),
    Kind.MISSING_RANK: (Trap.LOWER_LOST, Trap.HIGHER_LOST),
}


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    kinds = [Kind[name] for name in setup.option("_kinds")]
    seeds = [" ".join(str(rng.of_rank(rank).integer(0, 1 << 62)) for _ in range(4)) for rank in range(setup.ranks)]
    traps = setup.option("_traps", (None,) * setup.ranks)
    return [(variant(kind, seed, trap),) for kind, seed, trap in zip(kinds, seeds, traps, strict=True)]


def _oracle_from(tell: Tell) -> Oracle:
    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        return [_expected(_told(tell, job) or job.answer) for (job,) in args]

    return oracle


def _told(tell: Tell, job: PlantedJob) -> Diagnosis | None:
    """What a mistake tells of a job, computed once."""
    if tell not in job.told:
        job.told[tell] = tell(job)
    return job.told[tell]


def _expected(told: Diagnosis) -> Expected:
    off = OFF.get(Kind(told.cause), 0.0) * abs(told.evidence or 0.0)
    return Expected(told, {}, (0.0, 0.0, off))


def _row_of_the_table(job: PlantedJob) -> Diagnosis | None:
    """The cause's place in the order of asking, in the place of its number."""
    place = _ORDER.index(Kind(job.answer.cause)) + 1
    return None if place == job.answer.cause else job.answer._replace(cause=place)


def _row_oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each row's evidence may be as far off as the right cause's."""
    return [replace(_expected(job.answer), returns=_row_of_the_table(job) or job.answer) for (job,) in args]


def _other_pairs(key: Callable[[Mapping[str, Any]], Pairs]) -> Tell:
    """The first cause by calls that are paired in another way."""
    return lambda job: _without_evidence(decide(measure(job.true, key(job.true))))


def _without_evidence(told: Diagnosis) -> Diagnosis:
    return told._replace(evidence=None)


def _by_order(job: Mapping[str, Any]) -> Pairs:
    """Pairs the first call of a group on one rank with the first on another."""
    found: Pairs = {}
    for file in job["files"]:
        count: Counter[str] = Counter()
        for call in file["calls"]:
            found.setdefault((call["group"], count[call["group"]]), {})[file["rank"]] = call
            count[call["group"]] += 1
    return found


def _by_place(job: Mapping[str, Any]) -> Pairs:
    return pairs(job, lambda call, place: (place,))


def _by_number(job: Mapping[str, Any]) -> Pairs:
    """Pairs calls of one number, whatever their groups."""
    return pairs(job, lambda call, place: (call["seq"],))


def _file_is_absent(job: PlantedJob) -> Diagnosis | None:
    if job.answer.cause == Kind.MISSING_RANK:
        return None
    absent = set(range(job["world_size"])) - {file["rank"] for file in job["files"]}
    return Diagnosis(Kind.MISSING_RANK, None, None) if absent else None


def _of_the_world(chosen: Callable[[set[int]], int]) -> Tell:
    """Of all ranks without a file one by its number, whatever its groups."""

    def tell(job: PlantedJob) -> Diagnosis | None:
        if job.answer.cause != Kind.MISSING_RANK:
            return None
        rank = chosen(set(range(job["world_size"])) - {file["rank"] for file in job["files"]})
        return None if rank == job.answer.blamed else Diagnosis(Kind.MISSING_RANK, rank, None)

    return tell


def _often_last(job: PlantedJob) -> Diagnosis | None:
    if job.answer.cause != Kind.STRAGGLER:
        return None
    rank = often_last(job.true)
    if rank == job.answer.blamed:
        return None
    rarely = decide(measure(job.true), (Kind.STRAGGLER,))  # if that rank costs too little
    return rarely if waits_for(job.true, rank) < LIMITS[Kind.STRAGGLER].at else Diagnosis(Kind.STRAGGLER, rank, None)


def _longest(job: PlantedJob) -> Diagnosis | None:
    if job.answer.cause != Kind.STRAGGLER:
        return None
    took = {f["rank"]: sum(c["end_us"] - c["start_us"] for c in f["calls"]) for f in job["files"]}
    return Diagnosis(Kind.STRAGGLER, max(took, key=lambda rank: took[rank]), None)


def _later(job: PlantedJob) -> Diagnosis | None:
    """A later cause of the list, which holds too."""
    told = decide(measure(job.true), (Kind(job.answer.cause),))
    return None if told.cause in (job.answer.cause, Kind.HEALTHY) else Diagnosis(told.cause, None, None)


def _many_small(job: PlantedJob) -> Diagnosis | None:
    if job.answer.cause == Kind.TINY_CALLS:
        return None  # the cause is right: it was no mistake to count them
    made = [nbytes_of(calls) for calls in pairs(job).values()]
    many = sum(n < SMALL_NBYTES for n in made) > len(made) / 4
    return Diagnosis(Kind.TINY_CALLS, NOBODY, None) if many else None


def _small_calls_of_each_rank(job: PlantedJob) -> Diagnosis | None:
    if job.answer.cause != Kind.TINY_CALLS:
        return None
    small = [c for c in pairs(job).values() if nbytes_of(c) < SMALL_NBYTES]
    whole = [calls for calls in small if len(calls) == len(next(iter(calls.values()))["ranks"])]
    return job.answer._replace(evidence=float(sum(map(len, whole))))


def _scaled(factor: Callable[[PlantedJob], float], *kinds: Kind) -> Tell:
    """The right answer with its evidence times a factor."""

    def tell(job: PlantedJob) -> Diagnosis | None:
        if job.answer.cause not in kinds:
            return None
        return job.answer._replace(evidence=job.answer.evidence * factor(job))

    return tell


def _of_other_hang(job: PlantedJob) -> Diagnosis | None:
    other = {Kind.DESYNC: Kind.MISSING_RANK, Kind.MISSING_RANK: Kind.DESYNC}.get(Kind(job.answer.cause))
    return Diagnosis(other, None, None) if other else None


def _group(kind: Kind) -> Group:
    others = _OTHERS.get(kind, (kind, kind))
    setups = tuple(
        Setup(2, 1).with_options(case=f"{which} pair of jobs", _kinds=(kind.name, other.name))
        for which, other in zip(("first", "second"), others, strict=True)
    )
    if kind in _TRAPS:
        setups = (setups[0].with_options(_traps=_TRAPS[kind]), *setups[1:])
    return Group(kind.name.lower().replace("_", " "), 1, setups)


_MICROSECONDS = (Kind.STRAGGLER, Kind.NO_OVERLAP)

EXERCISE = Exercise(
    name="diagnose_job",
    promise="returns the cause, the rank to blame and the evidence for each job",
    groups=tuple(_group(kind) for kind in Kind),
    inputs=_inputs,
    oracle=_oracle_from(lambda job: job.answer),
    allow=frozenset(),
    mistakes=(
        Mistake("the cause is its row in the list of causes: return its constant, as STRAGGLER", _row_oracle),
        Mistake(
            "the rank with the longest collectives waits for the others: the straggler's are the shortest",
            _oracle_from(_longest),
        ),
        Mistake(
            "the hosts' clocks differ: align them first, by the ends of calls that all ranks left together",
            _oracle_from(lambda job: _without_evidence(decide(measure(job)))),
        ),
        Mistake(
            "calls were paired by their place in the file: pair those of one group and one number (seq)",
            _oracle_from(_other_pairs(_by_place)),
        ),
        Mistake(
            "calls were paired by their order in the group, but files begin at different calls: pair them by seq",
            _oracle_from(_other_pairs(_by_order)),
        ),
        Mistake(
            "calls of different groups were paired: a number (seq) counts within its group",
            _oracle_from(_other_pairs(_by_number)),
        ),
        Mistake(
            "an absent file alone says little, a file can be lost: a rank is missing if calls with it never ended",
            _oracle_from(_file_is_absent),
        ),
        Mistake(
            "the rank was looked for in the whole world, but a file can be lost: who is missing is a member of the group whose call "
            "began first",
            _oracle_from(_of_the_world(min)),
        ),
        Mistake(
            "the rank was looked for in the whole world, but a file can be lost: who is missing is a member of the group whose call "
            "began first",
            _oracle_from(_of_the_world(max)),
        ),
        Mistake(
            "the rank that is last most often may cost next to nothing: what counts is the time that others wait for it, summed",
            _oracle_from(_often_last),
        ),
        Mistake(
            "calls that never end have two causes: a call that differs on one rank, or a rank that does not come",
            _oracle_from(_of_other_hang),
        ),
        Mistake(
            "this cause holds too, but one before it in the list brings it about: ask them in the list's order",
            _oracle_from(_later),
        ),
        Mistake(
            "many small calls may cost next to nothing: what counts is the share of the time in which they move bytes",
            _oracle_from(_many_small),
        ),
        Mistake(
            "a job is healthy only if all calls ended and no figure reaches its limit",
            _oracle_from(lambda job: Diagnosis(Kind.HEALTHY, NOBODY, None)),
        ),
        Mistake(
            "a small call was counted once for each of its ranks: the evidence counts each matched call once",
            _oracle_from(_small_calls_of_each_rank),
        ),
        Mistake(
            "the evidence is the mean of the files: it must be their sum",
            _oracle_from(_scaled(lambda job: 1 / len(job["files"]), Kind.NO_OVERLAP)),
        ),
        Mistake(
            "the evidence is in milliseconds or seconds: it must be in microseconds",
            _oracle_from(_scaled(lambda job: 1e-3, *_MICROSECONDS)),
        ),
        Mistake(
            "the evidence is in milliseconds or seconds: it must be in microseconds",
            _oracle_from(_scaled(lambda job: 1e-6, *_MICROSECONDS)),
        ),
        Mistake(
            "cause and rank are right, but the evidence was not computed from this job",
            _oracle_from(lambda job: None if job.answer.cause == Kind.HEALTHY else _without_evidence(job.answer)),
        ),
    ),
    unit="job",
    chunking="none",
    demo_setup=_group(Kind.STRAGGLER).setups[0],
    forbidden_advice="A diagnosis needs no messages.",
)

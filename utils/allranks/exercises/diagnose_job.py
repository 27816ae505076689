"""diagnose_job(job) -> (cause, blamed, evidence): what is wrong with a job, read from the traces of its ranks.

Each rank of a case is given another job. The jobs are drawn from the secret, with noise that was recorded on live ranks, so no
answer can be known before. The ranks send no messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from allranks.exercises.families import no_other, steadied
from allranks.exercises.planted import PlantedJob, Trap, variant
from allranks.exercises.planted.readings import READINGS, Tell
from allranks.jobs.root_cause import (
    LIMITS,
    NOBODY,
    SMALL_NBYTES,
    WITHIN,
    Diagnosis,
    Kind,
    decide,
    how_often_last,
    measure,
    nbytes_of,
    often_last,
    pairs,
    waits_for,
)
from allranks.judge.cases import Args, Expected, Oracle, Setup, oracle_maker
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Mistakes, Run

# the order in which the lab's text asks
_ORDER = (Kind.DESYNC, Kind.MISSING_RANK, *LIMITS, Kind.HEALTHY)

# The jobs of each case. Whether a wrong reading of the contract fails is not left to the draw: a job with a trap shows it.
# The last job of a healthy case is not healthy: else an answer that calls every job healthy would be right.
_JOBS: dict[Kind, tuple[tuple[Trap | Kind | None, ...], ...]] = {
    Kind.STRAGGLER: ((Trap.OFTEN_LATE, Trap.LATE_IN_WORLD), (Trap.WAITS_BEYOND, Trap.SMALL_AND_WAITS)),
    Kind.DESYNC: ((Trap.OTHER_OPERATION, Trap.OTHER_OUT), (Trap.TWO_DIFFER, Trap.OTHER_IN)),
    Kind.MISSING_RANK: ((Trap.LOWER_LOST, Trap.HIGHER_LOST), (Trap.UNEVEN, None)),
    Kind.TINY_CALLS: ((Trap.TWINS, Trap.SMALL_BEYOND), (None, Kind.HEALTHY)),
    Kind.NO_OVERLAP: ((Trap.LITTLE_OVERLAP, Trap.NESTED), (Trap.REST_BEYOND, Trap.SMALL_SHORT)),
    Kind.WRONG_INTERFACE: ((Trap.SIZES, Trap.LINK_BEYOND), (Trap.ONE_SIDE, Trap.SMALL_AND_LINK)),
    Kind.SKEWED_ALL_TO_ALL: ((Trap.LOAD_BEYOND, Trap.LOAD_LOST), (Trap.SMALL_AND_LOAD, Trap.LINK_AND_LOAD)),
    Kind.HEALTHY: (
        (Trap.WAITS_SHORT, Kind.STRAGGLER),
        (Trap.REST_SHORT, Kind.NO_OVERLAP),
        (Trap.SOME_OVERLAP, Kind.TINY_CALLS),
        (Trap.LINK_SHORT, Kind.WRONG_INTERFACE),
        (Trap.LOAD_SHORT, Kind.SKEWED_ALL_TO_ALL),
    ),
}
_ORDINALS = ("first", "second", "third", "fourth", "fifth")


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    kinds = [Kind[name] for name in setup.option("_kinds")]
    seeds = [" ".join(str(rng.of_rank(rank).integer(0, 1 << 62)) for _ in range(4)) for rank in range(setup.ranks)]
    traps = [Trap[name] if name else None for name in setup.option("_traps", (None,) * setup.ranks)]
    return [(variant(kind, seed, trap),) for kind, seed, trap in zip(kinds, seeds, traps, strict=True)]


@oracle_maker
def _oracle_from(setup: Setup, args: Sequence[Args], tell: Tell) -> list[Expected]:
    return [_expected(_told(tell, job) or job.answer) for (job,) in args]


def _told(tell: Tell, job: PlantedJob) -> Diagnosis | None:
    """What a mistake tells of a job, computed once."""
    if tell not in job.told:
        job.told[tell] = tell(job)
    return job.told[tell]


def _expected(told: Diagnosis) -> Expected:
    off = WITHIN.get(Kind(told.cause), 0.0) * abs(told.evidence or 0.0)
    return Expected(told, {}, (0.0, 0.0, off))


def _row_of_the_table(job: PlantedJob) -> Diagnosis | None:
    """The cause's place in the order of asking, in the place of its number."""
    place = _ORDER.index(Kind(job.answer.cause)) + 1
    return None if place == job.answer.cause else job.answer._replace(cause=place)


def _row_oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each row's evidence may be as far off as the right cause's."""
    return [replace(_expected(job.answer), returns=_row_of_the_table(job) or job.answer) for (job,) in args]


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
    count, rank = how_often_last(job.true), often_last(job.true)
    if count[rank] < 1.25 * count[job.answer.blamed or 0]:  # clocks that are aligned are some microseconds off
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


def _scaled(factor: float, kind: Kind) -> Tell:
    """The right answer with its evidence times a factor."""
    return lambda job: job.answer._replace(evidence=job.answer.evidence * factor) if job.answer.cause == kind else None


def _mean_of_files(job: PlantedJob) -> Diagnosis | None:
    if job.answer.cause != Kind.NO_OVERLAP:
        return None
    return job.answer._replace(evidence=job.answer.evidence / len(job["files"]))


def _passed_over(kind: Kind) -> Tell:
    """The first cause after one that was passed over."""

    def tell(job: PlantedJob) -> Diagnosis | None:
        return decide(job.figures[0], (kind,))._replace(evidence=None) if job.answer.cause == kind else None

    return tell


def _blames_a_straggler(run: Run) -> bool:
    """Whether some rank blamed a straggler wrongly."""
    right = EXERCISE.oracle(run.setup, run.args[0])
    got = [result.returned if result is not None else None for result in run.results[0]]
    return any(
        isinstance(told, tuple) and told[:1] == (Kind.STRAGGLER,) and told[:2] != want.returns[:2]
        for told, want in zip(got, right, strict=True)
    )


def _of_other_hang(job: PlantedJob) -> Diagnosis | None:
    other = {Kind.DESYNC: Kind.MISSING_RANK, Kind.MISSING_RANK: Kind.DESYNC}.get(Kind(job.answer.cause))
    return Diagnosis(other, None, None) if other else None


def _group(kind: Kind) -> Group:
    return Group(
        kind.name.lower().replace("_", " "),
        1,
        tuple(
            Setup(len(jobs), 1).with_options(
                case=f"{kind.name.lower().replace('_', ' ')}, {which} pair",
                _kinds=tuple((job if isinstance(job, Kind) else kind).name for job in jobs),
                _traps=tuple(job.name if isinstance(job, Trap) else "" for job in jobs),
            )
            for which, jobs in zip(_ORDINALS, _JOBS[kind], strict=False)
        ),
    )


# A job that is called healthy shows little: only a rank that is blamed wrongly shows this reading.
_WHEN = {"waits for the first": _blames_a_straggler}
_HOLDS = {  # when each cause holds that is a figure at its limit
    Kind.SKEWED_ALL_TO_ALL: "over all its all_to_all calls one rank gets at least 2 times as many bytes as the mean of the files",
    Kind.WRONG_INTERFACE: "whole calls of at least 1,000,000 bytes without a rank move at least 2 times as many bytes a microsecond (all "
    "bytes over all time) as those with it",
    Kind.STRAGGLER: "the time that others wait for the rank that starts last, summed over the whole calls of all groups in which it is "
    "the last, reaches 15 % of the total time",
    Kind.TINY_CALLS: "whole calls of less than 65,536 bytes move bytes in at least 20 % of the total time, each call counted once for "
    "each of its ranks",
    Kind.NO_OVERLAP: "less than 10 % of the time in calls lies inside of compute, and the rest is at least 20 % of the total time",
}
_EVIDENCE = {  # what it must be
    Kind.STRAGGLER: "the time, in µs, that others wait for the rank in the whole calls in which it starts last, summed",
    Kind.DESYNC: "the number (seq) of the first call that differs",
    Kind.MISSING_RANK: "the number (seq) of the call that began first, of those that never ended",
    Kind.TINY_CALLS: "how many whole calls have less than 65,536 bytes, a matched call counted once",
    Kind.NO_OVERLAP: "the time in calls outside of compute, in µs, of all files",
    Kind.WRONG_INTERFACE: "the bytes a microsecond of the whole calls of at least 1,000,000 bytes with the rank",
    Kind.SKEWED_ALL_TO_ALL: "how many times as many bytes the rank gets as the mean of the files",
    Kind.HEALTHY: "0 where nothing is wrong",
}


def _without_evidence(kind: Kind) -> Oracle:
    """The right answer to jobs of this cause, whatever the evidence."""
    return _oracle_from(lambda job: job.answer._replace(evidence=None) if job.answer.cause == kind else None)


def _with_readings(mistakes: Mistakes) -> Mistakes:
    """The mistakes, and behind them, or with those of the same words, the wrong readings of a job."""
    found = {cause: told if isinstance(told, list) else [told] for cause, told in mistakes.items()}
    for name, (cause, tell) in READINGS.items():
        oracle = _oracle_from(tell)
        found.setdefault(cause, []).append((oracle, _WHEN[name]) if name in _WHEN else oracle)
    return found


# what these mistakes tell is known
_EXACT: Mistakes = {
    **_with_readings(
        {
            "the cause is its row in the list of causes: return its constant, as STRAGGLER": _row_oracle,
            "the rank with the longest collectives waits for the others: the straggler's are the shortest": _oracle_from(
                _longest
            ),
            "an absent file alone says little, a file can be lost: a rank is missing if calls with it never ended": (
                _oracle_from(_file_is_absent)
            ),
            "the rank was looked for in the whole world, but a file can be lost: who is missing is a member of the group whose "
            "call began first": [_oracle_from(_of_the_world(min)), _oracle_from(_of_the_world(max))],
            "the rank that is last most often may cost next to nothing: what counts is the time that others wait for it, "
            "summed": _oracle_from(_often_last),
            "calls that never end have two causes: a call that differs on one rank, or a rank that does not come": _oracle_from(
                _of_other_hang
            ),
            READINGS["small calls once"][0]: [],  # more likely than those below
            "this cause holds too, but one before it in the list brings it about: ask them in the list's order": _oracle_from(
                _later
            ),
            "many small calls may cost next to nothing: what counts is the share of the time in which they move bytes": (
                _oracle_from(_many_small)
            ),
            "a small call was counted once for each of its ranks: the evidence counts each matched call once": _oracle_from(
                _small_calls_of_each_rank
            ),
            "the evidence is the mean of the files: it must be their sum": _oracle_from(_mean_of_files),
            "the evidence is in milliseconds or seconds: it must be in microseconds": [
                _oracle_from(_scaled(factor, kind))
                for kind in (Kind.STRAGGLER, Kind.NO_OVERLAP)
                for factor in (1e-3, 1e-6)
            ],
        }
    ),
    **{
        f"the cause is {kind.name}, which holds if {holds}": _oracle_from(_passed_over(kind))
        for kind, holds in _HOLDS.items()
    },
}

EXERCISE = Exercise(
    name="diagnose_job",
    promise="returns the cause, the rank to blame and the evidence for each job",
    groups=tuple(_group(kind) for kind in Kind),
    inputs=_inputs,
    labels={"case": "{}"},
    oracle=_oracle_from(lambda job: job.answer),
    allow=frozenset(),
    mistakes={
        **_EXACT,
        "a job is healthy only if all calls ended and no figure reaches its limit": _oracle_from(
            lambda job: Diagnosis(Kind.HEALTHY, NOBODY, 0.0)
        ),
        **{
            f"the evidence is wrong: it must be {what}": (_without_evidence(kind), no_other(_EXACT))
            for kind, what in _EVIDENCE.items()
        },
    },
    unit="job",
    demo_setup=_group(Kind.STRAGGLER).setups[0],
    forbidden_advice="A diagnosis needs no messages.",
)


def _in(*cases: str) -> Callable[[Setup], bool]:
    return lambda setup: setup.option("case") in cases


EXERCISE = steadied(
    EXERCISE,
    {
        "the hosts' clocks differ": _in(
            "missing rank, second pair", "wrong interface, first pair", "wrong interface, second pair"
        ),
        "by their place in the file": _in(
            "no overlap, first pair", "no overlap, second pair", "healthy, second pair", "healthy, fifth pair"
        ),
        "by their order in the group": _in("wrong interface, second pair", "healthy, fifth pair"),
        "a file's place in the list": _in("desync, second pair"),
        "of the calls that never ended, the one that began first": _in("missing rank, first pair"),
        "the time of a small call was counted once": _in("tiny calls, second pair", "healthy, third pair"),
        "the one with the largest ratio": _in("wrong interface, second pair", "healthy, fourth pair"),
    },
)

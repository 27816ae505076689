"""Planted jobs: what was recorded on live ranks shows its fault; what is drawn has one answer, and no shortcut finds it."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
from allranks.exercises import planted
from allranks.exercises.diagnose_job import _JOBS, EXERCISE
from allranks.exercises.planted import recorded, recordings, variant
from allranks.exercises.planted.job import as_job
from allranks.exercises.planted.plans import Trap
from allranks.exercises.planted.readings import READINGS
from allranks.exercises.planted.shape import NEAR, SHAPES
from allranks.jobs.explaining import explain
from allranks.jobs.root_cause import (
    LIMITS,
    NEAR_OVERLAP,
    NOBODY,
    Kind,
    accepts,
    decide,
    is_clear,
    measure,
    pairs,
)
from allranks.judge.cases import Setup
from allranks.judge.in_rank.arguments import describe

SEEDS = range(20)
HUNG = (Kind.DESYNC, Kind.MISSING_RANK)


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
def test_a_recording_shows_the_fault_that_was_planted_in_it(kind):
    job = recorded(kind.name.lower())
    blamed = recordings()["made"]["blamed"][kind.name.lower()]
    assert (job.answer.cause, job.answer.blamed) == (kind, blamed)
    files = {file["rank"] for file in job["files"]}
    assert files == set(range(6)) - ({blamed} if kind is Kind.MISSING_RANK else set())
    ends = [call["end_us"] for file in job["files"] for call in file["calls"]]
    assert (None in ends) is (kind in HUNG)


def test_the_record_says_how_the_recordings_were_made():
    made = recordings()["made"]
    assert made["command"] == "python tools/record_jobs.py"
    assert {"torch", "machine", "blamed", "recordings_until_clear", "noise_cut_to", "shift_us"} <= set(made)
    low, high = made["noise_cut_to"]
    for name in ("compute", "moving"):
        assert len(recordings()["noise"][name]) > 100
        assert all(low <= factor <= high for factor in recordings()["noise"][name])


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
def test_a_variant_has_one_answer_far_from_every_limit(kind):
    jobs = [variant(kind, f"seed {seed}") for seed in SEEDS]
    for job in jobs:
        measured = measure(job.true)
        assert is_clear(measured, kind)
        assert decide(measured) == job.answer
        assert job.answer.cause == kind
    single = kind in (*HUNG, Kind.STRAGGLER, Kind.WRONG_INTERFACE, Kind.SKEWED_ALL_TO_ALL)
    assert len({job.answer.blamed for job in jobs}) > 3 if single else {job.answer.blamed for job in jobs} == {-1}
    assert len({job.answer.evidence for job in jobs}) > 10 or kind is Kind.HEALTHY
    assert len({job["world_size"] for job in jobs}) > 1 or kind is Kind.TINY_CALLS


def test_a_variant_is_the_same_for_one_seed_and_another_for_another():
    first = deepcopy(variant(Kind.STRAGGLER, "a"))
    variant.cache_clear()
    assert variant(Kind.STRAGGLER, "a") == first
    assert variant(Kind.STRAGGLER, "b") != first


def test_shortcuts_fail():
    """A lost file is not a missing rank, the longest calls are not the straggler's, and clocks and places mislead."""
    stragglers = [variant(Kind.STRAGGLER, f"seed {seed}") for seed in SEEDS]
    longest = raw = 0
    for job in stragglers:
        took = {f["rank"]: sum(c["end_us"] - c["start_us"] for c in f["calls"]) for f in job["files"]}
        longest += max(took, key=took.get) == job.answer.blamed
        raw += decide(measure(job))[:2] == job.answer[:2]
    assert longest == 0
    assert raw < len(SEEDS) / 2
    for kind in (Kind.HEALTHY, Kind.STRAGGLER, Kind.NO_OVERLAP):
        assert any(len(variant(kind, f"seed {s}")["files"]) < variant(kind, f"seed {s}")["world_size"] for s in SEEDS)
    two_gone = [variant(Kind.MISSING_RANK, f"seed {seed}") for seed in SEEDS]
    assert any(len(job["files"]) == job["world_size"] - 2 for job in two_gone)
    by_place = [decide(measure(job.true, pairs(job.true, lambda call, place: (place,)))) for job in stragglers]
    assert sum(told[:2] == job.answer[:2] for told, job in zip(by_place, stragglers, strict=True)) < len(SEEDS) / 2


TRAPPED = [(kind, job) for kind, cases in _JOBS.items() for jobs in cases for job in jobs if isinstance(job, Trap)]


def test_each_trap_is_in_a_job():
    assert {trap for _, trap in TRAPPED} == set(Trap) == set(SHAPES)


@pytest.mark.parametrize(("kind", "trap"), TRAPPED, ids=lambda of: of.name.lower())
def test_a_trap_makes_its_readings_fail_whatever_is_drawn(kind, trap):
    for seed in range(4):
        job = variant(kind, f"seed {seed}", trap)
        assert job.answer.cause == kind and (job.answer.blamed == NOBODY or job.answer.blamed >= 0)
        assert is_clear(measure(job.true), kind, NEAR, NEAR_OVERLAP)
        for name in SHAPES[trap].fails:
            assert not accepts(READINGS[name][1](job) or job.answer, job.answer), name
        if SHAPES[trap].figure is not None:
            which, (low, high) = SHAPES[trap].figure
            assert low <= measure(job.true).figures[which].value <= high


@pytest.mark.parametrize("name", READINGS)
def test_each_wrong_reading_fails_on_some_job(name):
    """Also those that no trap is made for, and with every secret that is tried."""
    for secret in (0, 1):
        jobs = [
            job
            for group in EXERCISE.groups
            for setup in group.setups
            for (job,) in EXERCISE.inputs(setup, setup.draws(secret))
        ]
        assert any(not accepts(READINGS[name][1](job) or job.answer, job.answer) for job in jobs)


def test_a_rank_gets_the_job_and_not_the_answer():
    setup = Setup(2, 1).with_options(_kinds=("STRAGGLER", "HEALTHY"))
    for (job,) in EXERCISE.inputs(setup, setup.draws(7)):
        what, sent = describe(job)
        got = pickle.loads(sent.data)
        assert what == "value" and type(got) is dict
        assert sorted(got) == ["files", "world_size"] and got == job
        assert b"planted" not in sent.data and b"answer" not in sent.data


def test_another_secret_gives_another_rank_to_blame():
    setup = EXERCISE.groups[0].setups[0]
    told = {EXERCISE.oracle(setup, EXERCISE.inputs(setup, setup.draws(secret)))[0].returns for secret in range(1, 9)}
    assert len({answer.blamed for answer in told}) > 2 and len({answer.evidence for answer in told}) == 8


def test_a_job_that_can_not_be_clear_is_refused(monkeypatch):
    monkeypatch.setattr(planted, "is_clear", lambda measured, kind: False)
    monkeypatch.setattr(planted, "TRIES", 2)
    with pytest.raises(RuntimeError, match="No clear job"):
        variant(Kind.HEALTHY, "never")


def test_the_limits_are_those_that_the_lab_says():
    from pathlib import Path

    text = (Path(__file__).parents[2] / "solutions/lab11_your_own_job/source/your_own_job.py").read_text()
    for kind, words in {
        Kind.SKEWED_ALL_TO_ALL: "at least 2 times as many bytes as the mean",
        Kind.WRONG_INTERFACE: "move at least 2 times as many bytes a microsecond",
        Kind.STRAGGLER: "at least 15 % of the total time",
        Kind.TINY_CALLS: "at least 20 % of the total time (each call",
        Kind.NO_OVERLAP: "the rest is at least 20 % of the total time",
    }.items():
        assert words in text
        number = float(words.split("at least ")[1].split()[0])
        assert LIMITS[kind].at == (number / 100 if "%" in words else number)
    from allranks.jobs import root_cause

    assert f"{root_cause.SMALL_NBYTES:,} bytes" in text and f"{root_cause.LARGE_NBYTES:,} bytes" in text


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
def test_the_tool_tells_the_planted_jobs_right(kind):
    wrong = []
    for seed in (None, *SEEDS):
        job = recorded(kind.name.lower()) if seed is None else variant(kind, f"seed {seed}")
        first = explain(as_job(job)).causes[0]
        # a healthy job may have communication that nothing hides; that blames nobody
        kinds = (kind.name.lower(), *(["exposed"] if kind.name == "HEALTHY" else []))
        if first.kind not in kinds or (-1 if first.rank is None else first.rank) != job.answer.blamed:
            wrong.append((seed, first.kind, first.rank, job.answer.blamed))
    assert wrong == []

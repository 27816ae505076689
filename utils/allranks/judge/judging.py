"""From a student's function to a verdict: Source, Run, Comparison, Cause, Score, Card, each made of the one before.

`run` runs a case, `compare` says how its results differ, `diagnose` why, `score` what it is worth; the verdict draws the card.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from allranks.base.errors import CourseError
from allranks.base.progress import with_progress
from allranks.judge import computed, diagnose, provenance, reasons, speed
from allranks.judge.causes import Code, cause
from allranks.judge.compare import compared, result_faults
from allranks.judge.diagnose import Diagnosis, Finding
from allranks.judge.exercise import Exercise, Run
from allranks.judge.fault import code_of, fault_of
from allranks.judge.run import ENDS_THE_CHECK, OVER_A_LIMIT, CaseRunner, one_torch_thread
from allranks.judge.score import Score, score
from allranks.judge.source import Source, from_text
from allranks.judge.verdict import Reason, Verdict
from allranks.ranks.wire import FailureKind, Ranks
from allranks.theory.topology import Topology
from allranks.theory.trace import Trace

_SELDOM = 20_000  # objects made, and not freed, between two looks of the collector
MAX_RANKS = 13  # of the largest case; ranks are started when a case needs them


class RulesError(CourseError, ValueError):
    """There are no such rules to check by."""


def judge(
    exercise: Exercise,
    answer: Callable | Source,
    *,
    secret: int = 0,
    spawner: Any = None,
    pool: Ranks | None = None,
    wall_s: float = 60.0,
    rules: str | None = None,
    topology: str | Topology | None = None,
    nbytes: int = speed.NBYTES,
) -> Verdict:
    """The verdict on a function (an object or a Source). Inputs follow from `secret`; 0 gives the public inputs.

    `spawner` starts the ranks (see allranks.wire.Ranks). Or give a `pool` of MAX_RANKS ranks, which stays open, if no answer needs
    to be protected from another one. After `wall_s` seconds the remaining cases fail as not run. With `rules="nccl"` it is the
    verdict under NCCL's rules: would this run on GPUs? With a `topology` (a preset's name, a topology file or a Topology) it also says
    how long the answer takes there with a vector of `nbytes`, what it waits for, and what would make it faster. Raises RulesError
    for other rules, MachineError and TopologyError for a machine that can't be used.

        judge(get("ring_shift"), ring_shift).passed
    """
    if rules not in (None, "nccl"):
        raise RulesError(f"rules={rules!r} is unknown; it is 'nccl', or leave it out.")
    if rules is not None:
        importlib.import_module(
            "allranks.ranks.nccl_rules"
        )  # before the ranks are forked, which then need not import it

    machine = None if topology is None else speed.machine(exercise, topology, nbytes)
    ranks = pool or Ranks(MAX_RANKS if machine is None else speed.MAX_RANKS, spawner=spawner)
    try:
        with one_torch_thread(), _collecting_its_own_garbage():
            runner = CaseRunner(exercise, answer, ranks, secret=secret, wall_s=wall_s, nccl=rules == "nccl")
            found = diagnose.diagnose(runner, _cases(runner))
            verdict = _verdict(runner, found, score(exercise, found))
            return (
                verdict if machine is None else _timed(verdict, runner, diagnose.on_machine(runner, machine), machine)
            )
    finally:
        if pool is None:
            ranks.close()


def _cases(runner: CaseRunner) -> list[Finding]:
    """Every case of the exercise, run and compared; after a failure that all would have, or too late, a case is not run."""
    found: list[Finding] = []
    not_run: Reason | None = None  # why the cases that are left are not run
    setups = [(g.name, s.drawn(runner.secret)) for g in runner.exercise.groups for s in g.setups]
    for group, setup in with_progress(setups, len(setups), "cases"):
        name = f"{group}: {runner.exercise.label(setup)}"
        if not_run is None and runner.left_s <= 0:
            not_run = reasons.plain(cause(Code.NOT_RUN))
        lacking = runner.lacks(setup)
        if lacking is not None:
            runner.skipped.append(f"{name}: {lacking}")
        elif not_run is not None:
            found.append(Finding(group, name, setup, reason=not_run))
        else:
            run = runner.run(setup)
            if runner.cut and run.failure is not None and run.failure.kind is FailureKind.WALL_LIMIT:
                not_run = reasons.plain(cause(Code.NOT_RUN))  # the check's time ended, and not the case's
                found.append(Finding(group, name, setup, reason=not_run))
                continue
            run = diagnose.opened(runner, run)
            found.append(diagnose.first_look(runner, compared(group, name, run)))
            reason = found[-1].reason
            if reason is not None and run.failure is not None:
                if run.failure.kind in ENDS_THE_CHECK:
                    not_run = reason
                elif run.failure.kind in OVER_A_LIMIT:
                    not_run = reasons.plain(cause(Code.NOT_RUN_BECAUSE, because=reason.sentence))
    return found


def _verdict(runner: CaseRunner, found: Diagnosis, score: Score) -> Verdict:
    """What the student is told: the points, the first reason, and the messages of the run that shows it."""
    exercise, reason, failed = runner.exercise, found.headline, found.failed
    if score.passed:
        reason = failed = None
    trace, label = _trace(runner, failed or found.demo)
    deadlock = failed.outcome.deadlock if failed is not None else None
    told = {} if reason is None else {n: getattr(reason, n) for n in _TOLD} | {"reason": reason.sentence}
    slow = {one.breach.reason.finding for one in found.rules if one.breach and isinstance(one.rule, speed.FastRule)}
    # of a slow run the reason says it all
    timed = None if reason is not None and reason.finding in slow else speed.of(failed or found.demo)
    return Verdict(
        exercise=exercise.name,
        passed=score.passed,
        score=score.points,
        cases=score.cases,
        trace=trace,
        svg=None if deadlock is None else deadlock.svg(),
        shown=label,
        rules="nccl" if runner.nccl else None,
        skipped=tuple(runner.skipped),
        expected=exercise.schedule(failed.setup) if failed is not None and trace is not None else None,
        fault=fault_of(reason.blame, failed, trace, runner.answer) if reason is not None else None,
        speed=() if timed is None else timed.sentences,
        variant=exercise.variant,
        won=exercise.won or exercise.promise,
        **told,
    )


_TOLD = ("finding", "seen", "question", "cause", "more", "rows", "shared")


def _trace(runner: CaseRunner, shown: Run | None) -> tuple[Trace | None, str]:
    """The student's own messages and the case that they are from: the one that shows the cause, else the demo case."""
    if shown is None:
        return None, ""
    values = replace(shown.setup, values="small", dtype="float32")
    trace, code = provenance.trace_with_chunks(shown), code_of(runner.answer)
    trace = trace.with_events(computed.with_blocks(trace.events, shown))
    if code is not None:
        trace = replace(trace, meta=trace.meta | {"code": code})
    if speed.machine_of(shown.setup) is not None:
        trace = shown.outcome.critical_path.marked(trace, shown.where)
    return trace, runner.exercise.label(values)


def _timed(verdict: Verdict, runner: CaseRunner, run: Run, machine: speed.Machine) -> Verdict:
    """The verdict with the time and the critical path of a run on this machine; a wrong result there tells nothing."""
    if run.failure is not None or result_faults(run):
        why = "its time is told when its results are right there"
        return replace(verdict, speed=(f"On {machine.name} with {run.ranks} ranks the answer fails: {why}.",))
    timed, (trace, label) = speed.of(run), _trace(runner, run)
    sentences = timed.sentences if timed is not None else ()
    if not verdict.passed:
        return replace(verdict, speed=sentences)
    return replace(verdict, speed=sentences, trace=trace, shown=label, expected=runner.exercise.schedule(run.setup))


@contextlib.contextmanager
def _collecting_its_own_garbage() -> Iterator[None]:
    """The collector would go through everything that was imported several times in a verdict; here it sees what is made from now on.

    It looks seldom: nearly all of a run's operations live until the verdict, and to go through them took a tenth of its time.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(max(_SELDOM, thresholds[0]) if thresholds[0] else 0, *thresholds[1:])
    frozen = _is_frozen()  # somebody has excluded what he knows, and thawing would take it in again
    if not frozen:
        gc.freeze()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen:
            gc.unfreeze()


@functools.cache  # the collector counts one by one, which takes up to 50 ms
def _is_frozen() -> bool:
    return gc.get_freeze_count() > 0


def judge_text(
    exercise: Exercise, text: str, filename: str = "answer.py", function: str | None = None, **options: Any
) -> Verdict:
    """The verdict on Python text, which runs in the forked ranks only. `function` is its name, if not the exercise's.

    Takes the options of `judge`. Raises SourceError if the text defines no such function.

        judge_text(get("ring_shift"), "def ring_shift(tensor, k):\\n    return tensor").reason
    """
    return judge(exercise, from_text(text, function or exercise.name, filename), **options)

"""From a student's function to a verdict."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from allranks.base.errors import CourseError
from allranks.judge import speed
from allranks.judge.exercise import Exercise
from allranks.judge.running import CaseRunner, one_torch_thread, run_cases
from allranks.judge.scoring import on_machine, score
from allranks.judge.source import Source, from_text
from allranks.judge.verdict import Verdict
from allranks.ranks.wire import Ranks
from allranks.theory.topology import Topology

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
            verdict = score(runner, run_cases(runner))
            return verdict if machine is None else on_machine(runner, verdict, machine)
    finally:
        if pool is None:
            ranks.close()


@contextlib.contextmanager
def _collecting_its_own_garbage() -> Iterator[None]:
    """The collector would go through everything that was imported several times in a verdict; here it sees what is made from now on."""
    if _is_frozen():  # somebody has excluded what he knows, and thawing would take it in again
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
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

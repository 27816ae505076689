"""From a student's function to a verdict: every case is run on the wire, compared, and its cause put into words."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from allranks.checking import causes, compare, provenance, rules
from allranks.checking.cases import Arg, Backward, Function, Parameter, Setup, Tied, View, views
from allranks.checking.exercise import Exercise, Fault, Result, Run
from allranks.checking.in_rank import driver
from allranks.checking.source import Source, from_text
from allranks.checking.verdict import Case, Verdict
from allranks.wire import FailureKind, Program, Ranks, Rules

MAX_RANKS = 8
CPU_S = 2
WALL_S = 10
FATAL = frozenset({FailureKind.IMPORT, FailureKind.SYNTAX, FailureKind.NO_FUNCTION})
COSTLY = frozenset({FailureKind.CPU_LIMIT, FailureKind.WALL_LIMIT, FailureKind.MEMORY})
MAX_COSTLY = 1  # after so many runs that used up their time, the rest is not tried
NOT_JUDGED = "not judged: it counts once cases with more than one rank end right"


@dataclass
class _Ran:
    """A case that was run, with what was found."""

    group: str
    name: str
    setup: Setup
    run: Run | None
    reason: str
    faults: list[Fault] = field(default_factory=list)
    known: list[str] = field(default_factory=list)  # the typical mistakes that fit
    cause: str | None = None


def judge(
    exercise: Exercise,
    answer: Callable | Source,
    *,
    secret: int = 0,
    spawner: Any = None,
    pool: Ranks | None = None,
    wall_s: float = 60.0,
) -> Verdict:
    """The verdict on a function (an object or a Source). Inputs follow from `secret`; 0 is the public set.

    `spawner` forks the ranks (see allranks.wire.Ranks); a `pool` of 8 ranks may be lent instead, by callers that trust
    the answers not to spoil it for each other. After `wall_s` seconds the remaining cases fail as not run.
    """
    ranks = pool or Ranks(MAX_RANKS, spawner=spawner)
    with _one_thread(), _Bench(exercise, answer, secret, ranks, pool is None, wall_s) as bench:
        ran = _run_cases(exercise, bench)
        _vote(ran)
        return _verdict(exercise, bench, ran)


def judge_text(
    exercise: Exercise, text: str, filename: str = "answer.py", function: str | None = None, **options: Any
) -> Verdict:
    """The verdict on Python text, which runs in the forked ranks only. `function` is its name, if not the exercise's.

    Takes the options of `judge`. Raises SourceError where the text defines no such function.
    """
    return judge(exercise, from_text(text, function or exercise.name, filename), **options)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """The inputs are small: torch's threads would take longer to wake, some hundred times, than the work takes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Bench:
    """Runs one setup after the other in the same forked ranks."""

    def __init__(
        self, exercise: Exercise, answer: Callable | Source, secret: int, pool: Ranks, owned: bool, wall_s: float
    ) -> None:
        self.exercise, self.secret = exercise, secret
        self.deadline = time.monotonic() + wall_s
        self.where = answer.where if isinstance(answer, Source) else lambda line: f"line {line}" if line else ""
        if isinstance(answer, Source):
            text = driver.wrapped(answer.text, answer.function)
            self.program: Any = Program(text, driver.WRAPPER, answer.filename)
        else:
            self.program = functools.partial(driver.call, answer)
        self.delivery = "rendezvous"
        self.blocked: Run | None = None  # the first deadlock that buffered sends would have hidden
        self.pool, self.owned = pool, owned

    def __enter__(self) -> _Bench:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.owned:
            self.pool.close()

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def run(self, setup: Setup, delivery: str | None = None) -> Run:
        """The setup, run once; its inputs are the same every time."""
        calls = []
        for call in range(setup.times):
            rng = torch.Generator().manual_seed(setup.seed(self.secret) + call)
            calls.append(tuple(self.exercise.inputs(setup, rng)))
        cases = [
            [({"environ": _environ(setup, r), "args": [_spec(a) for a in args[r]]},) for args in calls]
            for r in range(setup.ranks)
        ]
        if delivery is None:
            delivery = self.delivery if self.blocked is not None else setup.delivery
        outcome = self.pool.run(
            self.program,
            ranks=setup.ranks,
            per_rank=cases,
            calls=setup.times,
            final_args=False,
            # gloo and NCCL refuse a view with gaps
            rules=Rules(allow=self.exercise.allow, contiguous=True),
            delivery=delivery,
            seed=setup.seed(self.secret),
            alpha=setup.option("_alpha", 1.0),
            beta=setup.option("_beta", 0.0),
            cpu_s=CPU_S,
            wall_s=max(1.0, min(WALL_S, self.left_s)),
        )
        results = []
        for call in range(setup.times):
            values = [_item(v, call) for v in outcome.results]
            results.append(tuple(_result(v, len(views(calls[call][r]))) for r, v in enumerate(values)))
        expected = tuple(tuple(self.exercise.oracle(setup, args)) for args in calls)
        outcome = replace(outcome, results=[])  # they were taken apart
        return Run(self.exercise, setup, tuple(calls), expected, tuple(results), outcome, delivery, self.where)


def _environ(setup: Setup, rank: int) -> dict[str, str]:
    """What a launcher would have set; in a larger job this group is only every third process of it."""
    if setup.outer_world:
        rank, size = 3 * rank + 2, 3 * setup.ranks + 2
    else:
        size = setup.ranks
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}


def _spec(arg: Arg) -> list:
    match arg:
        case View():
            return ["view", arg.base, list(arg.size), list(arg.stride), arg.offset]
        case Parameter():
            return ["parameter", _spec(arg.data)[1:], None if arg.grad is None else _spec(arg.grad)[1:], arg.absent]
        case Tied():
            return ["tied", arg.place]
        case Backward():
            return ["backward", list(arg.order), list(arg.seconds)]
        case Function():
            return ["function", arg.scale, arg.shift]
        case list() | tuple():
            return ["tuple" if isinstance(arg, tuple) else "list", [_spec(item) for item in arg]]
    return ["value", arg]


def _item(values: Any, index: int) -> Any:
    return values[index] if isinstance(values, list | tuple) and index < len(values) else None


def _result(value: Any, tensors: int) -> Result | None:
    """What a rank handed back, taken apart with suspicion: it may have been anything."""
    if not isinstance(value, dict) or not isinstance(value.get("tensors"), list | tuple):
        return None
    states = value["tensors"]
    if len(states) != tensors or not all(isinstance(s, list | tuple) and len(s) == 2 for s in states):
        return None
    for now, base in states:
        if not (now is None or isinstance(now, torch.Tensor)) or not isinstance(base, torch.Tensor):
            return None
    return Result(_decoded(value.get("returned")), tuple((now, base) for now, base in states))


def _decoded(value: Any, depth: int = 0) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2 or depth > 8:
        return None
    kind, inner = value
    if kind in ("list", "tuple") and isinstance(inner, list | tuple):
        items = [_decoded(item, depth + 1) for item in inner]
        return tuple(items) if kind == "tuple" else items
    return inner


def _run_cases(exercise: Exercise, bench: _Bench) -> list[_Ran]:
    ran: list[_Ran] = []
    costly, stop = 0, ""
    for group, setup in itertools.chain.from_iterable([(g.name, s) for s in g.setups] for g in exercise.groups):
        name = f"{group}: {exercise.label(setup)}"
        if not stop and bench.left_s <= 0:
            stop = "not run: the time for this check was used up"
        if stop:
            ran.append(_Ran(group, name, setup, None, stop))
            continue
        run = _run_case(bench, setup)
        entry = _judged(group, name, run, bench)
        if entry.reason:  # what came of it has been told, and may be large
            entry.run = replace(run, results=tuple((None,) * setup.ranks for _ in run.results))
        ran.append(entry)
        reason = entry.reason
        if run.failure is not None and run.failure.kind in FATAL:
            stop = reason
        if run.failure is not None and run.failure.kind in COSTLY:
            costly += 1
            if costly >= MAX_COSTLY:
                stop = f"not run, because of this: {reason}"
    return ran


def _run_case(bench: _Bench, setup: Setup) -> Run:
    run = bench.run(setup)
    if bench.blocked is None and run.failure is not None and run.failure.kind is FailureKind.DEADLOCK:
        # would it be right with sends that return at once? then that is the only fault, and the rest is worth judging
        again = bench.run(setup, delivery="buffered")
        if again.failure is None and not _faults(again):
            bench.blocked, bench.delivery = run, "buffered"
            return again
    return run


def _faults(run: Run) -> list[Fault]:
    for call, (args, expected, results) in enumerate(zip(run.args, run.expected, run.results, strict=True)):
        found = compare.faults(run.exercise.name, args, expected, results, call)
        if found:
            return found
    return []


def _judged(group: str, name: str, run: Run, bench: _Bench) -> _Ran:
    """The case with the reason why it failed, or "" where it passed."""
    entry = _Ran(group, name, run.setup, run, "")
    files = rules.through_files(run)
    if files:
        entry.reason = f"{files}."
    elif run.failure is not None:
        entry.reason = causes.of_failure(run, withhold=bool(bench.secret))
    else:
        entry.faults = _faults(run)
        if entry.faults:
            entry.known = causes.known(run, entry.faults)
            entry.reason = causes.of_faults(entry.faults, None)
    return entry


def _vote(ran: list[_Ran]) -> None:
    """Where several mistakes fit a case, as they do with one element, the one that fits most cases is meant.

    A single number can fit by chance: where others are wrong too, a mistake must fit one of those cases too.
    """
    telling = [r for r in ran if len({index for f in r.faults for index in f.wrong}) > 1]
    if telling:
        fits = {cause for r in telling for cause in r.known}
        for r in ran:
            guesses = {mistake.cause for mistake in r.run.exercise.mistakes} - fits if r.run else set()
            r.known = [cause for cause in r.known if cause not in guesses]
    votes = Counter(cause for r in ran for cause in r.known)
    for r in ran:
        if r.known:
            r.cause = max(r.known, key=lambda cause: votes[cause])  # the first named wins a tie
            r.reason = causes.of_faults(r.faults, r.cause)


def _verdict(exercise: Exercise, bench: _Bench, ran: list[_Ran]) -> Verdict:
    cases = [Case(r.name, not r.reason, r.reason, r.group) for r in ran]
    total = earned = 0.0
    for group in exercise.groups:
        total += group.weight
        earned += group.weight * _credit([r for r in ran if r.group == group.name])
    right = [r.run for r in ran if not r.reason and r.run is not None and r.setup.weighty]
    weighty = sum(r.setup.weighty for r in ran)
    share = len(right) / weighty if weighty else 0.0
    broken: list[tuple[Run, str]] = []
    for rule in exercise.rules:
        total += rule.weight
        runs = [run for run in right if rule.judges(run.setup)]
        breach = next(((run, words) for run in sorted(runs, key=_order) if (words := rule.broken(run))), None)
        if breach is not None:
            broken.append(breach)
            cases.append(Case(rule.name, False, f"{exercise.label(breach[0].setup)}: {breach[1]}", rule.name))
        elif runs:
            earned += rule.weight * share
            cases.append(Case(rule.name, True, "", rule.name))
        else:
            cases.append(Case(rule.name, False, NOT_JUDGED, rule.name))
    if exercise.blocking_weight:
        total += exercise.blocking_weight
        name = "sends that wait for their receiver"
        if bench.blocked is not None:
            reason = f"{exercise.label(bench.blocked.setup)}: {causes.of_failure(bench.blocked, withhold=bool(bench.secret))}"
            cases.append(Case(name, False, reason, name))
        elif right:
            earned += exercise.blocking_weight * share
            cases.append(Case(name, True, "", name))
        else:
            cases.append(Case(name, False, NOT_JUDGED, name))
    passed = all(c.passed for c in cases)
    reason, shown = _headline(exercise, bench, ran, broken)
    trace, label = _trace(exercise, bench, shown, passed)
    svg = (
        shown.failure.svg()
        if shown is not None and shown.failure is not None and shown.failure.kind is FailureKind.DEADLOCK
        else None
    )
    score = 1.0 if passed else min(round(earned / total, 4), 0.99)
    return Verdict(exercise.name, passed, score, tuple(cases), "" if passed else reason, trace, svg, label)


def _credit(ran: list[_Ran]) -> float:
    """The share of a group's cases that passed. One rank or zero elements earn nothing: doing nothing is right there."""
    counted = [r for r in ran if r.setup.weighty or r.reason]
    return sum(not r.reason for r in counted) / len(counted) if counted else 0.0


def _order(run: Run) -> tuple:
    return causes.size_order(run.setup)


def _headline(
    exercise: Exercise, bench: _Bench, ran: list[_Ran], broken: list[tuple[Run, str]]
) -> tuple[str, Run | None]:
    """The one cause to tell first, and the run that shows it."""
    failed = [r for r in ran if r.reason]
    fatal = next(
        (r for r in failed if r.run is not None and r.run.failure is not None and r.run.failure.kind in FATAL), None
    )
    if fatal is not None:
        return fatal.reason, fatal.run
    if bench.blocked is not None and not failed:
        run = bench.blocked
        return f"{exercise.label(run.setup)}: {causes.of_failure(run, withhold=bool(bench.secret))}", run
    tried = [r for r in failed if r.run is not None]
    if tried:
        first = _telling(tried)
        reason, run = first.reason, first.run
        if first.faults:
            deeper = _traced(exercise, bench, run)
            if deeper is not None:
                run = deeper
                if first.cause is None and exercise.explain is not None:
                    reason = exercise.explain(deeper, _faults(deeper)[0]) or reason
        # where nothing travels the cases are other inputs, and no more
        found = [(r.setup, not r.reason) for r in ran if r.run is not None] if exercise.allow else []
        return f"{causes.pattern(found)}{exercise.label(first.setup)}: {reason}", run
    if failed:
        return failed[0].reason, None
    if broken:
        run, words = broken[0]
        return f"{exercise.label(run.setup)}: {words}", run
    return "", None


def _telling(failed: list[_Ran]) -> _Ran:
    """The failed case to show: the smallest one with the most frequent cause."""
    ordered = sorted(failed, key=lambda r: causes.size_order(r.setup))
    wrong = [r for r in ordered if r.faults]
    if not wrong or any(not r.faults and r.setup.weighty for r in ordered[: len(ordered) // 2]):
        return ordered[0]  # mostly failures of the run itself: they come before wrong results
    votes = Counter(r.cause for r in wrong)
    cause = max(votes, key=lambda c: (votes[c], c is not None))
    if cause is not None:
        return next(r for r in wrong if r.cause == cause)
    whole = [r for r in wrong if r.cause is None and r.setup.ranks >= 3 and r.setup.size >= r.setup.ranks]
    return whole[0] if whole else ordered[0]  # with fewer elements than ranks there is little to see of the chunks


def _traced(exercise: Exercise, bench: _Bench, run: Run) -> Run | None:
    """The same case with values that tell where they came from, if it fails with those too."""
    if exercise.chunking == "none":
        return None
    setup = replace(run.setup, dtype="float64", values="provenance")
    again = bench.run(setup, delivery=run.delivery)
    return again if again.failure is None and _faults(again) else None


def _trace(exercise: Exercise, bench: _Bench, shown: Run | None, passed: bool) -> tuple[Any, str]:
    """The student's own messages: of the run that shows the cause, else of the exercise's showcase."""
    if shown is None and not passed:
        return None, ""
    run = shown if shown is not None else bench.run(exercise.showcase)
    return provenance.filled(run), exercise.label(replace(run.setup, values="small", dtype="float32"))

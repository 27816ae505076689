"""Runs the cases of an exercise in forked ranks, one after the other, and finds out why each one failed."""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from allranks.base.progress import counted
from allranks.judge import causes, compare, computed, factor, puts, rules, speed
from allranks.judge.cases import (
    Add,
    Arg,
    Args,
    Backward,
    Blocks,
    Function,
    Multiply,
    Parameter,
    Setup,
    Text,
    Tied,
    Upstream,
    View,
    Work,
    views,
)
from allranks.judge.exercise import Exercise, FaultKind, Result, ResultFault, Run
from allranks.judge.fault import blame_of
from allranks.judge.in_rank import driver
from allranks.judge.source import Source, imported_at, is_installed
from allranks.judge.verdict import Reason
from allranks.ranks.engines.devices import usable_cores
from allranks.ranks.engines.usercode import by_value
from allranks.ranks.wire import Failure, FailureKind, Memory, Program, Ranks, Rules, values
from allranks.ranks.wire.failures import DeadlockCause
from allranks.ranks.wire.router import Pieces
from allranks.ranks.wire.values import raw
from allranks.ranks.wire.wait import NameLine, line_number

CPU_S = 2
WALL_S = 10
# ranks that share few cores reach the limit on their processor time so much before the one on real time
_ON_CORES = 1.25
ENDS_THE_CHECK = frozenset({FailureKind.IMPORT, FailureKind.SYNTAX, FailureKind.NO_FUNCTION})
OVER_A_LIMIT = frozenset({FailureKind.CPU_LIMIT, FailureKind.WALL_LIMIT, FailureKind.MEMORY})
# names in answers that use torch's compiler: at their first call these import it, which takes a rank 2 s
COMPILED = re.compile(
    rb"_functional_collectives|\boptim\b|\bcompile\b|checkpoint|DistributedDataParallel|fully_shard|FullySharded|DTensor|"
    rb"distributed\.tensor|_dynamo"
)
# names in answers that call backward with a gradient: at its first call it imports 480 modules, which takes a rank 0.3 s
AUTOGRAD = re.compile(rb"\bautograd\b|\.backward\b")
AUTOGRAD_PICKLED = re.compile(rb"\bautograd\b|\bbackward\b")
MAX_OVER_A_LIMIT = 1  # after so many runs over a limit the other cases are not run


@dataclass
class CaseResult:
    """One case, its run (None: it was not run), and why it failed. `mistakes` are the known mistakes that fit."""

    group: str
    name: str
    setup: Setup
    run: Run | None
    reason: Reason | None = None
    faults: list[ResultFault] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    mistake: str | None = None  # the one of them that the verdict names
    factor: factor.Factor | None = None

    @property
    def passed(self) -> bool:
        return self.reason is None


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """The inputs are small: to wake torch's threads some hundred times would take longer than the work itself."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class CaseRunner:
    """Runs an answer on one setup after the other, in the ranks of `pool`. The deadline is `wall_s` seconds from now."""

    def __init__(
        self,
        exercise: Exercise,
        answer: Callable | Source,
        pool: Ranks,
        *,
        secret: int,
        wall_s: float,
        nccl: bool = False,
    ) -> None:
        self.exercise, self.pool, self.secret, self.nccl = exercise, pool, secret, nccl
        self.answer = answer
        self.deadline = time.monotonic() + wall_s
        self.where: NameLine = line_number
        if isinstance(answer, Source):
            text = driver.wrapped(answer.text, answer.function)
            self.where = answer.where
            self.program: Program | Callable = Program(text, driver.WRAPPER, answer.filename)
        else:
            self.program = functools.partial(driver.call, answer)
        self.delivery = "rendezvous"
        self.blocked: Run | None = None  # the first deadlock that buffered sends would have hidden
        self.skipped: list[str] = []  # in sentences, the cases that NCCL can't have
        names = _names_in(answer)
        if COMPILED.search(names):
            pool.import_compiler()
        elif (AUTOGRAD if isinstance(answer, Source) else AUTOGRAD_PICKLED).search(names) or self._gives_gradients():
            pool.import_autograd()

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def explain_failure(self, run: Run) -> Reason:
        """Why the run itself failed. With a secret, it leaves out the text of exceptions, which can contain hidden inputs."""
        return causes.explain_failure(run, withhold=bool(self.secret) and not self._lacks_package(run.failure))

    def _lacks_package(self, failure: Failure | None) -> bool:
        """Whether the sentence on it only names a package that the student's line imports, and that is not installed."""
        if failure is None or failure.kind is not FailureKind.IMPORT or not isinstance(self.program, Program):
            return False
        name = failure.missing_name
        return name in imported_at(self.program.source, failure.line) and not is_installed(name)

    def inputs(self, setup: Setup) -> list[tuple[Args, ...]]:
        """The arguments of each rank, for each call: the same every time."""
        calls = []
        for call in range(setup.times):
            calls.append(tuple(self.exercise.inputs(setup, setup.draws(self.secret, call))))
        return calls

    def _gives_gradients(self) -> bool:
        """Whether a rank differentiates what the answer returned."""
        first = self.exercise.groups[0].setups[0].drawn(self.secret)
        return any(isinstance(arg, Upstream) for args in self.inputs(first)[0] for arg in args)

    def lacks(self, setup: Setup) -> str | None:
        """Why NCCL can't have this case: the dtype of its inputs, in a sentence; else None."""
        if not self.nccl:
            return None
        from allranks.ranks.nccl_rules.refusals import NcclRuleError, check_dtype  # it takes time to import

        try:
            for args in self.inputs(setup)[0]:
                for _, view in views(args):
                    check_dtype("skipped", view.base.dtype)
        except NcclRuleError:
            return f"NCCL has no {setup.dtype}, which this case is about."
        return None

    def run(self, setup: Setup, delivery: str | None = None) -> Run:
        """One run of the setup; its inputs are the same every time."""
        calls = self.inputs(setup)
        per_rank = [
            [
                (
                    {
                        "environ": _environ(setup, r),
                        "args": [_describe(a) for a in _before_the_work(args[r])],
                        "call": call,
                        "last": call == setup.times - 1,
                    },
                )
                for call, args in enumerate(calls)
            ]
            for r in range(setup.ranks)
        ]
        if delivery is None:
            delivery = self.delivery if self.blocked is not None else setup.delivery
        outcome = self.pool.run(
            self.program,
            ranks=setup.ranks,
            per_rank=per_rank,
            calls=setup.times,
            final_args=False,
            # gloo and NCCL refuse a view with gaps
            rules=Rules(allow=self.exercise.allow, contiguous=True, nccl=self.nccl, alone=True),
            delivery=delivery,
            seed=setup.order_seed(self.secret),
            alpha=setup.option("_alpha", 1.0),
            beta=setup.option("_beta", 0.0),
            topology=speed.network(setup, calls[0][0]),
            cpu_s=CPU_S,
            wall_s=max(1.0, min(max(WALL_S, _ON_CORES * CPU_S * setup.ranks / usable_cores()), self.left_s)),
            name_line=self.where,
            ahead=True,
            pieces=_pieces(calls),
            memory=next((arg for arg in calls[0][0] if isinstance(arg, Memory)), None),
        )
        results = []
        for call, args in enumerate(calls):
            values = [_item(v, call) for v in outcome.results]
            results.append(tuple(_read_result(v, len(views(args[r]))) for r, v in enumerate(values)))
        expected = tuple(tuple(self.exercise.oracle(setup, args)) for args in calls)
        later = _read_later(outcome.results, calls)
        outcome = replace(outcome, results=[])  # `results` has them now
        return Run(self.exercise, setup, tuple(calls), expected, tuple(results), outcome, delivery, self.where, later)


# ------------------------------------------------------------------------------- what a rank is given and hands back


def _names_in(answer: Callable | Source) -> bytes:
    """The answer's text, or its pickle with all that is sent to the ranks along with it; both have the names that it uses."""
    if isinstance(answer, Source):
        return answer.text.encode(errors="replace")
    try:
        with by_value(answer):
            return values.Pickled(answer).data
    except Exception:  # it can't be sent: the first run says so
        return b""


def _environ(setup: Setup, rank: int) -> dict[str, str]:
    """The variables that a launcher sets. With `outer_world`, rank r of this group is process 3r+2 of a larger job."""
    if setup.outer_world:
        rank, size = 3 * rank + 2, 3 * setup.ranks + 2
    else:
        size = setup.ranks
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}


def _before_the_work(args: Args) -> Args:
    """The arguments without the gradients that a `Backward` or a late `Upstream` among them will bring: the router hands these out."""
    if args and isinstance(args[-1], Upstream) and args[-1].seconds:
        last = args[-1].gradient
        return (*args[:-1], replace(args[-1], gradient=View.of(torch.zeros(last.size, dtype=last.base.dtype))))
    if not any(isinstance(arg, Backward) for arg in args):
        return args
    parameters = [replace(p, grad=View.of(torch.zeros(p.grad.size, dtype=p.grad.base.dtype))) for p in args[0]]
    return (parameters, *args[1:])


def _pieces(calls: Sequence[Sequence[Args]]) -> Pieces | None:
    """For each rank and call what its `Backward`, `Blocks`, `Multiply`, `Add`, `Work` or late `Upstream` make, in order; None if there is none."""
    made: Pieces = [[] for _ in calls[0]]
    for args in calls:
        for rank, own in enumerate(args):
            made[rank].append([piece for arg in own for piece in _made_by(arg, own)])
    return made if any(pieces for rank in made for pieces in rank) else None


def _made_by(arg: Arg, args: Args) -> list[tuple[float, bytes]]:
    """The pieces of work of an argument: virtual seconds, and the bytes of the result."""
    match arg:
        case Backward():
            grads = [args[0][place].grad for place in arg.order]
            return [(seconds, _raw(grad)) for grad, seconds in zip(grads, arg.seconds, strict=True)]
        case Blocks():
            forward = [(arg.seconds, b"")] * len(arg.gradients)
            return [*forward, *((arg.seconds, _raw(gradient)) for gradient in reversed(arg.gradients))]
        case Multiply():
            return [(arg.row_s, b"")] * arg.rows
        case Add():
            return [(arg.element_s, b"")] * arg.elements
        case Work():
            return [(arg.seconds, b"")] * arg.pieces
        case Upstream(seconds=seconds) if seconds:
            return [(seconds, _raw(arg.gradient))]
    return []


def _raw(view: View) -> bytes:
    return bytes(raw(view.tensor().contiguous()))


def _describe(arg: Arg) -> list:
    """The argument as plain data, from which `in_rank/driver.py` builds it."""
    match arg:
        case View():
            return ["view", arg.base, list(arg.size), list(arg.stride), arg.offset]
        case Parameter():
            grad = None if arg.grad is None else _describe(arg.grad)[1:]
            return ["parameter", _describe(arg.data)[1:], grad, arg.absent]
        case Tied():
            return ["tied", arg.place]
        case Backward():
            return ["backward", list(arg.order)]
        case Blocks():
            return ["blocks", arg.order, [view.tensor().numel() for view in arg.gradients]]
        case Upstream():
            return ["upstream", arg.seconds > 0, *_describe(arg.gradient)[1:]]
        case Multiply():
            return ["multiply", arg.weight]
        case Add():
            return ["add"]
        case Work():
            return ["work"]
        case Memory():
            return ["memory"]
        case Function():
            return ["function", arg.scale, arg.shift]
        case list() | tuple():
            return ["tuple" if isinstance(arg, tuple) else "list", [_describe(item) for item in arg]]
        case dict():  # plain data, and much of it: a plain dict without what a subclass knows, pickled, which is quicker
            return ["value", values.Pickled(dict(arg))]
    return ["value", arg]


def _item(values: Any, index: int) -> Any:
    return values[index] if isinstance(values, list | tuple) and index < len(values) else None


def _read_result(value: Any, tensors: int) -> Result | None:
    """What a rank handed back. It may be anything, so every part is checked; None if a part is wrong."""
    if not isinstance(value, dict) or not isinstance(value.get("tensors"), list | tuple):
        return None
    states = value["tensors"]
    if len(states) != tensors or not all(isinstance(s, list | tuple) and len(s) == 2 for s in states):
        return None
    for now, base in states:
        if not (now is None or isinstance(now, torch.Tensor)) or not isinstance(base, torch.Tensor):
            return None
    return Result(_read_returned(value.get("returned")), tuple((now, base) for now, base in states))


def _read_later(results: list, calls: list[tuple[Args, ...]]) -> tuple[tuple[Result | None, ...], ...]:
    """What each call but the last had left on each rank, as it was after the last call."""
    last = [_item(value, len(calls) - 1) for value in results]
    earlier = [value.get("earlier") if isinstance(value, dict) else None for value in last]
    return tuple(
        tuple(_read_result(_item(kept, call), len(views(args[rank]))) for rank, kept in enumerate(earlier))
        for call, args in enumerate(calls[:-1])
    )


def _read_returned(value: Any, depth: int = 0) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2 or depth > 8:
        return None
    kind, inner = value
    if kind in ("list", "tuple") and isinstance(inner, list | tuple):
        items = [_read_returned(item, depth + 1) for item in inner]
        return tuple(items) if kind == "tuple" else items
    return Text(inner[: driver.LONGEST_TEXT]) if kind == "text" and isinstance(inner, str) else inner


# ----------------------------------------------------------------------------------------------------- all cases


def run_cases(runner: CaseRunner) -> list[CaseResult]:
    """Every case of the exercise, with the reason why it failed."""
    found: list[CaseResult] = []
    over_a_limit = 0
    not_run: Reason | None = None  # why the cases that are left are not run
    setups = [(g.name, s.drawn(runner.secret)) for g in runner.exercise.groups for s in g.setups]
    for group, setup in counted(setups, len(setups), "cases"):
        name = f"{group}: {runner.exercise.label(setup)}"
        if not_run is None and runner.left_s <= 0:
            not_run = Reason("not run: the time for this check is used up", ("not run",))
        lacking = runner.lacks(setup)
        if lacking is not None:
            runner.skipped.append(f"{name}: {lacking}")
            continue
        if not_run is not None:
            found.append(CaseResult(group, name, setup, None, not_run))
            continue
        result = _check_run(runner, CaseResult(group, name, setup, None), _run_case(runner, setup))
        found.append(result)
        failure = result.run.failure if result.run is not None else None
        if failure is None or result.reason is None:
            continue
        if failure.kind in ENDS_THE_CHECK:
            not_run = result.reason
        if failure.kind in OVER_A_LIMIT:
            over_a_limit += 1
            if over_a_limit >= MAX_OVER_A_LIMIT:
                not_run = Reason(f"not run, because of this: {result.reason.sentence}", ("not run",))
    if not runner.exercise.allow:
        right = [c.run for c in found if c.passed and c.run is not None]
        for c in found:
            if c.mistakes and c.run is not None:
                c.mistakes = causes.fitting_mistakes(c.run, c.faults, right)
    choose_mistakes(found)
    return found


def _run_case(runner: CaseRunner, setup: Setup) -> Run:
    run = runner.run(setup)
    if runner.blocked is None and run.failure is not None and run.failure.kind is FailureKind.DEADLOCK:
        # try sends that return at once: if the result is right, this is the only mistake; use them in the other cases too
        again = runner.run(setup, delivery="buffered")
        if again.failure is not None and again.failure.kind is FailureKind.UNMATCHED:
            return again  # the circle would open, but a receive is missing: that is the cause
        if _names_another_cause(run.failure, again.failure):
            return again  # a circle of sends, but one of them goes to a rank that does not receive it
        if again.failure is not None and causes.meets_an_empty_message(again.failure):
            return again  # the circle would open, but a message without elements would be taken for another one
        if again.failure is None and not result_faults(again):
            runner.blocked, runner.delivery = run, "buffered"
            return again
    return run


def _names_another_cause(waiting: Failure, at_once: Failure | None) -> bool:
    """Whether ranks that wait in sends are still stuck with sends that return at once, and the log says who names the wrong rank."""
    if waiting.cause not in causes.SENDS_FIRST or at_once is None:
        return False
    return at_once.kind is FailureKind.LEFT_EARLY or at_once.cause is DeadlockCause.CROSSED


def result_faults(run: Run) -> list[ResultFault]:
    """The faults of the first call that has any, at most one for each rank. Wrong weights are told before what came of them."""
    if computed_with := computed.faults(run):
        return computed_with
    for call, (args, expected, results) in enumerate(zip(run.args, run.expected, run.results, strict=True)):
        found = compare.faults(run.exercise.name, args, expected, results, call, run.exercise.arguments)
        if found:
            return found
    for call, results in enumerate(run.later):
        found = compare.changed_later(run.exercise.name, run.args[call], run.expected[call], results, call)
        if found:
            return found
    return []


def _check_run(runner: CaseRunner, case: CaseResult, run: Run) -> CaseResult:
    """The case with its run, and with the reason why it failed, if it did."""
    written = rules.writes_files(run)
    if written:
        case.reason = Reason(f"{written}.", ("writes files",), blame=blame_of(written))
    elif run.failure is not None:
        case.reason = runner.explain_failure(run)
    else:
        case.faults = result_faults(run)
        if case.faults and (raced := puts.cause(run)):
            case.mistake = raced
            case.reason = causes.explain_faults(run, case.faults, raced, messages=False)
        elif case.faults:
            case.mistakes = causes.fitting_mistakes(run, case.faults)
            case.factor = factor.factor(run, case.faults) if run.setup.earns_credit else None
            case.reason = causes.explain_faults(run, case.faults, None, messages=bool(run.exercise.allow))
    # the results of a failed run are not needed any more where they are tensors, and may be large
    case.run = (
        run
        if case.passed or not run.exercise.allow
        else replace(run, results=tuple((None,) * run.ranks for _ in run.results), later=())
    )
    return case


def choose_mistakes(cases: list[CaseResult]) -> None:
    """Where several mistakes fit a case, as they do with one element, takes the one that fits most cases.

    One wrong number can fit a mistake by chance. So if other cases have several wrong numbers, a mistake must fit
    one of those cases too.
    """
    clear = [c for c in cases if len({index for f in c.faults for index in f.wrong}) > 1]
    if clear:
        confirmed = {mistake for c in clear for mistake in c.mistakes}
        for c in cases:
            guesses = _own_causes(c) - confirmed
            c.mistakes = [mistake for mistake in c.mistakes if mistake not in guesses]
    _drop_contradicted(cases)
    _drop_lost_digits(cases)
    _drop_other_shape(cases)
    votes = Counter(mistake for c in cases for mistake in c.mistakes)
    fits = {mistake: [c.name for c in cases if mistake in c.mistakes] for mistake in votes}
    for c in cases:
        if c.mistakes:
            best = max(c.mistakes, key=lambda mistake: (votes[mistake], not causes.on_some_ranks(mistake)))
            # where the results can't tell two apart, both are said, but what fits every rank says more than what fits some
            own = [
                m for m in c.mistakes if m in _own_causes(c) and causes.on_some_ranks(m) is causes.on_some_ranks(best)
            ]
            equal = [m for m in own if fits[m] == fits[best]] if best in own else []
            c.mistake = f"probably {'; or '.join(equal[:2])}" if len(equal) > 1 else best
    _name_factors(cases)
    for c in cases:
        if c.mistake and c.run is not None:
            c.reason = causes.explain_faults(c.run, c.faults, c.mistake, messages=bool(c.run.exercise.allow))


def _own_causes(case: CaseResult) -> set[str]:
    """The exercise's own causes among those that fit, and not those that look the same in every exercise."""
    known = tuple(m.cause for m in case.run.exercise.mistakes) if case.run else ()
    return {cause for cause in case.mistakes if cause.endswith(known)} if known else set()


def _drop_contradicted(cases: list[CaseResult]) -> None:
    """Drops a mistake that fits some cases by chance: a like case is wrong in another way.

    With fewer ranks than where it fits, it must be a case that no mistake fits, and that this one would have made wrong.
    """
    plain = [c for c in cases if c.faults and c.setup.earns_credit and not causes.simplest_first(c.setup)[1]]
    own = {cause for c in plain for cause in _own_causes(c)}
    contradicted = set()
    for mistake in {m for c in plain for m in c.mistakes} & own:
        least = min(c.setup.ranks for c in plain if mistake in c.mistakes)
        others = [c for c in plain if mistake not in c.mistakes and _is_whole(c)]
        if any(c.setup.ranks > least or (not c.mistakes and _would_show(c, mistake)) for c in others):
            contradicted.add(mistake)
    # what fits special cases only, though it would show in more of the others, fits by chance
    failed = [c for c in cases if c.faults and c.setup.earns_credit and _is_whole(c)]
    for mistake in {m for c in cases if c.faults for m in _own_causes(c)} - own:
        fits = sum(mistake in c.mistakes for c in cases)
        others = [c for c in failed if not c.mistakes and _would_show(c, mistake)]
        if any(c in plain for c in others) or len(others) > fits:
            contradicted.add(mistake)
    for c in cases:
        c.mistakes = [m for m in c.mistakes if m not in contradicted]


def _would_show(case: CaseResult, mistake: str) -> bool:
    return case.run is not None and causes.would_show(case.run, mistake)


def _drop_lost_digits(cases: list[CaseResult]) -> None:
    """Drops the cause that digits were lost, if a like case is wrong by more than that."""
    whole = [c for c in cases if c.faults and c.setup.dtype in ("float32", "float64")]
    if any(not c.mistakes for c in whole):
        for c in cases:
            c.mistakes = [mistake for mistake in c.mistakes if not mistake.startswith(causes.NARROWER)]


def _drop_other_shape(cases: list[CaseResult]) -> None:
    """Drops the cause that only the shape is wrong, if other cases have another number of elements too."""
    of_shape = [c for c in cases if c.faults and c.faults[0].kind is FaultKind.SHAPE]
    if any(causes.CommonMistake.OTHER_SHAPE not in c.mistakes for c in of_shape):
        for c in cases:
            c.mistakes = [mistake for mistake in c.mistakes if mistake != causes.CommonMistake.OTHER_SHAPE]


def _is_whole(case: CaseResult) -> bool:
    """Whether a mistake shows as it does elsewhere: each rank has an element at least, or two where the size is that of a rank.

    With fewer, other ranks than usual are wrong, or in another way.
    """
    each = case.run is not None and case.run.exercise.unit.endswith(" a rank")
    return case.setup.size >= (2 if each else case.setup.ranks) and not case.setup.root


def _name_factors(cases: list[CaseResult]) -> None:
    """For cases that no mistake fits: what the results are a multiple of."""
    unnamed = [(c, c.factor) for c in cases if c.factor is not None and not c.mistake]
    common = factor.in_words([(c.setup, found) for c, found in unnamed])
    for c, found in unnamed:
        c.mistake = common or factor.of_one(c.setup, found)

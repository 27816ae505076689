"""Runs an answer on one case after the other, in forked ranks. What came of it is judged elsewhere."""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from allranks.judge import speed
from allranks.judge.cases import Args, Setup, Text, Upstream, views
from allranks.judge.exercise import Exercise, Result, Run
from allranks.judge.in_rank import arguments, driver
from allranks.judge.source import Source, imported_at, is_installed
from allranks.ranks.engines.devices import usable_cores
from allranks.ranks.engines.usercode import by_value
from allranks.ranks.wire import Failure, FailureKind, Memory, Program, Ranks, Rules, values
from allranks.ranks.wire.router import Pieces
from allranks.ranks.wire.wait import NameLine, line_number

CPU_S = 2
WALL_S = 10
# ranks that share few cores reach the limit on their processor time so much before the one on real time
_ON_CORES = 1.25
ENDS_THE_CHECK = frozenset({FailureKind.IMPORT, FailureKind.SYNTAX, FailureKind.NO_FUNCTION})
OVER_A_LIMIT = frozenset({FailureKind.CPU_LIMIT, FailureKind.WALL_LIMIT, FailureKind.MEMORY})  # they also end it
# names in answers that use torch's compiler: at their first call these import it, which takes a rank 2 s
COMPILED = re.compile(
    rb"_functional_collectives|\boptim\b|\bcompile\b|checkpoint|DistributedDataParallel|fully_shard|FullySharded|DTensor|"
    rb"distributed\.tensor|_dynamo"
)
# names in answers that call backward with a gradient: at its first call it imports 480 modules, which takes a rank 0.3 s
AUTOGRAD = re.compile(rb"\bautograd\b|\.backward\b")
AUTOGRAD_PICKLED = re.compile(rb"\bautograd\b|\bbackward\b")


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
        self.wall_s, self.deadline = wall_s, time.monotonic() + wall_s
        self.cut = False  # whether the last run was given less time than the first one, since others had used it
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

    def withholds(self, run: Run) -> bool:
        """With a secret, the text of exceptions is left out, which can contain hidden inputs."""
        return bool(self.secret) and not self._lacks_package(run.failure)

    def _lacks_package(self, failure: Failure | None) -> bool:
        """Whether the sentence on it only names a package that the student's line imports, and that is not installed."""
        if failure is None or failure.kind is not FailureKind.IMPORT or not isinstance(self.program, Program):
            return False
        name = failure.missing_name
        return name in imported_at(self.program.source, failure.line) and not is_installed(name)

    def inputs(self, setup: Setup) -> list[tuple[Args, ...]]:
        """The arguments of each rank, for each call: the same every time."""
        drawn = (setup.draws(self.secret, call) for call in range(setup.times))
        return [tuple(self.exercise.inputs(setup, one)) for one in drawn]

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
                        "args": [arguments.describe(a) for a in args[r]],
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
        own_s = min(self.wall_s, max(WALL_S, _ON_CORES * CPU_S * setup.ranks / usable_cores()))
        wall_s = max(1.0, min(own_s, self.left_s))
        self.cut = wall_s < own_s
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
            wall_s=wall_s,
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


def _pieces(calls: Sequence[Sequence[Args]]) -> Pieces | None:
    """For each rank and call the pieces of work of its arguments; None if there is none."""
    made: Pieces = [[arguments.pieces(args[rank]) for args in calls] for rank in range(len(calls[0]))]
    return made if any(pieces for rank in made for pieces in rank) else None


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
    lists = value.get("lists", ())
    if not isinstance(lists, list | tuple) or not all(isinstance(place, int) for place in lists):
        return None
    return Result(_read_returned(value.get("returned")), tuple((now, base) for now, base in states), tuple(lists))


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

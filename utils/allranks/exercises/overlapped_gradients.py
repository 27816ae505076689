"""overlapped_gradients(parameters, bucket_bytes, backward): averages gradients while backward() computes others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from allranks.exercises.families import buckets
from allranks.exercises.families.buckets import SHAPES
from allranks.judge import rules
from allranks.judge.cases import Args, Backward, Expected, Parameter, Setup, View, draw
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run
from allranks.ranks.wire.wait import Doing

LAYER_S = 8.0  # of virtual time; with alpha = 1 an all_reduce among p ranks takes 2(p-1)


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    shapes = setup.option("_shapes")
    data = [draw(setup, rng, *shape) for shape in shapes]
    for rank in range(setup.ranks):
        order = setup.option("_orders", {}).get(rank, tuple(reversed(range(len(shapes)))))
        slow = setup.option("_slow", {}).get(rank, 1)
        parameters = [
            Parameter(View.of(d), View.of(draw(setup, rng.of_rank(rank), *d.shape)), absent=True) for d in data
        ]
        backward = Backward(order, tuple(slow * LAYER_S for _ in shapes))
        yield parameters, setup.option("bucket_bytes"), backward


def _own(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    mine = buckets.own(args)
    return buckets.expect(setup, args, lambda i, rank: mine[rank][i])


def _once(run: Run) -> str | None:
    """backward() must have been called once in each call: the router hands out each gradient once."""
    for rank in range(run.ranks):
        took = [e.end - e.start for e in run.outcome.trace if e.op == "compute" and e.rank == rank]
        wanted = [s for args in run.args for s in args[rank][2].seconds]
        if len(took) != len(wanted):
            return f"rank {rank} computes {len(took)} gradients, but there are {len(wanted)}: call backward(ready) once"
    return None


def _launched_when_ready(run: Run) -> str | None:
    """Each bucket's all_reduce must start as soon as the slowest rank has all gradients of it and of the buckets before."""
    works = _computing(run)
    for call, args in enumerate(run.args):
        plan = buckets.buckets(args[0])
        ready = [_ready(plan, args[rank][2].order, works[rank][call]) for rank in range(run.ranks)]
        for number, bucket in enumerate(plan):
            launched = _launches(run, 0, call)[number]  # an all_reduce starts when the last rank has launched it
            if launched.start <= max(times[number] for times in ready):
                continue
            late = [
                sum(ready[rank][number] < end <= launched.start for end in works[rank][call])
                for rank in range(run.ranks)
            ]
            rank = late.index(max(late))
            why = (
                f"{late[rank]} more gradient{' was' if late[rank] == 1 else 's were'} computed before it. Launch it inside ready(), as "
                "soon as its last gradient and the buckets before it are there: one ready() may launch several"
            )
            if not late[rank]:  # the last rank to launch it computed nothing in that time, so it waited
                waited = next(e for e in run.outcome.trace if e.op == "wait" and e.end == launched.start)
                rank = waited.rank
                why = (
                    f"rank {rank} is in a wait until then{run.at(waited.line)}. Launch every complete bucket before "
                    "any wait(), and call wait() after backward()"
                )
            entry = _launches(run, rank, call)[number]
            return About(
                f"bucket {number} of rank {rank} (the gradients {_listed(bucket)}) is complete, and its all_reduce is not "
                f"launched at once{run.at(entry.line)}: {why}",
                entry,
            )
    return None


def _no_early_wait(run: Run) -> str | None:
    """No rank may wait before it has its last gradient: the wait belongs behind backward()."""
    works = _computing(run)
    for rank in range(run.ranks):
        idle = [e for e in run.outcome.trace if e.op == "wait" and e.rank == rank]
        for ends in works[rank]:
            begin, end = ends[0], ends[-1]
            early = next((e for e in idle if begin <= e.start < end), None)
            if early is not None:
                left = sum(e > early.start for e in ends)
                return About(
                    f"rank {rank} waits for an all_reduce{run.at(early.line)} while {left} gradients are still to be computed: nothing "
                    "overlaps that wait. Keep the handles that async_op=True returns, and call wait() after backward()",
                    early,
                )
    return None


def _computing(run: Run) -> list[list[list[float]]]:
    """When each gradient was ready, in virtual seconds: [rank][call], in the order of readiness."""
    made = []
    for rank in range(run.ranks):
        ends = [e.end for e in run.outcome.trace if e.op == "compute" and e.rank == rank]
        count = len(ends) // run.setup.times
        made.append([ends[k * count : (k + 1) * count] for k in range(run.setup.times)])
    return made


def _ready(plan: list[list[int]], order: Sequence[int], ends: Sequence[float]) -> list[float]:
    """When each bucket may be launched: it and all buckets before it are complete, since all ranks launch in one order."""
    at = dict(zip(order, ends, strict=True))
    times: list[float] = []
    for bucket in plan:
        times.append(max([at[i] for i in bucket] + times[-1:]))
    return times


def _launches(run: Run, rank: int, call: int) -> list:
    """The trace's events of the all_reduces of a rank in one call, in the order of their launch."""
    events = sorted((e for e in run.outcome.trace if e.op == "all_reduce" and e.rank == rank), key=lambda e: e.start)
    before = sum(len(buckets.reduces(run, rank, k)) for k in range(call))
    return events[before : before + len(buckets.reduces(run, rank, call))]


def _advice_on_order(run: Run) -> str:
    """What the launches say where the ranks call all_reduce in different orders, or not equally often."""
    failure = run.outcome.failure
    if failure is None or not run.setup.option("_orders"):
        return ""
    call = failure.call or 0
    right = buckets.numels(run.args[call][0])
    launched = [[e.numel for e in buckets.reduces(run, rank, call)] for rank in range(run.ranks)]
    told = "Here the gradients come in another order on some rank."
    for wait in failure.waits:
        mine = launched[wait.rank]
        if wait.doing is Doing.RETURNED and len(mine) < len(right) and mine == right[: len(mine)]:
            return (
                f"{told} Rank {wait.rank} launched {len(mine)} of {len(right)} buckets, in the right order, and returned: every bucket must be "
                "launched. One may be complete before its turn comes: after each launch look whether the next bucket is complete too."
            )
    if all(mine == right[: len(mine)] for mine in launched):
        return told
    return (
        f"{told} Collectives are matched in the order of the calls, so a complete bucket probably was launched before a bucket that "
        "stands in front of it."
    )


def _listed(places: Sequence[int]) -> str:
    return ", ".join(map(str, places))


def _if_buckets_right(breach: Callable[[Run], str | None]) -> Callable[[Run], str | None]:
    """The rule, for runs whose buckets are right; the rule on buckets tells of the others."""
    return lambda run: None if buckets.one_all_reduce_each(run) else _once(run) or breach(run)


def _case(ranks: int, cap: int, **own: Any) -> Setup:
    words = [f"on rank {r} they come in the order {_listed(order)}" for r, order in own.get("orders", {}).items()]
    words += [f"rank {r} is slow" for r in own.get("slow", {})]
    return buckets.case(ranks, SHAPES, cap, words=words, **{f"_{name}": value for name, value in own.items()})


EXERCISE = Exercise(
    name="overlapped_gradients",
    promise="averages the gradients over the ranks while backward() computes the others",
    groups=(
        *buckets.FIRST_GROUPS,
        Group("any bucket size", 1, (_case(3, 4), _case(2, 20), _case(2, 10**6))),
        Group(
            "gradients that come in another order",
            2,
            (
                _case(3, 40, orders={1: (4, 2, 3, 1, 0)}),
                _case(2, 16, orders={0: (3, 4, 1, 2, 0)}),
                _case(3, 24, orders={2: (0, 1, 2, 3, 4)}),
            ),
        ),
        Group("a slow rank", 1, (_case(3, 32, slow={1: 3}), _case(4, 20, slow={3: 2}))),
        *buckets.LAST_GROUPS,
    ),
    inputs=_inputs,
    oracle=buckets.mean_oracle,
    allow=frozenset({"all_reduce"}),
    rules=(
        rules.in_dtype(0),
        Rule("one all_reduce a bucket, each full", 2, buckets.one_all_reduce_each),
        # a rank that waits too early also launches too late, so this rule comes first
        Rule("no rank waits before backward is over", 6, _if_buckets_right(_no_early_wait)),
        Rule("each bucket launched as soon as it is complete", 6, _if_buckets_right(_launched_when_ready)),
    ),
    mistakes={
        "divided by the number of buckets instead of the number of ranks": buckets.divided_by(
            lambda args: len(buckets.buckets(args))
        ),
        "the last bucket was never reduced, or never copied back: it is seldom full when backward() returns": [
            buckets.last_left(divided, late) for late in (False, True) for divided in (False, True)
        ],
        "each rank's own gradients: nothing was reduced, or what the all_reduce brought was never copied back": _own,
    },
    unit="parameter",
    collective="all_reduce",
    algorithm="bucketed, overlapped",
    demo_setup=_case(4, 32),
    only_sums=True,
    forbidden_advice="One dist.all_reduce(..., async_op=True) a bucket is all that it needs.",
    call_advice=_advice_on_order,
)

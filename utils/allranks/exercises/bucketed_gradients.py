"""bucketed_gradients(parameters, bucket_bytes): averages every .grad, in reverse order, one all_reduce a bucket."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from allranks.exercises.checking import rules
from allranks.exercises.checking.cases import Args, Expected, Parameter, Setup, View, draw, plain
from allranks.exercises.checking.exercise import Exercise, Group, Mistake, Rule, Run


def _inputs(setup: Setup, rng: torch.Generator) -> list[Args]:
    shapes, frozen = setup.option("_shapes"), setup.option("_frozen", ())
    data = [draw(setup, rng, *shape) for shape in shapes]
    made = []
    for _ in range(setup.ranks):
        grads = [None if i in frozen else View.of(draw(setup, rng, *shape)) for i, shape in enumerate(shapes)]
        made.append(
            ([Parameter(View.of(d), g) for d, g in zip(data, grads, strict=True)], setup.option("bucket_bytes"))
        )
    return made


def _grads(args: Sequence[Args]) -> list[list[torch.Tensor | None]]:
    return [[p[1] for p in plain(a[0])] for a in args]


def _means(setup: Setup, args: Sequence[Args]) -> list[torch.Tensor | None]:
    wide = [[None if g is None else g.double() for g in grads] for grads in _grads(args)]
    return [None if column[0] is None else torch.stack(column).mean(0) for column in zip(*wide, strict=True)]


def _expect(setup: Setup, args: Sequence[Args], make) -> list[Expected]:
    """`make(i, rank)` is gradient i on that rank, or None where it stays."""
    kind = args[0][0][0].data.base.dtype
    made = []
    for rank in range(setup.ranks):
        changed = {}
        for i, parameter in enumerate(args[rank][0]):
            values = None if parameter.grad is None else make(i, rank)
            if values is not None:
                changed[0, i, "grad"] = values.to(kind)
        made.append(Expected(None, changed, 16 * torch.finfo(kind).eps * 10))
    return made


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    means = _means(setup, args)
    return _expect(setup, args, lambda i, rank: means[i])


def _sums(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    means = _means(setup, args)
    return _expect(setup, args, lambda i, rank: means[i] * setup.ranks)


def _last_bucket_left(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    means, own = _means(setup, args), _grads(args)
    last = _buckets(args[0])[-1]
    return _expect(setup, args, lambda i, rank: own[rank][i] if i in last else means[i])


def _buckets(args: Args) -> list[list[int]]:
    """The parameters' indices by bucket: filled from the last parameter on, closed before the cap would be passed."""
    parameters, cap = args
    found: list[list[int]] = []
    room = 0
    for i in reversed(range(len(parameters))):
        grad = parameters[i].grad
        if grad is None:
            continue
        nbytes = grad.tensor().numel() * grad.base.element_size()
        if not found or nbytes > room:
            found.append([])
            room = cap
        found[-1].append(i)
        room -= nbytes
    return found


def _one_a_bucket(run: Run) -> str | None:
    missing = rules.went_round_the_wire(run)
    if missing:
        return missing
    for call, args in enumerate(run.args):
        parameters = args[0][0]
        right = [sum(parameters[i].grad.tensor().numel() for i in bucket) for bucket in _buckets(args[0])]
        size = parameters[0].data.base.element_size()
        for rank in range(run.ranks):
            mine = [e for e in run.collectives if e.rank == rank and e.call == call]
            counts = [e.numel for e in mine]
            if counts == right:
                continue
            at = run.at(mine[0].line) if mine else ""
            if any(n * size > run.setup.option("bucket_bytes") and n not in right for n in counts):
                return f"a bucket of rank {rank} is over the cap of {run.setup.option('bucket_bytes')} bytes{at}"
            if sorted(counts) == sorted(right) and counts != right:
                return f"the buckets of rank {rank} go in the wrong order{at}: the last parameter's gradient is ready first"
            many = "more" if len(counts) > len(right) else "fewer" if len(counts) < len(right) else "other"
            return (
                f"rank {rank} calls all_reduce {len(counts)} times{at}, {many} than the {len(right)} buckets: fill each "
                "from the last parameter on, and close it only when the next gradient would pass the cap"
            )
    return None


def _case(ranks: int, shapes: tuple, cap: int, dtype: str = "float32", frozen: tuple = (), **more) -> Setup:
    setup = Setup(
        ranks, len(shapes), dtype, note="sizes " + ", ".join(str(math.prod(s)) for s in shapes), **more
    ).with_options(bucket_bytes=cap, _shapes=shapes)
    return setup.with_options(_frozen=frozen) if frozen else setup


SOME = ((4,), (2, 3), (5,), (3,), (2, 2))

EXERCISE = Exercise(
    name="bucketed_gradients",
    promise="averages the gradients over the ranks, bucket by bucket from the last parameter on",
    groups=(
        Group("right average", 3, (_case(2, ((3,), (2,)), 1000), _case(3, SOME, 40), _case(4, SOME, 32))),
        Group("any rank count", 1, (_case(1, SOME, 40), _case(5, SOME, 40), _case(8, ((3,), (4,)), 16))),
        Group(
            "any bucket size",
            2,
            (
                _case(3, SOME, 4),
                _case(3, SOME, 20),
                _case(2, SOME, 10**6),
                _case(3, ((2,), (30,), (2,)), 24),
                _case(2, ((4,), (4,), (4,), (4,)), 32),
            ),
        ),
        Group("frozen parameters", 1, (_case(3, SOME, 40, frozen=(1,)), _case(2, SOME, 24, frozen=(0, 4)))),
        Group("any dtype", 1, (_case(3, SOME, 64, "float64", values="random"), _case(2, SOME, 16, "bfloat16"))),
        Group("any circumstances", 1, (_case(3, SOME, 40, times=2), _case(3, SOME, 40, outer_world=True))),
    ),
    inputs=_inputs,
    oracle=_oracle,
    allow=frozenset({"all_reduce"}),
    rules=(Rule("one all_reduce a bucket, each full", 4, _one_a_bucket),),
    mistakes=(
        Mistake("the sum instead of the mean of the gradients", _sums),
        Mistake("the last bucket was never reduced: it is seldom full when the loop ends", _last_bucket_left),
    ),
    unit="parameter",
    collective="all_reduce",
    algorithm="bucketed",
    chunking="none",
    showcase=_case(4, SOME, 40),
    instead="One dist.all_reduce a bucket is all that it needs.",
)

"""bucketed_gradients(parameters, bucket_bytes): averages every .grad, in reverse order, one all_reduce a bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from allranks.exercises.families import buckets
from allranks.exercises.families.buckets import SHAPES, absent_advice
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Parameter, Setup, Tied, View, draw, oracle_maker
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Rule


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    shapes, frozen, tied = setup.option("_shapes"), setup.option("_frozen", ()), setup.option("_tied", ())
    data = [draw(setup, rng, *shape) for shape in shapes]
    for i in setup.option("_zero", ()):
        data[i] = torch.zeros_like(data[i])
    for rank in range(setup.ranks):
        grads = [
            None if i in frozen else View.of(draw(setup, rng.of_rank(rank), *shape)) for i, shape in enumerate(shapes)
        ]
        parameters: list = [Parameter(View.of(d), g) for d, g in zip(data, grads, strict=True)]
        for i in setup.option("_unused", {}).get(rank, ()):
            parameters[i] = replace(parameters[i], grad=View.of(torch.zeros_like(data[i])), absent=True)
        yield parameters + [Tied(i) for i in tied], setup.option("bucket_bytes")


def _others_only(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right mean, but a rank that did not use a parameter has no gradient for it."""
    if not setup.option("_unused"):
        raise ValueError("every rank uses every parameter")
    right = buckets.means(args)
    here = [buckets.trainable(a) for a in args]
    return buckets.expect(setup, args, lambda i, rank: None if here[rank][i].absent else right[i])


@oracle_maker
def _equal_taken_for_tied(setup: Setup, args: Sequence[Args], last: bool) -> list[Expected]:
    """Of parameters with equal values only the first, or only the `last`, is reduced."""
    equal = setup.option("_zero")
    if not equal:
        raise ValueError("all values differ")
    right, mine, kept = buckets.means(args), buckets.own(args), equal[-1 if last else 0]
    return buckets.expect(setup, args, lambda i, rank: mine[rank][i] if i in equal and i != kept else right[i])


def _case(ranks: int, shapes: tuple, cap: int, dtype: str = "float32", **own: Any) -> Setup:
    words = []
    if "unused" in own:
        words.append("; ".join(f"parameter {i[0]} unused on rank {r}" for r, i in own["unused"].items()))
    if "tied" in own:
        words.append(f"parameter {own['tied'][0]} tied to the last place")
    if "zero" in own:
        words.append(f"parameters {' and '.join(map(str, own['zero']))} are zero, not tied")
    return buckets.case(ranks, shapes, cap, dtype, words, **{f"_{name}": value for name, value in own.items()})


EXERCISE = Exercise(
    name="bucketed_gradients",
    promise="averages the gradients over the ranks, bucket by bucket from the last parameter on",
    groups=(
        *buckets.FIRST_GROUPS,
        Group(
            "any bucket size",
            2,
            (
                _case(3, SHAPES, 4),
                _case(3, SHAPES, 20),
                _case(2, SHAPES, 10**6),
                _case(3, ((2,), (30,), (2,)), 24),
                _case(2, ((4,), (4,), (4,), (4,)), 32),
            ),
        ),
        Group("frozen parameters", 1, (_case(3, SHAPES, 40, frozen=(1,)), _case(2, SHAPES, 24, frozen=(0, 4)))),
        Group(
            "parameters unused on some ranks",
            2,
            (
                _case(3, SHAPES, 40, unused={1: (2,)}),
                _case(4, SHAPES, 24, unused={0: (4,), 3: (0,)}),
                _case(2, SHAPES, 20, "bfloat16", unused={1: (2,)}),
            ),
        ),
        Group(
            "tied parameters",
            2,
            (
                _case(3, SHAPES, 40, tied=(0,)),
                _case(2, ((4,), (3,), (2,)), 24, tied=(0,)),
                _case(3, ((3,), (2, 2), (3,)), 16, zero=(0, 2)),
            ),
        ),
        *buckets.LAST_GROUPS,
    ),
    inputs=_inputs,
    oracle=buckets.mean_oracle,
    allow=frozenset({"all_reduce"}),
    rules=(Rule("one all_reduce a bucket, each full", 10, buckets.one_all_reduce_each), rules.in_dtype(0)),
    mistakes={
        "divided by the number of parameters instead of the number of ranks": buckets.divided_by(
            lambda args: len(args[0])
        ),
        "divided by the number of buckets instead of the number of ranks": buckets.divided_by(
            lambda args: len(buckets.buckets(args))
        ),
        "the last bucket was never reduced, or never copied back: it is seldom full when the loop ends": [
            buckets.last_left(divided, late) for late in (False, True) for divided in (False, True)
        ],
        "a gradient that did not fit into a bucket was left out: it "
        "must be the first of the next bucket": buckets.left_out_oracle,
        "a parameter with the same values as another one was taken for a tied one: tied is only the same object, "
        "twice in the list": [_equal_taken_for_tied(last) for last in (False, True)],
        "a rank that did not use a parameter must get the mean too: give it a .grad": _others_only,
    },
    unit="parameter",
    collective="all_reduce",
    algorithm="bucketed",
    demo_setup=_case(4, SHAPES, 40),
    only_sums=True,
    forbidden_advice="One dist.all_reduce a bucket is all that it needs.",
    call_advice=absent_advice,
)

"""mean_loss(loss, count) -> Tensor: the sum of all ranks' losses over the sum of their counts, elementwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from allranks.exercises.families import steadied
from allranks.judge import rules
from allranks.judge.cases import DTYPES, Args, Expected, Setup, View, draw, oracle_maker, plain, shape_of
from allranks.judge.common import LAYOUTS, circumstances, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Rule


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    shape = shape_of(setup)
    for rank in range(setup.ranks):
        mine = rng.of_rank(rank)
        count = mine.integers(1, 9, *shape).to(DTYPES[setup.dtype])
        yield View.of(draw(setup, mine, *shape), setup.layout), View.of(count, setup.layout)


@oracle_maker
def _oracle_from(
    setup: Setup, args: Sequence[Args], make: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
) -> list[Expected]:
    """An oracle from `make(losses, counts, rank)`, (p, ...) each, in float64."""
    kind = args[0][0].base.dtype
    losses, counts = (torch.stack([plain(a[i]).double() for a in args]) for i in (0, 1))
    atol = float(losses.abs().sum() + 1) * torch.finfo(kind).eps * 8
    return [Expected(make(losses, counts, rank).to(kind), {}, atol) for rank in range(setup.ranks)]


def _swapped(losses: torch.Tensor, counts: torch.Tensor, rank: int) -> torch.Tensor:
    """The last rank makes its two calls in the other order, so its loss is added to the others' counts."""
    mixed = losses[:-1].sum(0) + counts[-1]
    other = counts[:-1].sum(0) + losses[-1]
    return other / mixed if rank == len(losses) - 1 else mixed / other


EXERCISE = Exercise(
    name="mean_loss",
    promise="returns the mean loss over all samples of all ranks",
    groups=(
        Group("right mean", 4, (Setup(2, 1), Setup(3, 1), Setup(4, 3))),
        Group("any rank count", 1, (Setup(1, 2), Setup(5, 1), Setup(8, 2))),
        many_ranks(),
        Group("any dtype", 1, (Setup(3, 4, "float64", values="random"), Setup(2, 2, values="random"))),
        Group("any layout", 1, LAYOUTS),
        circumstances(Setup(3, 2)),
    ),
    inputs=_inputs,
    oracle=_oracle_from(lambda losses, counts, rank: losses.sum(0) / counts.sum(0)),
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("at most two all_reduces", 1, lambda run: rules.calls(run, "all_reduce", "two are enough", most=2)),
        rules.in_dtype(0, whole=True),
        rules.exchanged(rules.times(lambda p: 2)),
    ),
    mistakes={
        "the last rank's loss was added to the others' counts: every rank "
        "must make its calls in the same order": _oracle_from(_swapped),
        "the mean of the ranks' means: a rank with many samples counts as one with few": _oracle_from(
            lambda a, b, rank: (a / b).mean(0)
        ),
        "the sum of the ranks' means": _oracle_from(lambda a, b, rank: (a / b).sum(0)),
        "the counts were never summed, or their sum was not used": _oracle_from(lambda a, b, rank: a.sum(0) / b[rank]),
    },
    collective="all_reduce",
    demo_setup=Setup(4, 2),
    only_sums=True,
    forbidden_advice="dist.all_reduce is all that it needs.",
)
EXERCISE = steadied(EXERCISE, {"": lambda setup: setup.ranks > 1 and setup.size > 0})

"""count_samples(samples) -> Tensor: how many samples each rank has, int64, in rank order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, oracle_maker
from allranks.judge.common import many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import COLLECTIVES, Exercise, Group, Rule, Run


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    counts = [place + 1 for place in rng.permutation(setup.size)[: setup.ranks]]  # no two alike
    if setup.ranks > 2:
        counts[-1] = 0
    return [(View.of(draw(setup, rng.of_rank(rank), n, 2)),) for rank, n in enumerate(counts)]


@oracle_maker
def _oracle_from(
    setup: Setup, args: Sequence[Args], make: Callable[[torch.Tensor, int], torch.Tensor]
) -> list[Expected]:
    counts = [a[0].size[0] for a in args]
    return [Expected(make(torch.tensor(counts), rank)) for rank in range(setup.ranks)]


def _elements(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    counts = torch.tensor([a[0].size[0] * a[0].size[1] for a in args])
    return [Expected(counts) for _ in args]


def _bytes(run: Run) -> str | None:
    return rules.received_at_most(run, 8 * run.ranks, f"8 bytes x {run.ranks} ranks")


def _one_byte_each(run: Run, call: int, rank: int) -> int:
    return run.ranks - 1


def _one_byte(run: Run, call: int, rank: int) -> int:
    return 1


EXERCISE = Exercise(
    name="count_samples",
    promise="returns how many samples each rank has",
    groups=(
        Group("right counts", 3, (Setup(2, 9), Setup(3, 20), Setup(4, 30))),
        Group("any rank count", 1, (Setup(1, 7), Setup(5, 20), Setup(8, 20))),
        many_ranks(),
        Group("any circumstances", 1, (Setup(3, 9, times=2), Setup(3, 9, outer_world=True), Setup(3, 9, "float64"))),
    ),
    inputs=_inputs,
    oracle=_oracle_from(lambda counts, rank: counts),
    allow=COLLECTIVES,
    rules=(Rule("at most 8 bytes x p received", 1, _bytes), rules.in_dtype(), rules.carried(_one_byte_each, _one_byte)),
    mistakes={
        "counts are whole numbers: the tensors that they are received into have a dtype too": _oracle_from(
            lambda counts, rank: counts.float()
        ),
        "the number of elements instead of the number of samples, which is the length": _elements,
        "each rank's own count only: the others' are missing": _oracle_from(
            lambda counts, rank: counts[rank].repeat(len(counts))
        ),
        "the sum of the counts": _oracle_from(lambda counts, rank: counts.sum().reshape(1)),
        "the sum of the counts in every place": _oracle_from(lambda counts, rank: counts.sum().repeat(len(counts))),
    },
    unit="sample at most",
    collective="all_gather",
    demo_setup=Setup(4, 9),
    forbidden_advice="Use collectives on tensors, such as all_gather.",
)

"""mean_of_samples(samples) -> Tensor: the mean of all ranks' samples; a rank may have none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from allranks.exercises.families import only_where, steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Rule, Run


def _each(setup: Setup) -> int:
    """How many samples a rank has, where enough are left for it."""
    return -(-setup.size // setup.ranks)


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    each = _each(setup)
    samples = draw(setup, rng, setup.size)
    return [(View.of(samples[rank * each : (rank + 1) * each]),) for rank in range(setup.ranks)]


@oracle_maker
def _oracle_from(
    setup: Setup, args: Sequence[Args], make: Callable[[list[torch.Tensor], int], torch.Tensor]
) -> list[Expected]:
    """An oracle from `make(samples of each rank, rank)`, in float64."""
    kind = args[0][0].base.dtype
    shards = [plain(a[0]).double() for a in args]
    atol = float(torch.cat(shards).abs().sum() + 1) * torch.finfo(kind).eps * 8
    return [Expected(make(shards, rank).to(kind), {}, atol) for rank in range(setup.ranks)]


def _is_nan_everywhere(run: Run) -> bool:
    found = [r.returned for r in run.results[0] if r is not None]
    return len(found) == run.ranks and all(isinstance(t, torch.Tensor) and bool(t.isnan().all()) for t in found)


EXERCISE = Exercise(
    name="mean_of_samples",
    promise="returns the mean of all ranks' samples",
    groups=(
        Group("right mean", 1, (Setup(2, 6), Setup(3, 8))),
        Group("ranks without samples", 5, (Setup(4, 9), Setup(6, 9), Setup(8, 9), Setup(3, 1), Setup(5, 2))),
        Group("any rank count", 1, (Setup(1, 4), Setup(7, 9))),
        many_ranks(2, Setup(9, 8), size=(7, 8)),
        Group("any dtype", 1, (Setup(4, 9, "float64", values="random"), Setup(4, 9, values="random"))),
        circumstances(Setup(4, 9)),
    ),
    inputs=_inputs,
    oracle=_oracle_from(lambda shards, rank: torch.cat(shards).mean()),
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("at most two all_reduces", 1, lambda run: rules.calls(run, "all_reduce", "two are enough", most=2)),
        rules.in_dtype(0, whole=True),
        rules.exchanged(rules.numbers(lambda s: 1)),
    ),
    mistakes={
        "the sum of all ranks was divided by the rank's own number of samples: add the numbers too": _oracle_from(
            lambda shards, rank: torch.cat(shards).sum() / len(shards[rank])
        ),
        "the sum of all ranks was divided by p times the rank's own number of samples: add the numbers too": [
            _oracle_from(lambda shards, rank: torch.cat(shards).sum() / (len(shards) * max(len(shards[rank]), 1))),
            _oracle_from(lambda shards, rank: torch.cat(shards).sum() / max(len(shards) * len(shards[rank]), 1)),
        ],
        "an empty rank counted as one sample: its count is 0": _oracle_from(
            lambda shards, rank: torch.cat(shards).sum() / sum(max(len(s), 1) for s in shards)
        ),
        "the mean of the ranks' means, an empty rank counting as zero": _oracle_from(
            lambda shards, rank: torch.stack([s.mean() for s in shards if len(s)]).sum() / len(shards)
        ),
        "the mean of the ranks' means: a rank with many samples counts as one with few": _oracle_from(
            lambda shards, rank: torch.stack([s.mean() for s in shards if len(s)]).mean()
        ),
        "the mean of no samples is NaN, and so is every sum with it: a rank without samples must add 0": (
            only_where(
                lambda setup, args: not all(len(plain(a[0])) for a in args),
                _oracle_from(lambda shards, rank: torch.tensor(math.nan)),
            ),
            _is_nan_everywhere,
        ),
        "the mean of the ranks' means: a rank with many samples counts as one with few, and the mean of none is NaN": (
            _oracle_from(lambda shards, rank: torch.stack([s.mean() for s in shards]).mean()),
            lambda run: _is_nan_everywhere(run) or all(len(plain(a[0])) for a in run.args[0]),
        ),
        "the sum instead of the mean": _oracle_from(lambda shards, rank: torch.cat(shards).sum()),
    },
    unit="sample",
    collective="all_reduce",
    demo_setup=Setup(4, 9),
    only_sums=True,
    forbidden_advice="dist.all_reduce is all that it needs.",
)


EXERCISE = steadied(
    EXERCISE,
    {
        "the sum": lambda setup: setup.size > 1 and setup.size % setup.ranks > 0,
        "an empty rank": lambda setup: _each(setup) * (setup.ranks - 1) >= setup.size,
        "counts as one with few": lambda setup: setup.size > _each(setup) and setup.size % _each(setup) > 0,
    },
)

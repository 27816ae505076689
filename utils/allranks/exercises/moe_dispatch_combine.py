"""moe_dispatch_combine(tokens, experts, expert_fn) -> Tensor: each token to its expert's rank and back, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.checking import rules
from allranks.checking.cases import Args, Expected, Function, Setup, View, draw, plain
from allranks.checking.exercise import Exercise, Group, Mistake, Rule, Run

WIDTH = 3


def _count(setup: Setup, rank: int) -> int:
    return setup.size + (rank * setup.option("spread", 0)) % 4


def _inputs(setup: Setup, rng: torch.Generator) -> list[Args]:
    made = []
    for rank in range(setup.ranks):
        count = _count(setup, rank)
        tokens = draw(setup, rng, count, WIDTH)
        to = setup.option("all_to")
        experts = torch.randint(0, setup.ranks, (count,), generator=rng) if to is None else torch.full((count,), to)
        # every expert computes something different, so that a token at the wrong expert is seen
        made.append((View.of(tokens, setup.layout), View.of(experts), Function(rank + 2, 100.0 * (rank + 1))))
    return made


def _through(setup: Setup, args: Sequence[Args], expert_of: Callable[[int, int], int]) -> list[Expected]:
    made = []
    for rank, (tokens, experts, _) in enumerate(args):
        rows = [
            args[expert_of(rank, e)][2](token) for token, e in zip(plain(tokens), plain(experts).tolist(), strict=True)
        ]
        values = torch.stack(rows) if rows else plain(tokens)
        made.append(Expected(values.to(tokens.base.dtype), {}, _atol(tokens.base.dtype)))
    return made


def _atol(kind: torch.dtype) -> float:
    return 1000 * torch.finfo(kind).eps


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return _through(setup, args, lambda rank, expert: expert)


def _home(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return _through(setup, args, lambda rank, expert: rank)


def _sorted(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right rows, but sorted by expert."""
    right = _oracle(setup, args)
    return [
        Expected(wanted.returns[torch.argsort(plain(a[1]), stable=True)], {}, wanted.atol)
        for wanted, a in zip(right, args, strict=True)
    ]


def _permuted_twice(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The sort applied to its own result instead of undone."""
    orders = [torch.argsort(plain(a[1]), stable=True) for a in args]
    right = _oracle(setup, args)
    return [Expected(w.returns[order][order], {}, w.atol) for w, order in zip(right, orders, strict=True)]


def _untouched(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return [Expected(plain(a[0])) for a in args]


def _twice(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    made = []
    for rank, wanted in enumerate(_oracle(setup, args)):
        made.append(Expected(args[rank][2](wanted.returns).to(wanted.returns.dtype), {}, wanted.atol))
    return made


def _carried(run: Run) -> str | None:
    return rules.no_messages(run)


EXERCISE = Exercise(
    name="moe_dispatch_combine",
    promise="returns each token as its expert's rank computes it, in the order of tokens",
    groups=(
        Group("right tokens", 3, (Setup(2, 4), Setup(3, 5), Setup(4, 6))),
        Group("any rank count", 1, (Setup(1, 4), Setup(5, 5), Setup(8, 6))),
        Group("any routing", 2, (*(Setup(3, 4).with_options(all_to=e) for e in (0, 2)), Setup(4, 1), Setup(8, 2))),
        Group(
            "any number of tokens",
            2,
            (Setup(3, 0), Setup(3, 0).with_options(spread=2), Setup(4, 1).with_options(spread=1), Setup(3, 17)),
        ),
        Group("any dtype", 1, (Setup(3, 5, "float64", values="precise"), Setup(3, 5, "bfloat16"))),
        Group("any layout", 1, (Setup(3, 4, layout="strided"), Setup(3, 4, layout="transposed"))),
        Group("any circumstances", 1, (Setup(3, 5, times=2), Setup(3, 5, outer_world=True))),
    ),
    inputs=_inputs,
    oracle=_oracle,
    allow=frozenset({"all_to_all", "all_to_all_single"}),
    rules=(Rule("carried by all_to_all", 1, _carried),),
    mistakes=(
        Mistake("sorted by expert: put the results back into the order of the tokens", _sorted),
        Mistake(
            "the permutation was applied again instead of its inverse; write `result[order] = returned`",
            _permuted_twice,
        ),
        Mistake("every token was computed by its own rank's expert: send it to the rank of its expert", _home),
        Mistake(
            "the tokens came back as they were: expert_fn was never applied, or what it returned was not used",
            _untouched,
        ),
        Mistake("expert_fn was applied again after the tokens came back", _twice),
    ),
    unit="token a rank",
    collective="all_to_all",
    chunking="none",
    demo_setup=Setup(4, 4),
    forbidden_advice="It needs all_to_all (or all_to_all_single) only.",
)

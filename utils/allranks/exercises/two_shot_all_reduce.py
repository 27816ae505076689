"""two_shot_all_reduce(tensor, memory): the sum in place, by puts and gets in a memory that all ranks share, without messages.

`memory` is the judge's (`wire.Memory`): others see a put only behind a fence, and every race is found, whatever the order was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from allranks.judge import puts, rules
from allranks.judge.cases import Args, Setup, summed, vectors
from allranks.judge.common import LAYOUTS, SUM_DTYPES, SUM_MISTAKES, Make, in_place, sum_oracle
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Rule, Run
from allranks.judge.provenance import bounds
from allranks.ranks.wire import Memory
from allranks.theory.schedules import ceil_lg

GENTLE, WEAK = "program", "weak"


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    numel = 2 * (setup.size + setup.ranks)
    memory = Memory(numel, setup.dtype, setup.option("order", WEAK))
    return [(view, memory) for (view,) in vectors(setup, rng)]


def _bytes(run: Run) -> str | None:
    p = run.ranks
    n = rules.nbytes_of(run) // run.itemsize
    return puts.moved_at_most(run, 2 * (p - 1) * -(-n // p) * run.itemsize, "2(p-1)/p of the bytes")


def _steps(run: Run) -> str | None:
    limit = max(6, 3 * ceil_lg(run.ranks))
    advice = "each rank talks to all others directly, and a barrier takes ceil(lg p)"
    return puts.steps_at_most(run, limit, "max(6, 3 ceil(lg p))", advice)


def _own_chunk_only(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
    """The sum in the rank's own chunk, its own values elsewhere."""
    made, total = tensors[rank].clone(), summed(tensors)[0].reshape(-1)
    start, end = bounds(made.numel(), setup.ranks)[rank]
    made.view(-1)[start:end] = total[start:end]
    return made


def _not_summed(cut: Callable[[int, int], Sequence[int]], own: bool) -> Make:
    """Each chunk as the rank that adds it up has it alone; `own`: the sum in the rank's own chunk."""

    def make(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
        total, ends = summed(tensors)[0].clone(), cut(tensors[0].numel(), setup.ranks)
        for adder, (start, end) in enumerate(itertools.pairwise(ends)):
            if adder != rank or not own:
                total.view(-1)[start:end] = tensors[adder].reshape(-1)[start:end]
        return total

    return make


def _with_its_adder(cut: Callable[[int, int], Sequence[int]], times: int) -> Make:
    """In each chunk the tensor of the rank that adds it up counts so many times more; `cut(n, p)` says where chunks begin and end."""

    def make(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
        total, ends = summed(tensors)[0].clone(), cut(tensors[0].numel(), setup.ranks)
        for adder, (start, end) in enumerate(itertools.pairwise(ends)):
            total.view(-1)[start:end] += times * tensors[adder].reshape(-1)[start:end]
        return total

    return make


_CUTS: tuple[Callable[[int, int], Sequence[int]], ...] = (
    lambda n, p: [0, *(end for _, end in bounds(n, p))],
    lambda n, p: [n * i // p for i in range(p + 1)],
    lambda n, p: [min(n, -(-n // p) * i) for i in range(p + 1)],
)


def _in(order: str, *setups: Setup) -> tuple[Setup, ...]:
    return tuple(s.with_options(order=order) for s in setups)


def _weakly(setups: Sequence[Setup]) -> tuple[Setup, ...]:
    return tuple(replace(s, options=(("_order", WEAK),)) for s in setups)


EXERCISE = Exercise(
    name="two_shot_all_reduce",
    promise="replaces tensor by its sum over all ranks, in place, by puts and gets in a shared memory",
    groups=(
        Group("right sum, puts seen in order", 2, _in(GENTLE, Setup(2, 4), Setup(3, 6), Setup(4, 8))),
        Group("right sum, puts seen late", 4, _in(WEAK, Setup(2, 4), Setup(3, 6), Setup(4, 8))),
        Group("any rank count", 1, _weakly((Setup(1, 4), Setup(5, 10), Setup(8, 8)))),
        Group("many ranks", 1, (Setup(9, 19).with_choices(ranks=(9, 11, 13), size=(19, 23, 29, 31)),)),
        Group("any size", 2, _weakly((Setup(3, 7), Setup(4, 6), Setup(4, 3), Setup(3, 1), Setup(3, 0)))),
        Group("any dtype", 1, _weakly(SUM_DTYPES)),
        Group("any layout", 1, _weakly(LAYOUTS)),
        Group(
            "any circumstances",
            3,
            _weakly((Setup(3, 6, times=2), Setup(4, 10, times=2), Setup(3, 6, outer_world=True))),
        ),
    ),
    inputs=_inputs,
    labels={"order": "in {} order"},
    oracle=sum_oracle,
    allow=frozenset(),
    rules=(
        puts.no_races(6),
        puts.signals_used_up(1),
        Rule("2(p-1)/p of the bytes into and out of each rank", 8, _bytes),
        Rule(
            "at most max(6, 3 ceil(lg p)) signals one after the other",
            4,
            _steps,
            lambda s: s.ranks > 1 and s.times == 1,
        ),
        puts.carried(),
    ),
    mistakes={
        **SUM_MISTAKES,
        "only this rank's own chunk has the sum: the second shot, the other ranks' chunks, is missing": in_place(
            _own_chunk_only
        ),
        "each chunk lacks the tensor of the rank that adds it up: its own part must be added too": [
            in_place(_with_its_adder(cut, -1)) for cut in _CUTS
        ],
        "in each chunk the tensor of the rank that adds it up counts twice: begin with its own part, and add those of "
        "the others": [in_place(_with_its_adder(cut, 1)) for cut in _CUTS],
        "the second shot brought the other ranks' own numbers, not their sums: put each sum into the memory, and get "
        "it from there": [in_place(_not_summed(cut, own)) for cut in _CUTS for own in (True, False)],
        "this rank's own tensor times p: the others' are not in it": in_place(lambda t, r, s: t[r] * len(t)),
    },
    collective="all_reduce",
    chunking="split",
    demo_setup=Setup(4, 12, "float64", values="provenance"),
    forbidden_advice="There are no messages here: write it with put, get, fence, signal and wait of memory.",
)

"""tree_reduce(tensor, dst): in place on dst, the sum over all ranks, after at most ceil(lg p) rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from allranks.exercises.checking import rules
from allranks.exercises.checking.cases import Args, Expected, Setup, plain, summed, vectors
from allranks.exercises.checking.exercise import (
    CIRCUMSTANCES,
    LAYOUTS,
    P2P,
    SUM_DTYPES,
    Exercise,
    Group,
    Rule,
    Run,
    every_root,
    explain_sum,
    in_place,
    sum_mistakes,
    with_root,
)


def _inputs(setup: Setup, rng: torch.Generator) -> list[Args]:
    return [(view, setup.root) for (view,) in vectors(setup, rng)]


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    total, atol = summed([plain(a[0]) for a in args])
    return [Expected(None, {(0,): total} if rank == setup.root else {}, atol) for rank in range(setup.ranks)]


def _rounds(run: Run) -> str | None:
    return rules.rounds(run, math.ceil(math.log2(run.ranks)), f"ceil(lg {run.ranks})")


def _bytes(run: Run) -> str | None:
    limit = rules.nbytes_of(run)
    for rank, nbytes in enumerate(run.bytes_sent()):
        if nbytes > limit:
            return f"rank {rank} sends {nbytes} bytes; the tensor has {limit}: each rank hands its sum on once"
    return rules.other_dtype(run)


EXERCISE = Exercise(
    name="tree_reduce",
    promise="replaces tensor on rank dst by the sum over all ranks, in ceil(lg p) rounds",
    groups=(
        Group("right sum", 3, with_root((Setup(2, 3), Setup(3, 4), Setup(4, 5)), 0)),
        Group("every root", 2, (*every_root(2, 3), *every_root(3, 3), *every_root(5, 2))),
        Group(
            "any rank count",
            1,
            (
                *with_root((Setup(1, 3),), 0),
                *with_root((Setup(4, 6), Setup(5, 3), Setup(8, 5)), 2),
                Setup(8, 4, root=7),
            ),
        ),
        Group("any size", 1, with_root((Setup(3, 0), Setup(3, 1), Setup(4, 17)))),
        Group("any dtype", 1, with_root(SUM_DTYPES)),
        Group("any layout", 1, with_root(LAYOUTS)),
        Group("any circumstances", 1, with_root(CIRCUMSTANCES)),
    ),
    inputs=_inputs,
    oracle=_oracle,
    allow=P2P,
    rules=(
        Rule(
            "at most ceil(lg p) rounds",
            4,
            _rounds,
            lambda s: s.ranks > 1 and s.times == 1 and s.delivery == "rendezvous",
        ),
        Rule("each rank sends once", 1, _bytes, lambda s: s.ranks > 1 and s.times == 1),
    ),
    blocking_weight=1,
    mistakes=(
        in_place("dst's own contribution alone: nothing was received", lambda t, r, s: t[r] if r == s.root else None),
        *sum_mistakes(),
    ),
    explain=explain_sum,
    root_name="dst",
    collective="reduce",
    algorithm="binomial",
    showcase=Setup(8, 8, "float64", values="provenance", root=0),
    instead="Write it with send, recv, isend, irecv or batch_isend_irecv.",
)

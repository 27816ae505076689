"""tree_broadcast(tensor, src): in place, every rank ends with src's tensor after at most ceil(lg p) rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from allranks.exercises.checking import rules
from allranks.exercises.checking.cases import Args, Expected, Setup, plain, vectors
from allranks.exercises.checking.exercise import (
    CIRCUMSTANCES,
    LAYOUTS,
    MOVED_DTYPES,
    P2P,
    Exercise,
    Group,
    Rule,
    Run,
    every_root,
    in_place,
    with_root,
)


def _inputs(setup: Setup, rng: torch.Generator) -> list[Args]:
    return [(view, setup.root) for (view,) in vectors(setup, rng)]


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return [Expected(None, {(0,): plain(args[setup.root][0])}) for _ in args]


def _rounds(run: Run) -> str | None:
    limit = math.ceil(math.log2(run.ranks))
    return rules.rounds(run, limit, f"ceil(lg {run.ranks})")


def _once(run: Run) -> str | None:
    root = run.setup.root
    received = [0] * run.ranks
    for entry in run.sends:
        received[entry.peer] += entry.nbytes
    limit = rules.nbytes_of(run)
    for rank, nbytes in enumerate(received):
        if rank != root and nbytes > limit:
            return f"rank {rank} receives {nbytes} bytes; the tensor has {limit}: each rank needs it once"
    return rules.other_dtype(run)


EXERCISE = Exercise(
    name="tree_broadcast",
    promise="replaces tensor by rank src's, in place, in ceil(lg p) rounds",
    groups=(
        Group("right tensor", 3, with_root((Setup(2, 3), Setup(3, 4), Setup(4, 5)), 0)),
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
        Group("any dtype", 1, with_root(MOVED_DTYPES)),
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
        Rule("each rank receives once", 1, _once, lambda s: s.ranks > 1 and s.times == 1),
    ),
    blocking_weight=1,
    mistakes=(
        in_place(
            "rank 0's tensor was sent, whatever src is: number the ranks from src, (rank - src) mod p",
            lambda t, r, s: t[0],
        ),
        in_place("the sum came instead of one rank's tensor", lambda t, r, s: sum(t[1:], t[0])),
    ),
    root_name="src",
    collective="broadcast",
    algorithm="binomial",
    chunking="rank",
    showcase=Setup(8, 4, "float64", values="provenance", root=0),
    instead="Write it with send, recv, isend, irecv or batch_isend_irecv.",
)

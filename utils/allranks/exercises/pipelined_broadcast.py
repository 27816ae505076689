"""pipelined_broadcast(tensor, src, segments): in place, along a chain of ranks, segment after segment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import torch

from allranks.base.errors import name_ranks
from allranks.exercises.families import steadied
from allranks.exercises.tree_broadcast import from_root
from allranks.judge import evidence, rules
from allranks.judge.cases import Setup, vectors
from allranks.judge.common import (
    CIRCUMSTANCES,
    LAYOUTS,
    MOVED_DTYPES,
    SIZES,
    every_root,
    in_place,
    many_ranks,
    with_root,
)
from allranks.judge.exercise import P2P, YOUR_VARIANT, About, Exercise, Group, Rule, Run, Variants

ALPHA, BETA = 1.0, 0.25


def _first_segment(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
    """Only the first segment arrived."""
    if rank == setup.root:
        return tensors[rank]
    made, k = tensors[rank].clone().reshape(-1), setup.option("segments")
    made.tensor_split(k)[0].copy_(tensors[setup.root].reshape(-1).tensor_split(k)[0])
    return made.reshape(tensors[rank].shape)


def _chain(run: Run) -> str | None:
    if broken := rules.messages_in_dtype(run):
        return broken
    for rank in range(run.ranks):
        peers = {e.peer for e in run.sends if e.rank == rank}
        if len(peers) > 1:
            first = next(e for e in run.sends if e.rank == rank)
            words = f"rank {rank} sends to {name_ranks(list(peers))}{run.at(first.line)}: on a chain each rank has one successor"
            return About(words, first)
        sources = {e.rank for e in run.sends if e.peer == rank}
        if len(sources) > 1:
            return f"rank {rank} receives from {name_ranks(list(sources))}: on a chain each rank has one predecessor"
    return None


def _segments(run: Run) -> str | None:
    """As many messages on each link as there are segments; those without elements may be left out."""
    k, n = run.setup.option("segments"), run.setup.size
    least = -(-n // -(-n // k)) if n else 0  # pieces of length ceil(n/k)
    for (rank, peer), count in sorted(Counter((e.rank, e.peer) for e in run.sends if e.nbytes).items()):
        each = count / run.setup.times
        if not least <= each <= k:
            first = next(e for e in run.sends if e.rank == rank)
            words = (
                f"rank {rank} sends {each:g} pieces to rank {peer}{run.at(first.line)}, but segments={k} asks for {k}"
            )
            return About(words, first, f"{each:g} pieces", str(k))
    return None


def _receives_all_first(run: Run) -> bool:
    """Whether every rank that receives and sends starts to send only after it has received everything."""
    passing = {e.rank for e in run.sends} & {e.peer for e in run.sends}
    for rank in passing:
        mine = [e for e in run.outcome.trace if e.rank == rank and e.nbytes]
        sends, receives = [e.start for e in mine if e.op == "send"], [e.end for e in mine if e.op == "recv"]
        if min(sends) < max(receives):
            return False
    return bool(passing)


def _time(run: Run) -> str | None:
    p, k = run.ranks, run.setup.option("segments")
    n = run.setup.size
    segment = -(-n // k) * run.itemsize
    right = (p + k - 2) * (ALPHA + segment * BETA)
    took = float(run.outcome.seconds)
    if took <= 1.1 * right:
        return None
    if _chain(run):  # whatever else is wrong comes from that
        return f"{took:g} s of virtual time, but (p+k-2)(alpha + n beta/k) = {right:g} s"
    pieces = max(Counter((e.rank, e.peer) for e in run.sends).values())
    if pieces > k:
        why = f"{pieces} pieces are sent, but segments={k} asks for {k}, and each takes alpha"
    elif k > 1 and 1 < pieces < min(k, n):
        why = f"only {pieces} segments are sent; tensor_split(k) makes k segments, split(k) makes segments of length k"
    elif k > 1 and all(e.numel == n for e in run.sends):
        why = "the vector is sent whole; cut it into segments"
    elif k > 1 and _receives_all_first(run):
        why = "each rank passes on only after it has everything; pass a segment on while the next one comes"
    else:
        why = "receive the next segment while the last one is still being sent (isend or irecv)"
    return f"{took:g} s of virtual time, but (p+k-2)(alpha + n beta/k) = {right:g} s: {why}"


def _k(k: int, *setups: Setup) -> tuple[Setup, ...]:
    return tuple(s.with_options(segments=k, _alpha=ALPHA, _beta=BETA) for s in setups)


def _with_slow_rank(exercise: Exercise, drawn: Mapping[str, int]) -> Exercise:
    slow = drawn["slow"]
    rule = Rule(f"{YOUR_VARIANT}: rank {slow} is last", 4, lambda run: rules.only_receives(run, slow))
    return replace(
        exercise,
        groups=(*exercise.groups, Group(YOUR_VARIANT, 2, _k(2, *every_root(8, 4)))),
        rules=(*exercise.rules, rule),
        peer_advice="The chain begins at src and goes on modulo p, without the slow rank, which comes last; the last rank sends to nobody.",
    )


EXERCISE = Exercise(
    name="pipelined_broadcast",
    promise="replaces tensor by rank src's, in place, along a chain, in k segments",
    groups=(
        Group("right tensor", 3, _k(2, *with_root((Setup(2, 4), Setup(3, 6), Setup(4, 8)), 0))),
        Group("every root", 2, _k(2, *every_root(2, 4), *every_root(3, 4), *every_root(5, 4))),
        Group(
            "any number of segments",
            2,
            (
                *_k(1, *with_root((Setup(3, 6), Setup(4, 5)))),
                *_k(4, *with_root((Setup(3, 16), Setup(4, 10)))),
                *_k(16, *with_root((Setup(4, 64), Setup(8, 64)))),
            ),
        ),
        Group("any rank count", 1, _k(3, *with_root((Setup(1, 3), Setup(5, 6), Setup(8, 9)), 0))),
        many_ranks(2, Setup(9, 19).with_options(_alpha=ALPHA, _beta=BETA), root=(3, 6, 8), segments=(3, 4), size=SIZES),
        Group("any size", 1, _k(3, *with_root((Setup(3, 0), Setup(3, 1), Setup(4, 17))))),
        Group("any dtype", 1, _k(3, *with_root(MOVED_DTYPES))),
        Group("any layout", 1, _k(2, *with_root(LAYOUTS))),
        Group("any circumstances", 1, _k(2, *with_root(CIRCUMSTANCES))),
    ),
    inputs=lambda setup, rng: [(view, setup.root, setup.option("segments")) for (view,) in vectors(setup, rng)],
    oracle=from_root,
    allow=P2P,
    rules=(
        Rule("along a chain", 2, _chain),
        Rule("within 10 % of (p+k-2)(alpha + n beta/k)", 8, _time, rules.on_one_call),
        Rule("k segments", 3, _segments),
        rules.carried(rules.but_at_the_root, rules.nothing),
    ),
    blocking_weight=3,
    variants=Variants(
        (("slow", tuple(range(1, 8))),),
        "rank {slow} is slow",
        "rank {slow} is slow (rank {slow} mod p in a world of p ranks). Put it at the end of the chain, unless it is src: there nobody "
        "waits for it. The other ranks keep their order from src on, and the time stays as it is.",
        _with_slow_rank,
    ),
    mistakes={
        "rank 0's tensor was sent, whatever src is": (in_place(lambda t, r, s: t[0]), evidence.rank_zero_sent),
        "only the first segment arrived, or only that one was stored": in_place(_first_segment),
    },
    root_name="src",
    collective="broadcast",
    algorithm="pipelined chain",
    chunking="split",
    demo_setup=Setup(4, 16, "float64", values="provenance", root=0).with_options(segments=4, _alpha=ALPHA, _beta=BETA),
    peer_advice="The chain begins at src and goes on modulo p; its last rank sends to nobody.",
    own_rank_advice="On a chain no rank is its own neighbour: the last rank sends to nobody, and src receives from nobody.",
)
EXERCISE = steadied(EXERCISE, {"whatever src is": lambda setup: setup.dtype == "bool"})

"""tree_broadcast(tensor, src): in place, every rank ends with src's tensor after at most ceil(lg p) rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from allranks.judge import evidence, rules
from allranks.judge.cases import Args, Expected, Setup, plain, vectors
from allranks.judge.common import MOVED_DTYPES, every_root, in_place, rooted_groups
from allranks.judge.exercise import P2P, YOUR_VARIANT, Exercise, Group, Rule, Run, Variants
from allranks.theory.schedules import ceil_lg


def from_root(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The oracle of a broadcast in place."""
    return [Expected(None, {(0,): plain(args[setup.root][0])}) for _ in args]


def _rounds(run: Run) -> str | None:
    return rules.rounds(run, ceil_lg(run.ranks), f"ceil(lg {run.ranks})")


def _once(run: Run) -> str | None:
    root = run.setup.root
    received = [0] * run.ranks
    for entry in run.sends:
        received[entry.peer] += entry.nbytes
    limit = rules.nbytes_of(run)
    for rank, nbytes in enumerate(received):
        if rank != root and nbytes > limit:
            return f"rank {rank} receives {nbytes} bytes; the tensor has {limit}: each rank must receive it once"
    return rules.wrong_dtype(run)


def _with_slow_rank(exercise: Exercise, drawn: Mapping[str, int]) -> Exercise:
    slow = drawn["slow"]
    rule = Rule(f"{YOUR_VARIANT}: rank {slow} only receives", 4, lambda run: rules.only_receives(run, slow))
    cases = Group(YOUR_VARIANT, 2, every_root(8, 4))
    return replace(exercise, groups=(*exercise.groups, cases), rules=(*exercise.rules, rule))


EXERCISE = Exercise(
    name="tree_broadcast",
    promise="replaces tensor by rank src's, in place, in ceil(lg p) rounds",
    won="reaches all ranks in ceil(lg p) rounds, the least there is",
    groups=rooted_groups("right tensor", MOVED_DTYPES),
    inputs=lambda setup, rng: [(view, setup.root) for (view,) in vectors(setup, rng)],
    oracle=from_root,
    allow=P2P,
    rules=(
        Rule("at most ceil(lg p) rounds", 8, _rounds, rules.on_one_call),
        Rule("each rank receives once", 1, _once, lambda s: s.ranks > 1 and s.times == 1),
        rules.carried(rules.but_at_the_root, rules.nothing),
    ),
    blocking_weight=3,
    variants=Variants(
        (("slow", tuple(range(1, 8))),),
        "rank {slow} is slow",
        "rank {slow} is slow (rank {slow} mod p in a world of p ranks). Build the tree so that it only receives, unless it is src: "
        "nobody may wait for what it sends. The rounds stay ceil(lg p).",
        _with_slow_rank,
    ),
    mistakes={
        "rank 0's tensor was sent, whatever src is: number the ranks from src, (rank - src) mod p": (
            in_place(lambda t, r, s: t[0]),
            evidence.rank_zero_sent,
        ),
        "rank p - src's tensor was sent: counted from src a rank is number (rank - src) mod p, not (rank + src) mod p": in_place(
            lambda t, r, s: t[-s.root % s.ranks]
        ),
        "the sum came instead of one rank's tensor": in_place(lambda t, r, s: sum(t[1:], t[0])),
    },
    root_name="src",
    collective="broadcast",
    algorithm="binomial",
    chunking="rank",
    demo_setup=Setup(8, 4, "float64", values="provenance", root=0),
    peer_advice="Counted from src, rank q is rank (q + src) mod p; beyond the last rank there is no partner.",
    own_rank_advice="In a tree no rank is its own partner. Counted from src, rank q is rank (q + src) mod p: is one of the two left out here?",
)

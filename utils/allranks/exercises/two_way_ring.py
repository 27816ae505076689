"""two_way_ring(tensor): in place, the sum, round the ring in both directions at once, so that no card of a node is idle."""

from __future__ import annotations

from dataclasses import replace

from allranks.exercises.ring_all_reduce import MISTAKES
from allranks.judge import rules, speed
from allranks.judge.cases import Setup, vectors
from allranks.judge.common import explain_sum, sum_oracle
from allranks.judge.exercise import P2P, Exercise, Rule
from allranks.theory import topology

PAIRS = replace(topology.preset("dgx-h100"), name="nodes of 2 H100s", ranks_per_node=2, nics_per_node=2)
MACHINE = speed.Machine("nodes of 2 H100s with a card each", PAIRS, 1 << 30)


def _timed(ranks: int, size: int) -> Setup:
    return Setup(ranks, size, note="timed").with_options(_machine=MACHINE)


EXERCISE = Exercise(
    name="two_way_ring",
    promise="replaces tensor by its sum over all ranks, in place, and uses both directions of the links",
    groups=speed.sum_groups((_timed(8, 128), _timed(6, 96))),
    inputs=vectors,
    oracle=sum_oracle,
    allow=P2P,
    rules=(Rule("the tensor's own dtype", 1, rules.messages_in_dtype), speed.at_most(1.75, 24), rules.carried()),
    explain=explain_sum,
    mistakes=MISTAKES,
    collective="all_reduce",
    algorithm="ring",
    comparable=False,
    demo_setup=replace(_timed(8, 128), dtype="float64", values="provenance"),
    peer_advice="Take the peer's number modulo the number of ranks.",
)

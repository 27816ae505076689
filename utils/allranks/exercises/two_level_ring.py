"""two_level_ring(tensor, ranks_per_node): in place, the sum, with rings in the nodes and rings between them.

Node i holds the ranks i*g to (i+1)*g - 1; every rank has a network card of its own.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from allranks.judge import rules, speed
from allranks.judge.cases import Setup, summed, vectors
from allranks.judge.common import SUM_MISTAKES, explain_sum, in_place, sum_oracle
from allranks.judge.exercise import P2P, Exercise, Rule, Run
from allranks.theory import topology

FOURS = replace(topology.preset("dgx-h100"), name="nodes of 4 H100s", ranks_per_node=4, nics_per_node=4)
MACHINE = speed.Machine("nodes of 4 H100s with a card each", FOURS, 1 << 30)


def _with_nodes(setup: Setup) -> Setup:
    """Nodes of 3 where the rank count is drawn, else of the largest g below p that divides it."""
    p = setup.ranks
    g = 3 if setup.choices else next(d for d in (p // 2, p // 3, 1, p) if d and p % d == 0)
    return setup.with_options(ranks_per_node=max(g, 1))


def node_sum(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
    """The sum over the rank's node."""
    g = setup.option("ranks_per_node")
    first = rank // g * g
    return summed(tensors[first : first + g])[0]


def across_sum(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
    """The sum over the ranks that have the same place in their nodes."""
    g = setup.option("ranks_per_node")
    return summed(tensors[rank % g :: g])[0]


def _stays_in_nodes(run: Run) -> bool:
    g = run.setup.option("ranks_per_node")
    return all(e.rank // g == e.peer // g for e in run.sends if e.numel)


_FAST = speed.at_most(2, 24)


def _in_time(run: Run) -> str | None:
    """The rule on the time, with what to do where every rank sends more than its chunk's share between the nodes."""
    words = _FAST.breach(run)
    g, n = run.setup.option("ranks_per_node"), run.setup.size
    across = [0] * run.ranks
    for e in run.sends:
        if e.peer is not None and e.rank // g != e.peer // g:
            across[e.rank] += e.numel
    if words is None or g == 1 or min(across) * g <= 2 * n:  # rings of a chunk send less than twice its n/g elements
        return words
    return (
        f"Every rank sends {min(across)} elements or more between the nodes, where fewer than 2n/g = {2 * n // g} are enough: stop in the "
        f"node when each rank has its chunk of the node's sum (n/g elements), send only that chunk between the nodes, and gather the "
        f"whole in the node at the end. {words}"
    )


def _timed(ranks: int, size: int) -> Setup:
    made = Setup(ranks, size, note="timed")
    return made.with_options(ranks_per_node=4, _machine=MACHINE)


EXERCISE = Exercise(
    name="two_level_ring",
    promise="replaces tensor by its sum over all ranks, in place, and uses every card of a node",
    groups=speed.sum_groups((_timed(8, 128), _timed(12, 144)), _with_nodes),
    inputs=lambda setup, rng: [(view, setup.option("ranks_per_node")) for (view,) in vectors(setup, rng)],
    oracle=sum_oracle,
    allow=P2P,
    rules=(
        Rule("the tensor's own dtype", 1, rules.messages_in_dtype),
        replace(_FAST, breach=_in_time),
        rules.carried(),
    ),
    explain=explain_sum,
    mistakes={
        **SUM_MISTAKES,
        "only the ranks of the same node were added: the other nodes are missing": (
            in_place(node_sum),
            _stays_in_nodes,
        ),
        "messages went between the nodes, but each element is the sum of one node only: what the rings between the "
        "nodes made was not stored, or was replaced later. They must add the chunk that is complete in the node": (
            in_place(node_sum),
            lambda run: not _stays_in_nodes(run),
        ),
        "only the ranks with the same place in their node were added": in_place(across_sum),
    },
    collective="all_reduce",
    algorithm="hierarchical",
    demo_setup=replace(_timed(8, 128), dtype="float64", values="provenance"),
    peer_advice="Inside a node the peers are those with the same rank // ranks_per_node, between nodes those with the same rank % ranks_per_node.",
)

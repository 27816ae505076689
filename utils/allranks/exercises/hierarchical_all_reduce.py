"""hierarchical_all_reduce(tensor, ranks_per_node): in place, the sum, with little traffic between the nodes.

Node i holds the ranks i*g to (i+1)*g - 1. Messages between two ranks and collectives on sub-groups are both allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from allranks.base.errors import name_ranks
from allranks.exercises.two_level_ring import across_sum, node_sum
from allranks.judge import rules
from allranks.judge.cases import Setup, summed, vectors
from allranks.judge.common import SIZES, SUM_MISTAKES, Make, explain_sum, in_place, many_ranks, sum_oracle
from allranks.judge.exercise import COLLECTIVES, P2P, About, Exercise, Group, Rule, Run
from allranks.ranks.wire.messages import OpKind

# bytes that one of m members sends for a buffer of n bytes, as a multiple of n, on a bandwidth-optimal algorithm
_SHARES = {
    "all_reduce": lambda m: 2 * (m - 1) / m,
    "reduce_scatter": lambda m: (m - 1) / m,
    "reduce_scatter_tensor": lambda m: (m - 1) / m,
    "all_gather": lambda m: m - 1,
    "all_gather_into_tensor": lambda m: m - 1,
    "barrier": lambda m: 0,
}


def _over_all_ranks(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
    """The all_reduce between the nodes adds the shares of all places, which are different chunks."""
    g, whole = setup.option("ranks_per_node"), summed(tensors)[0]
    chunks = _rounded_up(whole.flatten(), g)
    padded = [torch.nn.functional.pad(chunk, (0, len(chunks[0]) - len(chunk))) for chunk in chunks]
    return torch.stack(padded).sum(0).to(whole.dtype).repeat(g)[: whole.numel()].view(whole.shape)


def _rounded_up(flat: torch.Tensor, g: int) -> list[torch.Tensor]:
    length = -(-len(flat) // g)
    return [flat[i * length : (i + 1) * length] for i in range(g)]


def _never_gathered(
    cut: Callable[[torch.Tensor, int], Sequence[torch.Tensor]], rest: Callable[[torch.Tensor], torch.Tensor]
) -> Make:
    """The rank's own part of the sum, as `cut` cuts it; the other parts are what `rest` makes of its own tensor."""

    def make(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
        g = setup.option("ranks_per_node")
        made = rest(tensors[rank].flatten())
        cut(made, g)[rank % g].copy_(cut(summed(tensors)[0].flatten(), g)[rank % g])
        return made.view(tensors[rank].shape)

    return make


def _between_nodes(run: Run) -> str | None:
    if broken := rules.messages_in_dtype(run):
        return broken
    g = run.setup.option("ranks_per_node")
    m = run.ranks // g
    n = rules.nbytes_of(run) // run.itemsize
    limit = run.setup.times * 2 * (m - 1) * math.ceil(math.ceil(n / g) / m) * run.itemsize
    sent = [0.0] * run.ranks
    for entry in run.outcome.log:
        if entry.kind is OpKind.SEND and entry.peer // g != entry.rank // g:
            sent[entry.rank] += entry.nbytes
        if entry.kind is not OpKind.COLLECTIVE or entry.group is None:
            continue
        nodes = {r // g for r in entry.group}
        if len(nodes) == 1:
            continue
        if len(entry.group) > len(nodes):
            return About(
                f"rank {entry.rank} calls {entry.called} on {name_ranks(entry.group)}{run.at(entry.line)}: that group "
                "has several ranks of one node and spans nodes; use one group for each node and one for each place in it",
                entry,
            )
        if entry.op.startswith("all_to_all"):
            sent[entry.rank] += entry.nbytes - entry.splits[entry.group.index(entry.rank)]
        else:
            sent[entry.rank] += _SHARES.get(entry.op, lambda m: 1)(len(entry.group)) * entry.nbytes
    for rank, nbytes in enumerate(sent):
        if nbytes > limit:
            silent = (
                0 in sent[rank // g * g : (rank // g + 1) * g]
            )  # some rank of the node sends nothing to other nodes
            whole = (
                ", as if it sent for its whole node"
                if silent and nbytes >= run.setup.times * 2 * (m - 1) / m * n * run.itemsize
                else ""
            )
            return (
                f"rank {rank} sends {round(nbytes)} bytes to other nodes{whole}, but 2(m-1)/m x n/g = {limit} are enough: "
                "reduce_scatter inside each node first, so that each of its ranks carries 1/g across"
            )
    return None


def _into_each_node(run: Run) -> str | None:
    """Each node must receive at least the tensor's bytes from the other nodes: the sum of their parts has as many."""
    g = run.setup.option("ranks_per_node")
    for call in range(run.setup.times):
        came = [0.0] * (run.ranks // g)
        for entry in run.outcome.log:
            if entry.call != call:
                continue
            node = entry.rank // g
            if entry.kind is OpKind.RECV and entry.peer is not None and entry.peer // g != node:
                came[node] += entry.received_nbytes
            if entry.kind is OpKind.COLLECTIVE and entry.group is not None and any(r // g != node for r in entry.group):
                came[node] += rules.received_from_others(entry)
        needed = rules.nbytes_of(run, call)
        for node, nbytes in enumerate(came):
            if nbytes < needed:
                return (
                    f"node {node} receives {round(nbytes)} bytes from the other nodes, but their sum has {needed}: the data "
                    "must be in the messages, and an empty message carries nothing"
                )
    return None


def _rounds(run: Run) -> str | None:
    g = run.setup.option("ranks_per_node")
    steps = 2 * (g - 1) + 2 * (run.ranks // g - 1)
    return rules.rounds(
        run, 2 * steps, f"twice 2(g-1) + 2(m-1) = {steps}, the steps of rings in the nodes and between them,"
    )


def _g(g: int, *setups: Setup) -> tuple[Setup, ...]:
    return tuple(s.with_options(ranks_per_node=g) for s in setups)


EXERCISE = Exercise(
    name="hierarchical_all_reduce",
    promise="replaces tensor by its sum over all ranks, with little traffic between the nodes",
    groups=(
        Group("right sum", 3, (*_g(2, Setup(4, 8)), *_g(2, Setup(8, 16)), *_g(4, Setup(8, 8)))),
        Group(
            "any shape of cluster",
            2,
            (
                *_g(1, Setup(1, 4), Setup(3, 6), Setup(5, 5)),
                *_g(3, Setup(3, 6)),
                *_g(2, Setup(2, 4)),
                *_g(8, Setup(8, 8)),
                *_g(1, Setup(2, 4)),
            ),
        ),
        many_ranks(2, Setup(9, 19), ranks=(9, 12), ranks_per_node=(3,), size=SIZES),
        Group("any size", 2, _g(2, Setup(4, 1), Setup(4, 7), Setup(4, 0), Setup(8, 3), Setup(8, 13))),
        Group(
            "any dtype",
            1,
            _g(
                2,
                Setup(4, 8, "float64", values="precise"),
                Setup(4, 6, "bfloat16"),
                Setup(4, 6, "int64", values="precise"),
            ),
        ),
        Group(
            "any layout",
            1,
            _g(2, Setup(4, 6, layout="offset"), Setup(4, 6, layout="strided"), Setup(4, 12, layout="transposed")),
        ),
        Group(
            "any circumstances",
            1,
            _g(2, Setup(4, 8, times=2), Setup(4, 8, outer_world=True), Setup(4, 8, delivery="shuffled")),
        ),
    ),
    inputs=lambda setup, rng: [(view, setup.option("ranks_per_node")) for (view,) in vectors(setup, rng)],
    oracle=sum_oracle,
    allow=P2P | COLLECTIVES,
    rules=(
        Rule(
            "inter-node bytes at most 2(m-1)/m x n/g", 9, _between_nodes, lambda s: s.option("ranks_per_node") < s.ranks
        ),
        Rule("not one after the other", 3, _rounds, rules.on_one_call),
        Rule(
            "the data came into each node",
            1,
            _into_each_node,
            lambda s: s.option("ranks_per_node") < s.ranks,
            essential=True,
        ),
        rules.carried(),
    ),
    blocking_weight=1,
    mistakes={
        "the sum of the node only: the step between the nodes is missing, or what it brought is not used": in_place(
            node_sum
        ),
        "the all_reduce between the nodes was over all ranks, which hold different parts: its group has one rank of "
        "each node, those with the same place": in_place(_over_all_ranks),
        "the sum across nodes only: the step inside the node is missing, or what it brought is not used": in_place(
            across_sum
        ),
        "each rank has its 1/g of the sum only: the all_gather inside the node is missing, or what it brought is not "
        "used": [
            in_place(_never_gathered(cut, rest))
            for cut in (_rounded_up, torch.tensor_split)
            for rest in (torch.clone, torch.zeros_like)
        ],
        **SUM_MISTAKES,
    },
    explain=explain_sum,
    collective="all_reduce",
    algorithm="hierarchical",
    chunking="split",
    demo_setup=Setup(4, 8, "float64", values="provenance").with_options(ranks_per_node=2),
    only_sums=True,
    forbidden_advice="Use messages between two ranks, or collectives on groups of your own.",
)

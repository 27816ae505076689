"""What no run can beat: a machine's lower bound of a collective, and the roof of the algorithm that NCCL chooses there."""

from __future__ import annotations

from dataclasses import replace

from allranks.theory.cost.bandwidth import bus_factor
from allranks.theory.cost.bounds import lower_bound_seconds
from allranks.theory.cost.nccl import Call
from allranks.theory.cost.nccl_machines import MACHINES, NcclMachine
from allranks.theory.topology import PRESETS, Link, Topology

ABOVE_SEARCH = 25 / 24  # NCCL's search counts 24 GB/s for a link of 200 Gb/s, which is 25


def machine_bound_s(
    collective: str,
    ranks: int,
    nbytes: float,
    topology: Topology,
    gamma: float = 0.0,
    *,
    nvls: bool = True,
    sharp: bool = False,
) -> float:
    """The lower bound in seconds on a machine; where NCCL knows that its switches add (NVLS), they may.

    `gamma` is seconds a byte reduced. Raises CostError.

    >>> from allranks.theory.cost.nccl_bounds import machine_bound_s
    >>> from allranks.topology import preset
    >>> round(1e3 * machine_bound_s("all_to_all", 16, 2**33, preset("dgx-h200")), 1)
    85.9
    """
    where = MACHINES.get(topology.name)
    switches = nvls and where is not None and any(g.nvls for g in (*where.one.values(), *where.several.values()))
    return lower_bound_seconds(collective, ranks, nbytes, topology, gamma, switches=switches, sharp=sharp)


def links_of(where: NcclMachine, nodes: int, ranks: int) -> Topology:
    """The machine's links with so many ranks on each of so many nodes: of the preset, else of NCCL's search. Raises CostError."""
    here, known = ranks // nodes, PRESETS.get(where.name)
    if known is not None and (nodes == 1 or here == known.ranks_per_node):
        return known
    if known is not None:
        cards = max(1, known.nics_per_node * here // known.ranks_per_node)
        return replace(known, ranks_per_node=here, nics_per_node=cards, ranks_per_island=None)
    one = where.graphs(here, 1).ring if here > 1 else where.graphs(here, nodes).ring
    nic = None
    if nodes > 1:
        ring = where.graphs(here, nodes).ring
        nic = Link("the node's cards", 0.0, 1e9 * ABOVE_SEARCH * ring.channels * ring.between)
    return Topology(where.name, here, Link("the links", 0.0, 1e9 * ABOVE_SEARCH * one.channels * one.inside), nic)


def roof_s(algorithm: str, asked: Call) -> float:
    """The least seconds of one of NCCL's algorithms: the lower bound, and what it sends beyond that. Raises CostError.

    A ring sends all that its busbw counts from card to card; a tree's inner node sends each byte up and down.

    >>> from allranks.theory.cost.nccl import call
    >>> from allranks.theory.cost.nccl_bounds import roof_s
    >>> roof_s("ring", call("all_reduce", 384e9, "dgx-h100", nodes=4))
    1.9375
    """
    nodes, ranks, nbytes = asked.nodes, asked.ranks, asked.nbytes
    bound = bound_s(replace(asked, nvls=algorithm in ("nvls", "nvls_tree")))
    if algorithm not in ("ring", "tree", "nvls_tree"):
        return bound
    ring = asked.graphs.ring
    rate = 1e9 * ring.channels * ring.between
    if algorithm == "ring":
        if nodes == 1:
            rate = max(rate, links_of(asked.machine, nodes, ranks).inside.bytes_per_s)
        return max(bound, nbytes * float(bus_factor(asked.collective, ranks)) / rate)
    return max(bound, 2 * nbytes / (ABOVE_SEARCH * rate)) if nodes > 2 else bound


def bound_s(asked: Call) -> float:
    """The lower bound of a call on its machine's links. Raises CostError."""
    links = links_of(asked.machine, asked.nodes, asked.ranks)
    return machine_bound_s(asked.collective, asked.ranks, asked.nbytes, links, nvls=asked.nvls, sharp=asked.sharp)

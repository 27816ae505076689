"""What NCCL 2.30.7's tuner would choose, and the microseconds that it expects (src/graph/tuning.cc, `ncclTopoTuneModel`).

With `sharp` the network's switches add too (CollNet, and NVLS on several nodes). The search for such a graph was not run: it is
taken to have as many channels as the rings. The model ends where NCCL goes another way: symmetric memory windows, copy engines
and registered buffers, and groups of sends and receives (all_to_all, scatter, gather), which the tuner does not see.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from allranks.base.errors import counted
from allranks.theory.cost import nccl_tables as tables
from allranks.theory.cost.nccl_machines import Graph, Graphs, NcclMachine, machine
from allranks.theory.cost.nccl_tables import VERSION, VERSIONS, Version, version_of
from allranks.theory.cost.terms import CostError, check_size

NCCL_ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
NCCL_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_OF = {
    "all_reduce": ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree"),
    "all_gather": ("ring", "collnet_direct", "nvls", "pat"),
    "reduce_scatter": ("ring", "collnet_direct", "nvls", "pat"),
    "broadcast": ("ring",),
    "reduce": ("ring",),
}
_COLLNET = ("collnet_direct", "collnet_chain")
_NVLS = ("nvls", "nvls_tree")
_SIMPLE_ONLY = (*_COLLNET, *_NVLS, "pat")


@dataclass(frozen=True, order=True)
class NcclOption:
    """One algorithm with one protocol: `us` is what the tuner expects, from a latency and a bandwidth in GB/s (1e9).

    >>> option = cost.nccl_choice("all_reduce", 2**30, "dgx-h100")
    >>> option.latency_us, round(option.gb_per_s), option.channels
    (25.0, 272, 16)
    """

    us: float
    algorithm: str
    protocol: str
    channels: int
    latency_us: float
    gb_per_s: float


def nccl_options(
    collective: str,
    nbytes: float,
    on: str | NcclMachine = "dgx-h100",
    *,
    nodes: int = 1,
    ranks: int | None = None,
    nvls: bool = True,
    sharp: bool = False,
    version: str = VERSION,
) -> list[NcclOption]:
    """All that the tuner may choose from, best first. `ranks` is in all (default: every GPU of `nodes` nodes).

    `nbytes` is the *full* vector, as nccl-tests counts it. Without `nvls`, NVLink's switches do not add, as with
    NCCL_NVLS_ENABLE=0. With `sharp`, InfiniBand's switches add: NCCL_COLLNET_ENABLE=1, which is 0 by default, and the plugin for
    SHARP. `version` is NCCL's: "2.27" or "2.30" (`nccl_tables.VERSIONS`). Raises CostError for another one or another collective, for ranks that do not
    divide evenly, or where NCCL's search on that machine is not known.

    >>> [(o.algorithm, o.protocol) for o in cost.nccl_options("all_gather", 2**30)][:2]
    [('ring', 'Simple'), ('ring', 'LL128')]
    """
    return call(collective, nbytes, on, nodes, ranks, nvls=nvls, sharp=sharp, version=version).options()


def nccl_choice(
    collective: str,
    nbytes: float,
    on: str | NcclMachine = "dgx-h100",
    *,
    nodes: int = 1,
    ranks: int | None = None,
    nvls: bool = True,
    sharp: bool = False,
    version: str = VERSION,
) -> NcclOption:
    """The option that the tuner takes: the one with the least time. Arguments and errors as `nccl_options`.

    >>> small = cost.nccl_choice("all_reduce", 1024, "dgx-a100")
    >>> small.algorithm, small.protocol, round(small.us, 1)
    ('ring', 'LL', 15.0)
    """
    return call(collective, nbytes, on, nodes, ranks, nvls=nvls, sharp=sharp, version=version).choice()


@dataclass(frozen=True)
class Call:
    """A collective of NCCL on a machine, and how NCCL is set there. `call` makes one from what people write."""

    machine: NcclMachine
    collective: str
    nbytes: float
    nodes: int
    ranks: int
    nvls: bool = True
    sharp: bool = False
    one_process: bool = False
    version: Version = VERSIONS[VERSION]

    def options(self) -> list[NcclOption]:
        """All that the tuner may choose from, best first. Raises CostError."""
        if self.collective not in _OF:
            raise CostError(f"NCCL's tuner decides on {', '.join(NCCL_COLLECTIVES)}, not on {self.collective!r}")
        found = [
            self.option(algorithm, protocol)
            for algorithm in _OF[self.collective]
            for protocol in tables.PROTOCOLS
            if self.allows(algorithm, protocol)
        ]
        return sorted(found, key=lambda option: (option.us, NCCL_ALGORITHMS.index(option.algorithm)))

    def choice(self) -> NcclOption:
        """The option that the tuner takes. Raises CostError."""
        options = self.options()
        if not options:
            raise CostError("one rank alone has nothing to communicate")
        return options[0]

    @functools.cached_property
    def graphs(self) -> Graphs:
        """What NCCL's search finds there. Raises CostError where that is not known."""
        return self.machine.graphs(self.per_node, self.nodes)

    @property
    def per_node(self) -> int:
        return self.ranks // self.nodes

    @property
    def steps(self) -> int:
        """Of a ring."""
        p = self.ranks
        return {"all_reduce": 2 * (p - 1), "all_gather": p - 1, "reduce_scatter": p - 1}.get(self.collective, p)

    def most(self, table: dict[str, tuple[float, float, float]], row: str | None = None) -> float:
        return table[row or self.machine.generation][min(self.nodes, 3) - 1]

    def ll_most(self) -> float:
        """On several nodes the row follows from the CPU, not from the GPU (lines 269 to 272)."""
        by_cpu = "Ampere" if self.machine.cpu == "AMD" else "Volta"
        return self.most(tables.LL_MOST, None if self.nodes == 1 else by_cpu)

    def allows(self, algorithm: str, protocol: str) -> bool:
        if self.ranks == 1 or (protocol != "Simple" and algorithm in _SIMPLE_ONLY):
            return False
        if protocol == "LL128" and not self.graphs.ll128:
            return False
        if algorithm == "pat":
            return self.nodes == self.ranks
        if algorithm in _COLLNET:  # the direct one needs NVLink's switches in a node of several GPUs
            switch = self.machine.link == "NVLink" or self.per_node == 1
            return self.sharp and self.nodes > 1 and (switch or algorithm == "collnet_chain")
        if algorithm in _NVLS:
            few = self.collective == "all_reduce" or self.per_node <= tables.NVLS_MOST_RANKS
            there = self.nvls and self.graphs.nvls is not None and self.graphs.nvls.channels >= 2
            fits = (self.nodes == 1) == (algorithm == "nvls") or (self.sharp and algorithm == "nvls")
            return there and few and fits
        return True

    def gb_per_s(self, algorithm: str, protocol: str) -> float:
        """The algorithm bandwidth."""
        if algorithm in _COLLNET:
            return self.collnet_gb_per_s(algorithm)
        bus = self.nvls_gb_per_s(algorithm) if algorithm in _NVLS else self.bus(algorithm, protocol)
        if algorithm in ("nvls", "pat") and self.collective != "all_reduce":
            return bus
        return bus / 2 if algorithm == "tree" else bus * self.ranks / self.steps

    def bus(self, algorithm: str, protocol: str) -> float:
        """The bus bandwidth of a ring, a tree or PAT."""
        graph = self.graphs.ring if algorithm == "ring" else self.graphs.tree
        bus = graph.channels * (graph.inside if self.nodes <= 2 else graph.between)
        if algorithm == "pat":
            return bus * tables.PAT_SHARE
        if algorithm == "ring":
            if protocol == "LL":
                return min(self.ll_most(), bus / 2)
            if protocol == "LL128":
                return min(bus * tables.RING_LL128_SHARE, graph.channels * self.most(self.version.ring_ll128_most))
            return bus
        bus = min(bus * tables.TREE_SHARE, graph.channels * self.most(self.version.tree_most))
        if protocol == "LL":
            bus = min(bus / tables.TREE_LL_PART, self.ll_most())
        if protocol == "LL128":
            share = tables.TREE_LL128_SHARE[self.nodes > 1]
            bus = min(bus * share, graph.channels * self.most(self.version.tree_ll128_most))
        return bus * tables.TREE_PATTERN_SHARE if self.graphs.tree_ends else bus

    def nvls_gb_per_s(self, algorithm: str) -> float:
        """The bus bandwidth of NVLink's switches that add."""
        graph = self.graphs.nvls or Graph(1, 0.0, 0.0)  # `allows` keeps machines without it away
        inside = graph.inside * tables.NVLS_EFFICIENCY[self.machine.generation] * (graph.channels - 1) / graph.channels
        inside *= 2 if self.collective == "all_reduce" else (self.per_node - 1) / self.per_node
        between = graph.between * (2 if self.nodes == 2 and algorithm == "nvls_tree" else 1)
        most = self.most(self.version.nvls_tree_most) if algorithm == "nvls_tree" else math.inf
        return graph.channels * min(inside, between, most)

    def collnet_gb_per_s(self, algorithm: str) -> float:
        """The algorithm bandwidth where the network's switches add."""
        graph = self.graphs.ring
        inside, between = graph.inside, graph.between
        if self.collective != "all_reduce":
            return self.per_node * min(inside, tables.COLLNET_NET_SHARE * between)
        bus = graph.channels * (inside if self.nodes <= 2 else between)
        if algorithm == "collnet_direct":
            bus /= (self.per_node / graph.channels + 1) / 2
            bus *= tables.COLLNET_HOPPER_SHARE if self.machine.generation in ("Hopper", "Blackwell") else 1
        return bus / 2

    def latency_us(self, algorithm: str, protocol: str) -> float:
        at = tables.PROTOCOLS.index(protocol)
        base, inside = tables.BASE_US[algorithm][at], tables.HOP_US[self.machine.link][algorithm][at]
        # with one rank a node nothing hides a hop, and the tuner takes the tree's
        between = tables.HOP_US["network"]["tree" if self.per_node == 1 else algorithm][at]
        if algorithm == "nvls_tree" and self.per_node > 1:
            between = self.version.nvls_tree_net_us
        between += self.machine.nic_us * (2 if protocol == "Simple" else 1)
        levels = int(math.log2(self.nodes))
        if algorithm == "ring":
            return base + self.ring_us(inside, between, protocol)
        if algorithm == "tree":
            return base + 2 * ((self.per_node - 1) * inside + levels * between)
        if algorithm == "collnet_direct":
            others = self.per_node - 1
            return base + 2 * (min(1, others) * inside + tables.COLLNET_RANK_US * others) + between
        if algorithm == "collnet_chain":
            return base + 2 * (self.per_node - 1) * inside + between
        if algorithm == "nvls":
            return inside + (between if self.nodes > 1 else 0.0)
        if algorithm == "nvls_tree":
            return base + inside + 2 * levels * between
        return base + levels * between / tables.PAT_LATENCY_PART + self.ranks * tables.PAT_LINEAR_US

    def ring_us(self, inside: float, between: float, protocol: str) -> float:
        """The steps of a ring."""
        at = tables.PROTOCOLS.index(protocol)
        if self.collective in ("broadcast", "reduce"):
            link = self.machine.link if self.nodes == 1 else "network"
            if self.graphs.one_switch and self.nodes == 1:
                return tables.HOP_US[link]["ring"][at]
            return self.steps * tables.HOP_US[link]["tree" if protocol == "Simple" else "ring"][at]
        if self.nodes > 1:
            inside = max(inside, tables.NET_OVERHEAD_US[self.machine.cpu] * (3 if protocol == "Simple" else 1))
        crossings = 0 if self.nodes == 1 else (self.nodes - 1) * (2 if self.collective == "all_reduce" else 1)
        return (self.steps - crossings) * inside + crossings * between

    def option(self, algorithm: str, protocol: str) -> NcclOption:
        nbytes = self.nbytes
        latency, bandwidth = self.latency_us(algorithm, protocol), self.gb_per_s(algorithm, protocol)
        power = int(nbytes).bit_length() - 7  # of two, from 64 bytes on
        tree = algorithm == "tree" and power < 23
        x86 = self.machine.cpu != "Arm" and self.machine.generation == "Blackwell"
        if self.collective == "all_reduce" and 0 <= power < 24 and (tree or (algorithm == "nvls_tree" and x86)):
            bandwidth *= tables.TREE_CORRECTION[protocol][power]
        if (algorithm, protocol, self.collective) == ("ring", "Simple", "all_reduce") and self.nodes > 1:
            if nbytes // (self.graphs.channels * self.ranks) >= tables.RING_PLATEAU_NBYTES:
                latency *= tables.RING_PLATEAU[self.machine.generation]
        us = latency + nbytes / (1000 * bandwidth)
        return NcclOption(us, algorithm, protocol, self.channels(algorithm, protocol), latency, bandwidth)

    def channels(self, algorithm: str, protocol: str) -> int:
        """How many channels the kernel gets: fewer where there is little to do."""
        if algorithm in _NVLS:
            most = self.graphs.nvls_channels
        else:
            each = tables.THREADS[protocol] * tables.THREAD_NBYTES[protocol]
            each *= self.ranks if (algorithm, protocol) == ("ring", "LL") else 1
            most = max(1, min(self.graphs.channels, int(self.nbytes // each)))
        traffic = self.nbytes * (2 if self.collective == "all_reduce" else 1) * (4 if protocol == "LL" else 1)
        return max(1, min(most, math.ceil(traffic / tables.CHANNEL_TRAFFIC_NBYTES)))


def call(
    collective: str,
    nbytes: float,
    on: str | NcclMachine,
    nodes: int = 1,
    ranks: int | None = None,
    version: str = VERSION,
    **how: bool,
) -> Call:
    """The call that these describe, as in `nccl_options`; `how` is `nvls`, `sharp` and `one_process`. Raises CostError."""
    where = machine(on) if isinstance(on, str) else on
    most = where.gpus_per_node
    ranks = most * nodes if ranks is None else ranks
    check_size(ranks, nbytes)
    if nodes < 1 or ranks % nodes or ranks // nodes > most:
        raise CostError(f"{ranks} ranks do not fill {counted(nodes, 'node')} of up to {most} GPUs evenly")
    return Call(where, collective, nbytes, nodes, ranks, version=version_of(version), **how)

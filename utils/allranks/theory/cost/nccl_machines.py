"""Machines as NCCL's topology search sees them: channels and the bandwidth of each, for rings, trees and NVLS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from allranks.theory.cost.nccl_tables import GENERATIONS, NET_OVERHEAD_US
from allranks.theory.cost.terms import CostError


@dataclass(frozen=True)
class Graph:
    """Channels, and GB/s (1e9 bytes) of each: inside a node and between nodes.

    >>> from allranks.theory.cost.nccl_machines import Graph
    >>> Graph(12, 30.0, 30.0).inside * 12
    360.0
    """

    channels: int
    inside: float
    between: float


@dataclass(frozen=True)
class Graphs:
    """What the search finds for one number of GPUs a node.

    `channels` is how many the kernels use; `tree_ends` whether a node's tree has two ends at the network (pattern 3);
    `ll128` whether all paths allow LL128; `one_switch` whether all rings take the same channels (a broadcast is cheap then).
    """

    ring: Graph
    tree: Graph
    nvls: Graph | None = None
    channels: int = 24
    nvls_channels: int = 16
    tree_ends: bool = False
    ll128: bool = True
    one_switch: bool = False


@dataclass(frozen=True)
class NcclMachine:
    """A machine for NCCL's tuner.

    `one` has the graphs of one node by its number of GPUs, `several` those of several nodes by GPUs a node. `link` is "NVLink"
    or "PCIe"; `network` is "InfiniBand" (or RoCE), "EFA", "Slingshot" or "TCPX", by which measurements of hops are pooled, and
    `nic_us` what its plugin tells the tuner to add to a hop. Raises CostError.

    >>> cost.MACHINES["dgx-h100"].graphs(gpus=8, nodes=2).tree_ends
    True
    """

    name: str
    gpu: str
    generation: str
    gpus_per_node: int
    cpu: str
    one: Mapping[int, Graphs] = field(default_factory=dict)
    several: Mapping[int, Graphs] = field(default_factory=dict)
    link: str = "NVLink"
    network: str = "InfiniBand"
    nic_us: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        if self.generation not in GENERATIONS or self.cpu not in NET_OVERHEAD_US or self.link not in ("NVLink", "PCIe"):
            raise CostError(f"{self.name}: NCCL's tables have no {self.generation} with {self.cpu} and {self.link}")

    def graphs(self, gpus: int, nodes: int) -> Graphs:
        """The graphs for so many GPUs on each of so many nodes. Raises CostError where the search's result is not known."""
        if nodes == 1:
            fitting = [size for size in sorted(self.one) if size >= gpus]
            if fitting:
                return self.one[fitting[0]]
        elif gpus in self.several:
            return self.several[gpus]
        known = ", ".join(str(size) for size in sorted(self.one if nodes == 1 else self.several)) or "none"
        where = "on one node" if nodes == 1 else f"on each of {nodes} nodes"
        raise CostError(f"{self.name}: what NCCL finds for {gpus} GPUs {where} is not known; known are {known}")


def _same(channels: int, each: float) -> tuple[Graph, Graph]:
    """Ring and tree with the same graph, whose channels are as fast between nodes as inside."""
    graph = Graph(channels, each, each)
    return graph, graph


_SEARCH = "NCCL 2.30.7's topology search, run on a description of the machine"
_BY_ANALOGY = "not known: channels as on the nearest machine whose search was run; bandwidths from the maker's page"
_RCCL = "RCCL: xGMI mesh, one ring a link (rocm.blogs.amd.com, MI300X RCCL and xGMI); its own tuner is not known, NCCL's latencies stand in"
_ONE_CARD = Graphs(Graph(2, 24.0, 24.0), Graph(2, 48.0, 24.0), channels=4, tree_ends=True)
_A100_NODE = {
    2: Graphs(Graph(12, 20.0, 20.0), Graph(12, 40.0, 40.0), one_switch=True),
    8: Graphs(*_same(12, 20.0), one_switch=True),
}
_H100_NODE = {
    2: Graphs(Graph(12, 30.0, 30.0), Graph(12, 60.0, 60.0), Graph(2, 60.0, 60.0), one_switch=True),
    4: Graphs(*_same(12, 30.0), Graph(4, 60.0, 60.0), one_switch=True),
    8: Graphs(*_same(12, 30.0), Graph(8, 40.0, 60.0), one_switch=True),
}
_BLACKWELL = {"channels": 32, "nvls_channels": 24, "one_switch": True}
_B200_NODE = {8: Graphs(*_same(16, 45.0), Graph(8, 80.0, 90.0), **_BLACKWELL)}  # type: ignore[arg-type]
_GB200_RACK = {
    4: Graphs(Graph(16, 45.0, 45.0), Graph(16, 50.0, 50.0), Graph(4, 90.0, 90.0), tree_ends=True, **_BLACKWELL),  # type: ignore[arg-type]
    8: _B200_NODE[8],
    16: Graphs(*_same(16, 45.0), Graph(16, 40.0, 80.0), **_BLACKWELL),  # type: ignore[arg-type]
    72: Graphs(*_same(16, 45.0), Graph(32, 20.0, 40.0), **_BLACKWELL),  # type: ignore[arg-type]
}
_GB200_RACKS = {
    4: Graphs(Graph(8, 24.0, 24.0), Graph(8, 48.0, 24.0), Graph(4, 48.0, 48.0), 16, 32),
    8: Graphs(Graph(8, 48.0, 48.0), Graph(8, 96.0, 48.0), Graph(8, 48.0, 48.0), 16, 32),
    64: Graphs(*_same(16, 45.1), Graph(32, 20.0, 40.0), 32, 32),
    72: Graphs(*_same(16, 45.1), Graph(32, 20.0, 40.0), 32, 32),
}

# The machines by name. Graphs are NCCL's own; numbers of cards and CPUs come from the makers' pages.
MACHINES: dict[str, NcclMachine] = {
    machine.name: machine
    for machine in (
        NcclMachine("dgx-a100", "A100", "Ampere", 8, "AMD", _A100_NODE,
                    {8: Graphs(Graph(8, 24.0, 24.0), Graph(8, 30.0, 24.0), channels=16), 1: _ONE_CARD}, source=_SEARCH),
        NcclMachine("p4d", "A100", "Ampere", 8, "Intel", _A100_NODE,
                    {8: Graphs(Graph(4, 12.0, 12.0), Graph(4, 24.0, 12.0), channels=8)}, network="EFA", source=_SEARCH),
        NcclMachine("a100-8-4x200g", "A100", "Ampere", 8, "AMD", _A100_NODE,
                    {8: Graphs(Graph(4, 24.0, 24.0), Graph(4, 48.0, 24.0), channels=8)}, source=_SEARCH),
        NcclMachine("a100-4", "A100", "Ampere", 4, "AMD", {4: Graphs(*_same(12, 20.0))},
                    {4: Graphs(Graph(2, 24.0, 24.0), Graph(2, 48.0, 24.0), channels=4, ll128=False)}, network="Slingshot", source=_SEARCH),
        NcclMachine("dgx-h100", "H100", "Hopper", 8, "Intel", _H100_NODE,
                    {8: Graphs(*_same(8, 48.0), Graph(8, 40.0, 48.0), 16, tree_ends=True), 1: _ONE_CARD}, source=_SEARCH),
        NcclMachine("dgx-h200", "H200", "Hopper", 8, "Intel", _H100_NODE,
                    {8: Graphs(*_same(8, 48.0), Graph(8, 40.0, 48.0), 16, tree_ends=True), 1: _ONE_CARD}, source=_SEARCH),
        NcclMachine("p5", "H100", "Hopper", 8, "AMD", _H100_NODE,
                    {8: Graphs(*_same(32, 12.0), Graph(8, 12.0, 12.0), 64, tree_ends=True)}, network="EFA", source=_SEARCH),
        NcclMachine("p5en", "H200", "Hopper", 8, "Intel", _H100_NODE,
                    {8: Graphs(*_same(16, 24.0), Graph(8, 24.0, 24.0), 32, tree_ends=True)}, network="EFA", source=_SEARCH),
        NcclMachine("h100-4", "H100", "Hopper", 4, "AMD", {4: Graphs(*_same(12, 30.0))},
                    {4: Graphs(Graph(4, 24.0, 24.0), Graph(4, 48.0, 24.0), channels=8, ll128=False)}, source=_SEARCH),
        NcclMachine("gh200-4", "GH200", "Hopper", 4, "Arm", {4: Graphs(*_same(12, 30.0))},
                    {4: Graphs(Graph(4, 24.0, 24.0), Graph(4, 48.0, 24.0), channels=8, tree_ends=True)}, network="Slingshot", source=_SEARCH),
        NcclMachine("dgx-b200", "B200", "Blackwell", 8, "Intel", _B200_NODE,
                    {8: Graphs(Graph(8, 48.0, 48.0), Graph(8, 96.0, 48.0), Graph(8, 48.0, 48.0), 16, 32, tree_ends=True),
                     1: _ONE_CARD}, source=_SEARCH),
        NcclMachine("p6-b200", "B200", "Blackwell", 8, "Intel", _B200_NODE,
                    {8: Graphs(Graph(8, 48.0, 48.0), Graph(8, 96.0, 48.0), Graph(8, 48.0, 48.0), 16, 32, tree_ends=True)},
                    network="EFA", source=_SEARCH),
        NcclMachine("b200-8-800g", "B200", "Blackwell", 8, "Intel", _B200_NODE,
                    {8: Graphs(*_same(16, 48.0), Graph(8, 80.0, 96.0), 32, 32, tree_ends=True)}, source=_SEARCH),
        NcclMachine("gb200-nvl72", "GB200", "Blackwell", 72, "Arm", _GB200_RACK, _GB200_RACKS, source=_SEARCH),
        NcclMachine("a3-mega", "H100", "Hopper", 8, "Intel", _H100_NODE,
                    {8: Graphs(Graph(8, 24.0, 24.0), Graph(8, 48.0, 24.0), Graph(8, 40.0, 24.0), 16, tree_ends=True)}, network="TCPX", source=_BY_ANALOGY),
        NcclMachine("h20-8", "H20", "Hopper", 8, "Intel", _H100_NODE,
                    {8: Graphs(*_same(8, 48.0), Graph(8, 40.0, 48.0), 16, tree_ends=True)}, source=_BY_ANALOGY),
        NcclMachine("mi300x-8", "MI300X", "Hopper", 8, "AMD", {8: Graphs(*_same(7, 45.0), channels=28)},
                    {8: Graphs(*_same(8, 45.0), channels=32, tree_ends=True)}, source=_RCCL),
        NcclMachine("mi350x-8", "MI350X or MI355X", "Hopper", 8, "AMD", {8: Graphs(*_same(7, 53.0), channels=28)},
                    {8: Graphs(*_same(8, 48.0), channels=32, tree_ends=True)}, source=_RCCL),
        NcclMachine("dgx-spark", "GB10", "Blackwell", 1, "Arm", {}, {1: Graphs(*_same(2, 12.0), channels=4)}, source=_BY_ANALOGY),
        NcclMachine("l40s-8", "L40S", "Ampere", 8, "AMD", {8: Graphs(*_same(1, 15.0), channels=2, ll128=False)}, link="PCIe", source=_BY_ANALOGY),
        NcclMachine("pcie-8", "PCIe GPUs", "Ampere", 8, "AMD",
                    {8: Graphs(*_same(1, 15.0), channels=2, ll128=False)}, link="PCIe", source=_SEARCH),
        NcclMachine("pcie-8-switches", "PCIe GPUs", "Ampere", 8, "Intel",
                    {8: Graphs(*_same(1, 10.0), channels=2, ll128=False)}, link="PCIe", source=_SEARCH),
    )
}  # fmt: skip


def machine(name: str) -> NcclMachine:
    """A machine by its name. Raises CostError, which lists the names that exist.

    >>> from allranks.theory.cost.nccl_machines import machine
    >>> machine("dgx-h100").graphs(gpus=8, nodes=1).nvls
    Graph(channels=8, inside=40.0, between=60.0)
    """
    try:
        return MACHINES[name.lower()]
    except KeyError:
        raise CostError(f"NCCL's tables have no machine {name!r}; there are {', '.join(MACHINES)}") from None

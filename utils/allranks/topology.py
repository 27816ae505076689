"""Links and nodes: what a message passes on its way from rank to rank, and presets of real machines with their sources.

Bandwidths are bytes a second and direction. A rank sends one message and receives one at a time; what ranks share (the
bridge of a PCIe island, a network card, a leaf switch's uplink) carries one message at a time in each direction.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property

from allranks.errors import CourseError

__all__ = [
    "PRESETS",
    "Link",
    "Topology",
    "TopologyError",
    "preset",
    "round_robin",
    "uniform",
]

NVLINK_SOURCE = "NCCL 2.30.7 src/graph/topo.h: what NCCL counts on for all NVLinks of a GPU together"
ALPHA_NOTE = "alpha is a teaching value of the right order, not a measurement: fit your own with `allranks bench`"
KINDS = ("inside", "host", "nic", "leaf")


class TopologyError(CourseError, ValueError):
    """A topology that can't be: unknown, with impossible figures, or with no way left between two ranks."""


@dataclass(frozen=True)
class Link:
    """One kind of link: seconds a message, bytes a second and direction, and where the figures come from."""

    name: str
    alpha_s: float
    bytes_per_s: float
    source: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha_s < math.inf:
            raise TopologyError(f"alpha of {self.name} is {self.alpha_s} s; it must be 0 or more, and finite")
        if not 0 < self.bytes_per_s < math.inf:
            raise TopologyError(
                f"the bandwidth of {self.name} is {self.bytes_per_s} bytes/s; it must be above 0, and finite"
            )

    @property
    def beta_s_per_byte(self) -> float:
        """Seconds a byte."""
        return 1 / self.bytes_per_s


@dataclass(frozen=True)
class Topology:
    """Nodes of ranks, joined by network cards and perhaps a fat tree of switches.

    `inside` joins the ranks of an island (all of a node where `ranks_per_island` is None) through a switch that blocks
    nobody: NVLink, or PCIe below one bridge. `host` joins a node's islands, one link an island and direction. A node has
    `nics_per_node` cards, each shared by an equal run of its ranks. With `nodes_per_leaf`, so many nodes hang on one leaf
    switch (one for each card number, if `rails`), whose uplinks have 1/`oversubscription` of the bandwidth of its ports.
    What crosses leaves takes the uplink that its card's number picks (static routing).
    `stragglers` are (rank, factor): its messages take factor times as long. `background` are (kind of link, share of it
    that others use). `failed` are (kind, node or leaf, index): "inside" of a rank, a "nic", an uplink of a "leaf".
    """

    name: str
    ranks_per_node: int
    inside: Link
    nic: Link | None = None
    nics_per_node: int = 1
    ranks_per_island: int | None = None
    host: Link | None = None
    nodes_per_leaf: int | None = None
    oversubscription: float = 1.0
    rails: bool = False
    stragglers: tuple[tuple[int, float], ...] = ()
    background: tuple[tuple[str, float], ...] = ()
    failed: frozenset[tuple[str, int, int]] = frozenset()
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        g, island = self.ranks_per_node, self.ranks_per_island
        if g < 1 or self.nics_per_node < 1:
            raise TopologyError(f"{self.name}: a node has at least one rank and one network card")
        if island is not None and (island < 1 or g % island):
            raise TopologyError(f"{self.name}: islands of {island} ranks do not fill nodes of {g}")
        if island not in (None, g) and self.host is None:
            raise TopologyError(f"{self.name}: a node of several islands needs a host link between them")
        if not 1 <= self.oversubscription < math.inf:
            raise TopologyError(
                f"{self.name}: the oversubscription is {self.oversubscription}; it is 1 or more, and finite"
            )
        if self.nodes_per_leaf is not None and self.nodes_per_leaf < 1:
            raise TopologyError(f"{self.name}: a leaf switch serves at least one node")
        for rank, factor in self.stragglers:
            if rank < 0 or not 0 < factor < math.inf:
                raise TopologyError(
                    f"{self.name}: rank {rank} can't be {factor} times as slow; the factor is above 0, and finite"
                )
        for kind, share in self.background:
            if kind not in KINDS or not 0 <= share < 1:
                raise TopologyError(
                    f"{self.name}: background traffic takes a share from 0 to below 1 of {', '.join(KINDS)}; "
                    f"it can't take {share} of {kind!r}"
                )
            if not self._link_counts[kind]:
                raise TopologyError(f"{self.name} has no {kind} links for others to use")
        for kind, where, index in self.failed:
            if kind not in ("inside", "nic", "leaf"):
                raise TopologyError(f"{self.name}: inside, nic and leaf links can fail, not {kind!r}")
            if where < 0 or not 0 <= index < self._link_counts[kind]:
                raise TopologyError(
                    f"{self.name}: {kind} link {index} of {where} can't fail; one has {self._link_counts[kind]}, from 0 on"
                )

    # ------------------------------------------------------------------------------------------------------ variants

    def with_straggler(self, rank: int, factor: float) -> Topology:
        """The same machine with one rank whose messages take `factor` times as long."""
        return replace(self, stragglers=(*self.stragglers, (rank, factor)))

    def with_background(self, kind: str, share: float) -> Topology:
        """The same machine with `share` of every link of `kind` (inside, host, nic, leaf) used by others."""
        return replace(self, background=(*self.background, (kind, share)))

    def with_failure(self, kind: str, where: int, index: int) -> Topology:
        """The same machine without one link.

        "nic": card `index` of node `where`, whose ranks use the next card; "inside": the link of the node's rank `index`,
        which goes by the host instead; "leaf": uplink `index` of leaf `where`, whose traffic takes the next one.
        """
        return replace(self, failed=self.failed | {(kind, where, index)})

    # ------------------------------------------------------------------------------------------------------ the paths

    def node(self, rank: int) -> int:
        """The node that holds the rank."""
        return rank // self.ranks_per_node

    def nodes(self, ranks: int) -> int:
        """How many nodes a world of so many ranks takes."""
        return -(-ranks // self.ranks_per_node)

    def nic_of(self, rank: int) -> int:
        """The number of the card that the rank uses, in its node."""
        node, place = divmod(rank, self.ranks_per_node)
        return self._working_link("nic", node, place * self.nics_per_node // self.ranks_per_node, self.nics_per_node)

    def links(self, src: int, dst: int) -> tuple[Hashable, ...]:
        """The shared links on the way, each (kind and direction, node or leaf, index); the ranks' own ports are not named."""
        if src == dst or self._through_switch(src, dst):
            return ()
        a, b = self.node(src), self.node(dst)
        if a == b:
            island = self.ranks_per_island or self.ranks_per_node
            near, far = (r % self.ranks_per_node // island for r in (src, dst))
            return ("host out", a, near), ("host in", b, far)
        out, into = self.nic_of(src), self.nic_of(dst)
        return ("nic out", a, out), *self._leaf_links(a, out, b, into), ("nic in", b, into)

    def seconds(self, src: int, dst: int, nbytes: int) -> float:
        """alpha + nbytes * beta of the slowest link on the way; a rank's message to itself is free."""
        if src == dst:
            return 0.0
        kinds: tuple[str, ...]
        if self._through_switch(src, dst):
            link, kinds = self.inside, ("inside",)
        elif self.node(src) == self.node(dst) and self.host is not None:
            link, kinds = self.host, ("host",)
        else:
            link, kinds = self._nic(), ("nic",)
            if self.nodes_per_leaf is not None and len(self.links(src, dst)) > 2:
                kinds = ("nic", "leaf")
        slowdown = max(self._slowdown[kind] * (self._uplink_factor if kind == "leaf" else 1) for kind in kinds)
        seconds = link.alpha_s + nbytes * link.beta_s_per_byte * slowdown
        return (
            seconds * max(self._straggler_factors.get(src, 1), self._straggler_factors.get(dst, 1))
            if self._straggler_factors
            else seconds
        )

    def symmetric_unit(self, ranks: int) -> int | None:
        """The ranks of the smallest unit of which a world of `ranks` is made, all alike; None where they are not alike."""
        if self.stragglers or self.failed:
            return None
        unit = self.ranks_per_node * (self.nodes_per_leaf or 1)
        if not self.rails and ranks <= unit:
            unit = self.ranks_per_node  # below one leaf switch, nodes are alike
        if ranks <= self.ranks_per_node and self.ranks_per_island in (None, self.ranks_per_node):
            return 1  # one switch, where every rank is like every other
        return unit if ranks % unit == 0 else None

    @property
    def fastest(self) -> Link:
        """The link with the most bandwidth."""
        return max((x for x in (self.inside, self.host, self.nic) if x), key=lambda link: link.bytes_per_s)

    @cached_property
    def _straggler_factors(self) -> dict[int, float]:
        return dict(self.stragglers)

    @cached_property
    def _slowdown(self) -> dict[str, float]:
        """By how much others slow each kind of link."""
        left = dict.fromkeys(KINDS, 1.0)
        for kind, share in self.background:
            left[kind] *= 1 - share
        return {kind: 1 / share for kind, share in left.items()}

    def _through_switch(self, src: int, dst: int) -> bool:
        island = self.ranks_per_island or self.ranks_per_node
        if src // island != dst // island:
            return False
        if not self.failed:
            return True
        broken = any(("inside", *divmod(rank, self.ranks_per_node)) in self.failed for rank in (src, dst))
        if broken and self.host is None:
            raise TopologyError(
                f"{self.name}: the link of rank {src} or {dst} inside its node has failed, and there is no host link to "
                "take its place"
            )
        return not broken

    def _nic(self) -> Link:
        if self.nic is None:
            raise TopologyError(f"{self.name} is one node of {self.ranks_per_node} ranks, with no network to others")
        return self.nic

    def _leaf_links(self, a: int, out: int, b: int, into: int) -> tuple[Hashable, ...]:
        """The uplink and the downlink, where the two cards hang on different leaf switches."""
        if self.nodes_per_leaf is None:
            return ()
        near, far = self._port(a, out), self._port(b, into)
        if near[:1] == far[:1] and near[1] == far[1]:
            return ()
        up, down = (
            self._working_link("leaf", where, port % self._uplinks, self._uplinks) for where, _, port in (near, far)
        )
        return ("leaf up", near[0], (near[1], up)), ("leaf down", far[0], (far[1], down))

    @property
    def _link_counts(self) -> dict[str, int]:
        """How many links of each kind a node has, and of "leaf" a leaf switch."""
        return {
            "inside": self.ranks_per_node,
            "host": 0 if self.host is None else self.ranks_per_node,
            "nic": 0 if self.nic is None else self.nics_per_node,
            "leaf": 0 if self.nodes_per_leaf is None else self._uplinks,
        }

    @property
    def _leaf_ports(self) -> int:
        """How many ports a leaf switch has towards its nodes."""
        return (self.nodes_per_leaf or 0) * (1 if self.rails else self.nics_per_node)

    @cached_property
    def _uplinks(self) -> int:
        """How many a leaf switch has: whole links, which have the right bandwidth together."""
        return math.ceil(self._leaf_ports / self.oversubscription)

    @cached_property
    def _uplink_factor(self) -> float:
        """How many times as long as a port an uplink takes for a byte."""
        return self._uplinks * self.oversubscription / self._leaf_ports

    def _port(self, node: int, nic: int) -> tuple[int, int, int]:
        """(group of nodes, rail, port of that leaf switch)"""
        group, place = divmod(node, self.nodes_per_leaf or 1)
        return (group, nic, place) if self.rails else (group, 0, place * self.nics_per_node + nic)

    def _working_link(self, kind: str, where: int, index: int, count: int) -> int:
        """`index`, or the next one after it that has not failed."""
        if not self.failed:
            return index
        for step in range(count):
            if (kind, where, (index + step) % count) not in self.failed:
                return (index + step) % count
        raise TopologyError(
            f"{self.name}: every {kind} link of {'node' if kind == 'nic' else 'leaf'} {where} has failed"
        )


def round_robin(ranks: int, ranks_per_node: int, together: int = 1) -> list[int]:
    """The seat of each rank where a launcher deals ranks out to the nodes in turns, `together` of them at a time.

    Seats are counted node by node, so that seat s is on node s // ranks_per_node; dealt in order, rank r would have seat r.
    Raises TopologyError where the ranks don't fill the nodes, or the turns a node.
    """
    if min(ranks, ranks_per_node, together) < 1 or ranks % ranks_per_node or ranks_per_node % together:
        raise TopologyError(
            f"{ranks} ranks, dealt {together} at a time, don't fill nodes of {ranks_per_node}; "
            "each number must divide the one before it: ranks, ranks of a node, ranks of a turn"
        )
    nodes, seats = ranks // ranks_per_node, []
    for rank in range(ranks):
        turn, place = divmod(rank, together)
        seats.append(turn % nodes * ranks_per_node + turn // nodes * together + place)
    return seats


def uniform(alpha_s: float, bytes_per_s: float) -> Topology:
    """Every pair of ranks joined by a link of its own."""
    return Topology("uniform", 1 << 30, Link("the link", alpha_s, bytes_per_s))


def _nvlink(generation: str, gpu: str, gb_per_s: float) -> Link:
    return Link(f"NVLink {generation} ({gpu})", 2e-6, gb_per_s * 1e9, f"{NVLINK_SOURCE}; {ALPHA_NOTE}")


def _infiniband(name: str, gb_per_s: float) -> Link:
    return Link(f"InfiniBand {name}", 5e-6, gb_per_s * 1e9, f"line rate; {ALPHA_NOTE}")


PRESETS: dict[str, Topology] = {
    topology.name: topology
    for topology in (
        Topology(
            "dgx-a100", 8, _nvlink("3", "A100", 240.0), _infiniband("4x HDR", 25.0), nics_per_node=8,
            source="8 GPUs and 8 compute cards of 200 Gb/s a node: NVIDIA DGX SuperPOD reference architecture RA-09950-001",
        ),
        Topology(
            "dgx-h100", 8, _nvlink("4", "H100", 371.0), _infiniband("4x NDR", 50.0), nics_per_node=8,
            source="8 GPUs and 8 single-port ConnectX-7 of 400 Gb/s a node: "
            "docs.nvidia.com/dgx-basepod, reference architecture, core components",
        ),
        Topology(
            "nvl72", 72, _nvlink("5", "B200", 722.0), _infiniband("4x NDR", 50.0), nics_per_node=72,
            source="72 GPUs in one NVLink domain, 4 ConnectX-7 of 400 Gb/s a tray of 4 GPUs: "
            "docs.nvidia.com/dgx/dgxgb200-user-guide, hardware",
        ),
        Topology(
            "cloud-ethernet", 8, Link("PCIe 4 x16", 4e-6, 31.5e9, f"16 GT/s x 16 lanes x 128/130; {ALPHA_NOTE}"),
            Link("100 Gb/s Ethernet, kernel TCP", 50e-6, 12.5e9, f"line rate; {ALPHA_NOTE}"), nics_per_node=1,
            ranks_per_island=4, host=Link("PCIe 4 x16 bridge", 5e-6, 31.5e9, f"16 GT/s x 16 lanes x 128/130; {ALPHA_NOTE}"),
            nodes_per_leaf=16, oversubscription=4.0,
            source="no particular provider: 8 GPUs on two PCIe bridges, one 100 Gb/s card, leaf switches of 16 nodes, 4:1",
        ),
    )
}  # fmt: skip


def preset(name: str) -> Topology:
    """A preset by name. Raises TopologyError that lists what there is."""
    try:
        return PRESETS[name.lower()]
    except KeyError:
        raise TopologyError(f"there is no topology {name!r}; there are {', '.join(PRESETS)}") from None

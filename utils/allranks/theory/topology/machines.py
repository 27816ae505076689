"""Links and nodes: which links a message uses on its way from rank to rank, and presets of real machines with sources.

Bandwidths are bytes a second in one direction. A rank sends one message at a time and receives one at a time. A link
that ranks share (the bridge of a PCIe island, a network card, an uplink of a leaf switch) carries one message at a time
in each direction.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from allranks.base.errors import CourseError

NVLINK_SOURCE = "NCCL 2.30.7 src/graph/topo.h: what NCCL counts on for all NVLinks of a GPU together"
ALPHA_NOTE = "alpha is a teaching value of the right order, not a measurement: fit your own with `allranks bench`"
KINDS = ("inside", "host", "nic", "leaf")


class TopologyError(CourseError, ValueError):
    """A topology that is unknown, has impossible figures, or has no link left between two ranks."""


@dataclass(frozen=True)
class Link:
    """One kind of link: seconds a message, bytes a second in one direction, and the source of these figures.

    Raises TopologyError if a figure is impossible.

    >>> topology.Link("100 Gb/s Ethernet", alpha_s=50e-6, bytes_per_s=12.5e9).beta_s_per_byte
    8e-11
    """

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
        """Seconds a byte: 1 over the bandwidth."""
        return 1 / self.bytes_per_s


@dataclass(frozen=True)
class Topology:
    """Nodes of ranks, joined by network cards, and perhaps by a fat tree of switches.

    `inside` joins the ranks of an island through a switch: NVLink, or PCIe below one bridge. Messages of different
    ranks do not slow each other there. An island is the whole node if `ranks_per_island` is None. `host` joins the
    islands of a node, with one link in each direction for each island. A node has `nics_per_node` network cards;
    consecutive ranks share a card, equally many each.

    `nodes_per_leaf` is how many nodes one leaf switch joins (None: one switch joins all nodes). With `rails`, each card
    number has leaf switches of its own. The uplinks of a leaf switch have 1/`oversubscription` of the bandwidth of its
    ports together. A message to another leaf switch takes the uplink that the number of its port gives (static
    routing).

    `stragglers` are (rank, factor): the messages of this rank take factor times as long. `background` are (kind of
    link, share of its bandwidth that others use). `failed` are (kind, node or leaf switch, index) of links that have
    failed; see `with_failure`. `slow_nics` are (node, card, factor): a byte through this card takes factor times as
    long. Raises TopologyError if the figures do not fit together.

    >>> nvlink, card = topology.Link("NVLink", 2e-6, 240e9), topology.Link("InfiniBand", 5e-6, 25e9)
    >>> pair = Topology("pair", ranks_per_node=2, inside=nvlink, nic=card)
    >>> pair.links(0, 2)
    (('nic out', 0, 0), ('nic in', 1, 0))
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
    slow_nics: tuple[tuple[int, int, float], ...] = ()
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        g, island = self.ranks_per_node, self.ranks_per_island
        if g < 1 or self.nics_per_node < 1:
            raise TopologyError(f"{self.name}: a node needs at least one rank and one network card")
        if island is not None and (island < 1 or g % island):
            raise TopologyError(f"{self.name}: islands of {island} ranks do not fill nodes of {g} ranks")
        if island not in (None, g) and self.host is None:
            raise TopologyError(f"{self.name}: a node of several islands needs a host link between them")
        if not 1 <= self.oversubscription < math.inf:
            raise TopologyError(
                f"{self.name}: the oversubscription is {self.oversubscription}; it must be 1 or more, and finite"
            )
        if self.nodes_per_leaf is not None and self.nodes_per_leaf < 1:
            raise TopologyError(f"{self.name}: a leaf switch serves at least one node")
        for rank, factor in self.stragglers:
            if rank < 0 or not 0 < factor < math.inf:
                raise TopologyError(
                    f"{self.name}: rank {rank} can't be {factor} times as slow; the factor must be above 0, and finite"
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
                    f"{self.name}: {'leaf switch' if kind == 'leaf' else 'node'} {where} has no {kind} link {index}; "
                    f"it has {self._link_counts[kind]}, numbered from 0"
                )

        for node, card, factor in self.slow_nics:
            if node < 0 or not 0 <= card < self._link_counts["nic"] or not 1 <= factor < math.inf:
                raise TopologyError(
                    f"{self.name}: card {card} of node {node} can't be {factor:g} times as slow; nodes and "
                    f"cards are numbered from 0, a node has {self._link_counts['nic']} cards, and the factor "
                    "is 1 or more, and finite"
                )

    # ------------------------------------------------------------------------------------------------------ variants

    def with_straggler(self, rank: int, factor: float) -> Topology:
        """The same machine, but the messages of `rank` take `factor` times as long."""
        return replace(self, stragglers=(*self.stragglers, (rank, factor)))

    def with_background(self, kind: str, share: float) -> Topology:
        """The same machine, but others use `share`, from 0 to 1, of every link of `kind` (inside, host, nic, leaf)."""
        return replace(self, background=(*self.background, (kind, share)))

    def with_failure(self, kind: str, where: int, index: int) -> Topology:
        """The same machine without one link. Its traffic takes another link.

        `kind` "nic" is card `index` of node `where`: its ranks use the next card. "inside" is the link of rank `index`
        of node `where`: its messages take the host link. "leaf" is uplink `index` of leaf switch `where`: its messages
        take the next uplink.
        """
        return replace(self, failed=self.failed | {(kind, where, index)})

    def with_slow_nic(self, node: int, card: int, factor: float) -> Topology:
        """The same machine, but a byte through this card takes `factor` times as long: a bad cable, or a port at half
        of its rate.

        >>> slow = topology.preset("dgx-h100").with_slow_nic(0, 3, 2.0)
        >>> slow.seconds(3, 11, 10**9) / topology.preset("dgx-h100").seconds(3, 11, 10**9) > 1.9
        True
        """
        return replace(self, slow_nics=(*self.slow_nics, (node, card, factor)))

    # ------------------------------------------------------------------------------------------------------ the paths

    def node(self, rank: int) -> int:
        """The number of the node that holds the rank."""
        return rank // self.ranks_per_node

    def nodes(self, ranks: int) -> int:
        """How many nodes a world of `ranks` ranks needs."""
        return -(-ranks // self.ranks_per_node)

    def nic_of(self, rank: int) -> int:
        """The number, inside its node, of the network card that the rank uses."""
        node, place = divmod(rank, self.ranks_per_node)
        return self._working_link("nic", node, place * self.nics_per_node // self.ranks_per_node, self.nics_per_node)

    def links(self, src: int, dst: int) -> tuple[tuple[Hashable, ...], ...]:
        """The shared links on the way, each as (kind and direction, node or leaf, index), without the ranks' ports."""
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
        """alpha + nbytes * beta of the slowest link on the way, in seconds; 0 for a rank's message to itself."""
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
        if self.slow_nics and "nic" in kinds:
            cards = {(self.node(rank), self.nic_of(rank)) for rank in (src, dst)}
            slowdown *= max((factor for node, card, factor in self.slow_nics if (node, card) in cards), default=1.0)
        seconds = link.alpha_s + nbytes * link.beta_s_per_byte * slowdown
        return (
            seconds * max(self._straggler_factors.get(src, 1), self._straggler_factors.get(dst, 1))
            if self._straggler_factors
            else seconds
        )

    def symmetric_unit(self, ranks: int) -> int | None:
        """The number of ranks of the smallest unit that repeats through a world of `ranks`; None if no unit does."""
        if self.stragglers or self.failed or self.slow_nics:
            return None
        unit = self.ranks_per_node * (self.nodes_per_leaf or 1)
        if not self.rails and ranks <= unit:
            unit = self.ranks_per_node  # below one leaf switch, all nodes are alike
        if ranks <= self.ranks_per_node and self.ranks_per_island in (None, self.ranks_per_node):
            return 1  # below one switch, all ranks are alike
        return unit if ranks % unit == 0 else None

    def uplinks(self, nodes: int) -> list[tuple[int, int, int]]:
        """(leaf switch, rail, number) of each uplink of the leaf switches that join so many nodes."""
        if self.nodes_per_leaf is None:
            return []
        rails = self.nics_per_node if self.rails else 1
        leaves = range(-(-nodes // self.nodes_per_leaf))
        return [(leaf, rail, up) for leaf in leaves for rail in range(rails) for up in range(self._uplinks)]

    @property
    def uplink_factor(self) -> Fraction:
        """Seconds a byte of an uplink over those of a card, as an exact number."""
        if self.nodes_per_leaf is None:
            return Fraction(1)
        return self._uplinks * Fraction(repr(self.oversubscription)) / self._leaf_ports

    @property
    def fastest(self) -> Link:
        """The kind of link with the largest bandwidth."""
        return max((x for x in (self.inside, self.host, self.nic) if x), key=lambda link: link.bytes_per_s)

    @cached_property
    def _straggler_factors(self) -> dict[int, float]:
        return dict(self.stragglers)

    @cached_property
    def _slowdown(self) -> dict[str, float]:
        """The factor by which other traffic slows each kind of link."""
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
                f"{self.name}: the link of rank {src} or {dst} inside its node has failed, and there is no "
                "host link to take its place"
            )
        return not broken

    def _nic(self) -> Link:
        if self.nic is None:
            raise TopologyError(f"{self.name} is one node of {self.ranks_per_node} ranks, with no network to others")
        return self.nic

    def _leaf_links(self, a: int, out: int, b: int, into: int) -> tuple[tuple[Hashable, ...], ...]:
        """The uplink and the downlink, if the two cards are on different leaf switches."""
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
        """The number of links of each kind in a node; of "leaf", the uplinks of a leaf switch."""
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
        """How many uplinks a leaf switch has."""
        return math.ceil(self._leaf_ports / self.oversubscription)

    @cached_property
    def _uplink_factor(self) -> float:
        """Seconds a byte of an uplink over those of a port. Rounding their number up must not add bandwidth."""
        return float(self.uplink_factor)

    def _port(self, node: int, nic: int) -> tuple[int, int, int]:
        """(group of nodes, rail, port of their leaf switch) of a card."""
        group, place = divmod(node, self.nodes_per_leaf or 1)
        return (group, nic, place) if self.rails else (group, 0, place * self.nics_per_node + nic)

    def _working_link(self, kind: str, where: int, index: int, count: int) -> int:
        """`index`, or the next index whose link has not failed. Raises TopologyError if all have failed."""
        if not self.failed:
            return index
        for step in range(count):
            if (kind, where, (index + step) % count) not in self.failed:
                return (index + step) % count
        raise TopologyError(
            f"{self.name}: every {kind} link of {'node' if kind == 'nic' else 'leaf'} {where} has failed"
        )


def round_robin(ranks: int, ranks_per_node: int, together: int = 1) -> list[int]:
    """The seat of each rank if a launcher gives `together` ranks to each node in turn, until all nodes are full.

    Seat s is a place on node s // ranks_per_node; a launcher that fills node after node gives rank r seat r. Raises
    TopologyError if the ranks do not fill the nodes, or `together` does not divide a node.

    >>> topology.round_robin(8, ranks_per_node=4)
    [0, 4, 1, 5, 2, 6, 3, 7]
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
    """A machine in which each pair of ranks has a link of its own. Raises TopologyError.

    >>> topology.uniform(alpha_s=5e-6, bytes_per_s=1e9).seconds(0, 9, nbytes=1000)
    6e-06
    """
    return Topology("uniform", 1 << 30, Link("the link", alpha_s, bytes_per_s))


def _nvlink(generation: str, gpu: str, gb_per_s: float) -> Link:
    return Link(f"NVLink {generation} ({gpu})", 2e-6, gb_per_s * 1e9, f"{NVLINK_SOURCE}; {ALPHA_NOTE}")


def _card(name: str, gb_per_s: float, alpha_s: float = 5e-6) -> Link:
    return Link(name, alpha_s, gb_per_s * 1e9, f"line rate; {ALPHA_NOTE}")


def _pcie(name: str, gb_per_s: float, alpha_s: float, source: str) -> Link:
    return Link(name, alpha_s, gb_per_s * 1e9, f"{source}; {ALPHA_NOTE}")


_HDR, _NDR = _card("InfiniBand 4x HDR", 25.0), _card("InfiniBand 4x NDR", 50.0)
_PCIE4_RATE = "16 GT/s x 16 lanes x 128/130"
_PCIE4, _BRIDGE = _pcie("PCIe 4 x16", 31.5, 4e-6, _PCIE4_RATE), _pcie("PCIe 4 x16 bridge", 31.5, 5e-6, _PCIE4_RATE)

# The machines by name, each with the source of its bandwidths.
PRESETS: dict[str, Topology] = {
    topology.name: topology
    for topology in (
        Topology(
            "dgx-a100", 8, _nvlink("3", "A100", 240.0), _HDR, nics_per_node=8,
            source="8 GPUs and 8 compute cards of 200 Gb/s a node: NVIDIA DGX SuperPOD reference architecture "
                   "RA-09950-001",
        ),
        Topology(
            "dgx-h100", 8, _nvlink("4", "H100", 371.0), _NDR, nics_per_node=8,
            source="8 GPUs and 8 single-port ConnectX-7 of 400 Gb/s a node: "
            "docs.nvidia.com/dgx-basepod, reference architecture, core components",
        ),
        Topology(
            "dgx-h200", 8, _nvlink("4", "H200", 371.0), _NDR, nics_per_node=8,
            source="as dgx-h100, with more memory: docs.nvidia.com/dgx/dgxh100-user-guide, hardware overview of DGX "
                   "H100 and H200",
        ),
        Topology(
            "dgx-b200", 8, _nvlink("5", "B200", 722.0), _NDR, nics_per_node=8,
            source="8 GPUs and 8 ConnectX-7 of 400 Gb/s a node: docs.nvidia.com/dgx/dgxb200-user-guide, hardware "
                   "overview",
        ),
        Topology(
            "gb200-nvl72", 72, _nvlink("5", "B200", 722.0), _NDR, nics_per_node=72,
            source="72 GPUs in one NVLink domain, 4 ConnectX-7 of 400 Gb/s a tray of 4 GPUs: "
            "docs.nvidia.com/dgx/dgxgb200-user-guide, hardware",
        ),
        Topology(
            "gh200-4", 4, _nvlink("4", "GH200", 371.0), _card("Slingshot 200 Gb/s", 25.0, 10e-6), nics_per_node=4,
            source="4 GH200 a node, 6 NVLinks between each pair (all 18 count here, as rings in several orders use "
                   "them), a card of 200 Gb/s each: docs.cscs.ch, Alps, hardware",
        ),
        Topology(
            "p4d", 8, _nvlink("3", "A100", 240.0), _card("EFA 100 Gb/s", 12.5, 15e-6), nics_per_node=4,
            source="8 A100 and 4 cards of 100 Gb/s a node: aws.amazon.com/ec2/instance-types/p4",
        ),
        Topology(
            "p5", 8, _nvlink("4", "H100", 371.0), _card("4 x EFA 100 Gb/s", 50.0, 15e-6), nics_per_node=8,
            source="8 H100 and 3200 Gb/s a node, 32 cards of 100 Gb/s (four a GPU, one link here): "
                   "aws.amazon.com/ec2/instance-types/p5",
        ),
        Topology(
            "pcie-8", 8, _pcie("PCIe 4 x16, as NCCL "
                               "counts it", 24.0, 4e-6, "NCCL 2.30.7 src/graph/topo.h"), ranks_per_island=4,
            host=_pcie("between two AMD sockets", 16.0, 5e-6, "NCCL 2.30.7 src/graph/topo.h, AMD_BW"),
            source="no particular maker: 8 GPUs without NVLink, four at each of two AMD sockets, no network",
        ),
        Topology(
            "cloud-ethernet", 8, _PCIE4, _card("100 Gb/s Ethernet, kernel TCP", 12.5, 50e-6), nics_per_node=1,
            ranks_per_island=4, host=_BRIDGE, nodes_per_leaf=16, oversubscription=4.0,
            source="no particular provider: 8 GPUs on two PCIe bridges, one 100 Gb/s card, leaf switches of 16 "
                   "nodes, 4:1",
        ),
        Topology(
            "ethernet-2x100g", 8, _PCIE4, _card("100 Gb/s Ethernet, RoCE", 12.5), nics_per_node=2,
            ranks_per_island=4, host=_BRIDGE,
            source="no particular maker: 8 GPUs on two PCIe bridges, a 100 Gb/s card at each, one switch for all nodes",
        ),
    )
}  # fmt: skip

"""Machines as single links in whole numbers: nodes, fat trees, rails, a torus, a mesh, a slow link, a slow rank.

A message takes the links of its way. It holds all of them for the sum of their latencies plus its bytes over the
bandwidth of the slowest, rounded up to a picosecond; a link carries one message at a time. Whole numbers make a time
the same, to the last digit, on every machine. A rank may use links of different kinds at once: it can send inside its
node and through its network card, and on a torus to all neighbours. (`simulate` and the wire keep to one message a
rank.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, cast

from allranks.theory.topology.machines import Link, Topology, TopologyError

PS = 10**12  # picoseconds of a second
LinkName = tuple[Any, ...]  # a kind of link, then where it is
# How many NVLinks join each pair of GPUs of a DGX-1 with V100 (microsoft/msccl-tools, msccl/topologies/nvidia.py).
DGX1_LANES = (
    (0, 2, 1, 1, 2, 0, 0, 0),
    (2, 0, 1, 2, 0, 1, 0, 0),
    (1, 1, 0, 2, 0, 0, 2, 0),
    (1, 2, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 2, 1, 1),
    (0, 1, 0, 0, 2, 0, 1, 2),
    (0, 0, 2, 0, 1, 1, 0, 2),
    (0, 0, 0, 1, 1, 2, 2, 0),
)


@dataclass(frozen=True, slots=True)
class FabricLink:
    """One link in one direction: picoseconds a message, bytes a second.

    >>> topology.FabricLink(alpha_ps=2_000_000, bytes_per_s=50_000_000_000).slower(4).bytes_per_s
    12500000000
    """

    alpha_ps: int
    bytes_per_s: int

    def slower(self, factor: int) -> FabricLink:
        """The same link, `factor` times as slow."""
        return FabricLink(self.alpha_ps * factor, self.bytes_per_s // factor)


@dataclass(frozen=True)
class Cut:
    """Some ranks, and the links that their messages need: `out` one of them to leave, `into` one of them to arrive.

    Each message that crosses takes at least `alpha_ps`.

    >>> topology.node_fabric(topology.preset("dgx-h100"), 16).families["node"][1].ranks
    (8, 9, 10, 11, 12, 13, 14, 15)
    """

    ranks: tuple[int, ...]
    out: tuple[LinkName, ...]
    into: tuple[LinkName, ...]
    alpha_ps: int


@dataclass(frozen=True)
class Fabric:
    """A machine of `ranks` ranks as its links, the way of each message, and the cuts that bound any schedule.

    `families` are partitions of the ranks, by name. `ports` are, for each rank, the links by which its messages leave
    and those by which they arrive. `route(src, dst)` gives the links of a message, or raises TopologyError if there is
    no way.

    >>> ring = topology.torus_fabric(1, 4, topology.Link("wire", alpha_s=1e-6, bytes_per_s=1e9))
    >>> ring.picoseconds(0, 2, nbytes=1000)
    3000000
    """

    name: str
    ranks: int
    links: dict[LinkName, FabricLink] = field(repr=False)
    route: Callable[[int, int], tuple[LinkName, ...]] = field(repr=False)
    ports: tuple[tuple[tuple[LinkName, ...], tuple[LinkName, ...]], ...] = field(repr=False)
    families: dict[str, tuple[Cut, ...]] = field(repr=False)

    def way(self, src: int, dst: int) -> tuple[tuple[LinkName, ...], int, int]:
        """A message's links, the sum of their picoseconds, and the bytes a second of the slowest."""
        route = self.route(src, dst)
        links = [self.links[name] for name in route]
        return route, sum(link.alpha_ps for link in links), min(link.bytes_per_s for link in links)

    def picoseconds(self, src: int, dst: int, nbytes: int) -> int:
        """How long a message holds its links."""
        _, alpha, rate = self.way(src, dst)
        return alpha + -(-nbytes * PS // rate)

    def with_slow_link(self, factor: int, *names: LinkName) -> Fabric:
        """The same machine with some links `factor` times as slow. Raises TopologyError if there is no such link."""
        if type(factor) is not int or factor < 1:
            raise TopologyError(f"a link can't be {factor!r} times as slow; the factor is a whole number from 1")
        for name in names:
            if name not in self.links:
                raise TopologyError(f"{self.name} has no link {name!r}")
        return replace(self, links=self.links | {name: self.links[name].slower(factor) for name in names})

    def with_slow_rank(self, rank: int, factor: int) -> Fabric:
        """The same machine with every link of one rank `factor` times as slow, in both directions."""
        if not 0 <= rank < self.ranks:
            raise TopologyError(f"{self.name} has no rank {rank}; its {self.ranks} ranks are 0 to {self.ranks - 1}")
        out, into = self.ports[rank]
        return self.with_slow_link(factor, *out, *into)


def link_in_words(name: LinkName) -> str:
    """A link's name as a reader says it.

    >>> from allranks.theory.topology.fabrics import link_in_words
    >>> link_in_words(("card out", 3, 0)), link_in_words(("wire", 4, 5))
    ('card 0 of node 3, outwards', 'the link from rank 4 to rank 5')
    """
    match name:
        case ("port out", rank):
            return f"the port of rank {rank}, outwards"
        case ("port in", rank):
            return f"the port of rank {rank}, inwards"
        case (("card out" | "card in") as kind, node, card):
            return f"card {card} of node {node}, {'outwards' if kind == 'card out' else 'inwards'}"
        case (("host out" | "host in") as kind, node, island):
            return f"the bridge of island {island} of node {node}, {'outwards' if kind == 'host out' else 'inwards'}"
        case (("up" | "down") as kind, leaf, (rail, index)):
            return f"{kind}link {index} of leaf switch {leaf} (rail {rail})"
        case ("wire", src, dst):
            return f"the link from rank {src} to rank {dst}"
    return str(name)


_KINDS = {
    "nic out": "card out", "nic in": "card in", "host out": "host out", "host in": "host in",
    "leaf up": "up", "leaf down": "down",
}  # fmt: skip


def _whole(link: Link, factor: Fraction = Fraction(1)) -> FabricLink:
    """A link in whole numbers; its figures are taken as the decimals that they are written as."""
    alpha, rate = Fraction(repr(link.alpha_s)) * PS, Fraction(repr(link.bytes_per_s)) / factor
    return FabricLink(round(alpha), int(rate))


def node_fabric(topology: Topology, ranks: int) -> Fabric:
    """The machine of a `Topology`: nodes, islands, network cards, and leaf switches with their uplinks.

    The sender's port or card has the latency, and the other links on the way have none. Raises TopologyError if the
    topology has failed or busy links, or stragglers, which a Fabric says in another way, or has no network and too few
    ranks.

    >>> fabric = topology.node_fabric(topology.preset("dgx-h100"), 16)
    >>> fabric.route(0, 9)
    (('card out', 0, 0), ('card in', 1, 1))
    """
    if topology.stragglers or topology.background or topology.failed or topology.slow_nics:
        raise TopologyError(f"{topology.name}: say what is slow with with_slow_rank and with_slow_link")
    nodes, g = topology.nodes(ranks), topology.ranks_per_node
    if nodes > 1 and topology.nic is None:
        raise TopologyError(f"{topology.name} has {g} ranks and no network; it can't hold {ranks}")

    def route(src: int, dst: int) -> tuple[LinkName, ...]:
        between = cast(tuple[LinkName, ...], topology.links(src, dst))
        if not between:
            return ("port out", src), ("port in", dst)
        return tuple((_KINDS[name[0]], *name[1:]) for name in between)

    links: dict[LinkName, FabricLink] = {}
    # alpha is paid once a message, so only the sender's side has it
    inside, silent = _whole(topology.inside), replace(topology.inside, alpha_s=0.0)
    for rank in range(ranks):
        links["port out", rank], links["port in", rank] = inside, _whole(silent)
    islands = g // (topology.ranks_per_island or g)
    if topology.host is not None:
        for node in range(nodes):
            for island in range(islands):
                links["host out", node, island] = _whole(topology.host)
                links["host in", node, island] = _whole(replace(topology.host, alpha_s=0.0))
    if topology.nic is not None and nodes > 1:
        quiet = replace(topology.nic, alpha_s=0.0)
        for node in range(nodes):
            for card in range(topology.nics_per_node):
                links["card out", node, card], links["card in", node, card] = _whole(topology.nic), _whole(quiet)
        for leaf, rail, uplink in topology.uplinks(nodes):
            links["up", leaf, (rail, uplink)] = links["down", leaf, (rail, uplink)] = _whole(
                quiet, topology.uplink_factor
            )
    # for the bounds: groups of ranks whose messages to others all pass the links of one cut
    groups: dict[str, list[tuple[int, ...]]] = {"rank": [(rank,) for rank in range(ranks)]}
    if islands > 1:
        size = g // islands
        groups["island"] = [tuple(range(first, min(first + size, ranks))) for first in range(0, ranks, size)]
    if nodes > 1 and g > 1:
        groups["node"] = [tuple(range(first, min(first + g, ranks))) for first in range(0, ranks, g)]
    if topology.nodes_per_leaf is not None and nodes > topology.nodes_per_leaf:
        size = g * topology.nodes_per_leaf
        groups["leaf switch"] = [tuple(range(first, min(first + size, ranks))) for first in range(0, ranks, size)]
    families = {
        kind: tuple(_node_cut(topology, kind, members, links) for members in found)
        for kind, found in groups.items()
        if len(found) > 1
    }
    ports = tuple((cut.out, cut.into) for cut in families.get("rank", ()))
    return Fabric(f"{nodes} x {topology.name}", ranks, links, route, ports, families)


def _node_cut(topology: Topology, kind: str, members: tuple[int, ...], links: dict[LinkName, FabricLink]) -> Cut:
    """The links that lead out of some ranks and into them, of whichever kinds there are."""
    nodes = sorted({topology.node(rank) for rank in members})
    out: list[LinkName] = []
    if kind == "leaf switch":
        leaf = nodes[0] // (topology.nodes_per_leaf or 1)
        out = [("up", leaf, (rail, up)) for which, rail, up in topology.uplinks(nodes[-1] + 1) if which == leaf]
        cards = [("card out", node, card) for node in nodes for card in range(topology.nics_per_node)]
        # with rails a message between rails goes up inside a group too, so that the cards may be narrower
        if sum(links[x].bytes_per_s for x in cards) < sum(links[x].bytes_per_s for x in out):
            out = [*cards]
    else:
        if kind == "rank":
            out.append(("port out", members[0]))
        if kind in ("rank", "island"):
            island = members[0] % topology.ranks_per_node // (topology.ranks_per_island or topology.ranks_per_node)
            out.append(("host out", nodes[0], island))
        out += [("card out", topology.node(rank), topology.nic_of(rank)) for rank in members]
    found = tuple(dict.fromkeys(name for name in out if name in links))
    into = tuple((name[0].replace("out", "in").replace("up", "down"), *name[1:]) for name in found)
    # an uplink has no latency of its own: the card before it has
    starts = [("card out", nodes[0], 0) if name[0] == "up" else name for name in found]
    return Cut(members, found, into, min(links[name].alpha_ps for name in starts))


def torus_fabric(rows: int, columns: int, link: Link) -> Fabric:
    """A torus: each rank has a link to each of its neighbours in its row and in its column, and back.

    Rank r is in row r // columns. A message goes along its row first, then along its column, the shorter way round (to
    the right and down if both are equal). Raises TopologyError if there are no ranks.

    >>> topology.torus_fabric(4, 4, topology.Link("wire", 1e-6, 25e9)).route(0, 7)
    (('wire', 0, 3), ('wire', 3, 7))
    """
    if rows < 1 or columns < 1 or rows * columns < 2:
        raise TopologyError(f"a torus of {rows} rows and {columns} columns has no neighbours")

    def steps(here: int, there: int, size: int) -> list[int]:
        right = (there - here) % size
        way = 1 if 2 * right <= size else -1
        return [(here + way * i) % size for i in range(1, (right if way == 1 else size - right) + 1)]

    def route(src: int, dst: int) -> tuple[LinkName, ...]:
        row, column = divmod(src, columns)
        path = [src, *(row * columns + c for c in steps(column, dst % columns, columns))]
        path += [r * columns + dst % columns for r in steps(row, dst // columns, rows)]
        return tuple(("wire", a, b) for a, b in pairwise(path))

    links: dict[LinkName, FabricLink] = {}
    for rank in range(rows * columns):
        row, column = divmod(rank, columns)
        for near in (row * columns + (column + 1) % columns, (row + 1) % rows * columns + column):
            if near != rank:
                links["wire", rank, near] = links["wire", near, rank] = _whole(link)
    lines: dict[str, list[tuple[int, ...]]] = {"rank": [(rank,) for rank in range(rows * columns)]}
    if min(rows, columns) > 1:
        lines["row"] = [tuple(range(row * columns, (row + 1) * columns)) for row in range(rows)]
        lines["column"] = [tuple(range(column, rows * columns, columns)) for column in range(columns)]
    return _wired(f"torus {rows} x {columns}", rows * columns, links, route, lines)


def mesh_fabric(name: str, lanes: Sequence[Sequence[int]], link: Link) -> Fabric:
    """Ranks with direct links only: `lanes[a][b]` lanes from rank a to rank b, each as `link`, together one link.

    A message between ranks without a link has no way: `route` raises TopologyError.

    >>> pair = topology.mesh_fabric("pair", [[0, 2], [2, 0]], topology.Link("NVLink 2", 2e-6, 25e9))
    >>> pair.picoseconds(0, 1, 50_000_000_000)
    1000002000000
    """
    whole = _whole(link)
    links: dict[LinkName, FabricLink] = {
        ("wire", a, b): FabricLink(whole.alpha_ps, whole.bytes_per_s * count)
        for a, row in enumerate(lanes)
        for b, count in enumerate(row)
        if count
    }

    def route(src: int, dst: int) -> tuple[LinkName, ...]:
        if ("wire", src, dst) not in links:
            raise TopologyError(f"{name} has no link from rank {src} to rank {dst}; send through a rank between them")
        return (("wire", src, dst),)

    return _wired(name, len(lanes), links, route, {"rank": [(rank,) for rank in range(len(lanes))]})


def _wired(
    name: str,
    ranks: int,
    links: dict[LinkName, FabricLink],
    route: Callable[[int, int], tuple[LinkName, ...]],
    groups: dict[str, list[tuple[int, ...]]],
) -> Fabric:
    """A machine whose links join ranks directly: those that leave a group are those with one end in it."""
    alpha = min(link.alpha_ps for link in links.values())

    def cut(members: tuple[int, ...]) -> Cut:
        here = set(members)
        ends = [(name, name[1] in here, name[2] in here) for name in links]
        return Cut(
            members,
            tuple(name for name, a, b in ends if a and not b),
            tuple(name for name, a, b in ends if b and not a),
            alpha,
        )

    families = {kind: tuple(map(cut, found)) for kind, found in groups.items()}
    return Fabric(name, ranks, links, route, tuple((c.out, c.into) for c in families["rank"]), families)

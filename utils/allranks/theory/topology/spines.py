"""Leaf and spine switches: which spine a flow's hash gives it, and how long flows take that share cables.

A flow stays on one way, so that its packets arrive in order: a switch hashes the numbers in its headers and takes the
uplink that the hash gives. Two flows may get the same uplink while another is idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from allranks.theory.topology.fabrics import PS, Fabric, LinkName, link_in_words, node_fabric
from allranks.theory.topology.machines import Topology, TopologyError

_WORD = 0xFFFFFFFF


def hashed_spine(src: int, dst: int, part: int, seed: int, spines: int) -> int:
    """The spine, from 0, that a hash gives to queue pair `part` from rank `src` to rank `dst`.

    The hash is the finalizer of MurmurHash3, on 32 bits. `seed` stands for what else is in a flow's headers, such as
    its UDP source port.

    >>> [topology.hashed_spine(rank, rank + 8, 0, 1, 8) for rank in range(8)]
    [6, 0, 2, 2, 3, 1, 6, 4]
    """
    h = (src * 0x9E3779B1 ^ dst * 0x85EBCA77 ^ part * 0xC2B2AE3D ^ seed * 0x27D4EB2F) & _WORD
    h = (h ^ h >> 16) * 0x85EBCA6B & _WORD
    h = (h ^ h >> 13) * 0xC2B2AE35 & _WORD
    return (h ^ h >> 16) % spines


def spine_loads(ranks: int, spines: int, parts: int = 1, seed: int = 0) -> list[float]:
    """Vectors over each uplink if `ranks` ranks of one leaf switch each send one to a rank of another.

    Each vector is cut in `parts` equal parts, one a queue pair, and each part is hashed. The largest of them is how
    many times as long the slowest flow takes as one that has an uplink for itself.

    >>> topology.spine_loads(8, 8, seed=1)
    [1.0, 1.0, 2.0, 1.0, 1.0, 0.0, 2.0, 0.0]
    """
    if ranks < 1 or spines < 1 or parts < 1:
        raise TopologyError(f"{ranks} ranks, {spines} spines and {parts} parts: each must be at least 1")
    loads = [0.0] * spines
    for rank in range(ranks):
        for part in range(parts):
            loads[hashed_spine(rank, ranks + rank, part, seed, spines)] += 1 / parts
    return loads


def hashed_fabric(topology: Topology, ranks: int, seed: int = 0) -> Fabric:
    """The machine of a `Topology` with leaf switches, where a hash chooses the spine of each message.

    An uplink with number s and the downlink with number s belong to spine s. Raises TopologyError if the topology has
    no leaf switches.

    >>> from dataclasses import replace
    >>> pods = replace(topology.preset("dgx-h100"), nodes_per_leaf=2)
    >>> topology.hashed_fabric(pods, ranks=32, seed=1).route(0, 16)
    (('card out', 0, 0), ('up', 0, (0, 2)), ('down', 1, (0, 2)), ('card in', 2, 0))
    """
    if topology.nodes_per_leaf is None:
        raise TopologyError(f"{topology.name}: give it leaf switches with nodes_per_leaf")
    fabric = node_fabric(topology, ranks)
    spines = 1 + max((index for _, _, index in topology.uplinks(topology.nodes(ranks))), default=0)

    def route(src: int, dst: int) -> tuple[LinkName, ...]:
        spine = hashed_spine(src, dst, 0, seed, spines)
        return tuple(
            (name[0], name[1], (name[2][0], spine)) if name[0] in ("up", "down") else name
            for name in fabric.route(src, dst)
        )

    return replace(fabric, route=route)


def flow_seconds(fabric: Fabric, flows: Sequence[tuple[int, int]], nbytes: int) -> list[float]:
    """How long each flow (src, dst) of `nbytes` takes if all begin at once, in seconds.

    A cable divides its bandwidth equally among the flows on it, and a flow has the speed that its worst cable gives.
    (A real switch gives what one flow can't use to the others: so the slowest flow's time is exact, and a faster flow's
    is at most this.)

    >>> from dataclasses import replace
    >>> pods = topology.hashed_fabric(replace(topology.preset("dgx-h100"), nodes_per_leaf=2), ranks=32)
    >>> alone, = topology.flow_seconds(pods, [(0, 16)], 50_000_000)
    >>> round(alone, 6)
    0.001005
    """
    ways = [fabric.route(src, dst) for src, dst in flows]
    sharing = Counter(name for way in ways for name in way)
    found = []
    for way in ways:
        links = [fabric.links[name] for name in way]
        slowest = max(sharing[name] / link.bytes_per_s for name, link in zip(way, links, strict=True))
        found.append(sum(link.alpha_ps for link in links) / PS + nbytes * slowest)
    return found


def cable_names(fabric: Fabric) -> dict[LinkName, str]:
    """The cables of the network in one direction each, as a reader says them, without the ports inside nodes.

    >>> pair = topology.node_fabric(topology.preset("dgx-h100"), 16)
    >>> topology.cable_names(pair)["card out", 1, 3]
    'card 3 of node 1, outwards'
    """
    return {name: link_in_words(name) for name in fabric.links if name[0] in ("card out", "card in", "up", "down")}

"""Rings over every network card of a node at once, as NCCL's channels: the vector is cut, and each part has a ring of its own.

Each ring goes through all ranks of a node and then leaves by another card, so that all cards work at the same time. A ring has
an equal share of the links inside a node, and shares a card or an uplink with the rings that take the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from allranks.topology import Topology

NAME = "ring channels"
PROBE_NBYTES = 1 << 30
# steps of a ring for p ranks, as a multiple of p - 1
ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def step_seconds(topology: Topology, members: Sequence[int], nbytes: float) -> float:
    """Seconds of one step, in which each member sends `nbytes` in all, spread over the rings.

    The largest alpha and the fewest bytes a second of the links on the way count, as in `cost.plan`. There are as many
    rings as the node with the fewest members has. Other groups are taken to be silent.

    >>> from allranks.topology import preset
    >>> round(step_seconds(preset("dgx-h100"), range(16), 371_000_000), 9)
    0.001005
    """
    nodes: dict[int, list[int]] = {}
    for rank in members:
        nodes.setdefault(topology.node(rank), []).append(rank)
    rings = min(len(ranks) for ranks in nodes.values())
    near = [edge for ranks in nodes.values() for edge in _inside(ranks, closed=rings > 1 or len(nodes) == 1)]
    far = [] if len(nodes) == 1 else list(_between(list(nodes.values()), rings))
    ways = [topology.links(src, dst) for src, dst in far]
    taken = Counter(link for way in ways for link in way)
    edges = [(*edge, 1.0) for edge in near]
    edges += [(*edge, _sharing(way, taken) / rings) for edge, way in zip(far, ways, strict=True)]
    alpha, beta = 0.0, 0.0  # seconds, and seconds a byte
    for src, dst, share in edges:
        start = topology.seconds(src, dst, 0)
        alpha, beta = (
            max(alpha, start),
            max(beta, (topology.seconds(src, dst, PROBE_NBYTES) - start) / PROBE_NBYTES * share),
        )
    return alpha + nbytes * beta


def _inside(ranks: Sequence[int], closed: bool) -> Iterable[tuple[int, int]]:
    """Neighbours in a node. With several rings each starts at another rank, so that the last one sends to the first too."""
    pairs = zip(ranks, (*ranks[1:], ranks[0]), strict=True)
    return [pair for pair in pairs if pair[0] != pair[1]][: None if closed else len(ranks) - 1]


def _between(nodes: Sequence[Sequence[int]], rings: int) -> Iterable[tuple[int, int]]:
    """Ring c goes from card to card of the c-th rank of each node, also where another rank hands over the bytes (NCCL's PXN)."""
    for here, there in zip(nodes, (*nodes[1:], nodes[0]), strict=True):
        for ring in range(rings):
            yield here[ring * len(here) // rings], there[ring * len(there) // rings]


def _sharing(way: Iterable[Hashable], taken: Counter[Hashable]) -> int:
    return max((taken[link] for link in way), default=1)

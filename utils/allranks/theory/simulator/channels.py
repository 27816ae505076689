"""Collectives over every network card of a node at once, as with NCCL's channels: in closed form, without single
messages.

The vector is cut into one part for each rank of a node, and each part leaves by the card of another rank. So all cards
work at the same time. Four algorithms do so: rings, a tree, two levels, and the pairwise exchange (`ALGORITHMS`). Their
phases overlap as in a pipeline, if they are cut into segments. Other groups of ranks are taken to be silent.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from allranks.theory.schedules import ScheduleError, ceil_lg
from allranks.theory.topology import Topology

RING, TREE, TWO_LEVELS, PAIRWISE = "ring channels", "tree channels", "hierarchical channels", "pairwise channels"
# the collectives of each algorithm
ALGORITHMS = {
    RING: ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"),
    TREE: ("all_reduce",),
    TWO_LEVELS: ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"),
    PAIRWISE: ("all_to_all",),
}
# what a library's own collective takes, and what `plan` and `workload` price
USUAL = {name: RING for name in ALGORITHMS[RING]} | {"all_to_all": PAIRWISE}
MAX_SEGMENTS = 1 << 16
MAX_PAIRS = 2_000_000
PROBE_NBYTES = 1 << 30
REDUCING = ("all_reduce", "reduce_scatter", "reduce")


@dataclass(frozen=True)
class Cost:
    """Seconds of one call, its steps (of a pipeline: those of the first segment), and the bytes that a rank sends."""

    seconds: float
    steps: int
    bytes_per_rank: float


@dataclass(frozen=True)
class Ways:
    """The links of `members`: m nodes of g ranks; seconds a message and seconds a byte, inside a node and between
    nodes.

    `far_beta` counts all bytes that leave a node in one direction, through all its cards.
    """

    ranks: int
    nodes: int
    per_node: int
    near_alpha: float
    near_beta: float
    far_alpha: float
    far_beta: float

    @property
    def alpha(self) -> float:
        """Of the slowest link."""
        return max(self.near_alpha, self.far_alpha)

    @property
    def beta(self) -> float:
        """Of a byte of every rank of a ring through all ranks."""
        return max(self.near_beta, self.far_beta)


def call_cost(
    topology: Topology, algorithm: str, collective: str, members: Sequence[int], nbytes: float, gamma: float = 0.0
) -> Cost:
    """What a collective of `members` takes; `nbytes` is the full vector, as in `allranks.cost`, `gamma` seconds a byte
    reduced.

    Raises ScheduleError, if the algorithm does not have the collective, or needs nodes of equal size.

    >>> from allranks.topology import preset
    >>> round(1e3 * call_cost(preset("dgx-h100"), "ring channels", "all_reduce", range(16), 2**30).seconds, 2)
    5.58
    """
    if collective not in ALGORITHMS[algorithm]:
        raise ScheduleError(f"{algorithm} are for {', '.join(ALGORITHMS[algorithm])}, not for {collective!r}")
    if len(members) == 1:
        return Cost(0.0, 0, 0.0)
    ways = _ways_of(topology, members)
    if algorithm == PAIRWISE:
        seconds = (ways.ranks - 1) * ways.alpha + nbytes * _exchange_beta(topology, tuple(members))
        return Cost(seconds, ways.ranks - 1, nbytes * (ways.ranks - 1) / ways.ranks)
    if algorithm == TWO_LEVELS and ways.nodes * ways.per_node != ways.ranks:
        raise ScheduleError(f"{algorithm} need nodes with equally many of the {ways.ranks} ranks")
    if algorithm == TWO_LEVELS and collective == "all_to_all":
        ways = replace(ways, near_beta=_exchange_inside(topology, members) * ways.per_node / max(1, ways.per_node - 1))
    found = {RING: _ring, TREE: _tree, TWO_LEVELS: _two_levels}[algorithm](ways, collective, nbytes)
    adding = gamma * nbytes * (ways.ranks - 1) / ways.ranks if collective in REDUCING else 0.0
    return Cost(found.seconds + adding, found.steps, found.bytes_per_rank)


def _ring(ways: Ways, collective: str, nbytes: float) -> Cost:
    """All steps alike: the largest alpha, the fewest bytes a second of the way. A root's vector goes in segments."""
    p = ways.ranks
    if collective in ("broadcast", "reduce"):
        seconds = _pipelined(ways.alpha, [(p - 1) * ways.alpha, (p - 1) * nbytes * ways.beta], nbytes * ways.beta)
        return Cost(seconds, p - 1, nbytes)
    steps = (2 if collective == "all_reduce" else 1) * (p - 1)
    return Cost(steps * (ways.alpha + nbytes / p * ways.beta), steps, steps * nbytes / p)


def _tree(ways: Ways, collective: str, nbytes: float) -> Cost:
    """NCCL's tree: a chain in the node, two trees between nodes, half of the vector each, up and down in segments."""
    m, g = ways.nodes, ways.per_node
    levels, chain = ceil_lg(m), g - 1
    near = 2 * nbytes * chain / g * ways.near_beta
    far = (0 if m == 1 else 1 if m == 2 else 2) * nbytes * ways.far_beta
    hops = 2 * (chain * ways.near_alpha + levels * ways.far_alpha)
    through = 2 * nbytes * (chain / g * ways.near_beta + levels * ways.far_beta)
    seconds = _pipelined(ways.alpha, [hops, through], max(near, far))
    return Cost(seconds, 2 * (chain + levels), 2 * nbytes)


def _two_levels(ways: Ways, collective: str, nbytes: float) -> Cost:
    """One phase inside the nodes and one between equal places of them; in segments both work at once."""
    m, g = ways.nodes, ways.per_node
    often = 2 if collective == "all_reduce" else 1
    leaving = nbytes * g if collective == "all_to_all" else nbytes  # of a whole node, whose ranks send n each
    phases = (
        (often * (g - 1) * ways.near_alpha, often * nbytes * (g - 1) / g * ways.near_beta),
        (often * (m - 1) * ways.far_alpha, often * leaving * (m - 1) / m * ways.far_beta),
    )

    def seconds(k: int) -> float:
        each = [start + moving / k for start, moving in phases]
        return sum(each) + (k - 1) * max(each)

    sent = often * nbytes * ((g - 1) / g + (m - 1) / m / (1 if collective == "all_to_all" else g))
    return Cost(_best(seconds), often * (g - 1 + m - 1), sent)


def _pipelined(alpha: float, first: Sequence[float], busiest: float) -> float:
    """A segment goes all the way (`first`: its alphas, and its bytes if it were the whole); the others follow."""
    starts, moving = first
    return _best(lambda k: starts + moving / k + (k - 1) * (alpha + busiest / k))


def _best(seconds: Callable[[int], float]) -> float:
    """With the best number of segments: 1, 2, 4, ... `MAX_SEGMENTS`."""
    return min(seconds(1 << power) for power in range(int(math.log2(MAX_SEGMENTS)) + 1))


def _by_node(topology: Topology, members: Sequence[int]) -> list[list[int]]:
    nodes: dict[int, list[int]] = {}
    for rank in members:
        nodes.setdefault(topology.node(rank), []).append(rank)
    return list(nodes.values())


def _ways_of(topology: Topology, members: Sequence[int]) -> Ways:
    """Of a whole world whose machine repeats, four units stand for all: a million ranks have the ways of some
    dozens.
    """
    p = len(members)
    unit = topology.symmetric_unit(p) if members == range(p) else None
    if unit is None or p <= 4 * unit:
        return _ways(topology, tuple(members))
    return replace(_ways(topology, tuple(range(4 * unit))), ranks=p, nodes=topology.nodes(p))


@lru_cache(maxsize=256)
def _ways(topology: Topology, members: tuple[int, ...]) -> Ways:
    nodes = _by_node(topology, members)
    rings = min(len(ranks) for ranks in nodes)
    near = [edge for ranks in nodes for edge in _inside(ranks, closed=rings > 1 or len(nodes) == 1)]
    far = [] if len(nodes) == 1 else list(_between(nodes, rings))
    routes = [topology.links(src, dst) for src, dst in far]
    taken = Counter(link for route in routes for link in route)
    near_costs = [(*_line(topology, src, dst), 1.0) for src, dst in near]
    far_costs = [
        (*_line(topology, src, dst), _sharing(route, taken) / rings)
        for (src, dst), route in zip(far, routes, strict=True)
    ]
    return Ways(len(members), len(nodes), rings, *_slowest(near_costs), *_slowest(far_costs))


def _line(topology: Topology, src: int, dst: int) -> tuple[float, float]:
    """alpha and beta of a message's way."""
    start = topology.seconds(src, dst, 0)
    return start, (topology.seconds(src, dst, PROBE_NBYTES) - start) / PROBE_NBYTES


def _slowest(costs: Iterable[tuple[float, float, float]]) -> tuple[float, float]:
    alpha = beta = 0.0
    for start, each, share in costs:
        alpha, beta = max(alpha, start), max(beta, each * share)
    return alpha, beta


def _inside(ranks: Sequence[int], closed: bool) -> Iterable[tuple[int, int]]:
    """Neighbours in a node. Each of several rings starts at another rank, so that the last one sends to the first."""
    pairs = zip(ranks, (*ranks[1:], ranks[0]), strict=True)
    return [pair for pair in pairs if pair[0] != pair[1]][: None if closed else len(ranks) - 1]


def _between(nodes: Sequence[Sequence[int]], rings: int) -> Iterable[tuple[int, int]]:
    """Ring c goes from card to card of each node's c-th rank, also where another rank hands the bytes over (PXN)."""
    for here, there in zip(nodes, (*nodes[1:], nodes[0]), strict=True):
        for ring in range(rings):
            yield here[ring * len(here) // rings], there[ring * len(there) // rings]


def _sharing(route: Iterable[tuple[Hashable, ...]], taken: Counter[tuple[Hashable, ...]]) -> int:
    return max((taken[link] for link in route), default=1)


def _exchange_inside(topology: Topology, members: Sequence[int]) -> float:
    """The same for an exchange inside each node; alike nodes have one answer."""
    nodes = _by_node(topology, members)
    alike = not (topology.failed or topology.stragglers or topology.slow_nics)
    return max((_exchange_beta(topology, tuple(ranks)) for ranks in nodes[: 1 if alike else None]), default=0.0)


@lru_cache(maxsize=256)
def _exchange_beta(topology: Topology, members: tuple[int, ...]) -> float:
    """Seconds of an all_to_all for each byte that one rank sends: those of the busiest link, since all links work at
    once.

    A rank's own port counts for what stays below its switch. Where the machine repeats, the links out of one unit stand
    for all.
    """
    p = len(members)
    unit = topology.symmetric_unit(p) if members == tuple(range(p)) else None
    sources = members[:unit] if unit else members
    # out of a unit, all ways to other units take the same links: one rank of another unit stands for all
    targets = [(dst, 1) for dst in sources]
    if unit and unit < p:
        targets.append((members[unit], p - unit))
    if len(sources) * len(targets) > MAX_PAIRS:
        raise ScheduleError(
            f"{PAIRWISE} of {p} ranks have {p * p} pairs that differ; at most {MAX_PAIRS} can be followed, so "
            "take whole nodes"
        )
    busy: dict[Hashable, float] = defaultdict(float)
    for src in sources:
        for dst, often in targets:
            if src == dst:
                continue
            share = often * _line(topology, src, dst)[1] / p
            for link in topology.links(src, dst) or (("out", src), ("in", dst)):
                if not unit or link[0] in ("out", "nic out", "host out", "leaf up"):
                    busy[link] += share
    return max(busy.values(), default=0.0)

"""Lower bounds for a task on its machine: no schedule is faster. docs/race.md derives each.

There are two kinds. *Bytes*: what must leave or enter some ranks, over the links by which it can; also what all parts of the
machine must exchange together. *Rounds*: how fast news can spread if each port passes on one message at a time. Both
are worked out in whole numbers; the larger one counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from allranks.theory.schedules import ScheduleError
from allranks.theory.topology import Cut, Fabric
from allranks.theory.topology.fabrics import PS, LinkName


@dataclass(frozen=True)
class Bound:
    """A lower bound in picoseconds, and in words why nothing is faster."""

    picoseconds: int
    why: str


def lower_bound(collective: str, nbytes: int, fabric: Fabric, root: int | None = None) -> Bound:
    """The largest of all bounds that are known for the collective on this machine. `nbytes` is as in `cost`.

    Raises ScheduleError for a collective that has none: scatter, gather and barrier.

    >>> from allranks.theory.race.bounds import lower_bound
    >>> fabric = topology.node_fabric(topology.uniform(alpha_s=1e-6, bytes_per_s=1e9), 4)
    >>> lower_bound("all_reduce", 4000, fabric).picoseconds
    7000000
    """
    if collective not in ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce", "all_to_all"):
        raise ScheduleError(f"there is no bound for {collective} in the race")
    found = [*_rounds(fabric), *_bytes(collective, Fraction(nbytes), fabric, root)]
    return max(found, key=lambda bound: bound.picoseconds)


# --------------------------------------------------------------------------------------------------------------- bytes


def _bytes(collective: str, n: Fraction, fabric: Fabric, root: int | None) -> Iterator[Bound]:
    for kind, family in fabric.families.items():
        alpha = min(cut.alpha_ps for cut in family)
        for number, cut in enumerate(family):
            leaving, entering = _crossing(collective, n, fabric.ranks, cut, root)
            for nbytes, links, way in ((leaving, cut.out, "leave"), (entering, cut.into, "enter")):
                why = f"{_size(nbytes)} must {way} {kind} {number}, over {_rate(fabric, links)}"
                yield Bound(_over(nbytes, fabric, links, cut.alpha_ps), why)
        together = _exchanged(collective, n, fabric.ranks, family)
        for links in (_union(family, "out"), _union(family, "into")):
            why = (
                f"the {len(family)} {kind}s must send each other {_size(together)}, over {_rate(fabric, links)} in all"
            )
            yield Bound(_over(together, fabric, links, alpha), why)


def _crossing(collective: str, n: Fraction, p: int, cut: Cut, root: int | None) -> tuple[Fraction, Fraction]:
    """The bytes that must leave the ranks of the cut, and those that must enter."""
    k, here, nothing = len(cut.ranks), root in cut.ranks, Fraction(0)
    match collective:
        case "broadcast":
            return (n, nothing) if here else (nothing, n)
        case "reduce":
            return (nothing, n) if here else (n, nothing)
        case "all_gather":
            return n * k / p, n * (p - k) / p
        case "reduce_scatter":
            return n * (p - k) / p, n * k / p
        case "all_reduce":
            return n, n
    return n * k * (p - k) / p, n * k * (p - k) / p  # all_to_all: n/p from each rank here to each rank elsewhere


def _exchanged(collective: str, n: Fraction, p: int, family: tuple[Cut, ...]) -> Fraction:
    """The bytes that the parts of a family must send each other, all together."""
    parts = len(family)
    match collective:
        case "broadcast" | "reduce":
            return n * (parts - 1)
        case "all_gather" | "reduce_scatter":
            return sum((n * (p - len(cut.ranks)) / p for cut in family), Fraction(0))
        case "all_reduce":
            return 2 * n * (parts - 1)
    return sum((n * len(cut.ranks) * (p - len(cut.ranks)) / p for cut in family), Fraction(0))


def _union(family: tuple[Cut, ...], side: str) -> tuple[LinkName, ...]:
    return tuple(dict.fromkeys(link for cut in family for link in getattr(cut, side)))


def _over(nbytes: Fraction, fabric: Fabric, links: tuple[LinkName, ...], alpha: int) -> int:
    """Picoseconds for so many bytes over these links, all busy to the end, after one latency."""
    return alpha + ceil(nbytes * PS / sum(fabric.links[link].bytes_per_s for link in links)) if nbytes else 0


def _rate(fabric: Fabric, links: tuple[LinkName, ...]) -> str:
    return f"{sum(fabric.links[link].bytes_per_s for link in links) / 1e9:g} GB/s"


def _size(nbytes: Fraction) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale:
            return f"{float(nbytes / scale):.4g} {unit}"
    return f"{float(nbytes):.4g} B"


# -------------------------------------------------------------------------------------------------------------- rounds


def _rounds(fabric: Fabric) -> Iterator[Bound]:
    ranks = fabric.families["rank"]
    alphas = sorted({tuple(fabric.links[link].alpha_ps for link in cut.out) for cut in ranks})
    if len({*map(len, alphas)}) == 1:
        fastest = tuple(map(min, zip(*alphas, strict=True)))
    else:  # ranks with more links than others: as if all had the most, each as fast as the fastest
        fastest = (min(map(min, alphas)),) * max(map(len, alphas))
    yield Bound(spread_ps(fastest, fabric.ranks), f"news of one rank needs so long to reach {fabric.ranks} ranks")
    if "node" in fabric.families:
        nodes = fabric.families["node"]
        cards = max(len(cut.out) for cut in nodes)
        wait = min(cut.alpha_ps for cut in nodes)
        yield Bound(
            spread_ps((wait,) * cards, len(nodes)), f"news of one node needs so long to reach {len(nodes)} nodes"
        )
    if all(name[0] == "wire" for name in fabric.links):
        why = "a message needs so long between the two ranks that are farthest apart"
        yield Bound(max(_distances(fabric, start) for start in range(fabric.ranks)), why)


def spread_ps(alphas: tuple[int, ...], wanted: int) -> int:
    """How long until `wanted` know what one knew, if everyone who knows tells another every `alphas[i]` over its port i.

    Without latency no time is needed. Ports of different ranks are alike; that two may tell the same one is left out.

    >>> from allranks.theory.race.bounds import spread_ps
    >>> spread_ps((1,), 8), spread_ps((2, 5), 8)
    (3, 6)
    """
    if not min(alphas):
        return 0
    known, now = 1, 0
    calls = [(alpha, port) for port, alpha in enumerate(alphas)]
    heapq.heapify(calls)
    while known < wanted:
        now, port = heapq.heappop(calls)
        known += 1
        heapq.heappush(calls, (now + alphas[port], port))
        for other, alpha in enumerate(alphas):
            heapq.heappush(calls, (now + alpha, other))
    return now


def _distances(fabric: Fabric, start: int) -> int:
    """Picoseconds of latency from `start` to the rank that is farthest away, over links between ranks."""
    near: dict[int, list[tuple[int, int]]] = {}
    for (_, a, b), link in fabric.links.items():
        near.setdefault(a, []).append((b, link.alpha_ps))
    found = {start: 0}
    heap = [(0, start)]
    while heap:
        far, rank = heapq.heappop(heap)
        if far > found[rank]:
            continue
        for other, alpha in near.get(rank, ()):
            if far + alpha < found.get(other, far + alpha + 1):
                found[other] = far + alpha
                heapq.heappush(heap, (far + alpha, other))
    return max(found.values())

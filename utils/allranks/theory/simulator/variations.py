"""What would make a program faster: the same messages in segments, in both directions, or over every network card.

Each answer is a replay on the clock, not an estimate: the program runs several times at once, each time with a part of
every message's bytes, on the same ports, links and processors. That is what a program does that cuts its vector first
and handles each part as it handles the whole. Imports without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from allranks.theory.schedules import Number
from allranks.theory.simulator.clock import Compute, Enter, Network, Recv, Send, Step, Wait, replay

SEGMENTS = (2, 4, 8, 16, 32)
MAX_STEPS = 20_000  # entries of the programs of one replay, which takes half a second
_BOTH = "both directions"
WORTH = 1.02  # below it nothing is said


@dataclass(frozen=True)
class WhatIf:
    """One change, in words that follow "with", the seconds that it would take, and how many times faster that is."""

    words: str
    seconds: Number
    times_faster: float

    def sentence(self) -> str:
        """The answer as a sentence.

        >>> WhatIf("8 segments", 2.0, 1.31).sentence()
        'With 8 segments: 1.31 times faster.'
        """
        return f"With {self.words}: {self.times_faster:.2f} times faster."


@dataclass(frozen=True)
class _Parts:
    """The network of several copies of the ranks: rank v of all is rank `at[v]` of the machine."""

    network: Network
    at: Sequence[int]

    def seconds(self, src: int, dst: int, nbytes: int) -> Number:
        """As on the machine."""
        return self.network.seconds(self.at[src], self.at[dst], nbytes)

    def links(self, src: int, dst: int) -> tuple[Hashable, ...]:
        """As on the machine."""
        return self.network.links(self.at[src], self.at[dst])

    def collective_seconds(self, name: str, members: tuple[int, ...], nbytes: int) -> Number:
        """As on the machine."""
        return self.network.collective_seconds(name, tuple(self.at[m] for m in members), nbytes)


def in_parts(
    programs: Sequence[Sequence[Step]], network: Network, orders: Sequence[Sequence[int]], *, buffered: bool = False
) -> Number:
    """Seconds of the programs if each part of the vector had its own run, all at once; `orders[i][r]` plays rank r in
    part i.

    >>> from allranks.theory.simulator.clock import UniformNetwork
    >>> pair = [[Send(0, 1, nbytes=8), Wait(0, sent=True)], [Recv(0, 0), Wait(0, sent=False)]]
    >>> in_parts(pair, UniformNetwork(alpha=1, beta=1), [[0, 1], [0, 1]])
    10
    """
    p, parts = len(programs), len(orders)
    many: list[list[Step]] = []
    numbers = 1 + max((s.message for program in programs for s in program if not isinstance(s, Compute)), default=0)
    for part in range(parts):
        for program in programs:
            many.append([_part_of(step, part, parts, part * numbers, part * p) for step in program])
    at = [order[rank] for order in orders for rank in range(p)]

    def representative(resource: Hashable) -> Hashable:
        match resource:
            case ("out" | "in" as way, int(rank)):
                return way, at[rank]
        return resource

    found = replay(many, _Parts(network, at), buffered=buffered, representative=representative, processors=at)
    return found.seconds


def _part_of(step: Step, part: int, parts: int, first: int, base: int) -> Step:
    """The entry in one part's program: its bytes are cut as `torch.tensor_split` cuts, its computing evenly."""
    match step:
        case Send():
            return Send(first + step.message, base + step.peer, _share(step.nbytes, part, parts))
        case Recv():
            return Recv(first + step.message, None if step.peer is None else base + step.peer)
        case Enter():
            members = tuple(base + m for m in step.members)
            return Enter(first + step.message, step.name, members, _share(step.nbytes, part, parts))
        case Wait():
            return Wait(first + step.message, step.sent)
    return Compute(step.seconds / parts)


def _share(nbytes: int, part: int, parts: int) -> int:
    return nbytes // parts + (part < nbytes % parts)


def what_if(
    programs: Sequence[Sequence[Step]],
    network: Network,
    seconds: Number,
    *,
    any_order: bool = False,
    node_of: Callable[[int], int] | None = None,
    buffered: bool = False,
    segmented: bool = False,
) -> list[WhatIf]:
    """The changes that make the programs faster than `seconds`, the best first; an empty list if none does.

    - "k segments": the best k of 2 to 32. For programs in which an element's result depends on that element of the
      inputs only. Not said of programs with a library's own collectives. With `segmented`, for programs that send
      segments already, it is "each message in k parts, all of them under way at once".
    - with `any_order`, for collectives that treat all ranks alike (all_reduce, all_gather): half of the vector with the
      ranks in reverse order ("both directions", or "both directions at the same time" if messages go both ways
      already); and with `node_of`, which names the node of a rank, a part for each place in a node ("a ring for each of
      the 8 network cards" for a ring).
    - "communication and computing at the same time", if the ranks compute: no program on these messages can be faster
      than that.
    """
    p = len(programs)
    same = list(range(p))
    entries = sum(map(len, programs))
    # the clock knows of no links of a library's own collective: parts of it would cost nothing
    own = not any(isinstance(step, Enter) for program in programs for step in program)
    best: tuple[str, Number] = ("", seconds)
    for k in SEGMENTS if own else ():
        took = in_parts(programs, network, [same] * k, buffered=buffered) if entries * k <= MAX_STEPS else seconds
        if took >= best[1]:
            break  # more of them only cost more starts
        best = (f"each message in {k} parts, all of them under way at once" if segmented else f"{k} segments", took)
    found = [best]
    for change, orders in _orders(p, node_of) if own and any_order else ():
        if change == _BOTH and _goes_both_ways(programs):
            change = f"{_BOTH} at the same time"
        if entries * len(orders) <= MAX_STEPS:
            found.append((change, in_parts(programs, network, orders, buffered=buffered)))
    computing = [sum((s.seconds for s in program if isinstance(s, Compute)), 0 * seconds) for program in programs]
    if any(computing):
        free = [[step for step in program if not isinstance(step, Compute)] for program in programs]
        alone = replay(free, network, buffered=buffered).seconds
        found.append(("communication behind computing", max(alone, *computing)))
    told: dict[str, WhatIf] = {}  # of changes that are worth the same, the first
    for words, took in found:
        if took and seconds > WORTH * took:
            told.setdefault(f"{float(took):.3g}", WhatIf(words, took, float(seconds / took)))
    return sorted(told.values(), key=lambda one: -one.times_faster)


def _goes_both_ways(programs: Sequence[Sequence[Step]]) -> bool:
    """Whether the messages go the same ways with the ranks in reverse order."""
    last = len(programs) - 1
    ways = {
        (rank, s.peer) for rank, program in enumerate(programs) for s in program if isinstance(s, Send) and s.nbytes > 0
    }
    return {(last - a, last - b) for a, b in ways} == ways


def _orders(p: int, node_of: Callable[[int], int] | None) -> list[tuple[str, list[Sequence[int]]]]:
    """Both directions; and if the nodes are equally large, the ranks of each node turned by 0, 1, ... places."""
    found: list[tuple[str, list[Sequence[int]]]] = []
    if p > 2:
        found.append((_BOTH, [list(range(p)), list(reversed(range(p)))]))
    nodes: dict[int, list[int]] = {}
    for rank in range(p):
        nodes.setdefault(node_of(rank) if node_of is not None else 0, []).append(rank)
    g = len(nodes[0]) if 0 in nodes else 0
    if len(nodes) > 1 and g > 1 and all(len(ranks) == g for ranks in nodes.values()):
        turned: list[Sequence[int]] = [
            [ranks[(place + turn) % g] for ranks in nodes.values() for place in range(g)] for turn in range(g)
        ]
        found.append((f"{g} parts, each leaving the nodes from another rank", turned))
    return found

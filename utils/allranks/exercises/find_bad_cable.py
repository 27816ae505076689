"""find_bad_cable(ways, rounds) -> the number of the cable that is bad in one direction, from the times of messages alone.

The network and the times are made up here, another network for each rank: leaf and spine switches, messages that share cables,
a cable that is slow in one direction, noise, and messages that are late for no fault of the network. The ranks send no messages.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, median

from allranks.judge.cases import Args, Expected, Setup, oracle_maker
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Told
from allranks.theory.topology import Fabric, Link, Topology, cable_names, flow_seconds, hashed_fabric

NOISE = 0.03  # a time is up to so much too long
LATE = 0.04  # the share of messages that are late for another reason
LATE_BY = (1.5, 4.0)  # the least and the most times as long that these take
FACTOR = (1.6, 2.6)  # the least and the most times as slow that the bad cable is
NBYTES = 10**9
ROUNDS = 40
CROWD = 3  # flows that at least share a crowded cable
APART = 1.25  # the bad cable's figure over any other's, at least: no answer is near to two cables
TRIES = 400
EXPLAINED = 1.4  # times what sharing explains: between noise and the bad cable
SLOW = 1.5  # times the quickest message: what who does not count flows calls slow

Ways = list[list[list[int]]]
Rounds = list[list[tuple[int, int, float]]]
Reading = Callable[[Ways, Rounds], dict[int, float]]  # a figure for each cable; the largest is the answer

_NVLINK, _CARD = Link("NVLink", 2e-6, 371e9), Link("400 Gb/s", 5e-6, 50e9)


def flows_on(ways: Ways, flows: Sequence[tuple[int, int, float]]) -> Counter[int]:
    """How many flows of one round share each cable."""
    return Counter(cable for src, dst, _ in flows for cable in ways[src][dst])


def _over_expected(ways: Ways, rounds: Rounds) -> dict[int, float]:
    """The mean, over the flows on each cable, of the time over what sharing explains: also right, if less sharp."""
    found = defaultdict(list)
    for flows in rounds:
        sharing = flows_on(ways, flows)
        for src, dst, seconds in flows:
            share = max(sharing[cable] for cable in ways[src][dst])
            for cable in ways[src][dst]:
                found[cable].append(seconds / share)
    return {cable: fmean(values) for cable, values in found.items()}


def _often_over_expected(ways: Ways, rounds: Rounds) -> Counter[int]:
    """How often a flow on each cable takes longer than sharing explains: right too, where the bad cable is used enough."""
    least, found = min(seconds for flows in rounds for *_, seconds in flows), Counter[int]()
    for flows in rounds:
        sharing = flows_on(ways, flows)
        for src, dst, seconds in flows:
            if seconds > EXPLAINED * least * max(sharing[cable] for cable in ways[src][dst]):
                found.update(ways[src][dst])
    return found


def _figures(of: Callable[[float, int], float], take: Callable[[list[float]], float]) -> Reading:
    """For each cable `take` of what `of` makes of the seconds of each flow and of how many share the cable."""

    def reading(ways: Ways, rounds: Rounds) -> dict[int, float]:
        found = defaultdict(list)
        for flows in rounds:
            sharing = flows_on(ways, flows)
            for src, dst, seconds in flows:
                for cable in ways[src][dst]:
                    found[cable].append(of(seconds, sharing[cable]))
        return {cable: take(values) for cable, values in found.items()}

    return reading


def _slow_flows(take: Callable[[list[float]], float]) -> Reading:
    """For each cable `take` of a 1 for each slow flow on it and a 0 for each other, however many share the cable."""

    def reading(ways: Ways, rounds: Rounds) -> dict[int, float]:
        least = min(seconds for flows in rounds for *_, seconds in flows)
        return _figures(lambda seconds, _: float(seconds > SLOW * least), take)(ways, rounds)

    return reading


def _alone_on_it(ways: Ways, rounds: Rounds) -> dict[int, float]:
    """The mean time of the flows that were alone on each cable: on another cable of their way they may not have been."""
    found: dict[int, list[float]] = defaultdict(list)
    for flows in rounds:
        sharing = flows_on(ways, flows)
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                if sharing[cable] == 1:
                    found[cable].append(seconds)
    return {cable: fmean(values) for cable, values in found.items()}


# how slow each cable can be at most: a flow's time is at least its cable's share
_at_most = _figures(lambda seconds, sharing: seconds / sharing, min)
_LONGEST_MEAN = _figures(lambda seconds, _: seconds, fmean)
_LONGEST_MEDIAN = _figures(lambda seconds, _: seconds, median)
_SLOW_SHARE = _slow_flows(fmean)
_SLOW_COUNT = _slow_flows(sum)
_LONGEST_SHARE = _figures(lambda seconds, sharing: seconds / sharing, max)
_LONGEST_LEAST = _figures(lambda seconds, _: seconds, min)
_LONGEST = _figures(lambda seconds, _: seconds, max)
_SUM = _figures(lambda seconds, _: seconds, sum)
_MEAN_SHARE = _figures(lambda seconds, sharing: seconds / sharing, fmean)
_MEDIAN_SHARE = _figures(lambda seconds, sharing: seconds / sharing, median)


def _worst(figures: dict[int, float]) -> int:
    return max(figures, key=lambda cable: (figures[cable], -cable))


def _first_met(figures: dict[int, float]) -> int:
    """Of cables that look alike the one that the rounds name first, as a dictionary's largest value is found."""
    return max(figures, key=lambda cable: figures[cable])


def _slowest_of_rounds(ways: Ways, rounds: Rounds) -> dict[int, float]:
    """In how many rounds each cable is on the way of the slowest message."""
    slowest = (max(flows, key=lambda flow: flow[2]) for flows in rounds)
    return dict(Counter(cable for src, dst, _ in slowest for cable in ways[src][dst]))


def _first_card(ways: Ways, rounds: Rounds) -> dict[int, float]:
    """The first cable of each way: that of the sender's card."""
    found = defaultdict(list)
    for flows in rounds:
        for src, dst, seconds in flows:
            found[ways[src][dst][0]].append(seconds)
    return {cable: fmean(values) for cable, values in found.items()}


# -------------------------------------------------------------------------------------------------- a network to search


def _fabric(setup: Setup, rng: Draws) -> tuple[Fabric, int]:
    """A healthy network of leaf and spine switches, and its ranks."""
    # four leaf switches: between two only, an uplink and the downlink behind it would always carry the same flows
    rails = bool(setup.option("rails", False))
    pods = Topology("pods", 2, _NVLINK, _CARD, nics_per_node=2, nodes_per_leaf=4 if rails else 2, rails=rails)
    fabric = hashed_fabric(pods, 16, seed=rng.integer(0, 1 << 30))
    return replace(fabric, route=functools.cache(fabric.route)), 16


def _renumbered(ways: Ways, bad: int, crowded: int) -> tuple[Ways, int, int]:
    """The same network, in which the crowded cable has the lower number: who finds both alike takes the first one."""
    if crowded < bad:
        return ways, bad, crowded
    other = {bad // 2: crowded // 2, crowded // 2: bad // 2}

    def number(cable: int) -> int:
        return 2 * other.get(cable // 2, cable // 2) + cable % 2  # both directions of a cable stay side by side

    return [[[number(cable) for cable in way] for way in row] for row in ways], number(bad), number(crowded)


def _crowded_first(rounds: list[list[tuple[int, int]]], ways: Ways, bad: int, crowded: int) -> None:
    """Sorts the rounds, and the first one, so that the crowded cable is also met first."""

    def met_last(flow: tuple[int, int]) -> bool:
        way = ways[flow[0]][flow[1]]
        return crowded not in way or bad in way

    rounds.sort(key=lambda flows: all(met_last(flow) for flow in flows))
    rounds[0].sort(key=met_last)


def _permutations(ranks: int, ways: Ways, crowded: int | None, rng: Draws) -> list[list[tuple[int, int]]]:
    """Rounds in which each rank sends at most one message and receives at most one, all between nodes."""
    rounds: list[list[tuple[int, int]]] = []
    while len(rounds) < ROUNDS:
        flows = [(src, dst) for src, dst in enumerate(rng.permutation(ranks)) if ways[src][dst]]
        sharing = sum(crowded in ways[src][dst] for src, dst in flows)
        if crowded is None or sharing >= CROWD or not sharing:
            rounds.append(flows)
    return rounds


def _measured(fabric: Fabric, rounds: list[list[tuple[int, int]]], rng: Draws) -> Rounds:
    found: Rounds = []
    for flows in rounds:
        noise, late, by = (rng.uniform(len(flows)).tolist() for _ in range(3))
        times = zip(flows, flow_seconds(fabric, flows, NBYTES), noise, late, by, strict=True)
        low, high = LATE_BY
        found.append(
            [
                (src, dst, seconds * (1 + NOISE * up) * (low + (high - low) * b if out < LATE else 1.0))
                for (src, dst), seconds, up, out, b in times
            ]
        )
    return found


def _is_clear(ways: Ways, rounds: Rounds, bad: int, crowded: int | None, trap: bool) -> bool:
    """Whether only one cable can be the answer, and whether it misleads who does not count flows: in a trap every wrong reading."""
    most = _at_most(ways, rounds)
    if len(most) < 1 + max(cable for row in ways for way in row for cable in way) or _worst(most) != bad:
        return False
    if most[bad] < APART * max(figure for cable, figure in most.items() if cable != bad):
        return False
    if _worst(_over_expected(ways, rounds)) != bad:
        return False
    often = _often_over_expected(ways, rounds)
    if any(often[cable] >= often[bad] for cable in often if cable != bad):
        return False
    misled = _WRONG if trap else _WITHOUT_COUNTING if crowded is not None else ()
    return not any(bad in (_worst(figures), _first_met(figures)) for figures in (of(ways, rounds) for of in misled))


_WITHOUT_COUNTING = (_LONGEST_MEAN, _LONGEST_MEDIAN, _LONGEST_LEAST, _LONGEST, _MEAN_SHARE, _SLOW_SHARE)
_WRONG = (
    *(_MEDIAN_SHARE, _slowest_of_rounds, _first_card, _SLOW_COUNT, _SUM, _LONGEST_SHARE, _alone_on_it),
    *_WITHOUT_COUNTING,
)


def _planted(setup: Setup, rng: Draws, trap: bool = False) -> tuple[Ways, Rounds]:
    """A network with a bad cable, and the times of messages on it. Drawn again until only one cable can be meant."""
    kinds, crowd = setup.option("_kinds"), trap or setup.option("crowded", False)
    for _ in range(TRIES):
        fabric, ranks = _fabric(setup, rng)
        names = list(cable_names(fabric))
        number = {name: index for index, name in enumerate(names)}
        ways = [
            [[number[name] for name in fabric.route(src, dst) if name in number] for dst in range(ranks)]
            for src in range(ranks)
        ]
        some = [index for index, name in enumerate(names) if name[0] in kinds]
        bad = some[rng.integer(0, len(some))]
        crowded = None
        if crowd:
            ups = [i for i, name in enumerate(names) if name[0] == "up" and i != bad and _most_on(ways, i) > CROWD]
            if not ups:
                continue
            crowded = ups[rng.integer(0, len(ups))]
        link_name = names[bad]
        if crowded is not None:
            ways, bad, crowded = _renumbered(ways, bad, crowded)
        factor = FACTOR[0] + (FACTOR[1] - FACTOR[0]) * rng.uniform().item()
        link = fabric.links[link_name]
        slow = replace(link, bytes_per_s=int(link.bytes_per_s / factor))
        sick = replace(fabric, links=fabric.links | {link_name: slow})
        plan = _permutations(ranks, ways, crowded, rng)
        if crowded is not None:
            _crowded_first(plan, ways, bad, crowded)
        rounds = _measured(sick, plan, rng)
        if _is_clear(ways, rounds, bad, crowded, trap):
            return ways, rounds
    raise RuntimeError("no clear network was drawn")


def _most_on(ways: Ways, cable: int) -> int:
    """How many senders have a way over the cable."""
    return sum(any(cable in way for way in row) for row in ways)


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    # each case has one network that misleads every wrong reading: whether one does must not be luck
    return [_planted(setup, rng.of_rank(rank), rank == setup.ranks - 1) for rank in range(setup.ranks)]


@oracle_maker
def _oracle_from(
    setup: Setup, args: Sequence[Args], reading: Reading, take: Callable[[dict[int, float]], int] = _worst
) -> list[Expected]:
    return [Expected(take(reading(ways, rounds)), {}) for ways, rounds in args]


def _both_ties(*readings: Reading) -> list[Told]:
    """Oracles of what looks worst: of cables that look alike the lowest number, and the one that was met first."""
    return [_oracle_from(reading, take) for reading in readings for take in (_worst, _first_met)]


def _other_direction(ways: Ways, rounds: Rounds) -> dict[int, float]:
    """The same cable in the other direction: cables are numbered in pairs of directions."""
    bad = _worst(_at_most(ways, rounds))
    return {bad ^ 1: 1.0}


def _cases(*kinds: str, ranks: int = 2, **options: bool) -> tuple[Setup, ...]:
    return (Setup(ranks, ROUNDS).with_options(_kinds=kinds, **options),)


_CARDS, _UPLINKS = ("card out", "card in"), ("up", "down")

EXERCISE = Exercise(
    name="find_bad_cable",
    promise="names the cable that is slow in one direction",
    groups=(
        Group("the cable of a card", 1, _cases(*_CARDS)),
        Group("a cable to a spine", 2, _cases(*_UPLINKS)),
        Group("rails", 1, _cases(*_CARDS, *_UPLINKS, rails=True)),
        Group("a healthy cable that many flows share", 3, _cases(*_CARDS, *_UPLINKS, crowded=True)),
        Group("any network", 2, _cases(*_CARDS, *_UPLINKS, ranks=4)),
    ),
    inputs=_inputs,
    oracle=_oracle_from(_at_most),
    allow=frozenset(),
    mistakes={
        "this is the right cable in the other direction": _oracle_from(_other_direction),
        "flows that share a cable are slow on a healthy one too: divide a flow's time by the number of flows of its "
        "round on the cable": _both_ties(_LONGEST_MEAN, _LONGEST_MEDIAN, _LONGEST_LEAST, _SLOW_SHARE, _SLOW_COUNT),
        "a single late message is no proof, a computer may be busy: a bad cable is slow in every round": _both_ties(
            _LONGEST, _LONGEST_SHARE
        ),
        "a flow that is alone on a cable may share another one of its way, and a bad one may lie there too": _oracle_from(
            _alone_on_it
        ),
        "a mean or a median blames a cable for what the others on the way do: a flow's time over the number of flows is only "
        "the most that this cable can be slow, so take the least": [
            _oracle_from(_MEAN_SHARE),
            _oracle_from(_MEDIAN_SHARE),
        ],
        "a sum of times grows with the number of flows on a cable, slow or not: compare what one flow takes": _oracle_from(
            _SUM
        ),
        "the slowest message of a round may be late, or share a healthy cable: count all flows": _oracle_from(
            _slowest_of_rounds
        ),
        "the sender's card is only the first cable of the way: count the other cables too": _oracle_from(_first_card),
    },
    unit="round",
    demo_setup=_cases(*_UPLINKS)[0],
    forbidden_advice="The times are given; finding the cable needs no messages.",
)

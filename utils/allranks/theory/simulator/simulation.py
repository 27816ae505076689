"""A schedule on a topology: how long it takes, and a trace of every message; also for machines that you do not have.

The clock is `clock.replay`, which the wire uses too. A message starts when its sender and its receiver are ready, and
every port and link on its way is free. Where all units of a machine (ranks, nodes or groups of nodes) are alike and all
ranks do the same, simulating one unit gives the times of all: so large worlds are possible. Chunks are then rounded up
to the size of the largest one. Imports without torch.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from allranks.base.errors import CourseError
from allranks.theory import cost
from allranks.theory.cost.bounds import lower_bound_seconds
from allranks.theory.schedules import Algorithm, Schedule, describe
from allranks.theory.schedules.symmetric import SymmetricSchedule, symmetric_schedule
from allranks.theory.simulator import channels
from allranks.theory.simulator.clock import Compute, Recv, Send, Step, Timeline, Wait, collective_seconds, replay
from allranks.theory.simulator.critical import CriticalPath, critical_path
from allranks.theory.topology import Topology, TopologyError
from allranks.theory.trace import Event, Trace

# limits for simulating message by message, beyond which it takes minutes and gigabytes
MOST_RANKS = 1 << 20  # by symmetry and in closed form; a schedule, which lists its messages, takes fewer
MAX_EVENT_RANKS = 2048
MAX_EVENT_RANKS_ALL_TO_ALL = 256
MAX_EVENT_RANKS_ONE_CHUNK = 16384
MAX_MESSAGES = 2_000_000


class SimulateError(CourseError, ValueError):
    """A simulation that is impossible or too large."""


@dataclass(frozen=True)
class TopologyNetwork:
    """A topology as a network for `clock.replay` and for `allranks.wire.run(topology=...)`.

    With `scale` each byte of a message stands for so many: a small vector then takes the time of a large one.

    >>> from allranks.topology import preset
    >>> TopologyNetwork(preset("dgx-h100")).seconds(0, 8, nbytes=50_000_000)
    0.001005
    """

    topology: Topology
    scale: int = 1

    def seconds(self, src: int, dst: int, nbytes: int) -> float:
        """Seconds for which one message occupies its ports and links."""
        return self.topology.seconds(src, dst, nbytes * self.scale)

    def links(self, src: int, dst: int) -> tuple[Hashable, ...]:
        """The shared links on the way of a message."""
        return self.topology.links(src, dst)

    def collective_seconds(self, name: str, members: tuple[int, ...], nbytes: int) -> float:
        """Seconds of a library's own collective, whose `nbytes` are one rank's input.

        Rings over every card for most, all pairs at once for all_to_all, as `simulate` takes them by default on several
        nodes; scatter, gather and barrier by the formula of `clock.collective_seconds`, on the slowest link between
        neighbours.
        """
        nbytes *= self.scale
        known = next(
            (known for known in channels.USUAL if name.startswith(known)), None
        )  # reduce_scatter before reduce
        if known is not None and len(members) > 1:
            # all_gather's bytes are those of one rank's part
            vector = nbytes * len(members) if known == "all_gather" else nbytes
            return channels.call_cost(self.topology, channels.USUAL[known], known, members, vector).seconds
        ring = [(a, b) for a, b in zip(members, (*members[1:], members[0]), strict=True) if a != b]
        alpha = max((self.topology.seconds(a, b, 0) for a, b in ring), default=0.0)
        beta = max(
            (self.topology.seconds(a, b, 1 << 30) - self.topology.seconds(a, b, 0) for a, b in ring), default=0.0
        )
        return float(collective_seconds(name, len(members), nbytes, alpha, beta / (1 << 30)))


@dataclass(frozen=True)
class Simulation:
    """The result of a simulation.

    `nbytes` is as in `cost`, `bytes_per_rank` what the busiest rank sends. `method` is "events" (message by message) or
    "symmetry" (one unit for all); with "symmetry", `schedule` and `timeline` are None, and chunks are rounded up to the
    size of the largest one. "closed form" is the method of "ring channels" and its like.

    >>> from allranks.topology import uniform
    >>> found = simulate("all_reduce", "ring", 4, 4000, uniform(alpha_s=1.0, bytes_per_s=1000.0))
    >>> found.steps, found.bytes_per_rank, found.seconds
    (6, 6000, 12.0)
    """

    collective: str
    algorithm: str
    ranks: int
    nbytes: int
    topology: Topology
    seconds: float
    steps: int
    bytes_per_rank: int
    lower_bound_seconds: float
    method: str
    schedule: Schedule | None = field(default=None, repr=False)
    timeline: Timeline | None = field(default=None, repr=False)
    gamma: float = 0.0

    @property
    def algbw_gb_per_s(self) -> float | None:
        """nccl-tests' algorithm bandwidth in 10^9 bytes a second; None for a barrier, and if no time passes."""
        return cost.algbw_gb_per_s(self.nbytes, self.seconds) if self._has_bandwidth else None

    @property
    def busbw_gb_per_s(self) -> float | None:
        """nccl-tests' bus bandwidth in 10^9 bytes a second; None as for algbw."""
        return (
            cost.busbw_gb_per_s(self.collective, self.ranks, self.nbytes, self.seconds) if self._has_bandwidth else None
        )

    @property
    def _has_bandwidth(self) -> bool:
        return self.seconds > 0 and self.collective != "barrier"

    @cached_property
    def critical_path(self) -> CriticalPath:
        """The chain of messages that decides the time. Raises SimulateError if the method was "symmetry"."""
        if self.schedule is None or self.timeline is None:
            raise SimulateError(f"{self.ranks} ranks were simulated by {self.method}: ask for method='events'")
        found = programs(self.schedule, self.nbytes, self.gamma)
        return critical_path(found, self.timeline, TopologyNetwork(self.topology))

    @cached_property
    def trace(self) -> Trace:
        """Every message with its times. Raises SimulateError if the method was "symmetry"."""
        if self.schedule is None or self.timeline is None:
            raise SimulateError(
                f"{self.ranks} ranks were simulated by {self.method}, so that there is no list of messages; ask for "
                f"method='events', which goes up to {MAX_EVENT_RANKS} ranks"
            )
        events, plain = [], self.schedule.trace(self.nbytes)
        for number, event in enumerate(plain):  # a message has two events, and messages come in order of their numbers
            start, end = self.timeline.spans[number // 2]
            events.append(replace(event, start=float(start), end=float(end)))
        for idle in self.timeline.idle:
            events.append(Event(idle.rank, "wait", start=float(idle.start), end=float(idle.end)))
        events.sort(key=lambda e: (e.start or 0.0, e.step is None, e.match or 0))
        return Trace(
            kind="simulated",
            ranks=self.ranks,
            events=tuple(events),
            collective=self.collective,
            algorithm=self.algorithm,
            chunks=plain.chunks,
            nbytes=plain.nbytes,
            clock="virtual",
            root=self.schedule.root,
            source=self.topology.name,
            meta={"topology": self.topology.name},
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        return {
            "collective": self.collective,
            "algorithm": self.algorithm,
            "ranks": self.ranks,
            "bytes": self.nbytes,
            "topology": self.topology.name,
            "seconds": self.seconds,
            "steps": self.steps,
            "bytes_per_rank": self.bytes_per_rank,
            "lower_bound_seconds": self.lower_bound_seconds,
            "algbw_gb_per_s": self.algbw_gb_per_s,
            "busbw_gb_per_s": self.busbw_gb_per_s,
            "method": self.method,
        }


def simulate(
    collective: str,
    algorithm: str,
    ranks: int,
    nbytes: int,
    topology: Topology,
    *,
    gamma: float = 0.0,
    method: str | None = None,
    **options: int | None,
) -> Simulation:
    """Runs an algorithm, by the names of `schedules.find`, on a topology.

    The algorithms of `simulator.channels` ("ring channels", "tree channels", "hierarchical channels", "pairwise
    channels") use every card of a node at once; "ring" is one ring through one card. `nbytes` is as in `cost`; `gamma`
    is seconds a byte reduced. `options` are those of the schedule: `root`, `segments` (by default the best number up to
    64), `ranks_per_node` and `columns` (by default the ranks of the topology's nodes), `in_flight`. `method` is
    "events" (message by message), "symmetry" (one unit for all), or None: "symmetry" for more than 64 ranks, if it is
    possible. Raises SimulateError, ScheduleError or TopologyError.

    >>> from allranks.topology import preset
    >>> simulate("all_reduce", "hierarchical", 16384, 1 << 30, preset("dgx-h100")).method
    'symmetry'
    """
    wanted = " ".join(algorithm.lower().replace("-", " ").replace("_", " ").split())
    if wanted in channels.ALGORITHMS:
        return _on_channels(collective, wanted, ranks, nbytes, topology, gamma, method, options)
    known = describe(collective, algorithm)
    _check_figures(nbytes, gamma)
    if method not in (None, "events", "symmetry"):
        raise SimulateError(f"the method is {method!r}; it is 'events' or 'symmetry'")
    _check_world(ranks, topology)
    if unknown := sorted(set(options) - set(known.options)):
        raise SimulateError(f"{known.name} {known.collective} has no option {', '.join(unknown)}")
    chosen = _chosen_options(known, ranks, nbytes, topology, options)
    if method == "symmetry" or (method is None and ranks > 64):
        # an algorithm has at most one of them
        size = next((chosen[name] for name in ("ranks_per_node", "columns", "in_flight") if name in chosen), None)
        rules = symmetric_schedule(known.collective, known.name, ranks, size)
        unit = _unit(rules, topology) if rules else None
        if rules is not None and unit is not None and unit < ranks:
            # one unit stands for all: the work does not grow with the number of ranks
            return _by_symmetry(rules, unit, nbytes, topology, gamma)
        if method == "symmetry":
            raise SimulateError(
                f"{known.name} {known.collective} of {ranks} ranks on {topology.name} has no symmetry to use: its "
                "ranks, or the nodes, are not all alike"
            )
    _check_size(known, ranks)
    return run_schedule(known.build(ranks, **chosen), nbytes, topology, gamma=gamma)


def run_schedule(schedule: Schedule, nbytes: int, topology: Topology, *, gamma: float = 0.0) -> Simulation:
    """Simulates a schedule message by message: one of `allranks.schedules`, or your own.

    `nbytes` is as in `cost`; `gamma` is seconds a byte reduced. Raises SimulateError, ScheduleError or TopologyError.

    >>> from allranks.schedules import ring_all_reduce
    >>> from allranks.topology import uniform
    >>> run_schedule(ring_all_reduce(4), 4000, uniform(alpha_s=1.0, bytes_per_s=1000.0)).seconds
    12.0
    """
    _check_world(schedule.ranks, topology)
    timeline = replay(programs(schedule, nbytes, gamma), TopologyNetwork(topology))
    if None in timeline.finished:
        raise SimulateError(
            f"rank {timeline.finished.index(None)} never finishes: messages of the schedule wait for each other"
        )
    return Simulation(
        schedule.collective,
        schedule.algorithm,
        schedule.ranks,
        nbytes,
        topology,
        float(timeline.seconds),
        schedule.steps,
        max(schedule.bytes_sent(nbytes)),
        lower_bound_seconds(schedule.collective, schedule.ranks, nbytes, topology, gamma),
        "events",
        schedule,
        timeline,
        gamma,
    )


def programs(schedule: Schedule, nbytes: int, gamma: float = 0.0) -> list[list[Step]]:
    """The program of each rank: in each step it posts all its messages, waits for them, and adds what it received.

    Messages are numbered as in `Schedule.trace`. `gamma` is seconds a byte reduced.

    >>> from allranks.schedules import flat_broadcast
    >>> programs(flat_broadcast(2), nbytes=100)[1]
    [Recv(message=0, peer=0), Wait(message=0, sent=False)]
    """
    sizes = schedule.chunk_nbytes(nbytes)
    found: list[list[Step]] = [[] for _ in range(schedule.ranks)]
    number = 0
    for now in schedule.by_step:
        waits: list[tuple[int, Step]] = []
        for move in now:
            size = sum(sizes[c] for c in move.chunks)
            found[move.src].append(Send(number, move.dst, size))
            found[move.dst].append(Recv(number, move.src))
            waits.append((move.src, Wait(number, sent=True)))
            waits.append((move.dst, Wait(number, sent=False)))
            if move.reduce and gamma:
                waits.append((move.dst, Compute(size * gamma)))
            number += 1
        for rank, wait in waits:
            found[rank].append(wait)
    return found


def _chosen_options(
    known: Algorithm, ranks: int, nbytes: int, topology: Topology, options: Mapping[str, int | None]
) -> dict[str, int]:
    """The options that were given, and for the others what suits the topology."""
    chosen = {name: value for name, value in options.items() if value is not None}
    if "segments" in known.options and "segments" not in chosen:
        link = topology.nic if topology.nic is not None and topology.nodes(ranks) > 1 else topology.inside
        what = known.collective, known.name, ranks, nbytes, link.alpha_s, link.beta_s_per_byte
        chosen["segments"] = min(range(1, max(1, min(nbytes, 64)) + 1), key=lambda k: cost.price(*what, segments=k))
    for name in ("ranks_per_node", "columns"):
        g = topology.ranks_per_node
        if name in known.options and name not in chosen and g < ranks and ranks % g == 0:
            chosen[name] = g
    return chosen


def _on_channels(
    collective: str,
    algorithm: str,
    ranks: int,
    nbytes: int,
    topology: Topology,
    gamma: float,
    method: str | None,
    options: Mapping[str, int | None],
) -> Simulation:
    """In closed form: what all cards do at once has no single messages."""
    name = collective.lower().replace("-", "_")
    if name not in channels.ALGORITHMS[algorithm]:
        known = ", ".join(channels.ALGORITHMS[algorithm])
        raise SimulateError(f"{algorithm} are for {known}, not for {collective!r}")
    if method is not None or any(value is not None for value in options.values()):
        raise SimulateError(f"{algorithm} have no options, and no messages one by one: name another algorithm")
    _check_figures(nbytes, gamma)
    _check_world(ranks, topology)
    found = channels.call_cost(topology, algorithm, name, range(ranks), nbytes, gamma)
    bound = lower_bound_seconds(name, ranks, nbytes, topology, gamma)
    sent = round(found.bytes_per_rank)
    return Simulation(name, algorithm, ranks, nbytes, topology, found.seconds, found.steps, sent, bound, "closed form")


def _check_figures(nbytes: int, gamma: float) -> None:
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
        raise SimulateError(f"the bytes are {nbytes!r}; they are a whole number, 0 or more")
    if not 0 <= gamma < math.inf:
        raise SimulateError(f"gamma is {gamma!r} seconds a byte; it is 0 or more, and finite")


def _check_world(ranks: int, topology: Topology) -> None:
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= MOST_RANKS:
        raise SimulateError(f"the ranks are {ranks!r}; they are a whole number from 1 to {MOST_RANKS}")
    if topology.nodes(ranks) > 1 and topology.nic is None:
        raise TopologyError(
            f"{topology.name} is one node of {topology.ranks_per_node} ranks with no network; it can't hold {ranks}"
        )
    for rank, _ in topology.stragglers:
        if rank >= ranks:
            raise SimulateError(f"the straggler is rank {rank}; it must be one of the ranks 0 to {ranks - 1}")


def _check_size(known: Algorithm, ranks: int) -> None:
    """Raises SimulateError if the list of all messages would be too long."""
    if known.collective == "all_to_all":
        limit = MAX_EVENT_RANKS_ALL_TO_ALL
    elif known.name in ("binomial", "flat", "tree", "recursive doubling") and known.collective in (
        "broadcast", "reduce", "all_reduce",
    ):  # fmt: skip
        limit = MAX_EVENT_RANKS_ONE_CHUNK
    else:
        limit = MAX_EVENT_RANKS
    if ranks > limit:
        raise SimulateError(
            f"{known.name} {known.collective} of {ranks} ranks has too many different messages to follow one "
            f"by one: take at most {limit} ranks, or whole nodes (and a power of two) if the algorithm treats "
            "all ranks alike"
        )


def _unit(rules: SymmetricSchedule, topology: Topology) -> int | None:
    """The number of ranks to simulate for all: a whole unit of machine and algorithm; None if there is none."""
    repeats = topology.symmetric_unit(rules.ranks)
    if repeats is None:
        return None
    unit = math.lcm(repeats, rules.unit)
    if rules.ranks % unit:
        return None
    if rules.symmetry == "xor" and (unit & (unit - 1) or rules.ranks & (rules.ranks - 1)):
        return None
    return unit


def _by_symmetry(rules: SymmetricSchedule, unit: int, nbytes: int, topology: Topology, gamma: float) -> Simulation:
    """Replays the first `unit` ranks; a port or link of any other rank is represented by one of theirs.

    A rule that repeats often is replayed a few times only. Links that are held and given back in the same order reach a
    steady state, in which a number of steps always takes the same time; it is checked that two more windows of steps
    take as long as one another, and if they do not, with windows twice as long.
    """
    size = -(-nbytes // rules.parts) if rules.collective != "barrier" else 0
    repeats = [rule.repeat for rule in rules.rules]
    window = 4 * max(unit, 16)
    seconds = None
    while seconds is None and any(repeat > 4 * window for repeat in repeats):
        seconds = _steady(rules, unit, size, topology, gamma, window)
        window *= 2
    if seconds is None:
        seconds = _replayed(rules, repeats, unit, size, topology, gamma)
    return Simulation(
        rules.collective,
        rules.algorithm,
        rules.ranks,
        nbytes,
        topology,
        seconds,
        rules.steps,
        size * rules.chunks_sent,
        lower_bound_seconds(rules.collective, rules.ranks, nbytes, topology, gamma),
        "symmetry",
    )


def _steady(
    rules: SymmetricSchedule, unit: int, size: int, topology: Topology, gamma: float, window: int
) -> float | None:
    """The seconds from the steady states of the rules that repeat often; None where a state is not steady after so
    many steps.
    """
    short = [min(rule.repeat, 2 * window + rule.repeat % window) for rule in rules.rules]
    base = _replayed(rules, short, unit, size, topology, gamma)
    seconds = base
    for at, rule in enumerate(rules.rules):
        left = rule.repeat - short[at]
        if not left:
            continue
        one, two = (
            _replayed(rules, [n + more * window * (k == at) for k, n in enumerate(short)], unit, size, topology, gamma)
            for more in (1, 2)
        )
        if not math.isclose(two - one, one - base, rel_tol=1e-9):
            return None
        seconds += (one - base) * (left // window)
    return seconds


def _replayed(
    rules: SymmetricSchedule, repeats: Sequence[int], unit: int, size: int, topology: Topology, gamma: float
) -> float:
    """The seconds of the rules, each repeated so often. Raises SimulateError."""
    if unit * sum(repeats) > MAX_MESSAGES:
        raise SimulateError(
            f"{rules.algorithm} {rules.collective} of {rules.ranks} ranks takes {rules.steps} steps, of {unit} "
            f"messages that differ, which is more than {MAX_MESSAGES} messages; take fewer ranks"
        )
    found: list[list[Step]] = [[] for _ in range(unit)]
    first = 0
    for rule, repeat in zip(rules.rules, repeats, strict=True):
        load = size * rule.chunks
        way = [(rule.destination(rank), rule.source(rank)) for rank in range(unit)]
        add = Compute(load * gamma) if rule.reduce and gamma else None
        for _ in range(repeat):
            for rank, (dst, src) in enumerate(way):
                # for the clock, a message from rank src is that of the rank which represents it
                taken = first + src % unit
                found[rank] += (Send(first + rank, dst, load), Recv(taken, src))
                found[rank] += (Wait(first + rank, sent=True), Wait(taken, sent=False))
                if add is not None:
                    found[rank].append(add)
            first += unit
    nodes, leaves = max(1, unit // topology.ranks_per_node), topology.nodes_per_leaf or 1

    def representative(resource: Any) -> tuple[Hashable, ...]:
        kind, where, *rest = resource
        if kind in ("out", "in"):
            return kind, where % unit
        return kind, where % max(1, nodes // leaves) if kind.startswith("leaf") else where % nodes, *rest

    timeline = replay(found, TopologyNetwork(topology), representative=representative)
    if None in timeline.finished:
        raise SimulateError(
            f"rank {timeline.finished.index(None)} never finishes: messages of the schedule wait for each other"
        )
    return float(timeline.seconds)

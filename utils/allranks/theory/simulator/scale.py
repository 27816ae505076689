"""A schedule on a `Fabric`, message by message and in whole picoseconds: 4096 ranks and 100,000 messages in a second or two.

The rules are those of `run_schedule`: in each of its steps a rank posts all its messages, and goes on when they are complete.
A message starts when both its ranks have posted it and every link of its way is free; of two that want the same link, the one
that was ready first goes first, then the one of the lower rank. A test compares the times with those of `clock.replay`.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import accumulate

from allranks.theory.schedules import Schedule, ScheduleError
from allranks.theory.schedules.proof import in_steps, runs
from allranks.theory.topology import Fabric
from allranks.theory.topology.fabrics import PS, LinkName


@dataclass(frozen=True)
class Priced:
    """When each message of a schedule starts and ends, in picoseconds, by its number in `schedule.moves`.

    `busy_ps` is how long each link is held.

    >>> from allranks.theory.simulator.scale import price_at_scale
    >>> fabric = topology.node_fabric(topology.uniform(alpha_s=1e-6, bytes_per_s=1e9), 4)
    >>> price_at_scale(schedules.ring_all_reduce(4), 4000, fabric).picoseconds
    12000000
    """

    picoseconds: int
    starts: list[int] = field(repr=False)
    ends: list[int] = field(repr=False)
    busy_ps: dict[LinkName, int] = field(repr=False)

    @property
    def busiest(self) -> tuple[LinkName, int] | None:
        """The link that is held for the longest time, and that time; None without messages."""
        return max(self.busy_ps.items(), key=lambda item: item[1], default=None)


def price_at_scale(schedule: Schedule, nbytes: int, fabric: Fabric, most_looks: int | None = None) -> Priced:
    """How long the schedule takes on the machine, for a vector of `nbytes` as in `cost`.

    The schedule's ranks and chunks must exist (`Schedule.verify` says so). `most_looks` bounds how often a message is looked
    at while its links are busy. Raises ScheduleError above it or if the machine has another number of ranks, and
    TopologyError if a message has no way.
    """
    if schedule.ranks != fabric.ranks:
        raise ScheduleError(f"the schedule has {schedule.ranks} ranks, {fabric.name} has {fabric.ranks}")
    return _Clock(schedule, nbytes, fabric, most_looks).run()


class _Clock:
    """The state of one run. Links and messages are numbers here."""

    def __init__(self, schedule: Schedule, nbytes: int, fabric: Fabric, most_looks: int | None) -> None:
        self.moves, self.most_looks, self.looks = schedule.moves, most_looks, 0
        self.number_of: dict[LinkName, int] = {}
        self.ways, self.durations = self._ways(schedule, nbytes, fabric)
        # each rank's steps, as lists of messages; a message waits for both its ranks
        self.steps: list[list[list[int]]] = [[] for _ in range(schedule.ranks)]
        for _, numbers in in_steps(self.moves):
            last: dict[int, list[int]] = {}
            for n in numbers:
                for rank in (self.moves[n].src, self.moves[n].dst):
                    if rank not in last:
                        last[rank] = []
                        self.steps[rank].append(last[rank])
                    last[rank].append(n)
        self.place = [-1] * schedule.ranks
        self.open = [0] * schedule.ranks  # messages of the rank's step that are not complete
        self.missing = [2] * len(self.moves)
        self.busy = [False] * len(self.number_of)
        # a blocked message waits at one of its busy links; each list is a heap of (order of becoming ready, message)
        self.waiting: list[list[tuple[int, int]]] = [[] for _ in self.number_of]
        self.ends: list[tuple[int, int]] = []  # a heap of (when, message)
        self.ready: list[int] = []
        self.ordered = 0
        self.started, self.ended = [0] * len(self.moves), [0] * len(self.moves)

    def _ways(self, schedule: Schedule, nbytes: int, fabric: Fabric) -> tuple[list[tuple[int, ...]], list[int]]:
        """Each message's links and picoseconds."""
        before = [0, *accumulate(schedule.chunk_nbytes(nbytes))]  # bytes of all chunks below each
        known: dict[tuple[int, int], tuple[tuple[int, ...], int, int]] = {}
        ways, durations = [], []
        for move in schedule.moves:
            found = known.get((move.src, move.dst))
            if found is None:
                route, alpha, rate = fabric.way(move.src, move.dst)
                links = tuple(self.number_of.setdefault(name, len(self.number_of)) for name in route)
                found = known[move.src, move.dst] = links, alpha, rate
            links, alpha, rate = found
            size = sum(before[end] - before[first] for first, end in runs(move.chunks))
            ways.append(links)
            durations.append(alpha - (-size * PS // rate))
        return ways, durations

    def run(self) -> Priced:
        for rank in range(len(self.steps)):
            self.go_on(rank)
        now = 0
        self.start(now, [])
        while self.ends:
            now = self.ends[0][0]
            freed: list[int] = []
            while self.ends and self.ends[0][0] == now:
                _, n = heapq.heappop(self.ends)
                for link in self.ways[n]:
                    self.busy[link] = False
                    if self.waiting[link]:
                        freed.append(link)
                for rank in (self.moves[n].src, self.moves[n].dst):
                    self.open[rank] -= 1
                    if not self.open[rank]:
                        self.go_on(rank)
            self.start(now, freed)
        busy: dict[LinkName, int] = {}
        names = list(self.number_of)
        for way, duration in zip(self.ways, self.durations, strict=True):
            for link in way:
                busy[names[link]] = busy.get(names[link], 0) + duration
        return Priced(now, self.started, self.ended, busy)

    def go_on(self, rank: int) -> None:
        """The rank posts the messages of its next step."""
        self.place[rank] += 1
        if self.place[rank] == len(self.steps[rank]):
            return
        mine = self.steps[rank][self.place[rank]]
        self.open[rank] = len(mine)
        for n in mine:
            self.missing[n] -= 1
            if not self.missing[n]:
                self.ready.append(n)

    def start(self, now: int, freed: list[int]) -> None:
        """Starts every message whose links are free, in the order in which they became ready."""
        moves, busy, waiting, ways = self.moves, self.busy, self.waiting, self.ways
        # the first of each queue in turn: from those at freed links (queue >= 0), and of what is ready now (queue -1)
        heads: list[tuple[int, int, int]] = [(*waiting[link][0], link) for link in freed]
        for n in sorted(self.ready, key=lambda n: (moves[n].src, n)):
            heads.append((self.ordered, n, -1))
            self.ordered += 1
        self.ready = []
        heapq.heapify(heads)
        while heads:
            order, n, queue = heapq.heappop(heads)
            if queue >= 0:
                if busy[queue] or not waiting[queue] or waiting[queue][0][1] != n:
                    continue  # another message took the link, or a list of freed links named it twice
                heapq.heappop(waiting[queue])
            self.looks += 1
            blocked = next((link for link in ways[n] if busy[link]), None)
            if blocked is not None:
                heapq.heappush(waiting[blocked], (order, n))
            else:
                for link in ways[n]:
                    busy[link] = True
                self.started[n], self.ended[n] = now, now + self.durations[n]
                heapq.heappush(self.ends, (self.ended[n], n))
            if queue >= 0 and not busy[queue] and waiting[queue]:
                heapq.heappush(heads, (*waiting[queue][0], queue))
        if self.most_looks is not None and self.looks > self.most_looks:
            raise ScheduleError(
                f"its messages wait for each other's links more than {self.most_looks} times; spread them over steps and links"
            )

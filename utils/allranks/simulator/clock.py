"""Virtual time: when each message of a program would start and end on a network, from causality alone.

`replay` walks every rank's program in virtual time. A message starts when it is ready and its sender's out-port, its
receiver's in-port and every link on its way are free; it takes alpha + nbytes * beta. Who got the processor first on the
machine that ran the program plays no part, so that the same program has the same time to the last digit everywhere.
Any number type will do: integers and Fractions give exact times.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from allranks.errors import CourseError
from allranks.schedules import ceil_lg


class NetworkError(CourseError, ValueError):
    """A network whose figures make no sense, or a program that contradicts itself."""


class Fabric(Protocol):
    """What `replay` asks of a network."""

    def seconds(self, src: int, dst: int, nbytes: int):
        """Seconds that one message occupies its ports and links."""

    def links(self, src: int, dst: int) -> tuple[Hashable, ...]:
        """The links between the two ports that carry one message at a time."""

    def collective_seconds(self, name: str, members: tuple[int, ...], nbytes: int):
        """Seconds that a library's own collective takes once its last member has called it."""


def collective_seconds(name: str, ranks: int, nbytes: int, alpha, beta):
    """Seconds of a library's collective over uniform links: its textbook algorithm, `nbytes` being one rank's input.

    all_reduce: ring; all_gather, reduce_scatter, all_to_all: p-1 steps; broadcast and reduce: binomial tree; gather and
    scatter: p-1 messages through the root's port; barrier: ceil(lg p) empty rounds.
    """
    p = ranks
    if p == 1:
        return 0 * alpha
    if name.startswith("all_reduce"):
        return 2 * (p - 1) * alpha + 2 * (p - 1) * nbytes * beta / p
    if name.startswith(("all_gather", "gather")):
        return (p - 1) * (alpha + nbytes * beta)
    if name.startswith(("reduce_scatter", "all_to_all", "scatter")):  # the root's input has a part for each
        return (p - 1) * alpha + (p - 1) * nbytes * beta / p
    if name == "barrier":
        return ceil_lg(p) * alpha
    return ceil_lg(p) * (alpha + nbytes * beta)


@dataclass(frozen=True)
class Flat:
    """Every pair of ranks joined by a link of its own: `alpha` seconds a message and `beta` seconds a byte."""

    alpha: float = 1.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        if not (self.alpha >= 0 and self.beta >= 0):
            raise NetworkError(f"alpha is {self.alpha!r} and beta {self.beta!r}; neither can be negative.")

    def seconds(self, src: int, dst: int, nbytes: int):
        """alpha + nbytes * beta; a rank's message to itself is free."""
        return 0 * self.alpha if src == dst else self.alpha + nbytes * self.beta

    def links(self, src: int, dst: int) -> tuple[Hashable, ...]:
        """None: only the ports are shared."""
        return ()

    def collective_seconds(self, name: str, members: tuple[int, ...], nbytes: int):
        """The textbook algorithm's time, see `collective_seconds`."""
        return collective_seconds(name, len(members), nbytes, self.alpha, self.beta)


# ------------------------------------------------------------------------------------------- the program of one rank


@dataclass(frozen=True, slots=True)
class Send:
    """The rank offers message `message` of `nbytes` to `peer`, and goes on."""

    message: int
    peer: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Recv:
    """The rank is ready to take message `message` (a number that no Send carries never comes), and goes on."""

    message: int
    peer: int | None


@dataclass(frozen=True, slots=True)
class Enter:
    """The rank enters the collective `message` of all `members` with `nbytes` of input, and goes on."""

    message: int
    name: str
    members: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The rank waits until its own Send, Recv or Enter of `message` is complete; `sent` tells a Send from a Recv."""

    message: int
    sent: bool


@dataclass(frozen=True, slots=True)
class Compute:
    """The rank works for `seconds`."""

    seconds: float


Step = Send | Recv | Enter | Wait | Compute


@dataclass(frozen=True, slots=True)
class Idle:
    """Rank `rank` stood still from `start` to `end` at entry `index` of its program."""

    rank: int
    index: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Work:
    """Rank `rank` computed from `start` to `end`, at entry `index` of its program."""

    rank: int
    index: int
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """`spans[message]` is (start, end); `finished[rank]` the end of its program, or None where it got stuck.

    `idle` and `work` tell when a rank stood still and when it computed.
    """

    spans: dict[int, tuple]
    finished: tuple
    idle: tuple[Idle, ...]
    seconds: float
    work: tuple[Work, ...] = ()


@dataclass(slots=True)
class _Transfer:
    number: int
    src: int = -1
    dst: int = -1
    nbytes: int = 0
    sent: object = None
    posted: int = 0
    wanted: object = None
    resources: tuple = ()
    key: tuple = ()
    span: tuple | None = None
    done: bool = False
    members: tuple = ()
    entered: set = field(default_factory=set)
    waiting: list = field(default_factory=list)


class _Replay:
    def __init__(
        self,
        programs: Sequence[Sequence[Step]],
        fabric: Fabric,
        buffered: bool,
        stand_in: Callable[[Hashable], Hashable] | None = None,
    ) -> None:
        self.programs, self.fabric, self.buffered, self.stand_in = programs, fabric, buffered, stand_in
        self.at = [0] * len(programs)
        self.since: list = [None] * len(programs)
        self.finished: list = [None] * len(programs)
        self.transfers: dict[int, _Transfer] = {}
        self.busy: set[Hashable] = set()
        self.queued: dict[Hashable, list[tuple]] = {}
        self.fresh: list[tuple] = []
        self.by_key: dict[tuple, _Transfer] = {}
        self.heap: list[tuple] = []
        self.order = 0
        self.idle: list[Idle] = []
        self.work: list[Work] = []
        self.last = 0

    def run(self) -> Timeline:
        for rank in range(len(self.programs)):
            self.push(0, "resume", rank)
        while self.heap:
            now = self.heap[0][0]
            freed: set[Hashable] = set()
            self.last = max(self.last, now)
            while self.heap and self.heap[0][0] == now:
                _, _, what, subject = heapq.heappop(self.heap)
                if what == "resume":
                    self.walk(subject, now)
                else:
                    freed.update(self.finish(subject, now))
            self.start_what_can(now, freed)
        spans = {number: t.span for number, t in self.transfers.items() if t.span is not None}
        return Timeline(spans, tuple(self.finished), tuple(self.idle), self.last, tuple(self.work))

    def push(self, when, what: str, subject) -> None:
        self.order += 1
        heapq.heappush(self.heap, (when, self.order, what, subject))

    def transfer(self, number: int) -> _Transfer:
        found = self.transfers.get(number)
        if found is None:
            found = self.transfers[number] = _Transfer(number)
        return found

    def walk(self, rank: int, now) -> None:
        """Runs the rank's program at time `now` until it has to wait."""
        program = self.programs[rank]
        while self.at[rank] < len(program):
            step = program[self.at[rank]]
            match step:
                case Send():
                    t = self.transfer(step.message)
                    t.src, t.dst, t.nbytes, t.sent = rank, step.peer, step.nbytes, now
                    t.posted = self.at[rank]
                    self.ready(t, now)
                case Recv():
                    t = self.transfer(step.message)
                    t.wanted = now
                    if not self.buffered:
                        self.ready(t, now)
                case Enter():
                    self.enter(rank, step, now)
                case Compute():
                    self.work.append(Work(rank, self.at[rank], now, now + step.seconds))
                    self.at[rank] += 1
                    self.push(now + step.seconds, "resume", rank)
                    return
                case Wait():
                    t = self.transfer(step.message)
                    if not t.done:
                        self.since[rank] = now
                        t.waiting.append(rank)
                        return
            self.at[rank] += 1
        self.finished[rank] = now

    def ready(self, t: _Transfer, now) -> None:
        if t.sent is None or (t.wanted is None and not self.buffered):
            return
        t.key = (now, t.src, t.posted)  # of those ready at once a rank sends first what it posted first
        t.resources = (("out", t.src), ("in", t.dst), *self.fabric.links(t.src, t.dst)) if t.src != t.dst else ()
        if self.stand_in is not None:
            t.resources = tuple(map(self.stand_in, t.resources))
        self.by_key[t.key] = t
        for resource in t.resources:
            insort(self.queued.setdefault(resource, []), t.key)
        self.fresh.append(t.key)

    def enter(self, rank: int, step: Enter, now) -> None:
        t = self.transfer(step.message)
        t.members = step.members
        t.entered.add(rank)
        t.nbytes = max(t.nbytes, step.nbytes)
        if len(t.entered) == len(step.members):
            t.span = (now, now + self.fabric.collective_seconds(step.name, step.members, t.nbytes))
            self.push(t.span[1], "finish", t)

    def finish(self, t: _Transfer, now) -> tuple:
        t.done = True
        self.busy.difference_update(t.resources)
        for rank in sorted(t.waiting):
            if now > self.since[rank]:
                self.idle.append(Idle(rank, self.at[rank], self.since[rank], now))
            self.at[rank] += 1
            self.push(now, "resume", rank)
        t.waiting = []
        return t.resources

    def start_what_can(self, now, freed: set) -> None:
        """Starts every message whose ports and links are free, the one that was ready first going first."""
        candidates = set(self.fresh)
        self.fresh = []
        for resource in freed:
            candidates.update(self.queued.get(resource, ()))
        for key in sorted(candidates):
            t = self.by_key[key]
            if t.span is not None or not self.busy.isdisjoint(t.resources):
                continue
            self.busy.update(t.resources)
            for resource in t.resources:
                self.queued[resource].remove(key)
            t.span = (now, now + self.fabric.seconds(t.src, t.dst, t.nbytes))
            self.push(t.span[1], "finish", t)


def replay(
    programs: Sequence[Sequence[Step]],
    fabric: Fabric,
    *,
    buffered: bool = False,
    stand_in: Callable[[Hashable], Hashable] | None = None,
) -> Timeline:
    """When each message of the programs (one a rank) starts and ends on `fabric`.

    A message is ready when its send and its receive are both posted; with `buffered` as soon as it is sent. A rank
    sends one message and receives one at a time. A program that never ends (a deadlock) is replayed as far as it goes.

    Where ranks are alike, the programs may be those of a few of them. `stand_in` then names the port or link ("out", rank),
    ("in", rank), or as the fabric calls it, that stands for the one of a rank whose program is left out.
    """
    return _Replay(programs, fabric, buffered, stand_in).run()

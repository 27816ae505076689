"""Virtual time: when each message of a program would start and end on a network, computed from the program alone.

`replay` walks through every rank's program. A message starts when it is ready and when its sender's port, its receiver's
port and every link on its way are free; it takes alpha + nbytes * beta. Real time plays no part, so the same program has
the same virtual time, to the last digit, on every machine. Integers and Fractions give exact times.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from allranks.base.errors import CourseError
from allranks.theory.schedules import Number, ceil_lg


class NetworkError(CourseError, ValueError):
    """A network with impossible figures."""


class Network(Protocol):
    """What `replay` asks of a network."""

    def seconds(self, src: int, dst: int, nbytes: int) -> Number:
        """Seconds for which one message occupies its ports and links."""

    def links(self, src: int, dst: int) -> tuple[Hashable, ...]:
        """The links between the two ports; each carries one message at a time."""

    def collective_seconds(self, name: str, members: tuple[int, ...], nbytes: int) -> Number:
        """Seconds that a library's own collective takes, from the moment when its last member calls it."""


def collective_seconds(name: str, ranks: int, nbytes: int, alpha: Number, beta: Number) -> Number:
    """Seconds of a library's own collective over equal links, by the formula of the textbook algorithm.

    `nbytes` is one rank's input, `alpha` seconds a message, `beta` seconds a byte. all_reduce: ring; all_gather,
    reduce_scatter and all_to_all: p-1 steps; broadcast and reduce: binomial tree; gather and scatter: p-1 messages through
    the root's port; barrier: ceil(lg p) messages without bytes. Torch's other spellings (`all_gather_into_tensor`) count
    as the collective whose name they begin with.

    >>> collective_seconds("all_reduce", 4, 4000, alpha=2, beta=1)
    6012.0
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
class UniformNetwork:
    """A network in which each pair of ranks has a link of its own: `alpha` seconds a message, `beta` seconds a byte.

    Raises NetworkError if one of them is negative.
    """

    alpha: Number = 1.0
    beta: Number = 0.0

    def __post_init__(self) -> None:
        if not (self.alpha >= 0 and self.beta >= 0):
            raise NetworkError(f"alpha is {self.alpha!r} and beta {self.beta!r}; neither can be negative.")

    def seconds(self, src: int, dst: int, nbytes: int) -> Number:
        """alpha + nbytes * beta; a rank's message to itself takes no time."""
        return 0 * self.alpha if src == dst else self.alpha + nbytes * self.beta

    def links(self, src: int, dst: int) -> tuple[Hashable, ...]:
        """Always empty: messages share only the ports of their ranks."""
        return ()

    def collective_seconds(self, name: str, members: tuple[int, ...], nbytes: int) -> Number:
        """The textbook algorithm's seconds; see the function `collective_seconds`."""
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
    """The rank is ready to receive message `message`, and goes on. A message that no rank sends never comes."""

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
    """The rank computes for `seconds`."""

    seconds: Number


Step = Send | Recv | Enter | Wait | Compute


@dataclass(frozen=True, slots=True)
class Idle:
    """Rank `rank` waited from `start` to `end`, in seconds, at entry `index` of its program."""

    rank: int
    index: int
    start: Number
    end: Number


@dataclass(frozen=True, slots=True)
class Work:
    """Rank `rank` computed from `start` to `end`, in seconds, at entry `index` of its program."""

    rank: int
    index: int
    start: Number
    end: Number


@dataclass(frozen=True)
class Timeline:
    """What `replay` found, in seconds.

    `spans[message]` is (start, end); `finished[rank]` is the end of the rank's program, or None if it never ends;
    `seconds` is the time of the last event.
    """

    spans: dict[int, tuple[Number, Number]]
    finished: tuple[Number | None, ...]
    idle: tuple[Idle, ...]
    seconds: Number
    work: tuple[Work, ...] = ()


_Key = tuple[Number, int, int]


@dataclass(slots=True)
class _Transfer:
    """A message, or a collective of `members`. `sent` and `wanted` are when its Send and its Recv were posted."""

    src: int = -1
    dst: int = -1
    nbytes: int = 0
    sent: Number | None = None
    posted: int = 0
    wanted: Number | None = None
    resources: tuple[Hashable, ...] = ()
    span: tuple[Number, Number] | None = None
    done: bool = False
    entered: set[int] = field(default_factory=set)
    waiting: list[int] = field(default_factory=list)


class _Replay:
    """The state of one replay. A resource is a port, ("out", rank) or ("in", rank), or a link of the network."""

    def __init__(
        self,
        programs: Sequence[Sequence[Step]],
        network: Network,
        buffered: bool,
        representative: Callable[[Hashable], Hashable] | None,
        processors: Sequence[int] | None,
    ) -> None:
        self.programs, self.network, self.buffered, self.representative = programs, network, buffered, representative
        self.processors = range(len(programs)) if processors is None else processors
        self.computes_until: dict[int, Number] = {}  # by processor
        self.position = [0] * len(programs)
        self.waiting_since: list[Number] = [0] * len(programs)
        self.finished: list[Number | None] = [None] * len(programs)
        self.transfers: dict[int, _Transfer] = {}
        self.busy: set[Hashable] = set()
        self.queued: dict[Hashable, list[_Key]] = {}  # by resource, the keys of messages that wait for it, in order
        self.newly_ready: list[_Key] = []
        self.by_key: dict[_Key, _Transfer] = {}
        # a heap of (time, number in the order of posting, an int: the rank that goes on, or the transfer that ends)
        self.events: list[tuple[Number, int, int | _Transfer]] = []
        self.posted = 0
        self.idle: list[Idle] = []
        self.work: list[Work] = []
        self.latest: Number = 0

    def run(self) -> Timeline:
        for rank in range(len(self.programs)):
            self.post(0, rank)
        while self.events:
            now = self.events[0][0]
            freed: set[Hashable] = set()
            self.latest = max(self.latest, now)
            while self.events and self.events[0][0] == now:
                _, _, subject = heapq.heappop(self.events)
                if isinstance(subject, _Transfer):
                    freed.update(self.finish(subject, now))
                else:
                    self.run_rank(subject, now)
            self.start_ready(now, freed)
        spans = {number: t.span for number, t in self.transfers.items() if t.span is not None}
        return Timeline(spans, tuple(self.finished), tuple(self.idle), self.latest, tuple(self.work))

    def post(self, when: Number, subject: int | _Transfer) -> None:
        self.posted += 1
        heapq.heappush(self.events, (when, self.posted, subject))

    def transfer(self, number: int) -> _Transfer:
        found = self.transfers.get(number)
        if found is None:
            found = self.transfers[number] = _Transfer()
        return found

    def run_rank(self, rank: int, now: Number) -> None:
        """Runs the rank's program at time `now` until it has to wait."""
        program = self.programs[rank]
        while self.position[rank] < len(program):
            step = program[self.position[rank]]
            match step:
                case Send():
                    t = self.transfer(step.message)
                    t.src, t.dst, t.nbytes, t.sent = rank, step.peer, step.nbytes, now
                    t.posted = self.position[rank]
                    self.make_ready(t, now)
                case Recv():
                    t = self.transfer(step.message)
                    t.wanted = now
                    if not self.buffered:
                        self.make_ready(t, now)
                case Enter():
                    self.enter(rank, step, now)
                case Compute():
                    began = max(now, self.computes_until.get(self.processors[rank], now))
                    ended = self.computes_until[self.processors[rank]] = began + step.seconds
                    self.work.append(Work(rank, self.position[rank], began, ended))
                    self.position[rank] += 1
                    self.post(ended, rank)
                    return
                case Wait():
                    t = self.transfer(step.message)
                    if not t.done:
                        self.waiting_since[rank] = now
                        t.waiting.append(rank)
                        return
            self.position[rank] += 1
        self.finished[rank] = now

    def make_ready(self, t: _Transfer, now: Number) -> None:
        """Puts the message into the queues of its resources, once both its ranks have posted it."""
        if t.sent is None or (t.wanted is None and not self.buffered):
            return
        key = (now, t.src, t.posted)  # of messages that are ready at once, a rank sends first what it posted first
        t.resources = (("out", t.src), ("in", t.dst), *self.network.links(t.src, t.dst)) if t.src != t.dst else ()
        if self.representative is not None:
            t.resources = tuple(map(self.representative, t.resources))
        self.by_key[key] = t
        for resource in t.resources:
            insort(self.queued.setdefault(resource, []), key)
        self.newly_ready.append(key)

    def enter(self, rank: int, step: Enter, now: Number) -> None:
        t = self.transfer(step.message)
        t.entered.add(rank)
        t.nbytes = max(t.nbytes, step.nbytes)
        if len(t.entered) == len(step.members):
            self.start(t, now, self.network.collective_seconds(step.name, step.members, t.nbytes))

    def start(self, t: _Transfer, now: Number, seconds: Number) -> None:
        t.span = (now, now + seconds)
        self.post(now + seconds, t)

    def finish(self, t: _Transfer, now: Number) -> Iterable[Hashable]:
        """Lets the ranks go on that wait for the transfer; returns the resources that it occupied."""
        t.done = True
        self.busy.difference_update(t.resources)
        for rank in sorted(t.waiting):
            if now > self.waiting_since[rank]:
                self.idle.append(Idle(rank, self.position[rank], self.waiting_since[rank], now))
            self.position[rank] += 1
            self.post(now, rank)
        t.waiting = []
        return t.resources

    def start_ready(self, now: Number, freed: set[Hashable]) -> None:
        """Starts every message whose ports and links are free; the one that was ready first goes first."""
        candidates = set(self.newly_ready)
        self.newly_ready = []
        for resource in freed:
            candidates.update(self.queued.get(resource, ()))
        for key in sorted(candidates):
            t = self.by_key[key]
            if t.span is not None or not self.busy.isdisjoint(t.resources):
                continue
            self.busy.update(t.resources)
            for resource in t.resources:
                self.queued[resource].remove(key)
            self.start(t, now, self.network.seconds(t.src, t.dst, t.nbytes))


def replay(
    programs: Sequence[Sequence[Step]],
    network: Network,
    *,
    buffered: bool = False,
    representative: Callable[[Hashable], Hashable] | None = None,
    processors: Sequence[int] | None = None,
) -> Timeline:
    """When each message of the programs, one for each rank, starts and ends on `network`.

    A message is ready when its Send and its Recv are both posted; with `buffered`, as soon as it is sent. A rank sends one
    message at a time and receives one at a time. A program that never ends (a deadlock) is replayed as far as it goes.

    If ranks repeat a pattern, `programs` may hold only the ranks of the first repetition. `representative` then maps each
    port ("out", rank) or ("in", rank), and each link as `network.links` names it, to the same one in that repetition. For
    example, if two ranks repeat, it maps ("in", 5) to ("in", 1).

    `processors` has a number for each program; programs with the same number compute one after the other.

    >>> rank0, rank1 = [Send(0, 1, nbytes=100), Wait(0, sent=True)], [Recv(0, 0), Wait(0, sent=False)]
    >>> replay([rank0, rank1], UniformNetwork(alpha=5, beta=2)).spans
    {0: (0, 205)}
    """
    return _Replay(programs, network, buffered, representative, processors).run()

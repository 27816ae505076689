"""A memory that all ranks of a run put into and get from, as the router keeps it: weak order, one operation at a time, races found.

Puts of a rank are seen by others only when that rank has passed a fence; signals are seen at once. This is the worst order that
hardware with a weak memory model may take. Which rank goes on is drawn from the seed, one rank as far ahead as it can.

Races are found whatever the order was: each access has a time on its rank's clock, and a signal carries what its sender knows of
all clocks (vector clocks; Flanagan & Freund, FastTrack, PLDI 2009). Two accesses of an element by two ranks, of which one is a
put, race if no chain of fence, signal and wait stands between them.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum

from allranks.ranks.wire.dtypes import ITEMSIZES
from allranks.ranks.wire.messages import CHANNELS

ORDERS = ("weak", "program")
MOST_NBYTES = 1 << 20  # of one rank's memory
_FILLED_WITH = 0x5A  # the memory's bytes before the first put: a number that spoils every sum
_KEPT_NBYTES = 8 << 20  # of what accesses carried, in all
_CHANGE_OF_TURN = 0.1  # how often another rank gets ahead


class Access(StrEnum):
    """What a rank does with the memory."""

    PUT = "put"
    GET = "get"
    FENCE = "fence"
    SIGNAL = "signal"
    WAIT = "wait"


@dataclass(frozen=True)
class Memory:
    """The memory of a run, for `wire.run(..., memory=...)`: `numel` elements of `dtype` for each rank.

    `order` is "weak" (others see a put when its rank has passed a fence, and one rank runs ahead) or "program" (a put is seen at once,
    and the ranks take turns). In the ranks, `wire.memory()` is the rank's end of it.

    Raises ValueError for another order, an unknown dtype, and a size below 0 or above 1 MiB.

    Example (needs ranks):
        >>> def hand_over():
        ...     memory = wire.memory()
        ...     if memory.rank == 0:
        ...         memory.put(1, 0, torch.ones(2))
        ...         memory.signal(1)
        ...     else:
        ...         memory.wait(0)
        ...         return memory.get(1, 0, 2).tolist() == [1, 1]
        >>> outcome = wire.run(hand_over, ranks=2, memory=wire.Memory(2))
        >>> outcome.results[1], len(outcome.races)
        (False, 1)
    """

    numel: int
    dtype: str = "float32"
    order: str = "weak"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"order is {self.order!r}; it must be 'weak' or 'program'.")
        if self.dtype not in ITEMSIZES:
            raise ValueError(f"dtype is {self.dtype!r}, which the wire does not know.")
        whole = isinstance(self.numel, int) and not isinstance(self.numel, bool)
        if not whole or not 0 <= self.numel * ITEMSIZES[self.dtype] <= MOST_NBYTES:
            raise ValueError(f"numel is {self.numel!r}; it must be a whole number, and at most 1 MiB a rank.")

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return ITEMSIZES[self.dtype]


@dataclass(slots=True)
class MemoryOp:
    """One operation of a rank on the memory. `step` counts the waits that came before it on the longest chain of signals.

    Example (needs ranks):
        >>> outcome = wire.run(lambda: wire.memory().put(0, 1, torch.ones(2)), ranks=1, memory=wire.Memory(3))
        >>> put = outcome.accesses[0]
        >>> str(put.kind), put.offset, put.nbytes, put.remote
        ('put', 1, 8, False)
    """

    rank: int
    kind: Access
    peer: int
    offset: int = 0
    numel: int = 0
    nbytes: int = 0
    channel: int = 0
    call: int = 0
    file: str | None = None
    line: int | None = None
    data: bytes | None = None
    step: int = 0

    @property
    def remote(self) -> bool:
        """Whether it moved bytes between two ranks."""
        return self.kind in (Access.PUT, Access.GET) and self.peer != self.rank and self.nbytes > 0


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses of the memory of rank `owner` that nothing orders, first met at `element`. `before` was granted first.

    `signalled`: a signal does stand between them, but no fence after the put. `before` is None where nobody had put anything.

    Example (needs ranks):
        >>> outcome = wire.run(lambda: wire.memory().put(0, 0, torch.ones(1)), ranks=2, memory=wire.Memory(1))
        >>> race = outcome.races[0]
        >>> {race.before.rank, race.after.rank}, race.owner, race.element, race.signalled
        ({0, 1}, 0, 0, False)
    """

    before: MemoryOp | None
    after: MemoryOp
    owner: int
    element: int
    signalled: bool = False

    @property
    def key(self) -> tuple:
        """Two races of the same lines and ranks are one."""
        other = None if self.before is None else (self.before.rank, self.before.kind, self.before.line)
        return other, (self.after.rank, self.after.kind, self.after.line)


@dataclass(slots=True)
class _Clocks:
    """What a rank knows: of each rank the last time of which it knows all gets (`seen`), and all puts behind a fence (`fenced`)."""

    seen: list[int]
    fenced: list[int]
    step: int = 0


@dataclass(slots=True)
class _Element:
    """Who put an element last, when, and who got it since."""

    put: tuple[int, MemoryOp] | None = None
    got: dict[int, tuple[int, MemoryOp]] = field(default_factory=dict)


class MemoryModel:
    """The memory of one run, and the operations that wait for their turn."""

    def __init__(self, memory: Memory, ranks: int, seed: int) -> None:
        self.memory, self.ranks = memory, ranks
        self.chance = random.Random(f"memory {seed}")
        nbytes = memory.numel * memory.itemsize
        self.bytes = [bytearray([_FILLED_WITH]) * nbytes for _ in range(ranks)]
        self.under_way: list[list[MemoryOp]] = [[] for _ in range(ranks)]  # puts that only their rank sees
        self.queues: list[deque[MemoryOp]] = [deque() for _ in range(ranks)]
        self.signals: dict[tuple[int, int, int], deque[_Clocks]] = {}
        self.time = [1] * ranks
        self.clocks = [_Clocks([0] * ranks, [0] * ranks) for _ in range(ranks)]
        self.elements: list[dict[int, _Element]] = [{} for _ in range(ranks)]
        self.turns = list(range(ranks))
        self.chance.shuffle(self.turns)
        self.done: list[MemoryOp] = []
        self.races: list[Race] = []
        self.kept_nbytes = 0

    def fits(self, op: MemoryOp) -> bool:
        """Whether the operation lies inside the memory, with as many bytes as it says."""
        inside = 0 <= op.peer < self.ranks and 0 <= op.offset <= op.offset + op.numel <= self.memory.numel
        if op.kind in (Access.SIGNAL, Access.WAIT) and op.peer == op.rank:
            return False
        return (
            inside
            and op.channel < CHANNELS
            and (op.kind is not Access.PUT or len(op.data or b"") == op.numel * self.memory.itemsize)
        )

    def left_signals(self) -> list[tuple[int, int, int]]:
        """(from, to, how many) of the signals for which nobody waited."""
        return [(src, dst, len(left)) for (src, dst, _), left in sorted(self.signals.items()) if left]

    def held_up(self, rank: int) -> MemoryOp | None:
        """The wait that keeps the rank from going on."""
        return next((op for op in self.queues[rank] if op.kind is Access.WAIT), None)

    def given(self, src: int, dst: int, channel: int) -> int:
        """How many signals a rank has given another one on a channel, taken or not."""
        return sum(
            op.kind is Access.SIGNAL and (op.rank, op.peer, op.channel) == (src, dst, channel) for op in self.done
        )

    def advance(self) -> tuple[MemoryOp, bytes] | None:
        """Carries out operations until a get or a wait is done, whose rank can go on: that one, and what it got. None: all wait."""
        while True:
            op = self._next()
            if op is None:
                return None
            got = self._carry_out(op)
            if op.kind in (Access.GET, Access.WAIT):
                return op, got

    def _next(self) -> MemoryOp | None:
        """Takes the operation whose turn it is."""
        if self.memory.order == "program":
            self.turns.append(self.turns.pop(0))
        elif self.chance.random() < _CHANGE_OF_TURN:
            self.chance.shuffle(self.turns)
        for rank in self.turns:
            queue = self.queues[rank]
            if queue and (
                queue[0].kind is not Access.WAIT or self.signals.get((queue[0].peer, rank, queue[0].channel))
            ):
                return queue.popleft()
        return None

    def _carry_out(self, op: MemoryOp) -> bytes:
        rank, clocks, got = op.rank, self.clocks[op.rank], b""
        op.step = clocks.step
        size = self.memory.itemsize
        match op.kind:
            case Access.PUT:
                self._judge_put(op)
                self.under_way[rank].append(op)
                if self.memory.order == "program":
                    self._arrive(rank)
            case Access.GET:
                self._judge_get(op)
                a, b = op.offset * size, (op.offset + op.numel) * size
                window = bytearray(self.bytes[op.peer][a:b])
                for put in self.under_way[rank]:
                    if put.peer == op.peer:  # a rank always sees what it put itself
                        self._write(window, put, a)
                got = op.data = bytes(window)
            case Access.FENCE:
                self._arrive(rank)
                clocks.fenced[rank] = self.time[rank]
                self.time[rank] += 1
            case Access.SIGNAL:
                clocks.seen[rank] = self.time[rank]
                self.time[rank] += 1
                told = _Clocks(list(clocks.seen), list(clocks.fenced), clocks.step)
                self.signals.setdefault((rank, op.peer, op.channel), deque()).append(told)
            case Access.WAIT:
                told = self.signals[op.peer, rank, op.channel].popleft()
                clocks.seen = list(map(max, clocks.seen, told.seen))
                clocks.fenced = list(map(max, clocks.fenced, told.fenced))
                clocks.step = max(clocks.step, told.step + 1)
        self._log(op)
        return got

    def _arrive(self, rank: int) -> None:
        """What the rank has put is seen by everybody."""
        for put in self.under_way[rank]:
            self._write(self.bytes[put.peer], put, 0)
        self.under_way[rank] = []

    def _write(self, window: bytearray, put: MemoryOp, first: int) -> None:
        """Writes what was put into a window that begins at byte `first` of the memory."""
        data, at = put.data or b"", put.offset * self.memory.itemsize - first
        cut, end = max(0, -at), min(len(data), len(window) - at)
        if cut < end:
            window[at + cut : at + end] = data[cut:end]

    def _log(self, op: MemoryOp) -> None:
        """Keeps the operation; of what it carried, what there is room for (a put that is under way shares its bytes)."""
        kept = replace(op, data=None)
        if op.data is not None and self.kept_nbytes + len(op.data) <= _KEPT_NBYTES:
            kept.data = op.data
            self.kept_nbytes += len(op.data)
        self.done.append(kept)

    # -------------------------------------------------------------------------------------------------------- races

    def _judge_put(self, op: MemoryOp) -> None:
        """A put must come behind every other rank's put and get of its elements."""
        knows = self.clocks[op.rank]
        for at in range(op.offset, op.offset + op.numel):
            element = self.elements[op.peer].setdefault(at, _Element())
            self._judge_last_put(element, op, at)
            for reader, (when, got) in element.got.items():
                if reader != op.rank and knows.seen[reader] < when:
                    self._found(Race(got, op, op.peer, at))
            element.put, element.got = (self.time[op.rank], op), {}

    def _judge_get(self, op: MemoryOp) -> None:
        """A get must come behind the put of its elements."""
        for at in range(op.offset, op.offset + op.numel):
            element = self.elements[op.peer].setdefault(at, _Element())
            if element.put is None:
                self._found(Race(None, op, op.peer, at))
            self._judge_last_put(element, op, at)
            element.got[op.rank] = (self.time[op.rank], op)

    def _judge_last_put(self, element: _Element, op: MemoryOp, at: int) -> None:
        if element.put is None:
            return
        when, put = element.put
        knows = self.clocks[op.rank]
        if put.rank != op.rank and knows.fenced[put.rank] < when:
            self._found(Race(put, op, op.peer, at, signalled=knows.seen[put.rank] >= when))

    def _found(self, race: Race) -> None:
        """Keeps one race for each pair of lines and ranks."""
        if race.key not in {known.key for known in self.races}:
            self.races.append(race)

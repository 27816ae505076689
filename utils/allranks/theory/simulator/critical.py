"""The critical path: the chain of messages and computing that decides how long a program takes, in words too.

It is read from `clock.replay`'s timeline, backwards from the rank that ends last: what did it wait for, and what made
that start so late? Imports without torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from allranks.base.errors import counted, name_ranks
from allranks.theory.schedules import Number
from allranks.theory.simulator.clock import Compute, Enter, Network, Recv, Send, Step, Timeline, Wait
from allranks.theory.trace import Trace

LineOf = Callable[[int, int], int | None]  # (rank, entry of its program) -> the line of the student's code
_LINKS = {"leaf": "the uplink", "nic": "the network card", "host": "the host bridge"}


class LegKind(StrEnum):
    """What a leg of the path is."""

    MESSAGE = "message"
    COMPUTE = "compute"
    COLLECTIVE = "collective"


@dataclass(frozen=True, slots=True)
class Leg:
    """One piece of the path, from `start` to `end` in seconds.

    Of a message `rank` is the receiver and `peer` the sender, `link` says over what it went ("" where all links are
    alike), and `alpha_s` is its part that does not depend on the bytes; `queued` if another message kept its port or
    link before it. Of computing and of a collective `rank` is who computed, or who called last. `index` is the entry of
    `caller`'s program.

    >>> found = simulate("all_reduce", "ring", 16, 2**26, topology.preset("dgx-h100"))
    >>> leg = found.critical_path.legs[0]
    >>> leg.peer, leg.rank, leg.link
    (15, 0, 'the network card')
    """

    kind: LegKind
    rank: int
    start: Number
    end: Number
    caller: int
    index: int
    peer: int | None = None
    link: str = ""
    alpha_s: Number = 0
    queued: bool = False
    name: str = ""

    @property
    def seconds(self) -> Number:
        """How long it lasts."""
        return self.end - self.start


@dataclass(frozen=True)
class CriticalPath:
    """The legs in the order of time: each begins when the one before it ends, and together they last `seconds`."""

    legs: tuple[Leg, ...]
    seconds: Number
    waits: dict[tuple[int, int, str], Number]  # (receiver, sender, link) -> seconds of the path that the receiver idles
    lines: dict[tuple[int, int, str], int | None]

    def share(self, seconds: Number) -> float:
        """Of the whole time, from 0 to 1."""
        return float(seconds / self.seconds) if self.seconds else 0.0

    def total(self, kind: LegKind) -> Number:
        """Seconds of the path that are of this kind."""
        return sum((leg.seconds for leg in self.legs if leg.kind is kind), 0 * self.seconds)

    def by_link(self) -> dict[str, Number]:
        """Seconds of the path that messages spend on each kind of link, without alpha; the longest first."""
        found: dict[str, Number] = defaultdict(int)
        for leg in self.legs:
            if leg.kind is LegKind.MESSAGE:
                found[leg.link] += leg.seconds - leg.alpha_s
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def marked(self, trace: Trace, where: Callable[[int], str] | None = None) -> Trace:
        """The trace with this path in its `meta`, which the player then draws; `trace` is of the same run.

        >>> from allranks.theory.simulator.simulation import simulate
        >>> from allranks.topology import preset
        >>> found = simulate("all_reduce", "ring", 16, 2**26, preset("dgx-h100"))
        >>> found.critical_path.marked(found.trace).meta["critical_path"]["legs"][0][:3]
        ['message', 0, 15]
        """
        legs = [[leg.kind.value, leg.rank, leg.peer, float(leg.start), float(leg.end)] for leg in self.legs]
        says = self.sentences(where)
        return replace(trace, meta=trace.meta | {"critical_path": {"says": says, "legs": legs}})

    def sentences(self, where: Callable[[int], str] | None = None) -> list[str]:
        """The path in words: what it consists of, and who waits for whom; without what is below 1 %.

        `where` names a line of the code, such as "line 4".

        >>> from allranks.theory.simulator.simulation import run_schedule
        >>> from allranks.schedules import ring_all_reduce
        >>> from allranks.topology import preset
        >>> run_schedule(ring_all_reduce(16), 2**26, preset("dgx-h100")).critical_path.sentences()[1]
        "100 % of the path is rank 0's wait for rank 15's sends over the network card."
        """
        if not self.legs:
            return []
        return [line for line in (self._made_of(), self._waits(where), self._queued()) if line]

    def _made_of(self) -> str:
        messages = sum(leg.kind is LegKind.MESSAGE for leg in self.legs)
        alpha = sum((leg.alpha_s for leg in self.legs), 0 * self.seconds)
        parts = [(seconds, f"bytes{_over(link)}") for link, seconds in self.by_link().items()]
        parts += [
            (alpha, "start-up (alpha)"),
            (self.total(LegKind.COMPUTE), "computing"),
            (self.total(LegKind.COLLECTIVE), "collectives"),
        ]
        said = [f"{_percent(self.share(s))} is {what}" for s, what in parts if self.share(s) >= 0.01]
        one = f"{counted(messages, 'message')} one after the other" if messages else "no message"
        return f"The critical path has {one}" + (f": {', '.join(said)}." if said else ".")

    def _waits(self, name: Callable[[int], str] | None) -> str:
        if not self.waits:
            return ""
        key = max(self.waits, key=lambda k: (self.waits[k], [-n for n in k[:2]]))
        share, (rank, peer, link) = self.share(self.waits[key]), key
        by_rank: dict[tuple[int, str], Number] = defaultdict(int)
        for (receiver, _, over), seconds in self.waits.items():
            by_rank[receiver, over] += seconds
        busiest = max(by_rank, key=lambda pair: (by_rank[pair], -pair[0]))
        if by_rank[busiest] > 2 * self.waits[key]:
            senders = sorted({sender for receiver, sender, over in self.waits if (receiver, over) == busiest})
            share, whose = self.share(by_rank[busiest]), _named(senders)
            mine = f"{_percent(share)} of the path is rank {busiest[0]}'s"
            return f"{mine} wait for the sends of {whose}{_over(busiest[1])}."
        if share < 0.01:
            return ""
        line = self.lines.get(key)
        where = "" if not line else f" ({name(line)})" if name is not None else f" (line {line})"
        return f"{_percent(share)} of the path is rank {rank}'s wait for rank {peer}'s sends{_over(link)}{where}."

    def _queued(self) -> str:
        """Messages that stand in a queue behind another one of the path."""
        behind = [(after, leg) for leg, after in zip(self.legs, self.legs[1:], strict=False) if after.queued]
        share = self.share(sum((leg.seconds for _, leg in behind), 0 * self.seconds))
        if share < 0.05:
            return ""
        senders = {leg.peer for pair in behind for leg in pair if leg.peer is not None}
        return (
            f"{_percent(share)} of the time a message of the path waits for another one that has its port or its link "
            f"({_named(sorted(senders))} send{'s' if len(senders) == 1 else ''} there)."
        )


def _named(ranks: Sequence[int]) -> str:
    """The ranks in words; a long row of them by its ends."""
    row = len(ranks) > 3 and ranks[-1] - ranks[0] == len(ranks) - 1
    return f"ranks {ranks[0]} to {ranks[-1]}" if row else name_ranks(ranks)


def _over(link: str) -> str:
    return f" {link}" if link.startswith("inside") else f" over {link}" if link else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def link_name(links: Sequence[Hashable], shared: bool) -> str:
    """The slowest kind among the links of a message's way, in words; `shared` if the network has links at all."""
    kinds = {str(link[0]).split()[0] for link in links if isinstance(link, tuple)}
    return next((words for kind, words in _LINKS.items() if kind in kinds), "inside the node" if shared else "")


def critical_path(
    programs: Sequence[Sequence[Step]], timeline: Timeline, network: Network, *, line_of: LineOf | None = None
) -> CriticalPath:
    """The critical path of what `replay(programs, network)` found. A program that never ends has one as far as it goes.

    >>> from allranks.theory.simulator.clock import UniformNetwork, replay
    >>> pair = [[Compute(3), Send(0, 1, nbytes=4), Wait(0, sent=True)], [Recv(0, 0), Wait(0, sent=False)]]
    >>> network = UniformNetwork(alpha=1, beta=1)
    >>> path = critical_path(pair, replay(pair, network), network)
    >>> [(leg.kind.value, leg.rank, leg.start, leg.end) for leg in path.legs]
    [('compute', 0, 0, 3), ('message', 1, 3, 8)]
    """
    return _Walk(programs, timeline, network, line_of).path()


@dataclass(slots=True)
class _Post:
    """When and where an operation was posted."""

    rank: int
    index: int
    at: Number


class _Walk:
    """The times at which each rank reaches each entry of its program, and the walk back from the end."""

    def __init__(
        self, programs: Sequence[Sequence[Step]], timeline: Timeline, network: Network, line_of: LineOf | None
    ) -> None:
        self.programs, self.timeline, self.network, self.line_of = programs, timeline, network, line_of
        self.sent: dict[int, _Post] = {}
        self.wanted: dict[int, _Post] = {}
        self.entered: dict[int, list[_Post]] = defaultdict(list)
        self.nbytes: dict[int, int] = {}
        self.before: list[list[Number]] = []  # by rank, when it reached each entry
        work = {(w.rank, w.index): w for w in timeline.work}
        self.work = work
        self.shared = False
        for rank, program in enumerate(programs):
            now: Number = 0
            reached: list[Number] = []
            for index, step in enumerate(program):
                reached.append(now)
                match step:
                    case Send():
                        self.sent[step.message] = _Post(rank, index, now)
                        self.nbytes[step.message] = step.nbytes
                        self.shared = self.shared or bool(network.links(rank, step.peer))
                    case Recv():
                        self.wanted[step.message] = _Post(rank, index, now)
                    case Enter():
                        self.entered[step.message].append(_Post(rank, index, now))
                    case Compute():
                        if (rank, index) not in work:
                            break
                        now = work[rank, index].end
                    case Wait():
                        span = timeline.spans.get(step.message)
                        if span is None:
                            break
                        now = max(now, span[1])
            self.before.append(reached)
        self.ends_at: dict[Number, list[int]] = defaultdict(list)
        for number, span in timeline.spans.items():
            self.ends_at[span[1]].append(number)

    def path(self) -> CriticalPath:
        """Walks back from the rank that ends last."""
        finished = [(end if end is not None else -1, -rank) for rank, end in enumerate(self.timeline.finished)]
        end, rank = max(finished, default=(0, 0))
        legs: list[Leg] = []
        at: tuple[int, int, Number] | None = (-rank, len(self.programs[-rank]), end) if end and end > 0 else None
        while at is not None:
            legs_of, at = self._back(*at)
            legs += legs_of
        legs.reverse()
        waits, lines = self._idling(legs)
        return CriticalPath(tuple(legs), max(end, 0), waits, lines)

    def _back(self, rank: int, index: int, now: Number) -> tuple[list[Leg], tuple[int, int, Number] | None]:
        """From a rank at `now`, before entry `index`: the legs that it waited for, and where they come from."""
        # backwards: the rank waited for what ended just now
        program, chosen = self.programs[rank], None
        while index > 0 and now > 0:
            index -= 1
            step, since = program[index], self.before[rank][index]
            if isinstance(step, Compute) and self.work[rank, index].end == now and step.seconds > 0:
                if chosen is not None:
                    break  # a wait behind it took no time
                began = self.work[rank, index].start
                return [Leg(LegKind.COMPUTE, rank, began, now, rank, index)], (rank, index, began)
            if isinstance(step, Wait) and self.timeline.spans[step.message][1] == now:
                if chosen is None or not step.sent:
                    chosen = step.message  # of several waits that end together, one for a message to this rank
            # the rank came here earlier than now, so it was held up by what was chosen
            if since < now and chosen is not None:
                return self._message(chosen)
        return self._message(chosen) if chosen is not None and now > 0 else ([], None)

    def _message(self, number: int) -> tuple[list[Leg], tuple[int, int, Number] | None]:
        """The leg of a message or collective, those that kept its port or link before, where the first was posted."""
        legs: list[Leg] = []
        while True:
            start, end = self.timeline.spans[number]
            if number in self.entered:
                last = max(self.entered[number], key=lambda post: (post.at, -post.rank))
                step = self.programs[last.rank][last.index]
                name = step.name if isinstance(step, Enter) else ""
                legs.append(Leg(LegKind.COLLECTIVE, last.rank, start, end, last.rank, last.index, name=name))
                return legs, (last.rank, last.index, start)
            sent, wanted = self.sent[number], self.wanted.get(number)
            src, dst = sent.rank, wanted.rank if wanted else self._peer(sent)
            late = next((post for post in (sent, wanted) if post is not None and post.at == start), None)
            before = None if late is not None else self._kept(number, src, dst, start)
            alpha = self.network.seconds(src, dst, 0)
            link = link_name(self.network.links(src, dst), self.shared)
            legs.append(
                Leg(
                    LegKind.MESSAGE,
                    dst,
                    start,
                    end,
                    src,
                    sent.index,
                    src,
                    link,
                    min(alpha, end - start),
                    before is not None,
                )
            )
            if before is None:
                late = late or sent
                return legs, (late.rank, late.index, start)
            number = before

    def _peer(self, sent: _Post) -> int:
        step = self.programs[sent.rank][sent.index]
        return step.peer if isinstance(step, Send) else sent.rank

    def _kept(self, number: int, src: int, dst: int, start: Number) -> int | None:
        """The message that had a port or a link of this one until it started."""
        mine = self._resources(src, dst)
        for other in self.ends_at.get(start, ()):
            if other == number or other not in self.sent:
                continue
            theirs = self.sent[other].rank, self._peer(self.sent[other])
            if theirs[0] != theirs[1] and not mine.isdisjoint(self._resources(*theirs)):
                return other
        return None

    def _resources(self, src: int, dst: int) -> set[Hashable]:
        return {("out", src), ("in", dst), *self.network.links(src, dst)}

    def _idling(
        self, legs: Sequence[Leg]
    ) -> tuple[dict[tuple[int, int, str], Number], dict[tuple[int, int, str], int | None]]:
        """Seconds of the path's messages in which their receivers idle; the line of the receive that waited longest."""
        idle: dict[int, list[tuple[Number, Number, int]]] = defaultdict(list)
        for one in self.timeline.idle:
            idle[one.rank].append((one.start, one.end, one.index))
        waits: dict[tuple[int, int, str], Number] = {}
        lines: dict[tuple[int, int, str], int | None] = {}
        for leg in legs:
            if leg.kind is not LegKind.MESSAGE or leg.peer is None:
                continue
            key = (leg.rank, leg.peer, leg.link)
            for start, end, index in idle[leg.rank]:
                both = min(end, leg.end) - max(start, leg.start)
                if both > 0:
                    waits[key] = waits.get(key, 0) + both
                    if self.line_of is not None and key not in lines:
                        lines[key] = self.line_of(leg.rank, index)
        return waits, lines

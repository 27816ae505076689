"""A trace made ready to be watched: messages in steps, and what every cell holds after each of them.

This is the one place where contributions are folded; the browser and the still picture only draw what is found here.
A *cell* is (rank, chunk). What it holds is a *bag*: a tuple of bit masks, the first with the ranks counted at least
once, the second with those counted at least twice, and so on, so that 256 ranks fold quickly.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from allranks.schedules import COLLECTIVES, Schedule
from allranks.trace import Trace

Bag = tuple[int, ...]
LAYOUTS = ("ring", "line", "tree", "grid", "all-to-all")
_SPOKEN = 16


def bag(ranks: Iterable[int]) -> Bag:
    """The bag that holds `ranks`, each as often as it is named."""
    layers: list[int] = []
    for rank, times in Counter(ranks).items():
        while len(layers) < times:
            layers.append(0)
        for layer in range(times):
            layers[layer] |= 1 << rank
    return tuple(layers)


def members(held: Bag) -> list[int]:
    """The ranks of a bag in order, a rank twice if it was counted twice."""
    return sorted(rank for layer in held for rank in range(layer.bit_length()) if layer >> rank & 1)


def add(left: Bag, right: Bag) -> Bag:
    """Both bags together."""
    if len(left) == len(right) == 1 and not left[0] & right[0]:
        return (left[0] | right[0],)
    return bag([*members(left), *members(right)])


def ranges(held: Bag) -> list[int]:
    """The bag as a flat list lo, hi, lo, hi, ... of runs of ranks; layers of repeats follow one another."""
    runs: list[int] = []
    for layer in held:
        low = 0
        while layer:
            skip = (layer & -layer).bit_length() - 1
            layer >>= skip
            low += skip
            length = (~layer & (layer + 1)).bit_length() - 1
            runs += (low, low + length - 1)
            layer >>= length
            low += length
    return runs


@dataclass(frozen=True, slots=True)
class Leg:
    """One message on its way, with the bag that each of its chunks carries and the bag its cell holds afterwards.

    `told` is False where nobody saw what the receiver did with it: live ranks add with a line of their own.
    """

    step: int
    src: int
    dst: int
    nbytes: int
    chunks: tuple[int, ...] = ()
    reduce: bool = False
    delivered: bool = True
    cargo: tuple[Bag, ...] = ()
    after: tuple[Bag, ...] = ()
    start: float | None = None
    end: float | None = None
    line: int | None = None
    told: bool = True

    @property
    def does(self) -> str:
        """What the receiver does with it."""
        return "adds" if self.reduce else "stores" if self.told else "receives"


@dataclass(frozen=True, slots=True)
class Bar:
    """Something else on a rank's lane: compute, a wait, or a whole collective; `end_step` None: it never ended."""

    rank: int
    op: str
    step: int
    end_step: int | None
    peer: int | None = None
    nbytes: int = 0
    start: float | None = None
    end: float | None = None
    line: int | None = None
    label: str | None = None


@dataclass(frozen=True)
class Film:
    """What the player plays. `legs` are in order of step; `before` and `goal` map a cell to its bag at either end."""

    title: str
    kind: str
    ranks: int
    chunks: int
    nbytes: int
    steps: int
    legs: tuple[Leg, ...]
    bars: tuple[Bar, ...]
    before: dict[tuple[int, int], Bag]
    goal: dict[tuple[int, int], Bag]
    layout: str
    columns: int
    clock: str
    timed: bool
    inferred: bool
    blocking: bool = True
    root: int | None = None
    collective: str | None = None
    bound: tuple[str, float] | None = None

    def states(self, at: Iterable[int] | None = None) -> list[dict[tuple[int, int], Bag]]:
        """What every cell holds after 0, 1, ... `steps` steps, a mapping for each; or only after those named in `at`."""
        wanted = set(range(self.steps + 1) if at is None else at)
        now, found, done = dict(self.before), [], 0
        for step in range(self.steps + 1):
            while done < len(self.legs) and self.legs[done].step < step:
                leg = self.legs[done]
                if leg.delivered:
                    now.update({(leg.dst, c): held for c, held in zip(leg.chunks, leg.after, strict=False)})
                done += 1
            if step in wanted:
                found.append(dict(now))
        return found

    def bytes_sent(self) -> list[int]:
        """Bytes that each rank sent, indexed by rank."""
        sent = [0] * self.ranks
        for leg in self.legs:
            sent[leg.src] += leg.nbytes
        return sent

    def captions(self) -> list[str]:
        """What happens, in words: one sentence for the start and one for each step."""
        by_step: list[list[Leg | Bar]] = [[] for _ in range(self.steps)]
        items: tuple[Leg | Bar, ...] = (*self.legs, *self.bars)
        for item in items:
            by_step[item.step].append(item)
        stuck = []
        if self.blocking:
            lost = [leg for leg in self.legs if not leg.delivered]
            stuck = [f"rank {leg.src} still waits for rank {leg.dst} to receive" for leg in lost]
        for item in self.bars:
            if item.end_step is None and item.step < self.steps - 1 and item.peer is not None:
                stuck.append(f"rank {item.rank} still waits for rank {item.peer} to send")
        first = f"start: {self.ranks} ranks" + (f", {self.chunks} chunks" if self.chunks else "")
        if self.chunks and not self.goal and not self.legs:
            first += ", nothing moves"
        lines = [first]
        for step, now in enumerate(by_step):
            words = [_leg_words(x) if isinstance(x, Leg) else _bar_words(x) for x in now[:_SPOKEN]]
            if len(now) > _SPOKEN:
                words.append(f"and {len(now) - _SPOKEN} more")
            lines.append(f"step {step + 1} of {self.steps}: {'; '.join(words) or 'nothing moves'}")
        if stuck and self.steps:
            lines[-1] += "; at the end " + "; ".join(stuck[:_SPOKEN])
        return lines

    def payload(self) -> bytes:
        """The film as zlib-compressed JSON, the only thing that travels to the browser."""
        table: dict[bytes, int] = {}
        bags: list[Bag] = []
        seen: dict[int, int] = {}
        width = (self.ranks + 7) // 8

        def known(held: Bag) -> int:
            """The bag's number. Looked up as bytes, since the hashes of runs of ones collide every 61 bits."""
            if (number := seen.get(id(held))) is None:
                key = b"".join(layer.to_bytes(width, "little") for layer in held)
                number = seen[id(held)] = table.setdefault(key, len(table))
                if number == len(bags):
                    bags.append(held)
            return number

        items: tuple[Leg | Bar, ...] = (*self.legs, *self.bars)
        at = min((x.start for x in items if x.start is not None), default=0.0)
        legs = [
            [
                leg.step,
                leg.src,
                leg.dst,
                leg.nbytes,
                4 * leg.told + 2 * leg.delivered + leg.reduce,
                list(leg.chunks),
                [known(b) for b in leg.cargo],
                [known(b) for b in leg.after],
                leg.line,
                *_microseconds(leg, at),
            ]
            for leg in self.legs
        ]
        bars = [
            [b.rank, b.op, b.step, b.end_step, b.peer, b.nbytes, b.line, b.label, *_microseconds(b, at)]
            for b in self.bars
        ]
        head = {
            "title": self.title,
            "kind": self.kind,
            "ranks": self.ranks,
            "chunks": self.chunks,
            "nbytes": self.nbytes,
            "steps": self.steps,
            "layout": self.layout,
            "columns": self.columns,
            "clock": self.clock,
            "timed": self.timed,
            "inferred": self.inferred,
            "blocking": self.blocking,
            "root": self.root,
            "collective": self.collective,
            "bound": self.bound,
            "legs": legs,
            "bars": bars,
            "before": [[r, c, known(b)] for (r, c), b in self.before.items()],
            "goal": [[r, c, known(b)] for (r, c), b in self.goal.items()],
            "captions": self.captions(),
            "bags": [ranges(b) for b in bags],
        }
        return zlib.compress(json.dumps(head, separators=(",", ":")).encode(), 9 if len(legs) < 5000 else 5)


def film(source: Schedule | Trace, nbytes: int | None = None) -> Film:
    """The film of a schedule or of a trace. `nbytes` is the size of the full vector, for a schedule only."""
    if isinstance(source, Schedule):
        sizes = [1] * source.chunks if nbytes is None else source.chunk_nbytes(nbytes)
        raw = [
            Leg(m.step, m.src, m.dst, sum(sizes[c] for c in m.chunks), m.chunks, m.reduce)
            for m in sorted(source.moves, key=lambda m: m.step)
        ]
        return _develop(source, "schedule", sum(sizes), "step", raw, [], {}, False)
    legs, bars, given, inferred = _read(source)
    return _develop(source, source.kind, source.nbytes, source.clock, legs, bars, given, inferred)


def _read(trace: Trace) -> tuple[list[Leg], list[Bar], dict[int, Bag], bool]:
    """A trace's messages and other bars, each with a step, and the contributions that its sends claim to carry."""
    messages = [m for m in trace.messages() if m.dst is not None]
    inferred = any(m.step is None and m.delivered for m in messages)
    steps = _infer_steps(messages) if inferred else _late_steps(trace)
    order = sorted(range(len(messages)), key=lambda i: (steps[i], i))
    legs, given = [], {}
    for number, i in enumerate(order):
        m = messages[i]
        end = m.end if m.delivered else None
        chunks = m.chunks if all(0 <= c < trace.chunks for c in m.chunks) else ()
        told = bool(chunks) and trace.kind != "live"
        what = steps[i], m.src, m.dst, m.nbytes, chunks, m.reduce, m.delivered
        legs.append(Leg(*what, start=m.start, end=end, line=m.line, told=told))
        if m.contrib is not None:
            given[number] = bag(m.contrib)
    sends = [e for e in trace.events if e.op == "send" and e.peer is not None]
    place = {e.match: step for e, step in zip(sends, steps, strict=True) if e.match is not None}
    return legs, _bars(trace, legs, place), given, inferred


def _late_steps(trace: Trace) -> list[int]:
    """The steps of the sends in their order; one that never began comes after all else that its rank did."""
    last: Counter = Counter()
    for e in trace.events:
        if e.step is not None:
            last[e.rank] = max(last[e.rank], e.step + 1)
    sends = [e for e in trace.events if e.op == "send" and e.peer is not None]
    return [last[e.rank] if e.step is None else e.step for e in sends]


def _bars(trace: Trace, legs: list[Leg], place: dict[int, int]) -> list[Bar]:
    """Compute, waits and whole collectives; also each receive that no send met, which is a wait without an end.

    `place` maps a message's match to its step: a send and a receive of one step are one turn of their rank.
    """
    busy: dict[int, list[tuple[float, float]]] = defaultdict(list)
    done = [0.0] * (max((leg.step for leg in legs), default=-1) + 1)
    for leg in legs:
        done[leg.step] = max(done[leg.step], leg.end or 0.0)
        if leg.start is not None and leg.end is not None:
            busy[leg.src].append((leg.start, leg.end))
            busy[leg.dst].append((leg.start, leg.end))
    done = list(accumulate(done, max))
    met = {e.match for e in trace.events if e.op == "send"} - {None}
    turn: Counter = Counter()
    bars = []
    for e in trace.events:
        step = place.get(e.match, turn[e.rank]) if e.step is None else e.step
        if e.op in ("recv", "reduce") and (e.match is None or e.match not in met):
            bars.append(Bar(e.rank, "wait", step, None, e.peer, line=e.line, start=e.start))
        elif e.op == "wait" and e.step is None and e.start is not None and e.end is not None and legs:
            # an idle time lies in the steps that were going on meanwhile; while its own message is under way a rank isn't idle
            for start, end in _without(e.start, e.end, busy[e.rank]):
                first = min(bisect_right(done, start), len(done) - 1)
                last = min(max(first, bisect_left(done, end)), len(done) - 1)
                bars.append(Bar(e.rank, e.op, first, last, e.peer, start=start, end=end, line=e.line))
            continue
        elif e.op not in ("send", "recv", "reduce"):
            end = None if e.op == "wait" and e.end is None else step
            bars.append(Bar(e.rank, e.op, step, end, e.peer, e.nbytes, e.start, e.end, e.line, e.label))
        turn[e.rank] = max(turn[e.rank], step + 1)
    return bars


def _without(start: float, end: float, taken: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What is left of a span when the `taken` ones are cut out of it."""
    left = []
    for low, high in sorted(taken):
        if low >= end or high <= start:
            continue
        if low > start:
            left.append((start, low))
        start = max(start, high)
    return [*left, (start, end)] if start < end else left


def _infer_steps(messages: list) -> list[int]:
    """Steps for messages that carry none: a rank sends one message a step, and only after what it received before."""
    ready: Counter = Counter()
    waiting: list[tuple[float, int, int]] = []
    steps = []
    for m in messages:
        if m.start is not None:
            for item in [w for w in waiting if w[0] <= m.start]:
                ready[item[1]] = max(ready[item[1]], item[2])
                waiting.remove(item)
        step = ready[m.src]
        steps.append(step)
        ready[m.src] = step + 1
        if m.start is None or m.end is None:
            ready[m.dst] = max(ready[m.dst], step + 1)
        elif m.delivered:
            waiting.append((m.end, m.dst, step + 1))
    return steps


def _develop(source, kind, nbytes, clock, raw, bars, given, inferred) -> Film:
    """Folds the messages in order of their steps; within a step every message leaves before any arrives."""
    rules = _rules(source)
    held = _bags(rules.initial()) if rules else {}
    goal = _bags(rules.final()) if rules else {}
    before, legs, start = dict(held), [], 0
    while start < len(raw):
        stop = start
        while stop < len(raw) and raw[stop].step == raw[start].step:
            stop += 1
        frozen = [
            tuple(given.get(i) or held.get((raw[i].src, c), ()) for c in raw[i].chunks) for i in range(start, stop)
        ]
        for i, cargo in zip(range(start, stop), frozen, strict=True):
            leg, after = raw[i], []
            if not leg.chunks and i in given:
                cargo = (given[i],)
            for chunk, load in zip(leg.chunks, cargo, strict=False):
                cell = (leg.dst, chunk)
                now = add(held.get(cell, ()), load) if leg.reduce else load
                if leg.delivered:
                    held[cell] = now
                after.append(now)
            legs.append(
                Leg(
                    leg.step,
                    leg.src,
                    leg.dst,
                    leg.nbytes,
                    leg.chunks,
                    leg.reduce,
                    leg.delivered,
                    cargo,
                    tuple(after),
                    leg.start,
                    leg.end,
                    leg.line,
                    leg.told,
                )
            )
        start = stop
    steps = max((x.step for x in (*legs, *bars)), default=-1) + 1
    links = {(leg.src, leg.dst) for leg in legs}
    timed = clock != "step" and any(x.start is not None and x.end is not None for x in (*legs, *bars))
    # what torch did beside a live run's own messages says nothing about these
    collective = None if kind == "live" and raw else source.collective
    words = " ".join(filter(None, (source.algorithm, collective))) or f"{kind} run"
    return Film(
        title=words,
        kind=kind,
        ranks=source.ranks,
        chunks=source.chunks if rules else 0,
        nbytes=nbytes,
        steps=steps,
        legs=tuple(legs),
        bars=tuple(bars),
        before=before,
        goal=goal,
        layout=pattern(source.ranks, links),
        columns=columns(source.ranks, links),
        clock=clock,
        timed=timed,
        inferred=inferred,
        blocking=isinstance(source, Schedule) or source.meta.get("delivery") != "buffered",
        root=source.root,
        collective=collective,
        bound=bound(collective, source.ranks, nbytes),
    )


def _bags(cells: dict[tuple[int, int], Counter]) -> dict[tuple[int, int], Bag]:
    """Counters as bags; a counter that many cells share is turned into a bag once."""
    known: dict[int, Bag] = {}
    return {cell: known.get(id(c)) or known.setdefault(id(c), bag(c.elements())) for cell, c in cells.items()}


def _rules(source) -> Schedule | None:
    """The empty schedule that knows what each rank holds at either end, or None where the trace names no chunks."""
    if isinstance(source, Schedule):
        return source
    # a live run's collective is one that torch did; its chunks are those of its own messages
    if source.kind == "live" or not source.chunks or source.collective not in COLLECTIVES:
        return None
    root = source.root if source.root is not None else 0
    return Schedule(source.collective, source.algorithm or "", source.ranks, source.chunks, (), root)


def pattern(ranks: int, links: set[tuple[int, int]]) -> str:
    """The layout that shows these links best, one of LAYOUTS."""
    pairs = {(min(a, b), max(a, b)) for a, b in links if a != b}
    if not pairs or ranks < 3:
        return "line" if ranks < 3 else "ring"
    round_it = {(a, b) for a, b in pairs if b - a in (1, ranks - 1)}
    if len(round_it) == len(pairs):
        return "ring" if (0, ranks - 1) in pairs else "line"
    # a message that strays from a ring is seen best on that ring
    if len(round_it) == ranks and len(pairs) - ranks <= ranks // 4:
        return "ring"
    if len(pairs) == ranks * (ranks - 1) // 2:
        return "all-to-all"
    if len(pairs) < ranks:
        return "tree"
    return "grid" if _fits(columns(ranks, links), pairs) else "all-to-all"


def columns(ranks: int, links: set[tuple[int, int]]) -> int:
    """How many columns a grid has: such that each link stays in its row or column, if that can be; then nearly square."""
    root = next(i for i in range(1, ranks + 1) if i * i >= ranks)
    even = sorted((w for w in range(2, ranks) if ranks % w == 0), key=lambda w: (abs(w - ranks / w), -w))
    return next((w for w in even if _fits(w, links)), even[0] if even and even[0] <= 2 * root else root)


def _fits(wide: int, links: set[tuple[int, int]]) -> bool:
    return all(a // wide == b // wide or a % wide == b % wide for a, b in links)


def bound(collective: str | None, ranks: int, nbytes: int) -> tuple[str, float] | None:
    """The least that the busiest rank must send, as (formula, bytes), for a vector of `nbytes`; None where unknown.

    Without in-network reduction (Patarasuk & Yuan 2009; Chan et al. 2007): in broadcast and reduce a rank parts with
    every byte once; an all-reduce is a reduce-scatter and an all-gather.
    """
    if ranks < 2 or not nbytes:
        return None
    part = (ranks - 1) / ranks
    match collective:
        case "all_reduce":
            return "2(p−1)/p · n", 2 * part * nbytes
        case "reduce_scatter" | "all_gather" | "scatter":
            return "(p−1)/p · n", part * nbytes
        case "broadcast" | "reduce":
            return "n", float(nbytes)
        case "gather":
            return "n/p", nbytes / ranks
        case "all_to_all":
            return "(p−1)/p² · n", part * nbytes / ranks
    return None


def size(nbytes: float) -> str:
    """Bytes in words: '512 B', '1.5 kB', '2 MB' (powers of 1000)."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= 0.9995 * scale:  # 999.9 kB would be written 1e+03 kB
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.3g} B"


def _what(leg: Leg) -> str:
    chunks = leg.chunks
    if not chunks:
        return size(leg.nbytes)
    if len(chunks) == 1:
        return f"chunk {chunks[0]}"
    if chunks == tuple(range(chunks[0], chunks[-1] + 1)):
        return f"chunks {chunks[0]} to {chunks[-1]}"
    return f"chunks {', '.join(map(str, chunks[:6]))}{' and more' if len(chunks) > 6 else ''}"


def _leg_words(leg: Leg) -> str:
    line = f" (line {leg.line})" if leg.line and not leg.delivered else ""
    if not leg.delivered:
        return f"rank {leg.src} tries to send {_what(leg)} to rank {leg.dst}, which never receives it{line}"
    them = "it" if len(leg.chunks) < 2 else "them"
    return f"rank {leg.src} sends {_what(leg)} to rank {leg.dst}, which {leg.does} {them}"


def _bar_words(item: Bar) -> str:
    line = f" (line {item.line})" if item.line else ""
    if item.op == "wait":
        what = item.label or (f"for rank {item.peer}" if item.peer is not None else "")
        lasting = " to send, for ever" if item.end_step is None and item.peer is not None else ""
        return f"rank {item.rank} waits {what}{lasting}{line}".replace("  ", " ").rstrip()
    if item.op == "compute":
        return f"rank {item.rank} computes{' ' + item.label if item.label else ''}"
    return f"rank {item.rank} takes part in {item.op}{f' of {size(item.nbytes)}' if item.nbytes else ''}"


def _microseconds(x: Leg | Bar, at: float) -> list[float | None]:
    return [None if t is None else round((t - at) * 1e6, 3) for t in (x.start, x.end)]

"""Makes an animation from a schedule or a trace: messages in steps, and what every cell holds after each step.

Only this file computes what cells hold; the browser and the still picture only draw it.
A *cell* is (rank, chunk). What it holds are *contributions*: a tuple of bit masks, the first with the ranks counted
at least once, the second with those counted at least twice, and so on, so that 256 ranks fold quickly.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any

from allranks.base.errors import name_ranks
from allranks.theory.schedules import COLLECTIVES, Schedule
from allranks.theory.trace import Event, Message, Trace

Contributions = tuple[int, ...]
LAYOUTS = ("ring", "line", "tree", "grid", "all-to-all")
_CAPTION_ITEMS = 16
# the fields of each transfer (besides `carried` and `after`) and of each bar that are sent to the browser
_TRANSFER_COLUMNS = tuple("step src dst nbytes chunks reduce delivered effect_known line start end".split())
_BAR_COLUMNS = tuple("rank op step end_step peer nbytes received_nbytes line label own start end".split())
# the fields of the animation that are sent as they are
_AS_IT_IS = tuple(
    "title kind ranks chunks nbytes steps layout columns clock timed inferred blocking root collective bound pace "
    "code".split()
)


def contributions(ranks: Iterable[int]) -> Contributions:
    """The contributions of `ranks`; a rank that occurs twice counts twice."""
    layers: list[int] = []
    for rank, times in Counter(ranks).items():
        while len(layers) < times:
            layers.append(0)
        for layer in range(times):
            layers[layer] |= 1 << rank
    return tuple(layers)


def contributors(held: Contributions) -> list[int]:
    """The ranks that contributed, in order; a rank that was counted twice occurs twice."""
    return sorted(rank for layer in held for rank in range(layer.bit_length()) if layer >> rank & 1)


def add(left: Contributions, right: Contributions) -> Contributions:
    """The sum of two contributions."""
    if len(left) == len(right) == 1 and not left[0] & right[0]:
        return (left[0] | right[0],)
    return contributions([*contributors(left), *contributors(right)])


def ranges(held: Contributions) -> list[int]:
    """Contributions as a flat list lo, hi, lo, hi, ... of runs of ranks, one layer after the other."""
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
class Transfer:
    """One message, with what each of its chunks carries and what the receiver's cell holds afterwards.

    `effect_known` is False if the trace does not show what the receiver did with it: live ranks add in their own
    code.
    """

    step: int
    src: int
    dst: int
    nbytes: int
    chunks: tuple[int, ...] = ()
    reduce: bool = False
    delivered: bool = True
    carried: tuple[Contributions, ...] = ()
    after: tuple[Contributions, ...] = ()
    start: float | None = None
    end: float | None = None
    line: int | None = None
    effect_known: bool = True

    @property
    def does(self) -> str:
        """What the receiver does with the message: "adds", "stores", or "receives" if that is unknown."""
        return "adds" if self.reduce else "stores" if self.effect_known else "receives"


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in a rank's lane: compute, a wait, or a whole collective. `end_step` is None if it never ended.

    An `own` wait is for a call of the rank's own that is still under way. A wait between two steps ends in the step
    before its first.
    """

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
    received_nbytes: int = 0
    own: bool = False

    @property
    def is_between(self) -> bool:
        """Whether it has no step: it lasts only in time."""
        return self.end_step is not None and self.end_step < self.step


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """What the player marks: places in `transfers` and `bars`, and sentences. See `simulator.CriticalPath.marked`."""

    says: tuple[str, ...]
    transfers: tuple[int, ...]
    bars: tuple[int, ...]


@dataclass(frozen=True)
class Animation:
    """What the player plays.

    `transfers` are in order of step; `before` and `goal` map a cell to what it holds
    at the start and to what the collective promises at the end.
    """

    title: str
    kind: str
    ranks: int
    chunks: int
    nbytes: int
    steps: int
    transfers: tuple[Transfer, ...]
    bars: tuple[Bar, ...]
    before: dict[tuple[int, int], Contributions]
    goal: dict[tuple[int, int], Contributions]
    layout: str
    columns: int
    clock: str
    timed: bool
    inferred: bool
    blocking: bool = True
    root: int | None = None
    collective: str | None = None
    bound: tuple[str, float] | None = None
    pace: str | None = None
    code: dict[str, Any] | None = None
    path: CriticalPath | None = None

    def states(self, at: Iterable[int] | None = None) -> list[dict[tuple[int, int], Contributions]]:
        """What every cell holds after each of the steps `at`: one mapping for each; without `at`, after 0, 1, ...

        `steps` steps.
        """
        wanted = set(range(self.steps + 1) if at is None else at)
        now, found, done = dict(self.before), [], 0
        for step in range(self.steps + 1):
            while done < len(self.transfers) and self.transfers[done].step < step:
                transfer = self.transfers[done]
                if transfer.delivered:
                    now.update(
                        {(transfer.dst, c): held for c, held in zip(transfer.chunks, transfer.after, strict=False)}
                    )
                done += 1
            if step in wanted:
                found.append(dict(now))
        return found

    def bytes_sent(self) -> list[int]:
        """Bytes that each rank sent, indexed by rank."""
        sent = [0] * self.ranks
        for transfer in self.transfers:
            sent[transfer.src] += transfer.nbytes
        return sent

    def captions(self) -> list[str]:
        """What happens, in words: one sentence for the start and one for each step."""
        by_step: list[list[Transfer | Bar]] = [[] for _ in range(self.steps)]
        items: tuple[Transfer | Bar, ...] = (*self.transfers, *self.bars)
        for item in items:
            if not (isinstance(item, Bar) and item.is_between):
                by_step[item.step].append(item)
        stuck = []
        if self.blocking:
            lost = [transfer for transfer in self.transfers if not transfer.delivered]
            # a send that blocks is a rank that waits; one that was buffered is not
            stuck = [f"rank {transfer.src} still waits for rank {transfer.dst} to receive" for transfer in lost]
        for item in self.bars:
            if item.end_step is None and item.step < self.steps - 1 and item.peer is not None:
                stuck.append(f"rank {item.rank} still waits for rank {item.peer} to send")
        first = f"start: {self.ranks} ranks" + (f", {self.chunks} chunks" if self.chunks else "")
        if self.chunks and not self.goal and not self.transfers:
            first += ", nothing moves"
        lines = [first]
        for step, now in enumerate(by_step):
            words = [_transfer_words(x) for x in now if isinstance(x, Transfer)]
            words += _bars_in_words([x for x in now if isinstance(x, Bar)], self.ranks)
            if len(words) > _CAPTION_ITEMS:
                words[_CAPTION_ITEMS:] = [f"and {len(words) - _CAPTION_ITEMS} more"]
            lines.append(f"step {step + 1} of {self.steps}: {'; '.join(words) or 'nothing moves'}")
        if stuck and self.steps:
            lines[-1] += "; at the end " + "; ".join(stuck[:_CAPTION_ITEMS])
        return lines

    def first_wrong_move(self) -> tuple[int, str] | None:
        """The first message of a student's run that can't be right, as its place in `transfers` and the reason.

        Nobody receives it, it counts a rank twice, or it overwrites numbers that are still missing at the end.

        Example:
            >>> animate(Trace("wire", 2, (Event(0, "send", 1, nbytes=4, step=0),))).first_wrong_move()
            (0, 'nobody receives it')
        """
        if self.kind != "wire":
            return None
        now, last = dict(self.before), self.states([self.steps])[0]
        for i, transfer in enumerate(self.transfers):
            if not transfer.delivered:
                return i, "nobody receives it"
            for chunk, after in zip(transfer.chunks, transfer.after, strict=False):
                cell = (transfer.dst, chunk)
                before, goal = now.get(cell, ()), self.goal.get(cell)
                now[cell] = after
                if len(after) > 1 and goal is not None and len(goal) == 1:
                    return i, f"c{chunk} then holds {_named_ranks(after[1])} twice"
                lost = before[0] & ~after[0] if before and after else 0
                if lost and goal is not None and last.get(cell) != goal and not transfer.reduce:
                    return i, f"what c{chunk} held of {_named_ranks(lost)} is lost"
        return None

    def payload(self) -> bytes:
        """The animation as zlib-compressed JSON, which is all that is sent to the browser.

        Its keys are the table `AnimationData` in js/src/player/data.js. `transfers` and `bars` are tables by column.
        """
        table: dict[bytes, int] = {}
        distinct: list[Contributions] = []
        seen: dict[int, int] = {}
        width = (self.ranks + 7) // 8

        def number_of(held: Contributions) -> int:
            """The number of these contributions.

            The key is their bytes: Python's hashes of large masks collide too often.
            """
            if (number := seen.get(id(held))) is None:
                key = b"".join(layer.to_bytes(width, "little") for layer in held)
                number = seen[id(held)] = table.setdefault(key, len(table))
                if number == len(distinct):
                    distinct.append(held)
            return number

        items: tuple[Transfer | Bar, ...] = (*self.transfers, *self.bars)
        at = min((x.start for x in items if x.start is not None), default=0.0)
        transfers = _by_column(self.transfers, _TRANSFER_COLUMNS, at)
        transfers["carried"] = [[number_of(held) for held in transfer.carried] for transfer in self.transfers]
        transfers["after"] = [[number_of(held) for held in transfer.after] for transfer in self.transfers]
        head = {name: getattr(self, name) for name in _AS_IT_IS} | {
            "path": None if self.path is None else asdict(self.path),
            "wrong": self.first_wrong_move(),
            "transfers": transfers,
            "bars": _by_column(self.bars, _BAR_COLUMNS, at),
            "before": [[r, c, number_of(b)] for (r, c), b in self.before.items()],
            "goal": [[r, c, number_of(b)] for (r, c), b in self.goal.items()],
            "captions": self.captions(),
            "contributions": [ranges(b) for b in distinct],
        }
        return zlib.compress(json.dumps(head, separators=(",", ":")).encode(), 9 if len(self.transfers) < 5000 else 5)


def animate(source: Schedule | Trace, nbytes: int | None = None) -> Animation:
    """The animation of a schedule or of a trace. `nbytes` is the size of the full vector, for a schedule only."""
    if isinstance(source, Schedule):
        sizes = [1] * source.chunks if nbytes is None else source.chunk_nbytes(nbytes)
        raw = [
            Transfer(m.step, m.src, m.dst, sum(sizes[c] for c in m.chunks), tuple(m.chunks), m.reduce)
            for m in sorted(source.moves, key=lambda m: m.step)
        ]
        return _fold(source, "schedule", sum(sizes), "step", raw, [], {}, False)
    transfers, bars, given, inferred = _read(source)
    return _fold(source, source.kind, source.nbytes, source.clock, transfers, bars, given, inferred)


def _read(trace: Trace) -> tuple[list[Transfer], list[Bar], dict[int, Contributions], bool]:
    """A trace's messages and other bars, each with a step, and the contributions that its sends claim to carry."""
    messages = [m for m in trace.messages() if m.dst is not None]
    inferred = any(m.step is None and m.delivered for m in messages)
    steps = _infer_steps(messages) if inferred else _late_steps(trace)
    order = sorted(range(len(messages)), key=lambda i: (steps[i], i))
    transfers, given = [], {}
    for number, i in enumerate(order):
        m = messages[i]
        end = m.end if m.delivered else None
        chunks = m.chunks if all(0 <= c < trace.chunks for c in m.chunks) else ()
        # a live trace tells how many bytes moved, not what was done with them
        effect_known = bool(chunks) and trace.kind != "live"
        what = steps[i], m.src, m.dst, m.nbytes, chunks, m.reduce, m.delivered
        transfers.append(Transfer(*what, start=m.start, end=end, line=m.line, effect_known=effect_known))
        if m.contrib is not None:
            given[number] = contributions(m.contrib)
    sends = [e for e in trace.events if e.op == "send" and e.peer is not None]
    place = {e.match: step for e, step in zip(sends, steps, strict=True) if e.match is not None}
    if trace.kind != "wire":
        return transfers, _bars(trace, transfers, place), given, inferred
    if not transfers and any(e.seq is not None for e in trace.events):
        return [], _bars_of_calls(trace), given, inferred
    return *_without_gaps(transfers, _bars(trace, transfers, place)), given, inferred


def _without_gaps(transfers: list[Transfer], bars: list[Bar]) -> tuple[list[Transfer], list[Bar]]:
    """The same without steps in which nothing begins: a collective counts for several rounds, and is one step."""
    steps = sorted({t.step for t in transfers} | {bar.step for bar in bars})
    at = {step: number for number, step in enumerate(steps)}

    def end(bar: Bar) -> int | None:
        return None if bar.end_step is None else max(at[bar.step], bisect_right(steps, bar.end_step) - 1)

    return [replace(t, step=at[t.step]) for t in transfers], [
        replace(bar, step=at[bar.step], end_step=end(bar)) for bar in bars
    ]


def _bars_of_calls(trace: Trace) -> list[Bar]:
    """The bars of a run on the wire whose ranks call collectives only: each turn of a rank is a step.

    The calls of one collective are in the same step on all ranks, and a call that does not wait lasts over the steps in
    which it is under way.
    """
    calls: dict[tuple[str | None, int], list[Event]] = defaultdict(list)
    for e in trace.events:
        if e.seq is not None and e.op != "wait":
            calls[e.group, e.seq].append(e)
    # a wait names its call by group, number and rank
    by_rank = {(e.group, e.seq, e.rank): e for members in calls.values() for e in members}
    turn: Counter[int] = Counter()
    placed: dict[tuple[str | None, int], int] = {}
    begun: list[tuple[Event, int]] = []
    for e in trace.events:
        call = by_rank.get((e.group, e.seq, e.rank)) if e.op == "wait" else None
        if call is not None and call.blocking:
            if call.start is None or (e.start is not None and e.start < call.start):
                begun.append((e, turn[e.rank]))
            continue
        step = turn[e.rank]
        if e.seq is not None and e.op != "wait":
            key = e.group, e.seq
            # the first call that comes fixes the step of all: where the rank is that did most before
            step = placed.setdefault(key, max(turn[other.rank] for other in calls[key]))
        begun.append((e, step))
        turn[e.rank] = max(turn[e.rank], step + 1)
    steps: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for e, step in begun:
        if e.start is not None:
            steps[e.rank].append((e.start, step))
    bars = []
    for e, step in begun:
        bar = _bar(e, step, step)
        if e.op == "wait" or e.op in ("recv", "reduce"):
            call = by_rank.get((e.group, e.seq, e.rank))
            if call is None or e.end is None:
                bar = replace(bar, op="wait", end_step=None)
            elif call.blocking:
                # the time before the others came is a bar of its own, up to the step in which they meet
                last = placed[e.group, e.seq or 0]
                bar = replace(bar, step=min(step, last), end_step=last - 1, end=call.start, label="for the others")
            else:
                bar = replace(bar, label=f"for {call.label or call.op}", own=True)
        elif e.end is None:
            bar = replace(bar, end_step=None)
        elif e.op != "compute" and not e.blocking:
            # a call that returns at once lasts over whatever its rank began before its end
            bar = replace(bar, end_step=max([step, *(at for start, at in steps[e.rank] if start < e.end)]))
        bars.append(bar)
    return bars


def _bar(e: Event, step: int, end_step: int | None) -> Bar:
    """The bar of an event, up to and with this step."""
    return Bar(e.rank, e.op, step, end_step, e.peer, e.nbytes, e.start, e.end, e.line, e.label, e.received_nbytes)


def _late_steps(trace: Trace) -> list[int]:
    """The steps of the sends, in order; a send that never began comes after everything else that its rank did."""
    last: Counter[int] = Counter()
    for e in trace.events:
        if e.step is not None:
            last[e.rank] = max(last[e.rank], e.step + 1)
    sends = [e for e in trace.events if e.op == "send" and e.peer is not None]
    return [last[e.rank] if e.step is None else e.step for e in sends]


def _bars(trace: Trace, transfers: list[Transfer], place: dict[int, int]) -> list[Bar]:
    """The bars: compute, waits and whole collectives. A receive without a matching send is a wait without an end.

    `place` maps a message's match to its step: a rank's send and receive in one step count as one turn.
    """
    busy: dict[int, list[tuple[float, float]]] = defaultdict(list)
    done = [0.0] * (max((transfer.step for transfer in transfers), default=-1) + 1)
    for transfer in transfers:
        done[transfer.step] = max(done[transfer.step], transfer.end or 0.0)
        if transfer.start is not None and transfer.end is not None:
            busy[transfer.src].append((transfer.start, transfer.end))
            busy[transfer.dst].append((transfer.start, transfer.end))
    calls = {(e.group, e.seq, e.rank): e for e in trace.events if e.seq is not None and e.op != "wait"}
    for e in calls.values() if trace.kind == "wire" and transfers else ():
        if e.step is not None and e.start is not None and e.end is not None:
            done += [0.0] * (e.step + 1 - len(done))
            done[e.step] = max(done[e.step], e.end)
            if e.blocking:
                busy[e.rank].append((e.start, e.end))
    done = list(accumulate(done, max))
    met = {e.match for e in trace.events if e.op == "send"} - {None}
    turn: Counter[int] = Counter()
    bars = []
    for e in trace.events:
        step = e.step
        if step is None:
            step = turn[e.rank] if e.match is None else place.get(e.match, turn[e.rank])
        if e.op in ("recv", "reduce") and (e.match is None or e.match not in met):
            bars.append(Bar(e.rank, "wait", step, None, e.peer, line=e.line, start=e.start))
        elif e.op == "wait" and e.step is None and e.start is not None and e.end is not None and transfers:
            # a wait lies in the steps that happen at its time; a rank does not wait while its own message is under way
            for begin, until in _without(e.start, e.end, busy[e.rank]):
                first = min(bisect_right(done, begin), len(done) - 1)
                last = min(max(first, bisect_left(done, until)), len(done) - 1)
                call = calls.get((e.group, e.seq, e.rank)) if e.seq is not None else None
                own = call is not None and not call.blocking
                label = None if call is None else f"for {call.label or call.op}" if own else "for the others"
                bars.append(Bar(e.rank, e.op, first, last, e.peer, 0, begin, until, e.line, label, own=own))
            continue
        elif e.op not in ("send", "recv", "reduce"):
            never = e.end is None and (e.op == "wait" or (trace.kind == "wire" and e.seq is not None))
            end = None if never else step
            bars.append(_bar(e, step, end))
        turn[e.rank] = max(turn[e.rank], step + 1)
    return bars


def _without(start: float, end: float, taken: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The parts of the span from `start` to `end` that are in none of the spans `taken`."""
    left = []
    for low, high in sorted(taken):
        if low >= end or high <= start:
            continue
        if low > start:
            left.append((start, low))
        start = max(start, high)
    return [*left, (start, end)] if start < end else left


def _infer_steps(messages: Sequence[Message]) -> list[int]:
    """Steps for messages without one: a rank sends one message in each step, and only after what it received before."""
    ready: Counter[int] = Counter()
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


def _fold(
    source: Schedule | Trace,
    kind: str,
    nbytes: int,
    clock: str,
    raw: list[Transfer],
    bars: list[Bar],
    given: dict[int, Contributions],
    inferred: bool,
) -> Animation:
    """Computes what cells hold, step by step; within a step, every message leaves before any arrives."""
    rules = _rules(source)
    held = _by_cell(rules.initial()) if rules else {}
    goal = _by_cell(rules.final()) if rules else {}
    before, transfers, start = dict(held), [], 0
    while start < len(raw):
        stop = start
        while stop < len(raw) and raw[stop].step == raw[start].step:
            stop += 1
        frozen = [
            tuple(given.get(i) or held.get((raw[i].src, c), ()) for c in raw[i].chunks) for i in range(start, stop)
        ]
        for i, carried in zip(range(start, stop), frozen, strict=True):
            transfer, after = raw[i], []
            if not transfer.chunks and i in given:
                carried = (given[i],)
            for chunk, load in zip(transfer.chunks, carried, strict=False):
                cell = (transfer.dst, chunk)
                now = add(held.get(cell, ()), load) if transfer.reduce else load
                if transfer.delivered:
                    held[cell] = now
                after.append(now)
            transfers.append(replace(transfer, carried=carried, after=tuple(after)))
        start = stop
    drawn: list[Transfer | Bar] = [*transfers, *bars]
    steps = max((x.step for x in drawn), default=-1) + 1
    links = {(transfer.src, transfer.dst) for transfer in transfers}
    timed = clock != "step" and any(x.start is not None and x.end is not None for x in drawn)
    # a live run's own messages are not those of the collective that torch ran beside them
    collective = None if kind == "live" and raw else source.collective
    words = _title(source, collective, bool(raw))
    return Animation(
        title=words,
        kind=kind,
        ranks=source.ranks,
        chunks=source.chunks if rules else 0,
        nbytes=nbytes,
        steps=steps,
        transfers=tuple(transfers),
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
        code=source.meta.get("code") if isinstance(source, Trace) else None,
        path=_path(source, transfers, bars) if isinstance(source, Trace) else None,
    )


def _title(source: Schedule | Trace, collective: str | None, sends: bool) -> str:
    """What is played, in few words. A run on the wire has no algorithm, but perhaps its function's name."""
    if isinstance(source, Trace) and source.kind == "wire":
        own = source.source if source.source and source.source.startswith("your ") else None
        return (collective if sends or own is None else own) or own or "wire run"
    kind = "schedule" if isinstance(source, Schedule) else source.kind
    return " ".join(filter(None, (source.algorithm, collective))) or f"{kind} run"


def _path(trace: Trace, transfers: Sequence[Transfer], bars: Sequence[Bar]) -> CriticalPath | None:
    """The critical path that the trace's meta names, if it does."""
    found = trace.meta.get("critical_path")
    if not isinstance(found, dict) or not found.get("legs"):
        return None
    messages = {(peer, rank, start) for kind, rank, peer, start, _ in found["legs"] if kind == "message"}
    own = {(kind, rank, start) for kind, rank, _, start, _ in found["legs"] if kind == "compute"}
    calls = {start for kind, _, _, start, _ in found["legs"] if kind == "collective"}
    return CriticalPath(
        tuple(map(str, found.get("says", ()))),
        tuple(i for i, t in enumerate(transfers) if (t.src, t.dst, t.start) in messages),
        tuple(
            i
            for i, bar in enumerate(bars)
            if (bar.op, bar.rank, bar.start) in own or (bar.op not in ("compute", "wait") and bar.start in calls)
        ),
    )


def _by_cell(cells: dict[tuple[int, int], Counter[int]]) -> dict[tuple[int, int], Contributions]:
    """The contributions in each cell. A counter that many cells share is converted only once."""
    known: dict[int, Contributions] = {}
    return {cell: known.get(id(c)) or known.setdefault(id(c), contributions(c.elements())) for cell, c in cells.items()}


def _rules(source: Schedule | Trace) -> Schedule | None:
    """A schedule that says what ranks hold at the start and the end. None if the trace names no chunks."""
    if isinstance(source, Schedule):
        return source
    # torch ran the collective of a live run; the chunks of its trace belong to messages that the program itself sent
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
    # a ring with a few other links is still drawn as a ring
    if len(round_it) == ranks and len(pairs) - ranks <= ranks // 4:
        return "ring"
    if len(pairs) == ranks * (ranks - 1) // 2:
        return "all-to-all"
    if len(pairs) < ranks:
        return "tree"
    return "grid" if _fits(columns(ranks, links), pairs) else "all-to-all"


def columns(ranks: int, links: set[tuple[int, int]]) -> int:
    """How many columns a grid has: if possible, so that each link stays in its row or column; else nearly square."""
    root = next(i for i in range(1, ranks + 1) if i * i >= ranks)
    even = sorted((w for w in range(2, ranks) if ranks % w == 0), key=lambda w: (abs(w - ranks / w), -w))
    return next((w for w in even if _fits(w, links)), even[0] if even and even[0] <= 2 * root else root)


def _fits(wide: int, links: set[tuple[int, int]]) -> bool:
    return all(a // wide == b // wide or a % wide == b % wide for a, b in links)


def bound(collective: str | None, ranks: int, nbytes: int) -> tuple[str, float] | None:
    """The least that the busiest rank must send, as (formula, bytes), for a vector of `nbytes`; None if unknown.

    Without in-network reduction (Patarasuk & Yuan 2009; Chan et al. 2007): in broadcast and reduce, some rank must send
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
    """Bytes with a unit: '512 B', '1.5 kB', '2 MB' (powers of 1000)."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= 0.9995 * scale:  # 999.9 kB would be written 1e+03 kB
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.3g} B"


def _what(transfer: Transfer) -> str:
    chunks = transfer.chunks
    if not chunks:
        return size(transfer.nbytes)
    if len(chunks) == 1:
        return f"chunk {chunks[0]}"
    if chunks == tuple(range(chunks[0], chunks[-1] + 1)):
        return f"chunks {chunks[0]} to {chunks[-1]}"
    return f"chunks {', '.join(map(str, chunks[:6]))}{' and more' if len(chunks) > 6 else ''}"


def _transfer_words(transfer: Transfer) -> str:
    line = f" (line {transfer.line})" if transfer.line and not transfer.delivered else ""
    if not transfer.delivered:
        return (
            f"rank {transfer.src} tries to send {_what(transfer)} to rank {transfer.dst}, which never receives it{line}"
        )
    them = "it" if len(transfer.chunks) < 2 else "them"
    return f"rank {transfer.src} sends {_what(transfer)} to rank {transfer.dst}, which {transfer.does} {them}"


def _bars_in_words(bars: Sequence[Bar], ranks: int) -> list[str]:
    """What ranks do in a step: those that do the same in one clause."""
    same: dict[tuple[Any, ...], list[Bar]] = defaultdict(list)
    for bar in bars:
        # where both sides are known, other bytes are told as a span
        nbytes = None if any(other.received_nbytes for other in bars) else bar.nbytes
        same[bar.op, bar.label, bar.peer, bar.line, bar.end_step is None, nbytes].append(bar)
    return [_same_words(together, ranks) for together in same.values()]


def _same_words(bars: Sequence[Bar], ranks: int) -> str:
    first, many = bars[0], len({bar.rank for bar in bars}) > 1
    same = sorted({bar.rank for bar in bars})
    who = f"{len(same)} of {ranks} ranks" if 8 < len(same) < ranks else name_ranks(same, ranks if ranks > 2 else None)
    s = "" if many else "s"
    line = f" (line {first.line})" if first.line else ""
    if first.op == "wait":
        what = first.label or (f"for rank {first.peer}" if first.peer is not None else "")
        lasting = " to send, for ever" if first.end_step is None and first.peer is not None else ""
        return f"{who} wait{s} {what}{lasting}{line}".replace("  ", " ").rstrip()
    if first.op == "compute":
        return f"{who} compute{s}{' ' + first.label if first.label else ''}{line}"
    what = f"take{s} part in {first.label or first.op}"
    if first.end_step is None:
        return f"{who} {what}, which never ends{line}"
    return f"{who} {what}{_bytes_in_words(bars)}{line}"


def _bytes_in_words(bars: Sequence[Bar]) -> str:
    """What ranks put into a collective and got from it; "" where no bytes are known."""
    put, got = [bar.nbytes for bar in bars], [bar.received_nbytes for bar in bars]
    if not any(got):
        return f" of {size(put[0])}" if put[0] else ""
    each = "each " if len(bars) > 1 and len(set(put)) == len(set(got)) == 1 else ""
    return f": {each}{_span_of(put)} in, {_span_of(got)} out"


def _span_of(sizes: Sequence[int]) -> str:
    least, most = size(min(sizes)), size(max(sizes))
    return most if least == most else f"{least} to {most}"


def _named_ranks(mask: int) -> str:
    ranks = contributors((mask,))
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _by_column(items: Sequence[Transfer] | Sequence[Bar], names: Sequence[str], at: float) -> dict[str, list[Any]]:
    """One list for each name, with a value for each item; `start` and `end` in microseconds after `at` seconds."""
    columns: dict[str, list[Any]] = {name: [getattr(item, name) for item in items] for name in names}
    for name in ("start", "end"):
        columns[name] = [None if t is None else round((t - at) * 1e6, 3) for t in columns[name]]
    return columns

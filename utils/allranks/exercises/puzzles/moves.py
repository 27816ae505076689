"""What a run shows: its trace, which numbers each chunk of each rank holds before each step, and the first wrong move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from allranks.exercises.puzzles.ranks import Picture, Run
from allranks.exercises.puzzles.vector import AWAITED, RESERVED, Vector, cuts, places
from allranks.ranks.wire import record
from allranks.ranks.wire.messages import OpKind
from allranks.ranks.wire.state import Op
from allranks.ranks.wire.wait import outermost
from allranks.theory.simulator.clock import Timeline, UniformNetwork
from allranks.theory.trace import Trace


@dataclass
class Move:
    """One message: what it holds, place by place, and what its receiver did with it.

    `how` is "add", "store", "other" or "lost". `landed` is the place where its first number went, `before` what was there.
    `match` is the number under which a trace joins it with its receive.
    """

    step: int
    send: Op
    marks: list[int]
    match: int | None  # None if it was never received
    how: str = "other"
    landed: int | None = None
    before: int = 0

    @property
    def first(self) -> int:
        """The first mark that holds something; 0 if there is none."""
        return next((m for m in self.marks if places(m)), 0)


@dataclass
class Moves:
    """A run, laid out: see `drawn` and `trace`."""

    run: Run
    ranks: int
    size: int
    cuts: list[int]  # where each chunk begins, and the end
    rounds: Timeline  # when each message is under way, if each takes one round
    steps: dict[int, int] = field(default_factory=dict)  # of each operation, by its identity
    moves: list[Move] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)  # which memory of each rank is drawn

    @property
    def count(self) -> int:
        """How many rounds there are, one after the other."""
        return max((move.step for move in self.moves), default=-1) + 1

    def chunk(self, place: int) -> int:
        """The chunk in which a place lies."""
        index = place % self.size if self.size else 0
        return next(c for c in range(len(self.cuts) - 1) if index < self.cuts[c + 1])

    def sources(self, marks: Sequence[int]) -> list[int]:
        """The ranks whose numbers these elements hold; one that was added twice is there twice."""
        most: dict[int, int] = {}
        for one in marks:
            counts: dict[int, int] = {}
            for place, count in places(one).items():
                counts[place // self.size] = max(counts.get(place // self.size, 0), count)
            for rank, count in counts.items():
                most[rank] = max(most.get(rank, 0), count)
        return [rank for rank in sorted(most) for _ in range(min(most[rank], 9))]

    def chunks_of(self, move: Move) -> list[int]:
        """The chunks of which a message has numbers."""
        return sorted({self.chunk(place) for one in move.marks for place in places(one)})

    def holds(self, move: Move) -> list[list[int]]:
        """Whose numbers the message has, of each of its chunks."""
        return [
            self.sources([m for m in move.marks if any(self.chunk(place) == c for place in places(m))])
            for c in self.chunks_of(move)
        ]

    def state(self, rank: int, picture: Picture | None) -> list[list[int]]:
        """Whose numbers each chunk of the rank holds."""
        marks = [] if picture is None else picture.marks.get(self.shown[rank], [])
        return [self.sources(marks[start:end]) for start, end in pairwise(self.cuts)]

    def before(self, step: int, rank: int) -> Picture | None:
        """The rank's memory when its part of the step begins."""
        pictures = self.run.pictures[rank]
        known = self.run.router.ranks[rank].ops
        return next(
            (p for p in pictures if not p.after and p.op in known and self.steps.get(id(known[p.op]), -1) >= step),
            pictures[-1] if pictures else None,
        )


def laid_out(run: Run, ranks: int, size: int, chunks: int) -> Moves:
    """Which message belongs to which step, and what became of it. `size` is that of each rank's vector."""
    rounds = record.timeline(run.router, UniformNetwork(1, 0))
    made = Moves(run, ranks, size, cuts(size, chunks), rounds)
    number, ordered = record.numbers(run.router), record.in_order(run.router, rounds)
    match = record.matches(ordered)
    last = [0] * ranks
    for op in ordered:
        span = rounds.spans.get(number[id(op)])
        made.steps[id(op)] = last[op.rank] if span is None else int(span[0])
        last[op.rank] = max(last[op.rank], made.steps[id(op)] + 1)
        if op.kind is OpKind.SEND:
            marks = run.marks.get((op.rank, op.number), [])
            joined = match[op.match] if record.joined(op) else None
            made.moves.append(Move(made.steps[id(op)], op, marks, joined, "lost" if joined is None else "other"))
    made.moves.sort(key=lambda move: (move.step, move.send.rank, move.send.index))
    made.shown = [_shown(run, rank) for rank in range(ranks)]
    for move in made.moves:
        if move.how != "lost":
            _land(made, move)
    return made


def _shown(run: Run, rank: int) -> int:
    """The memory that ends as the result does, and changes most often on the way; else that of the argument."""
    pictures, stores = run.pictures[rank], run.stores[rank]
    result, arg = run.results[rank], run.args[rank]
    own = next((n for n, store in enumerate(stores) if store is arg.store), 0)
    if not pictures:
        return own
    last = pictures[-1].marks
    named = next((n for n, s in enumerate(stores) if isinstance(result, Vector) and s is result.store), own)
    wanted = last.get(named, last.get(own))
    changes = {n: 0 for n, marks in last.items() if marks == wanted}
    for before, after in pairwise(pictures):
        for n in changes:
            changes[n] += before.marks.get(n) != after.marks.get(n) and n in before.marks
    best = max(changes.values(), default=0)
    return next((n for n in (named, own, *changes) if n in changes and changes[n] == best), own)


def _land(made: Moves, move: Move) -> None:
    """Finds where the receiver put what came, in the memory that is drawn."""
    recv, first = move.send.partner, move.first
    if recv is None or not first:
        return
    pictures, shown = made.run.pictures[recv.rank], made.shown[recv.rank]
    before = next((p.marks.get(shown) for p in pictures if p.op == recv.number and not p.after), None)
    start = next((n for n, p in enumerate(pictures) if p.op == recv.number and p.after), len(pictures))
    if before is None:
        return
    expected = next(iter(places(first))) % made.size
    others = [q for q in range(len(before)) if q != expected]
    for picture in pictures[start:]:
        now = picture.marks.get(shown, before)
        for q in (expected, *others):
            if now[q] != before[q] and now[q] in (first, before[q] + first):
                move.how = "store" if now[q] == first else "add"
                move.landed, move.before = q, before[q]
                return


def trace(made: Moves) -> Trace:
    """The run as a trace; its messages say which chunks they carry and whose numbers."""
    plain = record.trace(made.run.router, made.rounds, made.rounds, {"ranks": made.ranks})
    by_match = {move.match: move for move in made.moves if move.match is not None}
    events = []
    for event in plain.events:
        move = by_match.get(event.match) if event.match is not None else None
        if move is not None:
            held = made.holds(move)
            op = "reduce" if event.op == "recv" and move.how == "add" else event.op
            contrib = tuple(held[0]) if held else None
            event = replace(event, op=op, chunks=tuple(made.chunks_of(move)), contrib=contrib)
        events.append(event)
    return plain.with_events(events)


def drawn(made: Moves, played: Trace, wrong: Move | None) -> dict[str, Any]:
    """What the picture of the chunks needs: before each step whose numbers each chunk holds, and the step's messages."""
    sends = {e.match: n for n, e in enumerate(played.events) if e.op == "send"}
    steps = []
    for step in range(made.count):
        moves = [
            {
                "src": move.send.rank,
                "dst": move.send.peer,
                "chunks": made.chunks_of(move),
                "holds": made.holds(move),
                "how": move.how,
                "line": outermost(move.send.line),
                "event": None if move.match is None else sends[move.match],
                "wrong": move is wrong,
            }
            for move in made.moves
            if move.step == step
        ]
        states = [made.state(rank, made.before(step, rank)) for rank in range(made.ranks)]
        steps.append({"before": states, "moves": moves})
    last = [p[-1] if p else None for p in made.run.pictures]
    return {
        "ranks": made.ranks,
        "chunks": len(made.cuts) - 1,
        "sizes": [end - start for start, end in pairwise(made.cuts)],
        "steps": steps,
        "after": [made.state(rank, picture) for rank, picture in enumerate(last)],
    }


@dataclass(frozen=True)
class Wrong:
    """The first wrong move: which one, why (a code), and the chunks that should be there in its place."""

    move: Move
    why: str
    want: tuple[int, ...] = ()


def _unwritten(move: Move) -> Wrong | None:
    """A message with numbers that nobody has written, or that are still to come."""
    if any(m & AWAITED for m in move.marks):
        return Wrong(move, "reads early")
    return Wrong(move, "sends a buffer that is still empty") if any(m & RESERVED for m in move.marks) else None


def first_wrong_sum(made: Moves) -> Wrong | None:
    """The first message after which a sum can't be right any more: by step, then by rank."""
    everybody = list(range(made.ranks))
    for move in made.moves:
        mark, held = move.first, [places(m) for m in move.marks]
        if unwritten := _unwritten(move):
            return unwritten
        if not mark or move.how == "lost":
            continue
        if any(len({p % made.size for p in one}) > 1 for one in held):
            return Wrong(move, "mixed")
        if any(count > 1 for one in held for count in one.values()):
            return Wrong(move, "twice")
        if move.landed is None:
            continue
        there, here = places(move.before), places(mark)
        if move.landed != next(iter(here)) % made.size:
            return Wrong(move, "elsewhere", tuple(made.chunks_of(move)))
        if move.how == "add" and set(there) & set(here):
            return Wrong(move, "again")
        if move.how == "store" and set(there) - set(here):
            src, dst = (made.state(r, made.before(move.step, r)) for r in (move.send.rank, move.send.peer or 0))
            want = tuple(c for c, whose in enumerate(src) if whose == everybody != dst[c])
            return Wrong(move, "incomplete", want)
    return None


def first_wrong_copy(made: Moves, source: int | None) -> Wrong | None:
    """The first message that does not hold the numbers of `source`; of its own sender, if that is None."""
    for move in made.moves:
        if unwritten := _unwritten(move):
            return unwritten
        wanted = move.send.rank if source is None else source
        if made.sources(move.marks) != [wanted] and move.marks:
            return Wrong(move, "not the source's")
    return None

"""The proof that a schedule does its collective, on symbols instead of numbers, also for thousands of ranks.

For each rank the proof keeps, run of chunks by run, whose contributions it holds: a bit for each rank. A message of
neighbouring chunks is then one piece, however many chunks it has, so that 4096 ranks and 100,000 messages take about a
second.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allranks.theory.schedules.core import Move, Schedule

# above so many ranks a sentence counts them instead of naming each
_MOST_NAMED = 16

Run = tuple[int, int]  # chunks from the first number up to, without, the second


class Holdings:
    """What one rank holds: runs of chunks, each with a bit mask of the ranks whose contributions are in it; 0 is
    nothing.

    Run i goes from `starts[i]` to `starts[i + 1]`, the last one to the number of chunks.
    """

    __slots__ = ("chunks", "masks", "starts")

    def __init__(self, chunks: int, mask: int = 0) -> None:
        self.chunks, self.starts, self.masks = chunks, [0], [mask]

    def read(self, run: Run) -> list[tuple[int, int, int]]:
        """The pieces of the run, each as (first, end, mask)."""
        first, end = run
        starts, masks = self.starts, self.masks
        i = bisect_right(starts, first) - 1
        last = len(starts)
        found = []
        while first < end:
            stop = starts[i + 1] if i + 1 < last else self.chunks
            if stop > end:
                stop = end
            found.append((first, stop, masks[i]))
            first = stop
            i += 1
        return found

    def write(self, first: int, end: int, mask: int) -> None:
        """Replaces what the chunks from `first` to `end` hold. Neighbours that hold the same become one run."""
        starts, masks = self.starts, self.masks
        i = bisect_right(starts, first) - 1
        j = bisect_left(starts, end, i)
        # runs i to j-1 become at most three: what is left before, the new one, what is left after
        before = masks[i] if starts[i] < first else None
        after = masks[j - 1] if (starts[j] if j < len(starts) else self.chunks) > end else None
        new_starts, new_masks = [], []
        if before is not None:
            new_starts.append(starts[i])
            new_masks.append(before)
        elif i > 0:  # the run before it may hold the same
            i -= 1
            new_starts.append(starts[i])
            new_masks.append(masks[i])
        if not new_masks or new_masks[-1] != mask:
            new_starts.append(first)
            new_masks.append(mask)
        if after is not None:
            if after != mask:
                new_starts.append(end)
                new_masks.append(after)
        elif j < len(starts) and masks[j] == mask:
            j += 1
        starts[i:j], masks[i:j] = new_starts, new_masks


def runs(chunks: Sequence[int]) -> list[Run]:
    """The chunks of a message as runs of neighbours, in the order of the message.

    >>> from allranks.theory.schedules.proof import runs
    >>> runs((3, 4, 5, 0)), runs(range(2, 9))
    ([(3, 6), (0, 1)], [(2, 9)])
    """
    if isinstance(chunks, range) and chunks.step == 1:
        return [(chunks.start, chunks.stop)] if chunks else []
    found: list[Run] = []
    first = end = -1
    for chunk in chunks:
        if chunk == end:
            end += 1
            continue
        if end > first:
            found.append((first, end))
        first, end = chunk, chunk + 1
    if end > first:
        found.append((first, end))
    return found


def in_steps(moves: Sequence[Move]) -> list[tuple[int, list[int]]]:
    """The numbers of the moves of each step that has any, in order of the steps."""
    found: dict[int, list[int]] = {}
    for number, move in enumerate(moves):
        found.setdefault(move.step, []).append(number)
    return sorted(found.items())


def fault_of(schedule: Schedule, most_pieces: int | None = None) -> str | None:
    """What is wrong with the schedule, its first fault in words; None if it does its collective.

    `most_pieces` bounds the work: a schedule that handles more runs of chunks than that is a fault.

    >>> from allranks.theory.schedules.proof import fault_of
    >>> fault_of(schedules.ring_all_reduce(4)) is None
    True
    """
    return _malformed(schedule) or _Proof(schedule, most_pieces).fault()


def _malformed(schedule: Schedule) -> str | None:
    """What makes a move no message at all: a rank or chunk that does not exist, or a message to oneself."""
    for number, move in enumerate(schedule.moves):
        for what, value in (("step", move.step), ("sender", move.src), ("receiver", move.dst)):
            if type(value) is not int:
                return f"message {number}: the {what} is {value!r}; it must be a whole number"
        if why := _no_message(move, schedule.ranks, schedule.chunks):
            return f"message {number} (step {move.step}, from rank {move.src} to rank {move.dst}): {why}"
    return None


def _no_message(move: Move, ranks: int, chunks: int) -> str | None:
    if move.step < 0:
        return "steps are numbered from 0"
    for rank in (move.src, move.dst):
        if not 0 <= rank < ranks:
            return f"there is no rank {rank}; the {ranks} ranks are 0 to {ranks - 1}"
    if move.src == move.dst:
        return "a rank sends nothing to itself"
    found = runs(move.chunks)
    for first, end in found:
        if first < 0 or end > chunks:
            missing = first if first < 0 or first >= chunks else chunks
            return f"there is no chunk {missing}; the {chunks} chunks are 0 to {chunks - 1}"
    if len(found) > 1:
        for (_, end), (first, _) in pairwise(sorted(found)):
            if first < end:
                return f"chunk {first} is in it twice"
    return None


class _Proof:
    """One pass through the steps of a schedule."""

    def __init__(self, schedule: Schedule, most_pieces: int | None) -> None:
        self.schedule, self.most_pieces, self.pieces = schedule, most_pieces, 0
        self.held = [self._first(rank) for rank in range(schedule.ranks)]

    def _own(self, rank: int) -> Run:
        """The chunks that only `rank` holds at the start."""
        p, chunks = self.schedule.ranks, self.schedule.chunks
        match self.schedule.collective:
            case "broadcast" | "scatter":
                return (0, chunks) if rank == self.schedule.root else (0, 0)
            case "all_to_all":
                return min(chunks, rank * p), min(chunks, (rank + 1) * p)
        return -(-rank * chunks // p), -(-(rank + 1) * chunks // p)

    def _first(self, rank: int) -> Holdings:
        chunks = self.schedule.chunks
        if self.schedule.collective in ("all_reduce", "reduce", "reduce_scatter"):
            return Holdings(chunks, 1 << rank)
        found, (first, end) = Holdings(chunks), self._own(rank)
        if first < end:
            found.write(first, end, 1 << rank)
        return found

    def _wanted(self) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
        """For each rank that must end with something: the pieces that it must hold."""
        schedule, p = self.schedule, self.schedule.ranks
        everyone, chunks = (1 << p) - 1, schedule.chunks
        bits = [1 << rank for rank in range(p)]
        own = [(*self._own(rank), bits[rank]) for rank in range(p)]
        together = [piece for piece in own if piece[0] < piece[1]]
        match schedule.collective:
            case "broadcast" | "all_gather" | "barrier":
                yield from ((rank, together) for rank in range(p))
            case "all_reduce":
                yield from ((rank, [(0, chunks, everyone)]) for rank in range(p))
            case "reduce":
                yield schedule.needed_root, [(0, chunks, everyone)]
            case "gather":
                yield schedule.needed_root, together
            case "scatter" | "reduce_scatter":
                mask = everyone if schedule.collective == "reduce_scatter" else 1 << schedule.needed_root
                for rank in range(p):
                    first, end = -(-rank * chunks // p), -(-(rank + 1) * chunks // p)
                    if first < end:
                        yield rank, [(first, end, mask)]
            case "all_to_all":
                for rank in range(p):
                    yield rank, [(c, c + 1, bits[c // p]) for c in range(rank, min(chunks, p * p), p)]

    def fault(self) -> str | None:
        for step, numbers in in_steps(self.schedule.moves):
            if fault := self._step(step, numbers):
                return fault
            if self.most_pieces is not None and self.pieces > self.most_pieces:
                return (
                    f"by step {step} its messages have more than {self.most_pieces} runs of chunks; send "
                    "neighbouring chunks together"
                )
        return self._end()

    def _step(self, step: int, numbers: list[int]) -> str | None:
        """Follows one step: every message carries what its sender held when the step began."""
        moves, held = self.schedule.moves, self.held
        # read before anything is written: messages of one step pass each other
        payloads = [[piece for run in runs(moves[n].chunks) for piece in held[moves[n].src].read(run)] for n in numbers]
        several: set[int] = set()  # the ranks that receive more than one message, for the chunks written twice
        seen: set[int] = set()
        for n in numbers:
            (several if moves[n].dst in seen else seen).add(moves[n].dst)
        written: dict[int, Holdings] = {}
        for n, payload in zip(numbers, payloads, strict=True):
            move, target = moves[n], held[moves[n].dst]
            self.pieces += len(payload)
            where = f"step {step}: rank {move.src} to rank {move.dst}, chunk"
            for first, _, mask in payload:
                if not mask:
                    return f"{where} {first}: rank {move.src} does not hold chunk {first} yet; {self._why(n, first)}"
            if move.dst in several and move.dst not in written:
                written[move.dst] = Holdings(self.schedule.chunks)
            before = written.get(move.dst)
            for first, end, mask in payload:
                if not move.reduce:
                    for start, _, twice in before.read((first, end)) if before else ():
                        if twice:
                            return f"{where} {start}: chunk {start} is written twice in one step"
                    target.write(first, end, mask)
                else:
                    for start, stop, there in target.read((first, end)):
                        self.pieces += 1
                        if not there:
                            return f"{where} {start}: rank {move.dst} has nothing to add chunk {start} to"
                        # a mask has a bit for each rank; a bit in both would count that rank's numbers twice
                        if both := there & mask:
                            twice = (both & -both).bit_length() - 1
                            return f"{where} {start}: the contribution of rank {twice} was added twice"
                        target.write(start, stop, there | mask)
                if before:
                    before.write(first, end, 1)
        return None

    def _why(self, number: int, chunk: int) -> str:
        """When the chunk would come; or the ranks that wait for it from each other."""
        moves = self.schedule.moves
        coming: dict[int, int] = {}  # by rank, its first message with the chunk from this step on
        for n in sorted(range(len(moves)), key=lambda n: moves[n].step):
            move = moves[n]
            if move.step >= moves[number].step and any(first <= chunk < end for first, end in runs(move.chunks)):
                coming.setdefault(move.dst, n)
        waits = [moves[number].src]
        while waits[-1] in coming:
            giver = moves[coming[waits[-1]]].src
            if giver in waits:
                ring = waits[waits.index(giver) :]
                return f"ranks {', '.join(map(str, sorted(ring)))} wait for it from each other, a deadlock"
            if self.held[giver].read((chunk, chunk + 1))[0][2]:
                break
            waits.append(giver)
        first = coming.get(moves[number].src)
        if first is None:
            return f"no message brings it to rank {moves[number].src}"
        return f"it comes in step {moves[first].step}, from rank {moves[first].src}"

    def _end(self) -> str | None:
        """The first chunk that does not end as the collective promises, and the first rank with it."""
        worst: tuple[int, int, int, int] | None = None
        for rank, wanted in self._wanted():
            for first, end, mask in wanted:
                if worst is not None and (first, rank) >= worst[:2]:
                    break
                wrong = next(((a, has) for a, _, has in self.held[rank].read((first, end)) if has != mask), None)
                if wrong and (worst is None or (wrong[0], rank) < worst[:2]):
                    worst = wrong[0], rank, mask, wrong[1]
        if worst is None:
            return None
        chunk, rank, mask, has = worst
        return (
            f"at the end rank {rank} should hold chunk {chunk} with the contributions of ranks {_named(mask)}; "
            f"it holds {_named(has)}"
        )


def _named(mask: int) -> str:
    """The ranks of a bit mask: a list, or their number if there are many."""
    count = mask.bit_count()
    if count > _MOST_NAMED:
        return f"{count} of them"
    found = []
    while mask:
        found.append((mask & -mask).bit_length() - 1)
        mask &= mask - 1
    return str(found)

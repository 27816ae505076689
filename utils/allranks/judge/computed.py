"""The weights that ranks computed their blocks with, compared with the true ones. A rank hands over what it got when it computes.

No rank is told what is right, so it can hand over the right weights only once they have come to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from allranks.judge.cases import Args, Blocks, plain
from allranks.judge.exercise import About, FaultKind, ResultFault, Run
from allranks.ranks.wire import record
from allranks.ranks.wire.buffers import holds_poison
from allranks.ranks.wire.state import Op
from allranks.ranks.wire.values import raw
from allranks.ranks.wire.wait import outermost
from allranks.theory.trace import Event

_ROUNDED = 0.05  # an error that rounding to bfloat16 may make, relative to the largest weight
_SURE = 3  # so many equal elements are no chance


def faults(run: Run) -> list[ResultFault]:
    """The first pass of each rank with wrong weights, in the first call that has any; of weights that lost digits only, none."""
    for call, args in enumerate(run.args):
        if found := [fault for rank in range(run.ranks) if (fault := _of_rank(run, call, rank, args)) is not None]:
            return found
    return []


def with_blocks(events: Sequence[Event], run: Run) -> tuple[Event, ...]:
    """The events with the block and the pass that a rank computes, where the exercise hands out blocks."""
    found, order = list(events), {}
    for rank, args in enumerate(run.args[0]):
        work = next((arg for arg in args if isinstance(arg, Blocks)), None)
        if work is not None:
            order[rank] = work.order
    for rank, turns in order.items():
        state = run.outcome.router.ranks[rank]
        pieces = {used.at: used.piece for used in state.used}
        entries = [at for at, (what, _, _) in enumerate(state.program) if what == "compute"]
        own = [i for i, e in enumerate(found) if e.op == "compute" and e.rank == rank]
        for i, at in zip(own, entries, strict=False):
            turn = pieces.get(at)
            if turn is not None and turn < len(turns):
                way = "forward" if turn < len(turns) // 2 else "backward"
                found[i] = replace(found[i], label=f"block {turns[turn]} {way}")
    return tuple(found)


def _of_rank(run: Run, call: int, rank: int, args: Sequence[Args]) -> ResultFault | None:
    work = next((arg for arg in args[rank] if isinstance(arg, Blocks)), None)
    if work is None:
        return None
    handed, passes = record.used(run.outcome.router, rank, call), len(work.order)
    for turn, block in enumerate(work.order):
        used = handed.get(turn)
        if used is None:
            words = f"rank {rank} computes {turn} times, but {passes // 2} blocks have 2 passes each, {passes} in all"
            return ResultFault(FaultKind.COMPUTED, rank, call, words)
        parts = [plain(own[0][block]) for own in args]
        right = torch.cat(parts)
        got = _read(used.data[:-1], right)
        if torch.equal(got, right) or _rounded(got, right):
            continue
        way = "forward" if turn < passes // 2 else "backward"
        if holds_poison(got):
            what = _too_early(
                run, record.collectives_before(run.outcome.router, rank, used), parts[rank], turn < passes // 2
            )
        else:
            what = _what(got, right, parts, args, block)
        words = f"rank {rank} computes block {block} {way}{run.at(used.line)} with weights that {what}"
        about = About(words, Event(rank, "compute", line=outermost(used.line)), kind="computes with wrong weights")
        return ResultFault(FaultKind.COMPUTED, rank, call, about)
    return None


def most_whole(run: Run, call: int, rank: int) -> list[tuple[int, int | None]]:
    """How many whole blocks were in the rank's memory at each pass, and the student's line of it."""
    handed = record.used(run.outcome.router, rank, call)
    return [(handed[turn].data[-1], handed[turn].line) for turn in sorted(handed)]


def _read(data: bytes, right: torch.Tensor) -> torch.Tensor:
    """What a rank handed over, as numbers; NaN if it is of another length, which our own code would not hand over."""
    if len(data) != right.numel() * right.element_size():
        return torch.full_like(right, float("nan"))
    return torch.frombuffer(bytearray(data), dtype=right.dtype)


def _rounded(got: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether the weights only lost digits: there is a rule on the dtype of messages, and the gradients show it."""
    return bool(((got - right).abs() <= _ROUNDED * right.abs().max()).all()) and not torch.equal(right, right.round())


def _too_early(run: Run, before: Sequence[tuple[Op, bool]], shard: torch.Tensor, forward: bool) -> str:
    """Why the weights are what an operation has still to fill. `before` has the rank's collectives, and whether each was waited for."""
    gathers = [(op, waited) for op, waited in before if op.name.startswith("all_gather")]
    pending = [op for op, waited in gathers if not waited]
    if not pending:
        return "were read before the wait() for their all_gather"
    of_block = [waited for op, waited in gathers if op.payload == bytes(raw(shard))]
    if not of_block or (not all(of_block) and not (forward and any(of_block))):
        return "have not arrived: wait() for their all_gather first"
    # a rank could tell which, but need not tell the truth
    again = f"a later all_gather{run.at(pending[-1].line)} fills the same memory"
    return f"are not there: probably {again}, or they were read before the wait() for theirs"


def _what(got: torch.Tensor, right: torch.Tensor, parts: list[torch.Tensor], args: Sequence[Args], block: int) -> str:
    """What the weights are instead of the block's own, as far as that can be read."""
    others = [b for b in range(len(args[0][0])) if b != block and len(right) >= _SURE]
    wholes = {b: torch.cat([plain(own[0][b]) for own in args]) for b in others}
    taken = next((b for b, whole in wholes.items() if torch.equal(whole, got)), None)
    if taken is not None:
        return f"are block {taken}'s"
    size, places = len(parts[0]), got.chunk(len(parts))
    wrong = [i for i, (a, b) in enumerate(zip(places, parts, strict=True)) if not torch.equal(a, b)]
    sames = {i: [r for r, part in enumerate(parts) if torch.equal(places[i], part)] for i in wrong}
    held = [f"place {i} holds rank {ranks[0]}'s shard" for i, ranks in sames.items() if len(ranks) == 1]
    if len(right) >= _SURE and len(held) == len(wrong):
        return f"are not its own: {', '.join(held[:3])}{' and so on' if len(held) > 3 else ''}"
    first = torch.nonzero(got != right).reshape(-1).tolist()
    if bool((got[first] == 0).all()):
        return f"are not its own: {_elements(first, len(right))} zero"
    if size > 1 and all(torch.equal(places[i].sort().values, parts[i].sort().values) for i in wrong):
        return (
            f"are not its own: place {wrong[0]} holds rank {wrong[0]}'s shard, but with its elements in another order"
        )
    if len(right) >= _SURE and torch.equal(got.sort().values, right.sort().values):
        return "are not its own: they are all there, but in another order"
    return f"are not its own: {_elements(first, len(right))} wrong"


def _elements(wrong: list[int], count: int) -> str:
    if len(wrong) == count:
        return "all of them are" if count > 1 else "it is"
    if len(wrong) == 1:
        return f"element {wrong[0]} is"
    if wrong[-1] - wrong[0] == len(wrong) - 1:
        return f"elements {wrong[0]} to {wrong[-1]} are"
    return f"{len(wrong)} of {count} elements, the first at index {wrong[0]}, are"

"""Rules on exercises in which ranks share memory: races, signals, and the bytes that moved.

Each function on a run returns how the run breaks the rule, without a full stop, or None.
"""

from __future__ import annotations

import torch

from allranks.base.errors import name_ranks
from allranks.judge import provenance
from allranks.judge.exercise import About, Rule, Run
from allranks.judge.rules import Needs, tensor_bytes
from allranks.ranks.wire import MemoryOp
from allranks.ranks.wire.memory_model import Access, Race

_DOES = {Access.PUT: "puts into", Access.GET: "gets"}


def race(run: Run) -> str | None:
    """Two ranks must not access an element, one of them with a put, unless fence, signal and wait order the two."""
    return _raced(run, run.outcome.races[0]) if run.outcome.races else None


def _raced(run: Run, found: Race) -> About:
    before, after = found.before, found.after
    what = f"element {found.element} of the memory of rank {found.owner}"
    if before is None:
        gets = f"rank {after.rank} gets {what}{run.at(after.line)}, into which"
        if run.failure is None and not _ever_put(run, found):
            return About(
                f"{gets} no rank ever puts anything: it is the wrong place, or more is got than was put", after
            )
        return About(f"a race: {gets} nobody has put anything{_signal_before(run, after)}", after)
    early = f"rank {before.rank} {_DOES[before.kind]} {what}{run.at(before.line)}"
    late = f"rank {after.rank} {_DOES[after.kind]} it{run.at(after.line)}"
    if found.signalled:
        why = "a signal stands between the two, but no fence between the put and the signal, so the signal may arrive first"
    elif before.kind is after.kind:
        why = "nothing says which of the two comes last"
    else:
        why = (
            "no signal says which of the two comes first: a get waits for a signal of the writer, and the next put for one of "
            "every reader"
        )
    return About(f"a race: {early}, {late}, and {why}", after)


def _ever_put(run: Run, found: Race) -> bool:
    """Whether some rank puts something into the element, early or late."""
    return any(
        op.kind is Access.PUT and op.peer == found.owner and op.offset <= found.element < op.offset + op.numel
        for op in run.outcome.accesses
    )


def _signal_before(run: Run, get: MemoryOp) -> str:
    """Which signal the rank waited for last before it got something, so that it shows if that was another one than it should be."""
    taken: dict[tuple[int, int], int] = {}
    last: MemoryOp | None = None
    for op in run.outcome.accesses:
        if op.rank != get.rank:
            continue
        if op.kind is Access.WAIT:
            last = op
            taken[op.peer, op.channel] = taken.get((op.peer, op.channel), 0) + 1
        elif (op.kind, op.peer, op.offset, op.numel, op.line, op.call) == (
            get.kind, get.peer, get.offset, get.numel, get.line, get.call,
        ):  # fmt: skip
            break
    if last is None:
        return ""
    given = [
        op
        for op in run.outcome.accesses
        if op.kind is Access.SIGNAL and (op.rank, op.peer, op.channel) == (last.peer, last.rank, last.channel)
    ]
    signal = given[taken[last.peer, last.channel] - 1]
    return (
        f"; its last wait before that{run.at(last.line)} took the signal that rank {signal.rank} gives{run.at(signal.line)} on channel "
        f"{signal.channel}"
    )


def cause(run: Run) -> str | None:
    """Why a run in a shared memory may have ended with wrong values.

    A signal that is left over from one call may let the next one race. A race within the first call has another cause.
    """
    first_call = [r for r in run.outcome.races if all(op.call == 0 for op in (r.before, r.after) if op is not None)]
    if not first_call:
        return signals_left(run) or race(run)
    for found in first_call:
        for left in run.outcome.signals_left:
            src, dst, _ = left
            if found.after.rank == dst and (found.before is None or found.before.rank == src):
                told = _raced(run, found)
                return About(f"{told}; {_never_awaited(*left)}, and a signal without a wait orders nothing", told.entry)
    return _raced(run, first_call[0])


def no_races(weight: float) -> Rule:
    """The rule that fence, signal and wait order all accesses, whatever the order of the puts."""
    return Rule("no races", weight, race)


def signals_left(run: Run) -> str | None:
    """Every signal must meet a wait: one that is left over would be taken for a signal of the next call."""
    left = run.outcome.signals_left
    if not left:
        return None
    they = "it" if left[0][2] == 1 else "them"
    return f"{_never_awaited(*left[0])}, so the next call takes {they} for its own: as many waits as signals"


def _never_awaited(src: int, dst: int, count: int) -> str:
    many = "a signal" if count == 1 else f"{count} signals"
    return f"rank {src} gives rank {dst} {many} for which rank {dst} never waits"


def signals_used_up(weight: float) -> Rule:
    """The rule that every signal meets a wait."""
    return Rule("as many waits as signals", weight, signals_left)


def incoming(run: Run, rank: int, call: int | None = None) -> int:
    """Bytes that came into a rank, by its gets and by the puts of others; of one call, or of all."""
    return sum(op.nbytes for op in _moves(run, call) if (op.rank if op.kind is Access.GET else op.peer) == rank)


def outgoing(run: Run, rank: int, call: int | None = None) -> int:
    """Bytes that left a rank, by its puts and by the gets of others; of one call, or of all."""
    return sum(op.nbytes for op in _moves(run, call) if (op.peer if op.kind is Access.GET else op.rank) == rank)


def _moves(run: Run, call: int | None) -> list[MemoryOp]:
    return [op for op in run.outcome.accesses if op.remote and (call is None or op.call == call)]


def moved_at_most(run: Run, limit: int, formula: str) -> str | None:
    """In one call at most so many bytes must come into each rank, and leave it."""
    for call in range(run.setup.times):
        for rank in range(run.ranks):
            for count, way in ((incoming, "come into"), (outgoing, "leave")):
                moved = count(run, rank, call)
                if moved > limit:
                    mine = [op for op in _moves(run, call) if rank in (op.rank, op.peer)]
                    worst = max(mine, key=lambda op: op.nbytes)
                    return About(
                        f"{moved} bytes {way} rank {rank}, but {formula} = {limit} are enough{run.at(worst.line)}",
                        worst,
                    )
    return None


def steps_at_most(run: Run, limit: int, formula: str, advice: str) -> str | None:
    """The longest chain of signals, each given after the wait for the one before, must not exceed the limit."""
    waits = [op for op in run.outcome.accesses if op.kind is Access.WAIT]
    if not waits:
        return None
    last = max(waits, key=lambda op: op.step)
    if last.step + 1 <= limit:
        return None
    return About(
        f"{last.step + 1} signals one after the other{run.at(last.line)}, but {formula} = {limit} are enough: {advice}",
        last,
    )


def carried(needs: Needs = tensor_bytes) -> Rule:
    """The rule that the data came through the memory: the least bytes that come into each rank, and leave it, in one call.

    With provenance values a rank can only put, and end with, what it had or got.
    """

    def breach(run: Run) -> str | None:
        for call in range(run.setup.times):
            for rank in range(run.ranks):
                needed = needs(run, call, rank)
                for count, way in ((incoming, "come into"), (outgoing, "leave")):
                    moved = count(run, rank, call)
                    if moved < needed:
                        return (
                            f"{moved} bytes {way} rank {rank} through the memory, but at least {needed} must: "
                            "only put and get carry data"
                        )
        return _unexplained(run)

    return Rule("carried by the memory", 1, breach, essential=True)


def _unexplained(run: Run) -> str | None:
    """With provenance values: a rank must have had, or got, every contribution that it puts or ends with."""
    if run.setup.values != "provenance":
        return None
    dtype = run.first_view.base.dtype
    known = [{(i, rank) for i in range(run.setup.size)} for rank in range(run.ranks)]
    for op in run.outcome.accesses:
        elements = provenance.carried_by(op, dtype) or ()
        carried = {(e.position, c) for e in elements for c in e.contributors}
        if op.kind is Access.PUT:
            strange = carried - known[op.rank]
            if strange and all(e.position is not None for e in elements):
                ranks = name_ranks(sorted({c for _, c in strange}))
                return About(f"rank {op.rank} puts elements of {ranks}{run.at(op.line)}, which it never got", op)
            known[op.peer] |= carried
        elif op.kind is Access.GET:
            known[op.rank] |= carried
    for rank, result in enumerate(run.results[0]):
        for value in _ends_with(run, rank) if result is not None else ():
            for element in provenance.read(value) or ():
                if any((element.position, c) not in known[rank] for c in element.contributors):
                    return f"rank {rank} ends with element {element.position} of ranks whose data never came to it through the memory"
    return None


def _ends_with(run: Run, rank: int) -> list[torch.Tensor]:
    wanted = run.expected[0][rank]
    found = [wanted.returns] if wanted.returns is not None else list(wanted.changed.values())
    return [value for value in found if isinstance(value, torch.Tensor)]

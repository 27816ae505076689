"""What a run's log says for or against a cause: who sent, who received, what the messages carried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch

from allranks.judge import provenance
from allranks.judge.cases import plain
from allranks.judge.exercise import About, Holds, Run
from allranks.ranks.wire import LogEntry
from allranks.ranks.wire.messages import OpKind
from allranks.ranks.wire.values import dtype_name


def received_by(run: Run, rank: int) -> list[LogEntry]:
    """The messages with something in them that the rank received point to point, as their senders sent them."""
    return [e for e in run.sends if e.peer == rank and e.match is not None and e.nbytes]


def received_before(run: Run, entry: LogEntry) -> list[LogEntry]:
    """Of `received_by`, what the sender of a message had received in the same call when it began to send."""
    times = run.message_times
    begun = times.get((entry.rank, entry.match)) if entry.match is not None else None
    if begun is None or begun.start is None:
        return []
    came = (
        (e, times.get((entry.rank, e.match)))
        for e in received_by(run, entry.rank)
        if e.call == entry.call and e.match is not None
    )
    return [e for e, ended in came if ended is not None and ended.end is not None and ended.end <= begun.start]


def brought(run: Run, call: int, rank: int) -> torch.Tensor | None:
    """All numbers that messages brought the rank in this call, or may have brought it; None if that can't be told, as of a sum."""
    mine = {e.match for e in run.operations(call, rank) if e.match is not None and e.kind is OpKind.COLLECTIVE}
    came = [e for e in received_by(run, rank) if e.call == call]
    came += [e for e in run.collectives if e.rank != rank and e.match in mine and e.nbytes]
    read = [provenance.numbers(e) for e in came]
    if (
        run.outcome.accesses
        or any(e.reduce_op is not None for e in came)
        or any(r is None or r.is_complex() for r in read)
    ):
        return None
    return torch.cat([torch.zeros(0, dtype=torch.float64), *(r.double() for r in read if r is not None)])


def rank_zero_sent(run: Run) -> bool:
    """Whether rank 0 sent, and every other rank received something."""
    others = range(1, run.ranks)
    return any(e.rank == 0 for e in run.sends) and all(received_by(run, rank) for rank in others)


def messages_at_most(count: Callable[[int], int]) -> Holds:
    """Whether no rank sent more than `count(p)` messages in a call."""

    def holds(run: Run) -> bool:
        sent = [sum(e.rank == rank for e in run.sends) for rank in range(run.ranks)]
        return max(sent, default=0) <= count(run.ranks) * run.setup.times

    return holds


def reduced_with(run: Run) -> set[str]:
    """The reduce operations of the run's collectives, such as {"SUM", "MAX"}."""
    return {str(e.reduce_op).rpartition(".")[2].upper() for e in run.collectives if e.reduce_op is not None}


def used(*operations: str) -> Holds:
    """Whether a collective of the run reduced with one of these."""
    return lambda run: not reduced_with(run).isdisjoint(operations)


def unused(*operations: str) -> Holds:
    """The opposite of `used`."""
    return lambda run: reduced_with(run).isdisjoint(operations)


def maxima_at_least(count: int) -> Holds:
    """Whether each rank reduced with MAX at least so often in a call."""

    def holds(run: Run) -> bool:
        found = [e for e in run.collectives if e.rank == 0 and "MAX" in str(e.reduce_op).upper()]
        return len(found) >= count * run.setup.times

    return holds


def narrower_dtype(run: Run, dtype: torch.dtype) -> LogEntry | None:
    """The first message whose dtype holds fewer digits than `dtype`, if there is one."""
    for entry in run.outcome.log:
        sent = getattr(torch, str(entry.dtype), None)
        if (
            isinstance(sent, torch.dtype)
            and entry.numel
            and entry.kind is not OpKind.RECV
            and _digits(sent) < _digits(dtype)
        ):
            return entry
    return None


def travelled_as(dtype: torch.dtype) -> Holds:
    """Whether some message with numbers in it had this dtype."""
    name = dtype_name(dtype)
    return lambda run: any(e.numel and str(e.dtype) == name for e in run.outcome.log if e.kind is not OpKind.RECV)


def _digits(dtype: torch.dtype) -> float:
    """How many bits of a number the dtype keeps."""
    if dtype.is_floating_point or dtype.is_complex:
        return -float(torch.log2(torch.tensor(torch.finfo(dtype).eps, dtype=torch.float64)))
    return 100.0  # whole numbers: counts and indices are no loss


def sends_unfilled(run: Run) -> str | None:
    """The first message of every rank holds only zeros, where its own tensor does not: its buffer was never filled."""
    first: dict[int, LogEntry] = {}
    for entry in run.sends:
        first.setdefault(entry.rank, entry)
    if len(first) < run.ranks:
        return None
    for rank, entry in first.items():
        sent, own = provenance.numbers(entry), plain(run.args[entry.call][rank][0])
        if sent is None or not entry.numel or bool(sent.any()):
            return None
        if not isinstance(own, torch.Tensor) or not bool(own.any()):
            return None
    entry = first[min(first)]
    words = f"every rank sends only zeros{run.at(entry.line)}: the buffer was never filled with its own data"
    return About(words, entry, kind="a buffer that was never filled is sent")


def too_few_steps(run: Run, wanted: int, what: str) -> str | None:
    """Every rank sends the same number of messages in a call, and fewer than a ring needs: in words, without a full stop.

    What is sent may be the fault instead: a ring of other steps is right as well, if its messages hold what they must.
    """
    if (unfilled := sends_unfilled(run)) is not None:
        return unfilled
    sent = {sum(e.rank == rank for e in run.sends) for rank in range(run.ranks)}
    count = sent.pop() / run.setup.times if len(sent) == 1 else wanted
    if not 0 < count < wanted or count != int(count):
        return None
    times = "message" if count == 1 else "messages"
    last = _last_of_the_short_loop(run, run.ranks - 1)
    loop = f"the loop ends too early{run.at(last.line)}" if last is not None else "a loop ends too early, or is missing"
    words = f"each rank sends {int(count)} {times}, but {wanted} are needed for {what}: {loop}"
    return About(words, last, kind="the loop ends too early")


def _last_of_the_short_loop(run: Run, steps: int) -> LogEntry | None:
    """The last message that rank 0 sends in the only line that sends too few of them; None if that is no line, or several."""
    mine = [e for e in run.sends if e.rank == 0 and e.call == 0]
    counts = Counter(e.line for e in mine)
    short = [line for line, count in counts.items() if line and count % steps]
    return next((e for e in reversed(mine) if e.line == short[0]), None) if len(short) == 1 else None

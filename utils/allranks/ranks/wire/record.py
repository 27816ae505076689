"""From the router's state to what the caller reads: the log, the virtual times and the trace."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from allranks.ranks.wire.dtypes import ITEMSIZES
from allranks.ranks.wire.memory_model import Access, MemoryOp
from allranks.ranks.wire.messages import FileWritten, LogEntry, OpKind
from allranks.ranks.wire.router import Router
from allranks.ranks.wire.state import Op, Used
from allranks.ranks.wire.wait import outermost
from allranks.theory.simulator.clock import Compute, Enter, Network, Recv, Send, Step, Timeline, Wait, replay
from allranks.theory.trace import Event, Trace

TextOf = Callable[[str | None, int | None], str | None]


def log(router: Router, rounds: Timeline, text_of: TextOf) -> list[LogEntry]:
    """The operations in order, see `in_order`."""
    ordered = in_order(router, rounds)
    match = matches(ordered)
    return [
        LogEntry(
            rank=op.rank,
            op=op.name,
            called=op.called,
            peer=op.peer,
            nbytes=op.nbytes,
            tag=op.tag,
            dtype=op.caller_dtype,
            numel=op.caller_numel,
            line=op.line,
            text=text_of(op.file, op.line),
            index=op.index,
            call=op.call,
            match=match[op.match] if joined(op) else None,
            received_nbytes=op.received_nbytes if op.complete else 0,
            waited=op.waited,
            reduce_op=op.reduce_op,
            group=op.group[1],
            file=op.file,
            payload=op.payload,
            kind=op.kind,
            splits=tuple(n * ITEMSIZES.get(op.dtype, 0) for n in op.inputs),
        )
        for op in ordered
    ]


def files(router: Router, text_of: TextOf) -> list[FileWritten]:
    """The files that ranks opened for writing, rank by rank."""
    ordered = sorted(router.written, key=lambda written: written[0])
    return [FileWritten(rank, path, line, text_of(file, line)) for rank, path, file, line in ordered]


def used(router: Router, rank: int, call: int) -> dict[int, Used]:
    """What this rank said that its pieces of work were done with in one call, by their number."""
    return {used.piece: used for used in router.ranks[rank].used if used.call == call}


def collectives_before(router: Router, rank: int, work: Used) -> list[tuple[Op, bool]]:
    """The collectives that the rank had launched in the call before this piece of work, and whether it had waited for each."""
    done = router.ranks[rank].program[: work.at]
    waited = {id(op) for what, op, _ in done if what == "wait"}
    posted = (op for what, op, _ in done if op is not None and what == "post" and op.call == work.call)
    return [(op, id(op) in waited) for op in posted if op.kind is OpKind.COLLECTIVE]


def joined(op: Op) -> bool:
    """Whether the operation met its partner, or all members of its collective, and what they said agreed."""
    return op.complete and op.match is not None and (op.partner is None or op.partner.complete)


def numbers(router: Router) -> dict[int, int]:
    """The message number of each operation, by its identity: that of the match, or a fresh one."""
    fresh, found = router.matches, {}
    for op in router.log:
        if joined(op):
            found[id(op)] = op.match
        else:
            found[id(op)], fresh = fresh, fresh + 1
    return found


def matches(ordered: list[Op]) -> dict[int, int]:
    """The number that the reader sees for each match: counted in the order of the log."""
    seen: dict[int, int] = {}
    for op in ordered:
        if joined(op):
            seen.setdefault(op.match, len(seen))
    return seen


def timeline(router: Router, fabric: Network, computing: bool = True) -> Timeline:
    """When each message was under way on `fabric`; without `computing`, what ranks compute takes no time."""
    return replay(programs(router, computing), fabric, buffered=router.delivery == "buffered")


def programs(router: Router, computing: bool = True) -> list[list[Step]]:
    """What each rank did, for the clock; without `computing`, what ranks compute takes no time."""
    number = numbers(router)
    return [
        [
            Compute(state.work[at] if computing else 0) if op is None else _step(what, op, number[id(op)])
            for at, (what, op, _) in enumerate(state.program)
        ]
        for state in router.ranks
    ]


def _step(what: str, op: Op, message: int) -> Step:
    if what == "wait":
        return Wait(message, sent=op.kind is OpKind.SEND)
    if op.kind is OpKind.SEND:
        return Send(message, op.peer, op.nbytes)
    if op.kind is OpKind.RECV:
        return Recv(message, op.peer)
    return Enter(message, op.collective, op.group[1], op.nbytes)


def _moved(access: MemoryOp, match: int) -> list[Event]:
    """A put or a get as a message, between the ranks whose memory it is; its step counts the signals that came before it."""
    source, target = (access.rank, access.peer) if access.kind is Access.PUT else (access.peer, access.rank)
    line = outermost(access.line)
    return [
        Event(source, "send", target, nbytes=access.nbytes, step=access.step, line=line, match=match),
        Event(target, "recv", source, nbytes=access.nbytes, step=access.step, line=line, match=match),
    ]


def in_order(router: Router, rounds: Timeline) -> list[Op]:
    """The operations by the round in which they happened, sends first, then by rank: one order in every run."""
    number = numbers(router)
    never = (float("inf"),)
    return sorted(
        router.log,
        key=lambda op: (rounds.spans.get(number[id(op)], never)[0], op.kind is OpKind.RECV, op.rank, op.index),
    )


def _is_one_call(before: tuple, after: tuple) -> bool:
    """Whether two entries of a program are a collective and the wait for it, with nothing in between."""
    return before[0] == "post" and after[0] == "wait" and before[1] is after[1] and after[1].kind is OpKind.COLLECTIVE


def _of_collective(op: Op, groups: dict[tuple, str]) -> dict[str, Any]:
    """What an event of a collective has besides."""
    got = op.received_nbytes if op.complete else 0
    return {"label": op.called, "group": groups[op.group], "seq": op.sequence, "received_nbytes": got}


def trace(router: Router, times: Timeline, rounds: Timeline, meta: dict) -> Trace:
    """The run as a trace. `step` is the round in which a message would start if every message took one round; a run in which
    ranks compute has times only."""
    number, events = numbers(router), []
    ordered = in_order(router, rounds)
    groups: dict[tuple, str] = {}
    for op in ordered:
        if op.kind is OpKind.COLLECTIVE:
            groups.setdefault(op.group, str(len(groups)))
    waited = {
        id(after[1])
        for state in router.ranks
        for before, after in pairwise(state.program)
        if _is_one_call(before, after)
    }
    match = matches(ordered)
    for op in ordered:
        start, end = times.spans.get(number[id(op)], (None, None))
        step = None if times.work else rounds.spans.get(number[id(op)], (None,))[0]
        p2p = op.kind is not OpKind.COLLECTIVE
        events.append(
            Event(
                rank=op.rank,
                op=op.kind if p2p else op.name,
                peer=op.partner.rank if op.partner is not None else op.peer,
                nbytes=op.nbytes,
                step=None if step is None else int(step),
                start=None if start is None else float(start),
                end=None if end is None else float(end),
                line=outermost(op.line),
                match=match[op.match] if p2p and joined(op) else None,
                tag=op.tag,
                **({} if p2p else _of_collective(op, groups) | {"blocking": id(op) in waited}),
            )
        )
    for access_number, access in enumerate(router.memory.done if router.memory is not None else ()):
        if access.remote:
            events += _moved(access, access_number)
    for idle in times.idle:
        _, op, line = router.ranks[idle.rank].program[idle.index]
        if op is None:
            continue  # computing is no idling
        peer = op.partner.rank if op.partner is not None else op.peer
        of: dict[str, Any] = {} if op.kind is not OpKind.COLLECTIVE else {"group": groups[op.group], "seq": op.sequence}
        events.append(Event(idle.rank, "wait", peer, start=float(idle.start), end=float(idle.end), line=line, **of))
    for work in times.work:
        line = outermost(router.ranks[work.rank].lines.get(work.index))
        events.append(Event(work.rank, "compute", start=float(work.start), end=float(work.end), line=line))
    events.sort(key=lambda e: (e.start is None, e.start or 0.0))
    dtypes = {op.caller_dtype for op in router.log if op.dtype}
    return Trace(
        kind="wire",
        ranks=router.size,
        events=tuple(events),
        dtype=dtypes.pop() if len(dtypes) == 1 else None,
        clock="virtual",
        source="wire",
        meta={"delivery": router.delivery, **meta},
    )

"""Why the run ended as it did, in the student's words: which rank, which operation, which line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from allranks.base.errors import capital, counted, name_ranks
from allranks.ranks.engines.alone import PACKAGE
from allranks.ranks.wire import collectives
from allranks.ranks.wire.deadlock import awaited, find_deadlock, unmet, waits, with_other_tag
from allranks.ranks.wire.failures import Failure, FailureKind
from allranks.ranks.wire.messages import OpKind
from allranks.ranks.wire.router import Router
from allranks.ranks.wire.state import Op, WireFault
from allranks.ranks.wire.student_code import Lines

_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\U0010ffff]+")  # nor half a character (surrogates)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_STALLS = (FailureKind.DEADLOCK, FailureKind.LEFT_EARLY, FailureKind.DESYNC, FailureKind.UNMATCHED)
_FUNCTION = "the function"
# names that cells of %%ranks have, and what a function writes for them
_GIVEN = {"rank": "dist.get_rank()", "world_size": "dist.get_world_size()", "device": "tensor.device"}


def clean(text: str) -> str:
    """Text of a rank as one printable line."""
    return _ADDRESS.sub("", _UNPRINTABLE.sub(" ", text)).replace("<__main__.", "<").strip()


def _ended(said: str) -> str:
    """The text with one full stop, whatever ended what is told in it."""
    return said if said.endswith(("?", "!")) else f"{said.rstrip('. ')}."


def verdict(router: Router, lines: Lines, limits: dict) -> Failure | None:
    """The failure of a run that is over, or None if all went well."""
    fault = router.first_fault()
    if fault is not None:
        failure = _of_fault(router, fault, lines, limits)
    elif router.stuck():
        failure = find_deadlock(router, lines)
    else:
        failure = _of_leftovers(router, lines)
    if failure is None or failure.rank is None:
        return failure
    state = router.ranks[failure.rank]
    on = state.on if failure.op is None else None
    op, called = (on.name, on.called) if on is not None else (failure.op, failure.called)
    left = unmet(router, lines) if failure.kind in _STALLS else ()
    return replace(failure, op=op, called=called, call=state.call if failure.call is None else failure.call, unmet=left)


# --------------------------------------------------------------------------------------------- faults of one rank


def _of_fault(router: Router, fault: WireFault, lines: Lines, limits: dict) -> Failure:
    op = fault.ops[0] if fault.ops else None
    file, line = fault.file, fault.line
    if line is None and op is not None:
        file, line = op.file, op.line
    message = (
        _SENTENCES[fault.kind](router, fault, lines, lines.at(line), limits)
        if fault.kind in _SENTENCES
        else fault.message
    )
    return Failure(
        kind=fault.kind,
        message=message,
        rank=fault.rank,
        line=line,
        source_line=lines.text(file, line),
        step=fault.step,
        waits=waits(router, lines),
        error=fault.error,
        error_text=clean(fault.message) if fault.error else "",
        missing_name=fault.missing_name,
        misuse=fault.misuse,
        rule=fault.rule,
        op=op.name if op is not None else None,
        called=op.called if op is not None else None,
        between=_between(fault),
        numels=_numels(fault),
        empty_end=len({bool(op.numel) for op in fault.ops}) == 2,
    )


def _between(fault: WireFault) -> tuple[int, int, str, str] | None:
    """The two ends of a message that don't fit, and how much each of them says it is."""
    if fault.kind not in (FailureKind.SIZE_MISMATCH, FailureKind.DTYPE_MISMATCH) or len(fault.ops) != 2:
        return None
    send, recv = fault.ops
    if send.kind is not OpKind.SEND:
        return None
    return send.rank, recv.rank, _amount(send), _amount(recv)


def _numels(fault: WireFault) -> tuple[int, int] | None:
    """How many elements the two ends of a message have, where that differs."""
    if _between(fault) is None or fault.kind is not FailureKind.SIZE_MISMATCH:
        return None
    send, recv = fault.ops
    return send.caller_numel, recv.caller_numel


def _raised(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    text = clean(fault.message)
    said = _ended(f"Rank {fault.rank}{place} raised {fault.error}{': ' + text if text else ''}")
    instead = _GIVEN.get(fault.missing_name or "")
    return f"{said} Cells of %%ranks have that name; a function asks for it: {instead}." if instead else said


def _broke_rule(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    said = f"Rank {fault.rank}{place}: {clean(fault.message)}"
    if not fault.ops or fault.ops[0].line in (None, fault.line):
        return said
    return f"{said} The {fault.ops[0].called} was begun in {lines.place(fault.ops[0].line)}."


def _exited(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    return f"Rank {fault.rank}{place} ended the process ({clean(fault.message) or 'exit'}). Return from {_FUNCTION} instead."


def _forbidden(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    op = fault.ops[0]
    if "object" in op.name:
        return f"Rank {fault.rank}{place} called {clean(op.name)}, which pickles Python objects; the wire passes tensors only."
    allowed = ", ".join(sorted(router.rules.allow or ())) or "nothing"
    return f"Rank {fault.rank}{place} called {op.called}, which is not allowed here. Allowed: {allowed}."


def _forbidden_peer(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    op = fault.ops[0]
    to = "sent to" if op.kind is OpKind.SEND else "received from"
    if router.rules.peers == "ring":
        p = router.size
        left, right = (op.rank - 1) % p, (op.rank + 1) % p
        return (
            f"Rank {op.rank}{place} {to} rank {op.peer}; on the ring its neighbours are rank {left} and rank {right}."
        )
    return f"Rank {op.rank}{place} {to} rank {op.peer}, which is not allowed here."


def _mismatch(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    if not fault.ops:
        return _ended(f"Rank {fault.rank}{place}: {fault.message}")
    first = fault.ops[0]
    if first.kind is OpKind.COLLECTIVE:
        return _disagree(fault, lines)
    send, recv = fault.ops
    return (
        f"Rank {send.rank} sent {_amount(send)} to rank {recv.rank} ({send.name}{lines.at(send.line)}), "
        f"but rank {recv.rank} expected {_amount(recv)} ({recv.name}{lines.at(recv.line)})."
    )


def _amount(op: Op) -> str:
    return counted(op.caller_numel, f"{op.caller_dtype} element")


def _disagree(fault: WireFault, lines: Lines) -> str:
    if fault.message:
        op = next(o for o in fault.ops if o.rank == fault.rank)
        return _ended(f"Rank {op.rank} in {op.called}{lines.at(op.line)}: {fault.message}")
    said: dict[str, list[Op]] = {}
    for op in fault.ops:
        said.setdefault(f"{collectives.describe(op)}{lines.at(op.line)}", []).append(op)
    parts = [f"{name_ranks([o.rank for o in ops])} called {text}" for text, ops in said.items()]
    return f"The ranks disagree: {'; '.join(parts)}. Every rank must make the same call."


def _changed(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    op = fault.ops[0] if fault.ops else None
    if op is None:
        return f"Rank {fault.rank} changed a buffer before wait()."
    by = fault.ops[1] if len(fault.ops) > 1 else None
    if fault.filled:
        return _used_too_early(op, by, lines, place)
    whom = f" to rank {op.peer}" if op.kind is OpKind.SEND else ""
    if by is not None:
        return (
            f"Rank {op.rank}'s {by.called}{lines.at(by.line)} writes into the buffer of its {op.called}{whom}{lines.at(op.line)} before the "
            "wait() of that: the other side may get either value. Receive into a buffer of its own."
        )
    return (
        f"Rank {op.rank} changed the buffer of {op.called}{whom}{lines.at(op.line)} before its wait(){place}: "
        "the other side may get either value. Wait first, or send a copy."
    )


def _used_too_early(op: Op, by: Op | None, lines: Lines, place: str) -> str:
    """What an operation fills was written, or passed to another operation, before its wait()."""
    first = f"{op.called}{_whence(op)}{lines.at(op.line)}"
    if by is None:
        return (
            f"Rank {op.rank} wrote into the tensor that its {first} fills, before its wait(){place}: "
            "the data may arrive before that or after it, so either may be lost. Wait first."
        )
    to = f" to rank {by.peer}" if by.kind is OpKind.SEND else _whence(by)
    uses = "receives into" if by.kind is OpKind.RECV else "sends" if by.kind is OpKind.SEND else "uses"
    harm, mend = "the data may not have arrived yet", "Wait first."
    if by.kind is OpKind.RECV:
        harm, mend = "both would fill it", "Give each a tensor of its own, or wait and use what came first."
    return (
        f"Rank {op.rank}'s {by.called}{to}{lines.at(by.line)} {uses} the tensor that its {first} fills, "
        f"before the wait() of that: {harm}. {mend}"
    )


def _whence(op: Op) -> str:
    if op.kind is not OpKind.RECV:
        return ""
    return " from any rank" if op.peer is None else f" from rank {op.peer}"


def _limit_of_cpu(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    if fault.ops:
        return f"Rank {fault.rank}{place}: {clean(fault.message)}"
    return f"Rank {fault.rank}{place} computed for more than {limits['cpu_s']:g} s: an endless loop?"


def _limit_of_wall(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    said = f"Rank {fault.rank}{place} had not ended after {limits['wall_s']:g} s"
    # on a busy machine an endless loop may not get the processor time of its own limit
    busy = fault.computed_s is not None and fault.computed_s >= 0.2
    return f"{said}, of which it computed for {fault.computed_s:.1f} s: an endless loop?" if busy else f"{said}."


def _limit_of_memory(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    if fault.ops:
        return f"Rank {fault.rank}{place}: {clean(fault.message)}"
    return f"Rank {fault.rank}{place} asked for more than {limits['memory_bytes'] / 1e6:.0f} MB of memory."


def _output(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    return f"Rank {fault.rank} printed more than {limits['output_limit'] / 1e6:.1f} MB. Print less."


def _not_imported(router: Router, fault: WireFault, lines: Lines, place: str, limits: dict) -> str:
    if fault.missing_name is None:
        return f"The program could not be imported{place}: {clean(fault.message)}."
    here = f" in {lines.place(fault.line)}" if fault.line else ""
    if fault.missing_name == PACKAGE:
        return f"The program imports the course's own package{here}, which is not there when an answer is checked."
    return (
        f"The program needs the package {fault.missing_name}{here}, which is not installed where answers are checked. "
        "If it is a file of yours, put what you use of it into this one: only one file is handed in."
    )


_SENTENCES: dict[FailureKind, Callable[[Router, WireFault, Lines, str, dict], str]] = {
    FailureKind.EXCEPTION: _raised,
    FailureKind.EXITED: _exited,
    FailureKind.NCCL_RULE: _broke_rule,
    FailureKind.FORBIDDEN_OP: _forbidden,
    FailureKind.FORBIDDEN_PEER: _forbidden_peer,
    FailureKind.SIZE_MISMATCH: _mismatch,
    FailureKind.DTYPE_MISMATCH: _mismatch,
    FailureKind.DESYNC: _mismatch,
    FailureKind.CHANGED_BEFORE_WAIT: _changed,
    FailureKind.CPU_LIMIT: _limit_of_cpu,
    FailureKind.WALL_LIMIT: _limit_of_wall,
    FailureKind.MEMORY: _limit_of_memory,
    FailureKind.OUTPUT: _output,
    FailureKind.KILLED: lambda router, fault, lines, place, limits: _ended(f"Rank {fault.rank} {clean(fault.message)}"),
    FailureKind.FORKED: lambda router, fault, lines, place, limits: (
        f"Rank {fault.rank}{place} tried to start another process; a rank works alone."
    ),
    FailureKind.THREAD: lambda router, fault, lines, place, limits: (
        f"Rank {fault.rank}{place} calls torch.distributed in a thread of its own: only the main thread may. "
        "Call it there; isend, irecv and async_op=True return at once."
    ),
    FailureKind.IMPORT: _not_imported,
    FailureKind.SYNTAX: lambda router, fault, lines, place, limits: _ended(
        f"The program does not parse{place}: {clean(fault.message)}"
    ),
    FailureKind.NO_FUNCTION: lambda router, fault, lines, place, limits: _ended(capital(clean(fault.message))),
    FailureKind.BAD_RESULT: lambda router, fault, lines, place, limits: _ended(
        f"Rank {fault.rank} returned what can't pass: {clean(fault.message)}"
    ),
}


# ---------------------------------------------------------------------------------------------------- leftovers


def _of_leftovers(router: Router, lines: Lines) -> Failure | None:
    left = [op for op in router.log if op.partner is None and op.kind is not OpKind.COLLECTIVE]
    if left:
        op = min(left, key=lambda o: (o.kind is not OpKind.SEND, o.index, o.rank))
        if op.kind is OpKind.SEND:
            message = f"Rank {op.rank} sent {_amount(op)} to rank {op.peer} ({op.called}{lines.at(op.line)}), and nobody received it."
        else:
            source = "any rank" if op.peer is None else f"rank {op.peer}"
            message = f"Rank {op.rank} asked for {_amount(op)} from {source} ({op.called}{lines.at(op.line)}), and nobody sent it."
        return _leftover(FailureKind.UNMATCHED, op, with_other_tag(message, router, op), lines)
    unwaited = [op for op in router.log if not op.waited]
    if not unwaited:
        return None
    op = min(unwaited, key=lambda o: (o.index, o.rank))
    if op.kind is OpKind.COLLECTIVE and not op.complete:
        missing = awaited(router, op)
        message = f"Rank {op.rank} called {op.called}{lines.at(op.line)}, but {name_ranks(list(missing))} never did."
        return _leftover(FailureKind.DESYNC, op, message, lines)
    why = "until then its data has not arrived" if op.kind is OpKind.RECV else "until then its buffer is still in use"
    message = f"Rank {op.rank} never waited for its {op.called}{lines.at(op.line)}: call wait() on what it returns, since {why}."
    return _leftover(FailureKind.NEVER_WAITED, op, message, lines)


def _leftover(kind: FailureKind, op: Op, message: str, lines: Lines) -> Failure:
    return Failure(
        kind,
        message,
        op.rank,
        op.line,
        lines.text(op.file, op.line),
        op.index,
        op=op.name,
        called=op.called,
        call=op.call,
    )

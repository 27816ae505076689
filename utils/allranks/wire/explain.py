"""Why the run ended as it did, in the student's words: which rank, which operation, which line."""

from __future__ import annotations

import re
from dataclasses import replace

from allranks.wire import collectives
from allranks.wire.deadlock import awaited, capital, find_deadlock, name_ranks, other_tag, waits
from allranks.wire.failures import Failure, FailureKind
from allranks.wire.record import TextOf
from allranks.wire.router import Router
from allranks.wire.state import Op, WireFault
from allranks.wire.wait import at

_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\U0010ffff]+")  # nor half a character (surrogates)
_FUNCTION = "the function"
# names that cells of %%ranks have, and what a function writes for them
_GIVEN = {"rank": "dist.get_rank()", "world_size": "dist.get_world_size()", "device": "tensor.device"}


def clean(text: str) -> str:
    """Text of a rank as one printable line."""
    return _UNPRINTABLE.sub(" ", text).strip()


def verdict(router: Router, text_of: TextOf, limits: dict) -> Failure | None:
    """The failure of a run that is over, or None where all went well."""
    fault = router.first_fault()
    if fault is not None:
        failure = _of_fault(router, fault, text_of, limits)
    elif router.stuck():
        failure = find_deadlock(router, text_of)
    else:
        failure = _of_leftovers(router, text_of)
    if failure is None or failure.rank is None:
        return failure
    state = router.ranks[failure.rank]
    op = state.on.name if failure.op is None and state.on is not None else failure.op
    return replace(failure, op=op, call=state.call if failure.call is None else failure.call)


# --------------------------------------------------------------------------------------------- faults of one rank


def _of_fault(router: Router, fault: WireFault, text_of: TextOf, limits: dict) -> Failure:
    op = fault.ops[0] if fault.ops else None
    file, line = fault.file, fault.line
    if line is None and op is not None:
        file, line = op.file, op.line
    message = _SENTENCES[fault.kind](router, fault, at(line), limits) if fault.kind in _SENTENCES else fault.message
    return Failure(
        kind=FailureKind[fault.kind] if fault.kind in FailureKind.__members__ else FailureKind.KILLED,
        message=message,
        rank=fault.rank,
        line=line,
        source_line=text_of(file, line),
        step=fault.step,
        waits=waits(router, text_of),
        error=fault.error,
        op=op.name if op is not None else None,
    )


def _raised(router: Router, fault: WireFault, place: str, limits: dict) -> str:
    text = clean(fault.message).rstrip(".")
    said = f"Rank {fault.rank}{place} raised {fault.error}{': ' + text if text else ''}."
    missing = _GIVEN.get(text.partition("'")[2].partition("'")[0]) if fault.error == "NameError" else None
    return f"{said} Cells of %%ranks have that name; a function asks for it: {missing}." if missing else said


def _exited(router: Router, fault: WireFault, place: str, limits: dict) -> str:
    return f"Rank {fault.rank}{place} ended the process ({clean(fault.message) or 'exit'}). Return from {_FUNCTION} instead."


def _forbidden(router: Router, fault: WireFault, place: str, limits: dict) -> str:
    op = fault.ops[0]
    if "object" in op.name:
        return f"Rank {fault.rank}{place} called {clean(op.name)}, which pickles Python objects; the wire passes tensors only."
    allowed = ", ".join(sorted(router.rules.allow or ())) or "nothing"
    return f"Rank {fault.rank}{place} called {op.name}, which is not allowed here. Allowed: {allowed}."


def _forbidden_peer(router: Router, fault: WireFault, place: str, limits: dict) -> str:
    op = fault.ops[0]
    to = "sent to" if op.kind == "send" else "received from"
    if router.rules.peers == "ring":
        p = router.size
        left, right = (op.rank - 1) % p, (op.rank + 1) % p
        return (
            f"Rank {op.rank}{place} {to} rank {op.peer}; on the ring its neighbours are rank {left} and rank {right}."
        )
    return f"Rank {op.rank}{place} {to} rank {op.peer}, which is not allowed here."


def _mismatch(router: Router, fault: WireFault, place: str, limits: dict) -> str:
    if not fault.ops:
        return f"Rank {fault.rank}{place}: {fault.message}."
    first = fault.ops[0]
    if first.kind == "collective":
        return _disagree(fault)
    send, recv = fault.ops
    return (
        f"Rank {send.rank} sent {_amount(send)} to rank {recv.rank} ({send.name}{at(send.line)}), "
        f"but rank {recv.rank} expected {_amount(recv)} ({recv.name}{at(recv.line)})."
    )


def _amount(op: Op) -> str:
    return f"{op.caller_numel} {op.caller_dtype} element{'' if op.caller_numel == 1 else 's'}"


def _disagree(fault: WireFault) -> str:
    if fault.message:
        op = next(o for o in fault.ops if o.rank == fault.rank)
        return f"Rank {op.rank} in {op.name}{at(op.line)}: {fault.message}"
    said: dict[str, list[Op]] = {}
    for op in fault.ops:
        said.setdefault(f"{collectives.describe(op)}{at(op.line)}", []).append(op)
    parts = [f"{name_ranks([o.rank for o in ops])} called {text}" for text, ops in said.items()]
    return f"The ranks disagree: {'; '.join(parts)}. Every rank must make the same call."


def _changed(router: Router, fault: WireFault, place: str, limits: dict) -> str:
    op = fault.ops[0] if fault.ops else None
    if op is None:
        return f"Rank {fault.rank} changed a buffer before wait()."
    whom = f" to rank {op.peer}" if op.kind == "send" else ""
    if len(fault.ops) > 1 and op.kind == "send":
        by = fault.ops[1]
        return (
            f"Rank {op.rank}'s {by.name}{at(by.line)} wrote into the buffer of its {op.name}{whom}{at(op.line)} before the "
            f"wait(){place}: the other side may get either value. Receive into a buffer of its own."
        )
    return (
        f"Rank {op.rank} changed the buffer of {op.name}{whom}{at(op.line)} before its wait(){place}: "
        "the other side may get either value. Wait first, or send a copy."
    )


def _limit_of_cpu(router: Router, fault: WireFault, place: str, limits: dict) -> str:
    if fault.ops:
        return f"Rank {fault.rank}{place}: {clean(fault.message)}"
    return f"Rank {fault.rank}{place} computed for more than {limits['cpu_s']:g} s: an endless loop?"


def _limit_of_wall(router: Router, fault: WireFault, place: str, limits: dict) -> str:
    said = f"Rank {fault.rank}{place} had not ended after {limits['wall_s']:g} s"
    # on a busy machine an endless loop may not get the processor time of its own limit
    busy = re.fullmatch(r"\d{1,4}\.\d", fault.message or "") and float(fault.message) >= 0.2
    return f"{said}, of which it computed for {fault.message} s: an endless loop?" if busy else f"{said}."


def _limit_of_memory(router: Router, fault: WireFault, place: str, limits: dict) -> str:
    if fault.ops:
        return f"Rank {fault.rank}{place}: {clean(fault.message)}"
    return f"Rank {fault.rank}{place} asked for more than {limits['memory_bytes'] / 1e6:.0f} MB of memory."


def _output(router: Router, fault: WireFault, place: str, limits: dict) -> str:
    return f"Rank {fault.rank} printed more than {limits['output_limit'] / 1e6:.1f} MB. Print less."


_SENTENCES = {
    "EXCEPTION": _raised,
    "EXITED": _exited,
    "FORBIDDEN_OP": _forbidden,
    "FORBIDDEN_PEER": _forbidden_peer,
    "SIZE_MISMATCH": _mismatch,
    "DTYPE_MISMATCH": _mismatch,
    "DESYNC": _mismatch,
    "CHANGED_BEFORE_WAIT": _changed,
    "CPU_LIMIT": _limit_of_cpu,
    "WALL_LIMIT": _limit_of_wall,
    "MEMORY": _limit_of_memory,
    "OUTPUT": _output,
    "KILLED": lambda router, fault, place, limits: f"Rank {fault.rank} {clean(fault.message)}.",
    "FORKED": lambda router, fault, place, limits: (
        f"Rank {fault.rank}{place} tried to start another process; a rank works alone."
    ),
    "IMPORT": lambda router, fault, place, limits: f"The program could not be imported{place}: {clean(fault.message)}.",
    "SYNTAX": lambda router, fault, place, limits: f"The program does not parse: {clean(fault.message)}.",
    "NO_FUNCTION": lambda router, fault, place, limits: f"{capital(clean(fault.message))}.",
    "BAD_RESULT": lambda router, fault, place, limits: (
        f"Rank {fault.rank} returned what can't pass: {clean(fault.message)}."
    ),
}


# ---------------------------------------------------------------------------------------------------- leftovers


def _of_leftovers(router: Router, text_of: TextOf) -> Failure | None:
    left = [op for op in router.log if op.partner is None and op.kind != "collective"]
    if left:
        op = min(left, key=lambda o: (o.kind != "send", o.index, o.rank))
        if op.kind == "send":
            message = (
                f"Rank {op.rank} sent {_amount(op)} to rank {op.peer} ({op.name}{at(op.line)}), and nobody received it."
            )
        else:
            source = "any rank" if op.peer is None else f"rank {op.peer}"
            message = (
                f"Rank {op.rank} asked for {_amount(op)} from {source} ({op.name}{at(op.line)}), and nobody sent it."
            )
        hint = other_tag(router, [op])
        return _leftover(FailureKind.UNMATCHED, op, f"{message} {hint}" if hint else message, text_of)
    unwaited = [op for op in router.log if not op.waited]
    if not unwaited:
        return None
    op = min(unwaited, key=lambda o: (o.index, o.rank))
    if op.kind == "collective" and not op.complete:
        missing = awaited(router, op)
        message = f"Rank {op.rank} called {op.name}{at(op.line)}, but {name_ranks(list(missing))} never did."
        return _leftover(FailureKind.DESYNC, op, message, text_of)
    why = "until then its data has not arrived" if op.kind == "recv" else "until then its buffer is still in use"
    message = (
        f"Rank {op.rank} never waited for its {op.name}{at(op.line)}: call wait() on what it returns, since {why}."
    )
    return _leftover(FailureKind.NEVER_WAITED, op, message, text_of)


def _leftover(kind: FailureKind, op: Op, message: str, text_of: TextOf) -> Failure:
    return Failure(kind, message, op.rank, op.line, text_of(op.file, op.line), op.index, op=op.name, call=op.call)

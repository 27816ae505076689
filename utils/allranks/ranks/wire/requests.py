"""Checks what a rank says and turns it into operations and faults; the router trusts nothing else of it.

Each function takes a request as it came (see `frames.py`) and raises CodecError, or an error of MALFORMED, if it is none
that our own code writes.
"""

from __future__ import annotations

import functools
from typing import Any

from allranks.ranks.wire.body import Body, CodecError
from allranks.ranks.wire.dtypes import ITEMSIZES
from allranks.ranks.wire.failures import FailureKind, Misuse
from allranks.ranks.wire.memory_model import Access, MemoryModel, MemoryOp
from allranks.ranks.wire.messages import COLLECTIVES, OpKind
from allranks.ranks.wire.state import Op, RankState, WireFault
from allranks.ranks.wire.wait import InnerLine

FILE_NCHARS = 500
MALFORMED = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RuntimeError,  # a RecursionError among them, and torch's, of tensors that can't be what they are said to be
    MemoryError,
)
_OWN_FAULTS = {  # what a rank may report of itself; the router finds all others
    FailureKind.CHANGED_BEFORE_WAIT,
    FailureKind.CPU_LIMIT,
    FailureKind.WALL_LIMIT,
    FailureKind.MEMORY,
    FailureKind.FORKED,
    FailureKind.THREAD,
    FailureKind.EXCEPTION,
    FailureKind.NCCL_RULE,
    FailureKind.EXITED,
    FailureKind.BAD_RESULT,
    FailureKind.SYNTAX,
    FailureKind.IMPORT,
    FailureKind.NO_FUNCTION,
}
_MOST_PIECES = 1_000_000  # of work, asked for at once
_LONGEST_S = 1e9  # of virtual time, to compute once


def read_operation(op: dict, rank: int, state: RankState, file: str | None, line: int | None) -> Op:
    """A new operation of the rank, at the place that `read_place` says, without its payload."""
    group = state.groups[str(op["group"])]
    kind, name = OpKind(op["do"]), str(op["name"])[:40]
    known = Op(rank, int(op["number"]), len(state.ops), state.call, kind, name, group, file, line)
    if op.get("batch") is not None:
        known.batch = _size(op["batch"])
    if known.number in state.ops:
        raise CodecError("an operation's number is used twice")
    known.dtype, known.pairs = op.get("dtype"), bool(op.get("pairs"))
    if known.dtype is not None and known.dtype not in ITEMSIZES:
        raise CodecError("a dtype is unknown")
    item = ITEMSIZES.get(known.dtype, 0)
    if known.kind is OpKind.COLLECTIVE:
        known.collective, known.reduce_op = str(op["collective"]), op.get("reduce_op")
        if known.collective not in COLLECTIVES:  # the rules look at `name`, by which it was called
            raise CodecError("a collective is unknown")
        known.inputs = tuple(_size(c) for c in op["inputs"])
        known.outputs = tuple(_size(c) for c in op["outputs"])
        known.numel = sum(known.inputs)
        known.said = str(op.get("called", ""))[:40]
        known.root = None if op.get("root") is None else group[1][group[1].index(op["root"])]
        known.peer = known.root
        known.received_nbytes = sum(known.outputs) * item
    else:
        known.numel, known.tag = _size(op["numel"]), int(op["tag"])
        known.peer = None if op["peer"] is None else group[1][group[1].index(op["peer"])]
    known.nbytes = known.numel * item
    if known.kind is not OpKind.RECV and op.get("nbytes", 0) != known.nbytes:
        raise CodecError("a payload has another size than its operation says")
    return known


def read_payload(op: dict, body: Body, at: int, single: bool) -> tuple[Body | None, int]:
    """The payload of an operation, which begins at byte `at` of the frame's body, and its end.

    `single`: the frame holds no other request. Only then may the body be shared memory.
    """
    size = op.get("nbytes", 0)
    if not size:
        return None, at
    if body.fd >= 0 and single and body.nbytes == size:
        return body.again(), at + size
    if body.fd < 0 and isinstance(size, int) and 0 < size <= body.nbytes - at:
        return Body(bytes(body.read()[at : at + size])), at + size
    raise CodecError("an operation has no payload of its size")


def read_fault(op: dict, rank: int, state: RankState, nccl: bool) -> WireFault:
    """What the rank reports of itself. `nccl`: whether the run is under NCCL's rules."""
    kind = FailureKind(op["kind"])
    if kind not in _OWN_FAULTS or (kind is FailureKind.NCCL_RULE and not nccl):
        raise CodecError("a rank reports what it can't know")
    file, line = read_place(op)
    error, name, misuse, computed_s = (op.get(key) for key in ("error", "missing_name", "misuse", "computed_s"))
    return WireFault(
        kind,
        rank,
        len(state.ops),
        file,
        line,
        str(op.get("message", ""))[:500],
        tuple(state.ops[number] for number in (op.get("number"), op.get("used_by")) if number in state.ops),
        error and str(error)[:80],
        missing_name=name if isinstance(name, str) and name.isidentifier() and len(name) <= 80 else None,
        misuse=Misuse(misuse) if misuse else None,
        rule=_nccl_rule(op["rule"]) if kind is FailureKind.NCCL_RULE else None,
        filled=op.get("filled") is True,
        computed_s=computed_s if isinstance(computed_s, float) and 0 <= computed_s <= _LONGEST_S else None,
    )


def read_group(op: dict, rank: int, world_size: int) -> tuple[str, tuple[int, ...]]:
    """The name and the members of a group that the rank has made."""
    members = tuple(int(m) for m in op["members"])
    if rank not in members or not set(members) <= set(range(world_size)) or len(set(members)) < len(members):
        raise CodecError("a group has impossible members")
    return str(op["group"]), members


def read_seconds(op: dict) -> float:
    """The virtual time that the rank computes."""
    seconds = op["seconds"]
    if not isinstance(seconds, float) or not 0 <= seconds <= _LONGEST_S:
        raise CodecError("a time to compute is no time")
    return seconds


def read_count(op: dict) -> int:
    """How many pieces of work the rank asks for at once."""
    count = op.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_PIECES:
        raise CodecError("a number of pieces of work is no number")
    return count


def read_memory(op: dict, rank: int, state: RankState, model: MemoryModel, data: bytes | None) -> MemoryOp:
    """What the rank does with the memory; `data` is what it puts."""
    file, line = read_place(op)
    kind, peer = Access(op["access"]), _size(op.get("peer", rank))
    offset, numel = _size(op.get("offset", 0)), _size(op.get("numel", 0))
    nbytes = numel * model.memory.itemsize
    made = MemoryOp(rank, kind, peer, offset, numel, nbytes, _size(op.get("channel", 0)), state.call, file, line, data)
    if not model.fits(made):
        raise CodecError("an access lies outside the memory")
    return made


def read_path(op: dict) -> str:
    """The file that the rank has opened for writing."""
    return str(op["path"])[:FILE_NCHARS]


def read_place(op: dict) -> tuple[str | None, int | None]:
    """The file and the line that the request comes from, if it says so."""
    where = op.get("where")
    if not isinstance(where, list) or len(where) != 2:
        return None, None
    file, line = where
    if isinstance(line, list):
        line = _read_inner(line)
    return (file[:FILE_NCHARS] if isinstance(file, str) else None), (line if isinstance(line, int) else None)


def _read_inner(said: list) -> InnerLine | None:
    """A line inside a helper function, with its caller's. Without `match`, whose int(...) takes four times as long."""
    return _inner(*said) if len(said) == 2 and type(said[0]) is int and type(said[1]) is int else None


@functools.lru_cache(maxsize=1024)  # a program has few lines, and each comes with every operation
def _inner(line: int, outer: int) -> InnerLine:
    return InnerLine(line, outer)


def _nccl_rule(rule: object) -> Any:
    from allranks.ranks.nccl_rules import Rule  # it takes time to import, and only runs under NCCL's rules need it

    return Rule(str(rule))


def _size(count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 1 << 62:
        raise CodecError("a size is no count")
    return count

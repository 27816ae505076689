"""What each collective gives each member: a function of all members' bytes, computed in the router's process.

Reductions go in rank order, so that their result is the same in every run, to the last bit.
"""

from __future__ import annotations

from typing import Any

from allranks.ranks.wire.body import Body
from allranks.ranks.wire.dtypes import ITEMSIZES
from allranks.ranks.wire.failures import FailureKind

_SHARED = frozenset(  # those that give all members the same
    "broadcast all_reduce all_reduce_coalesced all_gather all_gather_coalesced all_gather_into_tensor".split()
)


def describe(op) -> str:
    """ "all_reduce(SUM) of 4 float32 elements (rank 1, line 7)"."""
    details = f"({op.reduce_op})" if op.reduce_op else ""
    root = f" with root {op.root}" if op.root is not None else ""
    sizes = op.inputs or op.outputs
    what = f" of {_elements(sum(sizes) // (2 if op.pairs else 1), op.caller_dtype)}" if sizes else ""
    return f"{op.called}{details}{root}{what}"


def _elements(count: int, dtype: str | None = None) -> str:
    """ "1 float32 element"."""
    return f"{count}{' ' + str(dtype) if dtype else ''} element{'' if count == 1 else 's'}"


def disagreement(members: list) -> tuple[FailureKind, Any, str] | None:
    """(kind, member at fault, sentence) if the members' calls don't fit together, else None."""
    signature = [(m.collective, m.root, m.reduce_op) for m in members]
    if len(set(signature)) > 1:
        return FailureKind.DESYNC, _odd(members, signature), ""
    dtypes = [m.dtype for m in members]
    if len(set(dtypes)) > 1:
        return FailureKind.DTYPE_MISMATCH, _odd(members, dtypes), ""
    name, p = members[0].collective, len(members)
    if name in ("all_to_all", "all_to_all_single"):
        for i, member in enumerate(members):
            if len(member.inputs) != p or len(member.outputs) != p:
                return FailureKind.SIZE_MISMATCH, member, f"{name} among {p} ranks takes {p} parts in and {p} out."
            for j, other in enumerate(members):
                if len(other.outputs) == p and member.inputs[j] != other.outputs[i]:
                    sentence = (
                        f"rank {member.rank} sends {_elements(member.inputs[j])} to rank {other.rank}, "
                        f"which expects {other.outputs[i]} from it."
                    )
                    return FailureKind.SIZE_MISMATCH, other, sentence
        return None
    sizes = [_shape(m) for m in members]
    if len(set(sizes)) > 1:
        return FailureKind.SIZE_MISMATCH, _odd(members, sizes), ""
    for member in members:
        if not _fits(member, p):
            sentence = f"its input has {_elements(sum(member.inputs))} and its output {sum(member.outputs)}, which does not fit {p} ranks."
            for which, parts in (("input", member.inputs), ("output", member.outputs)):
                if len(set(parts)) > 1:  # a list of tensors
                    sentence = f"its {which} tensors have {', '.join(map(str, parts))} elements; all must have equally many: pad."
            return FailureKind.SIZE_MISMATCH, member, sentence
    if members[0].reduce_op is None:
        return None
    from allranks.ranks.wire.reductions import (
        irreducible,
    )  # with torch: not in a browser, where no such call can be made

    return irreducible(members)


def _odd(members: list, keys: list):
    """The first member that differs from what most do (from what the lowest rank does, if opinion is divided)."""
    most = max(keys, key=lambda key: (keys.count(key), -keys.index(key)))
    return next(m for m, key in zip(members, keys, strict=True) if key != most)


def _shape(op) -> tuple:
    """What has to agree among the members of one collective."""
    match op.collective:
        case "broadcast":
            return tuple(op.inputs or op.outputs)
        case "scatter":
            return tuple(op.outputs)
        case "all_gather_into_tensor":
            return (sum(op.inputs), sum(op.outputs))
        case "reduce_scatter_tensor":
            return (sum(op.inputs), sum(op.outputs))
        case _:
            return tuple(op.inputs)


def _fits(op, p: int) -> bool:
    """Whether one member's input and output sizes fit the collective among p ranks."""
    inputs, outputs, at_root = op.inputs, op.outputs, op.root == op.rank
    match op.collective:
        case "all_reduce" | "all_reduce_coalesced" | "barrier":
            return outputs == inputs
        case "reduce":
            return outputs == (inputs if at_root else ())
        case "broadcast":
            return bool(inputs) == at_root != bool(outputs)
        case "all_gather" | "all_gather_coalesced":
            return outputs == inputs * p
        case "gather":
            return outputs == (inputs * p if at_root else ())
        case "scatter":
            return inputs == (outputs * p if at_root else ())
        case "reduce_scatter":
            return inputs == outputs * p
        case "all_gather_into_tensor":
            return sum(outputs) == p * sum(inputs)
        case "reduce_scatter_tensor":
            return sum(inputs) == p * sum(outputs)
    return False


def compute(members: list) -> list[Body]:
    """The bytes that fill each member's outputs, in the order of the group."""
    from allranks.ranks.wire.reductions import reduced

    name, p = members[0].collective, len(members)
    item = ITEMSIZES.get(members[0].dtype, 0)
    data = [memoryview(b"") if m.body is None else memoryview(m.body.read()) for m in members]
    by_rank = {m.rank: d for m, d in zip(members, data, strict=True)}
    nothing = Body()
    match name:
        case "barrier":
            return [nothing] * p
        case "broadcast":
            body = Body.of([by_rank[members[0].root]])
            return [nothing if m.rank == m.root else body.again() for m in members]
        case "all_reduce" | "all_reduce_coalesced":
            body = Body.of([reduced(members, data)])
            return [body.again() for _ in members]
        case "reduce":
            total = reduced(members, data)
            return [Body.of([total]) if m.rank == m.root else nothing for m in members]
        case "gather":
            return [Body.of(data) if m.rank == m.root else nothing for m in members]
        case "all_gather" | "all_gather_coalesced" | "all_gather_into_tensor":
            body = Body.of(data)
            return [body.again() for _ in members]
        case "scatter":
            size = members[0].outputs[0] * item
            source = by_rank[members[0].root]
            return [Body.of([source[i * size : (i + 1) * size]]) for i in range(p)]
        case "reduce_scatter" | "reduce_scatter_tensor":
            total, size = memoryview(reduced(members, data)), members[0].outputs[0] * item
            return [Body.of([total[i * size : (i + 1) * size]]) for i in range(p)]
        case "all_to_all" | "all_to_all_single":
            cuts = [_cuts(m.inputs, item) for m in members]
            return [Body.of([data[i][cuts[i][j] : cuts[i][j + 1]] for i in range(p)]) for j in range(p)]
    raise ValueError(f"there is no collective {name}")


def held_nbytes(op) -> int:
    """The memory that a member's outputs take until it has them: its share, if all members' outputs are the same memory."""
    if op.body is None:
        return 0
    return op.body.nbytes // len(op.group[1]) if op.collective in _SHARED else op.body.nbytes


def _cuts(sizes: tuple[int, ...], item: int) -> list[int]:
    cuts = [0]
    for size in sizes:
        cuts.append(cuts[-1] + size * item)
    return cuts

"""Reductions of collectives, by torch: whether it can do one, and what comes out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from allranks.ranks.wire.failures import FailureKind
from allranks.ranks.wire.values import DTYPES, from_raw, raw

_SLICE = 16_384  # elements: fewer than torch parallelises, since a process that forks must not start torch's threads
_COMBINE: dict[str, Callable] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def irreducible(members: list) -> tuple[FailureKind, Any, str] | None:
    """(kind, member at fault, sentence) if torch can't do this reduction on this dtype, else None."""
    op, dtype = members[0].reduce_op, members[0].dtype
    if op not in _COMBINE:
        return FailureKind.DESYNC, members[0], f"the wire has no reduction {op}."
    kind = DTYPES[dtype]
    whole = not (kind.is_floating_point or kind.is_complex)
    impossible = (
        (op in ("BAND", "BOR", "BXOR") and not whole)
        or (op in ("MIN", "MAX") and kind.is_complex)
        or (op == "AVG" and whole)
        or not _is_computed(op, kind)
    )
    return (FailureKind.DTYPE_MISMATCH, members[0], f"{op} is not defined for {dtype}.") if impossible else None


@functools.lru_cache(maxsize=256)
def _is_computed(op: str, kind: torch.dtype) -> bool:
    """Whether torch can do it on a CPU: it has dtypes, such as uint16 and those of 8 bits, that it only stores."""
    number = torch.zeros(1).to(kind)
    try:
        _COMBINE[op](number, number)
    except (RuntimeError, TypeError):
        return op in ("SUM", "PRODUCT") and kind is torch.bool
    return True


def reduced(members: list, data: list) -> bytes | memoryview:
    """The bytes of all members, reduced in rank order."""
    op, dtype = members[0].reduce_op, DTYPES[members[0].dtype]
    numel = members[0].numel
    if numel == 0:
        return b""
    total = from_raw(data[0], dtype, (numel,))
    for more in data[1:]:
        other = from_raw(more, dtype, (numel,))
        for start in range(0, numel, _SLICE):
            part = slice(start, start + _SLICE)
            if dtype is torch.bool and op in ("SUM", "PRODUCT"):
                total[part] = total[part] | other[part] if op == "SUM" else total[part] & other[part]
            else:
                total[part] = _COMBINE[op](total[part], other[part])
    if op == "AVG":
        for start in range(0, numel, _SLICE):
            total[start : start + _SLICE] /= len(members)
    return raw(total)

"""The names that torch, NCCL, RCCL and gloo give to operations, types and groups, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["UNKNOWN", "bytes_of", "dtype_bytes", "elements", "group_name", "operation", "rank_list", "short_name"]

UNKNOWN = "unknown"
# the first that fits, in a name without "_", "-" and capital letters
_OPERATIONS = (
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("barrier", "barrier"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("sendrecv", UNKNOWN),
    ("send", "send"),
    ("recv", "recv"),
)
_SIZES = {
    "double": 8, "float": 4, "half": 2, "bfloat16": 2, "long": 8, "longint": 8, "int": 4, "short": 2, "byte": 1,
    "char": 1,
    "signedchar": 1, "unsignedchar": 1, "bool": 1, "complexfloat": 8, "complexdouble": 16, "complexhalf": 4,
    "float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2,
    "uint32": 4, "uint64": 8, "unsignedlong": 8, "unsignedint": 4, "unsignedshort": 2, "longlong": 8, "longlongint": 8,
}  # fmt: skip


def operation(name: str) -> str:
    """torch's spelling of what a collective, an annotation or a kernel is called; "unknown" where the name doesn't
    tell.

    A kernel called SendRecv is an all_to_all, a send or a recv.

    >>> operation("allreduce_coalesced"), operation("c10d::_reduce_scatter_base_"), operation("ncclKernel_SendRecv")
    ('all_reduce', 'reduce_scatter', 'unknown')
    """
    plain = re.sub(r"[^a-z]", "", name.split("(")[0].lower())
    return next((op for part, op in _OPERATIONS if part in plain), UNKNOWN)


def short_name(kernel: str) -> str:
    """A kernel's name without its arguments, for sentences.

    >>> short_name("void ns::two_shot_kernel<float, 8>(float*)")
    'ns::two_shot_kernel'
    """
    plain = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", plain, maxsplit=1)[0][:60]


def dtype_bytes(dtype: str | None) -> int | None:
    """Bytes of one element of a type that torch names, or None if the name is not known.

    >>> dtype_bytes("c10::BFloat16"), dtype_bytes("Float"), dtype_bytes("Float8_e4m3fn"), dtype_bytes("signed char")
    (2, 4, 1, 1)
    """
    if not dtype:
        return None
    plain = dtype.lower().replace("c10::", "").replace("torch.", "").replace(" ", "")
    return 1 if plain.startswith("float8") else _SIZES.get(plain)


def elements(dims: Any) -> int | None:
    """The number of elements of a tensor, or of a list of tensors, whose sizes a profile gives; None if it gives none.

    >>> elements([[3, 4], [5]]), elements([[100]]), elements([])
    (17, 100, None)
    """
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(d, int) for d in dims):
        product = 1
        for d in dims:
            product *= d
        return product
    parts = [elements(d) for d in dims]
    known = [p for p in parts if p is not None]
    return sum(known) if known and len(known) == len(parts) else None


def bytes_of(op: str, size: int | None, sent: int | None, received: int | None, ranks: int | None) -> int | None:
    """Bytes of the full vector as nccl-tests counts them, from the elements in and out; None if they can't be known.

    >>> bytes_of("all_gather", 4, 10, 80, 8), bytes_of("all_reduce", 4, 10, 10, 8), bytes_of("barrier", 4, 0, 0, 8)
    (320, 40, None)
    """
    if size is None or op in ("barrier", UNKNOWN):
        return None
    full = {"all_gather": received, "gather": received, "recv": received}.get(op, sent)
    if op == "all_gather" and full is None and sent is not None and ranks:
        full = sent * ranks
    if op == "reduce_scatter" and full is None and received is not None and ranks:
        full = received * ranks
    if full is None:
        full = sent if sent is not None else received
        if op in ("all_gather", "gather", "reduce_scatter"):
            full = None
    return None if full is None else full * size


def rank_list(value: Any) -> tuple[int, ...] | None:
    """The ranks in "[0, 1, 2]"; None if there are none, or the list is cut short ("[0, 1, ...]").

    >>> rank_list("[0, 1, 2]"), rank_list("[0, 1, ...]"), rank_list([4, 5])
    ((0, 1, 2), None, (4, 5))
    """
    if isinstance(value, str):
        if "..." in value or not re.fullmatch(r"\s*\[[\d,\s]*\]\s*", value):
            return None
        value = [int(part) for part in re.findall(r"\d+", value)]
    if not isinstance(value, list) or not value or not all(isinstance(r, int) for r in value):
        return None
    return tuple(value)


def _short(ranks: Iterable[int]) -> str:
    """Ranks as "0-3,6"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def group_name(name: str | None, ranks: tuple[int, ...] | None) -> str | None:
    """One name for one group on all its ranks: torch's name of the process group, and its ranks.

    >>> group_name("3", (0, 1, 2, 3)), group_name(None, (0, 4)), group_name("3", None), group_name(None, None)
    ('3 (ranks 0-3)', 'ranks 0,4', '3', None)
    """
    if ranks is None:
        return name or None
    return f"{name} (ranks {_short(ranks)})" if name else f"ranks {_short(ranks)}"

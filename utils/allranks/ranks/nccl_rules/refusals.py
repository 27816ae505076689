"""What NCCL refuses: each rule as one function, with its reason in words.

Sources: torch 2.15's torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCLUtils.cpp (types and operations of reductions) and
ProcessGroupNCCL.cpp (dense tensors, receives, tags).
"""

from __future__ import annotations

from enum import StrEnum

import torch
import torch.distributed as dist

from allranks.base.errors import CourseError


class Rule(StrEnum):
    """Which of NCCL's rules a program broke."""

    HOST_TENSOR = "host_tensor"
    MIXED_DEVICES = "mixed_devices"
    OTHER_GPU = "other_gpu"
    NUMPY = "numpy"
    GENERATOR = "generator"
    NO_KERNEL = "no_kernel"
    GAPS = "gaps"
    DTYPE = "dtype"
    REDUCE_OP = "reduce_op"
    ANY_SOURCE = "any_source"
    TAG_ORDER = "tag_order"
    SELF_MESSAGE = "self_message"
    IN_FLIGHT = "in_flight"
    MISMATCH = "mismatch"


class NcclRuleError(CourseError):
    """A program did what NCCL refuses or leaves undefined, in a world with `rules="nccl"`.

    `rule` is the Rule that it broke; the message gives the reason and what to write instead. With `breaks_group`, the
    operation was under way, so the ranks can't go on in the same group.

    Example:
        >>> NcclRuleError("gaps", "all_reduce: this tensor has gaps.").rule.value
        'gaps'
    """

    def __init__(self, rule: Rule | str, message: str, breaks_group: bool = False) -> None:
        super().__init__(message)
        self.rule, self.breaks_group = Rule(rule), breaks_group
        self.operation: object | None = None  # the `Operation` under way that uses the memory, for IN_FLIGHT

    def __reduce__(self) -> tuple[type, tuple[Rule, str, bool]]:
        return type(self), (self.rule, str(self), self.breaks_group)


# torch's table of NCCL's types; bool travels as uint8, and complex numbers as pairs of real ones
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
_COMPLEX = (torch.complex64, torch.complex128)
_SUMS = {"SUM", "AVG", "PREMUL_SUM"}
_BITS = {"BAND", "BOR", "BXOR"}


def check_dtype(op: str, dtype: torch.dtype) -> None:
    """Raises NcclRuleError if NCCL can't move this type.

    >>> check_dtype("all_reduce", torch.bfloat16)
    >>> check_dtype("all_reduce", torch.int16)
    Traceback (most recent call last):
    ...
    allranks.ranks.nccl_rules.refusals.NcclRuleError: all_reduce: NCCL has no int16. It has float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int64, int32, int8, uint8 and bool. Convert the tensor, for example to int32.
    """
    if dtype in (*_FLOATS, *_FLOAT8, *_INTEGERS, *_COMPLEX, torch.bool):
        return
    have = ", ".join(dtype_name(d) for d in (*_FLOATS, *_FLOAT8, *_INTEGERS))
    instead = "float32" if dtype.is_floating_point else "complex64" if dtype.is_complex else "int32"
    raise NcclRuleError(
        Rule.DTYPE,
        f"{op}: NCCL has no {dtype_name(dtype)}. It has {have} and bool. Convert the tensor, for example to {instead}.",
    )


# what CUDA has for no integers, and what it does not have at all: torch's own table, in testing/_internal/common_methods_invocations.py
_NO_INTEGERS = frozenset(
    "mm addmm bmm baddbmm addbmm mv addmv dot vdot convolution "
    "avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices".split()
)
_ONLY_ON_CPU = frozenset(
    "histogram _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors".split()
)
NOT_IN_CUDA = _NO_INTEGERS | _ONLY_ON_CPU


def check_kernel(name: str, dtype: torch.dtype) -> None:
    """Raises NcclRuleError if CUDA has no kernel for one of torch's operations with tensors of this type.

    >>> check_kernel("mm", torch.float32)
    >>> check_kernel("mm", torch.int64)
    Traceback (most recent call last):
    ...
    allranks.ranks.nccl_rules.refusals.NcclRuleError: mm: CUDA has this operation for no integers, and these are int64. Compute with tensor.double(), which is exact up to 2**53, or on tensor.cpu().
    """
    if name in _NO_INTEGERS and not (dtype.is_floating_point or dtype.is_complex):
        raise NcclRuleError(
            Rule.NO_KERNEL,
            f"{name}: CUDA has this operation for no integers, and these are {dtype_name(dtype)}. Compute with "
            "tensor.double(), which is exact up to 2**53, or on tensor.cpu().",
        )
    if name in _ONLY_ON_CPU:
        raise NcclRuleError(
            Rule.NO_KERNEL,
            "torch.histogram: CUDA has no such operation. Use torch.histc, or torch.histogram of tensor.cpu().",
        )


def check_dense(op: str, tensor: torch.Tensor) -> None:
    """Raises NcclRuleError if the tensor's elements don't lie side by side in memory, in the order of their indices.

    >>> check_dense("all_reduce", torch.ones(4, 4)[1])
    >>> check_dense("all_reduce", torch.ones(4, 4)[:, 1])
    Traceback (most recent call last):
    ...
    allranks.ranks.nccl_rules.refusals.NcclRuleError: all_reduce: NCCL takes only a contiguous tensor, and this one, of shape [4] and stride [4], has gaps. Send tensor.contiguous(), and copy the result back if there is one.
    """
    if tensor.layout != torch.strided:
        raise NcclRuleError(Rule.GAPS, f"{op}: NCCL takes only dense tensors, and this one is sparse.")
    if tensor.is_contiguous() or is_channels_last(tensor):
        return
    extent = 1 + sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    n = tensor.numel()
    how = "has gaps" if extent > n else "repeats elements" if extent < n else "has its elements in another order"
    raise NcclRuleError(
        Rule.GAPS,
        f"{op}: NCCL takes only a contiguous tensor, and this one, of shape {list(tensor.shape)} and stride "
        f"{list(tensor.stride())}, {how}. Send tensor.contiguous(), and copy the result back if there is one.",
    )


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Whether images or volumes lie dense in memory with their channels last; NCCL moves them as they lie.

    >>> is_channels_last(torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last))
    True
    """
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.dim() in layouts and tensor.is_contiguous(memory_format=layouts[tensor.dim()])


def check_complex(op: str, dtype: torch.dtype) -> None:
    """Raises NcclRuleError for complex numbers, which torch hands to NCCL as pairs, but not in every call.

    >>> check_complex("gather", torch.complex64)
    Traceback (most recent call last):
    ...
    allranks.ranks.nccl_rules.refusals.NcclRuleError: gather: torch does not hand complex numbers to NCCL here. Use torch.view_as_real(tensor).
    """
    if dtype.is_complex:
        raise NcclRuleError(
            Rule.DTYPE, f"{op}: torch does not hand complex numbers to NCCL here. Use torch.view_as_real(tensor)."
        )


def check_reduction(op: str, reduction: str, dtype: torch.dtype) -> None:
    """Raises NcclRuleError if NCCL can't reduce this type in this way. `reduction` is ReduceOp's name, such as "SUM".

    >>> check_reduction("all_reduce", "BAND", torch.int32)
    Traceback (most recent call last):
    ...
    allranks.ranks.nccl_rules.refusals.NcclRuleError: all_reduce: NCCL has no ReduceOp.BAND. It has SUM, AVG, PRODUCT, MIN and MAX. To combine bits, gather the tensors and combine them on each rank.
    """
    if reduction in _BITS:
        raise NcclRuleError(
            Rule.REDUCE_OP,
            f"{op}: NCCL has no ReduceOp.{reduction}. It has SUM, AVG, PRODUCT, MIN and MAX. To combine bits, gather the "
            "tensors and combine them on each rank.",
        )
    if dtype == torch.bool and reduction == "AVG":
        raise NcclRuleError(Rule.REDUCE_OP, f"{op}: NCCL can't average bool. Convert the tensor to float32.")
    if dtype.is_complex and reduction not in _SUMS:
        raise NcclRuleError(Rule.REDUCE_OP, f"{op}: NCCL can't do ReduceOp.{reduction} on complex numbers.")
    if reduction == "PREMUL_SUM" and dtype not in _FLOATS:
        raise NcclRuleError(Rule.REDUCE_OP, f"{op}: PREMUL_SUM takes floating-point numbers, not {dtype_name(dtype)}.")


def refuse_any_source(op: str) -> NcclRuleError:
    """The error for a receive that names no source."""
    return NcclRuleError(
        Rule.ANY_SOURCE,
        f"{op}: NCCL can't receive from any source. Name the rank in src=, or first agree, with a collective, which rank sends.",
    )


def check_tag(sent: int, wanted: int, src: int) -> None:
    """Raises NcclRuleError if a receive would get a message that was sent with another tag."""
    if sent != wanted:
        raise NcclRuleError(Rule.TAG_ORDER, tag_order(sent, wanted, src))


def tag_order(sent: int, wanted: int, src: int) -> str:
    """What to say of a receive that gets a message that was sent with another tag."""
    return (
        f"recv with tag {wanted} meets a message that rank {src} sent with tag {sent}. NCCL ignores tags: it hands "
        "over the messages of a pair in the order in which they were sent, so here the data would be swapped. Receive "
        "them in that order."
    )


def reduction_name(op: object) -> str:
    """The name of a ReduceOp, such as "SUM"."""
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"):
        if op == getattr(dist.ReduceOp, name):
            return name
    return str(op)


def dtype_name(dtype: torch.dtype) -> str:
    """ "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")

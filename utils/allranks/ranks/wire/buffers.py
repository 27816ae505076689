"""The memory of operations under way: what one of them fills belongs to it until `wait()`, and what it sends must not change.

What is to be filled holds poison meanwhile. So a value that is read too early is wrong for certain, and a write shows.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import zlib
from collections.abc import Sequence
from typing import Protocol

import numpy
import torch

from allranks.ranks.wire.values import place, unsigned

# NaNs that arithmetic changes ("signalling"), so that `+=` shows too; of other numbers, one that is far from all in use
_POISON = {
    torch.float64: 0x7FF4A5A5A5A5A5A5,
    torch.float32: 0x7FA5A5A5,
    torch.float16: 0x7DA5,
    torch.bfloat16: 0x7FA5,
    torch.float8_e4m3fn: 0x7F,
    torch.float8_e5m2: 0x7F,
    torch.bool: 1,
}
_MANTISSA = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}  # bits; the first says "quiet"


def _bits(tensor: torch.Tensor) -> numpy.ndarray:
    """The same memory as whole numbers, complex numbers as pairs. NumPy is quicker than torch with few elements."""
    plain = tensor.data  # has a version of its own, so autograd does not count what is written here
    if plain.is_complex():
        plain = plain.conj() if plain.is_conj() else plain
        plain = torch.view_as_real(torch._neg_view(plain) if plain.is_neg() else plain)
    elif plain.is_neg():
        plain = torch._neg_view(plain)
    return unsigned(plain)


def _poison_of(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        dtype = dtype.to_real()
    return _POISON.get(dtype) or int.from_bytes(b"\x5a" * dtype.itemsize)


@functools.lru_cache(maxsize=256)
def _pattern(dtype: torch.dtype, nbytes: int) -> bytes:
    """The bytes of a small tensor that is to be filled. Nobody else keeps them: they are no memory of the program."""
    size = (dtype.to_real() if dtype.is_complex else dtype).itemsize
    return _poison_of(dtype).to_bytes(size, sys.byteorder) * (nbytes // size)


class Poison:
    """Fills a tensor: NaN in floating and complex numbers, an absurd value in whole ones, True in bools."""

    def __init__(self, tensor: torch.Tensor) -> None:
        # `x.data = y` gives x other memory, and this one stays
        self.memory, self.where = tensor.detach(), place(tensor)
        if self.where is None:
            self.bits, self.value = _bits(tensor), _poison_of(tensor.dtype)
            self.bits.fill(self.value)
        else:
            ctypes.memmove(self.where[0], _pattern(tensor.dtype, self.where[1]), self.where[1])

    def is_whole(self) -> bool:
        """Whether every element still holds it."""
        if self.where is None:
            return self.bits.tobytes() == self.value.to_bytes(self.bits.itemsize, sys.byteorder) * self.bits.size
        if self.memory.data_ptr() != self.where[0]:  # it was given back with resize_
            return False
        return ctypes.string_at(*self.where) == _pattern(self.memory.dtype, self.where[1])


def holds_poison(tensor: torch.Tensor) -> bool:
    """Whether a floating tensor has an element that was read from a buffer which an operation had still to fill.

    Arithmetic keeps the digits of a NaN and makes it quiet, so both forms are looked for.
    """
    kind = tensor.dtype.to_real() if tensor.dtype.is_complex else tensor.dtype
    if kind not in (torch.float64, torch.float32, torch.float16, torch.bfloat16) or not tensor.numel():
        return False
    bits, value = _bits(tensor), _POISON[kind]
    quiet = value | 1 << (_MANTISSA[kind] - 1)
    plain = bits & (2 ** (8 * bits.itemsize - 1) - 1)  # without the sign
    return bool(((plain == value) | (plain == quiet)).any())


class Fingerprint:
    """A checksum of a tensor's memory, to find out whether it was changed."""

    def __init__(self, tensor: torch.Tensor) -> None:
        # `x.data = y` gives x other memory, and this one stays
        self.memory, self.where = tensor.detach(), place(tensor)
        if self.where is None:
            self.bits = _bits(tensor)
        self.before = self._now()

    def _now(self) -> int:
        if self.where is not None:
            return zlib.crc32(ctypes.string_at(*self.where))
        return zlib.crc32(self.bits.data if self.bits.flags.c_contiguous else self.bits.tobytes())

    def is_same(self) -> bool:
        """Whether nothing has changed."""
        if self.where is not None and self.memory.data_ptr() != self.where[0]:  # it was given back with resize_
            return False
        return self._now() == self.before


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last address of its elements; what lies between may belong to others."""
    first = tensor.data_ptr()
    if tensor.is_contiguous():
        return first, first + tensor.numel() * tensor.element_size()
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else -1
    return first, first + (last + 1) * tensor.element_size()


class Memory:
    """The memory of some tensors."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = [(*_span(t), t) for t in tensors if t.numel()]

    def overlaps(self, other: Memory) -> bool:
        """Whether an element lies in both."""
        return any(a < d and c < b and _share(x, y) for a, b, x in self.tensors for c, d, y in other.tensors)


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors with overlapping spans have an element in common; columns of one matrix have none."""
    if one.is_contiguous() and other.is_contiguous():
        return True
    try:
        return numpy.shares_memory(_bits(one), _bits(other), max_work=100_000)  # type: ignore[arg-type]  # the stub knows only its special values
    except numpy.exceptions.TooHardError:
        return False


class Held:
    """The memory of one operation under way: what it reads and what it writes."""

    def __init__(self, sent: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        self.reads, self.writes = Memory(sent), Memory(outputs)
        spans = self.reads.tensors + self.writes.tensors
        # what has no address in common needs no closer look, as of most chunks under way
        if len(spans) == 1:
            self.first, self.end, _ = spans[0]
        else:
            self.first = min([begin for begin, _, _ in spans], default=0)
            self.end = max([end for _, end, _ in spans], default=0)

    def forbids(self, later: Held) -> bool:
        """Whether a later operation must wait for this one: it would use what this one fills, or fill what it sends."""
        if later.end <= self.first or self.end <= later.first:
            return False
        return (
            self.writes.overlaps(later.reads) or self.writes.overlaps(later.writes) or self.reads.overlaps(later.writes)
        )

    def take(self) -> None:
        """Notes what is sent and poisons what will be filled. Called once the payload has been copied."""
        sent = [t for _, _, t in self.reads.tensors]
        if sent and self.reads.overlaps(self.writes):
            sent = [t for t in sent if not self.writes.overlaps(Memory([t]))]
        self.sent = [Fingerprint(t) for t in sent]
        self.poison = [Poison(t) for _, _, t in self.writes.tensors]

    def changed(self) -> bool:
        """Whether something sent is not what it was."""
        return not all([sent.is_same() for sent in self.sent])

    def written(self) -> bool:
        """Whether somebody has written into what will be filled."""
        return not all([poison.is_whole() for poison in self.poison])


class Posted(Protocol):
    """An operation that was posted, with its number and its memory."""

    number: int
    held: Held

    def wait(self) -> bool:
        """Blocks until it is complete."""
        ...

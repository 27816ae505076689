"""Which memory asynchronous operations are still reading or writing, so that a program that touches it too early is told."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from allranks.ranks.nccl_rules.refusals import NcclRuleError, Rule


@dataclass(eq=False)
class Operation:
    """One operation under way: its name, the line that began it, and the memory that it reads and writes.

    `ordered` becomes true with `wait()`: from then on, what the program does with the memory comes after the operation;
    `finish`, if there is one, blocks until it is done, and `done` says whether it is.
    """

    name: str
    line: int | None
    reads: tuple[torch.Tensor, ...] = ()
    writes: tuple[torch.Tensor, ...] = ()
    ordered: bool = False
    finish: Callable[[], None] | None = None
    done: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        self.reading = [span for tensor in self.reads for span in _span(tensor)]
        self.writing = [span for tensor in self.writes for span in _span(tensor)]


class Flight:
    """The operations under way on one rank."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def begin(self, operation: Operation) -> None:
        """Adds an operation. NCCL runs the operations of one rank in order, so it may use the memory of an earlier one."""
        self.operations = [o for o in self.operations if not (o.ordered and o.done is not None and o.done())]
        self.operations.append(operation)

    def land(self, operation: Operation) -> None:
        """Forgets an operation that is done."""
        if operation in self.operations:
            self.operations.remove(operation)

    def land_done(self) -> None:
        """Forgets all operations that are done, also those whose handle nobody waited for."""
        self.operations = [o for o in self.operations if o.done is None or not o.done()]

    def land_all(self) -> None:
        """Finishes and forgets all operations, as torch.cuda.synchronize() does."""
        while self.operations:
            operation = self.operations.pop(0)
            if operation.finish is not None:
                operation.finish()

    def touch(self, tensor: torch.Tensor, writing: bool) -> None:
        """Called before the program reads or writes a tensor.

        Waits for operations whose handle the program has waited for; raises NcclRuleError for others that use its memory.
        """
        if not self.operations:
            return
        span = _span(tensor)
        for operation in list(self.operations):
            written = _overlap(span, operation.writing)
            if not written and not (writing and _overlap(span, operation.reading)):
                continue
            if not operation.ordered:
                raise _too_early(operation, writing, written)
            self.land(operation)
            if operation.finish is not None:
                operation.finish()


def _too_early(operation: Operation, writing: bool, written: bool) -> NcclRuleError:
    begun = f"{operation.name}" + (f", begun in line {operation.line}," if operation.line is not None else "")
    if writing:
        what = f"this changes a tensor that {begun} may still be {'filling' if written else 'sending'}"
        harm = "On NCCL the operation may take the old values, the new ones or a mix."
    else:
        what = f"this reads a tensor that {begun} may still be filling"
        harm = "On NCCL you may read old values, new ones or a mix."
    error = NcclRuleError(Rule.IN_FLIGHT, f"Too early: {what}. Call wait() on its handle first. {harm}")
    error.operation = operation
    return error


Span = tuple[int, int]
BLOCKS = 4096  # a tensor of more separate blocks is taken as one block from its first to its last byte


def _span(tensor: torch.Tensor) -> list[Span]:
    """The blocks of memory of a tensor: first byte, and the byte after the last.

    >>> x = torch.ones(4, 4, dtype=torch.int8)
    >>> [(a - x.data_ptr(), b - x.data_ptr()) for a, b in _span(x[::2])]
    [(0, 4), (8, 12)]
    """
    if tensor.numel() == 0:
        return []
    size, first = tensor.element_size(), tensor.data_ptr()
    dims = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    block = 1
    while dims and dims[0][0] in (block, 0):  # a stride of 0 is an expanded dimension
        stride, n = dims.pop(0)
        block *= n if stride else 1
    dims = [(stride, n) for stride, n in dims if n > 1]
    if math.prod(n for _, n in dims) > BLOCKS:
        block, dims = 1 + sum((n - 1) * s for s, n in zip(tensor.stride(), tensor.shape, strict=True)), []
    starts = [
        sum(i * s for i, (s, _) in zip(index, dims, strict=True))
        for index in itertools.product(*(range(n) for _, n in dims))
    ]
    return [(first + start * size, first + (start + block) * size) for start in starts]


def _overlap(some: list[Span], others: list[Span]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] for a in some for b in others)


def tensors_of(values: Sequence[object]) -> list[torch.Tensor]:
    """All tensors in arguments, also those in lists.

    >>> len(tensors_of([torch.ones(1), [torch.ones(2), 3]]))
    2
    """
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors_of(value)
        elif isinstance(value, dict):
            found += tensors_of(list(value.values()))
    return found

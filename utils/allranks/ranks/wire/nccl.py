"""NCCL's rules in a rank of the wire (`Rules(nccl=True)`): what the rank itself refuses.

The router has the rest: each rank's operations run one after the other, and tags are ignored.
"""

from __future__ import annotations

# torch's stubs list overloads of which a group in Python is only ever handed one
# mypy: disable-error-code="override,assignment"
import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.utils._python_dispatch import _disable_current_modes

from allranks.ranks.engines.group import Works
from allranks.ranks.nccl_rules import Flight, NcclRuleError, Operation, Placement, Rule
from allranks.ranks.nccl_rules.refusals import check_dense, check_dtype, check_reduction, refuse_any_source
from allranks.ranks.wire.backend import WireGroup, WireWork, reduce_name
from allranks.ranks.wire.buffers import Held
from allranks.ranks.wire.endpoint import Endpoint
from allranks.ranks.wire.frames import FaultDetails


@dataclass(eq=False)
class _Numbered(Operation):
    """An operation under way, with its number on the wire."""

    number: int = 0


class _Flight(Flight):
    """The operations under way. Only the student's own code is told that it is too early: not what reads its results."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__()
        self.endpoint = endpoint

    def touch(self, tensor: torch.Tensor, writing: bool) -> None:
        """Raises NcclRuleError if an operation that nobody has waited for uses the tensor's memory."""
        try:
            super().touch(tensor, writing)
        except NcclRuleError:
            _, file, _ = self.endpoint.call_sites.here()
            if file is not None:
                raise


class NcclRules:
    """NCCL's rules for one run of this rank; a context manager around the student's code."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.flight = _Flight(endpoint)
        self.placement = Placement(self.flight)
        self.group = functools.partial(NcclGroup, self)
        self.batches = 0
        if not isinstance(c10d.batch_isend_irecv, _Batched):
            c10d.batch_isend_irecv = dist.batch_isend_irecv = _Batched(c10d.batch_isend_irecv)

    def __enter__(self) -> NcclRules:
        self.placement.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.placement.__exit__(*exc_info)

    def broken_by(self, error: BaseException) -> FaultDetails | None:
        """What the report of an exception says of the rule that was broken; None if none was."""
        if not isinstance(error, NcclRuleError):
            return None
        broken: FaultDetails = {"rule": error.rule}
        if isinstance(error.operation, _Numbered):
            broken["number"] = error.operation.number
        return broken


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """What the wire itself does with tensors is no concern of the rules."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


class NcclWork(WireWork):
    """The handle of an operation under NCCL's rules."""

    group: NcclGroup

    def __init__(self, group: NcclGroup, number: int, *, outputs=(), sent=(), blocking: bool = False) -> None:
        self.batch = group.batch
        super().__init__(group, number, outputs=outputs, sent=sent, blocking=blocking)
        self.operation = _Numbered(
            group.described, None, tuple(sent), tuple(outputs), finish=self._finish, number=number
        )
        group.nccl.flight.begin(self.operation)

    def wait(self, timeout=None) -> bool:
        """Blocks until the operation is complete; then its memory may be used."""
        with _unseen():
            super().wait(timeout)
        self.group.nccl.flight.land(self.operation)
        self.operation.finish = None  # it leads back to this handle: a circle would keep the tensors
        return True

    def _finish(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Whether the operation is done; then its results may be read, as after `wait()`."""
        return super().is_completed() and self.wait()


class _BatchWork(Works):
    """The one handle of a batch."""

    def is_success(self) -> bool:
        """Whether all operations of the batch are complete."""
        return self.is_completed()

    def exception(self) -> None:
        """None: an operation that fails ends the run."""

    def result(self) -> list:
        """The tensors that the batch fills."""
        return [tensor for work in self.works for tensor in work.result()]


class NcclGroup(WireGroup):
    """A process group of the wire that refuses what NCCL refuses."""

    work_type = NcclWork
    as_gloo = False

    def __init__(self, nccl: NcclRules, *rest) -> None:
        super().__init__(*rest)
        self.nccl = nccl
        self.described = ""  # the name of the latest operation
        self.batch: int | None = None  # the number of the batch that is being made

    def send(self, tensors, dst: int, tag: int = 0) -> WireWork:
        """Offers one tensor to a rank of the group."""
        with _unseen():
            return super().send(tensors, dst, tag)

    def recv(self, tensors, src: int | None, tag: int = 0) -> WireWork:
        """Asks for one tensor from a rank of the group."""
        with _unseen():
            return super().recv(tensors, src, tag)

    def recv_anysource(self, tensors, tag: int = 0) -> WireWork:
        """Raises NcclRuleError."""
        raise refuse_any_source("recv")

    def _collective(self, name: str, inputs, outputs, opts=None, *, root=None, reduce_op=None) -> WireWork:
        with _unseen():
            if reduce_op is not None:
                check_reduction(name, reduce_name(reduce_op), inputs[0].dtype)
            return super()._collective(name, inputs, outputs, opts, root=root, reduce_op=reduce_op)

    def _describe(self, *about):
        op = super()._describe(*about)
        self.described = op["name"]
        if self.batch is not None:
            op["batch"] = self.batch
        return op

    def _check(self, name: str, *tensors: torch.Tensor, into: bool = False) -> None:
        for tensor in tensors:
            check_dtype(name, tensor.dtype)
            check_dense(name, tensor)
        self.nccl.placement.check_collective(name, list(tensors))
        super()._check(name, *tensors, into=into)
        # the queue runs them in order, so this operation may use the memory of an earlier one that is not of its batch
        held = Held(() if into else tensors, tensors if into else ())
        while (earlier := self.endpoint.owner_of(held)) is not None:
            if self.batch is not None and isinstance(earlier, NcclWork) and earlier.batch == self.batch:
                return
            earlier.wait()

    def _member(self, rank: int, what: str, *, peer: bool) -> int:
        if peer and rank == self.rank():
            if self.batch is None:
                raise NcclRuleError(
                    Rule.SELF_MESSAGE,
                    f"{self.described}: NCCL sends to the rank itself only in a batch (dist.batch_isend_irecv).",
                )
            return self.members[rank]
        return super()._member(rank, what, peer=peer)


class _Batched:
    """dist.batch_isend_irecv: under NCCL's rules the messages run at the same time and have one handle."""

    def __init__(self, original: Callable[[list], list]) -> None:
        functools.update_wrapper(self, original)
        self.original = original

    def __call__(self, p2p_op_list: list) -> list:
        group = p2p_op_list[0].group if p2p_op_list else None
        if not isinstance(group, NcclGroup):
            return self.original(p2p_op_list)
        group.nccl.batches += 1
        group.batch = group.nccl.batches
        try:
            return [_BatchWork(self.original(p2p_op_list))]
        finally:
            group.batch = None

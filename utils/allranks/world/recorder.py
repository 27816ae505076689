"""Records what a program sends on the live backend: a process group records each call and forwards it to gloo or NCCL.

It is the default group only inside `record`, so other calls cost nothing. Times are those of the machine's monotonic
clock, which all its processes share, so ranks need no alignment; on GPUs, times are CUDA events on the rank's stream.
Clocks of several machines are not aligned, and their traces say so.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from allranks.engines.group import PythonGroup, Works
from allranks.engines.rank import describe
from allranks.engines.usercode import in_library

NAME = "recorded"
# the group's methods, and the public function that calls each of them
COLLECTIVES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "allgather": "all_gather",
    "all_gather_single": "all_gather_into_tensor",
    "all_gather_single_coalesced": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "barrier": "barrier",
}
# a backend's own names if they differ from the group's
_OF_BACKEND = {
    "all_gather_single": "_allgather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
# Gloo lacks these methods in Python; functional collectives, and so DTensor, call them even for one tensor
_ONE_OF = {
    "allgather_into_tensor_coalesced": "_allgather_base",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
}
# methods whose first argument is the output and whose second is the input
_OUTPUT_FIRST = {name for name in COLLECTIVES if name.startswith(("all_gather", "allgather", "gather", "scatter"))} | {
    name for name in COLLECTIVES if name.startswith(("reduce_scatter", "alltoall"))
}


@dataclass
class Record:
    """One operation of one rank.

    Times are seconds of the monotonic clock; `done` is None if nothing waited for the operation.
    """

    kind: str  # "send", "recv" or "collective"
    name: str
    group: tuple[int, ...]
    peer: int | None
    nbytes: int
    offset: int
    extent: int  # bytes of the whole storage that the tensor is a part of
    tag: int
    dtype: str | None
    line: int | None
    posted: float
    done: float | None = None


class _HostClock:
    """Seconds of the monotonic clock."""

    def mark(self):
        return time.monotonic()

    def seconds(self, mark) -> float:
        return mark


class _CudaClock:
    """CUDA events on the rank's stream, placed on the monotonic clock by one event that both clocks know."""

    def __init__(self) -> None:
        torch.cuda.synchronize()
        self.zero, self.zero_s = self.mark(), time.monotonic()

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, mark) -> float:
        mark.synchronize()
        return self.zero_s + self.zero.elapsed_time(mark) * 1e-3


class _Log:
    """What this rank did, in order: records, and the program of posts and waits."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.records: list[Record] = []
        self.program: list[tuple[str, int]] = []

    def post(self, record: Record) -> int:
        self.records.append(record)
        self.program.append(("post", len(self.records) - 1))
        return len(self.records) - 1

    def finish(self, number: int) -> None:
        if self.records[number].done is None:
            self.records[number].done = self.clock.mark()
            self.program.append(("wait", number))


_log: list[_Log] = []  # the log of the `record` under way, if any
_groups: dict[str, Any] = {}


class RecordedWork(dist._Work):
    """A handle that calls the backend's handle, and records when the program waited for it."""

    def __init__(self, work, log: _Log, number: int) -> None:
        super().__init__()
        self.work, self.log, self.number = work, log, number

    def wait(self, *timeout) -> bool:
        """Waits for the operation."""
        answer = self.work.wait(*timeout)
        self.log.finish(self.number)
        return answer

    def is_completed(self) -> bool:
        """Whether `wait()` would return at once."""
        return self.work.is_completed()

    def is_success(self) -> bool:
        """Whether it is complete without an error."""
        return self.work.is_success()

    def exception(self):
        """The backend's exception, or None."""
        return self.work.exception()

    def result(self):
        """The tensors that the operation fills."""
        return self.work.result()

    def get_future(self):
        """The backend's future.

        It records the end too, because DDP never calls `wait`; not on GPUs, where it is done at the start.
        """
        future = self.work.get_future()
        return future.then(self._ended) if isinstance(self.log.clock, _HostClock) else future

    def _ended(self, future):
        self.log.finish(self.number)
        return future.value()

    def _source_rank(self) -> int:
        return self.work._source_rank()


class RecordedBatch(RecordedWork):
    """The one handle of several operations that NCCL runs as a group."""

    def __init__(self, work, parts: list[RecordedWork]) -> None:
        super().__init__(work, parts[0].log, parts[0].number)
        self.parts = parts

    def wait(self, *timeout) -> bool:
        """Waits for all of them."""
        answer = self.work.wait(*timeout)
        for part in self.parts:
            part.log.finish(part.number)
        return answer


class RecordedGroup(PythonGroup):
    """A group that records every call and forwards it to its backend, `inner`."""

    backend_name = NAME

    def __init__(self, inner, members: tuple[int, ...]) -> None:
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]  # the stub knows only one of its forms
        self.inner, self.members, self.fault = inner, members, None

    def send(self, tensors, dst: int, tag: int = 0):
        """Sends to the member `dst`."""
        return self._noted("send", "send", tensors, self.inner.send, (tensors, dst, tag), self.members[dst], tag)

    def recv(self, tensors, src: int, tag: int = 0):
        """Receives from the member `src`."""
        return self._noted("recv", "recv", tensors, self.inner.recv, (tensors, src, tag), self.members[src], tag)

    def recv_anysource(self, tensors, tag: int = 0):
        """Receives from any member; the trace names no peer."""
        return self._noted("recv", "recv", tensors, self.inner.recv_anysource, (tensors, tag), None, tag)

    def batch(self, operations: list) -> list:
        """Does what `dist.batch_isend_irecv` does, grouped in NCCL.

        Returns one handle for all, as torch does. Not tested on a GPU.
        """
        self.inner._start_coalescing()
        parts = []
        for operation in operations:
            sends = operation.op in (dist.isend, dist.send)
            group = operation.group or self
            parts.append((group.send if sends else group.recv)([operation.tensor], operation.group_peer, operation.tag))
        whole = self.inner._end_coalescing()
        recorded = [part for part in parts if isinstance(part, RecordedWork)]
        return [RecordedBatch(whole, recorded)] if recorded else [whole]

    def _noted(self, kind: str, name: str, tensors, function, arguments, peer=None, tag: int = 0, options=None):
        options = options or {}
        if self.fault is not None and self.fault.kind == "slow":
            time.sleep(self.fault.delay_s)
        if self.fault is not None and self.fault.kind == "drop_message" and kind == "send":
            self.fault, function = None, _lost
        if not _log:
            return function(*arguments, **options)
        log, flat = _log[0], _flat(tensors)
        first = flat[0] if flat else None
        number = log.post(
            Record(
                kind,
                name,
                self.members,
                peer,
                sum(t.numel() * t.element_size() for t in flat),
                int(first.storage_offset() * first.element_size()) if first is not None else 0,
                int(first.untyped_storage().nbytes()) if first is not None else 0,
                tag,
                str(first.dtype).removeprefix("torch.") if first is not None else None,
                _line(),
                log.clock.mark(),
            )
        )
        return RecordedWork(function(*arguments, **options), log, number)


def _one_by_one(function):
    """A function that calls `function` for each pair of an output and an input."""

    def call(outputs, inputs, *arguments, **options) -> Works:
        pairs = zip(outputs, inputs, strict=True)
        return Works([function(output, source, *arguments, **options) for output, source in pairs])

    return call


class _Lost(dist._Work):
    """The handle of a message that was dropped on purpose; it looks as if the message was sent."""

    def wait(self, *timeout) -> bool:
        """Returns True at once."""
        return True

    def is_completed(self) -> bool:
        """Always True."""
        return True


def _lost(*arguments, **options) -> _Lost:
    return _Lost()


def _collective(method: str, name: str):
    def call(self, *arguments, **options):
        theirs = _OF_BACKEND.get(method, method)
        function = getattr(self.inner, theirs, None) or _one_by_one(getattr(self.inner, _ONE_OF[theirs]))
        tensors = arguments[1 if method in _OUTPUT_FIRST else 0] if arguments and method != "barrier" else ()
        return self._noted("collective", name, tensors, function, arguments, options=options)

    call.__name__, call.__doc__ = method, f"Records `{name}` and forwards it."
    return call


for _method, _name in COLLECTIVES.items():
    setattr(RecordedGroup, _method, _collective(_method, _name))


def _flat(tensors) -> list[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [t for part in tensors for t in _flat(part)]


def _line() -> int | None:
    frame = sys._getframe(2)
    while frame is not None and in_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_lineno if frame is not None else None


def _create(options, _) -> RecordedGroup:
    members = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
    arguments = (options.store, options.group_rank, options.group_size)
    if c10d.get_backend(_groups["plain"]) == "nccl":
        return RecordedGroup(dist.ProcessGroupNCCL(*arguments, dist.ProcessGroupNCCL.Options()), members)
    return RecordedGroup(dist.ProcessGroupGloo(*arguments, timeout=options.timeout), members)


@contextlib.contextmanager
def _recorded_default() -> Iterator[tuple[RecordedGroup, bool]]:
    """Makes the recorded group the default group inside a `with`; gives (group, whether on a GPU).

    Every rank must enter it at the same time.
    """
    plain = dist.group.WORLD
    if isinstance(plain, RecordedGroup):  # a trace of a call with a fault: one group does both
        yield plain, c10d.get_backend(_groups["plain"]) == "nccl"
        return
    if "recorded" not in _groups:
        _groups["plain"] = plain
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
        _groups["recorded"] = dist.new_group(backend=NAME)
    recorded, on_gpu = _groups["recorded"], dist.get_backend(plain) == "nccl"
    if on_gpu:  # the first collective makes NCCL's communicator, which must not count as the program's time
        recorded.inner.allreduce([torch.zeros(1, device="cuda")]).wait()
    dist.barrier()
    # NCCL needs sends and receives of a batch grouped; torch groups them for its own groups only, not for ours
    grouped = mock.patch.object(dist, "batch_isend_irecv", recorded.batch) if on_gpu else contextlib.nullcontext()
    # torch has no public way to change the default group; `_update_default_pg` is what init_process_group calls
    c10d._update_default_pg(recorded)
    try:
        with grouped:
            yield recorded, on_gpu
    finally:
        c10d._update_default_pg(plain)


def record(function, args: tuple, kwargs: dict) -> tuple:
    """Calls `function` with a recorded default group; returns (its result, this rank's part of the trace).

    Every rank must call it at the same time.
    """
    with _recorded_default() as (_, on_gpu):
        log = _Log(_CudaClock() if on_gpu else _HostClock())
        _log.append(log)
        try:
            result = function(*args, **kwargs)
        finally:
            _log.clear()
    for item in log.records:
        item.posted = log.clock.seconds(item.posted)
        item.done = None if item.done is None else log.clock.seconds(item.done)
    return result, (vars_of(log), {**describe(), "host": socket.gethostname(), "pid": os.getpid()})


@contextlib.contextmanager
def broken(fault) -> Iterator[None]:
    """Inside the `with`, the rank that `fault` names is slow, or loses its first message. Every rank must enter it."""
    with _recorded_default() as (group, _):
        group.fault = fault if dist.get_rank() == fault.rank else None
        try:
            yield
        finally:
            group.fault = None


def vars_of(log: _Log) -> dict:
    """The log as plain data, to be sent to the notebook."""
    return {"records": [vars(r) for r in log.records], "program": log.program}

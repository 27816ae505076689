"""Records what a program sends on the live backend: a process group records each call and forwards it to torch's own group.

It stands in for the default group only inside `record`, so other calls cost nothing. It forwards to the very group that
the calls use outside, so both have one communicator and the same rules; groups that the program makes inside are wrapped
as they are made. An operation ends when it is complete, wherever the program waits for it. Times are those of the machine's
monotonic clock, which all its processes share, so ranks need no alignment; clocks of several machines are not aligned. On GPUs,
times are CUDA events, and the ranks' zeros are the end of one small all_reduce. A trace says which it was.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from allranks.ranks.engines import older_torch
from allranks.ranks.engines.group import PythonGroup
from allranks.ranks.engines.rank import describe, wait_for_gpu
from allranks.ranks.engines.usercode import user_line
from allranks.ranks.nccl_rules import BACKEND

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
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all_single",
    "barrier": "barrier",
}
# methods whose first argument is the output and whose second is the input
_OUTPUT_FIRST = {name for name in COLLECTIVES if name.startswith(("all_gather", "allgather", "gather", "scatter"))} | {
    name for name in COLLECTIVES if name.startswith(("reduce_scatter", "alltoall", "all_to_all"))
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

    on_streams = False  # whether a mark is reached later, by a stream, and not when it is made

    def mark(self):
        return time.monotonic()

    def seconds(self, mark) -> float:
        return mark

    def at_end_of(self, work, tensors: Sequence[torch.Tensor], over, batch: bool = False) -> None:
        """Calls `over(mark)` when the operation is complete, if its handle can tell: gloo's for a message can't."""
        with contextlib.suppress(RuntimeError, NotImplementedError):
            work.get_future().then(lambda _: over(self.mark()))


class _StreamClock:
    """Events on the rank's stream (under NCCL's rules: marks in its queue), placed on the monotonic clock by one event that both clocks know."""

    on_streams = True

    def __init__(self, align: bool) -> None:
        """`align`: the ranks take the end of one all_reduce as the same moment; every rank must be here then."""
        torch.cuda.synchronize()
        self.device = torch.cuda.current_device() if align else None
        # not on the default device: the reader may have set another one
        here = None if self.device is None else torch.device("cuda", self.device)
        if align:
            dist.all_reduce(torch.zeros(1, device=here))
        self.zero, self.zero_s = self.mark(), time.monotonic()
        if align:
            first_s = torch.tensor([self.zero_s], dtype=torch.float64, device=here)
            dist.all_reduce(first_s, op=dist.ReduceOp.MIN)
            self.zero_s = first_s.item()

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        # by its number: in a thread of torch's, the current device is cuda:0, which may be another rank's
        event.record() if self.device is None else event.record(torch.cuda.current_stream(self.device))
        return event

    def seconds(self, mark) -> float:
        mark.synchronize()
        return self.zero_s + self.zero.elapsed_time(mark) * 1e-3

    def at_end_of(self, work, tensors: Sequence[torch.Tensor], over, batch: bool = False) -> None:
        """Calls `over(mark)` with a mark that is reached when the operation is complete; the rank's stream does not wait.

        NCCL's futures are done as soon as the work is queued; what follows one runs on a stream that waits for the work. The
        one handle of a batch has no future in all versions.
        """
        if hasattr(work, "end_mark"):  # under NCCL's rules
            over(work.end_mark())
            return
        # gloo's, which no stream waits for; a scatter has no input but on its root, and says nothing of its device
        if tensors and all(tensor.device.type == "cpu" for tensor in tensors):
            return
        # one stream for all marks: torch takes streams from a pool, from which the reader's come too
        self.side = getattr(self, "side", None) or torch.cuda.Stream()
        for tensor in tensors:
            # what is looked at here, the backend keeps no longer: a program that drops tensor and handle gives the memory to its
            # next tensor, which would be sent
            if tensor.device.type == "cuda":
                tensor.record_stream(self.side)
        with torch.cuda.stream(self.side):  # from torch 2.15 on, get_future makes the current stream wait
            if batch:
                work.wait()
                over(self.mark())
            else:
                with contextlib.suppress(RuntimeError):
                    work.get_future().then(lambda _: over(self.mark()))


class _Log:
    """What this rank did, in order: records, and the program of posts and waits."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.records: list[Record] = []
        self.waited: set[int] = set()
        self.program: list[tuple[str, int]] = []

    def post(self, record: Record) -> int:
        self.records.append(record)
        self.program.append(("post", len(self.records) - 1))
        return len(self.records) - 1

    def end(self, number: int, mark) -> None:
        """Marks when an operation was complete; the first mark counts."""
        if self.records[number].done is None:
            self.records[number].done = mark

    def finish(self, number: int, waited: bool = True) -> None:
        """Marks the end of an operation; `waited`: the program waits for it here."""
        if self.records[number].done is None:
            self.records[number].done = self.clock.mark()
        if waited and number not in self.waited:
            self.waited.add(number)
            self.program.append(("wait", number))


_log: list[_Log] = []  # the log of the `record` under way, if any


class RecordedWork(dist._Work):
    """A handle that calls the backend's handle, and records when the program waited for it.

    From 2.8 on torch's older NCCL class has no handle (None) for a call without async_op: it is in the program's own stream, so
    what the program queues next comes after it.
    """

    def __init__(self, work, log: _Log, number: int, tensors: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self.work, self.log, self.number = work, log, number
        # the backend lets go of them at the first look at its handle, which is ours; the program's is its wait
        self.tensors = tensors

    def mark_end(self) -> None:
        """Lets the clock mark when the operation is complete, even if the program waits later, or never."""
        if self.work is not None:
            self.log.clock.at_end_of(self.work, self.tensors, lambda mark: self.log.end(self.number, mark))

    def wait(self, *timeout) -> bool:
        """Waits for the operation."""
        answer = self.work is None or self.work.wait(*timeout)
        self.log.finish(self.number)
        self.tensors = ()
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
        """The backend's future. It records the end too, because DDP never calls `wait`."""
        return self.work.get_future().then(self._ended)

    def _ended(self, future):
        # NCCL's future is done as soon as its work is queued, and torch runs this on a stream that waits for that work: a
        # mark on that stream is the end, but the program does not wait here
        self.log.finish(self.number, waited=not self.log.clock.on_streams)
        return future.value()

    def _source_rank(self) -> int:
        return self.work._source_rank()


class RecordedBatch(RecordedWork):
    """The one handle of several operations that NCCL runs as a group."""

    def __init__(self, work, parts: list[RecordedWork]) -> None:
        super().__init__(work, parts[0].log, parts[0].number, [t for part in parts for t in part.tensors])
        self.parts = parts

    def mark_end(self) -> None:
        """Lets the clock mark when all of them are complete."""

        def over(mark) -> None:
            for part in self.parts:
                self.log.end(part.number, mark)

        if self.work is not None:
            self.log.clock.at_end_of(self.work, self.tensors, over, batch=True)

    def wait(self, *timeout) -> bool:
        """Waits for all of them."""
        answer = self.work is None or self.work.wait(*timeout)
        for part in self.parts:
            part.log.finish(part.number)
        self.tensors = ()
        return answer


class RecordedGroup(PythonGroup):
    """A group that records every call and forwards it to `inner`, a group of torch's own or one in Python.

    `owner`: `inner` has no other user, so it ends with this group.
    """

    # for torch's C++, which looks for gloo's or NCCL's own object in a group that says their name; dist.get_backend() says it
    backend_name = "recorded"

    def __init__(self, inner: dist.ProcessGroup, members: tuple[int, ...], owner: bool = False) -> None:
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]  # the stub knows only one of its forms
        self.inner, self.members, self.owner, self.fault = inner, members, owner, None
        self._batch: list[RecordedWork] | None = None  # what the batch under way has recorded

    @property
    def _device_types(self) -> list[torch.device]:
        return self.inner._device_types

    @property
    def supports_coalescing(self) -> bool:
        """Whether the backend runs a batch of sends and receives as one, as NCCL does."""
        backend = self.inner._get_backend(torch.device(c10d._get_object_coll_device(self.inner)))
        return getattr(backend, "supports_coalescing", False)

    def shutdown(self) -> None:
        """Ends the inner group, if this one owns it."""
        if self.owner:
            c10d._world.pg_group_ranks.pop(self.inner, None)
            self.inner.shutdown()

    def monitored_barrier(self, *arguments, **options) -> None:
        """Gloo's barrier that names who is missing; it is not recorded."""
        self.inner.monitored_barrier(*arguments, **options)  # type: ignore[attr-defined]  # the stub lacks it

    def _get_sequence_number_for_group(self) -> int:
        return self.inner._get_sequence_number_for_group()  # type: ignore[attr-defined]  # the stub lacks it

    def _start_coalescing(self, device: torch.device) -> None:
        self._batch = []
        self.inner._start_coalescing(device)

    def _end_coalescing(self, device: torch.device):
        whole, parts, self._batch = self.inner._end_coalescing(device), self._batch, None
        if not parts:
            return whole
        batch = RecordedBatch(whole, parts)
        batch.mark_end()
        return batch

    def send(self, tensors, dst: int, tag: int = 0):
        """Sends to the member `dst`."""
        return self._noted("send", "send", tensors, self.inner.send, (tensors, dst, tag), self.members[dst], tag)

    def recv(self, tensors, src: int, tag: int = 0):
        """Receives from the member `src`."""
        return self._noted("recv", "recv", tensors, self.inner.recv, (tensors, src, tag), self.members[src], tag)

    def recv_anysource(self, tensors, tag: int = 0):
        """Receives from any member; the trace names no peer."""
        return self._noted("recv", "recv", tensors, self.inner.recv_anysource, (tensors, tag), None, tag)

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
                user_line(),
                log.clock.mark(),
            )
        )
        work = RecordedWork(function(*arguments, **options), log, number, flat)
        if self._batch is not None:
            self._batch.append(work)
        elif name != "barrier":  # whose handle makes the program wait
            work.mark_end()
        return work


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
        function = older_torch.method(self.inner, method)
        tensors = arguments[1 if method in _OUTPUT_FIRST else 0] if arguments and method != "barrier" else ()
        return self._noted("collective", name, tensors, function, arguments, options=options)

    call.__name__, call.__doc__ = method, f"Records `{name}` and forwards it."
    return call


for _method, _name in COLLECTIVES.items():
    setattr(RecordedGroup, _method, _collective(_method, _name))
for _method, _before in older_torch.METHODS.items():
    setattr(RecordedGroup, _before, getattr(RecordedGroup, _method))


def _flat(tensors) -> list[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [t for part in tensors for t in _flat(part)]


def _known_like(plain: dist.ProcessGroup, members: tuple[int, ...], owner: bool) -> RecordedGroup:
    """A recorded group around `plain`, which torch.distributed knows by the same name, backend and ranks."""
    recorded, known = RecordedGroup(plain, members, owner), c10d._world
    everything: tuple[dict, ...] = (known.pg_map, known.pg_names, known.pg_backend_config, known.pg_to_tag)
    for facts in (*everything, known.pg_group_ranks):
        if plain in facts:
            facts[recorded] = facts[plain]
    return recorded


def _replace(old: dist.ProcessGroup, new: dist.ProcessGroup) -> None:
    """Makes the groups' common name lead to `new`, for DTensor and functional collectives."""
    name = c10d._world.pg_names[new]
    c10d._unregister_process_group(name)
    c10d._register_process_group(name, new)
    for groups in c10d._world.tags_to_pg.values():
        groups[:] = [new if group is old else group for group in groups]


def _recording_helper(plain: dist.ProcessGroup, recorded: RecordedGroup):
    """torch's maker of groups, such that the groups that it makes are recorded. It makes them as outside of a trace."""
    make = c10d._new_process_group_helper

    def helper(size, rank, members, *arguments, **options):
        options["device_id"] = options.get("device_id") or plain.bound_device_id
        c10d._update_default_pg(plain)  # NCCL splits new communicators from that of the default group
        try:
            made, store = make(size, rank, members, *arguments, **options)
        finally:
            c10d._update_default_pg(recorded)
        if not isinstance(made, dist.ProcessGroup) or isinstance(made, RecordedGroup):  # this rank is no member
            return made, store
        wrapped = _known_like(made, tuple(members), owner=True)
        _replace(made, wrapped)
        for facts in (c10d._world.pg_map, c10d._world.pg_backend_config, c10d._world.pg_to_tag, c10d._world.pg_names):
            facts.pop(made, None)
        c10d._world.pg_group_ranks[made] = {member: place for place, member in enumerate(members)}
        return wrapped, store

    return helper


_recorded: dict[dist.ProcessGroup, RecordedGroup] = {}  # the default group's, so that a program can keep it


@contextlib.contextmanager
def _recorded_default() -> Iterator[tuple[RecordedGroup, bool]]:
    """Makes the recorded group the default group inside a `with`; gives (group, whether its calls return before they are done).

    Every rank must enter it at the same time.
    """
    plain = dist.group.WORLD
    queued = c10d._get_object_coll_device(plain) == "cuda" or c10d.get_backend(plain) == BACKEND
    if isinstance(plain, RecordedGroup):  # a trace of a call with a fault: one group does both
        yield plain, queued
        return
    if plain not in _recorded:
        _recorded.clear()
        _recorded[plain] = _known_like(plain, tuple(c10d.get_process_group_ranks(plain)), owner=False)
    recorded = _recorded[plain]
    dist.barrier()
    # torch has no public way to change the default group; `_update_default_pg` is what init_process_group calls
    c10d._update_default_pg(recorded)
    _replace(plain, recorded)
    try:
        with (
            mock.patch.object(c10d, "_new_process_group_helper", _recording_helper(plain, recorded)),
            warnings.catch_warnings(),
        ):
            # torch asks the group of a trace for the device, and the group below it has one
            warnings.filterwarnings("ignore", r"barrier\(\): using the device under current context")
            yield recorded, queued
    finally:
        c10d._update_default_pg(plain)
        _replace(recorded, plain)


def record(function, args: tuple, kwargs: dict) -> tuple:
    """Calls `function` with a recorded default group; returns (its result, this rank's part of the trace).

    Every rank must call it at the same time.
    """
    with _recorded_default() as (group, queued):
        align = queued and c10d.get_backend(group.inner) != BACKEND
        log = _Log(_StreamClock(align) if queued else _HostClock())
        _log.append(log)
        try:
            result = function(*args, **kwargs)
            wait_for_gpu()
        finally:
            _log.clear()
    for item in log.records:
        item.posted = log.clock.seconds(item.posted)
        item.done = None if item.done is None else log.clock.seconds(item.done)
    about = {**describe(), "host": socket.gethostname(), "pid": os.getpid(), "aligned": align}
    return result, (vars_of(log), about)


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

"""The recorder's group, in one process: what it wraps, what torch is told about it, and where its events end."""

import contextlib
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from allranks.ranks.engines import older_torch
from allranks.ranks.engines.group import PythonGroup, Works
from allranks.ranks.world import recorder
from torch.distributed import distributed_c10d as c10d


@contextlib.contextmanager
def default_group(backend):
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


def test_a_trace_uses_the_group_that_is_there_and_no_second_communicator():
    with default_group("gloo") as plain:
        made = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(c10d, "ProcessGroupGloo", lambda *a, **k: made.append(a))
            with recorder._recorded_default() as (recorded, _):
                assert dist.group.WORLD is recorded and recorded.inner is plain
                dist.all_reduce(torch.ones(1))
        assert made == [] and dist.group.WORLD is plain


def test_the_backend_has_its_own_name_in_a_trace():
    """Programs ask for "nccl" to choose their device."""
    with default_group("gloo"), recorder._recorded_default():
        assert dist.get_backend() == "gloo"
        assert dist.get_backend(dist.new_group([0])) == "gloo"


@pytest.mark.parametrize("backend, device", [("gloo", "cpu"), ("cuda:gloo", "cuda")])
def test_object_collectives_choose_the_device_that_the_recorded_backend_takes(backend, device, monkeypatch):
    monkeypatch.setattr(dist, "barrier", lambda: None)  # the one on "cuda" would need a GPU
    with default_group(backend), recorder._recorded_default() as (recorded, queued):
        assert c10d._get_object_coll_device() == device and set(c10d._device_capability(recorded)) >= {device}
        assert queued == (device == "cuda")


def test_groups_that_a_trace_makes_are_recorded_and_can_be_destroyed():
    with default_group("gloo") as plain:
        with recorder._recorded_default():
            made = dist.new_group([0])
            assert isinstance(made, recorder.RecordedGroup) and made.inner is not plain
            assert c10d._resolve_process_group(made.group_name) is made
        after = dist.new_group([0])
        assert type(after) is dist.ProcessGroup
        x = torch.ones(1)
        dist.all_reduce(x, group=made)  # what a trace made can be used after it
        dist.destroy_process_group(made)
        with pytest.raises(ValueError, match="Invalid process group"):
            dist.destroy_process_group(made)


def test_the_name_of_the_default_group_leads_to_the_recorded_one_only_in_a_trace():
    with default_group("gloo") as plain:
        with recorder._recorded_default() as (recorded, _):
            assert c10d._resolve_process_group(recorded.group_name) is recorded
        assert c10d._resolve_process_group(plain.group_name) is plain


def test_what_only_gloo_has_and_the_count_of_collectives_are_there_in_a_trace():
    with default_group("gloo") as plain, recorder._recorded_default() as (recorded, _):
        dist.monitored_barrier()
        dist.all_reduce(torch.ones(1))
        assert recorded._get_sequence_number_for_group() == plain._get_sequence_number_for_group()


class Done(dist._Work):
    def wait(self, *timeout):
        return True


class Batching(PythonGroup):
    """A group in Python whose backend runs a batch as one, as NCCL does."""

    backend_name = "batching"
    supports_coalescing = True

    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.did = []

    def _start_coalescing(self, device):
        self.did.append(f"start {device}")

    def _end_coalescing(self, device):
        self.did.append(f"end {device}")
        return Works([Done()])

    def send(self, tensors, dst, tag=0):
        self.did.append("send")
        return Done()

    def recv(self, tensors, src, tag=0):
        self.did.append("recv")
        return Done()

    def barrier(self, opts=None):
        return Done()


def test_a_batch_is_one_batch_of_a_group_in_python_too_and_has_one_handle(monkeypatch):
    dist.Backend.register_backend("batching", lambda store, rank, size, timeout: Batching(rank, size), devices=["cpu"])
    with default_group("batching") as plain:

        def both_ways():
            part = [dist.P2POp(dist.isend, torch.ones(2), 0), dist.P2POp(dist.irecv, torch.ones(2), 0)]
            works = dist.batch_isend_irecv(part)
            for work in works:
                work.wait()
            return len(works)

        monkeypatch.setattr(recorder, "describe", dict)
        with pytest.MonkeyPatch.context() as patch:  # a batch to itself, which torch refuses
            patch.setattr(c10d, "_check_p2p_op_list", lambda ops: None)
            patch.setattr(dist.P2POp, "__new__", lambda cls, *a: object.__new__(cls))
            patch.setattr(dist.P2POp, "__init__", to_itself)
            handles, (log, _) = recorder.record(both_ways, (), {})
        assert handles == 1
        assert plain.did == ["start cpu", "send", "recv", "end cpu"]
    assert [(r["kind"], r["done"] is not None) for r in log["records"]] == [("send", True), ("recv", True)]
    assert log["program"] == [("post", 0), ("post", 1), ("wait", 0), ("wait", 1)]


def to_itself(self, op, tensor, peer):
    self.op, self.tensor, self.peer, self.group_peer, self.tag, self.group = op, tensor, peer, peer, 0, None


class InItsStream(PythonGroup):
    """As torch's older NCCL class from 2.8 on: a call without async_op runs in the program's stream, and has no handle."""

    backend_name = "initsstream"

    def _start_coalescing(self, device):
        pass

    def _end_coalescing(self, device):
        return None


for _name in [*recorder.COLLECTIVES, *older_torch.METHODS.values()]:
    setattr(InItsStream, _name, lambda self, *arguments, **options: None)


def every_call_without_async_op():
    x, whole, one = torch.ones(2), torch.ones(2), [torch.ones(2)]
    dist.all_reduce(x)
    dist.broadcast(x, src=0)
    dist.reduce(x, dst=0)
    dist.all_gather(one, x)
    dist.all_gather_single(whole, x)
    dist.reduce_scatter(x, one)
    dist.reduce_scatter_single(x, whole)
    dist.all_to_all(one, [x])
    dist.all_to_all_single(whole, x)
    dist.gather(x, one, dst=0)
    dist.scatter(x, one, src=0)
    dist.barrier()
    with c10d._coalescing_manager():
        dist.all_reduce(x)
        dist.all_reduce(whole)


def test_calls_that_have_no_handle_are_recorded_to_their_end(monkeypatch):
    """With torch 2.11 to 2.14 on GPUs, every trace of a call without async_op stopped at its wait."""
    make = lambda store, rank, size, timeout: InItsStream(rank, size)  # noqa: E731
    dist.Backend.register_backend("initsstream", make, devices=["cpu"])
    monkeypatch.setattr(recorder, "describe", dict)
    with default_group("initsstream"):
        _, (log, _) = recorder.record(every_call_without_async_op, (), {})
    names = [r["name"] for r in log["records"]]
    assert set(names) == set(recorder.COLLECTIVES.values()) and len(names) == 13
    assert all(r["done"] is not None for r in log["records"])
    assert [what for what, _ in log["program"]] == ["post", "wait"] * 13


def test_a_batch_that_has_no_handle_ends_where_the_program_waits():
    log = recorder._Log(recorder._HostClock())
    number = log.post(recorder.Record("collective", "all_reduce", (0,), None, 4, 0, 4, 0, "float32", 1, 0.0))
    batch = recorder.RecordedBatch(None, [recorder.RecordedWork(None, log, number)])
    batch.mark_end()
    assert log.records[0].done is None and batch.wait() is True and log.records[0].done is not None


class Events:
    """A clock of events, as on a GPU: a mark has a time only once its stream has reached it."""

    on_streams = True

    def __init__(self):
        self.made = []

    def mark(self):
        self.made.append(f"event {len(self.made)}")
        return self.made[-1]

    at_end_of = recorder._StreamClock.at_end_of


class Queued(dist._Work):
    """A handle as NCCL's: its future is done as soon as the work is queued."""

    def wait(self, *timeout):
        return True

    def get_future(self):
        future = torch.futures.Future()
        future.set_result([torch.ones(1)])
        return future


def test_a_future_marks_the_end_on_its_stream_and_is_no_wait():
    """DDP never calls `wait`; its all_reduces had no end on GPUs."""
    log = recorder._Log(Events())
    number = log.post(
        recorder.Record("collective", "all_reduce", (0,), None, 4, 0, 4, 0, "float32", 1, log.clock.mark())
    )
    work = recorder.RecordedWork(Queued(), log, number)
    assert log.records[0].done is None
    assert work.get_future().wait()[0].tolist() == [1.0]
    assert log.records[0].done == "event 1" and log.program == [("post", 0)]
    work.wait()
    assert log.records[0].done == "event 1" and log.program == [("post", 0), ("wait", 0)]


class Streams:
    """torch.cuda's streams: the stream that is current, and what each waits for."""

    def __init__(self, monkeypatch):
        self.current, self.waits = "main", {}
        monkeypatch.setattr(torch.cuda, "Stream", lambda: f"side {len(self.waits)}")
        monkeypatch.setattr(torch.cuda, "stream", self.on)

    @contextlib.contextmanager
    def on(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before


class Latest(Queued):
    """A handle as torch 2.15's: whoever takes its future, or waits, makes the current stream wait."""

    def __init__(self, streams):
        super().__init__()
        self.streams = streams

    def wait(self, *timeout):
        self.streams.waits[self.streams.current] = True
        return True

    def get_future(self):
        self.wait()
        return super().get_future()


@pytest.mark.parametrize("many", [False, True])
def test_a_bar_ends_with_the_operation_and_not_where_the_program_waits(monkeypatch, many):
    streams, log = Streams(monkeypatch), recorder._Log(Events())
    log.clock.mark = lambda: log.clock.made.append(streams.current) or f"event on {streams.current}"
    numbers = [
        log.post(recorder.Record("collective", "all_reduce", (0,), None, 4, 0, 4, 0, "float32", 1, "start"))
        for _ in range(1 + many)
    ]
    kept: list[str] = []  # streams that must be done before the memory is another tensor's
    held = SimpleNamespace(device=torch.device("cuda", 1), record_stream=kept.append)
    parts = [recorder.RecordedWork(Latest(streams), log, n, [held]) for n in numbers]
    work = recorder.RecordedBatch(Latest(streams), parts) if many else parts[0]
    work.mark_end()
    assert {r.done for r in log.records} == {"event on side 0"}
    assert set(streams.waits) == {"side 0"}, "what the program queues next must not wait for the operation"
    assert work.tensors == [held] * len(numbers), "the program has not waited: its memory must stay"
    assert set(kept) == {"side 0"}, "also where the program drops its handle: the backend has let go of the tensors"
    assert [what for what, _ in log.program] == ["post"] * len(numbers)
    work.wait()
    assert {r.done for r in log.records} == {"event on side 0"} and work.tensors == ()
    assert [what for what, _ in log.program] == ["post"] * len(numbers) + ["wait"] * len(numbers)


def test_a_gloo_group_in_a_world_on_gpus_ends_where_the_program_waits(monkeypatch):
    """Its future is completed by a thread of gloo's, which has no stream of this rank."""
    streams, log = Streams(monkeypatch), recorder._Log(Events())
    record = recorder.Record("collective", "all_reduce", (0,), None, 4, 0, 4, 0, "float32", 1, "start")
    work = recorder.RecordedWork(Latest(streams), log, log.post(record), [torch.ones(1)])
    work.mark_end()
    assert record.done is None and not streams.waits
    work.wait()
    assert record.done is not None


def test_a_scatter_without_an_input_is_no_work_of_gloos(monkeypatch):
    """Off the root c10d gives a scatter no input tensors, which say nothing of the device."""
    streams, log = Streams(monkeypatch), recorder._Log(Events())
    record = recorder.Record("collective", "scatter", (0,), 0, 4, 0, 4, 0, "float32", 1, "start")
    work = recorder.RecordedWork(Latest(streams), log, log.post(record), [])
    work.mark_end()
    assert record.done is not None


def test_the_zeros_of_gpus_are_the_end_of_one_all_reduce(monkeypatch):
    """Each rank's clock begins when its own event is reached; the all_reduce makes that one moment."""
    done = []

    class Event:
        def __init__(self, enable_timing):
            pass

        def record(self, stream):
            done.append(f"zero on {stream}")

    def all_reduce(tensor, op=None):
        done.append("all_reduce")
        if op is not None:
            tensor -= 5.0  # another rank was here 5 seconds earlier

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"cuda:{device}")
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    zeros, tensor, places = torch.zeros, torch.tensor, []
    monkeypatch.setattr(torch, "zeros", lambda *size, device: places.append(device) or zeros(*size))
    monkeypatch.setattr(torch, "tensor", lambda data, dtype, device: places.append(device) or tensor(data, dtype=dtype))
    monkeypatch.setattr(recorder.time, "monotonic", lambda: 100.0)
    assert recorder._StreamClock(align=True).zero_s == 95.0
    assert done == ["synchronize", "all_reduce", "zero on cuda:3", "all_reduce"]
    assert places == [torch.device("cuda", 3)] * 2, "the reader may have set another default device"


def test_a_barrier_in_a_trace_warns_of_no_device(monkeypatch):
    """The recorded group shows torch no device; the group that it forwards to has one, and takes it."""
    monkeypatch.setattr(recorder, "_recorded", {})
    monkeypatch.setattr(recorder.RecordedGroup, "barrier", lambda self, opts: Queued())
    with default_group("gloo"), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with recorder._recorded_default(), monkeypatch.context() as gpu:
            gpu.setattr(torch._C, "_get_accelerator", lambda: torch.device("cuda"))
            gpu.setattr(c10d, "_get_object_coll_device", lambda *_: "cuda")
            dist.barrier()
        assert [str(w.message) for w in told if "barrier" in str(w.message)] == []


ON_NCCL = """
import os, sys
from unittest import mock
import torch, torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from allranks.ranks.world import recorder

def options():  # with enable_reconfigure the class is made without a GPU; its end would look for one, so the process just ends
    made = dist.ProcessGroupNCCL.Options()
    made.enable_reconfigure = True
    return made

cuda = torch.device("cuda")
with mock.patch.object(c10d, "_nccl2_device", lambda opts: None), mock.patch.object(dist, "barrier"):
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, pg_options=options())
    theirs = dist.group.WORLD._get_backend(cuda)
    with recorder._recorded_default() as (recorded, queued):
        assert recorded.inner._get_backend(cuda) is theirs
        part = dist.new_group([0], pg_options=options())
        print(type(theirs).__name__, type(part.inner._get_backend(cuda)).__name__, type(part).__name__)
        print(dist.get_backend(), dist.get_backend(part), c10d._get_object_coll_device(), queued)
        print(recorded.supports_coalescing, part.supports_coalescing)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.wheel
@pytest.mark.skipif(
    not hasattr(dist, "ProcessGroupNCCL2"),
    reason="this torch has no ProcessGroupNCCL2: it needs the CUDA wheel of 2.15",
)
def test_a_trace_on_nccl_wraps_the_class_that_nccl_is():
    """From torch 2.15 on, "nccl" is ProcessGroupNCCL2; without a driver the legacy class can't even be made."""
    done = subprocess.run([sys.executable, "-c", ON_NCCL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [
        "ProcessGroupNCCL2 ProcessGroupNCCL2 RecordedGroup",
        "nccl nccl cuda True",
        "True True",
    ]

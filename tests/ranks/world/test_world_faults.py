"""Faults on purpose, limits and idleness: what a reader sees of a broken job, on real ranks."""

import contextlib
import ctypes
import json
import os
import re
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
import torch
from allranks import World
from allranks.ranks.engines import watch
from allranks.ranks.engines.devices import DeviceError
from allranks.ranks.engines.leases import Ledger
from allranks.ranks.world import RankDied, RanksError, RanksStuck, WorldError, current
from allranks.ranks.world import idle as idleness
from allranks.ranks.world.call import Call
from allranks.ranks.world.hang import missing_ranks
from allranks.ranks.world.idle import Idle
from allranks.ranks.world.rank_status import RankStatus
from allranks.ranks.world.screen import Line
from c_libraries import library
from waiting import until

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def world():
    with World(ranks=3) as started:
        yield started


def ring_once(numel=4):
    import torch
    import torch.distributed as dist

    rank, p = dist.get_rank(), dist.get_world_size()
    arriving = torch.empty(numel)
    sending = dist.isend(torch.full((numel,), float(rank)), (rank + 1) % p)
    dist.recv(arriving, (rank - 1) % p)
    sending.wait()
    return arriving.tolist()


def works(world):
    assert world.run(ring_once, 2) == [[2.0] * 2, [0.0] * 2, [1.0] * 2]


def all_reduce_for_a_while():
    import time

    import torch
    import torch.distributed as dist

    began = time.monotonic()
    while time.monotonic() - began < 20:
        dist.all_reduce(torch.ones(8))


def test_a_killed_rank_is_named_with_what_the_others_saw(world):
    world.fault(rank=1, kind="kill", after_s=0.3)
    with pytest.raises(RankDied) as caught:
        world.run(all_reduce_for_a_while)
    said = str(caught.value)
    assert said.startswith("Rank 1 was killed by SIGKILL")
    # gloo tells a neighbour at once; a rank that is not told still waits in the all_reduce
    assert "RuntimeError" in said or "in dist.all_reduce, float32[8]" in said
    works(world)


def test_a_paused_rank_stops_the_others_until_the_deadline(world, reached):
    reached(lambda found: [s.op for s in found] == ["all_reduce", "all_reduce", None] and not found[2].known)
    world.fault(rank=2, kind="pause", after_s=0.2)
    with pytest.raises(RanksStuck) as caught:
        world.run(all_reduce_for_a_while, deadline=1.5)
    statuses = {s.rank: s for s in caught.value.statuses}
    assert not statuses[2].known
    assert statuses[0].op == statuses[1].op == "all_reduce"
    works(world)


def test_a_slow_rank_delays_each_of_its_operations_and_nothing_more(world):
    world.fault(rank=0, kind="slow", delay_s=0.5)
    results, trace = world.trace(ring_once, 2)
    assert results == [[2.0] * 2, [0.0] * 2, [1.0] * 2]
    sent, received = (next(e for e in trace if e.rank == 0 and e.op == op) for op in ("send", "recv"))
    assert received.start - sent.start >= 0.5  # a sleep is never shorter than asked
    works(world)


def test_a_dropped_message_leaves_its_receiver_waiting(world, reached):
    reached(lambda found: [(s.rank, s.op) for s in found] == [(1, "recv")])
    world.fault(rank=0, kind="drop_message")
    with pytest.raises(RanksStuck) as caught:
        world.run(ring_once, deadline=1.5)
    (status,) = caught.value.statuses
    assert (status.rank, status.op, status.peer) == (1, "recv", 0)
    assert "ranks 0 and 2: done" in str(caught.value)
    works(world)


def test_a_fault_reaches_a_cell_too(world):
    world.fault(rank=1, kind="drop_message")
    send = "dist.send(torch.ones(1), 2) if rank == 1 else dist.recv(torch.ones(1), 1) if rank == 2 else None"
    with pytest.raises(RanksStuck):
        world.cell(send, 1)
    works(world)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"rank": 3, "kind": "kill"}, "ranks 0 to 2"),
        ({"rank": -1, "kind": "kill"}, "ranks 0 to 2"),
        ({"rank": 0, "kind": "explode"}, "one of kill, pause, slow, drop_message"),
        ({"rank": 0, "kind": "slow", "delay_s": -1}, "0 or more"),
    ],
)
def test_a_fault_that_can_not_be_is_refused(world, arguments, words):
    with pytest.raises(WorldError, match=words):
        world.fault(**arguments)
    works(world)


def test_who_is_missing_from_which_collective_is_said(world, reached):
    reached(lambda found: [s.shape for s in found] == [(2, 2), (3,)])

    def some_only():
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 0:
            dist.recv(torch.ones(2, 2), 1)
        elif dist.get_rank() == 1:
            dist.all_reduce(torch.ones(3, dtype=torch.int64))

    with pytest.raises(RanksStuck) as caught:
        world.run(some_only, deadline=1)
    first, second = caught.value.statuses
    assert (first.op, first.peer, first.shape, first.dtype) == ("recv", 1, (2, 2), "float32")
    assert (second.op, second.shape, second.dtype) == ("all_reduce", (3,), "int64")
    assert "rank 1 waits in all_reduce (collective" in str(caught.value)
    assert "rank 0 is in dist.recv, rank 2 is done." in str(caught.value)


@pytest.mark.parametrize("traced", [False, True])
def test_messages_before_do_not_change_who_is_missing(world, reached, traced):
    """gloo's number of a group counts messages too, and rank 0 had sent more of them: it was told to be alone in a later collective."""
    reached(lambda found: [s.op for s in found] == ["all_reduce", "all_reduce"])

    def messages():
        import torch
        import torch.distributed as dist

        for other in (1, 2):
            if dist.get_rank() == 0:
                dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(1), other)])[0].wait()
            elif dist.get_rank() == other:
                dist.recv(torch.ones(1), 0)

    def without_the_last():
        import torch
        import torch.distributed as dist

        if dist.get_rank() < 2:
            dist.all_reduce(torch.ones(3))

    (world.trace if traced else world.run)(messages)
    with pytest.raises(RanksStuck) as caught:
        world.run(without_the_last, deadline=1)
    assert len({status.seq for status in caught.value.statuses}) == 1
    assert "ranks 0 and 1 wait in all_reduce (collective" in str(caught.value)
    assert "rank 2 is done." in str(caught.value)


def only_queued(raises: bool):
    """With NCCL a collective returns at once and the GPU waits for the others: a GPU is pretended on all ranks but 0."""
    import functools
    import time

    import torch
    import torch.distributed as dist

    if dist.get_rank() > 0:
        torch.cuda.is_initialized = lambda: True
        torch.cuda.synchronize = functools.partial(time.sleep, 60)
    elif raises:
        raise ValueError("no batch")


def test_ranks_whose_gpu_waits_for_one_that_never_came_are_stuck(world, reached):
    reached(lambda found: [s.rank for s in found if s.waits_for == "GPU"] == [1, 2] and len(found) == 2)
    with pytest.raises(RanksStuck) as caught:
        world.run(only_queued, False, deadline=1)
    assert [(s.rank, s.waits_for, s.op) for s in caught.value.statuses] == [(1, "GPU", None), (2, "GPU", None)]
    said = str(caught.value)
    assert "rank 2: waits for its GPU, where something begun does not end" in said
    assert re.search(r"^ranks 1 and 2 wait for the GPU \(collectives begun: \d+\); rank 0 is done\.$", said, re.M)
    works(world)


def behind_a_queue():
    """A rank that computes in C code, and a function in `watch.waits` that knows for which queued operation it waits."""
    import time

    import torch.distributed as dist
    from allranks.ranks.engines import watch

    if dist.get_rank() == 1:
        watch.waits.append(lambda: 1 / 0)  # one that can't tell keeps no other from telling
        queued = {"op": "recv", "peer": 2, "shape": [4], "dtype": "float32", "begun": 7, "waits_for": "queue"}
        watch.waits.append(lambda: queued)
        time.sleep(60)
    raise ValueError("no batch")


def test_what_a_process_says_that_it_waits_for_is_in_the_report(world):
    with pytest.raises(RanksStuck, match="no batch") as caught:
        world.run(behind_a_queue, deadline=50)
    (status,) = caught.value.statuses
    assert status.waits and status.collective is None
    assert str(status).startswith(
        "rank 1: waits for its queue: dist.recv from rank 2, float32[4], begun in line 7, line "
    )
    assert str(status).endswith(": time.sleep(60)")
    works(world)


def test_a_gpu_that_waits_for_a_rank_that_failed_is_not_waited_for(world):
    with pytest.raises(RanksStuck, match="no batch") as caught:
        world.run(only_queued, True, deadline=50)
    assert "The other ranks wait for something that can't come any more" in str(caught.value)
    assert "rank 0 failed." in str(caught.value)
    works(world)


def reads_a_tensor(busy: list[bool], moves: int | None = None):
    """As x.item() on a GPU that waits for rank 0: the ranks stand in a C call. `busy`: which GPUs have unfinished work."""
    import time

    import torch.distributed as dist
    from allranks.ranks.engines import watch

    rank = dist.get_rank()
    watch.gpu_works = lambda frame: busy[rank]
    if rank == 0:
        raise ValueError("no batch")
    while rank == moves:
        rank = rank + 0
    time.sleep(60)  # x.item()


def test_a_rank_that_reads_from_a_gpu_that_waits_is_not_computing(world):
    with pytest.raises(RanksStuck, match="no batch") as caught:
        world.run(reads_a_tensor, [True] * 3, deadline=50)
    assert "The other ranks wait for something that can't come any more" in str(caught.value)
    assert [(s.rank, s.waits_for, s.op) for s in caught.value.statuses] == [(1, "GPU", None), (2, "GPU", None)]
    assert re.search(r"rank 1: waits for its GPU, line \d+: time.sleep\(60\)  # x.item\(\)$", str(caught.value), re.M)
    works(world)


def test_a_panel_of_a_rank_that_reads_from_its_gpu_says_so(world, tmp_path):
    """The rank looks twice before it answers; the picture must wait for that."""
    go_on = str(tmp_path / "go_on")
    os.mkfifo(go_on)

    def read():
        from allranks.ranks.engines import watch

        watch.gpu_works = lambda frame: True
        os.close(os.open(go_on, os.O_RDONLY))  # x.cpu()

    call = threading.Thread(target=lambda: world.run(read))
    call.start()
    try:
        asked = Call(world._engines, None, (), 30)
        until(lambda: asked._picture(1.0).count("waiting for its GPU") == 3)
    finally:
        writes = os.open(go_on, os.O_RDWR)  # who reads goes on
        call.join()
        os.close(writes)
    works(world)


@pytest.mark.parametrize("words, fresh", [("device-side assert triggered", True), ("out of memory", False)])
def test_an_error_that_cuda_repeats_replaces_the_ranks(world, words, fresh):
    def asserts():
        raise torch.AcceleratorError(f"CUDA error: {words}")

    before = world.pids
    with pytest.raises(RanksError, match=words) as caught:
        world.run(asserts)
    assert ("The world has fresh ranks now" in str(caught.value)) == fresh == (world.pids != before)
    works(world)


def test_a_rank_that_computes_on_the_cpu_still_reads_as_computing(world, reached):
    """One stands in C code while its GPU is idle, the other moves on while its GPU works."""
    reached(lambda found: [s.rank for s in found if "computing, line" in str(s)] == [1, 2])
    with pytest.raises(RanksStuck) as caught:
        world.run(reads_a_tensor, [True, False, True], 2, deadline=2.5)
    assert "Not every rank returned within 2.5 s" in str(caught.value)
    assert [(s.waits_for, s.waits) for s in caught.value.statuses] == [(None, False), (None, False)]
    assert "rank 1: computing, line" in str(caught.value) and "rank 2: computing, line" in str(caught.value)
    works(world)


def test_a_rank_that_synchronizes_its_gpu_waits_for_it(world, reached):
    reached(lambda found: [s.waits_for for s in found] == ["GPU"] * 3)

    def synchronizes():
        import contextlib
        import functools
        import time

        import torch

        torch.cuda._lazy_init = lambda: None
        torch._C._cuda_synchronize = functools.partial(time.sleep, 60)
        torch.cuda.device = contextlib.nullcontext
        torch.cuda.synchronize()

    with pytest.raises(RanksStuck) as caught:
        world.run(synchronizes, deadline=1)
    assert [(s.waits_for, s.text) for s in caught.value.statuses] == [("GPU", "torch.cuda.synchronize()")] * 3
    works(world)


def test_a_script_for_torchrun_learns_what_to_leave_out(world):
    """A rank has its group already: to make another is refused, and to end it leaves the ranks without one."""

    def makes_it_again():
        import torch.distributed as dist

        dist.init_process_group("gloo")

    def ends_it():
        import torch.distributed as dist

        dist.destroy_process_group()

    pids = world.pids
    with pytest.raises(RanksError, match=r"a rank has its group already: leave this line out"):
        world.run(makes_it_again)
    assert world.pids == pids
    works(world)
    world.run(ends_it)
    with pytest.raises(RanksError, match=r"has ended the group of all ranks; leave it out(?s:.*)fresh ranks"):
        world.run(ring_once)
    works(world)


def test_a_process_without_cuda_is_not_asked_for_its_streams():
    assert not watch._gpu_works(sys._getframe())


# as CUDA's own library: stream 1 is busy, 2 records a graph, 3 is asked while the driver waits; the device must be 3. A thread
# that has named no device gets a context on the first one, as in libcudart 13.0
CUDART = """
#include <unistd.h>
static int device = -1, relaxed = 0;
int contexts_of_others = 0;
int cudaThreadExchangeStreamCaptureMode(int* mode) {
    if (device < 0) contexts_of_others++;
    relaxed = *mode == 2;
    *mode = 0;
    return 0;
}
int cudaSetDevice(int number) { device = number; return 0; }
int cudaStreamIsCapturing(void* stream, int* state) { *state = stream == (void*)2; return 0; }
int cudaStreamQuery(void* stream) {
    if (!relaxed || device != 3 || stream == (void*)2) _exit(1);
    if (stream == (void*)3) sleep(600);
    return stream == (void*)1 ? 600 : 0;
}
int cudaGetLastError(void) { return 0; }
"""


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    """CUDA's streams as stand-ins, by their handles."""

    class Stream:
        def __init__(self, handle):
            self.cuda_stream = handle

        def query(self):
            raise AssertionError("torch's own question holds Python's lock while the driver lets it wait")

    made = library(tmp_path / "libcudart.so.99", CUDART, "-Wl,-soname,libcudart.so.99")
    loaded = ctypes.CDLL(made)  # by torch; the name alone leads there then
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.version, "cuda", "99.1")
    monkeypatch.setattr(watch, "_gpu", [torch.device("cuda", 3)])
    monkeypatch.setattr(watch, "_questions", [])
    yield Stream
    del loaded


def test_a_stream_that_records_a_graph_is_not_asked(cuda):
    recording = cuda(2)
    assert not watch._gpu_works(sys._getframe()), recording


def test_no_stream_is_asked_where_the_thread_could_end_a_recording(cuda, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "98.0")
    busy = cuda(1)
    assert not watch._gpu_works(sys._getframe()), f"this machine has no libcudart.so.98: {busy}"


def test_the_streams_in_the_users_variables_count(cuda):
    assert not watch._gpu_works(sys._getframe())
    copying = cuda(1)
    assert watch._gpu_works(sys._getframe()), copying


def test_a_question_makes_no_context_on_another_ranks_gpu(cuda):
    busy = cuda(1)
    assert watch._gpu_works(sys._getframe()), busy
    assert ctypes.c_int.in_dll(ctypes.CDLL("libcudart.so.99"), "contexts_of_others").value == 0


@pytest.mark.timeout(60)
def test_a_driver_that_does_not_answer_keeps_no_panel_waiting(cuda):
    """cudaFree, for example, waits for the GPU and holds a lock that each question needs: then the rank waits for its GPU."""
    stuck = cuda(3)
    assert watch._gpu_works(sys._getframe()) and watch._gpu_works(sys._getframe()), stuck


def test_what_a_gpu_says_late_is_the_cells_error(world):
    def broken():
        import torch

        def synchronize():
            raise RuntimeError("device-side assert triggered")

        torch.cuda.is_initialized, torch.cuda.synchronize = lambda: True, synchronize

    with pytest.raises(RanksError, match="device-side assert"):
        world.run(broken)
    with pytest.raises(RanksError, match="device-side assert"):
        world.cell("x = 1")
    world.reset()


def test_a_rank_that_dies_between_calls_is_said_within_moments(world):
    said = []
    world._line.say = said.append
    os.kill(world.pids[2], 9)
    until(lambda: said)
    assert said == ["rank 2 was killed by SIGKILL; the next call gets fresh ranks."]
    with pytest.raises(RankDied):
        world.run(os.getpid)
    works(world)


def test_all_in_the_same_collective_means_nobody_is_missing():
    here = [RankStatus(r, op="barrier", seq=4, group=(0, 1)) for r in range(2)]
    assert missing_ranks(here, {}) == []
    late = [RankStatus(0, op="barrier", seq=5, group=(0, 1)), RankStatus(1, op="barrier", seq=4, group=(0, 1))]
    assert missing_ranks(late, {}) == ["rank 0 waits in barrier (collective 5); rank 1 is in dist.barrier."]
    alone = [RankStatus(0, op="all_reduce", seq=2, group=(0, 1, 2)), RankStatus(2, known=False)]
    assert missing_ranks(alone, {1: "was killed by SIGKILL"}) == [
        "rank 0 waits in all_reduce (collective 2); rank 1 was killed by SIGKILL, rank 2 does not answer."
    ]


def test_a_rank_that_fills_the_memory_gets_an_error_and_the_machine_lives():
    def fill():
        import torch

        return torch.ones(3 << 28).numel()  # 3 GiB

    with World(ranks=2, memory_bytes=2 << 30) as small:
        with pytest.raises(RanksError, match=r"(?i)memory"):
            small.run(fill)
        assert small.run(os.getpid) == small.pids
        with pytest.raises(WorldError):
            World(ranks=2, memory_bytes=5, idle_minutes=-1)


def test_an_idle_world_says_so_and_stops():
    with World(ranks=2, idle_minutes=1 / 60) as idle:
        pids = idle.pids
        until(lambda: not idle.running)
        until(lambda: not any(map(psutil.pid_exists, pids)))
        with pytest.raises(WorldError, match=r"stopped itself after .* minutes without use"):
            idle.run(os.getpid)
        idle._idle.limit_s = 600  # it would end again before a busy machine has called it
        idle.reset()
        assert len(idle.run(os.getpid)) == 2


def test_ranks_that_are_ended_on_purpose_are_not_told_as_dead(monkeypatch):
    with World(ranks=2) as world:
        cluster, seen = world._engines._cluster, []
        children = [launcher.child for launcher in world._engines._launchers.values()]
        stop_cluster = cluster.stop_cluster_sync

        def slowly():
            assert all(child.wait(60) is not None for child in children)
            seen.append(world._engines.dead())
            stop_cluster()

        monkeypatch.setattr(cluster, "stop_cluster_sync", slowly)
    assert seen == [{}]


def test_a_controller_that_is_ended_on_purpose_is_not_told_as_dead(monkeypatch):
    with World(ranks=2) as world:
        engines = world._engines
        poll = engines._cluster.controller.poll

        def ended_meanwhile():
            world.stop()
            return poll()

        monkeypatch.setattr(engines._cluster.controller, "poll", ended_meanwhile)
        assert engines.controller_died() is None


def test_what_has_ended_is_not_looked_at_any_more(monkeypatch):
    monkeypatch.setattr(idleness, "LOOK_S", 3600)  # only the end wakes it
    looked = []
    idle = Idle(600, lambda: True, lambda left: None, lambda: bool(looked.append(True)))
    idle.start()
    thread = idle._thread
    until(lambda: idle._changed._waiters, says="it does not wait for a change")
    idle.end()
    thread.join(30)
    assert not thread.is_alive() and not looked


def test_use_puts_idleness_off_and_it_is_warned_of_before(monkeypatch):
    now, told = [0.0], []
    monkeypatch.setattr(idleness, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(idleness, "LOOK_S", 0.01)  # in the machine's time: it looks at ours so often
    idle = Idle(500, lambda: told.append("stop") or True, told.append)
    idle.start()
    thread = idle._thread
    for times in (1, 2, 3):
        now[0] += 400
        until(lambda times=times: told.count(100.0) == times, says="it did not warn")
        idle.touch()
        until(
            lambda times=times: told.count(None) == times, says="the warning was not taken back when the world was used"
        )
    now[0] += 400
    until(lambda: told.count(100.0) == 4, says="it did not warn")
    now[0] += 101
    thread.join(30)
    assert not thread.is_alive() and told == [100.0, None] * 3 + [100.0, "stop"]


def test_what_is_started_again_at_once_is_counted_too():
    """Ended and started, or started while it was stopped, before the thread that counts has noticed."""
    told = []
    idle = Idle(
        0.2, lambda: told.append("stop") or (idle.start() if len(told) < 3 else None) or True, lambda left: None
    )
    for _ in range(50):
        idle.start()
        idle.end()
    idle.start()
    until(lambda: len(told) >= 3)
    assert told == ["stop"] * 3


def test_what_others_want_is_given_back_without_idleness(monkeypatch):
    monkeypatch.setattr(idleness, "LOOK_S", 0.02)
    wanted, stopped, looks = [], [], []
    idle = Idle(
        600, lambda: stopped.append(True) or True, lambda left: None, lambda: looks.append(True) or bool(wanted)
    )
    idle.start()
    idle.touch()
    until(lambda: len(looks) >= 3)  # so it has decided twice since the use
    assert not stopped
    wanted.append(True)
    until(lambda: stopped)
    assert stopped == [True]


@pytest.mark.parametrize(
    ("options", "uuids", "shares"),
    [({}, ["GPU-0", "GPU-1"], None), ({"gpus": 1}, ["GPU-0"], None), ({"shared": True}, ["GPU-0", "GPU-1"], 4)],
    ids=["whole", "one for two ranks", "shared"],
)
def test_a_world_on_gpus_takes_a_lease_and_gives_it_back_when_it_can_not_start(
    tmp_path, monkeypatch, options, uuids, shares
):
    """On pretend GPUs NCCL can't start: the sentence comes from the rank, and the lease is free again."""
    inventory = tmp_path / "inventory.json"
    gpus = [{"uuid": f"GPU-{i}", "name": "Pretend", "memory_bytes": 1 << 30} for i in range(2)]
    inventory.write_text(json.dumps({"gpus": gpus, "cores": 2, "nccl": "2.30.7"}))
    monkeypatch.setenv("ALLRANKS_INVENTORY", str(inventory))
    monkeypatch.setenv("ALLRANKS_LEASES", str(tmp_path / "leases"))
    taken = []
    acquire = Ledger.acquire

    def watched(self, count, **how):
        assert how["shares"] == shares
        taken.append(acquire(self, count, **how))
        return taken[-1]

    monkeypatch.setattr(Ledger, "acquire", watched)
    with pytest.raises(WorldError, match=r"Rank \d could not join the nccl group"):
        World(ranks=2, **options)
    (lease,) = taken
    assert [g.uuid for g in lease.gpus] == uuids
    assert set(Ledger(lease.gpus).holders().values()) == {None}
    assert not any(Ledger(lease.gpus).sharers().values())


@pytest.mark.parametrize("end", ["stop", "reset"])
def test_a_call_ends_when_somebody_ends_its_ranks_and_what_was_asked_for_stays(end, tmp_path):
    def stay(path):
        path.touch()
        time.sleep(60)

    with World(ranks=2) as world:
        runs = tmp_path / "runs"
        before, ending = world.pids, threading.Thread(target=lambda: (until(runs.exists), getattr(world, end)()))
        ending.start()
        with pytest.raises(WorldError, match="stopped or reset while this call ran"):
            world.run(stay, runs, deadline=50)
        ending.join()
        if end == "stop":
            assert not world.running
        else:
            assert world.run(os.getpid) == world.pids != before


def test_a_process_forked_from_the_notebooks_neither_uses_nor_ends_its_ranks():
    with World(ranks=2) as world:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                world.run(os.getpid, deadline=3)
            except WorldError as error:
                os.write(write, str(error).encode())
            finally:
                world.stop()
                os._exit(0)
        os.close(write)
        with open(read) as told:
            assert "forked" in told.read()
        assert os.waitpid(child, 0)[1] == 0
        assert world.run(os.getpid) == world.pids


def test_the_controller_keeps_nothing_of_what_was_sent():
    with World(ranks=2) as world:
        controller = psutil.Process(world._engines._cluster.controller.child.pid)
        world.run(bytes, 20_000_000)
        before = controller.memory_info().rss
        for _ in range(8):
            world.run(bytes, 20_000_000)
        assert controller.memory_info().rss - before < 150_000_000  # of 320 that went through


def test_a_start_that_is_interrupted_at_its_end_leaves_no_ranks(monkeypatch):
    say = Line.say

    def stopped(self, text):
        if text.startswith("ready"):
            monkeypatch.setattr(Line, "say", say)
            raise KeyboardInterrupt
        say(self, text)

    monkeypatch.setattr(Line, "say", stopped)
    with pytest.raises(KeyboardInterrupt):
        World(ranks=2)
    first = current().pids
    with World(ranks=3):
        assert psutil.wait_procs([p for p in map(process_or_none, first) if p], timeout=30)[1] == []


def process_or_none(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid)


def test_a_world_that_is_refused_leaves_the_running_one():
    with World(ranks=2) as world:
        with pytest.raises(WorldError, match="name="):
            World(ranks=2, name="my world")
        with pytest.raises(DeviceError, match="memory_bytes"):
            World(ranks=3, memory_bytes=7)
        assert world.running

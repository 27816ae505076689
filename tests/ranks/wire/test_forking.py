"""A fork from inside a call takes nothing of the caller's variables along, and is otherwise as any other."""

import os
import subprocess
import sys
import threading

import pytest
import torch.distributed as dist
from allranks.ranks.engines.forkserver.client import ForkServer
from allranks.ranks.wire import Program, Ranks, WireError, forking, launch, run

STACK = """
import sys, threading
def f():
    frame, names = sys._getframe(), []
    while frame is not None:
        names.append(frame.f_code.co_filename)
        assert "secret" not in frame.f_locals
        frame = frame.f_back
    main = threading.current_thread() is threading.main_thread() and threading.main_thread().name == "MainThread"
    return main, threading.active_count(), [name for name in names if "allranks" not in name]
"""


def test_below_the_fork_is_nothing_of_the_caller():
    secret = "what the judge knows"
    outcome = run(Program(STACK, "f", "answer.py"), 2, launch="fork")
    assert outcome.results == [(True, 1, ["answer.py"])] * 2
    del secret


def test_the_thread_that_forks_is_none_of_the_programs():
    before = set(threading.enumerate())
    run(dist.get_rank, 2, launch="fork")
    assert set(threading.enumerate()) <= before, "another test's thread may end meanwhile"
    assert threading.current_thread() is threading.main_thread()


def test_one_thread_forks_all_and_another_process_gets_its_own():
    run(dist.get_rank, 2, launch="fork")
    first = forking._lasting[0]
    run(dist.get_rank, 2, launch="fork")
    assert forking._lasting == [first]
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = int(run(dist.get_rank, 3, launch="fork").results != [0, 1, 2] or forking._lasting == [first])
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_what_the_fork_raises_comes_to_the_caller(monkeypatch):
    def no_memory():
        raise OSError("no memory for another process")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", no_memory)
        with pytest.raises(WireError, match="no memory for another process"):
            run(dist.get_rank, 2, launch="fork")
    assert run(dist.get_rank, 2, launch="fork").results == [0, 1]


def test_ranks_end_with_the_process_not_with_the_thread_that_asked():
    pools = [Ranks(2, launch="fork")]
    asking = threading.Thread(target=pools[0].start)
    asking.start()
    asking.join()
    with pools[0]:
        assert pools[0].run(dist.get_rank, 2).results == [0, 1]
        assert all(isinstance(m.process, launch.Forked) for m in pools[0]._members)


@pytest.mark.parametrize(
    "opened, started",
    [("/dev/nvidia-uvm", True), ("/dev/nvidia3", True), ("/dev/dxg", True), ("/dev/null", False), ("pipe:[12]", False)],
)
def test_a_process_that_has_started_cuda_is_not_forked(monkeypatch, tmp_path, opened, started):
    """In a fork of a GPU's script backward raises "Unable to handle autograd's threading in combination with fork-based
    multiprocessing", or finds no CUDA on the devices that torch has counted (torch/csrc/autograd/engine.cpp)."""
    (tmp_path / "3").symlink_to(opened)
    look = launch.has_started_cuda
    monkeypatch.setattr(launch, "has_started_cuda", lambda: look(str(tmp_path)))
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(launch, "fork", lambda fds, target: "forked")
    monkeypatch.setattr(ForkServer, "ensure", lambda: Asked())
    monkeypatch.delenv("ALLRANKS_WIRE_LAUNCH")
    assert isinstance(launch.starter(None, None)([]), launch.FromForkServer) is started
    assert launch.starter(None, "fork")([]) == "forked", "who asks for it gets it"


class Asked:
    """A fork server, and the process that it forks."""

    pid = 1

    def spawn(self, target, *, args, fds):
        return self


def test_this_process_has_not_started_cuda():
    assert not launch.has_started_cuda()
    assert not launch.has_started_cuda("/nowhere")


GROUP = """
import sys, torch, torch.distributed as dist
from allranks.ranks.wire import run
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
def add():
    x = torch.ones(2)
    dist.all_reduce(x)
    return x.tolist()
outcome = run(add, 2)
print(outcome.failure or outcome.results)
"""


def test_a_process_that_is_a_rank_itself_is_not_forked(monkeypatch, tmp_path):
    """A script of torchrun; a fork would have its group, and end when it makes the wire's."""
    monkeypatch.delenv("ALLRANKS_WIRE_LAUNCH")
    command = [sys.executable, "-c", GROUP, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == "[[2.0, 2.0], [2.0, 2.0]]", done.stderr[-2000:]

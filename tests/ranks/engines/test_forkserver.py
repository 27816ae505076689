"""The fork server, forked from for real: what a child is given, how its end is told, and that nothing outlives us."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from allranks.ranks.engines.forkserver import loop
from allranks.ranks.engines.forkserver.client import ForkServer, ForkServerError
from allranks.ranks.engines.forkserver.idle_server import IdleServer
from allranks.ranks.engines.forkserver.loop import QUIET_S, Client
from allranks.ranks.engines.forkserver.process import describe_exit
from allranks.ranks.engines.forkserver.server import LATER
from waiting import until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only"),
]


@pytest.fixture(scope="module")
def forkserver():
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # so that it can import forkserver_targets
    started = ForkServer.start(lasting=True)
    yield started
    started.close()
    assert not started.path.exists()
    os.environ.pop("PYTHONPATH") if before is None else os.environ.__setitem__("PYTHONPATH", before)


def read_all(fd: int) -> str:
    data = b""
    while part := os.read(fd, 4096):
        data += part
    os.close(fd)
    return data.decode()


def spawn_reading(forkserver: ForkServer, name: str, args: object, **kwargs) -> str:
    """What the child wrote to the descriptor that it was passed."""
    read, write = os.pipe()
    child = forkserver.spawn(f"forkserver_targets:{name}", args=args, fds=[write], **kwargs)
    os.close(write)
    text = read_all(read)
    assert child.wait(30) == 0
    return text


def gone(pid: int) -> bool:
    return until(lambda: not psutil.pid_exists(pid), says="the process is still there")


def large_pages_nbytes(pid: int | str) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("AnonHugePages"))


def collapses_pages() -> bool:
    """Whether this kernel moves memory into large pages on request."""
    code = (
        "import mmap, ctypes\nfrom allranks.ranks.engines.forkserver import process\n"
        "m = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE)\nm[:] = bytes(range(256)) * (1 << 15)\n"
        "process.use_large_pages()\nassert m[:] == bytes(range(256)) * (1 << 15)\n"
        "print(open('/proc/self/smaps_rollup').read().split('AnonHugePages:')[1].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout) >= 4096


def test_the_memory_of_a_fork_server_moves_into_large_pages_once_nobody_asks():
    if not collapses_pages():
        pytest.skip("this kernel has no MADV_COLLAPSE")
    server = ForkServer.start()
    try:
        server.wait_warm()
        until(lambda: large_pages_nbytes(server.pid) >= 32 << 20, patience_s=60)
    finally:
        server.close()


def test_a_lasting_fork_server_imports_what_optimizers_need_once_nobody_asks(forkserver):
    end = time.monotonic() + 60
    while (found := spawn_reading(forkserver, "write_modules", LATER)) != " ".join(LATER):
        assert time.monotonic() < end, found
        time.sleep(QUIET_S + 0.5)  # to ask is what keeps it from importing: each question leaves it its quiet time
    assert len(psutil.Process(forkserver.pid).threads()) <= 2  # and a process that forks starts no others


def test_the_server_of_a_command_imports_nothing_more_while_somebody_waits_for_a_verdict(monkeypatch, tmp_path):
    imported: list[str] = []
    monkeypatch.setattr(loop, "preload", imported.append)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = IdleServer(tmp_path / "server.sock", ours, 60.0, (), ("sympy", "torch._dynamo"))
        server.owners[1] = Client(theirs)
        server.quiet()
        assert not imported
        server.owners.clear()
        server.quiet()
        assert imported == ["sympy"]
        server.selector.close()
        for end in (server.wake, server.wake_write):
            end.close()


def test_each_child_gets_its_own_environment_directory_and_seeds(forkserver, tmp_path):
    seen = [
        spawn_reading(
            forkserver, "write_environment", {"word": "hi"}, env={"RANK": str(rank)}, cwd=str(tmp_path)
        ).split()
        for rank in range(3)
    ]
    assert [s[:3] for s in seen] == [[str(rank), str(tmp_path), "hi"] for rank in range(3)]
    assert len({s[3] for s in seen}) == len({s[4] for s in seen}) == 3, "forked children repeat random numbers"


def test_a_fork_server_is_not_told_to_start_cuda(monkeypatch):
    """With KINETO_USE_DAEMON=1, as clusters set it, `import torch` starts CUDA (pytorch issue 171804), and no fork can use it then."""
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    server = ForkServer.start()
    try:
        assert "KINETO_USE_DAEMON" not in psutil.Process(server.process.pid).environ()
    finally:
        server.close()


@pytest.mark.parametrize("how, code", [(0, 0), (7, 7), ("killed", -signal.SIGKILL), ("raise", 1)])
def test_the_end_of_a_child_is_told(forkserver, how, code):
    assert forkserver.spawn("forkserver_targets:end", args=how).wait(30) == code


def test_a_process_that_a_rank_left_behind_is_killed(forkserver):
    assert gone(int(spawn_reading(forkserver, "leave_a_process_behind", None)))


def test_a_target_that_is_not_there_is_an_error_and_the_fork_server_goes_on(forkserver):
    with pytest.raises(ForkServerError, match="no_such_module"):
        forkserver.spawn("no_such_module:f")
    assert forkserver.spawn("forkserver_targets:end", args=3).wait(30) == 3


def test_a_request_too_large_is_refused_before_it_is_sent(forkserver):
    with pytest.raises(ForkServerError, match="bytes"):
        forkserver.spawn("forkserver_targets:end", args="x" * 1_000_000)
    assert forkserver.spawn("forkserver_targets:end", args=0).wait(30) == 0


def test_all_end_when_the_process_that_started_the_parent_is_killed():
    code = """
        import time
        from allranks.ranks.engines.forkserver.client import ForkServer
        forkserver = ForkServer.ensure()
        child = forkserver.spawn("forkserver_targets:sleep")
        print(forkserver.pid, child.pid, flush=True)
        time.sleep(600)
    """
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as starter:
        pids = [int(word) for word in starter.stdout.readline().split()]
        assert all(psutil.pid_exists(pid) for pid in pids)
        starter.kill()
    assert [pid for pid in pids if not gone(pid)] == []


def test_children_end_when_the_fork_server_is_killed(forkserver):
    ours = ForkServer.start()
    child = ours.spawn("forkserver_targets:sleep")
    os.kill(ours.pid, signal.SIGKILL)
    assert gone(child.pid)
    assert child.wait(30) is not None
    with pytest.raises(ForkServerError, match="gone"):
        ours.spawn("forkserver_targets:sleep")
    ours.close()


def test_another_preloaded_library_gets_a_fork_server_that_has_it(monkeypatch):
    """NCCL is one, and ranks that are forked have that of their fork server."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.delenv("ALLRANKS_FORKSERVER", raising=False)
    monkeypatch.setattr(ForkServer, "_current", None)
    monkeypatch.setattr(ForkServer, "_loads", ())
    first = ForkServer.ensure()
    assert ForkServer.ensure() is first
    monkeypatch.setenv("LD_PRELOAD", "libm.so.6")
    second = ForkServer.ensure()
    try:
        assert second is not first and ForkServer.ensure() is second
    finally:
        first.close()
        second.close()


def test_a_library_preloaded_before_the_first_import_is_not_that_of_jupyterlabs_server(monkeypatch):
    """A notebook's first cell may set it; the server that JupyterLab started has the libraries of before."""
    shared = ForkServer.start()
    monkeypatch.setenv("ALLRANKS_FORKSERVER", str(shared.path))
    monkeypatch.setattr(ForkServer, "_current", None)
    monkeypatch.setattr(ForkServer, "_loads", ("libm.so.6", os.environ.get("LD_LIBRARY_PATH", "")))
    monkeypatch.setenv("LD_PRELOAD", "libm.so.6")
    own = ForkServer.ensure()
    try:
        assert own.path != shared.path
    finally:
        own.close()
        shared.close()


def test_exit_codes_in_words():
    assert describe_exit(None) == "is running"
    assert describe_exit(3) == "exited with code 3"
    assert describe_exit(-9) == "was killed by SIGKILL"
    assert describe_exit(-200) == "was killed by signal 200"

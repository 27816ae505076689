"""A second Unix user of the same machine: can't enter, read, join or disturb a world. Needs root, to become that user."""

import ctypes  # noqa: F401 - the intruder imports it when it can't read files any more
import io
import json
import os
import pwd
import signal
import socket
import sys
import textwrap
import traceback
from pathlib import Path

import psutil
import pytest
import zmq  # noqa: F401 - likewise
from allranks import World
from allranks.ranks.engines.forkserver.client import ForkServer
from allranks.ranks.world.cluster import Engines

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user"),
]

# tries everything that it is told of, and prints what it could do, as JSON: an empty list is what we want
INTRUDER = """
import ctypes, json, os, signal, socket, sys
told = json.load(open(0))
could = []

def attempt(name, function):
    try:
        if function() is not False:
            could.append(name)
    except (OSError, ValueError):
        pass

for path in told["paths"]:
    attempt(f"list {path}", lambda: os.listdir(path))
    attempt(f"read {path}", lambda: open(path).read())
    attempt(f"write {path}", lambda: open(path, "a"))
    attempt(f"remove {path}", lambda: os.unlink(path))
for path in told["sockets"]:
    def connect():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET if "forkserver" in path else socket.SOCK_STREAM) as s:
            s.settimeout(2)
            s.connect(path)
            return bool(s.recv(10))
    attempt(f"connect {path}", connect)
for pid in told["pids"]:
    attempt(f"signal {pid}", lambda: os.kill(pid, signal.SIGUSR1))
    for name in ("environ", "mem", "maps"):
        attempt(f"read /proc/{pid}/{name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    attempt(f"list /proc/{pid}/fd", lambda: os.listdir(f"/proc/{pid}/fd"))
    attempt(f"trace {pid}", lambda: ctypes.CDLL(None).ptrace(16, pid, 0, 0) == 0)
for name in os.listdir("/dev/shm"):
    def read():  # another test's may go meanwhile
        return os.stat(f"/dev/shm/{name}").st_uid == told["uid"] and open(f"/dev/shm/{name}", "rb").read(1)
    if name not in told["shm_before"]:
        attempt(f"read /dev/shm/{name}", read)
print(json.dumps(could))
"""
# speaks ipyparallel's protocol to every port without the keys, as a client and as an engine would
UNKEYED = """
import json, sys, zmq
told = json.load(open(0))
context, answered = zmq.Context(), []
for port in told["ports"]:
    for kind in (zmq.DEALER, zmq.SUB):
        s = context.socket(kind)
        s.linger, s.sndtimeo = 0, 300
        if kind == zmq.SUB:
            s.subscribe(b"")
        s.connect(f"tcp://127.0.0.1:{port}")
        words = [b"<IDS|MSG>", b"", b'{"msg_type": "connection_request", "msg_id": "1"}', b"{}", b"{}", b"{}"]
        try:
            if kind == zmq.DEALER:
                s.send_multipart(words)
        except zmq.Again:  # the port has refused us before the first word: libzmq would wait for ever
            pass
        if s.poll(300):
            answered.append([port, "DEALER" if kind == zmq.DEALER else "SUB"])
        s.close()
print(json.dumps(answered))
"""


def as_nobody(code: str, told: dict) -> object:
    """What `code`, given `told` on stdin, prints as JSON when the user nobody runs it.

    A fork that changes its user, for this Python itself may lie where nobody can't read it.
    """
    nobody = pwd.getpwnam("nobody")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            os.setgroups([])
            os.setresgid(*[nobody.pw_gid] * 3)
            os.setresuid(*[nobody.pw_uid] * 3)
            os.chdir("/")
            source = textwrap.dedent(code).replace("open(0)", "stdin")
            exec(compile(source, "intruder", "exec"), {"stdin": io.StringIO(json.dumps(told)), "print": Print(write)})
            os._exit(0)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            os._exit(1)
    os.close(write)
    try:
        with open(read, "rb") as said:
            text = said.read()
    except BaseException:  # out of time: it must not outlive the test
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    assert os.waitpid(pid, 0)[1] == 0
    return json.loads(text)


class Print:
    """`print` into a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __call__(self, text: str) -> None:
        os.write(self.descriptor, text.encode())


@pytest.fixture(scope="module")
def shm_before():
    """Shared memory that lay there before the world: of other programs, which may have left it open to all."""
    return os.listdir("/dev/shm")


@pytest.fixture(scope="module")
def world(private_run_dir, shm_before):
    """A world with its run directory, and everything of it that lies or listens somewhere."""
    ForkServer.ensure().close()  # one that other tests have left may lie in another directory
    with World(ranks=2) as started:
        started.run(os.getpid)
        yield started


def ours(world) -> list[psutil.Process]:
    forkserver = psutil.Process(ForkServer.ensure().pid)
    return [forkserver, *forkserver.children(recursive=True)]


def test_no_file_socket_process_or_memory_of_a_world_can_be_reached(world, shm_before):
    run_dir = Path(os.environ["ALLRANKS_RUN_DIR"])
    found = [run_dir, *run_dir.rglob("*")]
    told = {
        "paths": [str(p) for p in found],
        "sockets": [str(p) for p in found if p.is_socket()],
        "pids": [p.pid for p in ours(world)],
        "shm_before": shm_before,
        "uid": os.getuid(),
    }
    assert any("forkserver" in s for s in told["sockets"]) and any("rank-" in s for s in told["sockets"])
    assert any(p.name.endswith("client.json") for p in found) and any(p.name == "store" for p in found)
    assert len(told["pids"]) >= 4
    assert as_nobody(INTRUDER, told) == []


def listening(processes: list[psutil.Process]) -> list:
    return [c.laddr for p in processes for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN]


def test_everything_listens_on_loopback_only(world):
    """Only gloo listens at all, where its ranks have no network of their own: all else has Unix sockets in the run directory."""
    addresses = listening(ours(world))
    assert {a.ip for a in addresses} <= {"127.0.0.1", "::1"}
    others = [p for p in ours(world) if p.pid not in world.pids]
    assert len(others) >= 2 and listening(others) == [], "the fork server and the controller"
    assert len([p for p in Path(os.environ["ALLRANKS_RUN_DIR"]).rglob("zmq:*") if p.is_socket()]) > 10


@pytest.fixture
def listens_on_ports(world, short_path):
    """The process of a controller as it is for engines on other machines, which find it by TCP."""
    engines = Engines(placement=None, launcher="warm")
    engines.directory = short_path
    before = {p.pid for p in ours(world)}
    engines._start_controller(True, missed_beats=20, engines="warm", n=2, controller_ip="*")
    engines._cluster.connect_client_sync().close()  # now it listens
    yield [p for p in ours(world) if p.pid not in before]
    engines._cluster.stop_controller_sync()


def test_no_port_answers_without_the_keys(listens_on_ports):
    ports = sorted({a.port for a in listening(listens_on_ports)})
    assert len(ports) > 10
    assert as_nobody(UNKEYED, {"ports": ports}) == []


def test_the_trap_is_sharp():
    """The intruder does find what is open: a readable file, a socket that answers, a process of its own."""
    import tempfile
    import threading

    with tempfile.TemporaryDirectory(prefix="ar-open-") as open_to_all:
        os.chmod(open_to_all, 0o755)
        path = Path(open_to_all) / "secret"
        path.write_text("x")
        path.chmod(0o666)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{open_to_all}/s")
        os.chmod(f"{open_to_all}/s", 0o777)
        listener.listen()
        threading.Thread(target=lambda: listener.accept()[0].sendall(b"hello"), daemon=True).start()
        told = {"paths": [open_to_all, str(path)], "sockets": [f"{open_to_all}/s"], "pids": [], "uid": os.getuid()}
        told["shm_before"] = os.listdir("/dev/shm")
        with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="ar-open-") as memory:
            os.chmod(memory.name, 0o644)
            could = as_nobody(INTRUDER, told)
        listener.close()
    assert {c.split()[0] for c in could} == {"list", "read", "write", "connect"}
    assert f"read {memory.name}" in could

"""The fork server's own side: it imports what ranks need, and forks on request."""

from __future__ import annotations

import array
import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from allranks.engines.forkserver.process import (
    adopt_orphans,
    die_with_parent,
    kill_session,
    preload,
    reseed_random_generators,
)

MAX_MESSAGE = 160_000  # a SOCK_SEQPACKET message must fit the kernel's default send buffer
MAX_FDS = 64
WARM = (
    "numpy.random",
    "torch",
    "torch.distributed",
    "torch.nn",
    "cloudpickle",
    "tornado.platform.asyncio",
    "IPython.core.completerlib",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
    "ipykernel.inprocess.ipkernel",
    "ipyparallel.engine.app",
    "ipyparallel.controller.app",
    "ipyparallel.controller.heartmonitor",
    "ipyparallel.controller.dictdb",
    "ipyparallel.serialize",
    "allranks.engines.controller",
    "allranks.engines.rank",
    "allranks.trace",
    "allranks.wire.rank",
)
# what the first optimizer or DDP of a process imports, for more than a second
LATER = ("sympy", "torch._dynamo")
QUIET_S = 1.0  # of nobody asking, before such an import


@dataclass
class _Client:
    connection: socket.socket
    children: set[int] = field(default_factory=set)

    def send(self, message: dict) -> None:
        with contextlib.suppress(OSError):
            self.connection.send(json.dumps(message).encode())


class _Server:
    """The fork server's loop: one thread, one selector."""

    def __init__(self, path: Path, lifeline: int, listening: socket.socket, lasting: bool) -> None:
        self.path, self.lifeline, self.listening = path, lifeline, listening
        self.later = list(LATER) if lasting else []
        self.selector = selectors.DefaultSelector()
        self.clients: dict[int, _Client] = {}
        self.owners: dict[int, _Client] = {}
        self.wake, self.wake_write = socket.socketpair()
        for end in (self.wake, self.wake_write, listening):
            end.setblocking(False)
        self.warm_s = 0.0

    def serve(self) -> None:
        """Warms, then answers until the lifeline closes."""
        adopt_orphans()
        signal.set_wakeup_fd(self.wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        began = time.monotonic()
        preload(*WARM)
        self.warm_s = time.monotonic() - began
        self.selector.register(self.listening, selectors.EVENT_READ, self.accept)
        self.selector.register(self.lifeline, selectors.EVENT_READ, self.stop)
        self.selector.register(self.wake, selectors.EVENT_READ, self.reap)
        while True:
            ready = self.selector.select(QUIET_S if self.later else None)
            for key, _ in ready:
                key.data()
            if not ready and self.later:
                try:
                    preload(self.later.pop(0))
                except Exception:  # the children import it themselves, or don't; it stands in the log
                    traceback.print_exc()

    def accept(self) -> None:
        connection, _ = self.listening.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, uid, _ = array.array("I", credentials)
        if uid != os.getuid():
            connection.close()
            return
        client = self.clients[connection.fileno()] = _Client(connection)
        self.selector.register(connection, selectors.EVENT_READ, lambda: self.read(client))
        client.send({"warm": self.warm_s, "pid": os.getpid()})

    def read(self, client: _Client) -> None:
        try:
            data, rights, _, _ = client.connection.recvmsg(MAX_MESSAGE, socket.CMSG_SPACE(MAX_FDS * 4))
        except OSError:
            data, rights = b"", []
        fds = array.array("i")
        for level, kind, payload in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        if not data:
            self.drop(client)
            return
        request = json.loads(data)
        try:
            reply: dict = {"pid": self.fork(client, request, list(fds))}
        except Exception as error:
            reply = {"error": f"{request.get('target')} could not be started: {type(error).__name__}: {error}"}
        finally:
            for fd in fds:
                os.close(fd)
        client.send({"id": request["id"], **reply})

    def fork(self, client: _Client, request: dict, fds: list[int]) -> int:
        module, _, function = request["target"].partition(":")
        target = getattr(importlib.import_module(module), function)
        me = os.getpid()
        pid = os.fork()
        if pid:
            client.children.add(pid)
            self.owners[pid] = client
            return pid
        code = 1
        try:
            self.become_child(me, request)
            code = target(request["args"], fds) or 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def become_child(self, parent: int, request: dict) -> None:
        """Turns the forked process into a stranger to the server: own session, signals, descriptors, seeds."""
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(self.lifeline)
        for end in (self.wake, self.wake_write, self.listening, *(c.connection for c in self.clients.values())):
            end.close()
        self.selector.close()
        null = os.open(os.devnull, os.O_RDWR)
        out = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if request["log"] else null
        os.dup2(null, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        for fd in {null, out} - {0, 1, 2}:
            os.close(fd)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        reseed_random_generators()

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.wake.recv(4096):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            client = self.owners.pop(pid, None)
            if client is None:
                continue
            client.children.discard(pid)
            kill_session(pid)
            client.send({"exit": pid, "code": os.waitstatus_to_exitcode(status)})
        self.kill_orphans()

    def kill_orphans(self) -> None:
        """Kills what a rank left behind: as the subreaper we inherit every process whose parent has ended."""
        with contextlib.suppress(OSError):
            listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            for pid in map(int, listed):
                if pid not in self.owners:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def drop(self, client: _Client) -> None:
        """The client has gone: so does everything that was forked for it."""
        self.selector.unregister(client.connection)
        self.clients.pop(client.connection.fileno(), None)
        client.connection.close()
        for pid in list(client.children):
            kill_session(pid)

    def stop(self) -> None:
        for pid in list(self.owners):
            kill_session(pid)
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(".log").unlink(missing_ok=True)
        os._exit(0)


def main(path: str, lifeline: str, listening: str, lasting: str = "") -> None:
    """Runs the fork server on a listening socket and a lifeline that were inherited."""
    _Server(Path(path), int(lifeline), socket.socket(fileno=int(listening)), bool(lasting)).serve()

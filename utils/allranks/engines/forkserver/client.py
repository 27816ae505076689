"""The warm parent: a process that imported torch, ipykernel and ipyparallel once, and forks every rank from there.

Importing torch costs seconds of CPU a process; forking costs milliseconds. The parent has one thread and never calls
CUDA or a parallel operation, so forking it is safe. It lives as long as the process that started it: a pipe that only
that process holds open is its lifeline. Every process that it forked for a client dies with that client's connection,
and all of them with the parent (PR_SET_PDEATHSIG), so that nothing is left behind whichever of them is killed.

    parent = Parent.ensure()
    child = parent.spawn("package.module:function", args={"any": "JSON"}, env={"RANK": "0"})
    child.poll(), child.wait(timeout=1), child.kill()

In the child `function(args, fds)` is called; what it returns is the exit code (None is 0).
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import itertools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from allranks.engines.rundir import RunDirError, run_dir, sweep

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
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_numbers = itertools.count(1)  # of the parents that this process has started


class ParentError(RuntimeError):
    """The warm parent can't be started or reached, or refused a request."""


def forking_is_safe() -> bool:
    """Whether ranks can be forked here. Not on macOS, whose frameworks don't survive a fork."""
    return sys.platform == "linux"


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends. Lost by a fork, kept by an exec."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes this process the parent of whatever its children leave behind (Linux's child subreaper). Lost by a fork."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def describe_exit(code: int | None) -> str:
    """An exit code in words: "exited with code 3", "was killed by SIGKILL"."""
    if code is None:
        return "is running"
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"exited with code {code}"


# ------------------------------------------------------------------------------------------------- the client's side


class Child:
    """A process that the parent forked for us."""

    def __init__(self, pid: int, log: str | None) -> None:
        self.pid = pid
        self.log = log
        self._code: int | None = None
        self._ended = threading.Event()

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self._code if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits up to `timeout` seconds for the end; the exit code, or None where it still runs."""
        self._ended.wait(timeout)
        return self.poll()

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Sends a signal, unless it has ended."""
        if not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def _end(self, code: int) -> None:
        self._code = code
        self._ended.set()

    def __repr__(self) -> str:
        return f"<Child {self.pid} {describe_exit(self.poll())}>"


class Mailbox:
    """What a process that forks for us has told: replies by their number, and the ends of children. Thread-safe."""

    def __init__(self) -> None:
        self.arrived = threading.Condition()
        self._children: dict[int, Child] = {}
        self._early: dict[int, int] = {}  # children that ended before we knew their pid
        self._replies: dict[int, dict] = {}
        self._next, self._closed = 0, False

    def number(self) -> int:
        """A number for the next request."""
        with self.arrived:
            self._next += 1
            return self._next

    def take(self, message: dict) -> None:
        """Files one message: {"exit": pid, "code": code}, or {"id": number, ...}, the reply to a request."""
        with self.arrived:
            if "exit" not in message:
                self._replies[message["id"]] = message
            elif (child := self._children.pop(message["exit"], None)) is not None:
                child._end(message["code"])
            else:
                self._early[message["exit"]] = message["code"]
            self.arrived.notify_all()

    def wait(self, ready: Callable[[], bool], timeout: float, check: Callable[[], None]) -> bool:
        """Waits until `ready` or the time is over; which. `check` raises where nothing can arrive any more."""
        deadline = time.monotonic() + timeout
        with self.arrived:
            while not ready():
                check()
                if not self.arrived.wait(max(0.0, deadline - time.monotonic())):
                    return ready()
            return True

    def reply(self, number: int, timeout: float, check: Callable[[], None]) -> dict | None:
        """The reply to request `number`, or None where it did not come in time."""
        return self._replies.pop(number) if self.wait(lambda: number in self._replies, timeout, check) else None

    def adopt(self, child: Child) -> Child:
        """Files the end of `child` with it, whether that comes later or came already."""
        with self.arrived:
            if child.pid in self._early:
                child._end(self._early.pop(child.pid))
            elif self._closed:
                child._end(-signal.SIGKILL)
            else:
                self._children[child.pid] = child
        return child

    def close(self) -> None:
        """Nothing arrives any more: wakes who waits, and all children are dead."""
        with self.arrived:
            self._closed = True
            children, self._children = list(self._children.values()), {}
            self.arrived.notify_all()
        for child in children:
            child._end(-signal.SIGKILL)


class Parent:
    """This process's connection to a warm parent. Thread-safe."""

    _current: Parent | None = None
    _guard = threading.Lock()

    def __init__(self, path: Path, lifeline: int | None = None, process: subprocess.Popen | None = None) -> None:
        self.path = Path(path)
        self.process = process
        self._lifeline = lifeline
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(str(path))
        self._mail = Mailbox()
        self._closed: str | None = None
        self.pid: int | None = None
        self.warm_s: float | None = None
        self._reader = threading.Thread(target=self._read, name="allranks-parent", daemon=True)
        self._reader.start()
        os.register_at_fork(after_in_child=self._forget)

    @classmethod
    def ensure(cls) -> Parent:
        """The parent of this process: the one in use, else the one that `ALLRANKS_PARENT` names, else a new one.

        Raises ParentError where none can be had.
        """
        with cls._guard:
            if cls._current is not None and cls._current.alive:
                return cls._current
            shared = os.environ.get("ALLRANKS_PARENT")
            if shared:
                try:
                    cls._current = cls(Path(shared))
                    return cls._current
                except OSError:
                    pass  # the process that shared it has gone: start our own
            cls._current = cls.start()
            return cls._current

    @classmethod
    def start(cls, *, lasting: bool = False) -> Parent:
        """Starts a new warm parent that ends with this process. Returns at once; the first request waits until warm.

        A `lasting` one, which will fork for many notebooks, imports what optimizers need too, once nobody asks anything.
        """
        if not forking_is_safe():
            raise ParentError(f"Ranks can't be forked on {sys.platform}; use World(launcher='local').")
        try:
            directory = run_dir()
        except RunDirError as error:
            raise ParentError(str(error)) from None
        sweep(directory)
        read, write = os.pipe()
        name = f"parent{next(_numbers)}-{os.getpid()}"  # a second one must not take the first one's place
        log = directory / f"{name}.log"
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = directory / f"{name}.sock"
        path.unlink(missing_ok=True)
        try:
            listening.bind(str(path))
            listening.listen(64)
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "allranks.engines.forkserver"),
                    *(str(path), str(read), str(listening.fileno())),
                    *(["lasting"] if lasting else []),
                ],
                pass_fds=[read, listening.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
                cwd="/",
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a process with one thread is safe to fork
            )
        except OSError as error:
            os.close(write)
            raise ParentError(f"The warm parent could not start: {error}.") from None
        finally:
            os.close(read)
            os.close(descriptor)
            listening.close()
        return cls(path, lifeline=write, process=process)

    @property
    def alive(self) -> bool:
        """Whether requests can still be made."""
        return self._closed is None

    def wait_warm(self, timeout: float = 120) -> float:
        """Waits until the imports are done; the seconds that they took. Raises ParentError where it ends before."""
        if not self._mail.wait(lambda: self.warm_s is not None, timeout, self._raise_if_closed):
            raise ParentError(f"The warm parent was not ready after {timeout:.0f} s; see {self._log()}.")
        return self.warm_s

    def spawn(
        self,
        target: str,
        *,
        args: object = None,
        env: dict[str, str] | None = None,
        fds: tuple[int, ...] | list[int] = (),
        cwd: str | None = None,
        log: str | Path | None = None,
        timeout: float = 120,
    ) -> Child:
        """Forks a process that calls `target` ("module:function") with (`args`, `fds`); `env` is added to ours.

        `log` is the file that its stdout and stderr are appended to (else they are dropped). Raises ParentError where
        the parent is gone, the target does not import, or the request is too large.
        """
        request = {
            "target": target,
            "args": args,
            "env": {**os.environ, **(env or {})},
            "cwd": cwd or os.getcwd(),
            "log": str(log) if log else None,
        }
        reply = self._ask(request, fds, timeout)
        if "error" in reply:
            raise ParentError(reply["error"])
        return self._mail.adopt(Child(reply["pid"], str(log) if log else None))

    def close(self) -> None:
        """Ends the connection, and with it every child that was spawned over it; ends the parent where we started it."""
        self._finish("it was closed")
        if self.process is not None:
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(".log").unlink(missing_ok=True)
        with Parent._guard:
            if Parent._current is self:
                Parent._current = None

    def _log(self) -> Path:
        return self.path.with_suffix(".log")

    def _ask(self, request: dict, fds, timeout: float) -> dict:
        number = self._mail.number()
        message = json.dumps({"id": number, **request}).encode()
        if len(message) > MAX_MESSAGE:
            raise ParentError(f"The request is {len(message)} bytes; the warm parent takes {MAX_MESSAGE}.")
        if len(fds) > MAX_FDS:
            raise ParentError(f"The request passes {len(fds)} descriptors; the warm parent takes {MAX_FDS}.")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self._raise_if_closed()
        try:
            self._socket.sendmsg([message], rights)
        except OSError as error:
            self._finish(f"the connection broke ({error.strerror})")
            self._raise_if_closed()
        reply = self._mail.reply(number, timeout, self._raise_if_closed)
        if reply is None:
            raise ParentError(f"The warm parent did not answer in {timeout:.0f} s; see {self._log()}.")
        return reply

    def _read(self) -> None:
        while True:
            try:
                data = self._socket.recv(MAX_MESSAGE)
            except OSError:
                data = b""
            if not data:
                self._finish("it ended")
                if self.process is not None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.process.wait(5)  # no zombie stays
                return
            message = json.loads(data)
            if "warm" in message:
                with self._mail.arrived:
                    self.warm_s, self.pid = message["warm"], message["pid"]
                    self._mail.arrived.notify_all()
            else:
                self._mail.take(message)

    def _finish(self, reason: str) -> None:
        if self._closed is None:
            self._closed = reason
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._lifeline is not None:
            lifeline, self._lifeline = self._lifeline, None
            os.close(lifeline)
        self._mail.close()

    def _forget(self) -> None:
        """In a process forked from ours: lets go of the lifeline, so that only the starter keeps the parent alive."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        self._socket.close()
        self._closed = "this process was forked from the one that was connected"
        if Parent._current is self:
            Parent._current = None

    def _raise_if_closed(self) -> None:
        if self._closed is not None:
            raise ParentError(f"The warm parent is gone: {self._closed}. See {self._log()}.")

    def __repr__(self) -> str:
        state = "gone" if not self.alive else "warming" if self.warm_s is None else f"warm, pid {self.pid}"
        return f"<Parent {state}>"


# ------------------------------------------------------------------------------------------------- the parent's side


@dataclass
class _Client:
    connection: socket.socket
    children: set[int] = field(default_factory=set)

    def send(self, message: dict) -> None:
        with contextlib.suppress(OSError):
            self.connection.send(json.dumps(message).encode())


def bring_in(*modules: str) -> None:
    """Imports what is to stay for the life of this process and of its forks."""
    gc.disable()  # looking through what imports make takes a sixth of their time
    try:
        for module in modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()  # forks share these pages only as long as nobody writes to them
    finally:
        gc.enable()


class _Server:
    """The parent's loop: one thread, one selector."""

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
        bring_in(*WARM)
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
                    bring_in(self.later.pop(0))
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
        """Turns the forked process into a stranger to the parent: own session, signals, descriptors, seeds."""
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
        _seed()

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
            _kill_session(pid)
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
            _kill_session(pid)

    def stop(self) -> None:
        for pid in list(self.owners):
            _kill_session(pid)
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(".log").unlink(missing_ok=True)
        os._exit(0)


def _kill_session(pid: int) -> None:
    """Kills the process and its group (it leads its own session). A stopped process dies of SIGKILL as well."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _seed() -> None:
    """Gives this process random numbers of its own; a fork would otherwise repeat its siblings'."""
    import random

    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    torch.seed()


def main(path: str, lifeline: str, listening: str, lasting: str = "") -> None:
    """Runs the parent on a listening socket and a lifeline that were inherited."""
    _Server(Path(path), int(lifeline), socket.socket(fileno=int(listening)), bool(lasting)).serve()

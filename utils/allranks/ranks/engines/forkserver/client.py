"""The client's side of the fork server, a process that imports torch and ipyparallel once and forks every rank.

To import torch takes seconds of CPU in each process; to fork takes milliseconds. The fork server has one thread and
never calls CUDA or a parallel operation, so it can be forked safely. It ends with the process that started it: only
that process holds the other end of a pipe, the lifeline. When a client's connection ends, the fork server kills every
process that it forked for that client. When the fork server ends, the kernel kills all of them (PR_SET_PDEATHSIG). So
nothing is left behind, whichever process is killed.

    forkserver = ForkServer.ensure()
    child = forkserver.spawn("package.module:function", args={"any": "JSON"}, env={"RANK": "0"})
    child.poll(), child.wait(timeout=1), child.kill()

The child calls `function(args, fds)`; its return value is the exit code (None means 0).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.base.errors import CourseError
from allranks.base.rundir import RunDirError, run_dir, sweep
from allranks.ranks.engines.forkserver.mailbox import MAX_FDS, MAX_MESSAGE, Child, Mailbox
from allranks.ranks.engines.forkserver.process import forking_is_safe

if TYPE_CHECKING:
    import subprocess  # takes time to import; only what starts a server needs it

    from allranks.ranks.engines.forkserver.machine import Fork

# settings of clusters with which `import torch` starts CUDA, and a fork can't use that
_STARTS_CUDA = frozenset({"KINETO_USE_DAEMON"})
_numbers = itertools.count(1)  # numbers the fork servers that this process starts


class ForkServerError(CourseError, RuntimeError):
    """The fork server can't be started or reached, or refused a request."""


class Connection:
    """A client's connection to a process that forks for it: requests, replies, and the ends of children. Thread-safe.

    Subclasses define the name of that process in messages (`name`), the class of errors (`error`), and a sentence that
    says where to look for the cause (`_hint`). `process` is the server, if this process started it.
    """

    name: str
    error: type[Exception]

    def __init__(
        self, connection: socket.socket, process: subprocess.Popen[bytes] | Fork | None, thread_name: str
    ) -> None:
        self.process = process
        self.pid: int | None = None
        self.warm_s: float | None = None
        self._socket = connection
        self._mail = Mailbox()
        self._closed: str | None = None
        threading.Thread(target=self._read, name=thread_name, daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether requests can still be made."""
        return self._closed is None

    def wait_warm(self, timeout: float = 120) -> float:
        """Waits until the server's imports are done; returns the seconds that they took.

        Raises `error` if that fails.
        """
        self._mail.wait(lambda: self.warm_s is not None, timeout, self._raise_if_closed)
        if self.warm_s is None:
            raise self.error(f"{self.name} was not ready after {timeout:.0f} s. {self._hint()}")
        return self.warm_s

    def _ask(self, request: dict[str, Any], fds: Sequence[int], timeout: float) -> dict[str, Any]:
        """Sends a request and returns the reply. Raises `error` if no reply comes."""
        number = self._mail.number()
        self._send({"id": number, **request}, fds)
        reply = self._mail.reply(number, timeout, self._raise_if_closed)
        if reply is None:
            raise self.error(f"{self.name} did not answer in {timeout:.0f} s. {self._hint()}")
        return reply

    def _send(self, request: dict[str, Any], fds: Sequence[int] = ()) -> None:
        message = json.dumps(request).encode()
        if len(message) > MAX_MESSAGE:
            raise self.error(f"The request is {len(message)} bytes. {self.name} takes {MAX_MESSAGE}.")
        if len(fds) > MAX_FDS:
            raise self.error(f"The request passes {len(fds)} descriptors. {self.name} takes {MAX_FDS}.")
        self._raise_if_closed()
        try:
            socket.send_fds(self._socket, [message], fds)
        except OSError as error:
            self._finish(f"the connection broke ({error.strerror})")
            self._raise_if_closed()

    def _read(self) -> None:
        while True:
            try:
                data = self._socket.recv(MAX_MESSAGE)
            except OSError:
                data = b""
            if not data:
                self._finish("it ended")
                if self.process is not None:
                    import subprocess

                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.process.wait(5)  # so that no zombie is left
                return
            message = json.loads(data)
            if "warm" in message:
                with self._mail.arrived:
                    self.warm_s, self.pid = message["warm"], message["pid"]
                    self._mail.arrived.notify_all()
            else:
                self._mail.take(message)

    def _finish(self, reason: str) -> None:
        """Closes the connection and wakes the threads that wait for a reply. Only the first reason is kept."""
        if self._closed is None:
            self._closed = reason
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._mail.close()

    def _raise_if_closed(self) -> None:
        if self._closed is not None:
            raise self.error(f"{self.name} is gone: {self._closed}. {self._hint()}")

    def _hint(self) -> str:
        """A sentence that says where to look for the cause."""
        raise NotImplementedError


def _shared(path: Path, fds: list[int]) -> Fork | None:
    """A fork server that shares its memory with those of other people, where the machine has a server for that."""
    if "ALLRANKS_MACHINE_SOCKET" not in os.environ:
        return None
    from allranks.ranks.engines.forkserver import machine

    return machine.spawn(f"{machine.__name__}:fork_server", {"path": str(path)}, fds)


def start_process(module: str, arguments: Sequence[object], fds: Sequence[int], log: int) -> subprocess.Popen[bytes]:
    """Starts a module as a process of its own, from which to fork; it inherits the descriptors, and writes into `log`."""
    import subprocess

    env = {name: value for name, value in os.environ.items() if name not in _STARTS_CUDA}
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        cwd="/",
        env={**env, "OPENBLAS_NUM_THREADS": "1"},  # a process with one thread is safe to fork
    )


def linker_told(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """What the dynamic linker was told, by which a process, such as a fork server, has the one NCCL or another."""
    return tuple(env.get(name, "") for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"))


def _began_with() -> tuple[str, ...]:
    """The same when this process began, as JupyterLab's fork server has it: a notebook may have changed it before its first import."""
    try:
        lines = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:  # not on Linux
        return linker_told()
    return linker_told(dict(os.fsdecode(line).partition("=")[::2] for line in lines))


class ForkServer(Connection):
    """This process's connection to a fork server. Thread-safe."""

    name = "The fork server"
    error = ForkServerError
    _current: ForkServer | None = None
    _loads: tuple[str, ...] = ()  # with which the current one was started
    _guard = threading.Lock()

    def __init__(
        self, path: Path, lifeline: int | None = None, process: subprocess.Popen[bytes] | Fork | None = None
    ) -> None:
        self.path = Path(path)
        self._lifeline = lifeline
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(str(path))
        super().__init__(connection, process, "allranks-forkserver")
        os.register_at_fork(after_in_child=self._forget)

    @classmethod
    def ensure(cls) -> ForkServer:
        """The fork server of this process: the one in use, else that of `ALLRANKS_FORKSERVER`, else a new one.

        After LD_PRELOAD or LD_LIBRARY_PATH has changed it is a new one: libraries are loaded once. Raises ForkServerError if none
        can be started.
        """
        with cls._guard:
            before, cls._loads = cls._loads, linker_told()
            if before == cls._loads and cls._current is not None and cls._current.alive:
                return cls._current
            shared = os.environ.get("ALLRANKS_FORKSERVER")
            if shared and cls._loads == _began_with():
                try:
                    cls._current = cls(Path(shared))
                    return cls._current
                except OSError:
                    pass  # the process that shared it has ended: start our own
            cls._current = cls.start()
            return cls._current

    @classmethod
    def start(cls, *, lasting: bool = False) -> ForkServer:
        """Starts a fork server that ends with this process. Returns at once; the first request waits for the imports.

        `lasting` is for a server of many notebooks: when no request comes, it also imports what optimizers need.
        """
        if not forking_is_safe():
            raise ForkServerError(f"Ranks can't be forked on {sys.platform}; use World(launcher='local').")
        try:
            directory = run_dir()
        except RunDirError as error:
            raise ForkServerError(str(error)) from None
        sweep(directory)
        read, write = os.pipe()
        name = f"forkserver{next(_numbers)}-{os.getpid()}"  # a number, so that a second server gets another socket
        log = directory / f"{name}.log"
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = directory / f"{name}.sock"
        path.unlink(missing_ok=True)
        try:
            listening.bind(str(path))
            listening.listen(64)
            inherited = [read, listening.fileno()]
            shared = _shared(path, [*inherited, descriptor]) if lasting else None
            told = (path, *inherited, *(["lasting"] if lasting else []))
            process = shared or start_process("allranks.ranks.engines.forkserver", told, inherited, descriptor)
        except OSError as error:
            os.close(write)
            raise ForkServerError(f"The fork server could not start: {error}.") from None
        finally:
            os.close(read)
            os.close(descriptor)
            listening.close()
        return cls(path, lifeline=write, process=process)

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
        """Forks a process that calls `target` ("module:function") with (`args`, `fds`). `env` is added to ours.

        Its stdout and stderr are appended to the file `log`; without `log` they are dropped. Raises ForkServerError
        if the fork server has ended, the target can't be imported, or the request is too large.
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
            raise self.error(reply["error"])
        return self._mail.adopt(Child(reply["pid"], str(log) if log else None))

    def close(self) -> None:
        """Ends the connection, and every child that was spawned over it.

        Ends the server too, if this process started it.
        """
        self._finish("it was closed")
        if self.process is not None:
            import subprocess

            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(".log").unlink(missing_ok=True)
        with ForkServer._guard:
            if ForkServer._current is self:
                ForkServer._current = None

    def _hint(self) -> str:
        return f"See {self.path.with_suffix('.log')}."

    def _finish(self, reason: str) -> None:
        super()._finish(reason)
        if self._lifeline is not None:
            lifeline, self._lifeline = self._lifeline, None
            os.close(lifeline)

    def _forget(self) -> None:
        """In a process forked from this one: closes the lifeline, so that only the starter keeps the server alive."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        self._socket.close()
        self._closed = "this process was forked from the one that was connected"
        if ForkServer._current is self:
            ForkServer._current = None

    def __repr__(self) -> str:
        state = "gone" if not self.alive else "warming" if self.warm_s is None else f"warm, pid {self.pid}"
        return f"<ForkServer {state}>"

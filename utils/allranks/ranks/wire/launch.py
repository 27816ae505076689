"""How a rank's process is started: a fork of this process, the fork server, or a launcher of the caller's."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from allranks.ranks.engines.alone import remember_modules
from allranks.ranks.engines.forkserver.process import die_with_parent
from allranks.ranks.wire import forking


class Process(Protocol):
    """What the pool asks of a rank's process."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Sends it a signal."""


class Spawner(Protocol):
    """What starts ranks: the fork server, or a sandbox of the same interface."""

    def spawn(self, target: str, *, args: object = None, env: dict | None = None, fds: Sequence[int] = ()) -> Process:
        """Starts a process that calls `target` ("module:function") with (args, fds)."""


Starter = Callable[[list[int]], Process]
TARGET = "allranks.ranks.wire.rank:main"
WITH_AUTOGRAD = "allranks.ranks.wire.rank_with_autograd:main"  # takes 0.3 s to import, in the process that forks
WITH_COMPILER = "allranks.ranks.wire.rank_with_compiler:main"  # takes 2 s
TARGETS = (TARGET, WITH_AUTOGRAD, WITH_COMPILER)  # each has what those before it have


class Forked:
    """A rank that was forked from this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._code = -signal.SIGKILL
                return self._code
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Sends it a signal."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def children(self) -> list[int]:
        """The processes that it has started and that are still its own."""
        return _children(self.pid)


class FromForkServer:
    """A rank that the fork server forked for us."""

    def __init__(self, child) -> None:
        self.child, self.pid = child, child.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self.child.poll()

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Sends it a signal."""
        self.child.kill(sig)

    def children(self) -> list[int]:
        """The processes that it has started and that are still its own."""
        return _children(self.pid)


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as listed:
            return [int(p) for p in listed.read().split()]
    except OSError:
        return []


def fork(fds: list[int], target: str = TARGET) -> Process:
    """Forks this process; the child serves on these descriptors. Only from a process with one thread, no CUDA and no group."""
    module, _, function = target.partition(":")
    # here, since only a process that forks needs them
    main = getattr(importlib.import_module(module), function)
    importlib.import_module("allranks.ranks.wire.leftovers").remember_functions()
    remember_modules()
    sys.stdout.flush()
    sys.stderr.flush()
    return Forked(forking.fork(functools.partial(_become_rank, main, os.getpid()), fds))


def _become_rank(main: Callable[[object, list[int]], int], parent: int, fds: list[int]) -> None:
    """What the child does: serves until the router closes its socket, and ends."""
    code = 1
    try:
        die_with_parent()
        if os.getppid() == parent:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.set_wakeup_fd(-1)
            kept = sorted(fds)
            for after, before in zip([2, *kept], [*kept, os.sysconf("SC_OPEN_MAX")], strict=True):
                os.closerange(after + 1, before)
            sys.settrace(None)
            code = main(None, fds)
    except BaseException:
        code = 1
    finally:
        os._exit(code)


def has_started_cuda(opened: str = "/proc/self/fd") -> bool:
    """Whether this process has a GPU's driver open, as it stays from CUDA's start on, also by `torch.cuda.is_available()`.

    torch then knows how many GPUs there are, and a fork's first backward starts a thread for each, which finds no CUDA there.
    """
    for number in os.listdir(opened) if os.path.isdir(opened) else ():
        with contextlib.suppress(OSError):  # the folder's own is closed again
            if os.readlink(os.path.join(opened, number)).startswith(("/dev/nvidia", "/dev/dxg")):
                return True
    return False


def _has_group() -> bool:
    """Whether this process is itself a rank of torch.distributed: a fork would be one too, without its threads."""
    dist = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and bool(dist.is_initialized())


def starter(spawner: Spawner | None, how: str | None, target: str = TARGET) -> Starter:
    """What starts a rank on its socket and its output: `spawner`, or by `how` ("fork", "forkserver"); by default a fork if this
    process has one thread, no CUDA and no group, else the fork server. The environment's ALLRANKS_WIRE_LAUNCH overrides the default.
    """
    if spawner is None:
        alone = threading.active_count() == 1 and not has_started_cuda() and not _has_group()
        how = how or os.environ.get("ALLRANKS_WIRE_LAUNCH") or ("fork" if alone else "forkserver")
        if how not in ("fork", "forkserver"):
            raise ValueError(f"launch is {how!r}; it must be 'fork' or 'forkserver'.")
        if how == "fork":
            return lambda fds: fork(fds, target)
        from allranks.ranks.engines.forkserver.client import ForkServer

        forkserver = ForkServer.ensure()
        return lambda fds: FromForkServer(forkserver.spawn(target, args=None, fds=fds))
    return lambda fds: spawner.spawn(target, args=None, fds=fds)


def ended(processes: list[Process], timeout_s: float) -> list[Process]:
    """Waits for killed processes to end; those that have not after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    left = [p for p in processes if p.poll() is None]
    while left and time.monotonic() < deadline:
        time.sleep(0.001)
        left = [p for p in left if p.poll() is None]
    return left

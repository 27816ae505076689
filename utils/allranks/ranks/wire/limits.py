"""Limits inside a rank: processor time, memory, processes; and the audit of what the program opens."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from types import FrameType

from allranks.ranks.engines.alone import Events, watch
from allranks.ranks.wire.failures import FailureKind

_FORKS = {
    "os.fork",
    "os.forkpty",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "subprocess.Popen",
    "pty.spawn",
}
_WRITING = os.O_WRONLY | os.O_RDWR
_PR_SET_DUMPABLE, _CAP_SYS_PTRACE, _CAPABILITY_VERSION_3 = 4, 19, 0x20080522  # linux/prctl.h, linux/capability.h


class Guard:
    """Watches the student's code while `active`.

    `on_fault(kind, frame, computed_s)` is called at the place of a fault; `computed_s` only if the wall clock ended it.
    """

    def __init__(
        self,
        on_fault: Callable[[FailureKind, FrameType | None, float | None], None],
        on_write: Callable[[str, FrameType], None],
    ) -> None:
        self.active = False
        self.cpu_s = 0.0
        self.events: Events = (*((event, self._forks) for event in _FORKS), ("open", self._opens))
        self.on_fault, self.on_write = on_fault, on_write
        signal.signal(signal.SIGPROF, lambda _, frame: self._fault(FailureKind.CPU_LIMIT, frame))
        signal.signal(signal.SIGXCPU, lambda _, frame: self._fault(FailureKind.CPU_LIMIT, frame))
        signal.signal(signal.SIGUSR1, lambda _, frame: self._fault(FailureKind.WALL_LIMIT, frame, self._computed_s()))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        _close_memory()

    def _fault(self, kind: FailureKind, frame: FrameType | None, computed_s: float | None = None) -> None:
        if self.active:
            self.on_fault(kind, frame, computed_s)

    def _computed_s(self) -> float:
        """The processor time of this run."""
        return self.cpu_s - signal.getitimer(signal.ITIMER_PROF)[0]

    def take_events(self) -> Events:
        """What to watch, for who asks first: from then on he watches it."""
        events, self.events = self.events, ()
        return events

    def _forks(self, event: str, args: tuple) -> None:
        if not self.active:
            return
        frame = sys._getframe(2)  # below this one and the hook
        if _while_importing(frame):
            # A library that looks for a program (matplotlib asks fc-list for fonts) goes on without it.
            raise PermissionError(errno.EPERM, "a rank starts no other process")
        self.active = False
        self.on_fault(FailureKind.FORKED, frame, None)

    def _opens(self, event: str, args: tuple) -> None:
        path, _, flags = args
        if self.active and isinstance(path, str | bytes) and (flags or 0) & _WRITING:
            self.active = False  # finding the line must not come back here
            try:
                self.on_write(os.fsdecode(path), sys._getframe(2))
            finally:
                self.active = True

    @contextlib.contextmanager
    def watching(self, cpu_s: float, memory_bytes: int):
        """Sets the limits and watches, for one run."""
        if self.events:
            watch(self.take_events())
        used = resource.getrusage(resource.RUSAGE_SELF)
        hard_cpu = int(used.ru_utime + used.ru_stime + cpu_s) + 2
        _set_soft(resource.RLIMIT_CPU, hard_cpu)
        _set_soft(resource.RLIMIT_AS, _mapped_nbytes() + memory_bytes)
        _set_soft(resource.RLIMIT_FSIZE, max(memory_bytes, 1 << 26))
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        self.cpu_s = cpu_s
        self.active = True
        try:
            yield
        finally:
            self.active = False
            signal.setitimer(signal.ITIMER_PROF, 0)
            for which in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
                _set_soft(which, None)


class NoGuard:
    """Watches nothing, and leaves nothing in the process."""

    active = False

    def take_events(self) -> Events:
        """Nothing."""
        return ()

    def watching(self, cpu_s: float, memory_bytes: int) -> contextlib.AbstractContextManager[None]:
        """Sets no limits."""
        return contextlib.nullcontext()


def _close_memory() -> None:
    """No rank reads another's memory, by process_vm_readv, ptrace or /proc/PID/mem: what it has came in messages."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # root reads all memory by this capability; effective, permitted and inheritable, twice 32 bits each
    header, held = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, held) == 0:
        held[:3] = [bits & ~(1 << _CAP_SYS_PTRACE) for bits in held[:3]]
        libc.capset(header, held)


def _while_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: then its author, not the student, wrote what runs."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _set_soft(which: int, value: int | None) -> None:
    """Sets the soft limit, never above the hard one; None lifts it."""
    hard = resource.getrlimit(which)[1]
    if value is None or (hard != resource.RLIM_INFINITY and value > hard):
        value = hard
    resource.setrlimit(which, (value, hard))


def _mapped_nbytes() -> int:
    try:
        statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(statm, 256).split()[0]) * resource.getpagesize()
        finally:
            os.close(statm)
    except OSError:  # a sandbox without /proc
        return max(1 << 33, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)

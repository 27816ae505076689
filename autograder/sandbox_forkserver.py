"""Runs inside the sandbox: imports torch once, then forks each rank into its own namespaces.

`autograder.sandbox` starts it under bubblewrap, by its path, and talks to it over one inherited socket. A rank sees no
other rank. It is process 1 of its own process namespace. It has a network without interfaces, no /proc, and a small
private /scratch and /dev/shm. It has no capabilities, and only the descriptors that were passed for it. A filter
refuses some system calls (`seccomp.py`). So two ranks of one submission share nothing that they can write to. They can
still measure times and loads that other ranks cause (docs/instructor.md).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import sys

from allranks.ranks.engines.forkserver.loop import Client, ForkLoop
from allranks.ranks.engines.forkserver.process import use_large_pages

WARM = (
    "numpy",
    "torch",
    "torch.distributed",
    "torch.nn",
    "torch.nn.functional",
    "cloudpickle",
    "encodings.ascii",
    "allranks.judge.in_rank.rehearsal",
    "allranks.ranks.wire.rank",
)
SCRATCH_BYTES = 64 << 20

_NEWNS, _NEWUTS, _NEWIPC, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
_DETACH = 2
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 22, 24, 38, 47
_SECCOMP_MODE_FILTER = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _call(name: str, *arguments: object) -> None:
    """Calls a function of libc; raises OSError if it returns -1."""
    if getattr(_LIBC, name)(*arguments) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _mount_empty(path: str, nbytes: int) -> None:
    options = f"size={nbytes},nr_inodes=4096,mode=1777".encode()
    _call("mount", b"none", path.encode(), b"tmpfs", _NOSUID | _NODEV | _NOEXEC, options)


def _own_view() -> None:
    """Gives this process, the first of its process namespace, its own private folders."""
    _call("mount", b"none", b"/", None, _REC | _PRIVATE, None)
    os.chdir("/")
    _mount_almost_no_proc()
    for path in ("/scratch", "/dev/shm"):
        _mount_empty(path, SCRATCH_BYTES)
    os.chdir("/scratch")


def _mount_almost_no_proc() -> None:
    """A /proc that holds only how much memory this process has mapped (self/statm).

    In the real one a rank reads which pages of a file another rank has mapped (pagemap, smaps), and counters of the
    whole machine (sys/fs/file-nr). If the machine refuses to mount it (some containers), /proc is empty.
    """
    _mount_empty("/proc", 4096)
    if _LIBC.mount(b"none", b"/scratch", b"proc", _NOSUID | _NODEV | _NOEXEC, None) == -1:
        return
    os.mkdir("/proc/self")
    os.close(os.open("/proc/self/statm", os.O_CREAT | os.O_WRONLY, 0o444))
    _call("mount", b"/scratch/self/statm", b"/proc/self/statm", None, _BIND, None)
    _call("umount2", b"/scratch", _DETACH)


def _forbid_user_namespaces() -> None:
    """Forbids user namespaces in the sandbox: in one, a process would have capabilities again."""
    _call("mount", b"none", b"/scratch", b"proc", _NOSUID | _NODEV | _NOEXEC, None)  # bubblewrap's own is read-only
    with open("/scratch/sys/user/max_user_namespaces", "w", encoding="ascii") as limit:
        limit.write("0")
    _call("umount2", b"/scratch", 0)


def _drop_capabilities() -> None:
    """Gives up every capability for ever, also for programs that it starts."""
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", _PR_CAP_AMBIENT, 4, 0, 0, 0)
    for capability in range(64):
        if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == -1:
            break  # the kernel knows no capability of that number
    _call("capset", ctypes.byref(_CapHeader(0x20080522, 0)), ctypes.byref((ctypes.c_uint32 * 6)()))


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _refuse_calls(program: bytes) -> None:
    """Puts this process, its threads and its children under a seccomp filter, for ever."""
    _call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(_SockFprog(len(program) // 8, program)), 0, 0)


class SandboxForkServer(ForkLoop):
    """Serves the one client outside the sandbox. Each child is the first process of its own namespaces."""

    gpus = False

    def __init__(self, control: socket.socket, limits: dict[str, int], filter_program: bytes) -> None:
        super().__init__(WARM)
        self.control, self.limits, self.filter_program = control, limits, filter_program
        self.own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)

    def prepare(self) -> None:
        """Forbids user namespaces, before any package of Python is imported."""
        _forbid_user_namespaces()

    def listen(self) -> None:
        """Starts to take requests from outside the sandbox."""
        read_processor()
        rehearse()
        use_large_pages()  # now, since a class is graded without a quiet second
        self.large = True
        self.add_client(self.control)

    def answer(self, client: Client, request: dict, fds: list[int]) -> None:
        """Forks; or sends a signal to a rank, by {"kill": pid, "signal": number}: processes outside do not know its pid."""
        if "kill" not in request:
            super().answer(client, request, fds)
        elif request["kill"] in self.owners:
            os.kill(request["kill"], request["signal"])

    def drop(self, client: Client) -> None:
        """Ends this process, the first of the sandbox: the sandbox and every rank end with it."""
        os._exit(0)

    def fork_process(self) -> int:
        """Forks a rank as the first process of a new process namespace; returns its process id in our namespace."""
        _call("unshare", _NEWPID)  # the new namespace is for our next child, not for us
        pid = None
        try:
            pid = os.fork()
        finally:
            if pid != 0:
                _call("setns", self.own_namespace, _NEWPID)  # else the kernel would refuse the next unshare
        return pid

    def become_child(self, server_pid: int, request: dict, fds: list[int]) -> None:
        """Sets up the child: its own namespaces, limits and filter, and no capabilities or other descriptors."""
        mapped_nbytes = _mapped_nbytes()  # read it now: later there may be no /proc
        _call("unshare", _NEWNS | _NEWUTS | _NEWIPC | _NEWNET)
        self.detach(request)
        _own_view()
        limits = dict(self.limits)
        limits["AS"] = mapped_nbytes + limits.pop("MAPPED")
        for name, limit in limits.items():
            number = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(number)[1]
            lower = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(number, (lower, lower))
        _drop_capabilities()
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        _close_all_but({0, 1, 2, *fds})
        _refuse_calls(self.filter_program)


def read_processor() -> None:
    """Makes torch read what the processor can do, which it does once, from /proc: a rank, which has none, could not.

    Without it, `tensor.to(torch.float32)` of a float16 tensor raises "Failed to initialize cpuinfo!" in a rank.
    """
    import torch

    torch.zeros(64, dtype=torch.float16).to(torch.float32)


def rehearse() -> None:
    """Does here, once, what else only a rank's first run does."""
    from allranks.judge.in_rank import rehearsal

    rehearsal.rehearse()


def _mapped_nbytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _close_all_but(wanted: set[int]) -> None:
    """Closes all descriptors except `wanted`: ours, and those that bubblewrap left open."""
    begin = 0
    for fd in [*sorted(wanted), 0x7FFFFFFF]:  # not the limit: descriptors may be above it, if it was lowered
        if begin < fd:  # an empty range would close them all
            os.closerange(begin, fd)
        begin = fd + 1


if __name__ == "__main__":
    SandboxForkServer(
        socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]), bytes.fromhex(sys.argv[3])
    ).serve()

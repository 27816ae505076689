"""Runs inside the sandbox: imports torch once, then forks each rank into namespaces of its own.

`autograder.sandbox` starts it under bubblewrap, by its path, and talks to it over one inherited socket. A rank sees no
other rank: it is process 1 of its own process namespace, has a network with no interfaces, a /proc of its own and private,
small /scratch and /dev/shm, no capabilities, no descriptor but the ones that were passed for it, and a filter over its system
calls (`forbidden.py`). So two ranks of one submission share nothing that they can write to; what they can only time or count
is left (docs/instructor.md).
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
import traceback

MAX_MESSAGE = 160_000
MAX_FDS = 64
WARM = ("numpy", "torch", "torch.distributed", "torch.nn", "torch.nn.functional", "allranks.wire.rank")
SCRATCH_BYTES = 64 << 20

_NEWNS, _NEWUTS, _NEWIPC, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _REC, _PRIVATE = 2, 4, 8, 0x4000, 0x40000
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 22, 24, 38, 47
_SECCOMP_MODE_FILTER = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _call(name: str, *arguments: object) -> None:
    """Calls a function of libc; raises OSError where it returns -1."""
    if getattr(_LIBC, name)(*arguments) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _mount_empty(path: str, nbytes: int) -> None:
    options = f"size={nbytes},nr_inodes=4096,mode=1777".encode()
    _call("mount", b"none", path.encode(), b"tmpfs", _NOSUID | _NODEV | _NOEXEC, options)


def _own_view() -> None:
    """Gives this process (the first of its process namespace) folders that nobody else has."""
    _call("mount", b"none", b"/", None, _REC | _PRIVATE, None)
    os.chdir("/")
    for path in ("/scratch", "/dev/shm"):
        _mount_empty(path, SCRATCH_BYTES)
    # a /proc that shows this rank's processes only; where the machine refuses (some containers), an empty one
    if _LIBC.mount(b"none", b"/proc", b"proc", _NOSUID | _NODEV | _NOEXEC, None) == -1:
        _mount_empty("/proc", 4096)
    os.chdir("/scratch")


def _forbid_user_namespaces() -> None:
    """Lets nobody in the sandbox make a user namespace, where it would have capabilities again."""
    _call("mount", b"none", b"/scratch", b"proc", _NOSUID | _NODEV | _NOEXEC, None)  # bubblewrap's own is read-only
    with open("/scratch/sys/user/max_user_namespaces", "w", encoding="ascii") as limit:
        limit.write("0")
    _call("umount2", b"/scratch", 0)


def _drop_capabilities() -> None:
    """Gives up every capability for good, also over an exec."""
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", _PR_CAP_AMBIENT, 4, 0, 0, 0)
    for capability in range(64):
        if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == -1:
            break  # the kernel knows no capability of that number
    _call("capset", ctypes.byref(_CapHeader(0x20080522, 0)), ctypes.byref((ctypes.c_uint32 * 6)()))


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _refuse_calls(program: bytes) -> None:
    """Puts this process, its threads and children under a seccomp filter, for good."""
    _call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(_SockFprog(len(program) // 8, program)), 0, 0)


class SandboxForkServer:
    """The loop: one thread, one socket. Forking is safe, since nothing here ever starts a thread."""

    def __init__(self, control: socket.socket, limits: dict[str, int], filter_program: bytes) -> None:
        self.control, self.limits, self.filter_program = control, limits, filter_program
        self.wake, self.wake_write = socket.socketpair()
        self.living: set[int] = set()
        self.own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)

    def serve(self) -> None:
        """Warms, then answers until the other end closes."""
        import selectors

        _forbid_user_namespaces()
        for end in (self.wake, self.wake_write):
            end.setblocking(False)
        signal.set_wakeup_fd(self.wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.disable()
        for module in WARM:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()
        gc.enable()
        self.send({"warm": True})
        selector = selectors.DefaultSelector()
        selector.register(self.control, selectors.EVENT_READ, self.read)
        selector.register(self.wake, selectors.EVENT_READ, self.reap)
        self.selector = selector
        while True:
            for key, _ in selector.select():
                key.data()

    def send(self, message: dict) -> None:
        self.control.send(json.dumps(message).encode())

    def read(self) -> None:
        data, rights, _, _ = self.control.recvmsg(MAX_MESSAGE, socket.CMSG_SPACE(MAX_FDS * 4))
        if not data:
            os._exit(0)  # the sandbox ends with its first process, and every rank with it
        fds = array.array("i")
        for _, _, payload in rights:
            fds.frombytes(payload)
        request = json.loads(data)
        if "kill" in request:
            if request["kill"] in self.living:
                os.kill(request["kill"], request["signal"])
            return
        try:
            reply: dict = {"pid": self.fork(request, list(fds))}
        except Exception as error:
            reply = {"error": f"{request.get('target')} could not be started: {type(error).__name__}: {error}"}
        finally:
            for fd in fds:
                os.close(fd)
        self.send({"id": request["id"], **reply})

    def fork(self, request: dict, fds: list[int]) -> int:
        """Forks a rank as the first process of a new process namespace; its process id as seen from here."""
        module, _, function = request["target"].partition(":")
        target = getattr(importlib.import_module(module), function)
        _call("unshare", _NEWPID)  # for our next child; we stay where we are
        try:
            pid = os.fork()
            if pid == 0:
                self.become_rank(target, request, fds)
        finally:
            _call("setns", self.own_namespace, _NEWPID)  # else the next unshare would be refused
        self.living.add(pid)
        return pid

    def become_rank(self, target, request: dict, fds: list[int]) -> None:
        """Shuts this process in, then calls the target; ends the process."""
        code = 1
        try:
            mapped_nbytes = _mapped_nbytes()  # while there is a /proc for certain
            _call("unshare", _NEWNS | _NEWUTS | _NEWIPC | _NEWNET)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            for end in (self.control, self.wake, self.wake_write):
                end.close()
            self.selector.close()
            os.setsid()
            _own_view()
            os.environ.clear()
            os.environ.update(request["env"])
            limits = dict(self.limits)
            limits["AS"] = mapped_nbytes + limits.pop("MAPPED")
            for name, limit in limits.items():
                number = getattr(resource, f"RLIMIT_{name}")
                hard = resource.getrlimit(number)[1]
                lower = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
                resource.setrlimit(number, (lower, lower))
            _seed()
            _drop_capabilities()
            null = os.open("/dev/null", os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            _close_all_but({0, 1, 2, *fds})
            _refuse_calls(self.filter_program)
            code = target(request["args"], fds) or 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)

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
                return
            if pid in self.living:
                self.living.discard(pid)
                self.send({"exit": pid, "code": os.waitstatus_to_exitcode(status)})


def _mapped_nbytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _close_all_but(wanted: set[int]) -> None:
    """Closes every descriptor that is not wanted, ours and those that bubblewrap left open."""
    begin = 0
    for fd in [*sorted(wanted), 0x7FFFFFFF]:  # not the limit: it may have been lowered since they were opened
        if begin < fd:  # an empty range would close them all
            os.closerange(begin, fd)
        begin = fd + 1


def _seed() -> None:
    """Gives this process random numbers of its own; a fork would otherwise repeat its siblings'."""
    import random

    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    torch.seed()


if __name__ == "__main__":
    SandboxForkServer(
        socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]), bytes.fromhex(sys.argv[3])
    ).serve()

"""Helpers for processes that fork and for their children: imports, random seeds, signals, exit codes in words."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MADV_COLLAPSE = 25  # Linux 6.1
_LARGE = 2 << 20
_KEYCTL_JOIN_SESSION_KEYRING = 1
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}  # the system call's number


def forking_is_safe() -> bool:
    """Whether ranks can be forked here. Not on macOS, whose frameworks don't survive a fork."""
    return sys.platform == "linux"


def _c_library() -> Any:
    import ctypes  # takes time to import, and what only asks a server does not need it

    return ctypes.CDLL(None)


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends. A fork loses this setting; an exec keeps it."""
    _c_library().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes this process the parent of processes that its children leave behind (Linux's child subreaper).

    A fork loses it.
    """
    _c_library().prctl(_PR_SET_CHILD_SUBREAPER, 1)


def leave_keyring() -> None:
    """Gives this process a session keyring of its own: each process that has the same one owns all keys in it.

    It stays over a change of account. Raises OSError if it can't be left.
    """
    import ctypes

    number = _KEYCTL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "keyctl")
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None) < 0:
        # where a container forbids the call, or the kernel has no keyrings, there are no keys to own either
        if ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
            raise OSError(ctypes.get_errno(), "keyctl")


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


def preload(*modules: str) -> None:
    """Imports modules that this process and its forks will keep until they end."""
    gc.disable()  # the collector would take a sixth of the imports' time
    try:
        for module in modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()  # forks share memory until one writes to it; the collector would write to it
    finally:
        gc.enable()


def use_large_pages() -> None:
    """Moves this process's memory into pages of 2 MiB, as far as the kernel can: a fork copies a table of all pages.

    It takes half a second of processor time, once; each rank then starts and ends with a third less of it.
    """
    import ctypes

    madvise = _c_library().madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps.read().splitlines():
            area, access, *_, inode = line.split()[:5]
            if access == "rw-p" and inode == "0" and not line.endswith("[stack]"):
                begin, end = (int(address, 16) for address in area.split("-"))
                begin, end = -(-begin // _LARGE) * _LARGE, end // _LARGE * _LARGE
                if begin < end:
                    madvise(begin, end - begin, _MADV_COLLAPSE)


def kill_session(pid: int) -> None:
    """Kills the process, which leads its own session, and its process group. SIGKILL also ends a stopped process."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def reseed_random_generators(gpus: bool = True) -> None:
    """Gives this process its own random numbers; otherwise all forks would draw the same ones.

    `gpus`: also on GPUs. This takes 20 ms of processor time, even if torch was built without support for GPUs.
    """
    import random

    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    if gpus and (torch.version.cuda or torch.version.hip or sys.platform != "linux"):
        torch.seed()
    else:
        torch.default_generator.seed()

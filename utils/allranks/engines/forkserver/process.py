"""What processes that fork, and those that are forked, ask of the system: warm imports, seeds, signals, ends in words."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


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


def preload(*modules: str) -> None:
    """Imports what is to stay for the life of this process and of its forks."""
    gc.disable()  # looking through what imports make takes a sixth of their time
    try:
        for module in modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()  # forks share these pages only as long as nobody writes to them
    finally:
        gc.enable()


def kill_session(pid: int) -> None:
    """Kills the process and its group (it leads its own session). A stopped process dies of SIGKILL as well."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def reseed_random_generators() -> None:
    """Gives this process random numbers of its own; a fork would otherwise repeat its siblings'."""
    import random

    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    torch.seed()

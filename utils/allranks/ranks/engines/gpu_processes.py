"""Whether processes that were ended still hold a GPU: the driver gives their memory back a moment after their end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

import psutil

LOOK_S = 0.05


def listed(uuids: Iterable[str]) -> set[int]:
    """The ids of the processes that compute on these GPUs or MIG devices, as NVML lists them; empty without a driver."""
    import pynvml

    found: set[int] = set()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return found
    try:
        for uuid in uuids:
            with contextlib.suppress(pynvml.NVMLError):
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                found |= {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    finally:
        pynvml.nvmlShutdown()
    return found


def wait_until_gone(pids: Iterable[int], uuids: Iterable[str], limit_s: float) -> set[int]:
    """Waits until these processes have ended and the GPUs list none of them; returns those that are left after `limit_s`.

    In a container NVML may list the host's ids, or none: then only the end of the processes is waited for.
    """
    left, uuids, deadline = set(pids), list(uuids), time.monotonic() + limit_s
    while left := {pid for pid in left if runs(pid)} | (left & listed(uuids)):
        if time.monotonic() > deadline:
            return left
        time.sleep(LOOK_S)
    return left


def runs(pid: int) -> bool:
    """Whether a process has not ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False

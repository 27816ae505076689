"""What holds a GPU: processes that were ended, whose memory the driver gives back a moment after their end, and this one, so that
the driver does not shut the GPU down meanwhile.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

import psutil

from allranks.ranks.engines import gpu_socket

LOOK_S = 0.05


def keep_initialized(uuids: Iterable[str]) -> Callable[[], None]:
    """Keeps the driver from shutting these GPUs down while no process uses them, until what it returns is called.

    Without persistence mode the driver takes 1 to 3 s to start each GPU again (NVIDIA's page "Driver Persistence"), for every look
    at all of them and for all new ranks. NVML starts a GPU for its handle, and keeps it open until nvmlShutdown. The GPU service
    lets nobody open a GPU without a lease, so there this does nothing.
    """
    import pynvml

    try:
        if gpu_socket.where() is not None:
            return lambda: None
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return lambda: None
    for uuid in uuids:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def let_go() -> None:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    return let_go


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

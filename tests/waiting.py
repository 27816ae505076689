"""How a test waits: for a state, as long as a busy machine may need for it; never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

Found = TypeVar("Found")
LOOK_S = 0.02


def until(condition: Callable[[], Found], patience_s: float = 60, says: object = "this did not happen") -> Found:
    """Waits until `condition()` is true; its value. Once patience is over, AssertionError with `says`, or what it
    gives.
    """
    end = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < end, says() if callable(says) else says
        time.sleep(LOOK_S)
    return found


def until_files_are_newer(folder: Path) -> None:
    """Waits until a file that changes now has a later time than all that have changed: the kernel's clock of files
    goes in steps.
    """
    probe = folder / f"newer-{time.time_ns()}"

    def changed() -> int:
        probe.touch()
        return probe.stat().st_ctime_ns

    before = changed()
    until(lambda: changed() > before)
    probe.unlink()


def gone(pid: int) -> bool:
    """Whether this process has ended, buried or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True

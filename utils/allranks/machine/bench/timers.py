"""How a rank times calls: by its clock on the CPU, by two events around many calls on a GPU, as nccl-tests does.

A clock around one call on a GPU measures the launch and the wait for the device too, which take longer than a small collective.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from allranks.ranks.engines import rank as on_rank

if TYPE_CHECKING:
    import torch

BLOCK_S = 2e-3  # how long the calls between two events shall take together, where the caller names no number
MOST_CALLS = 100  # between two events


class ClockTimer:
    """Each call by itself, until the device has done its work."""

    events = False

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def finish(self) -> None:
        """Waits until the rank's work is done: on the CPU under NCCL's rules, for its queue."""
        on_rank.wait_for_gpu()

    def calls(self, once_s: float) -> int:
        """How many calls to time together, if one takes `once_s` seconds."""
        return 1

    def times_s(self, call: Callable[[], object], calls: int) -> list[float]:
        """The seconds of each of so many calls."""
        found = []
        for _ in range(calls):
            start_s = time.perf_counter()
            call()
            self.finish()
            found.append(time.perf_counter() - start_s)
        return found


class EventTimer(ClockTimer):
    """All calls between two events on the GPU's stream: the mean of a call, without the time to launch the first one."""

    events = True

    def __init__(self, device: torch.device) -> None:
        import torch

        super().__init__(device)
        self._first, self._last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def calls(self, once_s: float) -> int:
        """How many calls to time together, if one takes `once_s` seconds: few if they are long."""
        return max(1, min(MOST_CALLS, math.ceil(BLOCK_S / max(once_s, 1e-9))))

    def times_s(self, call: Callable[[], object], calls: int) -> list[float]:
        """One figure: the mean seconds of so many calls that follow one another."""
        self._first.record()
        for _ in range(calls):
            call()
        self._last.record()
        self._last.synchronize()
        mean_s = self._first.elapsed_time(self._last) * 1e-3 / calls
        self.finish()
        return [mean_s]


def timer() -> ClockTimer:
    """The timer for the place where the default group's collectives run."""
    import torch
    import torch.distributed as dist

    if dist.get_backend() == "nccl":
        return EventTimer(torch.device("cuda", torch.cuda.current_device()))
    # the default device, which under NCCL's rules is not torch.device("cpu")
    return ClockTimer(torch.empty(0).device)

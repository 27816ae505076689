"""How a rank times calls: by its clock on the CPU, by two events around many calls on a GPU.

A clock around one call on a GPU measures the launch and the wait for the device too, which take longer than a small collective.
Two events around many calls still measure the launches where those take longer than the calls: so the GPU is kept busy first,
until all calls are in its queue.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from allranks.ranks.engines import rank as on_rank

if TYPE_CHECKING:
    import torch

BLOCK_S = 2e-3  # how long the calls between two events shall take together, where the caller names no number
MOST_CALLS = 100  # between two events
# of a GPU's clock in a second, rather too many; the kernel counts them
CYCLES_A_S = 2.5e9
MOST_BUSY_S = 20e-3  # the longest that a GPU is kept busy before calls are timed
SHORTEST_WAIT_S = 1e-5  # on the host; a thread that has lost its core for less has not waited
HOST_WAITS = math.inf  # "the launch takes for ever": the call waits on the host, and is timed as it comes


class ClockTimer:
    """Each call by itself, until the device has done its work."""

    events = False
    launch_s = 0.0  # what the host took for one of the calls that were timed last; HOST_WAITS if it waited there

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def finish(self) -> None:
        """Waits until the rank's work is done: on the CPU under NCCL's rules, for its queue."""
        on_rank.wait_for_gpu()

    def calls(self, once_s: float) -> int:
        """How many calls to time together, if one takes `once_s` seconds."""
        return 1

    def times_s(self, call: Callable[[], object], calls: int, launch_s: float = HOST_WAITS) -> list[float]:
        """The seconds of each of so many calls. On a GPU, `launch_s` is how long the host takes for one on any rank."""
        found = []
        for _ in range(calls):
            start_s = time.perf_counter()
            call()
            self.finish()
            found.append(time.perf_counter() - start_s)
        return found


class EventTimer(ClockTimer):
    """All calls between two events on the GPU's stream: the mean of a call, without the time to launch it.

    All ranks of `group` must time the same calls, with the same `launch_s`.
    """

    events = True

    def __init__(self, device: torch.device, group: Any = None) -> None:
        import torch

        super().__init__(device)
        self.group = group
        self._first, self._last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._one = torch.zeros(1, device=device)

    def calls(self, once_s: float) -> int:
        """How many calls to time together, if one takes `once_s` seconds: few if they are long."""
        return max(1, min(MOST_CALLS, math.ceil(BLOCK_S / max(once_s, 1e-9))))

    def times_s(self, call: Callable[[], object], calls: int, launch_s: float = HOST_WAITS) -> list[float]:
        """One figure: the mean seconds of so many calls that follow one another, which are all in the queue before the first begins.

        A call that waits on the host (for gloo, a file, a sleep) can't be put into a queue: with HOST_WAITS its launch counts too.
        """
        import torch
        import torch.distributed as dist

        if launch_s < HOST_WAITS:
            busy_s = min(MOST_BUSY_S, 2 * calls * launch_s + 1e-4)
            torch.cuda._sleep(int(CYCLES_A_S * busy_s))
            # the ranks' GPUs begin together, and nobody waits for that on the host
            dist.all_reduce(self._one, group=self.group)
        self._first.record()
        began_s, worked_s = time.perf_counter(), time.thread_time()
        for _ in range(calls):
            call()
        host_s, worked_s = time.perf_counter() - began_s, time.thread_time() - worked_s
        self._last.record()
        self._last.synchronize()
        mean_s = self._first.elapsed_time(self._last) * 1e-3 / calls
        self.finish()
        # who launches works all the time; who waits for gloo or sleeps does not
        waited_s = host_s - worked_s
        self.launch_s = host_s / calls if waited_s < max(host_s / 2, SHORTEST_WAIT_S * calls) else HOST_WAITS
        return [mean_s]


def timer(group: Any = None) -> ClockTimer:
    """The timer for the place where the collectives of a group (default: all ranks) run."""
    import torch
    import torch.distributed as dist

    backend = str(dist.get_backend(group))
    if backend == "nccl" or "cuda:nccl" in backend:
        return EventTimer(torch.device("cuda", torch.cuda.current_device()), group)
    # under NCCL's rules the default device, which is not torch.device("cpu"); a gloo group of ranks on GPUs works on the CPU
    return ClockTimer(torch.device("cpu") if backend == "gloo" else torch.empty(0).device)

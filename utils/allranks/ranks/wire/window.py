"""A rank's end of the memory of a run (see `memory_model.py`)."""

from __future__ import annotations

import torch
import torch.distributed as dist

from allranks.ranks.memory.one_sided import OneSided
from allranks.ranks.wire.endpoint import access, memory_of_run
from allranks.ranks.wire.frames import FrameKind, Operation
from allranks.ranks.wire.memory_model import Access
from allranks.ranks.wire.values import DTYPES, from_raw, raw


class Window(OneSided):
    """The memory of the run, in which another rank sees what was put when the rank that put it has passed a fence."""

    def fence(self) -> None:
        """Returns when everything that this rank has put is in place: what it signals afterwards can't arrive before it."""
        access(_request(Access.FENCE, self.rank))

    def _put(self, peer: int, offset: int, values: torch.Tensor) -> None:
        op = _request(Access.PUT, peer)
        op["offset"], op["numel"] = offset, values.numel()
        access(op, bytes(raw(values.cpu())))

    def _get(self, peer: int, offset: int, numel: int) -> torch.Tensor:
        op = _request(Access.GET, peer)
        op["offset"], op["numel"] = offset, numel
        body = access(op, answered=True)
        got = torch.empty(
            numel, dtype=self.dtype
        )  # made as the program makes tensors: under NCCL's rules on its device
        return got.copy_(from_raw(b"" if body is None else body.read(), self.dtype, (numel,)))

    def _signal(self, peer: int, channel: int) -> None:
        access(_request(Access.SIGNAL, peer, channel))

    def _wait(self, peer: int, channel: int) -> None:
        access(_request(Access.WAIT, peer, channel), answered=True)


def _request(kind: Access, peer: int, channel: int = 0) -> Operation:
    return {"do": FrameKind.MEMORY, "name": kind, "access": kind, "peer": peer, "channel": channel}


def memory() -> Window:
    """This rank's end of the memory of the run (`wire.run(..., memory=wire.Memory(numel))`): put, get, fence, signal and wait.

    Raises CourseError in a run without memory, and outside of a function that `wire.run` runs.

    Example (needs ranks):
        >>> def neighbour():
        ...     memory = wire.memory()
        ...     right, left = (memory.rank + 1) % memory.ranks, (memory.rank - 1) % memory.ranks
        ...     memory.put(right, 0, torch.tensor([memory.rank * 10.0]))
        ...     memory.fence()
        ...     memory.signal(right)
        ...     memory.wait(left)
        ...     return memory.get(memory.rank, 0, 1).item()
        >>> wire.run(neighbour, ranks=3, memory=wire.Memory(1)).results
        [20.0, 0.0, 10.0]
    """
    numel, dtype = memory_of_run()
    return Window(dist.get_rank(), dist.get_world_size(), numel, DTYPES[dtype])

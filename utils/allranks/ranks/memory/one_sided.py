"""What every memory of this course can do: put, get, fence, signal, wait; and what is wrong with a call, in one sentence."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from allranks.base.errors import CourseError
from allranks.ranks.wire.messages import CHANNELS


class MemoryFault(CourseError):
    """A call that a memory can't serve, a wait that lasted too long, or ranks that can't share memory."""


class OneSided(ABC):
    """Memory of `numel` elements for each of `ranks` ranks, into which every rank may put and from which it may get.

    The rank whose memory it is takes no part in a put or a get, so nobody knows by itself when one has happened: `fence` says that
    this rank's puts are in place, `signal` and `wait` tell it to another rank. A `SharedMemory` is one, and so is what
    `wire.memory()` gives. Each method raises MemoryFault for a rank, a channel or elements that are not there.

    Example (needs ranks):
        >>> def hand_over():
        ...     from allranks import SharedMemory
        ...     memory = SharedMemory(4)
        ...     if memory.rank == 0:
        ...         memory.put(1, 2, torch.tensor([1.5, 2.5]))
        ...         memory.fence()
        ...         memory.signal(1, channel=3)
        ...     elif memory.rank == 1:
        ...         memory.wait(0, channel=3)
        ...         return memory.get(1, 2, 2).tolist()
        >>> world.run(hand_over)[1]
        [1.5, 2.5]
    """

    def __init__(self, rank: int, ranks: int, numel: int, dtype: torch.dtype) -> None:
        self.rank, self.ranks, self.numel, self.dtype = rank, ranks, numel, dtype

    def put(self, peer: int, offset: int, values: torch.Tensor) -> None:
        """Writes `values` into the memory of `peer` (this rank's own too), from element `offset` on. They arrive at any time before
        the next `fence` returns."""
        self._check_peer("put", peer)
        if not isinstance(values, torch.Tensor) or values.dtype != self.dtype:
            found = values.dtype if isinstance(values, torch.Tensor) else type(values).__name__
            raise MemoryFault(f"put() takes a tensor of {self.dtype}, as the memory is, but was given {found}.")
        self._check_range("put", peer, offset, values.numel())
        self._put(peer, offset, values.detach().contiguous().reshape(-1))

    def get(self, peer: int, offset: int, numel: int) -> torch.Tensor:
        """A copy of `numel` elements of the memory of `peer`, from element `offset` on, as they are there now."""
        self._check_peer("get", peer)
        self._check_range("get", peer, offset, numel)
        return self._get(peer, offset, numel)

    @abstractmethod
    def fence(self) -> None:
        """Returns when everything that this rank has put is in place: what it signals afterwards can't arrive before it."""

    def signal(self, peer: int, channel: int = 0) -> None:
        """Gives `peer` one signal of this rank on one of four channels. It may overtake what was put without a fence."""
        self._check_signal("signal", peer, channel)
        self._signal(peer, channel)

    def wait(self, peer: int, channel: int = 0) -> None:
        """Waits for one signal of `peer` on that channel, and uses it up: as many waits as signals."""
        self._check_signal("wait", peer, channel)
        self._wait(peer, channel)

    @abstractmethod
    def _put(self, peer: int, offset: int, values: torch.Tensor) -> None: ...

    @abstractmethod
    def _get(self, peer: int, offset: int, numel: int) -> torch.Tensor: ...

    @abstractmethod
    def _signal(self, peer: int, channel: int) -> None: ...

    @abstractmethod
    def _wait(self, peer: int, channel: int) -> None: ...

    def _check_peer(self, what: str, peer: object) -> None:
        if isinstance(peer, bool) or not isinstance(peer, int) or not 0 <= peer < self.ranks:
            raise MemoryFault(f"{what}() names rank {peer!r}, but the ranks are 0 to {self.ranks - 1}.")

    def _check_signal(self, what: str, peer: object, channel: object) -> None:
        self._check_peer(what, peer)
        if peer == self.rank:
            raise MemoryFault(f"{what}() names rank {peer} itself: a rank needs no signal of its own.")
        if isinstance(channel, bool) or not isinstance(channel, int) or not 0 <= channel < CHANNELS:
            raise MemoryFault(f"{what}() names channel {channel!r}, but the channels are 0 to {CHANNELS - 1}.")

    def _check_range(self, what: str, peer: int, offset: object, numel: object) -> None:
        whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (offset, numel))
        if not whole or offset + numel > self.numel:  # type: ignore[operator]
            raise MemoryFault(
                f"{what}() reaches for {numel} elements from {offset} on in the memory of rank {peer}, which has {self.numel}."
            )

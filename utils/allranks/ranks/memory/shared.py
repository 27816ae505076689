"""Real memory that the processes of one machine share: what `torch.distributed._symmetric_memory` is between GPUs.

The memory has no name, so the kernel frees it when the last process is gone, whatever ended it. Order: x86 shows stores of a process
to others in the order in which they were made; ARM does not. `fence` and `wait` therefore take a lock twice, which is a barrier for
memory on both. Signals are words that one process alone writes, so that no count is lost.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from allranks.ranks.memory.one_sided import MemoryFault, OneSided
from allranks.ranks.wire.messages import CHANNELS

_WORD_NBYTES, _LINE_NBYTES, _PAGE_NBYTES = 8, 128, 4096  # words of two processes never share a line of the cache
_SPINS = 50  # looks before the processor is offered to another process


@dataclass(frozen=True)
class Handle:
    """Where the memory is, for a process that is no rank: `SharedMemory.attach(handle)`."""

    path: str
    ranks: int
    guests: int
    numel: int
    dtype: torch.dtype


class SharedMemory(OneSided):
    """Memory for `numel` elements of each rank of `group`, which all of them can read and write; every rank must make it.

    `guests` more parts are for processes that are no ranks, numbered behind the ranks: they `attach` by `handle()`. A wait gives up after `wait_s` seconds. `tensor(rank)` is
    a rank's part itself, without a copy. `moved_nbytes` counts what this process put into, and got from, the parts of others.

    Raises MemoryFault, on all ranks, if the ranks are on several machines or ask for different sizes, or if there is no room; for a
    call outside the memory; and for a wait that took too long.

    Example (needs ranks):
        >>> def neighbour():
        ...     from allranks import SharedMemory
        ...     memory = SharedMemory(1)
        ...     right, left = (memory.rank + 1) % memory.ranks, (memory.rank - 1) % memory.ranks
        ...     memory.put(right, 0, torch.tensor([memory.rank * 10.0]))
        ...     memory.fence()
        ...     memory.signal(right)
        ...     memory.wait(left)
        ...     return memory.tensor(memory.rank).item()
        >>> sorted(world.run(neighbour))[-1] == 10.0 * (world.ranks - 1)
        True
    """

    def __init__(
        self,
        numel: int,
        dtype: torch.dtype = torch.float32,
        *,
        guests: int = 0,
        wait_s: float = 60.0,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (numel, guests))
        if not whole or not isinstance(dtype, torch.dtype):
            raise MemoryFault(f"SharedMemory takes a number of elements and a dtype, not {numel!r} and {dtype!r}.")
        if not dist.is_initialized():
            raise MemoryFault("SharedMemory is made by all ranks of a process group: call it inside the ranks.")
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        asked = (numel, str(dtype), guests, _machine())
        fd, path, trouble = -1, "", ""
        if rank == 0:
            try:
                fd, path = _anonymous(_nbytes(ranks + guests, numel, dtype))
            except OSError as error:
                trouble = f"rank 0 found no room for it ({error.strerror})"
        told: list[Any] = [None] * ranks
        dist.all_gather_object(told, (asked, path, trouble), group=group)
        trouble = told[0][2] or _disagreement([said[0] for said in told])
        if not trouble:
            try:
                fd = fd if rank == 0 else os.open(told[0][1], os.O_RDWR | os.O_CLOEXEC)
                self._map(Handle(told[0][1], ranks, guests, numel, dtype), rank, fd, wait_s)
            except OSError as error:
                trouble = f"rank {rank} could not map it ({error.strerror})"
        dist.all_gather_object(told, trouble, group=group)
        if path and not path.startswith("/proc/"):
            Path(path).unlink(missing_ok=True)  # every rank has it now, and nobody else can find it
        trouble = next((said for said in told if said), "")
        if trouble:
            if fd >= 0:
                os.close(fd)
            raise MemoryFault(f"The ranks can't share memory: {trouble}.")

    @classmethod
    def attach(cls, handle: Handle, guest: int = 0, *, wait_s: float = 60.0) -> SharedMemory:
        """The memory in a process that is no rank: guest number `guest`, which the ranks know as rank `ranks + guest`.

        Raises MemoryFault if the ranks have let go of the memory, or if it has no such guest.
        """
        if not 0 <= guest < handle.guests:
            raise MemoryFault(f"The memory has {handle.guests} guests, so there is no guest {guest!r}.")
        memory = cls.__new__(cls)
        try:
            memory._map(handle, handle.ranks + guest, os.open(handle.path, os.O_RDWR | os.O_CLOEXEC), wait_s)
        except OSError:
            raise MemoryFault("The memory is gone: its ranks have ended, or let go of it.") from None
        return memory

    def _map(self, handle: Handle, rank: int, fd: int, wait_s: float) -> None:
        everyone = handle.ranks + handle.guests
        super().__init__(rank, everyone, handle.numel, handle.dtype)
        self._handle, self._fd, self._wait_s = handle, fd, wait_s
        self._map_of = mmap.mmap(fd, _nbytes(everyone, handle.numel, handle.dtype))
        self._words = memoryview(self._map_of)[: _head_nbytes(everyone)].cast("q")
        self._taken: Counter[tuple[int, int]] = Counter()  # signals used up, by peer and channel
        self._met = 0
        self._lock, self.moved_nbytes = threading.Lock(), 0
        part = _part_nbytes(handle.numel, handle.dtype)
        flat = torch.frombuffer(self._map_of, dtype=torch.uint8, offset=_head_nbytes(everyone))
        nbytes = handle.numel * handle.dtype.itemsize
        self._parts = [flat[r * part : r * part + nbytes].view(handle.dtype) for r in range(everyone)]

    def __repr__(self) -> str:
        return f"<SharedMemory: rank {self.rank} of {self.ranks}, {self.numel} elements of {self.dtype} each>"

    def tensor(self, rank: int) -> torch.Tensor:
        """The part of a rank itself: what is written into it is there for all ranks, in no promised order."""
        self._check_peer("tensor", rank)
        self._open()
        return self._parts[rank]

    def handle(self) -> Handle:
        """What `attach` needs in another process of this machine. Raises MemoryFault where memory can't be found again (macOS)."""
        if not self._handle.path.startswith("/proc/"):
            raise MemoryFault("Only on Linux can a process that is no rank find the memory.")
        return self._handle

    def close(self) -> None:
        """Lets go of the memory; tensors that show it stay as they are. The last process that does so frees it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._words.release()
            self._fd, self._parts = -1, []
            del self._map_of

    def fence(self) -> None:
        """Returns when everything that this rank has put is in place: what it signals afterwards can't arrive before it."""
        for _ in range(2):  # the end of the first and the beginning of the second are a barrier, on ARM too
            with self._lock:
                pass

    def barrier(self) -> None:
        """Waits for all ranks (not for guests), and orders everything before it before everything behind it."""
        self._open()
        self.fence()
        self._met += 1
        self._words[self._place(self.rank, self.rank)] = self._met
        for peer in range(self._handle.ranks):
            at = self._place(peer, peer)
            self._until(lambda at=at: self._words[at] >= self._met, peer)  # type: ignore[misc]
        self.fence()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Only one process at a time is inside `with memory.lock():`. The kernel opens it if its holder dies."""
        fcntl.lockf(self._open(), fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def _put(self, peer: int, offset: int, values: torch.Tensor) -> None:
        self._count(peer, values.numel())
        self._parts[peer][offset : offset + values.numel()].copy_(values)

    def _get(self, peer: int, offset: int, numel: int) -> torch.Tensor:
        self._count(peer, numel)
        return self._parts[peer][offset : offset + numel].clone()

    def _count(self, peer: int, numel: int) -> None:
        self._open()
        if peer != self.rank:
            self.moved_nbytes += numel * self.dtype.itemsize

    def _signal(self, peer: int, channel: int) -> None:
        self._open()
        self._words[self._place(self.rank, peer, channel)] += 1  # this process alone writes the word

    def _wait(self, peer: int, channel: int) -> None:
        self._taken[peer, channel] += 1
        at, wanted = self._place(peer, self.rank, channel), self._taken[peer, channel]
        self._until(lambda: self._words[at] >= wanted, peer)
        self.fence()

    def _open(self) -> int:
        if self._fd < 0:
            raise MemoryFault("This memory was closed.")
        return self._fd

    def _place(self, source: int, target: int, channel: int = 0) -> int:
        """The word that `source` writes for `target`; the one for itself counts barriers."""
        return ((source * self.ranks + target) * CHANNELS + channel) * (_LINE_NBYTES // _WORD_NBYTES)

    def _until(self, come: Callable[[], bool], peer: int) -> None:
        self._open()
        for _ in range(_SPINS):
            if come():
                return
        deadline = time.monotonic() + self._wait_s
        while not come():
            os.sched_yield()  # there may be more ranks than cores
            if time.monotonic() > deadline:
                raise MemoryFault(f"Rank {self.rank} waited {self._wait_s:g} s for rank {peer}, which gave no signal.")


def _machine() -> str:
    """What the processes of one running system have in common."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return os.uname().nodename


def _disagreement(asked: list[tuple[int, str, int, str]]) -> str:
    """What the ranks say differently, in words."""
    for rank, said in enumerate(asked):
        if said[3] != asked[0][3]:
            return f"rank {rank} is on another machine than rank 0"
        if said != asked[0]:
            return (
                f"rank 0 asks for {asked[0][0]} elements of {asked[0][1]}, but rank {rank} for {said[0]} of {said[1]}"
            )
    return ""


def _anonymous(nbytes: int) -> tuple[int, str]:
    """Memory without a name: its descriptor, and the path by which the other ranks open it while this one lives."""
    if nbytes > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):  # the kernel would promise it all the same
        raise OSError(errno.ENOMEM, f"{nbytes:,} bytes are more than the machine has")
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("allranks", os.MFD_CLOEXEC)
        path = f"/proc/{os.getpid()}/fd/{fd}"
    else:  # macOS: a file, which loses its name as soon as every rank has opened it
        fd, path = tempfile.mkstemp(prefix="allranks-memory-")
    try:
        os.ftruncate(fd, nbytes)
    except OSError:
        os.close(fd)
        raise
    return fd, path


def _head_nbytes(everyone: int) -> int:
    """Bytes of the signals, rounded up to pages."""
    return -(-everyone * everyone * CHANNELS * _LINE_NBYTES // _PAGE_NBYTES) * _PAGE_NBYTES


def _part_nbytes(numel: int, dtype: torch.dtype) -> int:
    return -(-numel * dtype.itemsize // _PAGE_NBYTES) * _PAGE_NBYTES


def _nbytes(everyone: int, numel: int, dtype: torch.dtype) -> int:
    return max(_head_nbytes(everyone) + everyone * _part_nbytes(numel, dtype), _PAGE_NBYTES)

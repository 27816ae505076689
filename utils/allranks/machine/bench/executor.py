"""Runs a schedule on real ranks: each move is a send and a receive of torch.distributed, on any backend and on the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from allranks.theory.schedules import Schedule, ScheduleError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, slots=True)
class _Message:
    peer: int
    places: tuple[int, ...]  # of its chunks, among the chunks that this rank sends, receives or returns
    together: bool  # whether those chunks are neighbours in the buffer
    reduce: bool


class Executor:
    """Runs a schedule on this rank. Make it once, then call it with a tensor as often as you like: it keeps its memory.

    Every rank of `group` makes an Executor of the same schedule, and calls it with a tensor of the same number of elements.
    Raises ScheduleError if the number of ranks differs between the group and the schedule.

    Example (needs ranks):
        >>> def ring():
        ...     run = Executor(schedules.ring_all_reduce(4))
        ...     return run(torch.full((4,), float(dist.get_rank()))).tolist()
        >>> world.run(ring)[0]
        [6.0, 6.0, 6.0, 6.0]
    """

    def __init__(self, schedule: Schedule, group: ProcessGroup | None = None) -> None:
        import torch.distributed as dist

        ranks = dist.get_world_size(group)
        if ranks != schedule.ranks:
            raise ScheduleError(f"the schedule is for {schedule.ranks} ranks; this group has {ranks}")
        self.schedule, self.group, self.rank = schedule, group, dist.get_rank(group)
        self._global = list(range(ranks)) if group is None else dist.get_process_group_ranks(group)
        held = {chunk for rank, chunk in schedule.initial() if rank == self.rank}
        mine = [[m for m in now if self.rank in (m.src, m.dst)] for now in schedule.by_step]
        touched = held.union(*(m.chunks for now in mine for m in now))
        self._chunks = sorted(touched)
        place = {chunk: i for i, chunk in enumerate(self._chunks)}
        self._first_held = [place[c] for c in sorted(held)]
        self._promised = [place[c] for rank, c in sorted(schedule.final()) if rank == self.rank]
        self._memory: dict[str, Tensor] = {}
        self._steps = []
        for now in mine:
            sends, receives = [], []
            for m in now:
                places = tuple(place[c] for c in m.chunks)
                together = all(b == a + 1 for a, b in pairwise(places))
                if m.src == self.rank:
                    sends.append(_Message(self._global[m.dst], places, together, m.reduce))
                if m.dst == self.rank:
                    receives.append(_Message(self._global[m.src], places, together, m.reduce))
            if sends or receives:
                self._steps.append((sends, receives))

    def __call__(self, tensor: Tensor | None = None, out: Tensor | None = None) -> Tensor | None:
        """Runs the schedule once; the result of the collective on this rank, as a flat tensor, or None without a result.

        `tensor` is the full vector, on every rank: only what this rank owns of it is sent (its part in gather and all_gather,
        all of it on the root of broadcast and scatter). In all_to_all it is everything that this rank sends. It is not
        changed. The result is the whole vector, this rank's part of it (scatter, reduce_scatter), or what this rank received
        (all_to_all).

        Without `out` the result is a new tensor. With `out`, a contiguous tensor of as many elements, the result is written
        there and nothing large is allocated; `out=tensor` works in place where the result is a whole vector. Raises
        ScheduleError for an `out` that does not fit.

        Example (needs ranks):
            >>> def ring():
            ...     x = torch.ones(4)
            ...     Executor(schedules.ring_all_reduce(4))(x, out=x)
            ...     return x.tolist()
            >>> world.run(ring)[0]
            [4.0, 4.0, 4.0, 4.0]
        """
        import torch
        import torch.distributed as dist

        if tensor is None:
            tensor = torch.empty(0)
        vector = tensor.detach().reshape(-1)
        sizes = self.schedule.chunk_nbytes(vector.numel())  # elements here, cut in the same way
        ends = [0, *accumulate(sizes[c] for c in self._chunks)]
        target = self._target(out, vector, ends)
        buffer = self._buffer(target, vector, ends[-1])
        views = [buffer[a:b] for a, b in pairwise(ends)]
        if vector.data_ptr() != buffer.data_ptr() or not self._whole:
            parts = self._parts(vector)
            for place in self._first_held:
                views[place].copy_(parts(self._chunks[place]))

        for sends, receives in self._steps:
            operations, arrived, used = [], [], 0
            leaving = {place for m in sends for place in m.places}
            scattered = sum(_length(m, ends) for m in (*sends, *receives))
            spare = self._kept("spare", vector, scattered)  # of this step; its parts are taken in turn
            for m in sends:
                load = buffer[ends[m.places[0]] : ends[m.places[-1] + 1]]
                if not m.together:
                    load = spare[used : (used := used + _length(m, ends))]
                    torch.cat([views[i] for i in m.places], out=load)
                operations.append(dist.P2POp(dist.isend, load, m.peer, self.group))
            for m in receives:
                # receive into the buffer itself, unless its old content is still needed
                if m.together and not m.reduce and leaving.isdisjoint(m.places):
                    load = buffer[ends[m.places[0]] : ends[m.places[-1] + 1]]
                else:
                    load = spare[used : (used := used + _length(m, ends))]
                    arrived.append((m, load))
                operations.append(dist.P2POp(dist.irecv, load, m.peer, self.group))
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            for m, load in arrived:
                self._store(m, load, views)
        if not self._promised or self.schedule.collective == "barrier":
            return None
        if target is not None and target.data_ptr() == buffer.data_ptr():
            return target
        promised = [views[place] for place in self._promised]
        return torch.cat(promised) if target is None else torch.cat(promised, out=target)

    @property
    def _whole(self) -> bool:
        """Whether this rank's chunks are all chunks of the vector, and its result is all of them: then they lie as in the vector."""
        every = list(range(self.schedule.chunks))
        return self.schedule.collective != "all_to_all" and self._chunks == every and self._promised == every

    def _target(self, out: Tensor | None, vector: Tensor, ends: list[int]) -> Tensor | None:
        """Where the result goes: `out`, or a new vector that can be worked on in place, or None. Raises ScheduleError."""
        wanted = sum(ends[place + 1] - ends[place] for place in self._promised)
        if out is None:
            return vector.new_empty(wanted) if self._whole else None
        if not self._promised or self.schedule.collective == "barrier":
            return None  # a rank without a result takes any
        if out.numel() != wanted or not out.is_contiguous() or out.dtype != vector.dtype or out.device != vector.device:
            raise ScheduleError(
                f"out has {out.numel()} elements of {out.dtype} on {out.device}; the result has {wanted} of {vector.dtype} on "
                f"{vector.device}, and out must be contiguous"
            )
        flat = out.detach().view(-1)
        shared = flat.untyped_storage().data_ptr() == vector.untyped_storage().data_ptr()
        if wanted and shared and not (self._whole and flat.data_ptr() == vector.data_ptr()):
            raise ScheduleError(
                "out shares its memory with the input; that works only for a whole vector, with out=tensor"
            )
        return flat

    def _buffer(self, target: Tensor | None, vector: Tensor, numel: int) -> Tensor:
        """What the schedule works on: the result itself where it is a whole vector, else memory that is kept between calls."""
        return target if self._whole and target is not None else self._kept("work", vector, numel)

    def _kept(self, name: str, like: Tensor, numel: int) -> Tensor:
        """Memory for `numel` elements that is kept between calls; its content is undefined."""
        kept = self._memory.get(name)
        if kept is None or kept.numel() < numel or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._memory[name] = like.new_empty(numel)
        return kept[:numel]

    def _parts(self, vector: Tensor) -> Callable[[int], Tensor]:
        """A function: number of a chunk -> that chunk of this rank's input."""
        import torch

        schedule = self.schedule
        if schedule.collective == "barrier":
            return lambda chunk: vector[:0]
        if schedule.collective != "all_to_all":
            return torch.tensor_split(vector, schedule.chunks).__getitem__
        per_rank = schedule.chunks // schedule.ranks
        parts = torch.tensor_split(vector, per_rank)
        return lambda chunk: parts[chunk - self.rank * per_rank]

    @staticmethod
    def _store(message: _Message, load: Tensor, views: list[Tensor]) -> None:
        """Writes a received message into its chunks, or adds it to them."""
        start = 0
        for place in message.places:
            part = load[start : start + views[place].numel()]
            start += part.numel()
            if message.reduce:
                views[place].add_(part)
            else:
                views[place].copy_(part)


def _length(message: _Message, ends: list[int]) -> int:
    """The elements of a message."""
    return sum(ends[place + 1] - ends[place] for place in message.places)


def execute(schedule: Schedule, tensor: Tensor | None = None, group: ProcessGroup | None = None) -> Tensor | None:
    """Runs the schedule once on this rank: `Executor(schedule, group)(tensor)`, with its results and errors.

    Example (needs ranks):
        >>> def ring():
        ...     return execute(schedules.ring_all_reduce(4), torch.ones(2)).tolist()
        >>> world.run(ring)[0]
        [4.0, 4.0]
    """
    return Executor(schedule, group)(tensor)

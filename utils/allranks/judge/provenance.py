"""Values that tell where they came from: from each element one reads its position and the ranks that contributed to it.

Position i of rank r starts as code(i) * 2**32 + 16**r. From a sum of such values both are read back: the low half counts
each rank's contributions in base 16, the high half is the position's code times the number of contributions. The codes
are spread out, so that elements of different positions added together give a high half that is no code.
Exact in int64, and in float64 up to eight contributions.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from allranks.ranks.wire import LogEntry, MemoryOp
from allranks.theory.trace import Event, Trace

HALF = 1 << 32
BASE = 16
MOST_RANKS = 8  # whose contributions float64 holds exactly
_PRIME = 262139  # the largest below 2**18; cubes are distinct modulo it, since 3 does not divide it less one
_POSITIONS = 4096


@functools.cache
def _codes() -> tuple[int, ...]:
    return tuple((i + 7) ** 3 % _PRIME for i in range(_POSITIONS))


@functools.cache
def _positions() -> dict[int, int]:
    return {code: i for i, code in enumerate(_codes())}


@dataclass(frozen=True)
class Element:
    """What one element holds: its position (None: elements of different positions were added), and the rank of each
    contribution, a rank as often as its contribution was added."""

    position: int | None
    contributors: tuple[int, ...]

    @property
    def mixed(self) -> bool:
        """Whether elements of different positions were added."""
        return self.position is None and bool(self.contributors)


def values(rank: int, count: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The starting values of a rank's vector of `count` elements."""
    return (torch.tensor(_codes()[:count], dtype=torch.int64) * HALF + BASE**rank).to(dtype)


def read(tensor: torch.Tensor) -> list[Element] | None:
    """What each element holds, or None if these are other values."""
    if tensor.dtype not in (torch.float64, torch.int64) or tensor.numel() > _POSITIONS:
        return None
    found: list[Element] = []
    for value in tensor.reshape(-1).tolist():
        if value < 0 or value != value or value == math.inf or value != int(value):
            return None
        high, low = divmod(int(value), HALF)
        contributors: list[int] = []
        rank = 0
        while low:
            low, times = divmod(low, BASE)
            contributors += [rank] * times
            rank += 1
        position = None
        if contributors and high % len(contributors) == 0:
            position = _positions().get(high // len(contributors))
        found.append(Element(position, tuple(contributors)))
    return found


def numbers(entry: LogEntry) -> torch.Tensor | None:
    """The numbers that a logged message carried, in one row; None if they were not kept."""
    dtype = getattr(torch, str(entry.dtype), None)
    if entry.payload is None or not isinstance(dtype, torch.dtype):
        return None
    return torch.frombuffer(bytearray(entry.payload), dtype=dtype) if entry.payload else torch.empty(0, dtype=dtype)


def elements_of(entry: LogEntry) -> list[Element] | None:
    """The elements that a logged message carried; None if they were not kept, or are other values."""
    sent = numbers(entry)
    return read(sent) if sent is not None and 0 < len(sent) == entry.numel else None


def carried_by(access: MemoryOp, dtype: torch.dtype) -> list[Element] | None:
    """The elements that a put or a get carried; None if they were not kept, or are other values."""
    return read(torch.frombuffer(bytearray(access.data), dtype=dtype)) if access.data else None


def bounds(size: int, parts: int) -> list[tuple[int, int]]:
    """(start, end) of each chunk, as torch.tensor_split cuts; end is the first position behind it."""
    base, longer = divmod(size, parts)
    edges = [0]
    for i in range(parts):
        edges.append(edges[-1] + base + (i < longer))
    return list(itertools.pairwise(edges))


def chunks_of(elements: Sequence[Element], size: int, parts: int) -> tuple[int, ...]:
    """Which chunks of the vector the elements belong to, whole or in part."""
    held = {e.position for e in elements if e.position is not None}
    return tuple(c for c, (a, b) in enumerate(bounds(size, parts)) if any(a <= i < b for i in held))


def first_contributors(elements: Sequence[Element]) -> tuple[int, ...] | None:
    """The contributions that the first element holds; None for no elements."""
    return tuple(sorted(elements[0].contributors)) if elements else None


def trace_with_chunks(run: Any) -> Trace:
    """The run's trace with chunks and contributions, read from the messages; if a rank added what it received, the event
    is a "reduce"."""
    exercise, trace = run.exercise, run.outcome.trace
    nbytes = exercise.vector_nbytes(run.setup, run.args[0]) or 0
    trace = replace(
        trace, collective=exercise.collective, source=f"your {exercise.name}", root=run.setup.root, nbytes=nbytes
    )
    if run.setup.values != "provenance" or exercise.chunking == "none":
        return trace
    p, size = run.ranks, run.setup.size
    by_match = {}
    for entry in run.sends:
        elements = elements_of(entry)
        if elements is None or entry.match is None:
            continue
        if exercise.chunking == "rank":
            chunks = tuple(sorted({r for e in elements for r in e.contributors}))
        else:
            chunks = chunks_of(elements, size, p)
        by_match[entry.match] = (chunks, first_contributors([e for e in elements if e.contributors]) or ())
    for number, access in enumerate(run.outcome.accesses):
        elements = carried_by(access, run.args[0][0][0].base.dtype)
        if elements is not None and access.remote:
            chunks = chunks_of(elements, size, p)
            by_match[number] = (chunks, first_contributors([e for e in elements if e.contributors]) or ())
    events = []
    for event in trace.events:
        read_from = by_match.get(event.match) if event.match is not None else None
        if read_from is not None and event.op in ("send", "recv", "reduce"):
            event = replace(event, chunks=read_from[0], contrib=read_from[1])
        events.append(event)
    if exercise.collective in ("all_reduce", "reduce", "reduce_scatter"):
        events = _reduces(events, run)
    first = run.args[0][0][0]
    nbytes = nbytes or (first.base.element_size() * size if hasattr(first, "base") else 0)
    return replace(trace, events=tuple(events), chunks=p, nbytes=nbytes)


def _reduces(events: list[Event], run: Any) -> list[Event]:
    """Makes a receive a "reduce" if the rank added: what it sends of that chunk later, or ends with, holds more than what it
    received."""
    ends: dict[tuple[int, int], tuple[int, ...]] = {}
    for rank, result in enumerate(run.results[0]):
        if result is None or not result.tensors or result.tensors[0][0] is None:
            continue
        elements = read(result.tensors[0][0])
        for chunk, (a, b) in enumerate(bounds(run.setup.size, run.ranks)):
            if elements and len(elements) >= b > a:
                ends[rank, chunk] = tuple(sorted(elements[a].contributors))
    found = []
    for number, event in enumerate(events):
        if event.op == "recv" and event.chunks and event.contrib:
            chunk = event.chunks[0]
            later = (e for e in events[number + 1 :] if e.rank == event.rank and e.op == "send" and chunk in e.chunks)
            after = next((e.contrib for e in later), None) or ends.get((event.rank, chunk))
            if after is not None and Counter(after) != Counter(event.contrib):
                event = replace(event, op="reduce")
        found.append(event)
    return found

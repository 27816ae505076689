"""Values that tell where they came from: each element says its position and which ranks' contributions it holds.

Position i of rank r starts as code(i) * 2**32 + 16**r. A sum of such values is read back: the low half counts each
rank's contributions in base 16, the high half is the position's code times the number of contributions. The codes lie
scattered, so that elements of different positions added together give a high half that is no code: a mix-up shows too.
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

from allranks.trace import Event, Trace

HALF = 1 << 32
BASE = 16
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
    """What one element holds: its position (None: elements of different positions were added) and its contributions."""

    position: int | None
    bag: tuple[int, ...]

    @property
    def mixed(self) -> bool:
        return self.position is None and bool(self.bag)


def values(rank: int, count: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The starting values of a rank's vector of `count` elements."""
    return (torch.tensor(_codes()[:count], dtype=torch.int64) * HALF + BASE**rank).to(dtype)


def read(tensor: torch.Tensor) -> list[Element] | None:
    """What each element holds, or None where these are no such values."""
    if tensor.dtype not in (torch.float64, torch.int64) or tensor.numel() > _POSITIONS:
        return None
    found = []
    for value in tensor.reshape(-1).tolist():
        if value < 0 or value != value or value == math.inf or value != int(value):
            return None
        high, low = divmod(int(value), HALF)
        bag = []
        rank = 0
        while low:
            low, times = divmod(low, BASE)
            bag += [rank] * times
            rank += 1
        position = None
        if bag and high % len(bag) == 0:
            position = _positions().get(high // len(bag))
        found.append(Element(position, tuple(bag)))
    return found


def numbers(entry: Any) -> torch.Tensor | None:
    """The numbers that a logged message carried, in one row; None where they were not kept."""
    dtype = getattr(torch, str(entry.dtype), None)
    if entry.payload is None or not isinstance(dtype, torch.dtype):
        return None
    return torch.frombuffer(bytearray(entry.payload), dtype=dtype) if entry.payload else torch.empty(0, dtype=dtype)


def cargo(entry: Any) -> list[Element] | None:
    """What a logged message carried, or None."""
    carried = numbers(entry)
    return read(carried) if carried is not None and 0 < len(carried) == entry.numel else None


def bounds(size: int, parts: int) -> list[tuple[int, int]]:
    """The first and last-but-one position of each chunk, as torch.tensor_split cuts."""
    base, longer = divmod(size, parts)
    edges = [0]
    for i in range(parts):
        edges.append(edges[-1] + base + (i < longer))
    return list(itertools.pairwise(edges))


def chunks_of(elements: Sequence[Element], size: int, parts: int) -> tuple[int, ...]:
    """Which chunks of the vector the elements belong to, whole or in part."""
    held = {e.position for e in elements if e.position is not None}
    return tuple(c for c, (a, b) in enumerate(bounds(size, parts)) if any(a <= i < b for i in held))


def bag_of(elements: Sequence[Element]) -> tuple[int, ...] | None:
    """The contributions that all elements share, or of the first where they differ; None for no elements."""
    return tuple(sorted(elements[0].bag)) if elements else None


def filled(run: Any) -> Trace:
    """The run's trace with chunks and contributions read from the payloads; receives that were added become "reduce"."""
    exercise, trace = run.exercise, run.outcome.trace
    trace = replace(trace, collective=exercise.collective, algorithm=exercise.algorithm, source=f"your {exercise.name}")
    if run.setup.values != "provenance" or exercise.chunking == "none":
        return trace
    p, size = run.ranks, run.setup.size
    by_match = {}
    for entry in run.sends:
        elements = cargo(entry)
        if elements is None or entry.match is None:
            continue
        if exercise.chunking == "rank":
            chunks = tuple(sorted({r for e in elements for r in e.bag}))
        else:
            chunks = chunks_of(elements, size, p)
        by_match[entry.match] = (chunks, bag_of([e for e in elements if e.bag]) or ())
    events = []
    for event in trace.events:
        known = by_match.get(event.match) if event.match is not None else None
        if known is not None and event.op in ("send", "recv", "reduce"):
            event = replace(event, chunks=known[0], contrib=known[1])
        events.append(event)
    if exercise.collective in ("all_reduce", "reduce", "reduce_scatter"):
        events = _reduces(events, run)
    first = run.args[0][0][0]
    nbytes = first.base.element_size() * size if hasattr(first, "base") else 0
    return replace(trace, events=tuple(events), chunks=p, nbytes=nbytes)


def _reduces(events: list[Event], run: Any) -> list[Event]:
    """Receives whose payload was added: the rank's next word on that chunk holds more than what came."""
    ends: dict[tuple[int, int], tuple[int, ...]] = {}
    for rank, result in enumerate(run.results[0]):
        if result is None or not result.tensors or result.tensors[0][0] is None:
            continue
        elements = read(result.tensors[0][0])
        for chunk, (a, b) in enumerate(bounds(run.setup.size, run.ranks)):
            if elements and len(elements) >= b > a:
                ends[rank, chunk] = tuple(sorted(elements[a].bag))
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

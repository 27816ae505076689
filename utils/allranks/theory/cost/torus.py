"""Collectives on a slice of TPUs: formulas of a torus whose links go to the nearest neighbours only. Nothing here is measured.

An axis with a wraparound link is a ring, on which a chip sends both ways at once; without one it is a line, whose ends have one link. The links
of all axes work at once. Source: J. Austin et al., How To Scale Your Model (jax-ml/scaling-book, commit 0819a7d, 2025-02-18): tpus.md for the
links, sharding.md for the formulas, with (p-1)/p where the book has 1. Imports without torch.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from allranks.theory.cost.terms import CostError, check_size

__all__ = ["SLICES", "SliceKind", "TorusPrice", "torus_price"]

HOP_S = 1e-6  # a hop, whatever its bytes: "around 1 us" (sharding.md)


@dataclass(frozen=True)
class SliceKind:
    """A kind of TPU: the axes of its slices, bytes a second of a link in one direction, the largest slice, and what closes a ring.

    >>> cost.SLICES["tpu-v5e"].is_ring(16), cost.SLICES["tpu-v5e"].is_ring(8)
    (True, False)
    """

    axes: int
    bytes_per_s: float
    most: int
    ring_of: int  # an axis is a ring if this divides its length

    def is_ring(self, length: int) -> bool:
        """Whether an axis of so many chips has a wraparound link."""
        return length % self.ring_of == 0


# By the name before the shape, such as tpu-v5e-4x4. The rates are what the book computes with, since its commit 7e97132; Google's nominal ones are
# a ninth higher: 1200 GB/s a chip of a v5p, both ways over 6 ports, and 400 of a v5e over 4.
SLICES: dict[str, SliceKind] = {
    "tpu-v4": SliceKind(3, 45e9, 4096, 4),
    "tpu-v5p": SliceKind(3, 90e9, 8960, 4),
    "tpu-v5e": SliceKind(2, 45e9, 256, 16),
    "tpu-v6e": SliceKind(2, 90e9, 256, 16),
}
# how often the whole vector crosses a link, and how often each hop is paid
_PASSES = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}


@dataclass(frozen=True)
class TorusPrice:
    """`seconds` is the longer of `moving_s`, for the bytes, and `hops_s`, for the latency. `rings` says which axes are rings.

    >>> found = cost.torus_price("all_gather", 256, "tpu-v4-4x4x4")
    >>> found.ranks, found.rings, found.seconds == found.hops_s
    (64, (True, True, True), True)
    """

    collective: str
    nbytes: float
    shape: tuple[int, ...]
    rings: tuple[bool, ...]
    moving_s: float
    hops: int

    @property
    def ranks(self) -> int:
        """The chips of the slice."""
        return math.prod(self.shape)

    @property
    def hops_s(self) -> float:
        """Seconds of the hops alone."""
        return self.hops * HOP_S

    @property
    def seconds(self) -> float:
        """Seconds of the collective."""
        return max(self.moving_s, self.hops_s)


def torus_price(collective: str, nbytes: float, name: str) -> TorusPrice:
    """The price of all_gather, reduce_scatter, all_reduce or all_to_all over all chips of a slice, such as "tpu-v5p-4x4x8".

    `nbytes` is as elsewhere in `allranks.cost`: the full vector, and for all_to_all what one chip sends. Raises CostError.

    >>> ring, line = (cost.torus_price("all_gather", 2**30, name) for name in ("tpu-v5e-16x16", "tpu-v5e-8x8"))
    >>> f"{1e3 * ring.seconds:.2f} {1e3 * line.seconds:.2f} ms"
    '5.94 11.74 ms'
    """
    kind, shape = _slice(name)
    check_size(math.prod(shape), nbytes)
    used = [length for length in shape if length > 1]
    rings = tuple(kind.is_ring(length) for length in shape)
    # a ring's chip sends on both of its links; the last chip of a line has one
    ways = [2 if kind.is_ring(length) else 1 for length in used]
    hops = sum(length // 2 if kind.is_ring(length) else length - 1 for length in used)
    p = math.prod(shape)
    if collective == "all_to_all":
        # half of a line's chips send half of their bytes over its middle link; a ring has two such places
        times = [nbytes * length / (4 * way * kind.bytes_per_s) for length, way in zip(used, ways, strict=True)]
        return TorusPrice(collective, nbytes, shape, rings, max(times, default=0.0), hops)
    if collective not in _PASSES:
        raise CostError(
            f"there is no formula for {collective!r} on a torus; there is one for {', '.join(_PASSES)} and all_to_all"
        )
    passes = _PASSES[collective]
    moving = passes * nbytes * (p - 1) / p / (sum(ways) * kind.bytes_per_s) if used else 0.0
    return TorusPrice(collective, nbytes, shape, rings, moving, passes * hops)


def _slice(name: str) -> tuple[SliceKind, tuple[int, ...]]:
    found = re.fullmatch(r"(tpu-v\w+)-(\d+(?:x\d+)*)", name)
    if found is None or found[1] not in SLICES:
        raise CostError(
            f"{name!r} is no slice of TPUs; it is one of {', '.join(SLICES)} and a shape, as in tpu-v5e-4x8"
        )
    kind, shape = SLICES[found[1]], tuple(map(int, found[2].split("x")))
    if len(shape) != kind.axes or min(shape) < 1 or math.prod(shape) > kind.most:
        raise CostError(
            f"a slice of {found[1]} has {kind.axes} axes and at most {kind.most} chips; {found[2]} has {len(shape)} and {math.prod(shape)}"
        )
    return kind, shape

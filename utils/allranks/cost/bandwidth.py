"""nccl-tests' bandwidths: algbw, and busbw, which compares all collectives and world sizes with one link's bandwidth."""

from __future__ import annotations

from fractions import Fraction

from allranks.cost.terms import CostError, check_collective, check_size


def bus_factor(collective: str, ranks: int) -> Fraction:
    """busbw / algbw by nccl-tests (doc/PERFORMANCE.md): what makes bandwidths of all world sizes comparable to a link's.

    all_reduce 2(p-1)/p; reduce_scatter, all_gather, all_to_all, and gather and scatter (src/gather.cu) (p-1)/p; broadcast
    and reduce 1.
    """
    check_collective(collective)
    check_size(ranks, 0)
    match collective:
        case "all_reduce":
            return Fraction(2 * (ranks - 1), ranks)
        case "reduce_scatter" | "all_gather" | "all_to_all" | "gather" | "scatter":
            return Fraction(ranks - 1, ranks)
        case "broadcast" | "reduce":
            return Fraction(1)
    raise CostError(f"{collective} moves no bytes, so that it has no bandwidth")


def algbw_gb_per_s(nbytes: int, seconds: float) -> float:
    """Algorithm bandwidth, size over time, in 10^9 bytes a second; the size is nccl-tests': of all parts together."""
    if not seconds > 0:
        raise CostError(f"the time is {seconds!r} s; a bandwidth needs a time above 0")
    return nbytes / seconds / 1e9


def busbw_gb_per_s(collective: str, ranks: int, nbytes: int, seconds: float) -> float:
    """Bus bandwidth in 10^9 bytes a second: algbw times `bus_factor`."""
    return algbw_gb_per_s(nbytes, seconds) * float(bus_factor(collective, ranks))

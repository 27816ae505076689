"""nccl-tests' bandwidths: algbw and busbw. busbw can be compared with a link's bandwidth, whatever ran on how many ranks."""

from __future__ import annotations

from fractions import Fraction

from allranks.theory.cost.terms import CostError, check_collective, check_size


def bus_factor(collective: str, ranks: int) -> Fraction:
    """busbw / algbw, as nccl-tests defines it (doc/PERFORMANCE.md; gather and scatter: src/gather.cu).

    all_reduce 2(p-1)/p; reduce_scatter, all_gather, all_to_all, gather and scatter (p-1)/p; broadcast and reduce 1. Raises
    CostError for a barrier, which moves no bytes.

    >>> cost.bus_factor("all_reduce", 8)
    Fraction(7, 4)
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
    """Algorithm bandwidth: bytes of the full vector over seconds, in 10^9 bytes a second.

    Raises CostError if the time is not above 0.

    >>> cost.algbw_gb_per_s(10**9, 0.01)
    100.0
    """
    if not seconds > 0:
        raise CostError(f"the time is {seconds!r} s; a bandwidth needs a time above 0")
    return nbytes / seconds / 1e9


def busbw_gb_per_s(collective: str, ranks: int, nbytes: int, seconds: float) -> float:
    """Bus bandwidth in 10^9 bytes a second: algbw times `bus_factor`. Raises CostError.

    >>> cost.busbw_gb_per_s("all_reduce", 8, 10**9, 0.01)
    175.0
    """
    return algbw_gb_per_s(nbytes, seconds) * float(bus_factor(collective, ranks))

"""Lower bounds: the messages and bytes that every algorithm for a collective needs."""

from __future__ import annotations

from fractions import Fraction

from allranks.theory.cost.terms import Terms, check_collective, check_size
from allranks.theory.schedules import Number, ceil_lg


def lower_bound(collective: str, ranks: int, nbytes: Number) -> Terms:
    """The least messages, bytes and reduced bytes of any algorithm over point-to-point links.

    Each of the three terms is a bound by itself; no algorithm need reach all of them. They do not hold for reduction inside
    switches (SHARP, NVLS). Raises CostError. Chan et al. 2007; for all_reduce Patarasuk & Yuan 2009.

    >>> cost.lower_bound("all_reduce", 4, 1000).nbytes
    Fraction(1500, 1)
    """
    check_collective(collective)
    check_size(ranks, nbytes)
    p, n = ranks, Fraction(nbytes)
    rounds, part = Fraction(ceil_lg(p)), n * (p - 1) / p
    whole = n if p > 1 else Fraction(0)
    match collective:
        case "broadcast":
            return Terms(rounds, whole)
        case "reduce":
            return Terms(rounds, whole, part)
        case "reduce_scatter":
            return Terms(rounds, part, part)
        case "all_reduce":
            return Terms(rounds, 2 * part, part)
        case "barrier":
            return Terms(rounds)
    return Terms(rounds, part)

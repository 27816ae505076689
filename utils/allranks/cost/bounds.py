"""Lower bounds: what no algorithm for a collective can do without, whatever it does."""

from __future__ import annotations

from fractions import Fraction

from allranks.cost.terms import Terms, check_collective, check_size
from allranks.schedules import Number, ceil_lg


def lower_bound(collective: str, ranks: int, nbytes: Number) -> Terms:
    """What no algorithm over point-to-point links can do without (Chan et al. 2007, Patarasuk & Yuan 2009).

    Each of the three terms is a bound by itself; there need be no algorithm that reaches all of them at once, and
    reduction inside switches (SHARP, NVLS) is not bound by them.
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

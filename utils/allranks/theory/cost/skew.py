"""An all-to-all in which one rank receives more than the others: a mixture of experts whose router has a favourite."""

from __future__ import annotations

import math

from allranks.theory.cost.terms import CostError, check_size

__all__ = ["dropped_share", "skewed_exchange_s"]


def skewed_exchange_s(
    ranks: int, nbytes: float, hottest: float, alpha: float, beta: float, capacity: float | None = None
) -> float:
    """Seconds of the pairwise exchange in which every rank sends the share `hottest` of its `nbytes` to one rank.

    The rest goes to the other ranks in equal parts. In each of the p-1 rounds one message goes to the favourite, so each
    round takes alpha plus the largest part. With `capacity` a rank takes at most that many times the mean part, and what is
    above it is dropped. Raises CostError.

    >>> cost.skewed_exchange_s(5, nbytes=100, hottest=0.5, alpha=1, beta=1)
    204.0
    """
    _check(ranks, nbytes, hottest, capacity)
    if ranks == 1:
        return 0.0
    part = max(hottest - dropped_share(ranks, hottest, capacity), (1 - hottest) / (ranks - 1))
    return (ranks - 1) * (alpha + part * nbytes * beta)


def dropped_share(ranks: int, hottest: float, capacity: float | None = None) -> float:
    """The share of all tokens that exceed the favourite's capacity of `capacity` times the mean. Raises CostError.

    >>> cost.dropped_share(4, hottest=0.75, capacity=2)
    0.25
    """
    _check(ranks, 0, hottest, capacity)
    return 0.0 if capacity is None else max(0.0, hottest - capacity / ranks)


def _check(ranks: int, nbytes: float, hottest: float, capacity: float | None) -> None:
    check_size(ranks, nbytes)
    if not 1 / ranks <= hottest + 1e-12 <= 1 + 1e-12:
        raise CostError(f"the hottest rank gets the share {hottest}; it is from 1/{ranks} to 1")
    if capacity is not None and not 1 <= capacity < math.inf:
        raise CostError(f"the capacity is {capacity}; it is 1 or more, and finite")

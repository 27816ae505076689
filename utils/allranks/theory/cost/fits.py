"""Alpha and beta from measured times, with 95 % confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from allranks.theory.cost.formulas import formula, terms
from allranks.theory.cost.terms import CostError, check_collective

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    FloatArray = NDArray[float64]


@dataclass(frozen=True)
class Estimate:
    """A fitted value with its 95 % confidence interval.

    >>> cost.Estimate(5e-6, low=4e-6, high=6e-6).value
    5e-06
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """time = latency_s + nbytes * s_per_byte, fitted; and alpha and beta of a link, if `algorithm` is what ran.

    >>> cost.fit("broadcast", 2, sizes=[0, 1000, 2000], seconds=[2.0, 3.0, 4.0]).points
    3
    """

    collective: str
    algorithm: str
    ranks: int
    latency_s: Estimate
    s_per_byte: Estimate
    alpha_s: Estimate
    beta_s_per_byte: Estimate
    points: int

    @property
    def half_nbytes(self) -> float | None:
        """The bytes at which latency takes as long as bandwidth; None if the fit finds no latency, or no time a byte."""
        if not (self.latency_s.value > 0 and self.s_per_byte.value > 0):
            return None
        return self.latency_s.value / self.s_per_byte.value

    def seconds(self, nbytes: float, ranks: int | None = None) -> float:
        """The time that the fit predicts for `nbytes`; for another world size, by the algorithm's formula."""
        found = terms(self.collective, self.algorithm, ranks or self.ranks, 1)
        return float(found.messages) * self.alpha_s.value + float(found.nbytes) * nbytes * self.beta_s_per_byte.value


# The algorithm that `fit` assumes for each collective when none is named.
TEXTBOOK = {
    "all_reduce": "ring",
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "all_to_all": "pairwise",
    "broadcast": "binomial",
    "reduce": "binomial",
    "gather": "flat",
    "scatter": "flat",
    "barrier": "dissemination",
}


def fit(
    collective: str, ranks: int, sizes: Sequence[float], seconds: Sequence[float], algorithm: str | None = None
) -> Fit:
    """Alpha and beta by least squares of the relative errors, so that small sizes count as much as large ones.

    `sizes` are bytes as in `terms`, `seconds` the time of each. `algorithm` is what ran, or what you think ran (default:
    `TEXTBOOK`). alpha is the fitted latency divided by the algorithm's number of messages; beta is the fitted seconds a
    byte divided by the bytes that the busiest rank sends for one byte of `sizes` (both numbers are from `terms`). A fitted
    value below zero is set to zero, and the other one is fitted again. Raises CostError for fewer than three
    times, a single size, or a time not above 0.

    >>> found = cost.fit("all_reduce", 4, sizes=[0, 1000, 4000], seconds=[6.0, 7.5, 12.0])
    >>> round(found.alpha_s.value, 6), round(found.beta_s_per_byte.value, 6)
    (1.0, 0.001)
    """
    import numpy as np

    algorithm = algorithm or TEXTBOOK[check_collective(collective)]
    n, t = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    if n.shape != t.shape or n.size < 3 or np.unique(n).size < 2:
        raise CostError(
            f"a fit needs at least 3 times of at least 2 sizes; here are {t.size} times of {len(set(sizes))} sizes"
        )
    if not (np.all(t > 0) and np.all(np.isfinite(t))):
        raise CostError("a fit needs times above 0")
    design = np.stack([np.ones_like(n), n], axis=1) / t[:, None]
    values, half_widths = _least_squares(design)
    lows, highs = values - half_widths, values + half_widths
    for other, negative in ((1, 0), (0, 1)):
        if values[negative] < 0:
            refitted, width = _least_squares(design[:, [other]])
            values[[other, negative]] = refitted[0], 0
            # the value is 0, but its interval still ends where it ended before
            lows[[other, negative]] = refitted[0] - width[0], 0
            highs[[other, negative]] = refitted[0] + width[0], max(0, highs[negative])
            break
    counts = terms(collective, algorithm, ranks, 1)
    divisors = [float(counts.messages) or math.inf, float(counts.nbytes) or math.inf]
    latency, per_byte = (
        Estimate(float(v), float(low), float(high)) for v, low, high in zip(values, lows, highs, strict=True)
    )
    alpha, beta = (
        Estimate(e.value / d, e.low / d, e.high / d) for e, d in zip((latency, per_byte), divisors, strict=True)
    )
    name = formula(collective, algorithm).algorithm
    return Fit(collective, name, ranks, latency, per_byte, alpha, beta, int(n.size))


def _least_squares(design: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The x that solves design @ x = 1 by least squares, and the half widths of its 95 % intervals."""
    import numpy as np

    target = np.ones(design.shape[0])
    scale = np.linalg.norm(design, axis=0)
    x, *_ = np.linalg.lstsq(design / scale, target, rcond=None)
    freedom = design.shape[0] - design.shape[1]
    residual = target - design / scale @ x
    covariance = np.linalg.inv((design / scale).T @ (design / scale)) * (residual @ residual) / freedom
    return x / scale, student_t(0.975, freedom) * np.sqrt(np.diag(covariance)) / scale


def student_t(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution with `freedom` degrees of freedom.

    Exact for 1 and 2, else by the Cornish-Fisher expansion, within 0.3 %. Raises CostError for fewer than 1.

    >>> round(cost.student_t(0.975, freedom=2), 3)
    4.303
    """
    if freedom < 1:
        raise CostError("an interval needs more times than fitted values")
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        x = 2 * probability - 1
        return x * math.sqrt(2 / (1 - x * x))
    z, v = NormalDist().inv_cdf(probability), freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * v**4)
    )

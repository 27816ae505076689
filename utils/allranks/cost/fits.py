"""Alpha and beta from measured times, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from allranks.cost.formulas import formula, terms
from allranks.cost.terms import CostError, check_collective

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    FloatArray = NDArray[float64]


@dataclass(frozen=True)
class Estimate:
    """A fitted value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """time = latency_s + nbytes * s_per_byte, fitted; and the link's alpha and beta if `algorithm` is what ran.

    `half_nbytes` is the size at which latency and bandwidth take the same time (below it messages are counted, above it
    bytes); None where the fit sees no latency or no bandwidth.
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
        """latency over seconds a byte."""
        if not (self.latency_s.value > 0 and self.s_per_byte.value > 0):
            return None
        return self.latency_s.value / self.s_per_byte.value

    def seconds(self, nbytes: float, ranks: int | None = None) -> float:
        """The prediction for a size, and for another world size by the algorithm's formula."""
        found = terms(self.collective, self.algorithm, ranks or self.ranks, 1)
        return float(found.messages) * self.alpha_s.value + float(found.nbytes) * nbytes * self.beta_s_per_byte.value


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
    """Alpha and beta by weighted least squares: every time counts by its relative error, so that small sizes count too.

    `sizes` are bytes as in `terms`. `algorithm` is what is thought to have run (default: `TEXTBOOK`); it only divides the
    two fitted numbers by its counts. A fitted value below zero is set to zero and the other one fitted again. Raises
    CostError for fewer than three points or a single size.
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
    for other, gone in ((1, 0), (0, 1)):
        if values[gone] < 0:
            one, width = _least_squares(design[:, [other]])
            values[[other, gone]] = one[0], 0
            # none was found, but none is not certain: up to the end of its interval
            lows[[other, gone]], highs[[other, gone]] = (one[0] - width[0], 0), (one[0] + width[0], max(0, highs[gone]))
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
    """Solves design @ x = 1; (x, half widths of the 95 % intervals)."""
    import numpy as np

    target = np.ones(design.shape[0])
    scale = np.linalg.norm(design, axis=0)
    x, *_ = np.linalg.lstsq(design / scale, target, rcond=None)
    freedom = design.shape[0] - design.shape[1]
    residual = target - design / scale @ x
    covariance = np.linalg.inv((design / scale).T @ (design / scale)) * (residual @ residual) / freedom
    return x / scale, student_t(0.975, freedom) * np.sqrt(np.diag(covariance)) / scale


def student_t(probability: float, freedom: int) -> float:
    """The quantile of Student's t: exact for 1 and 2 degrees of freedom, else by the Cornish-Fisher expansion."""
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

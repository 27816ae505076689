"""What sites measured beyond NCCL's tuner, and the interval in which the next site will lie.

For each published point, y = log(measured / tuner's time). A new question's y is foretold by a Gaussian process (Rasmussen & Williams
2006, equations 2.22 to 2.24): two points tell about each other as far as they share a machine, a network, a collective, a launch and a size. What
one site alone has (`site`, `sweep`) is never known of the next one, so it stays in the width. The widths are then stretched, for each
kind of question, until 80 % of the points of sites that were left out one at a time lie inside (conformal; tools/validation.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

from allranks.theory.cost.nccl_sites import SCALES, SITES

if TYPE_CHECKING:
    import numpy as np

    Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

COVERAGE = 0.8
NORMAL = 1.2815515655446004  # 80 % of a normal distribution lie within so many standard deviations
# standard deviations of log(measured / tuner) by what two points share, chosen once by leaving out sites, and rounded
SPREAD = {
    "general": 0.3, "launch": 0.15, "network": 0.15, "hop": 0.48, "network_class": 0.1, "class": 0.08, "algorithm": 0.06,
    "machine": 0.25, "machine_class": 0.3, "site": 0.15, "sweep": 0.15,
}  # fmt: skip
NOISE = 0.06
# how far sizes and hops tell about each other, in powers of two; and how much less large messages differ than small ones
FAR, NEAR, HOPS, LARGE_SHARE = 4.0, 2.0, 2.5, 0.4
PARTS = {
    "floor": "the site's floor",  # launch, CPU, version, tuning
    "hop": "latency of a hop",
    "bandwidth": "bandwidth",
    "algorithm": "algorithm and machine",
}


@dataclass(frozen=True)
class Point:
    """One measurement or question. `y` is log(measured / tuner); `extra` the variance that a point far from all others adds."""

    site: str
    machine: str
    network: str
    nodes: int
    collective: str
    launch: str
    nbytes: float
    algorithm: str
    hops: int
    y: float = 0.0
    extra: float = 0.0


@dataclass(frozen=True)
class Foretold:
    """Median and standard deviation of log(time / tuner), and the share of the variance by its part."""

    log_median: float
    deviation: float
    parts: dict[str, float]


def size_class(nbytes: float) -> int:
    """0 up to 64 KiB, 2 from 256 MiB, 1 between."""
    return 0 if nbytes <= 2**16 else 2 if nbytes >= 2**28 else 1


def smallness(nbytes: float) -> float:
    """1 up to 64 KiB, 0 from 64 MiB, even on a scale of powers: whether overheads or bytes take the time."""
    return min(1.0, max(0.0, (26 - math.log2(max(nbytes, 1))) / 10))


class Process:
    """The points as matrices; `foretell` asks it. Needs numpy."""

    def __init__(self, points: Sequence[Point]) -> None:
        import numpy as np

        self.points = tuple(points)
        known = sum(self.components(self.points, self.points).values())
        self.inverse = np.linalg.inv(known + np.diag(_noise(self.points)))
        self.weights = self.inverse @ np.array([point.y for point in self.points])

    @staticmethod
    def components(rows: Sequence[Point], columns: Sequence[Point]) -> dict[str, Matrix]:
        """Covariances by name."""
        import numpy as np

        def same(*names: str) -> Matrix:
            keys = [[tuple(getattr(point, name) for name in names) for point in side] for side in (rows, columns)]
            number = {key: index for index, key in enumerate(dict.fromkeys(keys[0] + keys[1]))}
            left, right = (np.array([number[key] for key in side]) for side in keys)
            return np.asarray((left[:, None] == right[None, :]).astype(float))

        def near(sides: list[list[float]], length: float) -> Matrix:
            apart = np.array(sides[0])[:, None] - np.array(sides[1])[None, :]
            return np.asarray(np.exp(-(apart**2) / (2 * length * length)))

        sizes = [[_place(point.nbytes) for point in side] for side in (rows, columns)]
        hops = [[math.log2(1 + point.hops) for point in side] for side in (rows, columns)]
        small = [np.array([smallness(point.nbytes) for point in side]) for side in (rows, columns)]
        heights = [np.array([_height(point.nbytes) for point in side]) for side in (rows, columns)]
        several = [np.array([point.nodes > 1 for point in side], dtype=float) for side in (rows, columns)]
        both = several[0][:, None] * several[1][None, :]
        scope = both + (1 - several[0])[:, None] * (1 - several[1])[None, :]
        far, close = near(sizes, FAR), near(sizes, NEAR)
        kind, machine, network = _classes(rows, columns), same("machine"), both * close * same("network")
        found = {
            "general": scope * far,
            "launch": (scope - both) * far * same("launch") * small[0][:, None] * small[1][None, :],
            "network": network,
            "hop": network * near(hops, HOPS),
            "network_class": network * kind,
            "class": scope * far * kind,
            "algorithm": scope * close * same("algorithm"),
            "machine": scope * far * machine,
            "machine_class": scope * close * machine * kind,
            "site": scope * far * same("site"),
            "sweep": close * same("site", "nodes", "collective", "launch"),
        }
        height = heights[0][:, None] * heights[1][None, :]
        return {name: SPREAD[name] ** 2 * matrix * height for name, matrix in found.items()}

    def without(self, site: str) -> Process:
        """The process of all other sites."""
        import numpy as np

        gone = np.array([point.site == site for point in self.points])
        rest = ~gone
        cross = self.inverse[np.ix_(rest, gone)]
        inverse = self.inverse[np.ix_(rest, rest)] - cross @ np.linalg.solve(self.inverse[np.ix_(gone, gone)], cross.T)
        return self._of([point for point in self.points if point.site != site], inverse)

    def also(self, points: Sequence[Point]) -> Process:
        """The process with some points more (the inverse of a bordered matrix)."""
        import numpy as np

        cross = np.asarray(sum(self.components(self.points, points).values()))
        inner = sum(self.components(points, points).values()) + np.diag(_noise(points))
        left = self.inverse @ cross
        corner = np.linalg.inv(inner - cross.T @ left)
        inverse = np.block([[self.inverse + left @ corner @ left.T, -left @ corner], [-corner @ left.T, corner]])
        return self._of([*self.points, *points], inverse)

    @classmethod
    def _of(cls, points: Sequence[Point], inverse: Matrix) -> Process:
        import numpy as np

        found = cls.__new__(cls)
        found.points, found.inverse = tuple(points), inverse
        found.weights = inverse @ np.array([point.y for point in points])
        return found

    def foretell(self, questions: Sequence[Point]) -> list[Foretold]:
        """Median, deviation and parts for each question."""
        import numpy as np

        cross = self.components(questions, self.points)
        every = sum(cross.values())
        median = every @ self.weights
        prior = np.array([self._prior(question) for question in questions])
        variance = prior.sum(1) - ((every @ self.inverse) * every).sum(1)
        left = {
            name: prior[:, index] - ((matrix @ self.inverse) * matrix).sum(1)
            for index, (name, matrix) in enumerate(cross.items())
        }
        noise = _noise(questions)
        return [
            Foretold(
                float(median[i]),
                math.sqrt(max(float(variance[i]), 0.0) + noise[i]),
                _parts({name: max(0.0, float(values[i])) for name, values in left.items()}, question),
            )
            for i, question in enumerate(questions)
        ]

    @staticmethod
    def _prior(question: Point) -> list[float]:
        several = question.nodes > 1
        of_network = ("network", "hop", "network_class")
        return [
            0.0
            if (name in of_network and not several) or (name == "launch" and several)
            else (spread * _height(question.nbytes) * (smallness(question.nbytes) if name == "launch" else 1.0)) ** 2
            for name, spread in SPREAD.items()
        ]


def _noise(points: Sequence[Point]) -> list[float]:
    return [point.extra + (NOISE * _height(point.nbytes)) ** 2 for point in points]


def _place(nbytes: float) -> float:
    """Where a size stands: powers of two, but up to 16 KiB, where a call's overhead is all, and from 1 GiB, four count as one."""
    power = math.log2(max(nbytes, 1))
    return min(max(power, 14.0), 30.0) + (min(power, 14.0) - 14.0) / 4 + (max(power, 30.0) - 30.0) / 4


def _height(nbytes: float) -> float:
    share = smallness(nbytes)
    return share + LARGE_SHARE * (1 - share)


def _classes(rows: Sequence[Point], columns: Sequence[Point]) -> Matrix:
    """1 where both are an all-reduce, both an exchange, or both something else."""
    import numpy as np

    kinds = {"all_reduce": 1, "all_to_all": 2}
    left, right = (np.array([kinds.get(point.collective, 0) for point in side]) for side in (rows, columns))
    return np.asarray((left[:, None] == right[None, :]).astype(float))


def _parts(left: dict[str, float], question: Point) -> dict[str, float]:
    """The share of the variance by part."""
    small = smallness(question.nbytes)
    own = left["site"] + left["sweep"] + left["launch"]
    found = {
        "floor": own * small,
        "hop": left["network"] + left["hop"] + left["network_class"],
        "bandwidth": own * (1 - small),
        "algorithm": sum(left[name] for name in ("general", "class", "algorithm", "machine", "machine_class")),
    }
    whole = sum(found.values()) or 1.0
    return {name: share / whole for name, share in found.items()}


@lru_cache(maxsize=1)
def published() -> Process:
    """The process of all sites that are fitted."""
    return Process(published_points())


def published_points() -> list[Point]:
    """The points of nccl_sites.py."""
    return [
        Point(site, machine, network, nodes, collective, launch, nbytes, algorithm, hops, y, extra)
        for site, machine, network, nodes, collective, launch, points in SITES
        for nbytes, algorithm, hops, y, extra in points
    ]


def foretell(
    question: Point, own: Sequence[Point] = (), least: float = 0.0
) -> tuple[float, float, float, dict[str, float]]:
    """(median, low, high) as factors of the tuner's time, and the parts of the width as factors.

    `own` are one's own measurements; `least` is the factor below which no time can lie.
    """
    process = published().also(own) if own else published()
    found, half = process.foretell([question])[0], _half(question, "published", published().foretell([question])[0])
    if own:  # which never widens an interval
        same = any(point.collective == question.collective for point in own)
        half = min(half, _half(question, "same" if same else "others", found))
    low, median, high = possible(found.log_median, half, math.log(least) if least else -math.inf)
    parts = {name: math.exp((high - low) / 2 * math.sqrt(share)) for name, share in found.parts.items()}
    return math.exp(median), math.exp(low), math.exp(high), parts


def possible(log_median: float, half: float, least: float = -math.inf) -> tuple[float, float, float]:
    """Low, median and high of the logarithm, where none can lie below `least`.

    The low end moves up to it, and the median to the middle of what is left of a normal distribution: many sites lie just above
    their roof. The high end moves only if less than 10 % would be left above it.

    >>> from allranks.theory.cost.calibrated import possible
    >>> [round(x, 2) for x in possible(0.0, 1.0, least=0.0)]
    [0.0, 0.53, 1.28]
    """
    deviation, low, high = half / NORMAL, log_median - half, log_median + half
    if least <= low or not deviation:
        return max(low, least), max(log_median, least), max(high, least)
    start, normal = (least - log_median) / deviation, NormalDist()

    def at(share: float) -> float:
        """Below it lies such a share of what is left; far out the tail falls off like exp(-start * z)."""
        if start > 6:
            return least - deviation * math.log(1 - share) / start
        return max(least, log_median - deviation * normal.inv_cdf((1 - share) * normal.cdf(-start)))

    return least, at(0.5), at((1 + COVERAGE) / 2)


def _half(question: Point, which: str, found: Foretold) -> float:
    scale = SCALES[which][(question.nodes > 1) * 3 + size_class(question.nbytes)]
    return NORMAL * scale * found.deviation


def sites_like(question: Point) -> int:
    """How many fitted sites measured this kind: one or several nodes, and the class of size."""
    kind = (question.nodes > 1, size_class(question.nbytes))
    return len({p.site for p in published().points if (p.nodes > 1, size_class(p.nbytes)) == kind})

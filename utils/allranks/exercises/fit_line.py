"""fit_line(points) -> (alpha, beta): the model of a link from measured times, right at short and at long messages.

The links and their times are made up here, different ones for each rank, since the true alpha and beta of a student's machine
are unknown. The ranks send no messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from allranks.exercises.families import steadied
from allranks.judge.cases import Args, Expected, Oracle, Setup, oracle_maker
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group

NOISE = 0.03  # of a measured time, up or down
SCATTER = (0.15, 0.22)  # the least and the most in some cases, so that no single point is near the line
OFF = 0.10  # how far a right alpha or beta may be from the best one
LINKS = {  # alpha in seconds, beta in seconds a byte
    "two processes": (4e-5, 1 / 1.5e9),
    "two GPUs": (6e-6, 1 / 2e11),
    "two nodes": (2e-5, 1 / 1.2e10),
    "two cities": (1.5e-2, 1 / 5e7),
}

Points = list[tuple[int, float]]


class Fit(NamedTuple):
    """What is returned; a verdict calls its items by these names."""

    alpha: float
    beta: float


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    for rank in range(setup.ranks):
        mine = rng.of_rank(rank)
        alpha, beta = (value * (1 + mine.uniform().item()) for value in LINKS[setup.option("link")])
        longest = 3000 * alpha / beta
        sizes = [max(1, round(longest ** (i / (setup.size - 1)))) for i in range(setup.size)]
        noise = (1 + NOISE * (2 * mine.uniform(setup.size) - 1)).tolist()
        if setup.option("scatter"):
            noise = _scattered(setup.size, mine)
        points = [(n, (alpha + n * beta) * x) for n, x in zip(sizes, noise, strict=True)]
        order = mine.permutation(setup.size) if setup.option("order") == "mixed" else range(setup.size)
        yield ([points[i] for i in order],)


def _scattered(count: int, rng: Draws) -> list[float]:
    """Factors far from 1: of two neighbours one is too long and one too short, so that only many points together are right."""
    least, most = SCATTER
    off = (least + (most - least) * rng.uniform(count)).tolist()
    first = (rng.integers(0, 2, count) * 2 - 1).tolist()
    signs = [first[i // 2] if i % 2 else -first[i // 2] for i in range(count)]
    return [1 + sign * by for sign, by in zip(signs, off, strict=True)]


def _weighted(points: Points, power: int) -> tuple[float, float]:
    """The alpha and beta of least squares, each residual divided by the time to that power."""
    rows = torch.tensor([[t**-power, n * t**-power] for n, t in points], dtype=torch.float64)
    right = torch.tensor([[t ** (1 - power)] for _, t in points], dtype=torch.float64)
    scale = rows.abs().amax(0)  # seconds a byte are small numbers
    alpha, beta = (torch.linalg.lstsq(rows / scale, right).solution.flatten() / scale).tolist()
    return alpha, beta


@oracle_maker
def _oracle_from(
    setup: Setup, args: Sequence[Args], make: Callable[[Points], tuple[float, ...]], off: float = 1e-6
) -> list[Expected]:
    fits = [Fit(*make(points)) for (points,) in args]
    return [Expected(fit, {}, tuple(off * abs(x) for x in fit)) for fit in fits]


def _best(points: Points) -> tuple[float, float]:
    return _weighted(points, 1)


def _through_zero(points: Points) -> tuple[float, float]:
    return 0.0, sum(t / n for n, t in points) / len(points)


def _two_points(points: Points) -> tuple[float, float]:
    """The line through the shortest and the longest message."""
    (n0, t0), (n1, t1) = min(points), max(points)
    beta = (t1 - t0) / (n1 - n0)
    return t0 - beta * n0, beta


def _power_law(points: Points) -> tuple[float, float]:
    """A line through the logarithms, by least squares."""
    logs = torch.tensor(points, dtype=torch.float64).log()
    rows = torch.stack([torch.ones(len(points), dtype=torch.float64), logs[:, 0]], 1)
    start, slope = torch.linalg.lstsq(rows, logs[:, 1:]).solution.flatten().tolist()
    return math.exp(start), slope


def _links(*links: str, ranks: int = 2, size: int = 8, **more: Any) -> tuple[Setup, ...]:
    return tuple(Setup(ranks, size, **more).with_options(link=link) for link in links)


def _times(alpha: float, beta: float) -> Oracle:
    """The best fit, with each of the two so many times what it must be."""
    return _oracle_from(lambda points: (alpha * _best(points)[0], beta * _best(points)[1]), OFF)


_FEW = "only the shortest and the longest message count here: their errors are whole, and all points together have less"

EXERCISE = Exercise(
    name="fit_line",
    promise="returns alpha and beta, each within 10 % of the best fit",
    groups=(
        Group("any link", 3, _links(*LINKS)),
        Group("many points and few", 1, (*_links("two processes", size=30), *_links("two nodes", size=5))),
        Group(
            "points in any order",
            1,
            tuple(s.with_options(order="mixed") for s in _links("two processes", "two cities")),
        ),
        Group(
            "every point counts",
            3,
            tuple(s.with_options(scatter=True) for s in _links("two processes", "two nodes", size=40)),
        ),
        Group("twice in a row", 1, _links("two GPUs", times=2)),
    ),
    inputs=_inputs,
    labels={"link": "a link between {}", "order": "in {} order", "scatter": "times that scatter"},
    oracle=_oracle_from(_best, OFF),
    allow=frozenset(),
    mistakes={
        "plain least squares: the errors of the longest messages hide alpha. Make the relative errors small": _oracle_from(
            lambda points: _weighted(points, 0)
        ),
        "alpha and beta are swapped": _oracle_from(lambda points: _best(points)[::-1], OFF),
        "a bandwidth instead of beta: beta is seconds a byte": _oracle_from(
            lambda points: (_best(points)[0], 1 / _best(points)[1]), OFF
        ),
        "microseconds instead of seconds": _oracle_from(lambda points: tuple(1e6 * x for x in _best(points)), OFF),
        "alpha is 10^6 times the best one, as in microseconds: it must be in seconds": _times(1e6, 1),
        "beta is 1/8 of the best one, as in seconds a bit: it must be in seconds a byte": _times(1, 1 / 8),
        "another unit: alpha must be in seconds, and beta in seconds a byte": [
            _times(*by) for by in ((1e3, 1), (1e3, 1e3), (1, 8), (1, 1e6), (1, 1e9))
        ],
        "a line through zero: even an empty message takes alpha": _oracle_from(_through_zero, OFF),
        _FEW: [
            _oracle_from(_two_points),
            _oracle_from(lambda points: (min(points)[1], _two_points(points)[1])),
        ],
        "a power law: a line through the logarithms of n and t says t = a n^b, but the model is t = alpha + n "
        "beta": _oracle_from(_power_law),
    },
    unit="point",
    demo_setup=_links("two processes")[0],
    forbidden_advice="A fit needs no messages.",
)
EXERCISE = steadied(EXERCISE, {"plain least squares": lambda setup: True})

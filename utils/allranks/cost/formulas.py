"""What a collective costs: alpha-beta-gamma formulas, lower bounds, nccl-tests' bandwidths, and fits to measurements.

p ranks; n bytes of the *full* vector (all_gather and reduce_scatter: the total, so n/p a rank; all_to_all: what one rank
sends in all); alpha seconds a message, beta seconds a byte and direction, gamma seconds a byte reduced. Links are full
duplex, and a rank sends one message and receives one at a time. Everything is exact where it is given Fractions.
Imports without torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

from allranks.schedules import COLLECTIVES, ScheduleError, ceil_lg, find
from allranks.schedules.grouped import nodes_of

MPICH = "pmodels/mpich, cost comments in src/mpi/coll, after Thakur, Rabenseifner & Gropp 2005"
CHAN = "Chan, Heimlich, Purkayastha & van de Geijn 2007"
PATARASUK = "Patarasuk & Yuan 2009"
SANDERS = "Sanders, Speck & Träff 2009"
MIKAMI = "Mikami et al. 2018"
DERIVED = "derived in docs/cost_model.md"


class CostError(ValueError):
    """Something that has no price: an unknown collective or algorithm, negative bytes, too few measurements."""


@dataclass(frozen=True)
class Terms:
    """A price as a sum: `messages` times alpha, `nbytes` times beta, `reduced_nbytes` times gamma."""

    messages: Fraction = Fraction(0)
    nbytes: Fraction = Fraction(0)
    reduced_nbytes: Fraction = Fraction(0)

    def __add__(self, other: Terms) -> Terms:
        return Terms(
            self.messages + other.messages, self.nbytes + other.nbytes, self.reduced_nbytes + other.reduced_nbytes
        )

    def seconds(self, alpha, beta, gamma=0):
        """messages*alpha + nbytes*beta + reduced_nbytes*gamma, exact where all three are Fractions or integers."""
        if any(isinstance(x, float) for x in (alpha, beta, gamma)):
            return float(self.messages) * alpha + float(self.nbytes) * beta + float(self.reduced_nbytes) * gamma
        return self.messages * alpha + self.nbytes * beta + self.reduced_nbytes * gamma


@dataclass(frozen=True)
class Formula:
    """The closed form of one algorithm: `text` for readers, `terms(p, n, **options)` for programs."""

    collective: str
    algorithm: str
    text: str
    source: str
    note: str
    terms: Callable[..., Terms]

    def __repr__(self) -> str:
        return f"<Formula {self.collective}, {self.algorithm}: {self.text}>"


def _share(p: int, n) -> Fraction:
    """n(p-1)/p"""
    return Fraction(n) * (p - 1) / p


def _fold(p: int) -> tuple[int, int, int]:
    """(q, lg q, r) with q the largest power of two that is at most p, and r = p - q."""
    q = 1 << (p.bit_length() - 1)
    return q, q.bit_length() - 1, p - q


def _folded_blocks(p: int) -> int:
    """The parts that the busiest rank moves in recursive halving or doubling, when the first r ranks stand for two."""
    q, rounds, r = _fold(p)
    return sum((q >> j) + min(r, q >> j) for j in range(1, rounds + 1))


def _messages(count: int, n, reduced: int = 0) -> Terms:
    """`count` messages of n bytes each, `reduced` of them added."""
    return Terms(Fraction(count), Fraction(n) * count, Fraction(n) * reduced)


def _fold_terms(p: int, n, back) -> Terms:
    """The fold's first step, and its last of `back` bytes; nothing for powers of two."""
    if p & (p - 1) == 0:
        return Terms()
    return _messages(1, n, 1) + (Terms() if back is None else _messages(1, back))


def _doubling_all_reduce(p: int, n) -> Terms:
    rounds = _fold(p)[1]
    return _messages(rounds, n, rounds) + _fold_terms(p, n, n)


def _rabenseifner(p: int, n) -> Terms:
    q, rounds, _ = _fold(p)
    return Terms(Fraction(2 * rounds), 2 * _share(q, n), _share(q, n)) + _fold_terms(p, n, n)


def _rabenseifner_reduce(p: int, n) -> Terms:
    q, rounds, _ = _fold(p)
    return Terms(Fraction(2 * rounds), 2 * _share(q, n), _share(q, n)) + _fold_terms(p, n, None)


def _halving(p: int, n) -> Terms:
    moved = Fraction(n) * _folded_blocks(p) / p
    return Terms(Fraction(_fold(p)[1]), moved, moved) + _fold_terms(p, n, Fraction(n) / p)


def _doubling_all_gather(p: int, n) -> Terms:
    terms = Terms(Fraction(_fold(p)[1]), Fraction(n) * _folded_blocks(p) / p)
    if p & (p - 1):
        terms += _messages(1, Fraction(n) / p) + _messages(1, _share(p, n))
    return terms


def _one_way(p: int, segments: int) -> int:
    """The steps in which `segments` segments go up (or down) one binary tree laid out as a heap."""
    if p <= 2:
        return segments if p == 2 else 0
    return 2 * (segments + p.bit_length() - 2) - (p & (p - 1) == 0)


def _binary_tree(p: int, n, segments: int) -> Terms:
    steps = _one_way(p, segments)
    return _messages(2 * steps, Fraction(n) / segments, steps)


def _double_tree(p: int, n, segments: int) -> Terms:
    if p <= 2:
        steps = segments if p == 2 else 0
    else:
        height = ((p - 1) // 2).bit_length() + (p % 2 == 0)
        steps = 2 * (segments + height - 1) - (p % 2 == 0)
    return _messages(2 * steps, Fraction(n) / (2 * segments), steps)


def _rows_columns(p: int, n, a: int) -> Terms:
    return Terms(Fraction(2 * (a - 1) + 2 * (p // a - 1)), 2 * _share(p, n), _share(p, n))


def _leader(p: int, n, g: int) -> Terms:
    m = p // g
    inside = _messages(2 * ceil_lg(g), n, ceil_lg(g))
    return inside + Terms(Fraction(2 * (m - 1)), 2 * _share(m, n), _share(m, n))


def _bruck_all_to_all(p: int, n) -> Terms:
    sent = sum(bin(d).count("1") for d in range(p))
    return Terms(Fraction(ceil_lg(p)), Fraction(n) * sent / p)


def _chain(p: int, n, segments: int) -> Terms:
    return _messages(p + segments - 2, Fraction(n) / segments) if p > 1 else Terms()


def _hierarchical_all_to_all(p: int, n, g: int) -> Terms:
    m = p // g
    return Terms(Fraction(g - 1 + m - 1), _share(g, n) + _share(m, n))


_ROWS: tuple[tuple, ...] = (
    ("broadcast", "flat", "(p-1)(α + nβ)", DERIVED, "the root is the bottleneck", lambda p, n: _messages(p - 1, n)),
    ("broadcast", "binomial", "⌈lg p⌉(α + nβ)", MPICH, "any p", lambda p, n: _messages(ceil_lg(p), n)),
    (
        "broadcast", "scatter-allgather", "(⌈lg p⌉ + p-1)α + 2n(p-1)/p·β", MPICH,
        "any p; twice the bandwidth bound", lambda p, n: Terms(Fraction(ceil_lg(p) + p - 1), 2 * _share(p, n)),
    ),
    (
        "broadcast", "scatter-doubling", "2 lg p·α + 2n(p-1)/p·β", MPICH, "p = 2^k; else the fold of the all-gather",
        lambda p, n: Terms(Fraction(ceil_lg(p)), _share(p, n)) + _doubling_all_gather(p, n),
    ),
    (
        "broadcast", "pipelined chain", "(p+k-2)(α + nβ/k)", DERIVED,
        "k segments; best k = √((p-2)nβ/α), then (√((p-2)α) + √(nβ))²", _chain,
    ),
    ("reduce", "flat", "(p-1)(α + nβ + nγ)", DERIVED, "the root is the bottleneck", lambda p, n: _messages(p - 1, n, p - 1)),
    ("reduce", "binomial", "⌈lg p⌉(α + nβ + nγ)", CHAN, "any p", lambda p, n: _messages(ceil_lg(p), n, ceil_lg(p))),
    (
        "reduce", "rabenseifner", "2 lg p·α + 2n(p-1)/p·β + n(p-1)/p·γ", MPICH,
        "p = 2^k; else q for p, and α + nβ + nγ for the fold", _rabenseifner_reduce,
    ),
    ("scatter", "flat", "(p-1)α + n(p-1)/p·β", MPICH, "", lambda p, n: Terms(Fraction(p - 1), _share(p, n))),
    ("scatter", "binomial", "⌈lg p⌉α + n(p-1)/p·β", MPICH, "any p", lambda p, n: Terms(Fraction(ceil_lg(p)), _share(p, n))),
    ("gather", "flat", "(p-1)α + n(p-1)/p·β", MPICH, "", lambda p, n: Terms(Fraction(p - 1), _share(p, n))),
    ("gather", "binomial", "⌈lg p⌉α + n(p-1)/p·β", MPICH, "any p", lambda p, n: Terms(Fraction(ceil_lg(p)), _share(p, n))),
    ("all_gather", "ring", "(p-1)α + n(p-1)/p·β", MPICH, "any p", lambda p, n: Terms(Fraction(p - 1), _share(p, n))),
    (
        "all_gather", "recursive doubling", "lg p·α + n(p-1)/p·β", MPICH,
        "p = 2^k; else the fold: (⌊lg p⌋+2)α and up to n(1 + 2(p-1)/p)β", _doubling_all_gather,
    ),
    (
        "all_gather", "bruck", "⌈lg p⌉α + n(p-1)/p·β", MPICH, "any p; plus a local rotation",
        lambda p, n: Terms(Fraction(ceil_lg(p)), _share(p, n)),
    ),
    (
        "reduce_scatter", "ring", "(p-1)α + n(p-1)/p·(β+γ)", PATARASUK, "any p",
        lambda p, n: Terms(Fraction(p - 1), _share(p, n), _share(p, n)),
    ),
    (
        "reduce_scatter", "pairwise", "(p-1)α + n(p-1)/p·(β+γ)", MPICH, "any p",
        lambda p, n: Terms(Fraction(p - 1), _share(p, n), _share(p, n)),
    ),
    (
        "reduce_scatter", "recursive halving", "lg p·α + n(p-1)/p·(β+γ)", MPICH,
        "p = 2^k; else ⌊lg p⌋+2 steps, and ranks that stand for two move more", _halving,
    ),
    (
        "all_reduce", "flat", "2(p-1)(α + nβ) + (p-1)nγ", DERIVED, "the root handles p-1 whole vectors each way",
        lambda p, n: _messages(2 * (p - 1), n, p - 1),
    ),
    (
        "all_reduce", "tree", "2⌈lg p⌉(α + nβ) + ⌈lg p⌉nγ", DERIVED, "any p; binomial reduce and broadcast",
        lambda p, n: _messages(2 * ceil_lg(p), n, ceil_lg(p)),
    ),
    (
        "all_reduce", "recursive doubling", "lg p·(α + nβ + nγ)", MPICH, "p = 2^k; else two steps more for the fold",
        _doubling_all_reduce,
    ),
    (
        "all_reduce", "rabenseifner", "2 lg p·α + 2n(p-1)/p·β + n(p-1)/p·γ", MPICH,
        "p = 2^k; else q for p, and 2α + 2nβ + nγ for the fold", _rabenseifner,
    ),
    (
        "all_reduce", "ring", "2(p-1)α + 2n(p-1)/p·β + n(p-1)/p·γ", PATARASUK, "any p",
        lambda p, n: Terms(Fraction(2 * (p - 1)), 2 * _share(p, n), _share(p, n)),
    ),
    (
        "all_reduce", "binary tree", "2s(α + nβ/k) + s·nγ/k, s = 2(k + ⌊lg p⌋ - 1) - [p = 2^h]", DERIVED,
        "p > 2, k segments, up and then down: about 4nβ", _binary_tree,
    ),
    (
        "all_reduce", "double binary tree", "2s(α + nβ/2k) + s·nγ/2k, s = 2(k + h - 1) - [p even]", SANDERS,
        "p > 2, k segments a half, trees of height h = ⌊lg⌊(p-1)/2⌋⌋ + 1, one more for even p: about 2nβ", _double_tree,
    ),
    (
        "all_reduce", "hierarchical", "[2(g-1) + 2(m-1)]α + 2n(p-1)/p·β + n(p-1)/p·γ", DERIVED,
        "m nodes of g ranks; see two_level for two kinds of link", _rows_columns,
    ),
    (
        "all_reduce", "leader", "[2⌈lg g⌉ + 2(m-1)]α + [2⌈lg g⌉ + 2(m-1)/m]nβ + [⌈lg g⌉ + (m-1)/m]nγ", DERIVED,
        "m nodes of g ranks", _leader,
    ),
    (
        "all_reduce", "torus", "[2(a-1) + 2(b-1)]α + 2n(p-1)/p·β + n(p-1)/p·γ", MIKAMI, "a columns, b rows", _rows_columns,
    ),
    ("all_to_all", "pairwise", "(p-1)α + n(p-1)/p·β", MPICH, "any p", lambda p, n: Terms(Fraction(p - 1), _share(p, n))),
    (
        "all_to_all", "bruck", "⌈lg p⌉α + (n/2)lg p·β", MPICH, "β exact for p = 2^k, else n/p times the ones in 0..p-1",
        _bruck_all_to_all,
    ),
    (
        "all_to_all", "hierarchical", "[(g-1) + (m-1)]α + [n(g-1)/g + n(m-1)/m]β", DERIVED, "m nodes of g ranks",
        _hierarchical_all_to_all,
    ),
    ("barrier", "dissemination", "⌈lg p⌉α", MPICH, "any p", lambda p, n: Terms(Fraction(ceil_lg(p)))),
)  # fmt: skip
FORMULAS: dict[tuple[str, str], Formula] = {(row[0], row[1]): Formula(*row) for row in _ROWS}


def formula(collective: str, algorithm: str) -> Formula:
    """The closed form of an algorithm, by the names of `schedules.find`. Raises CostError."""
    try:
        built = find(collective, algorithm)(1)
    except ScheduleError as error:
        raise CostError(str(error)) from None
    return FORMULAS[built.collective, built.algorithm]


def terms(collective: str, algorithm: str, ranks: int, nbytes, **options) -> Terms:
    """The price as counts of alpha, beta and gamma.

    Options are those of the schedule: `segments`, `ranks_per_node`, `columns`; without them what the schedule takes.
    """
    found = formula(collective, algorithm)
    _check(ranks, nbytes)
    build = find(collective, algorithm)
    defaults = build.__kwdefaults__ or {}
    names = build.__code__.co_varnames[: build.__code__.co_argcount]
    unknown = set(options) - set(names)
    if unknown:
        raise CostError(f"{found.algorithm} {found.collective} has no option {', '.join(sorted(unknown))}")
    options = {"segments": 8, **defaults, **options} if "segments" in names else dict(options)
    for name, groups in (("ranks_per_node", "nodes"), ("columns", "rows")):
        if name in names:
            try:
                options = {"g" if name == "ranks_per_node" else "a": nodes_of(ranks, options.get(name), name, groups)}
            except ScheduleError as error:
                raise CostError(str(error)) from None
    if found.algorithm == "hierarchical" and found.collective == "all_reduce":
        options = {"a": options["g"]}
    options.pop("root", None)
    return found.terms(ranks, Fraction(nbytes), **options)


def price(collective: str, algorithm: str, ranks: int, nbytes, alpha, beta, gamma=0, **options):
    """Seconds of an algorithm by its closed form; equal to the schedule's own price where its chunks are all alike."""
    return terms(collective, algorithm, ranks, nbytes, **options).seconds(alpha, beta, gamma)


def two_level(nodes: int, ranks_per_node: int, nbytes, inner: tuple, outer: tuple):
    """Seconds of the hierarchical all-reduce with (alpha, beta) `inner` in a node and `outer` between nodes.

    2(g-1)a1 + 2n(g-1)/g b1 + 2(m-1)a2 + 2(n/g)(m-1)/m b2, each rank having its own link between nodes.
    """
    m, g = nodes, ranks_per_node
    inside = Terms(Fraction(2 * (g - 1)), 2 * _share(g, nbytes))
    between = Terms(Fraction(2 * (m - 1)), 2 * _share(m, Fraction(nbytes) / g))
    return inside.seconds(*inner) + between.seconds(*outer)


def lower_bound(collective: str, ranks: int, nbytes) -> Terms:
    """What no algorithm over point-to-point links can do without (Chan et al. 2007, Patarasuk & Yuan 2009).

    Each of the three terms is a bound by itself; there need be no algorithm that reaches all of them at once, and
    reduction inside switches (SHARP, NVLS) is not bound by them.
    """
    _check_collective(collective)
    _check(ranks, nbytes)
    p, n = ranks, Fraction(nbytes)
    rounds, part = Fraction(ceil_lg(p)), _share(p, n)
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


def crossover(collective: str, one: str, other: str, ranks: int, alpha, beta, gamma=0) -> Fraction | float | None:
    """The bytes at which two algorithms of a collective cost the same, or None where one is never slower than the other.

    Prices are straight lines over the size, so that there is at most one such size above 0.
    """
    a, b = (terms(collective, name, ranks, 1) for name in (one, other))
    slope = Terms(Fraction(0), b.nbytes - a.nbytes, b.reduced_nbytes - a.reduced_nbytes).seconds(0 * alpha, beta, gamma)
    start = Terms(a.messages - b.messages).seconds(alpha, 0 * beta)
    return start / slope if slope and start / slope > 0 else None


def best_segments(ranks: int, nbytes: float, alpha: float, beta: float) -> int:
    """How many segments make the pipelined chain fastest: √((p-2)nβ/α), at least 1, in whole segments of a byte or more."""
    _check(ranks, nbytes)
    if ranks <= 2 or nbytes < 2:
        return 1
    ideal = math.sqrt((ranks - 2) * nbytes * beta / alpha) if alpha > 0 else nbytes
    low = max(1, min(int(ideal), int(nbytes)))
    return min((low, low + 1), key=lambda k: (ranks + k - 2) * (alpha + nbytes * beta / k))


# -------------------------------------------------------------------------------------------- nccl-tests' bandwidths


def bus_factor(collective: str, ranks: int) -> Fraction:
    """busbw / algbw by nccl-tests (doc/PERFORMANCE.md): what makes bandwidths of all world sizes comparable to a link's.

    all_reduce 2(p-1)/p; reduce_scatter, all_gather, all_to_all, and gather and scatter (src/gather.cu) (p-1)/p; broadcast
    and reduce 1.
    """
    _check_collective(collective)
    _check(ranks, 0)
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


# ------------------------------------------------------------------------------------------------ fits to measurements


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

    algorithm = algorithm or TEXTBOOK[_check_collective(collective)]
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


def _least_squares(design):
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


# ------------------------------------------------------------------- NCCL 2.30.7's tuner, src/graph/tuning.cc and topo.h

NCCL_BASE_US = {("tree", "LL"): 6.8, ("tree", "LL128"): 14.0, ("tree", "Simple"): 8.4,
                ("ring", "LL"): 6.6, ("ring", "LL128"): 14.0, ("ring", "Simple"): 8.4}  # fmt: skip
NCCL_HOP_US = {
    "NVLink": {("tree", "LL"): 0.6, ("tree", "LL128"): 1.25, ("tree", "Simple"): 4.0,
               ("ring", "LL"): 0.6, ("ring", "LL128"): 1.9, ("ring", "Simple"): 3.4},
    "PCIe": {("tree", "LL"): 1.0, ("tree", "LL128"): 1.9, ("tree", "Simple"): 4.0,
             ("ring", "LL"): 1.0, ("ring", "LL128"): 2.5, ("ring", "Simple"): 5.7},
    "network": {("tree", "LL"): 5.0, ("tree", "LL128"): 8.5, ("tree", "Simple"): 14.0,
                ("ring", "LL"): 2.7, ("ring", "LL128"): 4.0, ("ring", "Simple"): 14.0},
}  # fmt: skip
NCCL_NVLINK_GB_PER_S = {"V100": 120.0, "A100": 240.0, "H100": 371.0, "B200": 722.0}
_NCCL_RING_FACTOR = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
_NCCL_TREE_FACTOR = {"LL": 0.92 / 3.8, "LL128": 0.92 * 7 / 9, "Simple": 0.92}


def nccl_latency_us(algorithm: str, protocol: str, ranks: int, nodes: int = 1, link: str = "NVLink") -> float:
    """Microseconds of latency that NCCL's tuner expects of an all-reduce; constants of its model, not of hardware.

    ring: base + (steps - inter) intra + inter net, with steps 2(p-1) and inter 2(nodes-1); tree: base + 2[(p/nodes - 1)
    intra + lg(nodes) net]: a chain inside each node. Left out: the factor 1.4 for large Simple messages between nodes.
    """
    key = _nccl_key(algorithm, protocol)
    _check(ranks, 0)
    if link not in NCCL_HOP_US or nodes < 1 or ranks % nodes:
        raise CostError(
            f"NCCL's model knows NVLink and PCIe, and equal nodes; here are {ranks} ranks on {nodes} nodes by {link!r}"
        )
    intra, net = NCCL_HOP_US[link][key], NCCL_HOP_US["network"][key]
    if algorithm == "ring":
        inter = 2 * (nodes - 1)
        return NCCL_BASE_US[key] + (2 * (ranks - 1) - inter) * intra + inter * net
    return NCCL_BASE_US[key] + 2 * ((ranks // nodes - 1) * intra + math.log2(nodes) * net)


def nccl_bandwidth_gb_per_s(algorithm: str, protocol: str, ranks: int, bus_gb_per_s: float) -> float:
    """The algorithm bandwidth that NCCL's tuner expects of an all-reduce in one node whose bus has `bus_gb_per_s`.

    ring: bus * p / 2(p-1) times the protocol's share; tree: half the bus times the share. Left out: the caps on LL and
    the tree's correction by size, so that trees look better here than in NCCL.
    """
    _nccl_key(algorithm, protocol)
    _check(ranks, 0)
    if ranks == 1:
        return math.inf
    if algorithm == "ring":
        return bus_gb_per_s * _NCCL_RING_FACTOR[protocol] * ranks / (2 * (ranks - 1))
    return bus_gb_per_s * _NCCL_TREE_FACTOR[protocol] / 2


def nccl_time_us(
    algorithm: str, protocol: str, ranks: int, nbytes: float, bus_gb_per_s: float, link: str = "NVLink"
) -> float:
    """Microseconds that the tuner expects in one node: latency + nbytes / (1000 * bandwidth in GB/s)."""
    bandwidth = nccl_bandwidth_gb_per_s(algorithm, protocol, ranks, bus_gb_per_s)
    return nccl_latency_us(algorithm, protocol, ranks, link=link) + nbytes / (1000 * bandwidth)


def nccl_choice(ranks: int, nbytes: float, bus_gb_per_s: float, link: str = "NVLink") -> tuple[str, str, float]:
    """(algorithm, protocol, microseconds): the fastest pair, as the tuner chooses among ring and tree in one node."""
    options = [(a, p, nccl_time_us(a, p, ranks, nbytes, bus_gb_per_s, link)) for a, p in NCCL_BASE_US]
    return min(options, key=lambda option: option[2])


def _nccl_key(algorithm: str, protocol: str) -> tuple[str, str]:
    if (algorithm, protocol) not in NCCL_BASE_US:
        raise CostError(
            f"NCCL's model here has ring and tree with LL, LL128 and Simple, not {algorithm!r} with {protocol!r}"
        )
    return algorithm, protocol


def _check_collective(collective: str) -> str:
    if collective not in COLLECTIVES:
        raise CostError(f"there is no collective {collective!r}; there are {', '.join(COLLECTIVES)}")
    return collective


def _check(ranks: int, nbytes) -> None:
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise CostError(f"ranks is {ranks!r}; it must be a whole number above 0")
    if not nbytes >= 0:
        raise CostError(f"nbytes is {nbytes}; it can't be negative")

"""What an algorithm costs: its closed form in alpha, beta and gamma, with its source.

p ranks; n bytes of the *full* vector (all_gather and reduce_scatter: of all parts, n/p a rank; all_to_all: of all that one
rank sends); alpha seconds a message, beta seconds a byte in one direction, gamma seconds a byte reduced. A rank can send one
message and receive one at the same time. Results are exact for integers and Fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from allranks.theory.cost.terms import CostError, Terms, check_size
from allranks.theory.schedules import Number, ScheduleError, ceil_lg, describe
from allranks.theory.schedules.exchange import pat_steps
from allranks.theory.schedules.grouped import group_size

MPICH = "pmodels/mpich, cost comments in src/mpi/coll, after Thakur, Rabenseifner & Gropp 2005"
CHAN = "Chan, Heimlich, Purkayastha & van de Geijn 2007"
PATARASUK = "Patarasuk & Yuan 2009"
SANDERS = "Sanders, Speck & Träff 2009"
MIKAMI = "Mikami et al. 2018"
NCCL_PAT = "NCCL 2.30.7, src/include/collectives.h, lines 440 to 1009"
DERIVED = "derived in docs/cost_model_details.md"


@dataclass(frozen=True)
class Formula:
    """The closed form of one algorithm: `text` for readers, `terms(p, n, **options)` for programs.

    >>> cost.FORMULAS["all_reduce", "ring"]
    <Formula all_reduce, ring: 2(p-1)α + 2n(p-1)/p·β + n(p-1)/p·γ>
    """

    collective: str
    algorithm: str
    text: str
    source: str
    note: str
    terms: Callable[..., Terms]

    def __repr__(self) -> str:
        return f"<Formula {self.collective}, {self.algorithm}: {self.text}>"


def _share(p: int, n: Number) -> Fraction:
    """n(p-1)/p"""
    return Fraction(n) * (p - 1) / p


def _fold(p: int) -> tuple[int, int, int]:
    """(q, lg q, r), where q is the largest power of two that is at most p, and r = p - q."""
    q = 1 << (p.bit_length() - 1)
    return q, q.bit_length() - 1, p - q


def _folded_blocks(p: int) -> int:
    """The parts that the busiest rank moves in recursive halving or doubling, where the first r ranks act for two."""
    q, rounds, r = _fold(p)
    return sum((q >> j) + min(r, q >> j) for j in range(1, rounds + 1))


def _messages(count: int, n: Number, reduced: int = 0) -> Terms:
    """`count` messages of n bytes each, `reduced` of them added."""
    return Terms(Fraction(count), Fraction(n) * count, Fraction(n) * reduced)


def _fold_terms(p: int, n: Number, back: Number | None) -> Terms:
    """The first step of the fold, and its last step of `back` bytes; nothing if p is a power of two."""
    if p & (p - 1) == 0:
        return Terms()
    return _messages(1, n, 1) + (Terms() if back is None else _messages(1, back))


def _doubling_all_reduce(p: int, n: Number) -> Terms:
    rounds = _fold(p)[1]
    return _messages(rounds, n, rounds) + _fold_terms(p, n, n)


def _rabenseifner(p: int, n: Number) -> Terms:
    q, rounds, _ = _fold(p)
    return Terms(Fraction(2 * rounds), 2 * _share(q, n), _share(q, n)) + _fold_terms(p, n, n)


def _rabenseifner_reduce(p: int, n: Number) -> Terms:
    q, rounds, _ = _fold(p)
    return Terms(Fraction(2 * rounds), 2 * _share(q, n), _share(q, n)) + _fold_terms(p, n, None)


def _halving(p: int, n: Number) -> Terms:
    moved = Fraction(n) * _folded_blocks(p) / p
    return Terms(Fraction(_fold(p)[1]), moved, moved) + _fold_terms(p, n, Fraction(n) / p)


def _doubling_all_gather(p: int, n: Number) -> Terms:
    terms = Terms(Fraction(_fold(p)[1]), Fraction(n) * _folded_blocks(p) / p)
    if p & (p - 1):
        terms += _messages(1, Fraction(n) / p) + _messages(1, _share(p, n))
    return terms


def _one_way(p: int, segments: int) -> int:
    """The steps in which `segments` segments go up (or down) one binary tree, in which ranks are placed as in a heap."""
    if p <= 2:
        return segments if p == 2 else 0
    return 2 * (segments + p.bit_length() - 2) - (p & (p - 1) == 0)


def _binary_tree(p: int, n: Number, segments: int) -> Terms:
    steps = _one_way(p, segments)
    return _messages(2 * steps, Fraction(n) / segments, steps)


def _double_tree(p: int, n: Number, segments: int) -> Terms:
    if p <= 2:
        steps = segments if p == 2 else 0
    else:
        height = ((p - 1) // 2).bit_length() + (p % 2 == 0)
        steps = 2 * (segments + height - 1) - (p % 2 == 0)
    return _messages(2 * steps, Fraction(n) / (2 * segments), steps)


def _torus(p: int, n: Number, columns: int) -> Terms:
    rows = p // columns
    return Terms(Fraction(2 * (columns - 1) + 2 * (rows - 1)), 2 * _share(p, n), _share(p, n))


def _hierarchical_all_reduce(p: int, n: Number, ranks_per_node: int) -> Terms:
    return _torus(p, n, ranks_per_node)


def _leader(p: int, n: Number, ranks_per_node: int) -> Terms:
    g, m = ranks_per_node, p // ranks_per_node
    inside = _messages(2 * ceil_lg(g), n, ceil_lg(g))
    return inside + Terms(Fraction(2 * (m - 1)), 2 * _share(m, n), _share(m, n))


def _bruck_all_to_all(p: int, n: Number) -> Terms:
    sent = sum(bin(d).count("1") for d in range(p))
    return Terms(Fraction(ceil_lg(p)), Fraction(n) * sent / p)


def _chain(p: int, n: Number, segments: int) -> Terms:
    return _messages(p + segments - 2, Fraction(n) / segments) if p > 1 else Terms()


def _hierarchical_all_to_all(p: int, n: Number, ranks_per_node: int) -> Terms:
    g, m = ranks_per_node, p // ranks_per_node
    return Terms(Fraction(g - 1 + m - 1), _share(g, n) + _share(m, n))


def _pat(p: int, n: Number, in_flight: int | None, reduces: bool) -> Terms:
    share = _share(p, n)
    return Terms(Fraction(len(pat_steps(p, in_flight))), share, share if reduces else Fraction(0))


def _hierarchical_half(p: int, n: Number, ranks_per_node: int, reduces: bool) -> Terms:
    g, m = ranks_per_node, p // ranks_per_node
    return Terms(Fraction(g - 1 + m - 1), _share(p, n), _share(p, n) if reduces else Fraction(0))


_ROWS: tuple[tuple[str, str, str, str, str, Callable[..., Terms]], ...] = (
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
        "all_gather", "pat", "⌈lg p⌉α + n(p-1)/p·β", NCCL_PAT,
        "any p; with at most w chunks in flight Σ⌈c/w⌉ steps, over the c = 1, 2, 4, .. chunks of a step: about p/w more",
        lambda p, n, in_flight: _pat(p, n, in_flight, False),
    ),
    (
        "all_gather", "hierarchical", "[(g-1) + (m-1)]α + n(p-1)/p·β", DERIVED, "m nodes of g ranks",
        lambda p, n, ranks_per_node: _hierarchical_half(p, n, ranks_per_node, False),
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
        "p = 2^k; else ⌊lg p⌋+2 steps, and ranks that act for two move more", _halving,
    ),
    (
        "reduce_scatter", "pat", "⌈lg p⌉α + n(p-1)/p·(β+γ)", NCCL_PAT, "as its all_gather",
        lambda p, n, in_flight: _pat(p, n, in_flight, True),
    ),
    (
        "reduce_scatter", "hierarchical", "[(g-1) + (m-1)]α + n(p-1)/p·(β+γ)", DERIVED, "m nodes of g ranks",
        lambda p, n, ranks_per_node: _hierarchical_half(p, n, ranks_per_node, True),
    ),
    (
        "all_reduce", "flat", "2(p-1)(α + nβ) + (p-1)nγ", DERIVED, "the root receives and sends p-1 whole vectors",
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
        "all_reduce", "rabenseifner far first", "2 lg p·α + 2n(p-1)/p·β + n(p-1)/p·γ", "the same steps in the other order",
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
        "m nodes of g ranks; see two_level for two kinds of link", _hierarchical_all_reduce,
    ),
    (
        "all_reduce", "leader", "[2⌈lg g⌉ + 2(m-1)]α + [2⌈lg g⌉ + 2(m-1)/m]nβ + [⌈lg g⌉ + (m-1)/m]nγ", DERIVED,
        "m nodes of g ranks", _leader,
    ),
    (
        "all_reduce", "torus", "[2(a-1) + 2(b-1)]α + 2n(p-1)/p·β + n(p-1)/p·γ", MIKAMI, "a columns, b rows", _torus,
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
# The closed forms by (collective, algorithm), with the names that `schedules` uses.
FORMULAS: dict[tuple[str, str], Formula] = {(row[0], row[1]): Formula(*row) for row in _ROWS}


def formula(collective: str, algorithm: str) -> Formula:
    """The closed form of an algorithm, by the names of `schedules.find`. Raises CostError.

    >>> cost.formula("broadcast", "binomial").text
    '⌈lg p⌉(α + nβ)'
    """
    try:
        found = describe(collective, algorithm)
    except ScheduleError as error:
        raise CostError(str(error)) from None
    return FORMULAS[found.collective, found.name]


def terms(collective: str, algorithm: str, ranks: int, nbytes: Number, **options: int | None) -> Terms:
    """The price as counts of alpha, beta and gamma.

    `options` and their defaults are those of the schedule: `segments`, `ranks_per_node`, `columns`, `in_flight`. Raises CostError.

    >>> cost.terms("all_reduce", "tree", ranks=5, nbytes=1000)
    Terms(messages=Fraction(6, 1), nbytes=Fraction(6000, 1), reduced_nbytes=Fraction(3000, 1))
    """
    found = formula(collective, algorithm)
    check_size(ranks, nbytes)
    usual = describe(collective, algorithm).options
    if unknown := sorted(set(options) - set(usual)):
        raise CostError(f"{found.algorithm} {found.collective} has no option {', '.join(unknown)}")
    # from every root the price is the same
    chosen = {name: value for name, value in {**usual, **options}.items() if name != "root"}
    for name, groups in (("ranks_per_node", "nodes"), ("columns", "rows")):
        if name in chosen:
            try:
                chosen[name] = group_size(ranks, chosen[name], name, groups)
            except ScheduleError as error:
                raise CostError(str(error)) from None
    try:
        return found.terms(ranks, Fraction(nbytes), **chosen)
    except ScheduleError as error:
        raise CostError(str(error)) from None


def price(
    collective: str,
    algorithm: str,
    ranks: int,
    nbytes: Number,
    alpha: Number,
    beta: Number,
    gamma: Number = 0,
    **options: int | None,
) -> Number:
    """Seconds of an algorithm by its closed form; equal to `Schedule.price` if all chunks have the same size.

    `options` as in `terms`. Raises CostError.

    >>> cost.price("all_gather", "bruck", ranks=5, nbytes=1000, alpha=10, beta=1)
    Fraction(830, 1)
    """
    return terms(collective, algorithm, ranks, nbytes, **options).seconds(alpha, beta, gamma)


def two_level(
    nodes: int, ranks_per_node: int, nbytes: Number, inner: tuple[Number, Number], outer: tuple[Number, Number]
) -> Number:
    """Seconds of the hierarchical all-reduce, with (alpha, beta) `inner` inside a node and `outer` between nodes.

    For m nodes of g ranks, each rank with its own link between nodes: 2(g-1)a1 + 2n(g-1)/g b1 + 2(m-1)a2 +
    2(n/g)(m-1)/m b2.

    >>> cost.two_level(nodes=2, ranks_per_node=4, nbytes=800, inner=(1, 1), outer=(10, 2))
    Fraction(1626, 1)
    """
    m, g = nodes, ranks_per_node
    inside = Terms(Fraction(2 * (g - 1)), 2 * _share(g, nbytes))
    between = Terms(Fraction(2 * (m - 1)), 2 * _share(m, Fraction(nbytes) / g))
    return inside.seconds(*inner) + between.seconds(*outer)


def best_segments(ranks: int, nbytes: float, alpha: float, beta: float) -> int:
    """The number of segments with which the pipelined chain is fastest: √((p-2)nβ/α), rounded; from 1 to one for each byte.

    >>> cost.best_segments(10, nbytes=1_000_000, alpha=5e-6, beta=1e-9)
    40
    """
    check_size(ranks, nbytes)
    if ranks <= 2 or nbytes < 2:
        return 1
    ideal = math.sqrt((ranks - 2) * nbytes * beta / alpha) if alpha > 0 else nbytes
    low = max(1, min(int(ideal), int(nbytes)))
    return min((low, low + 1), key=lambda k: (ranks + k - 2) * (alpha + nbytes * beta / k))

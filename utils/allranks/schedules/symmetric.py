"""Algorithms in which every rank does the same: their steps in short, for worlds too large to list every message.

In such an algorithm all ranks send equally much in each step, to the rank that the same rule names. `regular` gives the
rules; a test compares them with the moves of the full schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from allranks.schedules.core import ceil_lg, check_ranks
from allranks.schedules.grouped import nodes_of


@dataclass(frozen=True)
class Rule:
    """`repeat` equal steps in which rank r sends `chunks` chunks to `to(r)` and takes as many from `source(r)`."""

    repeat: int
    to: Callable[[int], int]
    source: Callable[[int], int]
    chunks: int
    reduce: bool = False


@dataclass(frozen=True)
class Regular:
    """The rules of one algorithm; a vector (in all_to_all: one rank's) has `parts` chunks.

    `group` tells what leaves the whole schedule as it is: renaming every rank r to r + k*unit mod p ("cyclic"), or to
    r xor k*unit ("xor"), for every k.
    """

    collective: str
    algorithm: str
    ranks: int
    parts: int
    rules: tuple[Rule, ...]
    group: str
    unit: int = 1

    @property
    def steps(self) -> int:
        """How many rounds of concurrent messages there are."""
        return sum(rule.repeat for rule in self.rules)

    @property
    def chunks_sent(self) -> int:
        """How many chunks each rank sends in all."""
        return sum(rule.repeat * rule.chunks for rule in self.rules)


def regular(collective: str, algorithm: str, ranks: int, size: int | None = None) -> Regular | None:
    """The rules of an algorithm by the names of its schedule, or None where ranks differ in what they do.

    `size` is `ranks_per_node` or `columns`, as the schedule takes it.
    """
    check_ranks(ranks)
    p = ranks
    power = p & (p - 1) == 0

    def made(parts: int, rules: list[Rule], group: str = "cyclic", unit: int = 1) -> Regular:
        return Regular(collective, algorithm, p, parts, tuple(r for r in rules if r.repeat), group, unit)

    match collective, algorithm:
        case "all_reduce", "ring":
            return made(p, [_shift(p, 1, p - 1, 1, True), _shift(p, 1, p - 1, 1)])
        case "reduce_scatter", "ring":
            return made(p, [_shift(p, 1, p - 1, 1, True)])
        case "all_gather", "ring":
            return made(p, [_shift(p, 1, p - 1, 1)])
        case "reduce_scatter", "pairwise":
            return made(p, [_shift(p, i, 1, 1, True) for i in range(1, p)])
        case "all_to_all", "pairwise":
            if power:
                return made(p, [_xor(i, 1) for i in range(1, p)], "xor")
            return made(p, [_shift(p, i, 1, 1) for i in range(1, p)])
        case "all_gather", "bruck":
            return made(p, [_shift(p, -(1 << k), 1, min(1 << k, p - (1 << k))) for k in range(ceil_lg(p))])
        case "all_to_all", "bruck":
            counts = [sum(d >> k & 1 for d in range(p)) for k in range(ceil_lg(p))]
            return made(p, [_shift(p, 1 << k, 1, count) for k, count in enumerate(counts)])
        case "barrier", "dissemination":
            return made(p, [_shift(p, 1 << k, 1, 1 << k) for k in range(ceil_lg(p))])
        case "all_reduce", "recursive doubling" if power:
            return made(1, [_xor(1 << k, 1, True) for k in range(ceil_lg(p))], "xor")
        case "all_gather", "recursive doubling" if power:
            return made(p, _doubling(p), "xor")
        case "reduce_scatter", "recursive halving" if power:
            return made(p, _halving(p), "xor")
        case "all_reduce", "rabenseifner" if power:
            return made(p, [*_halving(p), *_doubling(p)], "xor")
        case ("all_reduce", "hierarchical") | ("all_reduce", "torus"):
            g = nodes_of(p, size)
            m = p // g
            rows = [_inside(g, 1, g - 1, m, reduce) for reduce in (True, False)]
            columns = [_shift(p, g, m - 1, 1, reduce) for reduce in (True, False)]
            return made(p, [rows[0], *columns, rows[1]], unit=g)
        case "all_to_all", "hierarchical":
            g = nodes_of(p, size)
            m = p // g
            inside = [_inside(g, i, 1, m) for i in range(1, g)]
            return made(p, [*inside, *(_shift(p, i * g, 1, g) for i in range(1, m))], unit=g)
    return None


def _shift(p: int, by: int, repeat: int, chunks: int, reduce: bool = False) -> Rule:
    return Rule(repeat, lambda r: (r + by) % p, lambda r: (r - by) % p, chunks, reduce)


def _xor(mask: int, chunks: int, reduce: bool = False) -> Rule:
    return Rule(1, lambda r: r ^ mask, lambda r: r ^ mask, chunks, reduce)


def _inside(g: int, by: int, repeat: int, chunks: int, reduce: bool = False) -> Rule:
    """A shift among the g ranks of each node."""
    return Rule(repeat, lambda r: r - r % g + (r % g + by) % g, lambda r: r - r % g + (r % g - by) % g, chunks, reduce)


def _doubling(p: int) -> list[Rule]:
    return [_xor(1 << k, 1 << k) for k in range(ceil_lg(p))]


def _halving(p: int) -> list[Rule]:
    return [_xor(1 << k, 1 << k, True) for k in reversed(range(ceil_lg(p)))]

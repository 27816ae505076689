"""Algorithms in which every rank does the same, as rules for their steps: for worlds too large to list every message.

In each step of such an algorithm all ranks send the same number of chunks, to the rank that one rule gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from allranks.theory.schedules.core import MAX_RANKS, ceil_lg, check_ranks
from allranks.theory.schedules.exchange import pat_steps
from allranks.theory.schedules.grouped import group_size


@dataclass(frozen=True)
class StepRule:
    """`repeat` equal steps: rank r sends `chunks` chunks to `destination(r)`, receives as many from `source(r)`."""

    repeat: int
    destination: Callable[[int], int]
    source: Callable[[int], int]
    chunks: int
    reduce: bool = False


@dataclass(frozen=True)
class SymmetricSchedule:
    """The rules of one algorithm. The vector (in all_to_all: that of one rank) has `parts` chunks.

    `symmetry` says how ranks can be renumbered without changing the schedule, for every k: rank r to r + k*unit mod p
    ("cyclic"), or to r xor k*unit ("xor").
    """

    collective: str
    algorithm: str
    ranks: int
    parts: int
    rules: tuple[StepRule, ...]
    symmetry: str
    unit: int = 1

    @property
    def steps(self) -> int:
        """How many rounds of concurrent messages there are."""
        return sum(rule.repeat for rule in self.rules)

    @property
    def chunks_sent(self) -> int:
        """How many chunks each rank sends in all."""
        return sum(rule.repeat * rule.chunks for rule in self.rules)


def symmetric_schedule(
    collective: str, algorithm: str, ranks: int, size: int | None = None
) -> SymmetricSchedule | None:
    """The rules of an algorithm by the names of its schedule, or None if not all ranks do the same.

    `size` is `ranks_per_node`, `columns` or `in_flight`, as for the schedule. Raises ScheduleError if it does not
    divide `ranks`.

    >>> rules = symmetric_schedule("all_gather", "bruck", 6)
    >>> [(rule.destination(0), rule.chunks) for rule in rules.rules]
    [(5, 1), (4, 2), (2, 2)]
    """
    check_ranks(
        min(ranks, MAX_RANKS) if isinstance(ranks, int) else ranks
    )  # rules list no messages: more ranks are fine
    p = ranks
    power = p & (p - 1) == 0

    def schedule(parts: int, rules: list[StepRule], symmetry: str = "cyclic", unit: int = 1) -> SymmetricSchedule:
        return SymmetricSchedule(collective, algorithm, p, parts, tuple(r for r in rules if r.repeat), symmetry, unit)

    match collective, algorithm:
        case "all_reduce", "ring":
            return schedule(p, [_shift(p, 1, p - 1, 1, True), _shift(p, 1, p - 1, 1)])
        case "reduce_scatter", "ring":
            return schedule(p, [_shift(p, 1, p - 1, 1, True)])
        case "all_gather", "ring":
            return schedule(p, [_shift(p, 1, p - 1, 1)])
        case "reduce_scatter", "pairwise":
            return schedule(p, [_shift(p, i, 1, 1, True) for i in range(1, p)])
        case "all_to_all", "pairwise":
            if power:
                return schedule(p, [_xor(i, 1) for i in range(1, p)], "xor")
            return schedule(p, [_shift(p, i, 1, 1) for i in range(1, p)])
        case "all_gather", "bruck":
            return schedule(p, [_shift(p, -(1 << k), 1, min(1 << k, p - (1 << k))) for k in range(ceil_lg(p))])
        case ("all_gather", "pat") | ("reduce_scatter", "pat"):
            steps = pat_steps(p, size)
            if collective == "all_gather":
                return schedule(p, [_shift(p, -d, 1, len(held)) for d, held in steps])
            return schedule(p, [_shift(p, d, 1, len(held), True) for d, held in reversed(steps)])
        case "all_to_all", "bruck":
            # a block travels in round k if bit k of its distance is set
            counts = [sum(d >> k & 1 for d in range(p)) for k in range(ceil_lg(p))]
            return schedule(p, [_shift(p, 1 << k, 1, count) for k, count in enumerate(counts)])
        case "barrier", "dissemination":
            return schedule(p, [_shift(p, 1 << k, 1, 1 << k) for k in range(ceil_lg(p))])
        case "all_reduce", "recursive doubling" if power:
            return schedule(1, [_xor(1 << k, 1, True) for k in range(ceil_lg(p))], "xor")
        case "all_gather", "recursive doubling" if power:
            return schedule(p, _doubling(p), "xor")
        case "reduce_scatter", "recursive halving" if power:
            return schedule(p, _halving(p), "xor")
        case "all_reduce", "rabenseifner" if power:
            # halves shrink as partners get farther, so that the large messages stay near
            near = [_xor(1 << k, p >> (k + 1), True) for k in range(ceil_lg(p))]
            return schedule(p, [*near, *(_xor(1 << k, p >> (k + 1)) for k in reversed(range(ceil_lg(p))))], "xor")
        case "all_reduce", "rabenseifner far first" if power:
            return schedule(p, [*_halving(p), *_doubling(p)], "xor")
        case ("all_reduce", "hierarchical") | ("all_reduce", "torus"):
            g = group_size(p, size)
            m = p // g
            rows = [_inside(g, 1, g - 1, m, reduce) for reduce in (True, False)]
            columns = [_shift(p, g, m - 1, 1, reduce) for reduce in (True, False)]
            return schedule(p, [rows[0], *columns, rows[1]], unit=g)
        case ("all_gather", "hierarchical") | ("reduce_scatter", "hierarchical"):
            g = group_size(p, size)
            m = p // g
            adds = collective == "reduce_scatter"
            phases = [_inside(g, 1, g - 1, m, adds), _shift(p, g, m - 1, 1, adds)]
            return schedule(p, phases if adds else phases[::-1], unit=g)
        case "all_to_all", "hierarchical":
            g = group_size(p, size)
            m = p // g
            inside = [_inside(g, i, 1, m) for i in range(1, g)]
            return schedule(p, [*inside, *(_shift(p, i * g, 1, g) for i in range(1, m))], unit=g)
    return None


def _shift(p: int, by: int, repeat: int, chunks: int, reduce: bool = False) -> StepRule:
    return StepRule(repeat, lambda r: (r + by) % p, lambda r: (r - by) % p, chunks, reduce)


def _xor(mask: int, chunks: int, reduce: bool = False) -> StepRule:
    return StepRule(1, lambda r: r ^ mask, lambda r: r ^ mask, chunks, reduce)


def _inside(g: int, by: int, repeat: int, chunks: int, reduce: bool = False) -> StepRule:
    """A shift among the g ranks of each node."""
    return StepRule(
        repeat, lambda r: r - r % g + (r % g + by) % g, lambda r: r - r % g + (r % g - by) % g, chunks, reduce
    )


def _doubling(p: int) -> list[StepRule]:
    return [_xor(1 << k, 1 << k) for k in range(ceil_lg(p))]


def _halving(p: int) -> list[StepRule]:
    return [_xor(1 << k, 1 << k, True) for k in reversed(range(ceil_lg(p)))]

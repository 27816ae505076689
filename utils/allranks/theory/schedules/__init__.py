"""Algorithms as data: which rank sends which chunk to which rank in which step, and the proof that the result is right.

`Schedule.verify` runs a schedule on symbols instead of numbers. For each chunk of each rank it keeps the ranks whose
contributions it holds; a move copies or adds them, and the end is compared with what the collective promises.

Each file holds one family of algorithms. Prices in their docstrings are for p ranks and n bytes of the full vector: a is
alpha (seconds a message), b is beta (seconds a byte), g is gamma (seconds a byte reduced), lg is the logarithm to base 2.
Imports without torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from allranks.theory.schedules.binomial import (
    binomial_broadcast,
    binomial_gather,
    binomial_reduce,
    binomial_scatter,
    tree_all_reduce,
)
from allranks.theory.schedules.broadcasts import (
    pipelined_chain_broadcast,
    scatter_allgather_broadcast,
    scatter_doubling_broadcast,
)
from allranks.theory.schedules.core import COLLECTIVES, MAX_RANKS, Move, Number, Schedule, ScheduleError, ceil_lg
from allranks.theory.schedules.doubling import (
    rabenseifner_all_reduce,
    rabenseifner_far_first_all_reduce,
    rabenseifner_reduce,
    recursive_doubling_all_gather,
    recursive_doubling_all_reduce,
    recursive_halving_reduce_scatter,
)
from allranks.theory.schedules.exchange import (
    bruck_all_gather,
    bruck_all_to_all,
    dissemination_barrier,
    pairwise_all_to_all,
    pairwise_reduce_scatter,
    pat_all_gather,
    pat_reduce_scatter,
)
from allranks.theory.schedules.flat import flat_all_reduce, flat_broadcast, flat_gather, flat_reduce, flat_scatter
from allranks.theory.schedules.grouped import (
    hierarchical_all_gather,
    hierarchical_all_reduce,
    hierarchical_all_to_all,
    hierarchical_reduce_scatter,
    leader_all_reduce,
    torus_all_reduce,
)
from allranks.theory.schedules.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from allranks.theory.schedules.search import search_all_gather
from allranks.theory.schedules.trees import binary_tree_all_reduce, double_binary_tree_all_reduce, two_trees

# Every algorithm by the name of the function that builds its schedule.
ALGORITHMS: dict[str, Callable[..., Schedule]] = {
    f.__name__: f
    for f in (
        ring_all_reduce,
        flat_all_reduce,
        tree_all_reduce,
        recursive_doubling_all_reduce,
        rabenseifner_all_reduce,
        rabenseifner_far_first_all_reduce,
        binary_tree_all_reduce,
        double_binary_tree_all_reduce,
        hierarchical_all_reduce,
        leader_all_reduce,
        torus_all_reduce,
        ring_reduce_scatter,
        pairwise_reduce_scatter,
        recursive_halving_reduce_scatter,
        pat_reduce_scatter,
        hierarchical_reduce_scatter,
        ring_all_gather,
        recursive_doubling_all_gather,
        bruck_all_gather,
        pat_all_gather,
        hierarchical_all_gather,
        flat_broadcast,
        binomial_broadcast,
        scatter_allgather_broadcast,
        scatter_doubling_broadcast,
        pipelined_chain_broadcast,
        flat_reduce,
        binomial_reduce,
        rabenseifner_reduce,
        flat_scatter,
        binomial_scatter,
        flat_gather,
        binomial_gather,
        pairwise_all_to_all,
        bruck_all_to_all,
        hierarchical_all_to_all,
        dissemination_barrier,
    )
}


@dataclass(frozen=True)
class Algorithm:
    """An algorithm under its names, with the function that builds its schedule.

    `build(ranks, **options)` takes what `options` names: `root`, `segments` (of a pipeline), `ranks_per_node`, `columns`, `in_flight` (of PAT).
    The values of `options` are the defaults.

    >>> schedules.Algorithm("broadcast", "binomial", schedules.binomial_broadcast, {"root": 0}).build(8, root=3)
    <Schedule binomial broadcast: 8 ranks, 1 chunks, 3 steps, 7 messages>
    """

    collective: str
    name: str
    build: Callable[..., Schedule]
    options: Mapping[str, int | None]


def _entry(build: Callable[..., Schedule]) -> Algorithm:
    one = build(1)
    _, *options = inspect.signature(build).parameters.values()
    return Algorithm(one.collective, one.algorithm, build, {option.name: option.default for option in options})


_ENTRIES = tuple(map(_entry, ALGORITHMS.values()))
_OTHER_NAMES = {
    "halving doubling": "rabenseifner",
    "van de geijn": "scatter allgather",
    "chain": "pipelined chain",
    "2d torus": "torus",
}


def algorithms(collective: str) -> dict[str, Callable[..., Schedule]]:
    """The functions that build a collective's schedules, by algorithm. Raises ScheduleError for an unknown collective.

    >>> list(schedules.algorithms("reduce_scatter"))
    ['ring', 'pairwise', 'recursive halving', 'pat', 'hierarchical']
    """
    return {entry.name: entry.build for entry in _of(collective)}


def find(collective: str, algorithm: str) -> Callable[..., Schedule]:
    """The function that builds an algorithm's schedule. Names and errors are those of `describe`.

    >>> schedules.find("all_reduce", "recursive-doubling")(8).steps
    3
    """
    return describe(collective, algorithm).build


def describe(collective: str, algorithm: str) -> Algorithm:
    """The algorithm with its options. Its name may be written with spaces, "-" or "_".

    Raises ScheduleError, which lists the names that exist.

    >>> schedules.describe("broadcast", "pipelined-chain").options
    {'root': 0, 'segments': 8}
    """
    asked = _OTHER_NAMES.get(_plain(algorithm), _plain(algorithm))
    known = _of(collective)
    for entry in known:
        if _plain(entry.name) == asked:
            return entry
    names = ", ".join(entry.name.replace(" ", "-") for entry in known)
    raise ScheduleError(f"there is no algorithm {algorithm!r} for {collective}; there are {names}")


def _of(collective: str) -> list[Algorithm]:
    name = collective.lower().replace("-", "_")
    if name not in COLLECTIVES:
        raise ScheduleError(f"there is no collective {collective!r}; there are {', '.join(COLLECTIVES)}")
    return [entry for entry in _ENTRIES if entry.collective == name]


def _plain(name: str) -> str:
    return name.lower().replace("-", " ").replace("_", " ").strip()


__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "MAX_RANKS",
    "Algorithm",
    "Move",
    "Number",
    "Schedule",
    "ScheduleError",
    "algorithms",
    "ceil_lg",
    "describe",
    "find",
    "search_all_gather",
    "two_trees",
    *ALGORITHMS,
]

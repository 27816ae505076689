"""Measures: sweeps of a collective over sizes on live ranks, and a schedule run for real.

from allranks import World, bench
bench.sweep(World(ranks=4), "all_reduce", bench.sizes(8, 1 << 20))
"""

from allranks.bench.executor import Executor, execute
from allranks.bench.sweeps import (
    COLLECTIVES,
    COLUMNS,
    DTYPES,
    IN_PARTS,
    OPS,
    REDUCING,
    ROOTED,
    BenchError,
    Call,
    Prediction,
    Row,
    Sweep,
    measure,
    seconds_of,
    sizes,
    sweep,
)

__all__ = [
    "COLLECTIVES",
    "COLUMNS",
    "DTYPES",
    "IN_PARTS",
    "OPS",
    "REDUCING",
    "ROOTED",
    "BenchError",
    "Call",
    "Executor",
    "Prediction",
    "Row",
    "Sweep",
    "execute",
    "measure",
    "seconds_of",
    "sizes",
    "sweep",
]

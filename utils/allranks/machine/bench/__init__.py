"""Measures collectives on live ranks: a sweep over sizes with nccl-tests' columns, or the seconds that any calls take.

A schedule of the course can be measured too: the same moves as real sends and receives (`allranks.Executor`).
"""

from allranks.machine.bench.device import fitted_words, lasting, up_to_plateau
from allranks.machine.bench.sweeps import (
    COLLECTIVES,
    BenchError,
    Call,
    Prediction,
    Row,
    Sweep,
    seconds_of,
    sizes,
    sweep,
    times_of,
)

__all__ = [
    "COLLECTIVES",
    "BenchError",
    "Call",
    "Prediction",
    "Row",
    "Sweep",
    "fitted_words",
    "lasting",
    "seconds_of",
    "sizes",
    "sweep",
    "times_of",
    "up_to_plateau",
]

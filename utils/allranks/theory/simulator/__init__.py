"""A schedule on a topology: when each message starts and ends, and how long all of it takes.

>>> from allranks import simulate, topology
>>> simulate("all_reduce", "ring", ranks=16, nbytes=1600, topology=topology.preset("dgx-h100")).steps
30

`simulator.clock` is the clock of the simulator and of the wire. Imports without torch.
"""

from allranks.theory.simulator.critical import CriticalPath, Leg, LegKind, critical_path
from allranks.theory.simulator.simulation import (
    SimulateError,
    Simulation,
    TopologyNetwork,
    lower_bound_seconds,
    programs,
    run_schedule,
    simulate,
)
from allranks.theory.simulator.what_if import WhatIf, what_if

__all__ = [
    "CriticalPath",
    "Leg",
    "LegKind",
    "SimulateError",
    "Simulation",
    "TopologyNetwork",
    "WhatIf",
    "critical_path",
    "lower_bound_seconds",
    "programs",
    "run_schedule",
    "simulate",
    "what_if",
]

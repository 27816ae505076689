"""A schedule on a topology: when each message starts and ends, and how long all of it takes.

>>> from allranks import simulate, topology
>>> simulate("all_reduce", "ring", ranks=16, nbytes=1600, topology=topology.preset("dgx-h100")).steps
30

`simulator.clock` is the clock of the simulator and of the wire. Imports without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from allranks.theory.simulator.variations import WhatIf, what_if

# each is imported when it is asked for: who needs the clock alone, as the wire does, needs no topologies and no prices
_FROM = {
    **dict.fromkeys(("CriticalPath", "Leg", "LegKind", "critical_path"), "critical"),
    **dict.fromkeys(("SimulateError", "Simulation", "TopologyNetwork", "lower_bound_seconds"), "simulation"),
    **dict.fromkeys(("programs", "run_schedule", "simulate"), "simulation"),
    **dict.fromkeys(("WhatIf", "what_if"), "variations"),
}

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


def __getattr__(name: str) -> Any:
    if name in _FROM:
        return getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

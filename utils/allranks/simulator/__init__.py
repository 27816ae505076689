"""A schedule on a topology: when each message starts and ends, and how long the whole takes.

    from allranks import simulate
    simulate("all_reduce", "ring", ranks=16, nbytes=1 << 30, topology="dgx-h100").seconds

`simulator.clock` is the one clock of the simulator and the wire. Imports without torch.
"""

from allranks.simulator.simulation import (
    SimulateError,
    Simulation,
    TopologyNetwork,
    lower_bound_seconds,
    programs,
    run_schedule,
    simulate,
)

__all__ = [
    "SimulateError",
    "Simulation",
    "TopologyNetwork",
    "lower_bound_seconds",
    "programs",
    "run_schedule",
    "simulate",
]

"""A schedule on a topology: when each message starts and ends, and how long all of it takes.

>>> from allranks import simulate, topology
>>> simulate("all_reduce", "ring", ranks=16, nbytes=1600, topology=topology.preset("dgx-h100")).steps
30

`simulator.clock` is the clock of the simulator and of the wire, which needs neither topologies nor prices.
Imports without torch.
"""

"""Machines: their links, presets with sources, and topology files of your own.

>>> topology.preset("dgx-h100").nics_per_node
8
"""

from allranks.theory.topology.fabrics import DGX1_LANES, Cut, Fabric, FabricLink, mesh_fabric, node_fabric, torus_fabric
from allranks.theory.topology.files import is_file_name, load_topology, preset
from allranks.theory.topology.machines import PRESETS, Link, Topology, TopologyError, round_robin, uniform

__all__ = [
    "DGX1_LANES",
    "PRESETS",
    "Cut",
    "Fabric",
    "FabricLink",
    "Link",
    "Topology",
    "TopologyError",
    "is_file_name",
    "load_topology",
    "mesh_fabric",
    "node_fabric",
    "preset",
    "round_robin",
    "torus_fabric",
    "uniform",
]

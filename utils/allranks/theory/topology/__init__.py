"""Machines: their links, presets with sources, and topology files of your own.

>>> topology.preset("dgx-h100").nics_per_node
8
"""

from allranks.theory.topology.fabrics import DGX1_LANES, Cut, Fabric, FabricLink, mesh_fabric, node_fabric, torus_fabric
from allranks.theory.topology.files import is_file_name, load_topology, preset
from allranks.theory.topology.machines import PRESETS, Link, Topology, TopologyError, round_robin, uniform
from allranks.theory.topology.spines import cable_names, flow_seconds, hashed_fabric, hashed_spine, spine_loads

__all__ = [
    "DGX1_LANES",
    "PRESETS",
    "Cut",
    "Fabric",
    "FabricLink",
    "Link",
    "Topology",
    "TopologyError",
    "cable_names",
    "flow_seconds",
    "hashed_fabric",
    "hashed_spine",
    "is_file_name",
    "load_topology",
    "mesh_fabric",
    "node_fabric",
    "preset",
    "round_robin",
    "spine_loads",
    "torus_fabric",
    "uniform",
]

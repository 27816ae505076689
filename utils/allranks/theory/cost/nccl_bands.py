"""How far published measurements lie from `nccl_price`. Written by `python tools/validation.py`; do not edit."""

from __future__ import annotations

# kind: (quartiles of measured / predicted, number of measurements)
BANDS: dict[str, tuple[float, float, int]] = {
    "one node, up to 64 KiB": (0.957, 1.052, 61),
    "one node, between": (0.962, 1.202, 100),
    "one node, from 256 MiB": (0.993, 1.041, 75),
    "several nodes, up to 64 KiB": (0.816, 1.163, 151),
    "several nodes, between": (0.884, 1.181, 140),
    "several nodes, from 256 MiB": (0.905, 1.070, 63),
}
# the same for the links alone: `simulate` over every card of a preset
LINK_BANDS: dict[str, tuple[float, float, int]] = {
    "one node, up to 64 KiB": (0.781, 1.504, 35),
    "one node, between": (1.179, 1.628, 78),
    "one node, from 256 MiB": (0.834, 1.076, 69),
    "several nodes, up to 64 KiB": (0.154, 0.478, 91),
    "several nodes, between": (0.510, 1.093, 77),
    "several nodes, from 256 MiB": (0.685, 1.104, 32),
}

"""How far published measurements lie from the links alone (`simulate` over every card). Written by `python tools/validation.py`; do not edit."""

from __future__ import annotations

# kind: measured over predicted (median, and the ends that hold 8 of 10 sites), number of sites
LINK_BANDS: dict[str, tuple[float, float, float, int]] = {
    "one node, up to 64 KiB": (1.205, 0.774, 1.702, 10),
    "one node, between": (1.342, 0.910, 1.840, 10),
    "one node, from 256 MiB": (1.026, 0.776, 1.130, 11),
    "several nodes, up to 64 KiB": (0.328, 0.030, 0.749, 7),
    "several nodes, between": (0.869, 0.242, 1.656, 8),
    "several nodes, from 256 MiB": (0.921, 0.635, 1.447, 10),
}

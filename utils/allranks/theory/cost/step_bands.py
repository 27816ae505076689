"""How far published steps of training lie from `training_step`. Written by `python tools/validation.py`; do not edit."""

from __future__ import annotations

# measured / predicted: median, and the ends that hold 8 of 10 steps with all families of runs alike; steps, families
STEP_BAND: tuple[float, float, float, int, int] = (1.080, 0.560, 2.082, 23, 5)

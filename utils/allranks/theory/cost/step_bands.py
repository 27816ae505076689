"""How far published steps of training lie from `training_step`. Written by `python tools/validation.py`; do not edit."""

from __future__ import annotations

# quartiles of measured / predicted, number of steps
STEP_BAND: tuple[float, float, int] = (0.958, 1.210, 23)

"""The process of a rank whose program gives autograd a gradient to begin with, for which torch imports 480 modules.

A module of its own, so that the process which forks the ranks imports them once, and not each rank.
"""

from __future__ import annotations

import torch.fx.experimental.symbolic_shapes  # noqa: F401

from allranks.ranks.wire.rank import main

__all__ = ["main"]

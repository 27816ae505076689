"""The process of a rank whose program uses torch's compiler, as functional collectives and optimizers do at their first call.

A module of its own, so that the process which forks the ranks imports the compiler once, and not each rank.
"""

from __future__ import annotations

import torch._dynamo  # noqa: F401

from allranks.ranks.wire.rank import main

__all__ = ["main"]

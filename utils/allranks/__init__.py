"""All Ranks: collective communication, live on real ranks.

    from allranks import World, ask, check

All of them load what they need when they are first used: importing this package costs no torch.
"""

from __future__ import annotations

import importlib

_LAZY = {
    "World": "allranks.world",
    "WorldError": "allranks.world",
    "ask": "allranks.drill",
    "check": "allranks.exercises",
}

__all__ = ["World", "WorldError", "ask", "check"]


def __getattr__(name: str):
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("allranks")
    raise AttributeError(f"module 'allranks' has no attribute {name!r}")


def _register_magics() -> None:
    from allranks.notebook import ipython_shell

    shell = ipython_shell()
    if shell is not None:
        from allranks.magics import load_ipython_extension

        load_ipython_extension(shell)


_register_magics()

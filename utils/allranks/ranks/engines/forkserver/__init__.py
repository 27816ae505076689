"""The fork server: a process that imports torch, ipykernel and ipyparallel once, and forks every rank.

Its parts are imported when they are asked for: a client needs few of the server's.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.ranks.engines.forkserver.client import Connection, ForkServer, ForkServerError
    from allranks.ranks.engines.forkserver.loop import QUIET_S, Client, ForkLoop
    from allranks.ranks.engines.forkserver.mailbox import MAX_FDS, MAX_MESSAGE, Child, Mailbox
    from allranks.ranks.engines.forkserver.process import (
        adopt_orphans,
        describe_exit,
        die_with_parent,
        forking_is_safe,
        preload,
    )
    from allranks.ranks.engines.forkserver.server import LATER

# the module that has each name
_FROM = {
    **dict.fromkeys(("Connection", "ForkServer", "ForkServerError"), "client"),
    **dict.fromkeys(("QUIET_S", "Client", "ForkLoop"), "loop"),
    **dict.fromkeys(("MAX_FDS", "MAX_MESSAGE", "Child", "Mailbox"), "mailbox"),
    **dict.fromkeys(("adopt_orphans", "describe_exit", "die_with_parent", "forking_is_safe", "preload"), "process"),
    "LATER": "server",
}

__all__ = [
    "LATER",
    "MAX_FDS",
    "MAX_MESSAGE",
    "QUIET_S",
    "Child",
    "Client",
    "Connection",
    "ForkLoop",
    "ForkServer",
    "ForkServerError",
    "Mailbox",
    "adopt_orphans",
    "describe_exit",
    "die_with_parent",
    "forking_is_safe",
    "preload",
]


def __getattr__(name: str) -> Any:
    if name in _FROM:
        return getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

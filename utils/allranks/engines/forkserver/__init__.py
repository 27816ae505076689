"""The fork server: a process that imports torch, ipykernel and ipyparallel once, and forks every rank."""

from allranks.engines.forkserver.client import Connection, ForkServer, ForkServerError
from allranks.engines.forkserver.loop import MAX_FDS, MAX_MESSAGE, QUIET_S, Client, ForkLoop
from allranks.engines.forkserver.mailbox import Child, Mailbox
from allranks.engines.forkserver.process import (
    adopt_orphans,
    describe_exit,
    die_with_parent,
    forking_is_safe,
    preload,
)
from allranks.engines.forkserver.server import LATER

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

"""The fork server: a process that imported torch, ipykernel and ipyparallel once, and forks every rank from there."""

from allranks.engines.forkserver.client import Parent, ParentError
from allranks.engines.forkserver.mailbox import Child, Mailbox
from allranks.engines.forkserver.process import (
    adopt_orphans,
    bring_in,
    describe_exit,
    die_with_parent,
    forking_is_safe,
)
from allranks.engines.forkserver.server import LATER, MAX_FDS, MAX_MESSAGE, QUIET_S

__all__ = [
    "LATER",
    "MAX_FDS",
    "MAX_MESSAGE",
    "QUIET_S",
    "Child",
    "Mailbox",
    "Parent",
    "ParentError",
    "adopt_orphans",
    "bring_in",
    "describe_exit",
    "die_with_parent",
    "forking_is_safe",
]

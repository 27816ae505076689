"""The fork server: a process that imported torch, ipykernel and ipyparallel once, and forks every rank from there."""

from allranks.engines.forkserver.client import (
    LATER,
    MAX_FDS,
    MAX_MESSAGE,
    QUIET_S,
    Child,
    Mailbox,
    Parent,
    ParentError,
    adopt_orphans,
    bring_in,
    describe_exit,
    die_with_parent,
    forking_is_safe,
)

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

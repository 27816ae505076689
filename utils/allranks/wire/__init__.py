"""The wire: forked ranks over real torch.distributed, every message through one trusted router.

    from allranks.wire import run
    results, trace, deadlock = run(fn, ranks=4)

It knows the moment when no rank can go on, refuses what the rules forbid, and keeps a virtual clock. See docs/wire.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

from allranks.wire.endpoint import compute
from allranks.wire.failures import Failure, FailureKind
from allranks.wire.memory import Memory, MemoryOp, Race
from allranks.wire.messages import FileWritten, LogEntry, Program, Rules
from allranks.wire.wait import Wait
from allranks.wire.window import memory

if TYPE_CHECKING:
    from allranks.wire.outcome import Outcome
    from allranks.wire.pool import Ranks, WireError, run

# the router's side, which imports the course's schedules and simulator; a rank has none of it
_FROM = {"Outcome": "outcome", "Ranks": "pool", "WireError": "pool", "run": "pool"}

__all__ = [
    "Failure",
    "FailureKind",
    "FileWritten",
    "LogEntry",
    "Memory",
    "MemoryOp",
    "Outcome",
    "Program",
    "Race",
    "Ranks",
    "Rules",
    "Wait",
    "WireError",
    "compute",
    "memory",
    "run",
]


def __getattr__(name: str) -> Any:
    if name in _FROM:
        return getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

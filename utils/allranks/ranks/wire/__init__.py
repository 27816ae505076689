"""The wire: forked ranks over real torch.distributed, every message through one trusted router.

    from allranks.wire import run
    results, trace, deadlock = run(fn, ranks=4)

It knows the moment when no rank can go on, refuses what the rules forbid, and keeps a virtual clock. See docs/wire.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

from allranks.ranks.wire.failures import Failure, FailureKind
from allranks.ranks.wire.memory_model import Memory, MemoryOp, Race
from allranks.ranks.wire.messages import FileWritten, LogEntry, Program, Rules
from allranks.ranks.wire.wait import Wait

if TYPE_CHECKING:
    from allranks.ranks.wire.endpoint import compute
    from allranks.ranks.wire.outcome import Outcome
    from allranks.ranks.wire.pool import Ranks, WireError, run
    from allranks.ranks.wire.window import memory

# the router's side, which imports the course's schedules and simulator and of which a rank has nothing; and a rank's, with torch
_FROM = {
    "Outcome": "outcome",
    "Ranks": "pool",
    "WireError": "pool",
    "compute": "endpoint",
    "memory": "window",
    "run": "pool",
}

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


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

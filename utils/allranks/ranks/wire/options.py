"""The options of a run on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from allranks.ranks.wire.memory_model import Memory
from allranks.ranks.wire.messages import Rules
from allranks.ranks.wire.router import Pieces
from allranks.ranks.wire.wait import NameLine, line_number
from allranks.theory.simulator.clock import Network
from allranks.theory.topology import Topology

MEMORY_BYTES = 1 << 30
_OUTPUT_FACTOR = 16  # printing this many times what is kept ends the run


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `wire.run` and `Ranks.run` take besides the function, the ranks and the arguments; `run` says what each means.

    Example:
        >>> RunOptions(delivery="buffered").rules.nccl
        False
    """

    per_rank: Sequence | None = None
    calls: int | None = None
    guard: bool = False
    final_args: bool = True
    allow: Sequence[str] | None = None
    rules: Rules = field(default=None)  # without rules, those of `allow`
    delivery: str = "rendezvous"
    seed: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    topology: Network | Topology | None = None
    scale: int = 1
    cpu_s: float = 10
    wall_s: float = 30
    memory_bytes: int = MEMORY_BYTES
    output_bytes: int = 65536
    pieces: Pieces | None = None
    memory: Memory | None = None
    name_line: NameLine = line_number
    ahead: bool = False

    def __post_init__(self) -> None:
        if self.rules is None:
            allow = {self.allow} if isinstance(self.allow, str) else self.allow
            object.__setattr__(self, "rules", Rules(allow=None if allow is None else frozenset(allow)))

    @property
    def limits(self) -> dict[str, Any]:
        """What ends a run that goes too far."""
        return {
            "cpu_s": self.cpu_s,
            "wall_s": self.wall_s,
            "memory_bytes": self.memory_bytes,
            "output_bytes": self.output_bytes,
            "output_limit": self.output_bytes * _OUTPUT_FACTOR,
        }

    def job(self, ranks: int, filename: str, seed: int) -> dict[str, Any]:
        """What every rank is told of the run, as plain data."""
        return {
            "ranks": ranks,
            "filename": filename,
            "seed": seed,
            "contiguous": self.rules.contiguous,
            "nccl": self.rules.nccl,
            "alone": self.rules.alone,
            "ahead": self.ahead and not self.rules.nccl,
            "guard": self.guard,
            "final_args": self.final_args,
            "memory": None if self.memory is None else [self.memory.numel, self.memory.dtype],
            "cpu_s": self.cpu_s,
            "memory_bytes": self.memory_bytes,
        }

"""What one rank waits for, in words."""

from __future__ import annotations

from dataclasses import dataclass

NOT_WAITING = {"returned": "has returned", "stopped": "was stopped", "running": "is running"}


@dataclass(frozen=True, slots=True)
class Wait:
    """What one rank does: the operation that it is in, whom it waits for, and the student's line.

    `peer` is the first of `peers`; both are empty where the rank waits for nobody (it computes, or it has returned).
    """

    rank: int
    op: str
    peer: int | None
    line: int | None = None
    text: str | None = None
    tag: int = 0
    peers: tuple[int, ...] = ()
    nbytes: int | None = None

    def __str__(self) -> str:
        if self.op in NOT_WAITING:
            return f"rank {self.rank} {NOT_WAITING[self.op]}"
        whom = "" if not self.peers else f" for rank{'s' if len(self.peers) > 1 else ''} {_listed(self.peers)}"
        return f"rank {self.rank} waits{whom} in {self.op}{at(self.line)}"


def at(line: int | None) -> str:
    """ ", line 4", or nothing."""
    return f", line {line}" if line else ""


def _listed(ranks: tuple[int, ...]) -> str:
    return ", ".join(str(r) for r in ranks)

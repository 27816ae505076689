"""What one rank waits for, and how ranks and lines are named in sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from allranks.errors import name_ranks
from allranks.wire.messages import OpKind

NameLine = Callable[[int], str]


class Doing(StrEnum):
    """What a rank did when the run ended."""

    WAITING = "waiting"
    RETURNED = "returned"
    STOPPED = "stopped"
    RUNNING = "running"


_NOT_WAITING = {Doing.RETURNED: "has returned", Doing.STOPPED: "was stopped", Doing.RUNNING: "is running"}


@dataclass(frozen=True, slots=True)
class Wait:
    """What one rank does: the operation that it is in, whom it waits for, and the student's line.

    `peer` is the first of `peers`; both are empty if the rank waits for nobody (it computes, or it has returned).
    `op` is the operation's name, also "wait() of isend"; `place` is the line in words, such as "line 4". Under NCCL's rules
    `held_by` is the earlier operation that must be complete first, `held_line` its line, and `held_place` that line in words.

    Example:
        >>> print(wire.Wait(rank=2, op="recv", peer=1, place="line 4", peers=(1,)))
        rank 2 waits for rank 1 in recv, line 4
    """

    rank: int
    doing: Doing = Doing.WAITING
    op: str = ""
    kind: OpKind | None = None
    peer: int | None = None
    line: int | None = None
    place: str = ""
    text: str | None = None
    tag: int = 0
    peers: tuple[int, ...] = ()
    nbytes: int | None = None
    held_by: str = ""
    held_line: int | None = None
    held_place: str = ""

    def __str__(self) -> str:
        if self.doing is not Doing.WAITING:
            return f"rank {self.rank} {_NOT_WAITING[self.doing]}"
        whom = f" for {name_ranks(self.peers)}" if self.peers else ""
        place = f", {self.place}" if self.place else ""
        held = f", held up by its {self.held_by}" if self.held_by else ""
        held += f", {self.held_place}" if self.held_place else ""
        return f"rank {self.rank} waits{whom} in {self.op}{place}{held}"


def line_number(line: int) -> str:
    """ "line 4"."""
    return f"line {line}"


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]

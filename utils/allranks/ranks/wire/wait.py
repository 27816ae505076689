"""What one rank waits for, and how ranks and lines are named in sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from allranks.base.errors import name_ranks
from allranks.ranks.wire.messages import OpKind

NameLine = Callable[[int], str]


class Doing(StrEnum):
    """What a rank did when the run ended."""

    WAITING = "waiting"
    RETURNED = "returned"
    STOPPED = "stopped"
    RUNNING = "running"


class InnerLine(int):
    """The number of a line inside a helper function; `outer` is the line that led to it.

    The helper's name is not told: it comes from a rank, which could put hidden inputs into it.
    """

    outer: int

    def __new__(cls, line: int, outer: int = 0) -> InnerLine:
        made = super().__new__(cls, line)
        made.outer = outer
        return made


def named(line: int, name: NameLine) -> str:
    """The line in words; of a line inside a helper function the caller's comes first: "line 12, which leads to line 5"."""
    if isinstance(line, InnerLine) and line.outer != int(line):
        return f"{name(line.outer)}, which leads to {name(int(line))}"
    return name(line)


def outermost(line: int | None) -> int | None:
    """The caller's line, of a line inside a helper function."""
    return line.outer if isinstance(line, InnerLine) else line


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


MOST_ROWS = 8


@dataclass(frozen=True, slots=True)
class Unmet:
    """A message that found no partner: who sends what to whom, or who waits for what."""

    rank: int
    op: str
    kind: OpKind
    peers: tuple[int, ...]  # empty: any rank
    nbytes: int
    tag: int
    place: str

    def row(self) -> tuple[str, ...]:
        """Who, what, how much, and where, each in words."""
        whom = name_ranks(self.peers) if self.peers else "any rank"
        does = {OpKind.SEND: f"sends to {whom}", OpKind.RECV: f"receives from {whom}"}
        what = does.get(self.kind, f"in a collective, waits for {whom}")
        tag = f", tag {self.tag}" if self.tag else ""
        return f"rank {self.rank}", what, f"{self.nbytes} bytes{tag}", f"{self.op}, {self.place}".rstrip(", ")


def rows_of(unmet: tuple[Unmet, ...]) -> list[tuple[str, ...]]:
    """The rows of the table, at most eight, and one that says how many more there are."""
    rows = [one.row() for one in unmet[:MOST_ROWS]]
    more = len(unmet) - MOST_ROWS
    return [*rows, (f"and {more} more", "", "", "")] if more > 0 else rows


def line_number(line: int) -> str:
    """ "line 4"."""
    return f"line {line}"

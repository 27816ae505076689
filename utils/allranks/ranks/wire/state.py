"""What the router knows of one run: the operations, where each rank stands, and the faults."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from allranks.ranks.wire import dtypes
from allranks.ranks.wire.body import Body
from allranks.ranks.wire.failures import FailureKind, Misuse
from allranks.ranks.wire.messages import OpKind, canonical

if TYPE_CHECKING:
    from allranks.ranks.nccl_rules import Rule


@dataclass(slots=True, eq=False)
class Op:
    """One operation of one rank, as the router knows it."""

    rank: int
    number: int
    index: int
    call: int
    kind: OpKind
    name: str
    group: tuple
    file: str | None
    line: int | None
    dtype: str | None = None
    numel: int = 0
    nbytes: int = 0
    peer: int | None = None
    tag: int = 0
    body: Body | None = None
    payload: bytes | None = None
    complete: bool = False
    waited: bool = False
    match: int | None = None
    partner: Op | None = None
    pairs: bool = False  # of reals, which the caller knows as complex numbers
    received_nbytes: int = 0
    batch: int | None = None
    # of collectives
    collective: str | None = None
    sequence: int = 0
    root: int | None = None
    reduce_op: str | None = None
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    said: str = ""  # the name of which `name` is the canonical one, as the rank says

    @property
    def called(self) -> str:
        """The name by which the student called it, for words; rules look at `name`."""
        return self.said if self.said and canonical(self.said) == self.name else self.name

    @property
    def caller_dtype(self) -> str | None:
        """The dtype of the caller's tensor."""
        return dtypes.COMPLEX.get(self.dtype, self.dtype) if self.pairs else self.dtype

    @property
    def caller_numel(self) -> int:
        """The number of elements of the caller's tensor."""
        return self.numel // 2 if self.pairs else self.numel


@dataclass(frozen=True)
class Used:
    """What a rank says that a piece of work was done with, and in which line.

    `piece` counts the pieces of the call before it, `at` what the rank had done before, in its program.
    """

    call: int
    piece: int
    data: bytes
    line: int | None
    at: int


@dataclass(slots=True)
class Frame:
    """What a rank said at once, and how far it was taken."""

    operations: list
    body: Body
    index: int = 0
    at: int = 0  # byte of the body


class Phase(StrEnum):
    """What a rank does, as the router knows it."""

    RUNNING = "running"
    WAITING = "waiting"  # for RankState.on
    POLLING = "polling"  # it asked whether RankState.on is complete
    ACCESSING = "accessing"  # the memory: it waits for what it gets, or for a signal
    RELEASED = "released"  # it may go on, and its answer is held back
    DONE = "done"
    FAULT = "fault"


BLOCKED = (Phase.WAITING, Phase.POLLING, Phase.ACCESSING)


@dataclass(slots=True)
class RankState:
    """What the router knows of one rank."""

    state: Phase = Phase.RUNNING
    on: Op | None = None
    file: str | None = None
    line: int | None = None
    ops: dict[int, Op] = field(default_factory=dict)
    program: list[tuple[str, Op | None, int | None]] = field(default_factory=list)
    work: dict[int, float] = field(default_factory=dict)  # seconds of the program's entries that compute
    taken: dict[int, int] = field(default_factory=dict)  # pieces of work, by call
    lines: dict[int, int] = field(default_factory=dict)  # of the program's entries that compute, where it says so
    used: list[Used] = field(default_factory=list)  # what its pieces of work were done with, where it says so
    groups: dict[str, tuple] = field(default_factory=dict)
    sequences: dict[tuple, int] = field(default_factory=dict)
    tell: list[int] = field(default_factory=list)  # complete sends that the rank's next answer will name
    told: set[int] = field(default_factory=set)  # sends known to be complete: a wait needs no answer
    ahead: bool = False  # it waits for a send, but its process has gone on
    held: deque[Frame] = field(default_factory=deque)  # what it has said since then
    held_operations: int = 0
    held_nbytes: int = 0
    call: int = 0
    polls: int = 0
    files: int = 0  # opened for writing
    changed: bool = False  # its process is not what it was before the program
    result: tuple | None = None
    # under NCCL's rules: operations that have not started, and the one, or the batch, that has
    queue: deque[Op] = field(default_factory=deque)
    started: list[Op] = field(default_factory=list)


@dataclass(frozen=True)
class WireFault:
    """Something that a rank did wrong by itself, or two ranks at one message; the first of them is the verdict."""

    kind: FailureKind
    rank: int
    step: int
    file: str | None = None
    line: int | None = None
    message: str = ""
    ops: tuple[Op, ...] = ()
    error: str | None = None
    missing_name: str | None = None  # of a NameError, or the package that is not installed
    misuse: Misuse | None = None
    rule: Rule | None = None
    filled: bool = False  # whether the memory concerned is what the operation fills, not only what it sends
    computed_s: float | None = None  # processor time, if the wall clock ended the run

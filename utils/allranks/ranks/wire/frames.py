"""What a rank and the router say to each other: one JSON object for each request, and one for each answer.

The router reads what comes as untrusted data; these types are for the code that writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NotRequired, TypedDict

from allranks.ranks.wire.messages import OpKind


class FrameKind(StrEnum):
    """What a rank asks for or tells, besides the operations of OpKind."""

    WAIT = "wait"  # for an operation; the answer comes when it is complete
    POLL = "poll"  # whether an operation is complete
    GROUP = "group"  # a group was made
    COMPUTE = "compute"  # in virtual time
    PIECE = (
        "piece"  # the next piece of work that the router hands out: it takes virtual time, and the answer is its result
    )
    MEMORY = "memory"  # a put, get, fence, signal or wait; gets and waits are answered when they are done
    CALL = "call"  # the next call of the function begins
    WRITE = "write"  # a file was opened for writing
    CHANGED = "changed"  # the program has changed the process: no other one should run in it
    FAULT = "fault"  # this rank can't go on
    DONE = "done"  # the function has returned


class FaultDetails(TypedDict, total=False):
    """What a rank may add to the report of its fault."""

    number: int  # of the operation concerned
    ahead: bool  # of a wait for a send: the rank goes on, and wants no answer
    told: bool  # of a wait for a send: the rank wants an answer even if the send was complete before
    used_by: int  # another operation that would use its memory before its wait()
    filled: bool  # whether that is memory that it fills, not only sends
    error: str  # the type of an exception
    missing_name: str  # of a NameError, or the package that is not installed
    misuse: str
    rule: str  # of NCCL's, which the program broke
    computed_s: float | None


class Request(FaultDetails):
    """What a rank says. `where` is [file, line]; `number` counts the rank's operations from 1."""

    do: OpKind | FrameKind
    where: NotRequired[Sequence[Any]]
    group: NotRequired[str]
    members: NotRequired[list[int]]
    seconds: NotRequired[float]
    count: NotRequired[int]  # of pieces of work
    quiet: NotRequired[bool]  # of pieces of work that make nothing: no answer is wanted
    path: NotRequired[str]
    kind: NotRequired[str]  # of a fault
    message: NotRequired[str]


class Operation(Request):
    """A message to be sent or received, or a collective."""

    name: str  # the canonical one of its names
    called: NotRequired[str]  # the one in the student's line, where that is another
    dtype: NotRequired[str | None]
    pairs: NotRequired[bool]  # of reals, which the caller knows as complex numbers
    nbytes: NotRequired[int]  # of the payload that follows
    numel: NotRequired[int]
    peer: NotRequired[int | None]  # None: from any rank
    tag: NotRequired[int]
    batch: NotRequired[int]  # of operations that run at the same time, under NCCL's rules
    collective: NotRequired[str]
    inputs: NotRequired[list[int]]  # elements of each tensor that is sent
    outputs: NotRequired[list[int]]
    root: NotRequired[int]
    reduce_op: NotRequired[str]
    # of the run's memory
    access: NotRequired[str]  # put, get, fence, signal or wait
    offset: NotRequired[int]
    channel: NotRequired[int]


class Answer(TypedDict, total=False):
    """What the router answers to a wait, a poll or a request for a piece of work. The data of a receive, a collective or a piece
    is the frame's body."""

    complete_sends: list[int]  # sends whose wait needs no answer
    source: int  # the rank in the group whose message was received
    complete: bool  # to a poll
    stop: bool  # the run is over

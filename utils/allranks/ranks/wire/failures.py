"""Why a run failed: a closed enumeration, and the failure that a student reads."""

from __future__ import annotations

import html
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from allranks.ranks.wire.wait import Unmet, Wait
from allranks.ranks.wire.wait_graph import waits_svg

if TYPE_CHECKING:
    from allranks.ranks.nccl_rules import Rule


class FailureKind(StrEnum):
    """Every way in which a run can fail."""

    DEADLOCK = "deadlock"
    LEFT_EARLY = "left early"
    SIZE_MISMATCH = "size mismatch"
    DTYPE_MISMATCH = "dtype mismatch"
    DESYNC = "desync"
    UNMATCHED = "unmatched"
    CPU_LIMIT = "cpu limit"
    WALL_LIMIT = "wall limit"
    MEMORY = "memory"
    EXCEPTION = "exception"
    EXITED = "exited"
    KILLED = "killed"
    FORBIDDEN_OP = "forbidden operation"
    FORBIDDEN_PEER = "forbidden peer"
    CHANGED_BEFORE_WAIT = "changed before wait"
    NEVER_WAITED = "never waited"
    OUTPUT = "output"
    FORKED = "forked"
    THREAD = "thread"
    IMPORT = "import"
    NO_FUNCTION = "no function"
    SYNTAX = "syntax"
    BAD_RESULT = "bad result"
    NCCL_RULE = "nccl rule"


class Misuse(StrEnum):
    """An argument of an operation, or of a function that an exercise hands out, which is refused with a ValueError."""

    NO_SUCH_PEER = "no such peer"
    OWN_RANK = "a message to oneself"
    GAPS = "a tensor with gaps"
    WROTE_INTO_GRADIENT = "a gradient that was written into"
    ALL_COMPUTED = "a block too many"
    OTHER_BLOCK = "another block than the next one"
    OTHER_SIZE = "another number of weights"
    OTHER_DTYPE = "weights of another dtype"
    OTHER_SHAPE = "two shapes that differ"


class MisuseError(ValueError):
    """An argument that the wire refuses. A rank reports it as a ValueError, with the code `misuse`."""

    def __init__(self, misuse: Misuse, message: str) -> None:
        super().__init__(message)
        self.misuse = misuse


class DeadlockCause(StrEnum):
    """How ranks came to wait for each other in a circle."""

    TAGS_DIFFER = "tags differ"
    GROUPS_DIFFER = "groups differ"
    CROSSED = "sends and receives name different ranks"
    OWN_MESSAGE = "a rank waits for its own message"
    SENDS_FIRST = "every rank sends first"
    SENDS_AWAITED_FIRST = "every rank waits for its isend first"
    RECEIVES_FIRST = "every rank receives first"
    TOO_MANY_RECEIVES = "what was sent has been received"
    ORDER = "another order"
    SIGNALS = "every rank waits for a signal first"
    # under NCCL's rules, where each rank's operations run one after the other
    NOT_IN_A_BATCH = "an isend or irecv outside a batch"
    GROUP_ORDER = "collectives of several groups in another order"
    QUEUE_ORDER = "operations of several kinds in another order"


@dataclass(frozen=True)
class Failure:
    """What went wrong first. `message` says it to a student; programs read the other fields.

    `rank` and `line` name the place, `cycle` the ranks that wait for each other in a circle, `waits` what every rank
    did; `step` is the number of operations that the rank had begun before; `op` is the operation concerned, `called` the name by which the student called it, `call` counts
    the calls from 0. Of an exception: `error` is its type's name, `error_text` its own text, `missing_name` the name that
    a NameError lacks, `misuse` why the wire refused an argument, `rule` the rule of NCCL's that was broken. Of a deadlock:
    `cause`, and in sentences `seen`, which is the message without `advice`, and `advice`. Of a run that stood still, or ended with messages left: `unmet`, those that found no
    partner. Of two operations that don't fit: `between`, the sender, the receiver, and what each of them says it is; `numels`, how many elements; `empty_end` if just one of them has none.
    """

    kind: FailureKind
    message: str
    rank: int | None = None
    line: int | None = None
    source_line: str | None = None
    step: int | None = None
    waits: tuple[Wait, ...] = ()
    cycle: tuple[int, ...] = ()
    error: str | None = None
    op: str | None = None
    call: int | None = None
    error_text: str = ""
    missing_name: str | None = None
    misuse: Misuse | None = None
    rule: Rule | None = None
    cause: DeadlockCause | None = None
    advice: str = ""
    seen: str = ""
    unmet: tuple[Unmet, ...] = ()
    between: tuple[int, int, str, str] | None = None
    numels: tuple[int, int] | None = None
    empty_end: bool = False
    called: str | None = None

    def __str__(self) -> str:
        return self.message

    def text(self) -> str:
        """The message, the student's line, and where every rank stood, for a terminal.

        Example (needs ranks):
            >>> failure = wire.run(lambda: dist.recv(torch.empty(1), 1 - dist.get_rank()), ranks=2).failure
            >>> failure.kind.name, failure.cycle
            ('DEADLOCK', (0, 1))
        """
        lines = [self.message]
        if self.source_line:
            lines.append(f"    line {self.line}: {self.source_line.strip()}")
        if any(wait.peers for wait in self.waits):
            lines += [f"  {wait}" + (f":  {wait.text.strip()}" if wait.text else "") for wait in self.waits]
        return "\n".join(lines)

    def svg(self) -> str:
        """The wait-for graph as a self-contained SVG (the cycle's arrows bold); empty if nobody waits."""
        return waits_svg(self.waits, self.cycle, self.seen or self.message)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        drawing = self.svg()
        told = "" if drawing else f"<pre>{html.escape(self.text().partition(chr(10))[2])}</pre>"
        # a picture comes before the way out, for who wants to find it
        seen, way_out = (self.seen, self.advice) if drawing and self.seen else (self.message, "")
        folded = f"<details><summary>A way out</summary><p>{html.escape(way_out)}</p></details>" if way_out else ""
        page = f"<div><p><strong>{html.escape(seen)}</strong></p>{told}{drawing}{folded}</div>"
        return {"text/plain": self.text(), "text/html": page}

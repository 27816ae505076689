"""Why a run failed: a closed enumeration, and the failure that a student reads."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from enum import Enum


class FailureKind(Enum):
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
    IMPORT = "import"
    NO_FUNCTION = "no function"
    SYNTAX = "syntax"
    BAD_RESULT = "bad result"


STANDING = {"returned": "has returned", "stopped": "was stopped", "running": "is running"}


@dataclass(frozen=True, slots=True)
class Wait:
    """Where one rank stands: the operation that it is in, whom it waits for, and the student's line.

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
        if self.op in STANDING:
            return f"rank {self.rank} {STANDING[self.op]}"
        whom = "" if not self.peers else f" for rank{'s' if len(self.peers) > 1 else ''} {_listed(self.peers)}"
        return f"rank {self.rank} waits{whom} in {self.op}{at(self.line)}"


def at(line: int | None) -> str:
    """ ", line 4", or nothing."""
    return f", line {line}" if line else ""


def _listed(ranks) -> str:
    return ", ".join(str(r) for r in ranks)


@dataclass(frozen=True)
class Failure:
    """What went wrong first, in words a student can use. `rank` and `line` name the place, `cycle` the ranks that wait
    for each other in a circle, `waits` where every rank stood; `step` is the number of operations that the rank had
    begun before; `error` is the exception's type name, `op` the operation concerned, `call` counts the calls from 0.
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
    details: dict = field(default_factory=dict)

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
        """The wait-for graph as a self-contained SVG (the cycle's arrows bold); empty where nobody waits."""
        from allranks.wire.draw import waits_svg

        return waits_svg(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        drawing = self.svg()
        told = "" if drawing else f"<pre>{html.escape(self.text().partition(chr(10))[2])}</pre>"
        page = f"<div><p><strong>{html.escape(self.message)}</strong></p>{told}{drawing}</div>"
        return {"text/plain": self.text(), "text/html": page}

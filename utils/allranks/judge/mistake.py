"""The mistake in a few words, from a reason's code: equal for equal mistakes, whatever the ranks, lines and sizes.

A class overview counts students by it. It names no input and no text of a student's own.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

from allranks.ranks.wire import FailureKind
from allranks.ranks.wire.failures import DeadlockCause

UNREADABLE = "the code can't be read"
UNWRITTEN = "not written yet"

_DEADLOCKS: dict[Any, str] = {
    DeadlockCause.SENDS_FIRST: "sends before it receives",
    DeadlockCause.SENDS_AWAITED_FIRST: "waits for its isend before it receives",
    DeadlockCause.RECEIVES_FIRST: "receives before it sends",
    DeadlockCause.CROSSED: "sends and receives name different ranks",
    DeadlockCause.OWN_MESSAGE: "waits for its own message",
    DeadlockCause.TAGS_DIFFER: "tags of send and receive differ",
    DeadlockCause.GROUPS_DIFFER: "groups of send and receive differ",
    DeadlockCause.TOO_MANY_RECEIVES: "receives more messages than were sent",
    DeadlockCause.NOT_IN_A_BATCH: "isend or irecv outside a batch",
}
_FAILURES: dict[Any, str] = {
    FailureKind.DEADLOCK: "ranks wait for each other",
    FailureKind.LEFT_EARLY: "a rank returns too early",
    FailureKind.SIZE_MISMATCH: "sizes of send and receive differ",
    FailureKind.DTYPE_MISMATCH: "dtypes of send and receive differ",
    FailureKind.DESYNC: "calls that don't match",
    FailureKind.UNMATCHED: "messages that nobody receives",
    FailureKind.CPU_LIMIT: "an endless loop",
    FailureKind.WALL_LIMIT: "does not end in time",
    FailureKind.MEMORY: "uses too much memory",
    FailureKind.EXCEPTION: "raises an exception",
    FailureKind.EXITED: "ends its process",
    FailureKind.KILLED: "a rank was killed",
    FailureKind.FORBIDDEN_PEER: "sends to a rank that it may not reach",
    FailureKind.CHANGED_BEFORE_WAIT: "changes a buffer before wait()",
    FailureKind.NEVER_WAITED: "never waits for a message",
    FailureKind.OUTPUT: "prints too much",
    FailureKind.FORKED: "starts other processes",
    FailureKind.THREAD: "starts threads that send",
    FailureKind.IMPORT: "needs a package that is not there",
    FailureKind.NO_FUNCTION: "the function is missing",
    FailureKind.SYNTAX: UNREADABLE,
    FailureKind.NCCL_RULE: "breaks a rule of NCCL's",
    FailureKind.BAD_RESULT: "returns what can't be read",
    FailureKind.FORBIDDEN_OP: "calls what is forbidden",
}
_RESULTS: dict[str, str] = {  # what is wrong with a result, by its kind
    "returned": "returns something of another kind",
    "dtype": "wrong dtype",
    "shape": "wrong shape",
    "values": "wrong values",
    "input changed": "changes its input",
    "other memory": "puts the result into other memory",
    "wrote beside": "writes beside its tensor",
    "computed": "computes with wrong weights",
    "changed later": "a later call changes the result",
}


def in_short(code: tuple[Hashable, ...], shared: str = "") -> str:
    """The mistake that a code stands for; `shared` is the sentence on what all failing cases have in common.

    >>> in_short(("failure", FailureKind.DEADLOCK, DeadlockCause.SENDS_FIRST, None, "send", None))
    'sends before it receives'
    >>> in_short(("rule", "at most 2(p-1) rounds"))
    'breaks the rule: at most 2(p-1) rounds'
    """
    if shared:
        return _clause(shared[:1].lower() + shared[1:])
    match code:
        case ("failure", FailureKind.DEADLOCK, cause, *_):
            return _DEADLOCKS.get(cause, _FAILURES[FailureKind.DEADLOCK])
        case ("failure", FailureKind.FORBIDDEN_OP, _, _, str(op), *_):
            return f"calls {op}, which is forbidden"
        case ("failure", FailureKind.EXCEPTION, _, str(error)) if error == UNWRITTEN:
            return UNWRITTEN
        case ("failure", FailureKind.EXCEPTION, _, str(error)):
            return f"raises {error}"
        case ("failure", kind, *_):
            return _FAILURES.get(kind, str(kind))
        case ("rule", _, str(kind)) if kind:
            return kind
        case ("rule", name, *_):
            return f"breaks the rule: {name}"
        case ("result", str(mistake), *_):
            first, _, rest = mistake.removeprefix("probably ").partition(": ")
            # of "on some ranks only: the sum ..." the second part is the mistake
            return f"{_clause(rest)}, {first}" if first == "on some ranks only" else _clause(first)
        case ("result", _, kind, *_):
            return _RESULTS.get(str(kind), str(kind))
        case ("provenance" | "origin", str(kind)) if kind:
            return kind
        case ("provenance" | "origin", *_):
            return "wrong values"
        case (str(first), *_):
            return first
    return ""


def in_brief(code: tuple[Hashable, ...], cause: bool) -> str:
    """The mistake in words that are whole; without `cause` only what was seen of it, as above the folded cause.

    >>> in_brief(("rule", "at most min(p, m) activations kept"), cause=True)
    'breaks the rule: at most min(p, m) activations kept'
    >>> in_brief(("result", "probably the sum instead of the mean: divide by p", "values"), cause=True)
    'probably the sum instead of the mean'
    """
    match code:
        case ("failure", FailureKind.DEADLOCK, *_):
            return "deadlock"
        case ("failure", *_):
            return in_short(code)
        case ("rule", name, *_):
            return f"breaks the rule: {name}"
        case ("result", str(mistake), *_) if cause:
            sure = mistake.removeprefix("probably ")
            return ("" if sure == mistake else "probably ") + in_short(code)
        case ("result", _, kind, *_):
            return _RESULTS.get(str(kind), str(kind))
        case ("provenance" | "origin", *_):
            return "wrong values"
    return "not yet"


def _clause(told: str) -> str:
    """The sentence up to its first colon, semicolon or bracket, without a relative clause behind a comma."""
    return re.split(r"[:;]| \(|, which ", told)[0].strip().rstrip(".")

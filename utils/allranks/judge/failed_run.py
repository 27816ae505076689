"""Why a run itself failed, in sentences: which rank, which step, which line, and what to do instead."""

from __future__ import annotations

import builtins
import importlib.util
import re

import torch

from allranks.base.errors import capital
from allranks.judge.cases import views
from allranks.judge.causes import Cause, Code, cause
from allranks.judge.exercise import Run
from allranks.judge.fault import blame_of_failure
from allranks.judge.verdict import Reason
from allranks.ranks.engines.alone import PACKAGE
from allranks.ranks.wire import Failure, FailureKind, Wait
from allranks.ranks.wire.failures import DeadlockCause, Misuse
from allranks.ranks.wire.messages import OpKind
from allranks.ranks.wire.values import dtype_name
from allranks.ranks.wire.wait import rows_of

_NARROW_INDEX = {dtype_name(kind): torch.iinfo(kind).max for kind in (torch.int8, torch.uint8, torch.int16)}
_QUEUED = (DeadlockCause.NOT_IN_A_BATCH, DeadlockCause.GROUP_ORDER, DeadlockCause.QUEUE_ORDER)
SENDS_FIRST = (DeadlockCause.SENDS_FIRST, DeadlockCause.SENDS_AWAITED_FIRST)
_ABOUT_GAPS = "Which line made this tensor, and does it keep the layout of another one, as empty_like does?"
_QUESTIONS_OF_RUNS = {
    FailureKind.DEADLOCK: "Which of these operations could be started, or ended, without the others?",
    FailureKind.LEFT_EARLY: "Why do these two ranks count the messages between them differently?",
    FailureKind.UNMATCHED: "Why do these two ranks count the messages between them differently?",
    FailureKind.DESYNC: "Which path does each rank take to this call?",
    FailureKind.SIZE_MISMATCH: "What does each of these ranks call here, and with how many elements?",
    FailureKind.DTYPE_MISMATCH: "Which dtype does each of the two buffers have?",
    FailureKind.EXCEPTION: "What are the values in this line on this rank?",
}
# what a function that an exercise hands out says to a wrong call, without the numbers of the case, which grading doesn't show
WITHOUT_NUMBERS = {
    Misuse.WROTE_INTO_GRADIENT: "a backward() wrote into the gradient that autograd gave it: copy it first",
    Misuse.ALL_COMPUTED: "every block has been computed forward and backward",
    Misuse.OTHER_BLOCK: "compute was called for another block than the one that is next",
    Misuse.OTHER_SIZE: "compute got another number of weights than the block has",
    Misuse.OTHER_DTYPE: "compute got weights of another dtype than the block's shards",
    Misuse.OTHER_SHAPE: "add(into, part): the two shapes differ",
}
_WRITE_IT = "Write the function, then check it again."


def told(run: Run, withhold: bool = False) -> Reason:
    """Why the run itself failed. `withhold` leaves out the text of the student's own exceptions."""
    failure = run.failure
    seen = _failure_sentence(run, failure, withhold)
    advice = failure.advice if failure.kind is FailureKind.DEADLOCK and len(failure.cycle) > 1 else ""
    why = _why_the_ends_differ(run, failure)
    sentence = f"{why}: {seen}" if why else f"{seen} {advice}".rstrip()
    question = _ABOUT_GAPS if failure.misuse is Misuse.GAPS else _QUESTIONS_OF_RUNS.get(failure.kind, "")
    return Reason(
        sentence,
        _cause(failure, sentence),
        seen=seen,
        question=_WRITE_IT if _is_stub(failure) else question,
        cause=f"{capital(why)}." if why else advice,
        rows=tuple(rows_of(failure.unmet)),
        blame=blame_of_failure(failure),
    )


def _cause(failure: Failure, sentence: str) -> Cause:
    if failure.rule is not None:
        return cause(Code.FAILURE, failed=failure.kind, nccl=failure.rule)
    if failure.kind not in (FailureKind.EXCEPTION, FailureKind.IMPORT):
        of, error, misuse = failure.cause, failure.error, failure.misuse
        return cause(Code.FAILURE, failed=failure.kind, waits=of, error=error, op=failure.op, misuse=misuse)
    # the same reason only if the same is said: a withheld name or text must not show by comparison
    # and so with the exception's name: only Python's own are part of the sentence
    name = failure.error if hasattr(builtins, failure.error or "") else None
    return cause(Code.FAILURE, failed=failure.kind, error=name, unwritten=_is_stub(failure), said=sentence)


def _is_stub(failure: Failure) -> bool:
    """Whether the function is as it was handed out. Torch raises the same error, with a text, for what an operation can't do."""
    return failure.error == "NotImplementedError" and not failure.error_text


def _failure_sentence(run: Run, failure: Failure, withhold: bool) -> str:
    kind, at = failure.kind, run.at(failure.line)
    if kind is FailureKind.DEADLOCK:
        return _deadlock_sentence(run, failure)
    if kind is FailureKind.FORBIDDEN_OP:
        advice = f" {run.exercise.instead}" if run.exercise.instead else ""
        return f"rank {failure.rank} calls an operation that this exercise forbids: {failure.called or failure.op}{at}.{advice}"
    if kind is FailureKind.NCCL_RULE and withhold:  # the error may be the student's own, with any text
        return f"rank {failure.rank} breaks one of NCCL's rules: {failure.rule}{at}."
    if _is_stub(failure):
        return f"{run.exercise.name} is not written yet: it raises NotImplementedError{at}."
    if kind in (FailureKind.EXCEPTION, FailureKind.IMPORT) and withhold:
        # the name of the student's own exception could carry inputs, as its text could
        name = failure.error if hasattr(builtins, failure.error or "") else "an exception"
        said = WITHOUT_NUMBERS.get(failure.misuse, "")
        return f"rank {failure.rank} raised {name}{at}{': ' + said if said else ''}.{_advice(run, failure)}"
    if kind is FailureKind.EXITED and withhold:  # sys.exit takes any text
        return f"rank {failure.rank} ended its process{at}. Return from the function instead."
    sentence = failure.message + _advice(run, failure)
    if kind in (FailureKind.DESYNC, FailureKind.SIZE_MISMATCH):
        sentence += f" {run.exercise.call_advice(run)}".rstrip()
    return f"{sentence} {run.exercise.empty_advice}".rstrip() if _has_one_end(run, failure) else sentence


_NARROW_BITS = {"int8": 8, "uint8": 8, "int16": 16}


def _why_the_ends_differ(run: Run, failure: Failure) -> str:
    """Why the two ends of a message don't fit, as far as it tells, without a full stop."""
    if _has_one_end(run, failure):
        return "a message without elements has one end only: either both ranks skip it, or none"
    if (
        failure.numels is None
        or failure.between is None
        or not all(views(given) for given in run.args[failure.call or 0])
    ):
        return ""
    given = [views(args)[0][1] for args in run.args[failure.call or 0]]
    own, kind = [view.tensor().numel() for view in given], dtype_name(given[0].base.dtype)
    came = [e for e in run.outcome.log if e.kind is OpKind.RECV and e.call == failure.call and e.dtype == kind]
    source, rank, *_ = failure.between
    if failure.numels == (own[source], own[rank]) and all(e.numel == own[e.rank] for e in came):
        unit = run.exercise.unit.partition(" ")[0]
        return f"rank {rank} makes room for as many elements as its own tensor has, but the ranks have different numbers of {unit}s"
    return _of_a_narrow_count(run, failure.numels)


def _of_a_narrow_count(run: Run, numels: tuple[int, int]) -> str:
    """Whether the two lengths differ as a number does that went through a dtype too small for it, and such a number was sent."""
    apart = abs(numels[0] - numels[1])
    for entry in run.outcome.log:
        bits = _NARROW_BITS.get(entry.dtype)
        if bits and apart and apart % 2**bits == 0 and entry.numel <= run.ranks:
            return (
                f"the two lengths differ by a multiple of {2**bits}, and numbers were sent as {entry.dtype}{run.at(entry.line)}, "
                "which loses such multiples: send counts as int64"
            )
    return ""


def _has_one_end(run: Run, failure: Failure) -> bool:
    """Whether a message without elements was skipped by one of its two ranks."""
    skipped = meets_an_empty_message(failure) and _skipped_one(run, failure)
    return skipped or _left_an_empty_message(failure)


def _advice(run: Run, failure: Failure) -> str:
    """What to do about an exception, as far as it tells."""
    return (
        _advice_on_missing_name(failure)
        + _advice_on_peer(run, failure)
        + _advice_on_index(run, failure)
        + _advice_of_torch(failure)
    )


def _advice_of_torch(failure: Failure) -> str:
    """What to do about a plain RuntimeError of torch's, of which only the text tells what it is."""
    if re.search(r"modified inplace|leaf Variable that requires grad", failure.error_text):
        return " Parameters require grad: take parameter.detach(), or work under torch.no_grad()."
    if re.search(r"value cannot be converted to type \w+ without overflow", failure.error_text):
        return " The dtype of this tensor is too small for the number: give counts and indices one of their own, such as int64."
    return ""


def meets_an_empty_message(failure: Failure) -> bool:
    """Whether of the two ends of a message just one has no elements."""
    return failure.kind is FailureKind.SIZE_MISMATCH and failure.between is not None and failure.empty_end


def _skipped_one(run: Run, failure: Failure) -> bool:
    """Whether a rank sent more or fewer messages than it received, and not only because the next one was still to be posted."""
    for rank in range(run.ranks):
        mine = [e for e in run.outcome.log if e.rank == rank and e.call == failure.call]
        mine = sorted((e for e in mine if e.kind is not OpKind.COLLECTIVE), key=lambda e: e.index)
        more = sum(1 if e.kind is OpKind.SEND else -1 for e in mine)
        if more and not (abs(more) == 1 and (mine[-1].kind is OpKind.SEND) == (more > 0)):
            return True
    return False


def _left_an_empty_message(failure: Failure) -> bool:
    """Whether all messages that found no partner were without elements."""
    kinds = (FailureKind.UNMATCHED, FailureKind.LEFT_EARLY)
    return failure.kind in kinds and bool(failure.unmet) and not any(left.nbytes for left in failure.unmet)


def _advice_on_peer(run: Run, failure: Failure) -> str:
    """What to do in this exercise about a message to a rank that there is not, or to the rank itself."""
    if failure.misuse is Misuse.NO_SUCH_PEER:
        return f" {run.exercise.peer_advice}".rstrip()
    return f" {run.exercise.own_rank_advice}" if failure.misuse is Misuse.OWN_RANK else ""


def _advice_on_index(run: Run, failure: Failure) -> str:
    """Where an index is out of range: what the rank has not waited for, or a dtype on the wire that holds no index of this size."""
    if failure.kind is not FailureKind.EXCEPTION or failure.error != "IndexError":
        return ""
    mine = [
        e for e in run.outcome.log if e.rank == failure.rank and e.call == failure.call and e.kind is not OpKind.SEND
    ]
    under_way = next((e for e in mine if not e.waited), None)
    if under_way is not None:
        return (
            f" Its {under_way.called}{run.at(under_way.line)} was not waited for before that: what it brings is not in the buffer until "
            "wait(), so probably the index was read too early."
        )
    for entry in mine:
        most = _NARROW_INDEX.get(str(entry.dtype))
        if most is not None and entry.nbytes and most < run.setup.size - 1:
            return (
                f" {capital(str(entry.dtype))} on the wire{run.at(entry.line)} holds no number above {most}: if these are indices, "
                "send them in a dtype that holds them."
            )
    behind = _index_behind(failure)
    return f" {run.exercise.index_advice(run, *behind)}".rstrip() if behind else ""


def _index_behind(failure: Failure) -> tuple[int, int] | None:
    """The index that is out of range and the size of that dimension; torch says both in its text only."""
    found = re.match(r"index (\d{1,9}) is out of bounds for dimension \d+ with size (\d{1,9})\b", failure.error_text)
    return (int(found[1]), int(found[2])) if found else None


def _advice_on_missing_name(failure: Failure) -> str:
    """A sentence for students who use the course's own tools, which ranks don't have."""
    name = failure.missing_name
    if name is None or (name != PACKAGE and importlib.util.find_spec(f"{PACKAGE}.{name}") is None):
        return ""
    return " The course's own tools are not available when your function is checked: write this part yourself."


def _deadlock_sentence(run: Run, failure: Failure) -> str:
    cycle = failure.cycle
    if len(cycle) < 2:
        return failure.message
    waits = {w.rank: w for w in failure.waits}
    first, ring = waits[cycle[0]], " → ".join(str(r) for r in (*cycle, cycle[0]))
    at = run.at(first.line)
    if failure.cause in _QUEUED:
        return (
            f"deadlock: on NCCL ranks {ring} each wait for the next; rank {first.rank} waits for rank {first.peer} in "
            f"{first.op}{at}{_held_by(run, first)}."
        )
    if failure.cause is DeadlockCause.SIGNALS:
        return f"deadlock: ranks {ring} each wait for a signal of the next; rank {first.rank} waits for rank {first.peer}{at}."
    if failure.cause in SENDS_FIRST:
        who = "every rank" if len(cycle) == run.ranks else "each of these ranks"
        does = "sends before it receives"
        if any(e.kind is OpKind.RECV and e.rank in cycle and e.call == failure.call for e in run.outcome.log):
            does = "sends before its next receive"  # some of them have received before
        if failure.cause is DeadlockCause.SENDS_AWAITED_FIRST:
            does = "waits for its isend before it receives"
        return (
            f"deadlock: {who} {does}, so they wait for each other in a circle, {ring}; "
            f"rank {first.rank} waits in {first.op} to rank {first.peer}{at}."
        )
    if all(waits[rank].kind is OpKind.RECV for rank in cycle):
        return (
            f"deadlock: ranks {ring} each wait to receive from the next; "
            f"rank {first.rank} waits in {first.op} from rank {first.peer}{at}."
        )
    return (
        f"deadlock: ranks {ring} each wait for the next; "
        f"rank {first.rank} waits for rank {first.peer} in {first.op}{at}."
    )


def _held_by(run: Run, wait: Wait) -> str:
    """What must be complete before the operation that the rank waits for can start, or nothing."""
    return f", which starts only when its {wait.held_by}{run.at(wait.held_line)} is complete" if wait.held_by else ""

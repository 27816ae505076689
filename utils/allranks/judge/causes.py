"""Why a case failed, in sentences: which rank, which step, which line, and what to do instead."""

from __future__ import annotations

import builtins
import importlib.util
import re
from collections.abc import Callable, Hashable, Sequence
from enum import StrEnum
from typing import Any

import torch

from allranks.base.errors import capital, name_ranks
from allranks.judge import compare, evidence
from allranks.judge.cases import OPTION_LABELS, Expected, Setup, View, plain, views
from allranks.judge.exercise import FaultKind, Mistake, Result, ResultFault, Run
from allranks.judge.fault import blame_of, blame_of_failure
from allranks.judge.in_rank import driver
from allranks.judge.mistake import UNWRITTEN
from allranks.judge.verdict import Reason
from allranks.ranks.engines.alone import PACKAGE
from allranks.ranks.wire import Failure, FailureKind, LogEntry, Wait
from allranks.ranks.wire.buffers import holds_poison
from allranks.ranks.wire.failures import DeadlockCause, Misuse
from allranks.ranks.wire.messages import OpKind
from allranks.ranks.wire.values import dtype_name
from allranks.ranks.wire.wait import rows_of

NARROWER = "right only to the precision of a narrower dtype"
_SOME_RANKS = "on some ranks only: "  # in front of a cause that fits the wrong ranks
_NARROW = 0.05  # the error of a few additions in bfloat16, relative to the largest value
_NARROW_INDEX = {dtype_name(kind): torch.iinfo(kind).max for kind in (torch.int8, torch.uint8, torch.int16)}
_QUEUED = (DeadlockCause.NOT_IN_A_BATCH, DeadlockCause.GROUP_ORDER, DeadlockCause.QUEUE_ORDER)
SENDS_FIRST = (DeadlockCause.SENDS_FIRST, DeadlockCause.SENDS_AWAITED_FIRST)


class CommonMistake(StrEnum):
    """Mistakes that look the same in every exercise."""

    NOTHING_RETURNED = "nothing was returned"
    PAIRS_OF_REALS = (
        "pairs of reals came back: take the complex tensor itself, not the tensor in a future, or use view_as_complex"
    )
    REAL_PART = "the imaginary part is lost: a complex tensor became a real one"
    ABSOLUTE = "absolute values came back: keep the complex numbers themselves"
    OTHER_DTYPE = "the dtype was promoted or narrowed: results keep the dtype of the input"
    OTHER_SHAPE = "the elements are right, and in the right order, but not their shape: reshape them"
    INPUT_CHANGED = (
        "an input was overwritten: work on a copy (tensor.clone()), and write only where the contract says so"
    )
    OTHER_MEMORY = (
        "this function works in place: write into the tensor (copy_); .data = and set_ give it other memory instead"
    )
    CHANGED_LATER = (
        "the function keeps the memory that it returned (a buffer) and uses it again: return a new tensor, or a copy"
    )
    RETURNED_NOT_COPIED = (
        "the right result was returned, but this function works in place: copy it into the tensor (copy_)"
    )
    NOTHING_CHANGED = (
        "nothing changed: the function must write its result into the tensor (copy_), not into a new one; "
        "or what it wrote is what was there"
    )
    EMPTY_MESSAGES = (
        "nothing changed, and each message was empty: with fewer elements than ranks n // p is 0, so cut off ceil(n / p) elements, "
        "or pad"
    )
    LESS_PRECISE_SINGLE = (
        "right only to the precision of a narrower dtype: the messages had the right one, so the loss was not on the wire; "
        "there was a cast before or after, such as to bfloat16, or lost digits in a difference of large numbers"
    )
    LESS_PRECISE_DOUBLE = (
        "right only to the precision of a narrower dtype: the messages had the right one, so the loss was not on the wire; "
        "there was a cast before or after, such as to float32"
    )
    READ_EARLY = "a buffer was read before wait(): what is to be received is not in it until then, so wait first and use it afterwards"
    SOME_ZERO = "some elements are still zero: that part was never received"
    WHOLE_NUMBERS = "rounded down to whole numbers: divide with /, and keep the tensor's dtype on the way"
    NO_MESSAGE = "no rank sent a message"
    NOTHING_PUT = "no rank put or got anything: the data must go through the memory"
    NOT_A_NUMBER = "NaN came out, as of 0/0, of infinity minus infinity or of zero times infinity"
    INFINITE = (
        "infinity came out: a number was too large for its dtype, as of exp or of a product, or was divided by zero"
    )
    OWN_ZERO = "some elements are zero now, though the rank had the right ones before: it must keep them"


def simplest_first(setup: Setup) -> tuple:
    """A key that sorts setups: small and plain ones first."""
    special = [name for name, _ in setup.options if name in OPTION_LABELS]
    unusual = (
        *(True for _ in special),
        setup.dtype != "float32",
        setup.layout != "contiguous",
        setup.times > 1,
        setup.outer_world,
        setup.delivery != "rendezvous",
    )
    return (not setup.earns_credit, sum(unusual), setup.ranks, setup.size, setup.root or 0)


# ------------------------------------------------------------------------------------------- failures of the run


def explain_failure(run: Run, withhold: bool = False) -> Reason:
    """Why the run itself failed. `withhold` leaves out the text of the student's own exceptions."""
    failure = run.failure
    seen = _failure_sentence(run, failure, withhold)
    cause = failure.advice if failure.kind is FailureKind.DEADLOCK and len(failure.cycle) > 1 else ""
    sentence = f"{seen} {cause}".rstrip()
    code: tuple[Hashable, ...] = ("failure", failure.kind, failure.cause, failure.error, failure.op, failure.misuse)
    if failure.rule is not None:
        code = ("failure", failure.kind, failure.rule)
    if failure.kind in (FailureKind.EXCEPTION, FailureKind.IMPORT):
        # the same reason only if the same is said: a withheld name or text must not show by comparison
        # and so with the exception's name: only Python's own are part of the sentence
        name = failure.error if hasattr(builtins, failure.error or "") else None
        code = ("failure", failure.kind, sentence, UNWRITTEN if _is_stub(failure) else name)
    rows = tuple(rows_of(failure.unmet))
    question = _ABOUT_GAPS if failure.misuse is Misuse.GAPS else _QUESTIONS_OF_RUNS.get(failure.kind, "")
    question = _WRITE_IT if _is_stub(failure) else question
    return Reason(sentence, code, seen, question, cause, rows, blame_of_failure(failure))


def _is_stub(failure: Failure) -> bool:
    """Whether the function is as it was handed out. Torch raises the same error, with a text, for what an operation can't do."""
    return failure.error == "NotImplementedError" and not failure.error_text


def _failure_sentence(run: Run, failure: Failure, withhold: bool) -> str:
    kind, at = failure.kind, run.at(failure.line)
    if kind is FailureKind.DEADLOCK:
        return _deadlock_sentence(run, failure)
    if kind is FailureKind.FORBIDDEN_OP:
        advice = f" {run.exercise.forbidden_advice}" if run.exercise.forbidden_advice else ""
        return f"rank {failure.rank} calls an operation that this exercise forbids: {failure.called or failure.op}{at}.{advice}"
    if kind is FailureKind.NCCL_RULE and withhold:  # the error may be the student's own, with any text
        return f"rank {failure.rank} breaks one of NCCL's rules: {failure.rule}{at}."
    if _is_stub(failure):
        return f"{run.exercise.name} is not written yet: it raises NotImplementedError{at}."
    if kind in (FailureKind.EXCEPTION, FailureKind.IMPORT) and withhold:
        # the name of the student's own exception could carry inputs, as its text could
        name = failure.error if hasattr(builtins, failure.error or "") else "an exception"
        said = _without_numbers(failure.error_text)
        return (
            f"rank {failure.rank} raised {name}{at}{': ' + said if said else ''}.{_advice_on_missing_name(failure)}"
            f"{_advice_on_peer(run, failure)}{_advice_on_index(run, failure)}"
        )
    if kind is FailureKind.EXITED and withhold:  # sys.exit takes any text
        return f"rank {failure.rank} ended its process{at}. Return from the function instead."
    sentence = failure.message + _advice_on_missing_name(failure)
    sentence += _advice_on_peer(run, failure) + _advice_on_index(run, failure)
    if kind in (FailureKind.DESYNC, FailureKind.SIZE_MISMATCH):
        sentence += f" {run.exercise.call_advice(run)}".rstrip()
    if (meets_an_empty_message(failure) and _skipped_one(run, failure)) or _left_an_empty_message(failure):
        sentence += f" {run.exercise.empty_advice}".rstrip()
    # torch raises a plain RuntimeError for this: only its text tells
    if re.search(r"modified inplace|leaf Variable that requires grad", failure.error_text):
        sentence += " Parameters require grad: take parameter.detach(), or work under torch.no_grad()."
    return sentence


def _without_numbers(text: str) -> str:
    """What a rank of ours says to a wrong call, without the numbers of the case; "" of any other text.

    The student's own exception may have such a text too; it tells no more than which of these it is.
    """
    for template, words in driver.WITHOUT_NUMBERS.items():
        pattern = ".{1,80}".join(map(re.escape, template.split("{}")))
        if re.fullmatch(pattern, text.rstrip(".")):
            return words
    return ""


def meets_an_empty_message(failure: Failure) -> bool:
    """Whether of the two ends of a message just one has no elements."""
    if failure.kind is not FailureKind.SIZE_MISMATCH or failure.between is None:
        return False
    return sum(amount.startswith("0 ") for amount in failure.between[2:]) == 1


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
    return (
        failure.kind is FailureKind.UNMATCHED and bool(failure.unmet) and not any(left.nbytes for left in failure.unmet)
    )


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
            f"deadlock: {who} {does}, so they wait for each other in a cycle, {ring}; "
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


# -------------------------------------------------------------------------------------------------- wrong results


def explain_faults(run: Run, faults: Sequence[ResultFault], mistake: str | None, *, messages: bool) -> Reason:
    """The mistake, if it is known, what differs on the first rank that is wrong, and which ranks are right.

    `messages` says whether the exercise has any: else no question is asked about them.
    """
    first = faults[0]
    again = " in the second call, though the first was right" if first.call else ""
    # what was not compared may be wrong
    whole = first.kind is not FaultKind.COMPUTED and all(
        compare.is_compared(e.returns) for e in run.expected[first.call]
    )
    right = sorted(set(range(run.ranks)) - {f.rank for f in faults}) if whole else []
    others = f" ({name_ranks(right)} {'is' if len(right) == 1 else 'are'} right)" if right else ""
    seen = f"{first.sentence}{again}{others}."
    code: tuple[Hashable, ...] = ("result", mistake, first.kind, first.call > 0)
    if mistake is None and first.part:
        code = (*code, first.part)  # another part that is wrong is not the same reason
    sentence = f"{mistake}: {seen}" if mistake else begun(run, seen)
    cause = f"{begun(run, mistake).rstrip('.')}." if mistake else ""
    about_messages = first.kind is FaultKind.VALUES
    question = "" if about_messages and not messages else _QUESTIONS_OF_RESULTS.get(first.kind, "")
    return Reason(sentence, code, begun(run, seen), question, cause, blame=blame_of(mistake or first.sentence))


def begun(run: Run, words: str) -> str:
    """The words as the beginning of a sentence: a capital letter, but not in the name of an argument."""
    return words if re.split(r"\W", words, maxsplit=1)[0] in run.exercise.arguments else words[:1].upper() + words[1:]


_QUESTIONS_OF_RESULTS = {
    FaultKind.VALUES: "Which of your lines computes these values, and did the messages bring what it needs?",
    FaultKind.SHAPE: "How many elements does each rank need, and how many does your function put together?",
    FaultKind.DTYPE: "Which of your lines makes a tensor of another dtype?",
    FaultKind.RETURNED: "What does your function return, on every path and on every rank?",
    FaultKind.INPUT_CHANGED: "Which of your lines writes into memory that is the caller's?",
    FaultKind.OTHER_MEMORY: "Which of your lines writes into the caller's memory?",
    FaultKind.COMPUTED: "What is in this tensor when the block computes?",
    FaultKind.WROTE_BESIDE: "Which of your lines writes into more than the tensor itself?",
}
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
_WRITE_IT = "Write the function, then check it again."


def fitting_mistakes(run: Run, faults: Sequence[ResultFault], right: Sequence[Run] = ()) -> list[str]:
    """Every known mistake that would have given just these results, the exercise's own first.

    Where ranks send no messages and put nothing, a result follows from the rank's own arguments alone: then a mistake that would have
    shown on a rank that is right, or in a run of `right`, was not made.
    """
    found = _mistakes_of_exercise(run, faults, right)
    found += _remainders_left_out(run, faults)
    common = _common_mistake(run, faults)
    if not found and common is None and run.ranks > 1 and run.exercise.allow and not run.sends and not run.collectives:
        common = CommonMistake.NO_MESSAGE
    return [*found, common] if common else found


def _mistakes_of_exercise(run: Run, faults: Sequence[ResultFault], right_runs: Sequence[Run]) -> list[str]:
    result_kinds = (FaultKind.VALUES, FaultKind.SHAPE, FaultKind.DTYPE, FaultKind.RETURNED)
    if any(f.kind not in result_kinds for f in faults) or any(
        _only_the_shape(run, f) and _has_several(run, f) for f in faults
    ):
        return []  # one element alone has the right value by chance
    call, found = faults[0].call, []
    for mistake in run.exercise.mistakes:
        if not mistake.holds(run):
            continue
        try:
            predicted = mistake.oracle(run.setup, run.args[call])
        except (RuntimeError, IndexError, ValueError):  # this mistake can't be made with these shapes
            continue
        # a prediction that accepts any item can't explain a wrong dtype or shape
        if any(f.kind is not FaultKind.VALUES and _accepts_any_item(predicted[f.rank]) for f in faults):
            continue
        fits = all(_matches(run, call, f.rank, predicted[f.rank]) for f in faults)
        right = set(range(run.ranks)) - {f.rank for f in faults}
        everywhere = all(_matches(run, call, r, predicted[r]) or not _says_something(predicted[r]) for r in right)
        if fits and not everywhere and all(_is_empty(predicted[f.rank].returns) for f in faults):
            continue  # zeros and NaN alone name no cause
        if fits and not run.exercise.allow and not run.outcome.accesses:
            exact = not any(_accepts_any_item(predicted[f.rank]) for f in faults)  # else it is a family of mistakes
            if not everywhere or (exact and any(_shows(r, mistake) for r in right_runs)):
                continue
        if not everywhere and mistake.cause.startswith("every rank"):
            continue  # it is right on some
        cause = mistake.cause if everywhere else f"{_SOME_RANKS}{mistake.cause}"
        if fits and cause not in found:  # one vote for each cause, however many oracles it has
            found.append(cause)
    return found


def on_some_ranks(cause: str) -> bool:
    """Whether the cause fits the wrong ranks only: it would have made others wrong too."""
    return cause.startswith(_SOME_RANKS)


def _is_empty(returned: Any) -> bool:
    """Whether it is nothing but zeros and NaN."""
    return isinstance(returned, torch.Tensor) and not bool(returned.nan_to_num(0).any())


def _shows(run: Run, mistake: Mistake) -> bool:
    """Whether the mistake would have made this run, which is right, wrong on some rank. Only numbers can be compared so."""
    try:
        predicted = mistake.oracle(run.setup, run.args[0])
    except (RuntimeError, IndexError, ValueError):
        return False
    return any(
        isinstance(told.returns, tuple)
        and isinstance(want.returns, tuple)
        and compare.difference(want.returns, told.returns, want.atol) is not None
        for want, told in zip(run.expected[0], predicted, strict=True)
    )


def would_show(run: Run, cause: str) -> bool:
    """Whether a mistake with this cause would have made the run's first call wrong on some rank."""
    for mistake in run.exercise.mistakes:
        if cause.endswith(mistake.cause):
            try:
                predicted = mistake.oracle(run.setup, run.args[0])
            except (RuntimeError, IndexError, ValueError):
                continue
            if any(_is_other(run.expected[0][rank], predicted[rank]) for rank in range(run.ranks)):
                return True
    return False


def _is_other(right: Expected, predicted: Expected) -> bool:
    """Whether what is predicted differs from what is right."""
    if predicted.returns is not None and compare.difference(predicted.returns, right.returns, right.atol) is not None:
        return True
    return any(
        path in right.changed and compare.difference(value, right.changed[path], right.atol) is not None
        for path, value in predicted.changed.items()
    )


def _matches(run: Run, call: int, rank: int, predicted: Expected | None) -> bool:
    """Whether the rank ended as predicted, in what it returned and in the tensors that are predicted to change."""
    got, given = run.results[call][rank], run.args[call][rank]
    if got is None or predicted is None:
        return False
    if predicted.returns is not None and compare.difference(got.returned, predicted.returns, predicted.atol):
        return False
    for (path, _), (now, _) in zip(views(given), got.tensors, strict=True):
        if path in predicted.changed:
            if now is None or compare.difference(now, predicted.changed[path], predicted.atol):
                return False
    return predicted.returns is not None or bool(predicted.changed)


def _says_something(expected: Expected | None) -> bool:
    return expected is not None and (expected.returns is not None or bool(expected.changed))


def _only_the_shape(run: Run, fault: ResultFault) -> bool:
    """Whether the rank returned the right elements in their order, in another shape."""
    got, expected = run.results[fault.call][fault.rank], run.expected[fault.call][fault.rank]
    if fault.kind is not FaultKind.SHAPE or got is None or not isinstance(got.returned, torch.Tensor):
        return False
    right = expected.returns
    if not isinstance(right, torch.Tensor) or got.returned.numel() != right.numel():
        return False
    return compare.difference(got.returned.reshape(right.shape), right, expected.atol) is None


def _has_several(run: Run, fault: ResultFault) -> bool:
    """Whether the rank must return more than one element."""
    right = run.expected[fault.call][fault.rank].returns
    return isinstance(right, torch.Tensor) and right.numel() > 1


def _accepts_any_item(expected: Expected | None) -> bool:
    """Whether the expected tuple accepts any value somewhere."""
    return (
        expected is not None and isinstance(expected.returns, tuple) and any(item is None for item in expected.returns)
    )


def _common_mistake(run: Run, faults: Sequence[ResultFault]) -> str | None:
    first = faults[0]
    got, expected = run.results[first.call][first.rank], run.expected[first.call][first.rank]
    given = run.args[first.call][first.rank]
    if got is None:
        return None
    match first.kind:
        case FaultKind.RETURNED if got.returned is None:
            return CommonMistake.NOTHING_RETURNED
        case FaultKind.SHAPE if all(_only_the_shape(run, fault) for fault in faults):
            return CommonMistake.OTHER_SHAPE
        case FaultKind.DTYPE:
            return _dtype_mistake(first, [view for _, view in views(given)], _outputs(run, first))
        case FaultKind.INPUT_CHANGED:
            return CommonMistake.INPUT_CHANGED
        case FaultKind.OTHER_MEMORY:
            return CommonMistake.OTHER_MEMORY
        case FaultKind.CHANGED_LATER:
            return CommonMistake.CHANGED_LATER
        case FaultKind.VALUES:
            outputs = [
                (path, view, now)
                for (path, view), (now, _) in zip(views(given), got.tensors, strict=True)
                if path in expected.changed
            ]
            if not any(_differs(now, expected, path) for path, _, now in outputs):
                outputs = []  # what it wrote is right, and what it returned is wrong
            not_written = _result_not_written(run, faults, got, expected, outputs) if outputs else None
            return not_written or _value_mistake(run, got, expected, outputs) or _never_received(run, faults)
    return None


def _differs(now: torch.Tensor | None, expected: Expected, path: tuple) -> bool:
    return compare.difference(now, expected.changed[path], expected.atol) is not None


def _outputs(run: Run, fault: ResultFault) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors that the rank ended with, each with the right one."""
    got, expected = run.results[fault.call][fault.rank], run.expected[fault.call][fault.rank]
    if got is None:
        return []
    given = views(run.args[fault.call][fault.rank])
    found = [(now, expected.changed.get(path)) for (path, _), (now, _) in zip(given, got.tensors, strict=True)]
    many = isinstance(expected.returns, tuple | list) and isinstance(got.returned, tuple | list)
    found += zip(got.returned, expected.returns, strict=False) if many else [(got.returned, expected.returns)]
    return [(a, b) for a, b in found if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)]


def _part_of_complex(found: torch.Tensor, right: torch.Tensor) -> str | None:
    """What real numbers are of the complex ones that they stand for."""
    if found.shape == (*right.shape, 2):
        return CommonMistake.PAIRS_OF_REALS
    if found.shape != right.shape or not found.numel():
        return None
    for part, cause in ((right.real, CommonMistake.REAL_PART), (right.abs(), CommonMistake.ABSOLUTE)):
        if torch.allclose(found.double(), part.double(), rtol=1e-4, atol=1e-5):
            return cause
    return None


def _dtype_mistake(
    fault: ResultFault, inputs: Sequence[View], outputs: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> str | None:
    found, expected = fault.dtype_found, fault.dtype_expected
    if expected is torch.int64 and not any(view.base.dtype == torch.int64 for view in inputs):
        return None  # counts and indices have a dtype of their own
    if expected is not None and found is not None and expected.is_complex and found.is_floating_point:
        pair = next(((a, b) for a, b in outputs if b.is_complex() and a.is_floating_point()), None)
        return (_part_of_complex(*pair) if pair else None) or CommonMistake.OTHER_DTYPE
    return CommonMistake.OTHER_DTYPE


def _result_not_written(
    run: Run, faults: Sequence[ResultFault], got: Result, expected: Expected, outputs: list
) -> str | None:
    """For a function that works in place: the result is nowhere in the tensor, or on one rank only."""
    call, path = faults[0].call, outputs[0][0]
    if not all(now is not None and compare.same(now, view.tensor()) for _, view, now in outputs):
        return None
    silent = [] if run.collectives else [f.rank for f in faults if not evidence.received_by(run, f.rank)]
    if silent and run.sends:
        return f"{name_ranks(silent)} received nothing"
    if isinstance(got.returned, torch.Tensor):
        if compare.difference(got.returned, expected.changed[path], expected.atol) is None:
            return CommonMistake.RETURNED_NOT_COPIED
    if isinstance(expected.returns, torch.Tensor | tuple | list | int | float):
        return None  # it has to return something too, and that may be what is wrong
    if len(faults) == run.ranks and all(_left_unchanged(run, fault) for fault in faults):
        moved = [e.numel for e in (*run.sends, *run.collectives)] + [op.numel for op in run.outcome.accesses]
        if moved and not any(moved) and run.setup.size:
            return CommonMistake.EMPTY_MESSAGES
        if moved:
            return CommonMistake.NOTHING_CHANGED
        return CommonMistake.NO_MESSAGE if run.exercise.allow else CommonMistake.NOTHING_PUT
    if run.ranks > 2 and len(faults) == run.ranks - 1:
        right = next(r for r in range(run.ranks) if r not in {f.rank for f in faults})
        if (run.sends or run.collectives) and _result_equals_input(run, call, right):
            return CommonMistake.NOTHING_CHANGED
        return f"only rank {right} has the result: every rank must end with it"
    return None


def _value_mistake(run: Run, got: Result, expected: Expected, outputs: list) -> str | None:
    pairs = [(now, expected.changed[path]) for path, _, now in outputs if isinstance(now, torch.Tensor)]
    if isinstance(expected.returns, torch.Tensor) and isinstance(got.returned, torch.Tensor):
        pairs.append((got.returned, expected.returns))
    # of several outputs the first may be right, up to rounding
    pairs = [pair for pair in pairs if compare.difference(*pair, expected.atol) is not None]
    items = got.returned if isinstance(got.returned, list | tuple) else []
    if any(isinstance(one, torch.Tensor) and holds_poison(one) for one in [*(one for one, _ in pairs), *items]):
        return CommonMistake.READ_EARLY
    if not pairs:
        return None
    found, right = pairs[0]
    strange = _not_finite(found, right, expected.atol)
    if strange is not None:
        return strange
    if found.numel() > 1 and _is_cut(found, right):
        return CommonMistake.WHOLE_NUMBERS
    narrow = evidence.narrower_dtype(run, right.dtype)
    if narrow is not None and _near_enough(found, right, _error_of(narrow)):
        return f"{NARROWER}: {narrow.dtype} on the wire{run.at(narrow.line)}"
    if _right_to_half_the_bits(found, right):
        single = found.dtype in (torch.float32, torch.complex64)
        return CommonMistake.LESS_PRECISE_SINGLE if single else CommonMistake.LESS_PRECISE_DOUBLE
    return None


def _is_cut(found: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether whole numbers stand where the right ones have fractions; a right one that was rounded may be a whole one itself."""
    if not found.is_floating_point() or found.shape != right.shape or torch.equal(right, right.floor()):
        return False
    off = right.double() - found.double()
    near = torch.finfo(found.dtype).eps * right.double().abs()
    # zeros alone may come of anything
    return bool(found.any()) and torch.equal(found, found.floor()) and bool(((off >= -near) & (off < 1)).all())


def _not_finite(found: torch.Tensor, right: torch.Tensor, atol: Any) -> str | None:
    """Whether all that is wrong is NaN, or infinite, where the right numbers are finite."""
    differs = compare.difference(found, right, atol)
    if differs is None or differs.kind is not FaultKind.VALUES or not found.is_floating_point():
        return None
    wrong, wanted = (t.reshape(-1)[torch.tensor(differs.wrong)] for t in (found, right))
    if not bool(wanted.isfinite().all()):
        return None
    if bool(wrong.isnan().all()):
        return CommonMistake.NOT_A_NUMBER
    return CommonMistake.INFINITE if bool(wrong.isinf().all()) else None


def _never_received(run: Run, faults: Sequence[ResultFault]) -> str | None:
    """Whether all that is wrong are zeros in place of other ranks' elements, and no message brought those."""
    zeros = [_zero_for(run, fault) for fault in faults]
    if any(lacked is None for lacked in zeros):
        return None
    if all(_had_it(run, fault) for fault in faults):
        return CommonMistake.OWN_ZERO
    for fault, lacked in zip(faults, zeros, strict=True):
        brought = evidence.brought(run, fault.call, fault.rank)
        if lacked is None or brought is None or _had_it(run, fault):
            return None
        others = [a for rank, a in enumerate(run.args[fault.call]) if rank != fault.rank]
        values = [plain(view).reshape(-1) for args in others for _, view in views(args)]
        given = [v.double() for v in values if not v.is_complex()]
        if not given or not bool(torch.isin(lacked, torch.cat(given)).all()) or bool(torch.isin(lacked, brought).any()):
            return None
    return CommonMistake.SOME_ZERO


def _had_it(run: Run, fault: ResultFault) -> bool:
    """Whether the tensors that this rank must end with are those that it was given."""
    expected = run.expected[fault.call][fault.rank]
    return bool(expected.changed) and _result_equals_input(run, fault.call, fault.rank)


def _zero_for(run: Run, fault: ResultFault) -> torch.Tensor | None:
    """What the rank's wrong elements must hold, if all of them are zero; None if one is wrong in another way."""
    got, expected = run.results[fault.call][fault.rank], run.expected[fault.call][fault.rank]
    if got is None or fault.kind is not FaultKind.VALUES or isinstance(expected.returns, tuple | list):
        return None
    pairs = [] if expected.returns is None else [(got.returned, expected.returns)]
    for (path, _), (now, _) in zip(views(run.args[fault.call][fault.rank]), got.tensors, strict=True):
        if path in expected.changed:
            pairs.append((now, expected.changed[path]))
    lacked = []
    for found, right in pairs:
        differs = compare.difference(found, right, expected.atol)
        if differs is None:
            continue
        if differs.kind is not FaultKind.VALUES or not isinstance(found, torch.Tensor) or found.is_complex():
            return None
        wrong = torch.tensor(differs.wrong)
        if found.numel() < 2 or bool(found.reshape(-1)[wrong].any()):
            return None
        lacked.append(right.reshape(-1)[wrong].double())
    return torch.cat(lacked) if lacked else None


def _result_equals_input(run: Run, call: int, rank: int) -> bool:
    """Whether the expected result equals the input."""
    changed = run.expected[call][rank].changed
    return all(
        compare.same(changed[path], view.tensor()) for path, view in views(run.args[call][rank]) if path in changed
    )


def _left_unchanged(run: Run, fault: ResultFault) -> bool:
    """Whether the tensors that this rank must change are as they were."""
    got, given = run.results[fault.call][fault.rank], run.args[fault.call][fault.rank]
    changed = run.expected[fault.call][fault.rank].changed
    if got is None:
        return False
    return all(
        now is not None and compare.same(now, view.tensor())
        for (path, view), (now, _) in zip(views(given), got.tensors, strict=True)
        if path in changed
    )


def _right_to_half_the_bits(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether the error is as small as rounding to half the bits would make it."""
    eps = {
        torch.float64: 1e-6,
        torch.complex128: 1e-6,
        torch.int64: 1e-6,
        torch.float32: 5e-3,
        torch.complex64: 5e-3,
    }.get(got.dtype)
    if eps is None or got.numel() < 2 or (got.dtype == torch.int64 and int(wanted.abs().max()) < 1 << 24):
        return False
    return _near_enough(got, wanted, eps) and _near_each(got, wanted, eps)


def _near_each(got: torch.Tensor, wanted: torch.Tensor, eps: float) -> bool:
    """Whether most of the wrong elements are near their own right value: a term that is missing is as large for small ones."""
    found, right = (t.to(torch.complex128).reshape(-1) for t in (got, wanted))
    wrong = found != right
    near = (found - right).abs()[wrong] <= 2 * eps * right.abs()[wrong]
    return 2 * int(near.sum()) > len(near)


def _error_of(sent: LogEntry) -> float:
    """How far a result may be off that some additions in the message's dtype have rounded, relative to the largest value."""
    kind = getattr(torch, str(sent.dtype))
    return min(_NARROW, 1000 * torch.finfo(kind).eps) if kind.is_floating_point or kind.is_complex else _NARROW


def _near_enough(got: torch.Tensor, wanted: torch.Tensor, eps: float) -> bool:
    """Whether no error is larger than `eps` times the largest value."""
    if not got.numel() or got.shape != wanted.shape:
        return False
    error = (got.to(torch.complex128) - wanted.to(torch.complex128)).abs().max()
    return bool(error <= eps * wanted.to(torch.complex128).abs().max())


def _remainders_left_out(run: Run, faults: Sequence[ResultFault]) -> list[str]:
    """The counts that the size is taken to be a multiple of: p, the ranks of a node, the number of segments, or 2."""
    segments, in_node = run.setup.option("segments"), run.setup.option("ranks_per_node")
    counts = {"segments": segments} if segments else {"p": run.ranks} | ({"ranks_per_node": in_node} if in_node else {})
    named = {"p": "the number of ranks", "segments": "the number of segments"}
    if run.ranks < 2 or (run.ranks > 2 and len(faults) == 1):
        return []
    found = [
        f"the elements beyond the last whole multiple of {what} were left out: "
        f"the size need not be a multiple of {named.get(what, what)}"
        for what, count in counts.items()
        if all(_left_out(run, fault, count) for fault in faults)
    ]
    if 2 not in counts.values() and all(_left_out(run, fault, 2) for fault in faults):
        found.append("the last element was left out: the size need not be even")
    return found


def _left_out(run: Run, fault: ResultFault, count: int) -> bool:
    """Whether only the elements beyond the last whole multiple of `count` are wrong, and they are as they were."""
    got, wanted = run.results[fault.call][fault.rank], run.expected[fault.call][fault.rank]
    if fault.kind is not FaultKind.VALUES or got is None or (0,) not in wanted.changed or not got.tensors:
        return False
    if compare.difference(got.returned, wanted.returns, wanted.atol) is not None:
        return False  # what it returned is wrong, and no element
    if not run.collectives and not run.outcome.accesses and not evidence.received_by(run, fault.rank):
        return False
    now, before = got.tensors[0][0], plain(run.args[fault.call][fault.rank][0])
    if now is None or now.shape != before.shape or now.dtype != before.dtype:
        return False
    found, right, old = now.reshape(-1), wanted.changed[0,].reshape(-1), before.reshape(-1)
    whole = len(found) // count * count
    if whole in (0, len(found)) or torch.equal(found[whole:], right[whole:]):
        return False
    return torch.equal(found[:whole], right[:whole]) and torch.equal(found[whole:], old[whole:])


# ------------------------------------------------------------------------------------------ what failures share


def _dtypes_property(right: Sequence[Setup], wrong: Sequence[Setup]) -> str:
    """What is said of dtypes: only what was tried."""
    tried = {s.dtype for s in wrong}
    others = {s.dtype for s in right} - {"float32"}
    if others or "float32" in tried:
        return ""
    *first, last = sorted(tried)
    if not first:
        return f"Results are only wrong in {last}."
    return f"Results are right in float32, and wrong in {', '.join(first)} and {last}."


def common_properties(
    found: Sequence[tuple[Setup, bool]], unit: str = "element"
) -> list[tuple[str, Callable[[Setup], bool] | None]]:
    """What all failing cases have and no passing one has: sentences with a space behind them, the likeliest first.

    `unit` is what the size counts: that ranks divide it says something only of the elements of one tensor.

    With each comes what it says of a setup that must fail, if more setups must be tried before it is said.
    """
    counted = [(setup, passed) for setup, passed in found if setup.earns_credit]
    right = [setup for setup, passed in counted if passed]
    wrong = [setup for setup, passed in counted if not passed]
    if len(right) < 2 or not wrong:
        return []
    fitting: list[tuple[str, Callable[[Setup], bool] | None]] = [
        (f"{sentence} ", holds if must_be_tried else None)
        for sentence, holds, must_be_tried in _PROPERTIES
        if all(not holds(s) for s in right)
        and all(holds(s) for s in wrong)
        and (unit == "element" or holds not in (_has_a_rest, _has_rows_left))
    ]
    if any(passed and setup.ranks == 1 for setup, passed in found):
        fitting = [(said.replace("for two ranks", "for one or two ranks"), holds) for said, holds in fitting]
    about_dtypes = _dtypes_property(right, wrong)
    if about_dtypes:
        fitting.append((f"{about_dtypes} ", None))
    if not fitting and {s.ranks for s in right} == {4} and any(s.ranks != 4 for s in wrong):
        fitting.append((f"{_ONLY_FOUR} ", None))
    return fitting


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _has_a_rest(setup: Setup) -> bool:
    return not setup.divides


def _has_rows_left(setup: Setup) -> bool:
    return not setup.divides_rows


_ONLY_FOUR = (
    "Results are only right for p = 4: does a number stand where the world size, or what follows from it, must stand?"
)
# a sentence, what it says of a case that must fail, and whether more cases must be tried before it is said
_PROPERTIES: tuple[tuple[str, Callable[[Setup], bool], bool], ...] = (
    (
        "Results are only right if the number of nodes equals the number of ranks per node.",
        lambda s: s.option("ranks_per_node", 0) ** 2 not in (0, s.ranks),
        False,
    ),
    ("Results are only right if the number of ranks divides the size.", _has_a_rest, True),
    ("Results are only right if the number of ranks divides the number of rows.", _has_rows_left, True),
    (_ONLY_FOUR, lambda s: s.ranks != 4, True),
    ("Results are only right for two ranks.", lambda s: s.ranks > 2, True),
    ("Results are only right if the number of ranks is a power of two.", lambda s: not _is_power_of_two(s.ranks), True),
    ("Results are only right if the number of ranks is even.", lambda s: s.ranks % 2 == 1, True),
    ("Results are only right for at most 8 ranks: go on until all ranks are reached.", lambda s: s.ranks > 8, True),
    ("Results are only wrong with a transposed, so non-contiguous, tensor.", lambda s: s.layout == "transposed", False),
    ("Results are only wrong with non-contiguous tensors.", lambda s: s.layout in ("strided", "transposed"), False),
    ("Results are only wrong with tensors that are windows on larger ones.", lambda s: s.layout != "contiguous", False),
    (
        "Results are only wrong the second time in a row: something is left over from the first call.",
        lambda s: s.times > 1,
        False,
    ),
    (
        "Results are only wrong as part of a larger job: ask dist.get_rank(), not the environment.",
        lambda s: s.outer_world,
        False,
    ),
    ("Results are only right with root 0.", lambda s: bool(s.root), False),
    ("Results are only wrong when messages are delayed.", lambda s: s.delivery == "shuffled", False),
)

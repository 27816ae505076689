"""Every cause that a verdict can name: its code, and the words of those that have words of their own.

To add a cause, add a code and its words here, and what finds it: `wrong_result.py` where one rank's result shows it, `patterns.py` where
the results of all ranks do, `shared.py` where all failing cases do, `failed_run.py` where the run itself failed. The codes whose words are
empty or "{short}" get them from who finds them: rules, origins, failed runs and exercises. Programs compare causes and codes, never words: a
sentence may change, or be in another language.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, unique
from typing import Any, NamedTuple

from allranks.base.errors import name_ranks
from allranks.ranks.wire import FailureKind
from allranks.ranks.wire.failures import DeadlockCause

UNREADABLE = "the code can't be read"
UNWRITTEN = "not written yet"


@unique  # two codes with the same words would be one
class Code(Enum):
    """What went wrong, whatever the ranks, lines and sizes: the mistake in a few words, and what else is to be said of it.

    {names} in the words are fields of the cause. Programs compare the members; another language is another table of words by member.
    """

    NOT_RUN = "not run", ": the time for this check is used up"
    NOT_RUN_BECAUSE = "not run", ", because of this: {because}"
    NOT_JUDGED = "not judged", ": a case with several ranks must pass first"
    FAILURE = "the run failed", ""  # of the run: its kind is a field
    WRITES_FILES = "writes files", ""
    RULE = "breaks the rule: {rule}", ""  # broken: its name is a field
    RESULT = "wrong results", ""  # wrong, and nothing is known of it but how
    ORIGIN = "wrong values", ""  # where the wrong values came from
    SHARED_MEMORY = "{short}", "{rest}", ""
    OWN = "{short}", "{rest}"  # a known mistake of the exercise
    OWN_ON_SOME = "{short}", "{rest}", "on some ranks only: "  # the same, which fits the wrong ranks only
    EITHER = "probably {first}", "; or {second}"
    # mistakes that look the same in every exercise
    NOTHING_RETURNED = "nothing was returned", ""
    PAIRS_OF_REALS = (
        "pairs of reals came back",
        ": take the complex tensor itself, not the tensor in a future, or use view_as_complex",
    )
    REAL_PART = "the imaginary part is lost", ": a complex tensor became a real one"
    ABSOLUTE = "absolute values came back", ": keep the complex numbers themselves"
    OTHER_DTYPE = "the dtype was promoted or narrowed", ": results keep the dtype of the input"
    OTHER_SHAPE = "the elements are right, and in the right order, but not their shape", ": reshape them"
    INPUT_CHANGED = (
        "an input was overwritten",
        ": work on a copy (tensor.clone()), and write only where the contract says so",
    )
    LIST_CHANGED = (
        "the items of an argument were changed",
        ": a list or dict that you are given stays as it is, so make one of your own",
    )
    OTHER_MEMORY = (
        "this function works in place",
        ": write into the tensor (copy_); .data = and set_ give it other memory instead",
    )
    CHANGED_LATER = (
        "the function keeps the memory that it returned",
        " (a buffer) and uses it again: return a new tensor, or a copy",
    )
    RETURNED_NOT_COPIED = (
        "the right result was returned, but this function works in place",
        ": copy it into the tensor (copy_)",
    )
    NO_GRADIENT = (
        "no gradient arrived at {names}",
        ": the result has no way back to it, as if detached or made without autograd, or a backward() returned none for it",
    )
    NOTHING_CHANGED = (
        "nothing changed",
        ": the function must write its result into the tensor (copy_), not into a new one; or what it wrote is what was there",
    )
    EMPTY_MESSAGES = (
        "nothing changed, and each message was empty",
        ": with fewer elements than ranks n // p is 0, so cut off ceil(n / p) elements, or pad",
    )
    NARROWER_ON_WIRE = "right only to the precision of a narrower dtype", ": {dtype} on the wire{at}"
    LESS_PRECISE = (
        "right only to the precision of a narrower dtype",
        ": the messages had the right one, so the loss was not on the wire; there was a cast before or after, such as to {narrower}{more}",
    )
    READ_EARLY = (
        "a buffer was read before wait()",
        ": what is to be received is not in it until then, so wait first and use it afterwards",
    )
    SOME_ZERO = "some elements are still zero", ": that part was never received"
    WHOLE_NUMBERS = "rounded down to whole numbers", ": divide with /, and keep the tensor's dtype on the way"
    NO_MESSAGE = "no rank sent a message", ""
    NOTHING_PUT = "no rank put or got anything", ": the data must go through the memory"
    NOT_A_NUMBER = "NaN came out, as of 0/0, of infinity minus infinity or of zero times infinity", ""
    INFINITE = (
        "infinity came out",
        ": a number was too large for its dtype, as of exp or of a product, or was divided by zero, or zero's logarithm was taken",
    )
    OWN_ZERO = "some elements are zero now, though the rank had the right ones before", ": it must keep them"
    RECEIVED_NOTHING = "{ranks} received nothing", ""
    ONLY_ONE_HAS_IT = "only {ranks} has the result", ": every rank must end with it"
    REST_LEFT_OUT = (
        "the elements beyond the last whole multiple of {what} were left out",
        ": the size need not be a multiple of {named}",
    )
    LAST_LEFT_OUT = "the last element was left out", ": the size need not be even"
    INPUT_BACK = (
        "the rank's own input came back",
        ": nothing was exchanged or computed, or what came of it was not returned",
    )
    OWN_ONLY = "each rank's result is of its own arguments only", ": nothing of the other ranks is in it"
    OWN_ONLY_TIMES = (
        "each rank's result is {value} times that of its own arguments",
        ": nothing of the other ranks is in it",
    )
    OF_ANOTHER_RANK = "each rank r ends with what {other} must have", ": it must end with what rank r must have"
    ZERO_RETURNED = "0 came back", ": another number is right, on every rank"
    OTHER_ORDER = (
        "the pieces are right, but not in the order of ranks",
        ": {order}, and place i must hold the piece of rank i",
    )
    FACTOR = "{thing} {value} times the right one on every rank", ""
    FACTOR_NAMED = "{thing} {value} times the right one on every rank", ": {meaning}"
    FACTOR_OF_ONE = "{thing} {value} times the right one on every rank", " (for p = {p})"
    # what all failing cases have in common
    NODES_EQUAL = "results are only right if the number of nodes equals the number of ranks per node", "."
    DIVIDES_SIZE = "results are only right if the number of ranks divides the size", "."
    DIVIDES_ROWS = "results are only right if the number of ranks divides the number of rows", "."
    ONLY_FOUR = (
        "results are only right for p = 4",
        ": does a number stand where the world size, or what follows from it, must stand?",
    )
    ONLY_TWO = "results are only right for two ranks", "."
    ONLY_ONE_OR_TWO = "results are only right for one or two ranks", "."
    POWER_OF_TWO = "results are only right if the number of ranks is a power of two", "."
    EVEN = "results are only right if the number of ranks is even", "."
    AT_MOST_EIGHT = "results are only right for at most 8 ranks", ": go on until all ranks are reached."
    TRANSPOSED = "results are only wrong with a transposed, so non-contiguous, tensor", "."
    STRIDED = "results are only wrong with non-contiguous tensors", "."
    WINDOWS = "results are only wrong with tensors that are windows on larger ones", "."
    SECOND_TIME = "results are only wrong the second time in a row", ": something is left over from the first call."
    LARGER_JOB = "results are only wrong as part of a larger job", ": ask dist.get_rank(), not the environment."
    ROOT_ZERO = "results are only right with root 0", "."
    DELAYED = "results are only wrong when messages are delayed", "."
    DTYPE = "results are only wrong in {last}", "."
    DTYPES = "results are right in float32, and wrong in {first} and {last}", "."


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
_RESULTS: dict[str, str] = {  # what is wrong with a result, by its FaultKind
    "returned": "returns something of another kind",
    "dtype": "wrong dtype",
    "shape": "wrong shape",
    "values": "wrong values",
    "input changed": "changes its input",
    "list changed": "changes a list of the caller's",
    "other memory": "puts the result into other memory",
    "wrote beside": "writes beside its tensor",
    "computed": "computes with wrong weights",
    "changed later": "a later call changes the result",
}


@dataclass(frozen=True)
class Cause:
    """Why a case failed: a `code`, and the `fields` that its words name. Equal causes are equal mistakes.

    `ranks` are those that the cause is about, where it is about some of them. One that is not `sure` is one of two that nothing tells
    apart.

    >>> cause(Code.RECEIVED_NOTHING, ranks=(1, 2)).sentence
    'ranks 1 and 2 received nothing'
    """

    code: Code
    fields: tuple[tuple[str, Any], ...] = ()
    ranks: tuple[int, ...] = ()
    sure: bool = True

    def field(self, name: str) -> Any:
        """The value of a field; None if the cause has no such field."""
        return dict(self.fields).get(name)

    def with_fields(self, **fields: Any) -> Cause:
        """The same cause with more fields."""
        return Cause(self.code, (*self.fields, *fields.items()), self.ranks, self.sure)

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What a class overview counts by: the code, and the fields that are codes themselves, without ranks, lines and sizes."""
        if self.code is Code.EITHER:
            return (self.code, *self.field("first").key)
        return (self.code, *(value for name, value in self.fields if name in _IN_KEY and value is not None))

    @property
    def _words(self) -> list[str]:
        """Its words: the mistake, what else is to be said, and what may come before."""
        given = {"ranks": name_ranks(self.ranks) if self.ranks else "", **dict(self.fields)}
        return [part.format_map(given) for part in self.code.value]

    @property
    def sentence(self) -> str:
        """The whole of it, without a capital letter and a full stop."""
        short, rest, *before = self._words
        return "".join((*before, short, rest))

    def __str__(self) -> str:
        return self.sentence

    @property
    def short(self) -> str:
        """The mistake in a few words: equal for equal mistakes."""
        match self.code:
            case Code.FAILURE:
                return _failure_in_short(self)
            case Code.RESULT:
                return _RESULTS[self.field("seen")]
            case Code.EITHER:
                return self.field("first").short
            case Code.OWN_ON_SOME:
                return f"{self._words[0]}, on some ranks only"
        return self.field("kind") or self._words[0]

    def brief(self, told: bool) -> str:
        """The mistake in words that are whole; if the cause is not `told`, only what was seen of it, as above the folded cause.

        >>> cause(Code.RULE, rule="at most min(p, m) activations kept").brief(told=True)
        'breaks the rule: at most min(p, m) activations kept'
        """
        if self.code is Code.FAILURE:
            return "deadlock" if self.field("failed") is FailureKind.DEADLOCK else self.short
        if self.code in (Code.RULE, Code.ORIGIN):
            return self._words[0]
        if self.field("seen") is None:
            return "not yet"
        return ("" if self.sure else "probably ") + self.short if told else _RESULTS[self.field("seen")]


_IN_KEY = frozenset({"failed", "waits", "error", "op", "misuse", "nccl", "rule", "kind", "seen", "number", "exercise"})


def cause(code: Code, *, ranks: tuple[int, ...] = (), sure: bool = True, **fields: Any) -> Cause:
    """A cause with these fields."""
    return Cause(code, tuple(fields.items()), ranks, sure)


class Clause(NamedTuple):
    """A text in two parts: up to its first colon, semicolon, bracket or relative clause, and from there."""

    short: str
    rest: str


def clause(text: str) -> Clause:
    """The text of somebody else, such as an exercise, in two parts.

    >>> clause("the sum instead of the mean: divide by p")
    Clause(short='the sum instead of the mean', rest=': divide by p')
    """
    end = re.search(r"[:;]| \(|, which |$", text)
    return Clause(text[: end.start()], text[end.start() :]) if end else Clause(text, "")


def _failure_in_short(found: Cause) -> str:
    failed, error, op = found.field("failed"), found.field("error"), found.field("op")
    match failed:
        case FailureKind.DEADLOCK:
            return _DEADLOCKS.get(found.field("waits"), _FAILURES[failed])
        case FailureKind.FORBIDDEN_OP if op:
            return f"calls {op}, which is forbidden"
        case FailureKind.EXCEPTION if found.field("unwritten"):
            return UNWRITTEN
        case FailureKind.EXCEPTION if error:
            return f"raises {error}"
    return _FAILURES.get(failed, str(failed))

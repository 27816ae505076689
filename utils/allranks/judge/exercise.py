"""What an exercise is: its cases, inputs, oracle, rules and known mistakes; and what one run of a case gave."""

from __future__ import annotations

import functools
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import ModuleType
from typing import Any

import torch

from allranks.base.variants import Variant
from allranks.judge.cases import Args, Expected, Inputs, Oracle, Setup, View, views
from allranks.ranks.wire import Failure, LogEntry, MemoryOp, Outcome
from allranks.ranks.wire.messages import POINT_TO_POINT, FileWritten, OpKind
from allranks.ranks.wire.wait import named
from allranks.theory import schedules
from allranks.theory.schedules import Schedule
from allranks.theory.trace import Event

P2P = POINT_TO_POINT
P2P_ONLY = "Write it with send, recv, isend, irecv or batch_isend_irecv."
COLLECTIVES = frozenset(
    {"broadcast", "all_reduce", "reduce", "gather", "scatter", "all_gather", "all_gather_into_tensor", "reduce_scatter"}
    | {"reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier"}
)


@dataclass(frozen=True)
class Group:
    """Cases that show one property, such as "any size", and what it counts for in the score."""

    name: str
    weight: float
    setups: tuple[Setup, ...]


@dataclass(frozen=True)
class Rule:
    """A property of the messages, checked on every run whose result is right.

    `breach(run)` says how the run breaks the rule, without a full stop, or is None. `applies(setup)` says which cases
    the rule is for. An answer that breaks an `essential` rule earns nothing: its data did not come by messages. `part(run)`, from
    0 to 1, is what a run that breaks the rule earns of it all the same.
    """

    name: str
    weight: float
    breach: Callable[[Run], str | None]
    applies: Callable[[Setup], bool] = lambda setup: setup.ranks > 1
    essential: bool = False
    part: Callable[[Run], float] = lambda run: 0.0


Holds = Callable[["Run"], bool]
# what a mistake leaves on every rank, whether a run's log allows it, and whether no rank is right then
Told = Oracle | tuple[Oracle, Holds] | tuple[Oracle, Holds, bool]
Mistakes = Mapping[str, Told | list[Told]]  # typical mistakes by their words; a list has several results of one


@dataclass(frozen=True)
class Mistake:
    """One result of a typical mistake: `oracle` computes what it would leave on every rank. The `number` is the mistake's.

    `holds(run)` says whether the run's log allows it: a cause that the log contradicts must not be said. One that shows `everywhere`
    was not made if a rank is right.
    """

    cause: str
    number: int
    oracle: Oracle
    holds: Holds = lambda run: True
    everywhere: bool = False


def each_of(mistakes: Mistakes) -> Iterator[Mistake]:
    """Every result of these mistakes.

    >>> [mistake.number for mistake in each_of({"twice": [lambda s, a: [], lambda s, a: []], "never": lambda s, a: []})]
    [0, 0, 2]
    """
    number = 0
    for cause, told in mistakes.items():
        results = told if isinstance(told, list) else [told]
        for one in results:
            yield Mistake(cause, number, *(one if isinstance(one, tuple) else (one,)))
        number += len(results)


YOUR_VARIANT = "your variant"  # what names of groups and rules begin with that are there for a variant


@dataclass(frozen=True)
class Variants:
    """What may differ from student to student: `choices` of each value, and `make(exercise, values)`, the exercise with them.

    `brief` says the values in a few words and `words` what the student must do, both with {names} of values. The groups and rules
    that `make` adds have names that begin with YOUR_VARIANT.
    """

    choices: tuple[tuple[str, tuple[int, ...]], ...]
    brief: str
    words: str
    make: Callable[[Exercise, Mapping[str, int]], Exercise]


@dataclass(frozen=True)
class Exercise:
    """One exercise. `promise` is what the function must do, in a sentence; `unit` is what `Setup.size` counts.

    `won` is what a right answer has reached where its rules ask for the least there is; without it the verdict says the promise.
    """

    name: str
    promise: str
    groups: tuple[Group, ...]
    inputs: Inputs
    oracle: Oracle
    allow: frozenset[str]  # operations; any other ends the run
    rules: tuple[Rule, ...] = ()
    mistakes: Mistakes = field(default_factory=dict, hash=False)
    explain: Callable[[Run, ResultFault], str | None] | None = None  # a wrong result, by provenance; no full stop
    demo_setup: Setup = field(default_factory=lambda: Setup(4, 12, dtype="float64", values="provenance"))
    unit: str = "element"
    root_name: str = "root"
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)  # of options that are no arguments, in words
    collective: str | None = None
    algorithm: str | None = None
    chunking: str = "none"  # how the trace numbers chunks: "split" the vector in p, "rank" one a rank, "none"
    comparable: bool = (
        True  # whether the schedule of that collective and algorithm does all of its work, and nothing else
    )
    blocking_weight: float = 0.0  # what it counts to be right when every send waits for its receiver
    forbidden_advice: str = ""  # what to use instead of a forbidden operation, where it is not messages
    peer_advice: str = ""  # what to do where there is no such rank
    call_advice: Callable[[Run], str] = lambda run: ""  # where ranks call different collectives: what it may come from
    empty_advice: str = ""  # what to do about a message without elements that one end has, and the other has not
    # on an index that is behind a dimension of this size
    index_advice: Callable[[Run, int, int], str] = lambda run, index, size: ""
    own_rank_advice: str = "What a rank would send to itself it has already: copy the tensor."
    won: str = ""
    only_sums: bool = False  # every collective that reduces must add (SUM or AVG)
    variants: Variants | None = None  # what a course may draw for each student
    variant: Variant | None = None  # what was drawn; None: the exercise as it is for everybody

    def __post_init__(self) -> None:
        if not isinstance(self.mistakes, Mapping):
            raise TypeError(f"{self.name}: mistakes are a table, such as {{'the sum came back': returning(make)}}")

    @functools.cached_property
    def arguments(self) -> tuple[str, ...]:
        """The names of the function's arguments, from the head of the file that holds it; () where that does not begin with the call."""
        files = [vars(module) for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
        held = [file for file in files if getattr(file.get("EXERCISE"), "name", None) == self.name]
        calls = [re.match(rf"{re.escape(self.name)}\(([\w, ]*)\)", file.get("__doc__") or "") for file in held]
        return next((tuple(found[1].split(", ")) for found in calls if found), ())

    @functools.cached_property
    def known(self) -> tuple[Mistake, ...]:
        """Every result that a mistake may leave."""
        return tuple(each_of(self.mistakes))

    def schedule(self, setup: Setup) -> Schedule | None:
        """How the messages of a right answer may go, as a schedule; None where the course has none that does all of the work."""
        if not self.comparable:
            return None
        try:
            known = schedules.describe(self.collective or "", self.algorithm or "")
        except schedules.ScheduleError:
            return None
        given = {"root": setup.root, "segments": setup.option("segments")}
        given["ranks_per_node"] = setup.option("ranks_per_node")
        return known.build(setup.ranks, **{k: v for k, v in given.items() if k in known.options and v is not None})

    def vector_nbytes(self, setup: Setup, args: Sequence[Args]) -> int | None:
        """The bytes of all chunks of the schedule together; None where there is no schedule."""
        if self.schedule(setup) is None:
            return None
        each = [sum(view.tensor().nbytes for _, view in views(own[0])) for own in args]
        return sum(each) if self.collective in ("all_gather", "all_to_all") else max(each)

    @property
    def instead(self) -> str:
        """What to use instead of a forbidden operation; "" where nothing is said of it."""
        return self.forbidden_advice or (P2P_ONLY if self.allow == P2P else "")

    @property
    def counts_each_rank(self) -> bool:
        """Whether the size of a case is that of one rank, such as tokens a rank."""
        return self.unit.split()[1:] == ["a", "rank"]

    def label(self, setup: Setup) -> str:
        """The case in words, as the student reads it."""
        return setup.label(self.unit, self.root_name, self.labels)

    def simplest_first(self, setup: Setup) -> tuple:
        """A key that sorts setups: small and plain ones first."""
        special = [name for name, _ in setup.options if name in self.labels]
        unusual = (
            *(True for _ in special),
            setup.dtype != "float32",
            setup.layout != "contiguous",
            setup.times > 1,
            setup.outer_world,
            setup.delivery != "rendezvous",
        )
        return (not setup.earns_credit, sum(unusual), setup.ranks, setup.size, setup.root or 0)


@dataclass(frozen=True)
class Result:
    """What one rank ended with after one call: the value it returned, and (values, storage) of each tensor argument.

    `lists` are the places of the arguments that are lists or dicts and hold something else now.
    """

    returned: Any
    tensors: tuple[tuple[torch.Tensor | None, torch.Tensor], ...]
    lists: tuple[int, ...] = ()


class About(str):
    """Words on a run that keep the operation which they are about: its line is the one to blame, and its message is drawn.

    `sent` and `expected` say in few words what the message carried and what it must carry, where that is the mistake.
    `kind` names the mistake, without ranks and lines: a class overview counts by it.
    """

    entry: LogEntry | FileWritten | Event | MemoryOp | None
    sent: str
    expected: str
    kind: str

    def __new__(
        cls,
        words: str,
        entry: LogEntry | FileWritten | Event | MemoryOp | None,
        sent: str = "",
        expected: str = "",
        kind: str = "",
    ) -> About:
        made = super().__new__(cls, words)
        made.entry, made.sent, made.expected, made.kind = entry, sent, expected, kind
        return made


def kind_of(words: str) -> str:
    """The kind of mistake that the words are about; "" if they name none."""
    return getattr(words, "kind", "")


def in_place_of(words: str, by: str) -> str:
    """The text `by`, about the same operation as `words`."""
    return About(by, words.entry, words.sent, words.expected, words.kind) if isinstance(words, About) else by


class FaultKind(StrEnum):
    """What can be wrong with one rank's result."""

    RETURNED = "returned"  # nothing, or something of another type
    DTYPE = "dtype"
    SHAPE = "shape"
    VALUES = "values"
    INPUT_CHANGED = "input changed"
    LIST_CHANGED = "list changed"
    OTHER_MEMORY = "other memory"  # the tensor was given other memory than the caller's
    WROTE_BESIDE = "wrote beside"  # the window, in the same memory
    COMPUTED = "computed"  # with other weights than the block's
    CHANGED_LATER = "changed later"  # a right result, by the next call


@dataclass(frozen=True)
class ResultFault:
    """The first thing wrong with one rank's result. `sentence` has no full stop; programs read the other fields.

    `part` is the name of the part that is wrong, where the parts have names.
    """

    kind: FaultKind
    rank: int
    call: int
    sentence: str
    wrong: tuple[int, ...] = ()  # flat indices of wrong elements
    dtype_found: torch.dtype | None = None
    dtype_expected: torch.dtype | None = None
    part: str = ""


@dataclass(frozen=True)
class Run:
    """One run of a case: what each rank was given, what it must end with and did end with, and the wire's outcome."""

    exercise: Exercise
    setup: Setup
    args: tuple[tuple[Args, ...], ...]  # [call][rank]
    expected: tuple[tuple[Expected, ...], ...]
    results: tuple[tuple[Result | None, ...], ...]
    outcome: Outcome
    delivery: str
    where: Callable[[int], str] = lambda line: f"line {line}"
    later: tuple[tuple[Result | None, ...], ...] = ()  # the same of all calls but the last, once that one is over

    @property
    def ranks(self) -> int:
        return self.setup.ranks

    @property
    def failure(self) -> Failure | None:
        return self.outcome.failure

    @property
    def first_view(self) -> View:
        """Rank 0's first tensor argument."""
        return self.args[0][0][0]

    @property
    def itemsize(self) -> int:
        """Bytes of one element of the first tensor argument."""
        found = views(self.args[0][0])
        return found[0][1].base.element_size() if found else 1

    @functools.cached_property
    def sends(self) -> list[LogEntry]:
        """The log's point-to-point sends, in the order in which the router saw them."""
        return [entry for entry in self.outcome.log if entry.kind is OpKind.SEND]

    @functools.cached_property
    def message_times(self) -> dict[tuple[int, int], Event]:
        """The events of the messages that were sent or received, by (rank, match): when each rank's end began and ended."""
        events = (e for e in self.outcome.trace.events if e.op in ("send", "recv"))
        return {(e.rank, e.match): e for e in events if e.match is not None}

    @functools.cached_property
    def collectives(self) -> list[LogEntry]:
        """The log's entries of collectives, one for each rank that took part."""
        return [entry for entry in self.outcome.log if entry.kind is OpKind.COLLECTIVE]

    @functools.cached_property
    def _by_call_and_rank(self) -> dict[tuple[int, int], list[LogEntry]]:
        found: dict[tuple[int, int], list[LogEntry]] = defaultdict(list)
        for entry in self.outcome.log:
            found[entry.call, entry.rank].append(entry)
        return found

    def operations(self, call: int, rank: int) -> Sequence[LogEntry]:
        """The log's entries of one rank in one call."""
        return self._by_call_and_rank.get((call, rank), ())

    def by_rank(self, entries: Sequence[LogEntry]) -> Iterator[tuple[int, int, list[LogEntry]]]:
        """(call, rank, its entries of these in that call)."""
        for call in range(self.setup.times):
            for rank in range(self.ranks):
                yield call, rank, [e for e in entries if e.rank == rank and e.call == call]

    def bytes_sent(self) -> list[int]:
        """Bytes that each rank sent point to point."""
        totals = [0] * self.ranks
        for entry in self.sends:
            totals[entry.rank] += entry.nbytes
        return totals

    def at(self, line: int | None) -> str:
        """ " (line 12)" or nothing."""
        return f" ({named(line, self.where)})" if line else ""

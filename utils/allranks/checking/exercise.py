"""What an exercise is: its cases, inputs, oracle, rules of the wire and the mistakes that it knows by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from allranks.checking.cases import Args, Expected, Inputs, Oracle, Setup, plain, summed, views

P2P = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
P2P_INSTEAD = "Write it with send, recv, isend, irecv or batch_isend_irecv."
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
    """A property of the messages, judged on every run whose result is right. `broken(run)` names the breach or is None."""

    name: str
    weight: float
    broken: Callable[[Run], str | None]
    judges: Callable[[Setup], bool] = lambda setup: setup.ranks > 1


@dataclass(frozen=True)
class Mistake:
    """What a typical mistake would have produced: an oracle of its own. It is the cause where every wrong rank agrees with it."""

    cause: str
    oracle: Oracle


@dataclass(frozen=True)
class Exercise:
    """One exercise. `promise` is its contract in a sentence; `unit` is what `Setup.size` counts."""

    name: str
    promise: str
    groups: tuple[Group, ...]
    inputs: Inputs
    oracle: Oracle
    allow: frozenset[str]
    rules: tuple[Rule, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    explain: Callable[[Run, Fault], str | None] | None = None
    showcase: Setup = field(default_factory=lambda: Setup(4, 12, dtype="float64", values="provenance"))
    unit: str = "element"
    root_name: str = "root"
    collective: str | None = None
    algorithm: str | None = None
    chunking: str = "split"  # how the trace numbers chunks: "split" the vector in p, "rank" one a rank, "none"
    blocking_weight: float = 0.0  # for staying right with sends that wait for their receiver
    instead: str = ""  # what to do when an operation is refused

    def label(self, setup: Setup) -> str:
        return setup.label(self.unit, self.root_name)

    def judge(self, function: Callable, **options: Any):
        """A verdict on a function object, such as one defined in a notebook. See `judging.judge`."""
        from allranks.checking.judging import judge

        return judge(self, function, **options)

    def judge_source(self, source: Any, filename: str = "answer.py", function: str | None = None, **options: Any):
        """A verdict on Python text or a `Source`; it is only ever executed inside the forked ranks."""
        from allranks.checking.judging import judge
        from allranks.checking.source import from_text

        if isinstance(source, str):
            source = from_text(source, function or self.name, filename)
        return judge(self, source, **options)


@dataclass(frozen=True)
class Result:
    """What one rank ended with after one call: the value it returned, and (values, storage) of each tensor argument."""

    returned: Any
    tensors: tuple[tuple[torch.Tensor | None, torch.Tensor], ...]


@dataclass(frozen=True)
class Fault:
    """The first thing wrong with one rank's result. `kind` is "returned", "dtype", "shape", "values", "clobbered", "elsewhere" or
    "beside"."""

    kind: str
    rank: int
    call: int
    words: str
    wrong: tuple[int, ...] = ()  # flat indices of wrong elements


@dataclass(frozen=True)
class Run:
    """One case, run: what each rank was given, must end with and did end with, and the wire's outcome."""

    exercise: Exercise
    setup: Setup
    args: tuple[tuple[Args, ...], ...]  # [call][rank]
    expected: tuple[tuple[Expected, ...], ...]
    results: tuple[tuple[Result | None, ...], ...]
    outcome: Any
    delivery: str
    where: Callable[[int | None], str] = lambda line: f"line {line}" if line else ""

    @property
    def ranks(self) -> int:
        return self.setup.ranks

    @property
    def failure(self) -> Any:
        return self.outcome.failure

    @property
    def itemsize(self) -> int:
        """Bytes of one element of the first tensor argument."""
        found = views(self.args[0][0])
        return found[0][1].base.element_size() if found else 1

    @property
    def sends(self) -> list:
        """The log's point-to-point sends, in the order in which the router saw them."""
        return [entry for entry in self.outcome.log if entry.kind == "send"]

    @property
    def collectives(self) -> list:
        """The log's entries that are no point-to-point messages, one for each rank that took part."""
        return [entry for entry in self.outcome.log if entry.kind == "collective"]

    def bytes_sent(self) -> list[int]:
        """Bytes that each rank sent point to point."""
        totals = [0] * self.ranks
        for entry in self.sends:
            totals[entry.rank] += entry.nbytes
        return totals

    def at(self, line: int | None) -> str:
        """ " (line 12)" or nothing."""
        where = self.where(line)
        return f" ({where})" if where else ""


def sum_oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """For functions that replace their first tensor by its sum over the ranks."""
    total, atol = summed([plain(a[0]) for a in args])
    return [Expected(None, {(0,): total}, atol) for _ in args]


def in_place(cause: str, make: Callable[[list[torch.Tensor], int, Setup], torch.Tensor | None]) -> Mistake:
    """A mistake of a function that works in place: `make(tensors, rank, setup)` is what it would leave on that rank."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        tensors = [plain(a[0]) for a in args]
        atol = summed(tensors)[1]
        made = [make(tensors, rank, setup) for rank in range(setup.ranks)]
        return [Expected(None, {} if t is None else {(0,): t}, atol) for t in made]

    return Mistake(cause, oracle)


def returning(cause: str, make: Callable[[list[torch.Tensor], int, Setup], torch.Tensor | None]) -> Mistake:
    """A mistake of a function that returns a tensor: `make(tensors, rank, setup)` is what it would return there."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        tensors = [plain(a[0]) for a in args]
        atol = summed(tensors)[1] if len({t.shape for t in tensors}) == 1 else None
        limit = None if atol is None or not atol.numel() else float(atol.max())
        return [Expected(make(tensors, rank, setup), {}, limit) for rank in range(setup.ranks)]

    return Mistake(cause, oracle)


def sum_mistakes() -> tuple[Mistake, ...]:
    """What goes wrong in any function that sums in place."""
    mean = "the mean instead of the sum: an all-reduce adds and does not divide"

    def floored(tensors, rank, setup):
        return torch.div(summed(tensors)[0], len(tensors), rounding_mode="floor").to(tensors[0].dtype)

    return (
        in_place(mean, lambda t, rank, setup: (summed(t)[0] / len(t)).to(t[0].dtype)),
        in_place(mean, floored),
        in_place(
            "each rank's own contribution is missing from its result", lambda t, rank, setup: summed(t)[0] - t[rank]
        ),
        in_place("each rank's own contribution was added twice", lambda t, rank, setup: summed(t)[0] + t[rank]),
    )


def explain_sum(run: Run, fault: Fault) -> str | None:
    """By provenance: the first step that sent something wrong, else what is missing at the end."""
    from allranks.checking import rules

    if fault.kind != "values":
        return None
    words = rules.first_wrong_step(run) or rules.end_state(run, fault.rank, fault.call)
    return f"{words}." if words else None


LAYOUTS = (Setup(3, 6, layout="offset"), Setup(3, 6, layout="strided"), Setup(4, 12, layout="transposed"))
SUM_DTYPES = (
    Setup(3, 6, "float64", values="precise"),
    Setup(4, 8, "int64", values="precise"),
    Setup(3, 6, "bfloat16"),
    Setup(3, 6, "int32"),
    Setup(4, 8, "uint8"),
    Setup(3, 6, "complex64"),
)
MOVED_DTYPES = (
    Setup(3, 6, "float64", values="precise"),
    Setup(4, 8, "int64", values="precise"),
    Setup(3, 6, "bfloat16"),
    Setup(3, 6, "bool"),
    Setup(3, 6, "complex64"),
)
CIRCUMSTANCES = (
    Setup(3, 6, times=2),
    Setup(4, 10, times=2),
    Setup(3, 6, outer_world=True),
    Setup(4, 12, delivery="shuffled"),
    Setup(4, 10, times=2, delivery="shuffled"),
)


# an exercise on rows of logits: shifted and scaled so that a naive exp overflows
LOGIT_GROUPS = (
    Group(
        "stable",
        3,
        (
            *tuple(s.with_options(shift=c) for s, c in ((Setup(2, 2), 10000), (Setup(3, 2), -10000))),
            *tuple(s.with_options(scale=1000) for s in (Setup(3, 2), Setup(4, 3))),
            Setup(4, 2, "float64", values="random").with_options(scale=10000),
        ),
    ),
    Group(
        "any dtype",
        1,
        (Setup(3, 2, "float64", values="random"), Setup(3, 2, "bfloat16"), Setup(2, 3, values="random")),
    ),
    Group("any circumstances", 1, (Setup(3, 2, times=2), Setup(3, 2, outer_world=True))),
)


def with_root(setups: Sequence[Setup], root: int = 1) -> tuple[Setup, ...]:
    """The setups with a root, and every one with the options given."""
    return tuple(replace(s, root=min(root, s.ranks - 1)) for s in setups)


def every_root(ranks: int, size: int) -> tuple[Setup, ...]:
    """One setup for each root."""
    return tuple(Setup(ranks, size, root=root) for root in range(ranks))


def rooted_groups(first: str, dtypes: Sequence[Setup]) -> tuple[Group, ...]:
    """The groups of an exercise whose tensor goes from or to one root; `first` names the plainest."""
    return (
        Group(first, 3, with_root((Setup(2, 3), Setup(3, 4), Setup(4, 5)), 0)),
        Group("every root", 2, (*every_root(2, 3), *every_root(3, 3), *every_root(5, 2))),
        Group(
            "any rank count",
            1,
            (
                *with_root((Setup(1, 3),), 0),
                *with_root((Setup(4, 6), Setup(5, 3), Setup(8, 5)), 2),
                Setup(8, 4, root=7),
            ),
        ),
        Group("any size", 1, with_root((Setup(3, 0), Setup(3, 1), Setup(4, 17)))),
        Group("any dtype", 1, with_root(dtypes)),
        Group("any layout", 1, with_root(LAYOUTS)),
        Group("any circumstances", 1, with_root(CIRCUMSTANCES)),
    )

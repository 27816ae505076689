"""What an exercise is: its cases, inputs, oracle, rules of the wire and the mistakes that it knows by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from allranks.checking.cases import Args, Expected, Inputs, Oracle, Setup, views

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

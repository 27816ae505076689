"""What a step is, what it gets to work with, and how it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from allranks.base.errors import CourseError
from allranks.ranks.world import World, WorldError, current

# phase: the minute of a run of ten minutes at which it ends
PHASES = {"machine": 1.5, "calls": 3.5, "faults": 6.5, "sweeps": 8.0, "chapters": 10.0}
# the phases of the second pass, with torch's older NCCL backend
LEGACY_PHASES = ("calls", "faults", "sweeps")


class StepFailed(CourseError):
    """A step found something wrong; the message says what."""


class StepSkipped(CourseError):
    """A step can't be carried out here; the message says why."""


@dataclass(frozen=True)
class Plan:
    """What a run of `verify` works with. `gpus` is how many GPUs the ranks share; None: one for each rank, or none."""

    ranks: int
    backend: str
    gpus: int | None = None
    minutes: float = 10
    course: str | None = None  # the folder that holds chapters/
    max_bytes: int | None = None  # the largest size of a sweep; None: 4 GiB on GPUs, 16 MiB on the CPU


@dataclass(frozen=True)
class Step:
    """A function that proves one thing, within `limit_s` seconds.

    It returns its figures, by name. It raises StepFailed or any other error if what it tries does not work, StepSkipped if
    it can't be tried here.
    """

    phase: str
    name: str
    function: Callable[[Context], dict[str, Any] | None]
    limit_s: float = 60


@dataclass(frozen=True)
class Outcome:
    """How a step ended. `result` is "pass", "fail" or "skip"; `reason` is empty on a pass; `output` only on a failure."""

    phase: str
    name: str
    result: str
    seconds: float = 0.0
    reason: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    output: str = ""
    legacy: bool = False  # in the second pass, with torch's older NCCL backend


def as_user_code(function: Callable[..., Any]) -> FunctionType:
    """The function as if a user had written it: reports leave out the course's own lines, and look at what a user's line waits for.

    Example:
        >>> as_user_code(as_user_code).__code__.co_filename
        '<verify>'
    """
    code = function.__code__.replace(co_filename="<verify>")
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    made.__module__ = "__main__"  # so it is sent whole
    return made


class Context:
    """What a step gets: the plan, the world, and a place for figures that stay even if the step does not end.

    `told` gets the figures whenever `note` adds some.
    """

    def __init__(
        self, plan: Plan, limit_s: float, told: Callable[[dict[str, Any]], None] = lambda figures: None
    ) -> None:
        self.plan = plan
        self.until = time.monotonic() + limit_s
        self.figures: dict[str, Any] = {}
        self._told = told

    @property
    def left_s(self) -> float:
        """How many seconds the step still has."""
        return max(0.0, self.until - time.monotonic())

    def note(self, **figures: Any) -> None:
        """Keeps figures, also if the step then hangs."""
        self.figures.update(figures)
        self._told(self.figures)

    def world(self) -> World:
        """The running world, or a new one."""
        plan = self.plan
        return World(plan.ranks, backend=plan.backend, gpus=plan.gpus, deadline=max(5.0, self.left_s))

    def stop_world(self) -> None:
        """Ends the running world, if there is one: else it would hold the GPUs that another process asks for."""
        with contextlib.suppress(WorldError):
            current().stop()

    def need(self, ranks: int, what: str) -> None:
        """Raises StepSkipped if the world has fewer ranks."""
        if self.plan.ranks < ranks:
            raise StepSkipped(f"{what} needs {ranks} ranks, and this run has {self.plan.ranks}.")

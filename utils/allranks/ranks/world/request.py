"""What `World(...)` is asked for: its arguments, checked once."""

from __future__ import annotations

import inspect
import os
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from allranks.ranks.engines.devices import Placement, check_request, place
from allranks.ranks.world.cluster import WorldError

DEADLINE_S = 60.0
IDLE_MINUTES = 30.0
RULES = {"nccl": "NCCL's"}
RULES_ENV = "ALLRANKS_RULES"  # the rules of every world that asks for neither a backend nor a place
# what a world under rules can't have: it is one's own, on this machine's CPU
_ELSEWHERE = ("name", "cluster", "gpus", "shared", "profile")


@dataclass(frozen=True)
class Request:
    """The arguments of `World`, whose docstring says what each means; `of` checks them.

    `backend` is what the ranks use, and `asked_backend` what the caller named: rules choose gloo by themselves.

    Example:
        >>> Request.of((4,), {"rules": "nccl"}).backend
        'gloo'
    """

    ranks: int | None = None
    _: KW_ONLY
    backend: str | None = None
    name: str | None = None
    cluster: str | Path | None = None
    deadline: float = DEADLINE_S
    idle_minutes: float = IDLE_MINUTES
    memory_bytes: int | None = None
    gpus: int | None = None
    shared: bool = False
    profile: str | None = None
    nodes: int | None = None
    settings: dict | None = None
    launcher: str | None = None
    rules: str | None = None
    asked_backend: str | None = None

    @classmethod
    def of(cls, args: tuple, options: dict) -> Request:
        """The request that a call of World makes. Raises TypeError for an argument that World has not, WorldError, DeviceError."""
        bound = cls.signature().bind(*args, **options)
        wanted = cls(**bound.arguments, asked_backend=bound.arguments.get("backend"))
        wanted._check()
        return replace(wanted, **wanted._ruled())

    @classmethod
    def signature(cls, *before: str) -> inspect.Signature:
        """The signature of World; `before` names arguments that stand before its own."""
        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in before]
        every = inspect.signature(cls).parameters.values()
        return inspect.Signature([*first, *(p for p in every if p.name != "asked_backend")])

    def place(self) -> Placement:
        """Where the ranks of a world on this machine run. Raises DeviceError."""
        return place(self.ranks, self.backend, memory_bytes=self.memory_bytes, gpus=self.gpus, shared=self.shared)

    def _check(self) -> None:
        check_seconds("deadline", self.deadline, "seconds")
        check_seconds("idle_minutes", self.idle_minutes)
        if self.profile is None:
            if self.nodes is not None or self.settings is not None:
                raise WorldError("nodes= and settings= go with profile='slurm' or profile='ssh'; leave them out here.")
            return
        if self.gpus is not None or self.shared or self.memory_bytes is not None:
            raise WorldError(
                "gpus=, shared= and memory_bytes= are for this machine; with profile= say it in settings=."
            )
        if self.name is not None:
            raise WorldError("A world on other machines (profile=) can't be shared by name=; leave one of them out.")
        check_request(self.ranks, self.backend)

    def _ruled(self) -> dict[str, Any]:
        """The rules and the backend that the request means. Raises WorldError if they don't go together."""
        elsewhere = [name for name in _ELSEWHERE if getattr(self, name) not in (None, False)]
        rules = self.rules
        if rules is None:
            rules = os.environ.get(RULES_ENV) or None
            if rules is None or self.backend is not None or elsewhere:
                return {"rules": None}
        if rules not in RULES:
            raise WorldError(f"rules={rules!r} is unknown; it is 'nccl', or leave it out.")
        if self.backend == "nccl":
            raise WorldError(
                "rules='nccl' is for ranks on the CPU, and backend='nccl' has those rules anyway; leave one out."
            )
        if elsewhere:
            raise WorldError(f"rules= is for a world of your own on this machine's CPU; leave {elsewhere[0]}= out.")
        return {"rules": rules, "backend": "gloo"}


def check_seconds(name: str, value: object, unit: str = "minutes") -> None:
    """Raises WorldError if a value is not a number of seconds, or of minutes, above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise WorldError(
            f"{name}={value!r}: it is a number of {unit} above 0, for example {60 if unit == 'seconds' else 30}."
        )

"""Pictures with which chapters on splitting a model begin: what a split holds and costs, by the course's cost model."""

from __future__ import annotations

from typing import Any

from allranks.show.widgets.explorable import Explorable
from allranks.show.widgets.explorables_first import ExploreError
from allranks.show.widgets.my_model_story import fixed
from allranks.theory import topology
from allranks.theory.cost.plan import Model, plan

_GPUS = [1 << power for power in range(10)]
_SHARDED = {
    0: "nothing is sharded",
    1: "the optimizer's state is sharded",
    2: "the optimizer's state and gradients are sharded",
    3: "all is sharded",
}


def _exact(value: float) -> str:
    """With one digit behind the point, if there is one and the whole number has less than three; as in the browser."""
    return fixed(value, 1).removesuffix(".0") if value < 99.95 else f"{int(fixed(value, 0)):,}"


def sharded(billions: float = 5, p: int = 8, stage: int = 0) -> Explorable:
    """What one of `p` GPUs holds of a model that is trained with Adam, if ZeRO's `stage` 0 to 3 shards it.

    The bytes are those of `plan`, without activations. `billions` of parameters is 1 to 3200, `p` a power of
    two up to 512. Raises ExploreError.

    Example:
        >>> explore.sharded(billions=5, p=8, stage=1).text()
        "5 billion parameters on 8 GPUs, the optimizer's state is sharded: 27.5 GB on each, 2.8 copies on all."
    """
    if not 1 <= billions <= 3200 or p not in _GPUS or stage not in _SHARDED:
        raise ExploreError(
            f"billions must be 1 to 3200, p a power of two up to 512 and stage 0 to 3, "
            f"not {billions!r}, {p!r} and {stage!r}."
        )
    return Explorable("sharded", {"limit": 80}, {"billions": billions, "p": p, "stage": stage}, _sharded_text)


def _state(billions: float, p: int, stage: int) -> float:
    model = Model("a model", 1e9 * billions, layers=1, hidden=1, sequence=1)
    return plan(model, topology.uniform(0, 1e9), dp=p, zero_stage=stage, batch=p).state_nbytes


def _sharded_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    billions, p, stage = values["billions"], values["p"], values["stage"]
    held, whole = _state(billions, p, stage), _state(billions, 1, 0)
    copies = _exact(p * held / whole)
    return (
        f"{billions:g} billion parameters on {p} GPU{'s' if p > 1 else ''}, {_SHARDED[stage]}: {_exact(held / 1e9)} GB "
        f"on each, {copies} {'copy' if copies == '1' else 'copies'} on all."
    )

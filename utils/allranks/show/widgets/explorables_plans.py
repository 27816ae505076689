"""Pictures with which chapters on splitting a model begin: what a split holds and costs, by the course's cost model."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from allranks.base.errors import counted
from allranks.show.widgets.explorable import Explorable
from allranks.show.widgets.explorables_first import ExploreError
from allranks.show.widgets.my_model_story import digits, duration, percent
from allranks.show.widgets.step_figures import assumptions, machines, models
from allranks.theory import topology
from allranks.theory.cost.plan import MODELS, Model, plan
from allranks.theory.cost.step import training_step

_GPUS = [1 << power for power in range(10)]
_SHARDED = {
    0: "nothing is sharded",
    1: "the optimizer's state is sharded",
    2: "the optimizer's state and gradients are sharded",
    3: "all is sharded",
}

_DEGREES = [1 << power for power in range(7)]
_WIDTHS = [1024, 2048, 4096, 8192, 12_288, 16_384]
_MACHINES = {"dgx-h100": "nodes of 8 H100", "gb200-nvl72": "racks of 72 B200", "cloud-ethernet": "8 A100 on Ethernet"}
_MODELS = ("7B", "LLaMA 65B", "GPT-3 175B")
_WORLDS = [8 << power for power in range(8)]
_LIMIT, _BATCH = 80, 2048
_REPLICAS = [1 << power for power in range(11)]
_SHARES = (1, 2, 3, 4, 6, 8)
_CLUSTERS = {name: _MACHINES[name] for name in ("dgx-h100", "cloud-ethernet")}
_MY_MODEL, _SEQUENCE = "my model", 4096


def data_parallel(p: int = 8, each: int = 4, machine: str = "dgx-h100") -> Explorable:
    """What a GPU of `p` sends and waits in a step of my model, if each has the whole model and `each` sequences.

    The seconds are those of `training_step` with one call for all gradients. `p` is a power of two up to 1024, `each`
    1, 2, 3, 4, 6 or 8, `machine` "dgx-h100" or "cloud-ethernet". Raises ExploreError.

    Example:
        >>> explore.data_parallel(p=64, each=4).text()[:79]
        '64 GPUs, nodes of 8 H100, 4 sequences each: a GPU sends 27.6 GB in a step and w'
    """
    if p not in _REPLICAS or each not in _SHARES or machine not in _CLUSTERS:
        raise ExploreError(
            f"p must be a power of two up to 1024, each one of {', '.join(map(str, _SHARES))} and machine one of "
            f"{', '.join(_CLUSTERS)}, not {p!r}, {each!r} and {machine!r}."
        )
    figures = machines()
    data = {
        "names": _CLUSTERS,
        "machines": {name: figures[name] for name in _CLUSTERS},
        "model": models()[_MY_MODEL] | {"sequence": _SEQUENCE},
        "assumed": assumptions(),
    }
    return Explorable("data_parallel", data, {"p": p, "each": each, "machine": machine}, _data_parallel_text)


def _data_parallel_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    p, each, machine = values["p"], values["each"], values["machine"]
    model = replace(MODELS[_MY_MODEL], sequence=_SEQUENCE)
    step = training_step(plan(model, machine, dp=p, batch=p * each, bucket_nbytes=None))
    waits = step.spent["data"] / step.seconds
    sent = step.plan.prices["data"].bytes_sent if p > 1 else 0
    return (
        f"{counted(p, 'GPU')}, {_MACHINES[machine]}, {counted(each, 'sequence')} each: a GPU sends "
        f"{digits(sent / 1e9, exact=True)} GB in a step and waits {percent(waits)} of "
        f"{duration(step.seconds)}. Tokens a second: {digits(p * (1 - waits), exact=True)} times one GPU's."
    )


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
    return Explorable("sharded", {"limit": _LIMIT}, {"billions": billions, "p": p, "stage": stage}, _sharded_text)


def _state(billions: float, p: int, stage: int) -> float:
    model = Model("a model", 1e9 * billions, layers=1, hidden=1, sequence=1)
    return plan(model, topology.uniform(0, 1e9), dp=p, zero_stage=stage, batch=p).state_nbytes


def _sharded_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    billions, p, stage = values["billions"], values["p"], values["stage"]
    held, whole = _state(billions, p, stage), _state(billions, 1, 0)
    copies, each = digits(p * held / whole, exact=True), digits(held / 1e9, exact=True)
    return (
        f"{billions:g} billion parameters on {counted(p, 'GPU')}, {_SHARDED[stage]}: {each} GB on each, "
        f"{copies} {'copy' if copies == '1' else 'copies'} on all."
    )


def tensor(p: int = 8, width: int = 12_288, machine: str = "dgx-h100") -> Explorable:
    """How long a sequence takes if each of 96 layers is cut over `p` GPUs, and for how much of it they wait.

    The seconds are those of `training_step` for one sequence of 2,048 tokens, forward and backward. `p` is a power of
    two up to 64, `width` that of a layer, `machine` "dgx-h100", "gb200-nvl72" or "cloud-ethernet". Raises ExploreError.

    Example:
        >>> explore.tensor(p=16).text()[:64]
        'Layers 12,288 wide, cut over 16 GPUs, nodes of 8 H100: a GPU wai'
    """
    if p not in _DEGREES or width not in _WIDTHS or machine not in _MACHINES:
        raise ExploreError(
            f"p must be a power of two up to 64, width one of {', '.join(map(str, _WIDTHS))} and machine one of "
            f"{', '.join(_MACHINES)}, not {p!r}, {width!r} and {machine!r}."
        )
    figures = machines()
    data = {"names": _MACHINES, "machines": {name: figures[name] for name in _MACHINES}, "assumed": assumptions()}
    return Explorable("tensor", data, {"p": p, "width": width, "machine": machine}, _tensor_text)


def _tensor_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    p, width, machine = values["p"], values["width"], values["machine"]
    model = Model("a model", 96 * 12 * width**2, 96, width, 2048)
    spent = training_step(plan(model, machine, tp=p, batch=1)).spent
    seconds = sum(spent.values())
    return (
        f"Layers {width:,} wide, cut over {counted(p, 'GPU')}, {_MACHINES[machine]}: a GPU waits "
        f"{percent(spent['tensor'] / seconds)} of {duration(seconds)} for all-reduces, and keeps "
        f"{digits(2 * model.parameters / p / 1e9, exact=True)} GB of weights."
    )


def splits(model: str = "LLaMA 65B", p: int = 64, stage: int = 0) -> Explorable:
    """Which splits of a model over `p` GPUs by TP and PP fit into 80 GB, if ZeRO's `stage` shards among replicas.

    The bytes are those of `training_step` with 2,048 sequences a step. `model` is "7B", "LLaMA 65B" or "GPT-3 175B",
    `p` a power of two from 8 to 1024. Raises ExploreError.

    Example:
        >>> explore.splits(p=64, stage=3).text()
        'LLaMA 65B on 64 GPUs, all is sharded: 16 of 16 splits fit into 80 GB; the least takes 26 GB.'
    """
    if model not in _MODELS or p not in _WORLDS or stage not in _SHARDED:
        raise ExploreError(
            f"model must be one of {', '.join(_MODELS)}, p a power of two from 8 to 1024 and stage 0 to 3, "
            f"not {model!r}, {p!r} and {stage!r}."
        )
    figures = models()
    data = {
        "models": {name: figures[name] for name in _MODELS},
        "assumed": assumptions(),
        "limit": _LIMIT,
        "batch": _BATCH,
    }
    return Explorable("splits", data, {"model": model, "p": p, "stage": stage}, _splits_text)


def _splits_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    model, p, stage = values["model"], values["p"], values["stage"]
    steps = [
        training_step(plan(model, "dgx-h100", dp=p // (tp * pp), tp=tp, pp=pp, zero_stage=stage, batch=data["batch"]))
        for tp, pp in product((1, 2, 4, 8), repeat=2)
        if tp * pp <= p
    ]
    held = [step.nbytes for step in steps]
    fit = sum(nbytes <= 1e9 * data["limit"] for nbytes in held)
    return (
        f"{model} on {p} GPUs, {_SHARDED[stage]}: {fit} of {len(held)} splits fit into {data['limit']} GB; "
        f"the least takes {digits(min(held) / 1e9, exact=True)} GB."
    )

"""The figures of models, machines and assumptions that the browser needs to compute a step of training itself."""

from __future__ import annotations

from typing import Any

from allranks.show.widgets.my_model_story import WITH_EXPERTS
from allranks.theory.cost import kernels, rooflines
from allranks.theory.cost.plan import MODELS
from allranks.theory.cost.step import GPUS, OTHER_NBYTES
from allranks.theory.cost.workload import WorkloadError
from allranks.theory.topology import PRESETS, Topology

_MACHINES = ("dgx-a100", "dgx-h100", "gb200-nvl72", "cloud-ethernet")


def models() -> dict[str, dict[str, Any]]:
    """The models by name; `with_experts` is the name of what a model becomes with experts, "" if it stays as it is."""
    names = ("parameters", "layers", "hidden", "sequence", "experts", "top_k", "expert_parameters", "vocabulary")
    return {
        name: {field: getattr(model, field) for field in names} | {"with_experts": WITH_EXPERTS.get(name, "")}
        for name, model in MODELS.items()
    }


def machines(also: str = "dgx-h100") -> dict[str, dict[str, Any]]:
    """The machines that are offered, and one more by its preset's name. Raises WorkloadError for an unknown one."""
    if also not in PRESETS:
        raise WorkloadError(f"there is no preset {also!r} to explore; there are {', '.join(PRESETS)}")
    return {name: _machine(PRESETS[name]) | _gpu(name) for name in dict.fromkeys((*_MACHINES, also))}


def assumptions() -> dict[str, Any]:
    """What a step of training assumes; `activation_nbytes` is for a token and an element of `hidden`."""
    return {
        "sizes": kernels.SIZES,
        "flash_share": kernels.FLASH_SHARE,
        "flash_backward": kernels.FLASH_BACKWARD,
        "memory_share": kernels.MEMORY_SHARE,
        "layer_nbytes": kernels.LAYER_NBYTES,
        "logit_nbytes": kernels.LOGIT_NBYTES,
        "other_nbytes": OTHER_NBYTES,
        "activation_nbytes": rooflines.layer_activation_nbytes(1, 1, recompute="selective"),
    }


def _gpu(machine: str) -> dict[str, Any]:
    gpu = GPUS[machine]
    names = ("nbytes", "flop_per_s", "bytes_per_s", "product_share")
    return {"gpu": gpu.name} | {name: getattr(gpu, name) for name in names}


def _machine(machine: Topology) -> dict[str, Any]:
    links = {
        kind: None if link is None else {"alpha_s": link.alpha_s, "bytes_per_s": link.bytes_per_s}
        for kind, link in (("inside", machine.inside), ("host", machine.host), ("nic", machine.nic))
    }
    return {
        **links,
        "ranks_per_node": machine.ranks_per_node,
        "ranks_per_island": machine.ranks_per_island or machine.ranks_per_node,
        "nics_per_node": machine.nics_per_node,
        "nodes_per_leaf": machine.nodes_per_leaf or 0,
        "oversubscription": machine.oversubscription,
    }

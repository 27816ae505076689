"""One step of training on a plan: the memory that it needs on the fullest rank, and what its seconds are spent on.

The communication is that of `allranks.cost.plan`, the computing that of `allranks.cost.kernels`. What they do not know is assumed here, and every assumption is a
field or named in the docstring of the function that makes it. Imports without torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from allranks.theory.cost import rooflines, workload
from allranks.theory.cost.kernels import GPUS, Gpu, computing
from allranks.theory.cost.plan import Plan
from allranks.theory.cost.rooflines import Recompute
from allranks.theory.cost.workload import WorkloadError

__all__ = ["GPUS", "Gpu", "TrainingStep", "activation_nbytes", "gpu_of", "training_step"]

# what the CUDA context, NCCL's buffers and fragmentation take (assumed)
OTHER_NBYTES = 4e9
# of the collectives of a kind in a layer, the share that a second forward pass repeats: tensor and expert parallelism send
# as often forward as backward; context parallelism sends keys and values once forward, and twice backward with their gradients
SENT_AGAIN = {"tensor": 1 / 2, "expert": 1 / 2, "context": 1 / 3}


@dataclass(frozen=True)
class TrainingStep:
    """A step of training: bytes of memory by what they hold, and seconds by what they are spent on.

    `memory` has "weights", "gradients", "optimizer", "activations" and "other"; `spent` has "useful" (the arithmetic at the
    peak), "kernels" (what it takes longer, because kernels are slower than the peak), "tensor", "context", "expert", "waits"
    (of the pipeline), "data" (what computing does not hide) and "sends" (between stages); and "recomputed", the arithmetic that
    is done twice, if whole layers are recomputed. All parts follow one another. `gpu` is the one it was computed for.

    >>> split = plan("LLaMA 65B", "dgx-h100", dp=8, tp=4, pp=2, zero_stage=1, batch=2048)
    >>> found = training_step(split)
    >>> round(found.nbytes / 1e9), round(found.seconds), round(found.mfu, 2), found.fits
    (60, 43, 0.63, True)
    """

    plan: Plan
    memory: dict[str, float]
    spent: dict[str, float]
    gpu: Gpu = GPUS["dgx-h100"]
    recompute: Recompute = "selective"

    @property
    def fits(self) -> bool:
        """Whether the fullest rank has room."""
        return self.nbytes <= self.gpu.nbytes

    @property
    def nbytes(self) -> float:
        """Bytes of memory on the fullest rank."""
        return sum(self.memory.values())

    @property
    def seconds(self) -> float:
        """Seconds of the whole step."""
        return sum(self.spent.values())

    @property
    def lost_s(self) -> float:
        """The seconds in which a rank does not compute: communication and waits."""
        return self.seconds - self.spent["useful"] - self.spent["kernels"] - self.spent.get("recomputed", 0.0)

    @property
    def mfu(self) -> float:
        """Model FLOP utilization: the share of the step that its arithmetic would take at the peak."""
        return self.spent["useful"] / self.seconds


def gpu_of(plan: Plan) -> Gpu:
    """The GPU of the plan's machine; an H100 where the machine is no preset.

    >>> gpu_of(plan("7B", "p4d", dp=8)).nbytes
    40000000000.0
    """
    return GPUS.get(plan.machine.name, GPUS["dgx-h100"])


def training_step(
    plan: Plan,
    flop_per_s: float | None = None,
    kernels: float | None = None,
    other_nbytes: float = OTHER_NBYTES,
    tensor_overlap: bool = False,
    recompute: Recompute = "selective",
    flash: bool = True,
    eager: bool = False,
    power: float = 1.0,
) -> TrainingStep:
    """The memory and the seconds of a step.

    Useful are 6 operations a parameter and token, and attention's (`rooflines.model_flop`); a token uses only its `top_k`
    experts. How long they take follows from the sizes of the products and from memory's bandwidth (`kernels.computing`), for
    the machine's GPU or an H100; `kernels` gives the share of the peak instead, and `flop_per_s` another peak.

    Pipeline stages wait (pp-1)/m of the time that their microbatches take, a `chunks`-th of it if interleaved; and all wait for
    the last one, which has the logits. Communication of data parallelism hides behind the
    computing of the microbatches that it belongs to, a layer at a time, as buckets do in `workload.ddp`: fewer buckets than layers
    hide less, and one bucket hides nothing. Nothing hides the rest, unless `tensor_overlap` says that matrices are multiplied in tp pieces while others are sent (Megatron's tp_comm_overlap,
    torchtitan's asynchronous tensor parallelism): then all but the first piece hides, as far as the computing lasts.

    With `recompute` "full" each layer keeps its input only; a second forward pass, with its communication, comes before its
    backward pass. "selective" is a flash kernel, which never stores attention's scores; without `flash` they are computed
    again. "none" keeps them. `eager` runs without fused kernels. `power` is the limit of the GPU's watts over its usual limit: a
    chip's watts grow as the cube of its clock, so that its peak falls to the cube root. Raises WorkloadError: scores need a model
    with `heads`, and `power` is above 0 and at most 1.

    >>> found = training_step(plan("7B", "dgx-h100", dp=8, zero_stage=1))
    >>> max(found.memory, key=found.memory.get)
    'weights'
    """
    gpu = gpu_of(plan)
    if not 0 < power <= 1:
        raise WorkloadError(f"the power is {power:g} of the usual limit; it must be above 0 and at most 1")
    if flop_per_s is not None:
        gpu = replace(gpu, flop_per_s=flop_per_s)
    slower = power ** (1 / 3)
    model, m = plan.model, plan.microbatches
    if (recompute == "none" or not flash) and not model.heads:
        raise WorkloadError(
            f"the model ({model.name}) has no heads, so that the scores of attention can't be priced; give it heads, or a flash "
            'kernel and recompute "selective" or "full"'
        )
    idle = model.expert_parameters * (1 - model.top_k / model.experts) if model.experts else 0.0
    tokens, used = plan.batch * model.sequence, model.parameters - idle
    shape = (model.layers, model.hidden, model.sequence)
    useful = rooflines.model_flop(used, tokens, *shape) / (plan.ranks * gpu.flop_per_s)
    recomputed = 0.0
    if recompute == "full":
        recomputed = rooflines.recomputed_flop(recompute, used, tokens, *shape) / (plan.ranks * gpu.flop_per_s)
    if kernels is None:
        one = computing(plan, replace(gpu, flop_per_s=gpu.flop_per_s * slower), used, recompute, flash, eager)
        compute = m * (model.layers * one.layer_s + one.logits_s) / plan.pp
        uneven = m * one.logits_s * (1 - 1 / plan.pp)  # the other stages wait for the last one
    else:
        compute, uneven = (useful + recomputed) / kernels / slower, 0.0
    seconds = {kind: price.seconds for kind, price in plan.prices.items()}
    if recompute == "full":
        seconds |= {kind: seconds[kind] * (1 + again) for kind, again in SENT_AGAIN.items() if kind in seconds}
    tensor, context, expert = (seconds.get(kind, 0.0) for kind in ("tensor", "context", "expert"))
    if tensor_overlap:
        tensor = max(tensor - compute * (1 - 1 / plan.tp), tensor / plan.tp)
    busy = compute + uneven + tensor + context + expert
    spent = {
        "useful": useful,
        "kernels": compute - useful - recomputed,
        "tensor": tensor,
        "context": context,
        "expert": expert,
        "waits": uneven + busy * (plan.pp - 1) / m / plan.chunks,
        "data": _exposed_s(plan, seconds.get("data", 0.0), compute),
        "sends": seconds.get("pipeline", 0.0),
    }
    if recomputed:
        spent["recomputed"] = recomputed
    return TrainingStep(plan, _memory(plan, other_nbytes, recompute), spent, gpu, recompute)


def activation_nbytes(plan: Plan, recompute: Recompute = "selective") -> float:
    """Bytes of activations on a rank of the first stage, by `rooflines.layer_activation_nbytes` and `rooflines.layers_kept`.

    Without the scores of attention ("selective": a flash kernel, or they are recomputed) a layer keeps 34 bytes (of 16-bit
    elements) for each token and element of `hidden`, divided among the tensor and the context parallel ranks: between tensor
    parallel products, the sequence is split. "none" keeps the scores too, for which the model needs `heads`. The first of pp
    stages holds up to pp microbatches at a time (1F1B). Raises WorkloadError.
    """
    model = plan.model
    if recompute == "none" and not model.heads:
        raise WorkloadError(f'the model {model.name} has no heads, and recompute "none" keeps the scores of each')
    layer = rooflines.layer_activation_nbytes(
        plan.microbatch * model.sequence / plan.cp,
        model.hidden,
        model.heads,
        model.sequence,
        tp=plan.tp,
        sequence_parallel=True,
        recompute=recompute,
        element_nbytes=workload.nbytes_of(plan.dtype),
    )
    return rooflines.activation_nbytes(layer, model.layers, plan.pp, plan.chunks, microbatches=plan.microbatches)


def _memory(plan: Plan, other_nbytes: float, recompute: Recompute) -> dict[str, float]:
    """Bytes by what they hold; the first three are those of `Plan.state_nbytes`."""
    weights, gradients, optimizer = plan.state_parts
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "activations": activation_nbytes(plan, recompute),
        "other": other_nbytes,
    }


def _exposed_s(plan: Plan, data_s: float, compute_s: float) -> float:
    """The seconds of data parallel communication that no computing hides.

    Stages 2 and 3 communicate in each microbatch, 0 and 1 once in a step, for which they have one microbatch's computing, in
    pieces of a layer or of a bucket, whichever is larger.
    """
    if not data_s:
        return 0.0
    layers = plan.model.layers // plan.pp
    if plan.zero_stage >= 2:
        share, pieces = 1.0, layers * plan.microbatches
    else:
        share, pieces = 1 / plan.microbatches, min(layers, max(part.calls for part in plan.prices["data"].parts))
    return max(data_s - compute_s * share * (1 - 1 / pieces), data_s / pieces)

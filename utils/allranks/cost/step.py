"""One step of training on a plan: the memory that it needs on the fullest rank, and what its seconds are spent on.

The communication is that of `allranks.cost.plan`. What a plan does not know is assumed here, and every assumption is a
field or named in the docstring of the function that makes it. Imports without torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from allranks.cost import rooflines, workload
from allranks.cost.plan import Plan
from allranks.cost.rooflines import Recompute
from allranks.cost.workload import WorkloadError

__all__ = ["GPUS", "Gpu", "TrainingStep", "activation_nbytes", "training_step"]


@dataclass(frozen=True)
class Gpu:
    """A GPU's memory in bytes, and its peak for bfloat16 without sparsity."""

    name: str
    nbytes: float
    flop_per_s: float
    source: str


_A100 = Gpu("A100", 80e9, 312e12, "NVIDIA A100 80GB datasheet")
_H100 = Gpu("H100", 80e9, 989e12, "NVIDIA H100 datasheet, SXM")
# The GPU of each machine of `topology.PRESETS`.
GPUS: dict[str, Gpu] = {
    "dgx-a100": _A100,
    "dgx-h100": _H100,
    "dgx-h200": Gpu("H200", 141e9, 989e12, "NVIDIA H200 datasheet, SXM"),
    "dgx-b200": Gpu(
        "B200",
        180e9,
        2250e12,
        "NVIDIA DGX B200 datasheet: 1,440 GB and 144 PFLOP/s of sparse FP4 for 8; bfloat16 is an eighth of that",
    ),
    "gb200-nvl72": Gpu(
        "B200", 186e9, 2500e12, "NVIDIA GB200 NVL72 datasheet: 13.4 TB and 180 PFLOP/s dense for 72 GPUs"
    ),
    "gh200-4": Gpu("GH200", 96e9, 989e12, "NVIDIA GH200 datasheet, HBM3"),
    "p4d": Gpu("A100", 40e9, 312e12, "aws.amazon.com/ec2/instance-types/p4"),
    "p5": _H100,
    "pcie-8": Gpu("RTX 3090", 24e9, 71e12, "NVIDIA GA102 whitepaper: bfloat16, dense, sums in float32"),
    "cloud-ethernet": replace(_A100, source="NVIDIA A100 80GB datasheet, PCIe"),
    "ethernet-2x100g": replace(_A100, source="NVIDIA A100 80GB datasheet, PCIe"),
}
# of the peak, what the kernels of a layer reach without any communication (assumed)
KERNELS = 0.62
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
    is done twice, if whole layers are recomputed. All parts follow one another.

    >>> split = plan("LLaMA 65B", "dgx-h100", dp=8, tp=4, pp=2, zero_stage=1, batch=2048)
    >>> found = training_step(split)
    >>> round(found.nbytes / 1e9), round(found.seconds), round(found.mfu, 2)
    (60, 48, 0.54)
    """

    plan: Plan
    memory: dict[str, float]
    spent: dict[str, float]

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

    @property
    def hfu(self) -> float:
        """Hardware FLOP utilization: like `mfu`, but what is computed twice counts twice.

        >>> found = training_step(plan("7B", "dgx-h100", dp=8), recompute="full")
        >>> round(found.hfu / found.mfu, 2)
        1.33
        """
        return self.mfu + self.spent.get("recomputed", 0.0) / self.seconds


def training_step(
    plan: Plan,
    flop_per_s: float | None = None,
    kernels: float = KERNELS,
    other_nbytes: float = OTHER_NBYTES,
    tensor_overlap: bool = False,
    recompute: Recompute = "selective",
) -> TrainingStep:
    """The memory and the seconds of a step.

    A parameter and token take 6 operations (`rooflines.model_flop`, without attention); a token uses only its `top_k` experts.
    Kernels reach the share `kernels` of the peak, `flop_per_s`: by default that of the machine's GPU, or of an H100.
    Pipeline stages wait (pp-1)/m of the time that their microbatches take. Communication of data parallelism hides behind the
    computing of the microbatches that it belongs to, a layer at a time, as buckets do in `workload.ddp`. Nothing hides the rest,
    unless `tensor_overlap` says that matrices are multiplied in tp pieces while others are sent (Megatron's tp_comm_overlap,
    torchtitan's asynchronous tensor parallelism): then all but the first piece hides, as far as the computing lasts. With
    `recompute` "full" each layer keeps its input only; a second forward pass, with its communication, comes before its backward
    pass. "selective" recomputes attention (or a flash kernel never stores its scores), which takes no time here.

    >>> found = training_step(plan("7B", "dgx-h100", dp=8, zero_stage=1))
    >>> max(found.memory, key=found.memory.get)
    'weights'
    """
    if flop_per_s is None:
        flop_per_s = GPUS.get(plan.machine.name, GPUS["dgx-h100"]).flop_per_s
    model, m = plan.model, plan.microbatches
    idle = model.expert_parameters * (1 - model.top_k / model.experts) if model.experts else 0.0
    tokens, used = plan.batch * model.sequence, model.parameters - idle
    useful = rooflines.model_flop(used, tokens) / (plan.ranks * flop_per_s)
    recomputed = rooflines.recomputed_flop(recompute, used, tokens) / (plan.ranks * flop_per_s)
    compute = (useful + recomputed) / kernels
    seconds = {kind: price.seconds for kind, price in plan.prices.items()}
    if recompute == "full":
        seconds |= {kind: seconds[kind] * (1 + again) for kind, again in SENT_AGAIN.items() if kind in seconds}
    tensor, context, expert = (seconds.get(kind, 0.0) for kind in ("tensor", "context", "expert"))
    if tensor_overlap:
        tensor = max(tensor - compute * (1 - 1 / plan.tp), tensor / plan.tp)
    busy = compute + tensor + context + expert
    spent = {
        "useful": useful,
        "kernels": compute - useful - recomputed,
        "tensor": tensor,
        "context": context,
        "expert": expert,
        "waits": busy * (plan.pp - 1) / m,
        "data": _exposed_s(plan, seconds.get("data", 0.0), compute),
        "sends": seconds.get("pipeline", 0.0),
    }
    if recomputed:
        spent["recomputed"] = recomputed
    return TrainingStep(plan, _memory(plan, other_nbytes, recompute), spent)


def activation_nbytes(plan: Plan, recompute: Recompute = "selective") -> float:
    """Bytes of activations on a rank of the first stage, by `rooflines.layer_activation_nbytes` and `rooflines.layers_kept`.

    With attention recomputed a layer keeps 34 bytes (of 16-bit elements) for each token and element of `hidden`, divided
    among the tensor and the context parallel ranks: between tensor parallel products, the sequence is split. The first of pp stages
    holds up to pp microbatches at a time (1F1B). "none", which keeps the scores of attention, is not priced: a plan does not
    know the number of heads. Raises WorkloadError.
    """
    if recompute == "none":
        raise WorkloadError(
            'recompute is "none", but a plan knows no heads of attention; there are "selective" and "full"'
        )
    model = plan.model
    layer = rooflines.layer_activation_nbytes(
        plan.microbatch * model.sequence / plan.cp,
        model.hidden,
        tp=plan.tp,
        sequence_parallel=True,
        recompute=recompute,
        element_nbytes=workload.nbytes_of(plan.dtype),
    )
    return rooflines.activation_nbytes(layer, model.layers, plan.pp, microbatches=plan.microbatches)


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

    Stages 2 and 3 communicate in each microbatch, 0 and 1 once in a step, for which they have one microbatch's computing.
    """
    if not data_s:
        return 0.0
    share = 1.0 if plan.zero_stage >= 2 else 1 / plan.microbatches
    pieces = plan.model.layers // plan.pp * (plan.microbatches if plan.zero_stage >= 2 else 1)
    return max(data_s - compute_s * share * (1 - 1 / pieces), data_s / pieces)

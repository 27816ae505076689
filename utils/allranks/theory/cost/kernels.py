"""How long a GPU computes a layer: products of matrices by their size, attention, and what memory's bandwidth bounds.

No number here is fitted to a training run: docs/validation.md says how far steps that were published agree. Imports without
torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from allranks.theory.cost import rooflines

if TYPE_CHECKING:
    from allranks.theory.cost.plan import Plan

__all__ = ["GPUS", "Computing", "Gpu", "computing", "product_share"]


@dataclass(frozen=True)
class Gpu:
    """A GPU: bytes of memory, bytes a second of it, its peak for bfloat16 without sparsity, and what a large product reaches of that."""

    name: str
    nbytes: float
    flop_per_s: float
    bytes_per_s: float
    product_share: float
    source: str


_A100_SHARE, _H100_SHARE = 237 / 312, 780 / 989
_A100_SOURCE = (
    "A product of 8192 x 1600 x 6400 reached 237 TFLOP/s: gist.github.com/rizar/878155ab5d9a65beafaa96231cd8cec9"
)
_H100_SOURCE = (
    "A product of 4224 x 8192 x 2048 reached 780 TFLOP/s: gist.github.com/Chillee/2ec89696db8b7ed1c24461159e325405"
)
_ASSUMED = "Its products are assumed to reach the share of the peak that an H100's reach."
_A100 = Gpu("A100", 80e9, 312e12, 2.039e12, _A100_SHARE, f"NVIDIA A100 80GB datasheet, SXM. {_A100_SOURCE}")
_A100_PCIE = replace(_A100, bytes_per_s=1.935e12, source=f"NVIDIA A100 80GB datasheet, PCIe. {_A100_SOURCE}")
_H100 = Gpu("H100", 80e9, 989e12, 3.35e12, _H100_SHARE, f"NVIDIA H100 datasheet, SXM. {_H100_SOURCE}")
# The GPU of each machine of `topology.PRESETS`.
GPUS: dict[str, Gpu] = {
    "dgx-a100": _A100,
    "dgx-h100": _H100,
    "dgx-h200": Gpu("H200", 141e9, 989e12, 4.8e12, _H100_SHARE, f"NVIDIA H200 datasheet, SXM. {_ASSUMED}"),
    "dgx-b200": Gpu("B200", 180e9, 2250e12, 8e12, _H100_SHARE, "NVIDIA DGX B200 datasheet: 1,440 GB, 64 TB/s and 144 PFLOP/s of sparse "
                    f"FP4 for 8 GPUs; bfloat16 is an eighth of that. {_ASSUMED}"),
    "gb200-nvl72": Gpu("B200", 186e9, 2500e12, 8e12, _H100_SHARE, "NVIDIA GB200 NVL72 datasheet: 13.4 TB, 576 TB/s and 180 PFLOP/s dense "
                       f"for 72 GPUs. {_ASSUMED}"),
    "gh200-4": Gpu("GH200", 96e9, 989e12, 4e12, _H100_SHARE, f"NVIDIA GH200 datasheet, HBM3. {_ASSUMED}"),
    "p4d": Gpu("A100", 40e9, 312e12, 1.555e12, _A100_SHARE, f"NVIDIA A100 40GB datasheet, SXM. {_A100_SOURCE}"),
    "p5": _H100,
    "pcie-8": Gpu("RTX 3090", 24e9, 71e12, 0.936e12, _A100_SHARE, "NVIDIA GA102 whitepaper: bfloat16, dense, sums in float32. Its products "
                  "are assumed to reach the share of the peak that an A100's reach."),
    "cloud-ethernet": _A100_PCIE,
    "ethernet-2x100g": _A100_PCIE,
}  # fmt: skip

# what a smaller product reaches of a large one's rate, by its 10^9 operations: calculon-ai/calculon, systems/a100_80g.json
# (0.1, 0.6, 0.9 and 0.95 of the peak), with straight lines between
SIZES = ((0.0, 0.1 / 0.95), (1.0, 0.6 / 0.95), (16.0, 0.9 / 0.95), (128.0, 1.0))
# of the peak, what flash attention reaches over forward and backward. FlashAttention-2 (arXiv:2307.08691) gives 50 to 73 % on
# an A100, FlashAttention-3 (arXiv:2407.08608) up to 75 % on an H100, less backward
FLASH_SHARE = 0.5
FLASH_BACKWARD = 2.5  # five products instead of two
MEMORY_SHARE = 0.85  # of memory's bandwidth (assumed)
# bytes that a layer's forward pass reads and writes for each token and element of `hidden`, besides products, in 16 bits:
# both layer norms 8, twice bias, dropout and residual 14, GELU on 4h 16, queries, keys and values in and out of attention 12
LAYER_NBYTES = 50
# the same for a Llama layer without fused kernels (eager), each operation reading and writing memory: two RMSNorms in 32 bits 56,
# rotary positions 24, two residual sums 12, SiLU and its product on 3.5 h 35, queries, keys and values in and out of attention 12
EAGER_LAYER_NBYTES = 139
# the same for each head and pair of tokens, if the scores of attention are stored: written, softmax, dropout and its mask, read
SCORE_NBYTES = 13
# the loss, for each token and word: logits in 16 bits written, and read and written in 32
LOGIT_NBYTES = 12


@dataclass(frozen=True)
class Computing:
    """Seconds of one microbatch: a layer forward, backward and again, and the logits with the loss, all of them."""

    forward_s: float
    backward_s: float
    again_s: float
    logits_s: float

    @property
    def layer_s(self) -> float:
        """Seconds of one layer in all."""
        return self.forward_s + self.backward_s + self.again_s


def product_share(flop: float) -> float:
    """What a product of `flop` operations reaches of the rate that the largest products reach, from about 0.1 to 1.

    >>> round(product_share(2 * 4096**3), 2), round(product_share(1e9), 2)
    (1.0, 0.63)
    """
    size = flop / 1e9
    for (low, share), (high, more) in pairwise(SIZES):
        if size < high:
            return share + (more - share) * (size - low) / (high - low)
    return SIZES[-1][1]


def computing(
    plan: Plan, gpu: Gpu, used_parameters: float, recompute: rooflines.Recompute, flash: bool, eager: bool = False
) -> Computing:
    """The computing of one microbatch on one rank. A layer has four products of equal size, each twice as long backward.

    `used_parameters` are those that a token meets. With `flash`, attention masks half of its work away and stores no scores;
    without it, or with `recompute` "none", scores go through memory, by the model's `heads`. `eager` is without fused kernels.

    >>> from allranks import plan
    >>> found = computing(plan("GPT-3 175B", "dgx-a100", dp=8, tp=8), GPUS["dgx-a100"], 175e9, "selective", flash=True)
    >>> round(1e3 * found.forward_s, 1), round(1e3 * found.logits_s, 1)
    (4.1, 4.3)
    """
    model, peak, memory = plan.model, gpu.flop_per_s, MEMORY_SHARE * gpu.bytes_per_s
    tokens, hidden = plan.microbatch * model.sequence / plan.cp, model.hidden
    width = hidden * model.vocabulary
    products = _product_s(2 * tokens * (used_parameters - width) / model.layers / plan.tp, 4, gpu)
    pairs = tokens * model.sequence / plan.tp
    if flash and recompute != "none":
        attention = 2 * pairs * hidden / (peak * FLASH_SHARE)
        attention_back = FLASH_BACKWARD * attention
    else:
        attention = _product_s(4 * pairs * hidden, 2 * max(1, model.heads / plan.tp) * plan.microbatch, gpu)
        attention += SCORE_NBYTES * model.heads * pairs / memory
        attention_back = 2 * attention
    other = (EAGER_LAYER_NBYTES if eager else LAYER_NBYTES) * tokens * hidden / plan.tp / memory
    forward = products + attention + other
    again = forward if recompute == "full" else attention if recompute == "selective" and not flash else 0.0
    logits = 3 * LOGIT_NBYTES * tokens * model.vocabulary / plan.tp / memory
    if width:
        logits += _product_s(6 * tokens * width / plan.tp, 3, gpu)
    return Computing(forward, 2 * (products + other) + attention_back, again, logits)


def _product_s(flop: float, pieces: float, gpu: Gpu) -> float:
    """Seconds of `flop` operations in so many products of equal size."""
    return flop / (gpu.flop_per_s * gpu.product_share * product_share(flop / pieces))

"""Memory of activations, arithmetic of a step, MFU and HFU, and from where on communication is slower than computing.

Pure functions: bytes, operations (a multiplication and an addition are two), seconds, bytes a second in one direction.
Imports without torch.
"""

from __future__ import annotations

import math
from typing import Literal

from allranks.theory.cost.terms import CostError

__all__ = [
    "RECOMPUTES",
    "activation_nbytes",
    "attainable_flop_per_s",
    "data_parallel_tokens",
    "expert_parallel_width",
    "flop_per_byte",
    "gpt_parameters",
    "layer_activation_nbytes",
    "layers_kept",
    "matmul_intensity",
    "model_flop",
    "recomputed_flop",
    "tensor_parallel_ranks",
    "utilization",
]

Recompute = Literal["none", "selective", "full"]
# What a backward pass computes again: nothing, the core of attention, or the whole layer from its input.
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")

# What a layer keeps for each token and element of `hidden`, in elements, and in dropout masks of a byte:
# arXiv:2205.05198, section 4.1. "Whole": the inputs of both layer norms and of both first products, which tensor
# parallelism alone does not split; both dropouts' masks go with them.
WHOLE_ELEMENTS, WHOLE_MASKS = 4, 2
# queries, keys, values, the result of attention, and the MLP's two tensors of 4h
SPLIT_ELEMENTS = 12
# for each head and pair of tokens: the softmax's and the dropout's result, and the dropout's mask
SCORE_ELEMENTS, SCORE_MASKS = 2, 1


def layer_activation_nbytes(
    tokens: float,
    hidden: float,
    heads: float = 0,
    sequence: float = 0,
    tp: int = 1,
    sequence_parallel: bool = False,
    recompute: Recompute = "none",
    element_nbytes: int = 2,
) -> float:
    """Bytes of activations that one GPT layer keeps on a rank for `tokens` tokens (sequence x micro-batch).

    With 16-bit elements, a heads, t tensor parallel ranks and sequences of s tokens: sbh (34 + 5as/h) on one rank,
    sbh (10 + 24/t + 5as/ht) with tensor parallelism, sbh/t (34 + 5as/h) with `sequence_parallel` too. Without the term 5as/h
    if attention is recomputed ("selective"), or if the kernel never stores the scores (flash attention). "full" keeps the
    layer's input only, 2sbh, of which each rank has 1/t if `sequence_parallel`. Dropout and an MLP of 4h with GELU are
    assumed; a gated MLP or grouped keys change the 34. Raises CostError. Source: V. Korthikanti et al., arXiv:2205.05198,
    table 2.

    >>> gpt3 = {"tokens": 2048, "hidden": 12288, "heads": 96, "sequence": 2048}
    >>> round(rooflines.layer_activation_nbytes(**gpt3) / 1e6)
    2869
    >>> round(rooflines.layer_activation_nbytes(**gpt3, tp=8, sequence_parallel=True, recompute="selective") / 1e6)
    107
    """
    elements = _positive("tokens", tokens) * _positive("hidden", hidden)
    _whole_number("tp", tp)
    _whole_number("element_nbytes", element_nbytes)
    shards = tp if sequence_parallel else 1
    if _known(recompute) == "full":
        return element_nbytes * elements / shards
    kept = (WHOLE_ELEMENTS * element_nbytes + WHOLE_MASKS) / shards + SPLIT_ELEMENTS * element_nbytes / tp
    scores = 0.0
    if recompute == "none":
        pairs = _positive("heads", heads) * _positive("sequence", sequence) / hidden
        scores = (SCORE_ELEMENTS * element_nbytes + SCORE_MASKS) * pairs / tp
    return elements * (kept + scores)


def layers_kept(
    layers: int, stages: int = 1, chunks: int = 1, stage: int = 0, microbatches: int | None = None
) -> float:
    """How many layers' activations, each for one micro-batch, a pipeline stage keeps at most (1F1B, as Megatron-LM runs it).

    Stage r of p holds up to p-r micro-batches of L/p layers. Interleaved, with v `chunks` a stage, it holds
    2(p-1-r) + (v-1)p + 1 chunks of L/pv layers: on the first stage L(1 + (p-1)/pv), as in arXiv:2205.05198, equation 5.
    Fewer `microbatches` bound both. Raises CostError.

    >>> rooflines.layers_kept(96, stages=8, chunks=3)
    124.0
    """
    for name, value in (("layers", layers), ("stages", stages), ("chunks", chunks)):
        _whole_number(name, value)
    if isinstance(stage, bool) or not isinstance(stage, int) or not 0 <= stage < stages:
        raise CostError(f"stage is {stage!r}; it is a whole number from 0 to {stages - 1}")
    held = stages - stage if chunks == 1 else 2 * (stages - 1 - stage) + (chunks - 1) * stages + 1
    if stages == 1:
        held = chunks  # nobody waits: backward follows each forward
    if microbatches is not None:
        held = min(held, _whole_number("microbatches", microbatches) * chunks)
    return held * layers / (stages * chunks)


def activation_nbytes(
    layer_nbytes: float,
    layers: int,
    stages: int = 1,
    chunks: int = 1,
    stage: int = 0,
    microbatches: int | None = None,
) -> float:
    """Bytes of activations on a rank of a pipeline stage: `layer_activation_nbytes` times `layers_kept`. Raises CostError.

    What the embedding and the loss keep is left out.

    >>> layer = rooflines.layer_activation_nbytes(2048, 12288, 96, 2048, tp=8)
    >>> round(rooflines.activation_nbytes(layer, 96, stages=8, chunks=3) / 2**30, 2)
    66.84
    """
    return _positive("layer_nbytes", layer_nbytes) * layers_kept(layers, stages, chunks, stage, microbatches)


def gpt_parameters(layers: int, hidden: float, vocabulary: float = 0) -> float:
    """The weights of a GPT that multiply every token: 12 h² a layer, and h times `vocabulary` for the logits. Raises CostError.

    >>> rooflines.gpt_parameters(96, 12288) / 1e9
    173.946175488
    """
    if not 0 <= vocabulary < math.inf:
        raise CostError(f"vocabulary is {vocabulary!r}; it is 0 or more, and finite")
    return 12 * _whole_number("layers", layers) * _positive("hidden", hidden) ** 2 + hidden * vocabulary


def model_flop(parameters: float, tokens: float, layers: float = 0, hidden: float = 0, sequence: float = 0) -> float:
    """Operations of a training step that the model needs, forward and backward, whatever is computed again.

    A parameter and token take 6: 2 forward, 4 backward (Kaplan et al., arXiv:2001.08361). With `layers`, `hidden` and
    `sequence`, attention takes 12 Lhs a token more, counted as if no mask left half of it out: then, with `gpt_parameters`,
    this is Megatron-LM's 72 BLsh² (1 + s/6h + V/12hL). Raises CostError.

    >>> f"{rooflines.model_flop(7e9, tokens=2**20):.2e}"
    '4.40e+16'
    """
    count = _positive("tokens", tokens)
    return (6 * _positive("parameters", parameters) + 12 * _attention(layers, hidden, sequence)) * count


def recomputed_flop(
    recompute: Recompute,
    layer_parameters: float,
    tokens: float,
    layers: float = 0,
    hidden: float = 0,
    sequence: float = 0,
) -> float:
    """Operations that recomputing adds to `model_flop`: "full" a second forward pass of all layers, "selective" that of attention.

    `layer_parameters` are those of the layers, without embedding and logits. HFU counts `model_flop` and these. Raises CostError.

    Example:
        >>> rooflines.recomputed_flop("full", 7e9, tokens=2**20) / rooflines.model_flop(7e9, tokens=2**20)
        0.3333333333333333
    """
    attention = 4 * _attention(layers, hidden, sequence)
    matrices = 2 * _positive("layer_parameters", layer_parameters)
    count = _positive("tokens", tokens)
    match _known(recompute):
        case "full":
            return (matrices + attention) * count
        case "selective":
            return attention * count
    return 0.0


def utilization(flop: float, seconds: float, gpus: int, flop_per_s: float) -> float:
    """The share of the peak: `flop` over what `gpus` with the peak `flop_per_s` could have done in `seconds`.

    With `model_flop` alone it is MFU (Chowdhery et al., arXiv:2204.02311, appendix B); with `recomputed_flop` added it is HFU,
    which rises when work is done twice. Raises CostError.

    >>> work = rooflines.model_flop(rooflines.gpt_parameters(105, 20480, 51200), 280 * 2048, 105, 20480, 2048)
    >>> round(rooflines.utilization(work, 37.83, 280, 312e12), 3)
    0.56
    """
    spent = _positive("seconds", seconds) * _whole_number("gpus", gpus) * _positive("flop_per_s", flop_per_s)
    return _positive("flop", flop) / spent


def matmul_intensity(rows: float, inner: float, columns: float, element_nbytes: float = 2) -> float:
    """Operations a byte of the product (rows, inner) x (inner, columns), if memory moves each matrix once. Raises CostError.

    >>> rooflines.matmul_intensity(8192, 8192, 8192)
    2730.6666666666665
    """
    m, k, n = _positive("rows", rows), _positive("inner", inner), _positive("columns", columns)
    return 2 * m * k * n / (_positive("element_nbytes", element_nbytes) * (m * k + k * n + m * n))


def attainable_flop_per_s(intensity: float, flop_per_s: float, bytes_per_s: float) -> float:
    """The roofline: min(peak, operations a byte x bandwidth) (Williams et al., CACM 52, 2009). Raises CostError.

    >>> rooflines.attainable_flop_per_s(100, flop_per_s=989e12, bytes_per_s=3.35e12)
    335000000000000.0
    """
    return min(
        _positive("flop_per_s", flop_per_s), _positive("intensity", intensity) * _positive("bytes_per_s", bytes_per_s)
    )


def flop_per_byte(flop_per_s: float, bytes_per_s: float) -> float:
    """Operations that a GPU does in the time that a byte needs: work with fewer for each byte waits. Raises CostError.

    >>> round(rooflines.flop_per_byte(989e12, 450e9))
    2198
    """
    return _positive("flop_per_s", flop_per_s) / _positive("bytes_per_s", bytes_per_s)


def data_parallel_tokens(
    flop_per_s: float, bytes_per_s: float, element_nbytes: float = 2, experts: int = 1, top_k: int = 1
) -> float:
    """Tokens a GPU (DDP: in a step, FSDP: in a micro-batch) above which computing takes longer than sending, if they overlap.

    FSDP gathers eP bytes for 2P operations a token forward; DDP all-reduces 2eP bytes behind the 4P of backward: both need
    e/2 x C/W tokens. Of a mixture of experts all parameters are sent, and a token uses `top_k` of `experts`: times E/k.
    `bytes_per_s` is what leaves whoever holds one copy of the gathered parameters: a GPU's NVLink inside a node; between
    nodes all cards of a node together, since its GPUs send a part each. Raises CostError. Source: Austin et al., How to scale
    your model (GPUs).

    >>> round(rooflines.data_parallel_tokens(989e12, 450e9))
    2198
    """
    _whole_number("experts", experts)
    if _whole_number("top_k", top_k) > experts:
        raise CostError(f"top_k is {top_k}, but there are {experts} experts")
    return _positive("element_nbytes", element_nbytes) / 2 * flop_per_byte(flop_per_s, bytes_per_s) * experts / top_k


def tensor_parallel_ranks(width: float, flop_per_s: float, bytes_per_s: float, element_nbytes: float = 2) -> float:
    """Tensor parallel ranks up to which an MLP of inner `width` computes longer than it communicates: 2/e x F W/C.

    For b tokens of h elements, t ranks gather and scatter 2ebh bytes, and compute 4bhF/t operations each. Raises CostError.
    Source: Austin et al., How to scale your model (GPUs).

    >>> round(rooflines.tensor_parallel_ranks(28672, 989e12, 450e9))
    13
    """
    ratio = flop_per_byte(flop_per_s, bytes_per_s) * _positive("element_nbytes", element_nbytes) / 2
    return _positive("width", width) / ratio


def expert_parallel_width(flop_per_s: float, bytes_per_s: float, element_nbytes: float = 2, matrices: int = 2) -> float:
    """The inner width of an expert above which it computes longer than tokens travel: e/2 x C/W for two matrices.

    A token and expert send 2eh bytes (dispatch and combine), and compute 2hF operations in each matrix; a gated expert has
    three. `bytes_per_s` is one GPU's share of its node's cards. Raises CostError. Source: Austin et al., How to scale your
    model (GPUs), where it reads F > 8C/W with W of a node of 8.

    >>> round(rooflines.expert_parallel_width(989e12, 50e9))
    19780
    """
    _whole_number("matrices", matrices)
    return _positive("element_nbytes", element_nbytes) * flop_per_byte(flop_per_s, bytes_per_s) / matrices


def _attention(layers: float, hidden: float, sequence: float) -> float:
    """L h s, or 0 if none of the three is given."""
    given = (layers, hidden, sequence)
    if not any(given):
        return 0.0
    return math.prod(_positive(n, v) for n, v in zip(("layers", "hidden", "sequence"), given, strict=True))


def _known(recompute: str) -> str:
    if recompute not in RECOMPUTES:
        raise CostError(f"there is no recomputation {recompute!r}; there are {', '.join(RECOMPUTES)}")
    return recompute


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise CostError(f"{name} is {value!r}; it is a number above 0")
    return value


def _whole_number(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CostError(f"{name} is {value!r}; it is a whole number above 0")
    return value

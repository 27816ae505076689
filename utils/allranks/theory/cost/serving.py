"""What it costs to serve a model: the first token (prefill), each further one (decode), and what the ranks send for it.

Tensor parallel ranks add two vectors a layer for each token; in small messages by one or two rounds of direct reads instead of a ring. Expert
parallel ranks keep attention whole, each for its own requests, and send tokens to their experts. docs/validation.md holds this
against published measurements. Imports without torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from allranks.theory.cost.formulas import price
from allranks.theory.cost.kernels import FLASH_SHARE, GPUS, LAYER_NBYTES, MEMORY_SHARE, Gpu, product_share
from allranks.theory.cost.nccl_price import nccl_price
from allranks.theory.cost.serving_bands import BANDS
from allranks.theory.cost.terms import CostError
from allranks.theory.topology import Topology, preset

__all__ = ["SERVED", "Served", "Serving", "direct_all_reduce_s", "serve"]

# One and two rounds of direct reads: seconds before the first byte, and the share of a GPU's links that they reach. From the two
# columns of vllm-project/vllm pull request 24111 for 6 ranks on H100, by their smallest and largest size
ONE_SHOT, TWO_SHOT = (4.9e-6, 0.87), (11.9e-6, 0.75)
# Chosen once on the rows for A100 of docs/measured/serving.csv, and rounded; the rows for other GPUs were kept back
LAYER_S = 60e-6  # a layer's small kernels, and the gaps between all of them
TOGETHER = 1.25  # products that read memory and compute: (read^k + compute^k)^(1/k), between "max" and "sum"
SPEED_UP = {16: 1, 8: 2, 4: 4}  # of the peak of products, by the bits of a weight, where the GPU computes in them
FEWEST_BITS = {
    "A100": 16,
    "RTX 3090": 16,
    "B200": 4,
}  # the narrowest that a GPU computes in; 8 in the others (datasheets)
OTHER_NBYTES = 2e9  # the CUDA context, buffers and activations (assumed)
MOST_REQUESTS = 2048  # at a time on a rank, as TensorRT-LLM's max_batch_size


@dataclass(frozen=True)
class Served:
    """A model that generates text. `mlp` is the inner width of one expert, or of the only MLP; `gated` ones have three matrices.

    >>> round(cost.SERVED["Llama 3 70B"].parameters / 1e9, 1)
    70.6
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int
    source: str
    head_size: int = 128
    gated: bool = True
    experts: int = 1
    top_k: int = 1

    @property
    def attention(self) -> float:
        """Parameters of one layer's attention."""
        return 2.0 * self.hidden * self.head_size * (self.heads + self.kv_heads)

    @property
    def expert(self) -> float:
        """Parameters of one expert."""
        return (3.0 if self.gated else 2.0) * self.hidden * self.mlp

    @property
    def parameters(self) -> float:
        """All parameters; both tables of words count."""
        return self.layers * (self.attention + self.experts * self.expert) + 2.0 * self.vocabulary * self.hidden

    def kv_nbytes(self, kv_bits: int = 16) -> float:
        """Bytes that one token keeps in the cache of keys and values, over all layers."""
        return 2.0 * self.layers * self.kv_heads * self.head_size * kv_bits / 8


# The models by name, each from its own configuration file or paper.
SERVED: dict[str, Served] = {
    model.name: model
    for model in (
        Served("Llama 2 7B", 32, 4096, 32, 32, 11008, 32000, "arXiv:2307.09288, table 1"),
        Served("Llama 2 70B", 80, 8192, 64, 8, 28672, 32000, "arXiv:2307.09288, table 1"),
        Served("Llama 3 8B", 32, 4096, 32, 8, 14336, 128256, "arXiv:2407.21783, table 3"),
        Served("Llama 3 70B", 80, 8192, 64, 8, 28672, 128256, "arXiv:2407.21783, table 3"),
        Served("Llama 3 405B", 126, 16384, 128, 8, 53248, 128256, "arXiv:2407.21783, table 3"),
        Served("Mistral 7B", 32, 4096, 32, 8, 14336, 32000, "arXiv:2310.06825, table 1"),
        Served("Mixtral 8x7B", 32, 4096, 32, 8, 14336, 32000, "arXiv:2401.04088, table 1", experts=8, top_k=2),
        Served("GPT-J 6B", 28, 4096, 16, 16, 16384, 50400, "EleutherAI/gpt-j-6b config.json", 256, gated=False),
        Served("Falcon 180B", 80, 14848, 232, 8, 59392, 65024, "tiiuae/falcon-180B config.json", 64, gated=False),
        Served("Qwen3 235B", 94, 4096, 64, 4, 1536, 151936, "Qwen/Qwen3-235B-A22B config.json", experts=128, top_k=8),
    )
}


@dataclass(frozen=True)
class Serving:
    """What serving takes. `prefill` and `decode` are seconds by what they are spent on: "products" (reading the weights and multiplying),
    "attention" (the cache's bytes, or the pairs of tokens), "kernels" (small ones, and gaps) and "sent".

    `batch` requests run at a time; `fits` says how many have room. A rank sends `sent_nbytes` in a step of decode, by `all_reduce`.

    >>> found = cost.serve("Llama 3 70B", "dgx-h100", tp=8, batch=1)
    >>> max(found.decode, key=found.decode.get), found.first_token_s > found.token_s
    ('products', True)
    """

    model: Served
    machine: str
    gpu: Gpu
    tp: int
    ep: int
    batch: int
    prompt: int
    output: int
    weights_nbytes: float
    request_nbytes: float
    fits: int
    prefill: dict[str, float]
    decode: dict[str, float]
    all_reduce: str
    sent_nbytes: float

    @property
    def first_token_s(self) -> float:
        """Seconds until one request has its first token, if it need not wait."""
        return sum(self.prefill.values())

    @property
    def token_s(self) -> float:
        """Seconds of a step of decode: one more token for each request, at the middle of its output."""
        return sum(self.decode.values())

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all requests together; the prefill of new ones takes its part of the time."""
        prefills = self.batch * self.first_token_s / self.ep
        return self.batch * self.output / (self.output * self.token_s + prefills)

    @property
    def handed_over_nbytes(self) -> float:
        """Bytes of keys and values of one prompt: what disaggregated prefill sends for each request."""
        return self.request_nbytes * self.prompt / (self.prompt + self.output)

    def band(self, kind: str) -> tuple[float, float]:
        """Factors of the seconds of a "first_token", a "token" or, for "throughput", all tokens, between which 8 of 10 published values lie."""
        return BANDS["experts" if self.model.experts > 1 else kind]

    def to_dict(self) -> dict[str, Any]:
        """All figures, as the command line prints them with --json."""
        return {
            "model": self.model.name, "machine": self.machine, "tp": self.tp, "ep": self.ep, "batch": self.batch,
            "prompt": self.prompt, "output": self.output, "weights_nbytes": self.weights_nbytes,
            "request_nbytes": self.request_nbytes, "fits": self.fits, "first_token_s": self.first_token_s,
            "token_s": self.token_s, "tokens_per_s": self.tokens_per_s, "prefill": self.prefill, "decode": self.decode,
            "all_reduce": self.all_reduce, "sent_nbytes": self.sent_nbytes, "handed_over_nbytes": self.handed_over_nbytes,
            "bands": {kind: self.band(kind) for kind in ("first_token", "token", "throughput")}, "coverage": 0.8,
        }  # fmt: skip


def direct_all_reduce_s(nbytes: float, ranks: int, bytes_per_s: float, shots: int) -> float:
    """Seconds of an all_reduce by direct reads over switched links of `bytes_per_s` in one direction.

    In one shot each rank reads all of the others' vectors, (p-1)n bytes, at once; in two shots its part of them, then the others' sums,
    2(p-1)/p n bytes. Raises CostError.

    >>> [round(1e6 * cost.direct_all_reduce_s(n, 8, 450e9, s)) for n in (2**13, 2**20) for s in (1, 2)]
    [5, 12, 24, 17]
    """
    if shots not in (1, 2):
        raise CostError(f"shots is {shots!r}; it is 1 or 2")
    if ranks == 1:
        return 0.0
    start, share = ONE_SHOT if shots == 1 else TWO_SHOT
    return start + _moved(nbytes, ranks, shots) / (share * bytes_per_s)


def _moved(nbytes: float, ranks: int, shots: int) -> float:
    """The bytes that a rank reads in an all_reduce of one or two shots; a ring moves as many as two."""
    return (ranks - 1) * nbytes if shots == 1 else 2 * (ranks - 1) / ranks * nbytes


def serve(
    model: str | Served,
    machine: str = "dgx-h100",
    tp: int = 1,
    ep: int = 1,
    batch: int | None = 1,
    prompt: int = 1000,
    output: int = 1000,
    weight_bits: int = 16,
    kv_bits: int | None = None,
    all_reduce: str = "best",
    memory_share: float = 0.9,
) -> Serving:
    """Prices serving on `tp` ranks of one node, or on `ep` ranks that share the experts of each layer.

    `batch` is the requests at a time (None: as many as have room in `memory_share` of the memory). `kv_bits` is that of the weights, but at least
    8, unless given. `all_reduce` is "one shot", "two shots", "nccl" or "best". Raises CostError.

    >>> one, many = (cost.serve("Llama 3 70B", "dgx-h100", tp=8, batch=b, weight_bits=8) for b in (1, 64))
    >>> many.token_s > one.token_s and many.tokens_per_s > 20 * one.tokens_per_s
    True
    """
    found = _model(model)
    where = preset(machine)
    gpu = GPUS.get(machine)
    if gpu is None:
        raise CostError(f"the GPU of {machine!r} is not known; serving is priced for {', '.join(GPUS)}")
    for name, value in (("tp", tp), ("ep", ep), ("prompt", prompt), ("output", output)):
        _whole(name, value)
    if batch is not None:
        _whole("batch", batch)
    if weight_bits not in SPEED_UP or (kv_bits is not None and kv_bits not in (4, 8, 16)):
        raise CostError(f"weights have {weight_bits!r} bits and the cache {kv_bits!r}; both are 16, 8 or 4")
    if not 0 < memory_share <= 1:
        raise CostError(f"memory_share is {memory_share!r}; it is above 0 and at most 1")
    ranks = tp * ep
    if tp > 1 and ep > 1:
        raise CostError(f"tp is {tp} and ep is {ep}; one of them must be 1: both together are not priced")
    if ranks > where.ranks_per_node:
        raise CostError(f"{ranks} ranks do not fit one node of {machine}, which has {where.ranks_per_node}")
    if ep > 1 and found.experts % ep:
        raise CostError(f"{found.name} has {found.experts} expert(s) a layer, which {ep} ranks can't share evenly")
    if found.heads % tp:
        raise CostError(f"{found.name} has {found.heads} heads, which {tp} ranks can't share evenly")
    kv = kv_bits or max(8, weight_bits)
    weights = _weights_nbytes(found, tp, ep, weight_bits)
    request = found.kv_nbytes(kv) * (prompt + output)
    # a head is on more than one rank where there are more ranks than heads of keys and values
    on_rank = request / min(tp, found.kv_heads)
    room = memory_share * gpu.nbytes - OTHER_NBYTES - weights
    fits = max(0, min(MOST_REQUESTS, int(room // on_rank))) * ep
    if room <= 0 or fits < 1:
        raise CostError(
            f"{found.name} does not fit: a rank keeps {weights / 1e9:.3g} GB of weights and {on_rank / 1e9:.2g} GB a request, and "
            f"{machine} has {gpu.nbytes / 1e9:.3g} GB a GPU; take more ranks or fewer bits"
        )
    many = fits if batch is None else batch
    if many > fits:
        raise CostError(f"{many} requests of {prompt + output} tokens do not fit: there is room for {fits}")
    job = _Job(found, where, gpu, tp, ep, weight_bits, kv, all_reduce)
    per_rank = math.ceil(many / ep)
    prefill, _, _ = job.step(prompt, prompt, prompt / 2, prompt)
    context = prompt + output / 2
    decode, how, sent = job.step(per_rank, many, context, 1)
    return Serving(
        found, machine, gpu, tp, ep, many, prompt, output, weights, request, fits, prefill, decode, how, sent
    )  # fmt: skip


@dataclass(frozen=True)
class _Job:
    model: Served
    where: Topology
    gpu: Gpu
    tp: int
    ep: int
    weight_bits: int
    kv_bits: int
    all_reduce: str

    def step(self, tokens: int, of_all: int, context: float, together: int) -> tuple[dict[str, float], str, float]:
        """Seconds of a step by part, the way of its all_reduces, and the bytes that one rank sends.

        `tokens` go through each rank, `of_all` ranks meet the experts; each looks at `context` others, `together` of one request at the same ones.
        """
        model, memory = self.model, MEMORY_SHARE * self.gpu.bytes_per_s
        layers = model.layers
        touched = model.experts * (1 - (1 - model.top_k / model.experts) ** of_all)
        share = self.tp * self.ep
        products = layers * (
            self._product_s(model.attention / self.tp, model.attention / self.tp, tokens, 2)
            + self._product_s(
                touched * model.expert / share, model.top_k * model.expert / self.tp, tokens, 2 * touched / self.ep
            )
        )
        logits = tokens / together  # only the last token of a prompt gets words
        words = model.vocabulary * model.hidden / self.tp
        products += self._product_s(words, words, logits, 1)
        heads = model.heads / self.tp
        read = tokens / together * context * model.kv_nbytes(self.kv_bits) / min(self.tp, model.kv_heads)
        flop = 4 * tokens * context * heads * model.head_size * layers
        attention = max(read / memory, flop / (self.gpu.flop_per_s * FLASH_SHARE))
        kernels = layers * (LAYER_S + LAYER_NBYTES * tokens * model.hidden / self.tp / memory)
        seconds, how, sent = self._sent(tokens)
        return (
            {"products": products, "attention": attention, "kernels": kernels, "sent": layers * seconds},
            how,
            layers * sent,
        )

    def _product_s(self, read: float, used: float, tokens: float, pieces: float) -> float:
        """Seconds to multiply `tokens` vectors: `read` parameters come from memory, each vector meets `used` of them, in so many products."""
        reading = read * self.weight_bits / 8 / (MEMORY_SHARE * self.gpu.bytes_per_s)
        bits = max(self.weight_bits, FEWEST_BITS.get(self.gpu.name, 8))
        peak = self.gpu.flop_per_s * SPEED_UP[bits] * self.gpu.product_share
        flop = 2 * used * tokens
        computing = flop / (peak * product_share(flop / pieces))
        return float((reading**TOGETHER + computing**TOGETHER) ** (1 / TOGETHER))

    def _sent(self, tokens: float) -> tuple[float, str, float]:
        """Seconds of one layer's collectives, how they run, and the bytes that a rank sends in them."""
        nbytes, model = 2.0 * tokens * self.model.hidden, self.model
        if self.ep > 1:
            # tokens go to their experts in 8 bits and come back in 16; those of an expert on the same rank stay
            moved = 1.5 * nbytes * model.top_k * (self.ep - 1) / self.ep
            start, share = ONE_SHOT
            return 2 * start + moved / (share * self.where.inside.bytes_per_s), "all_to_all", moved
        if self.tp == 1:
            return 0.0, "none", 0.0
        ways = {
            "one shot": direct_all_reduce_s(nbytes, self.tp, self.where.inside.bytes_per_s, 1),
            "two shots": direct_all_reduce_s(nbytes, self.tp, self.where.inside.bytes_per_s, 2),
            "nccl": _nccl_s(nbytes, self.tp, self.where),
        }
        if self.all_reduce not in ("best", *ways):
            raise CostError(f"all_reduce is {self.all_reduce!r}; it is one of best, {', '.join(ways)}")
        how = min(ways, key=ways.__getitem__) if self.all_reduce == "best" else self.all_reduce
        return 2 * ways[how], how, 2 * _moved(nbytes, self.tp, 1 if how == "one shot" else 2)


def _nccl_s(nbytes: float, ranks: int, where: Topology) -> float:
    try:
        return nccl_price("all_reduce", max(8.0, nbytes), where.name, ranks=ranks).seconds
    except CostError:  # NCCL's tables do not know this machine: a ring over its links
        link = where.inside
        return float(price("all_reduce", "ring", ranks, nbytes, link.alpha_s, link.beta_s_per_byte))


def _weights_nbytes(model: Served, tp: int, ep: int, bits: int) -> float:
    """Bytes of weights on a rank; the tables of words stay in 16 bits, split by tp."""
    layer = model.attention / tp + model.experts * model.expert / (tp * ep)
    return model.layers * layer * bits / 8 + 2 * 2.0 * model.vocabulary * model.hidden / tp


def _model(model: str | Served) -> Served:
    if isinstance(model, Served):
        return model
    known = {name.lower(): found for name, found in SERVED.items()}
    if model.lower() not in known:
        raise CostError(f"there is no model {model!r} to serve; there are {', '.join(SERVED)}")
    return known[model.lower()]


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CostError(f"{name} is {value!r}; it is a whole number of at least 1")

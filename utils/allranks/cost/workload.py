"""What a step of training sends: data, sharded, tensor, pipeline and expert parallelism in bytes, calls and seconds.

Each collective is priced with the bandwidth-optimal ring (all_to_all: pairwise), so that its seconds are calls * messages *
alpha + bytes sent by a rank * beta. `bytes_per_s` is a link's bandwidth in one direction (what nccl-tests calls busbw);
a network card of 200 Gb/s has 25e9 of it. Bytes are counted in each collective's own dtype. Imports without torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from allranks import cost
from allranks.errors import CourseError

__all__ = [
    "DDP_BUCKET_NBYTES",
    "Cluster",
    "Price",
    "Traffic",
    "WorkloadError",
    "ddp",
    "expert_parallel",
    "nbytes_of",
    "pipeline_parallel",
    "tensor_parallel",
    "zero",
]

ELEMENT_NBYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1}
DDP_BUCKET_NBYTES = 25 << 20  # torch's bucket_cap_mb


class WorkloadError(CourseError, ValueError):
    """A step that can't be: fewer than one rank, no bandwidth, an unknown dtype."""


@dataclass(frozen=True)
class Cluster:
    """`ranks` joined by equal links: bytes a second and direction, and seconds a message."""

    ranks: int
    bytes_per_s: float
    alpha_s: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.ranks, bool) or not isinstance(self.ranks, int) or self.ranks < 1:
            raise WorkloadError(f"ranks is {self.ranks!r}; it is a whole number above 0")
        if not 0 < self.bytes_per_s < math.inf:
            raise WorkloadError(f"the bandwidth is {self.bytes_per_s} bytes/s; it must be above 0, and finite")
        if not 0 <= self.alpha_s < math.inf:
            raise WorkloadError(f"alpha is {self.alpha_s} s; it must be 0 or more, and finite")


@dataclass(frozen=True)
class Traffic:
    """`calls` times one collective of `nbytes` (as in `cost`; "send" is one message), with what it costs a rank."""

    what: str
    collective: str
    calls: int
    nbytes: float
    bytes_sent: float
    seconds: float


@dataclass(frozen=True)
class Price:
    """A step's communication: its parts, their sums for one rank, and what of it computing can't hide.

    `exposed_s` is None where it was not asked for. `efficiency` is computing over computing plus what is exposed.
    """

    name: str
    parts: tuple[Traffic, ...]
    exposed_s: float | None = None
    efficiency: float | None = None

    @property
    def calls(self) -> int:
        """Collective calls, or messages, of a rank."""
        return sum(part.calls for part in self.parts)

    @property
    def bytes_sent(self) -> float:
        """Bytes that a rank sends."""
        return sum(part.bytes_sent for part in self.parts)

    @property
    def seconds(self) -> float:
        """Seconds of communication, one call after the other."""
        return sum(part.seconds for part in self.parts)

    def times(self, count: int) -> Price:
        """The price of doing it `count` times, as gradients are accumulated over microbatches; nothing overlaps."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise WorkloadError(f"it is done {count!r} times; that is a whole number above 0")
        parts = tuple(
            replace(part, calls=count * part.calls, bytes_sent=count * part.bytes_sent, seconds=count * part.seconds)
            for part in self.parts
        )
        return Price(self.name, parts)

    def to_dict(self) -> dict[str, Any]:
        """The price as plain data."""
        return {
            "workload": self.name,
            "calls": self.calls,
            "bytes_sent_per_rank": self.bytes_sent,
            "seconds": self.seconds,
            "exposed_seconds": self.exposed_s,
            "scaling_efficiency": self.efficiency,
            "parts": [vars(part) | {} for part in self.parts],
        }


def ddp(
    parameters: float,
    cluster: Cluster,
    dtype: str = "bfloat16",
    bucket_nbytes: float | None = DDP_BUCKET_NBYTES,
    backward_s: float | None = None,
    compute_s: float | None = None,
) -> Price:
    """Distributed data parallel: one all_reduce a bucket of gradients; `bucket_nbytes` None is one call for all.

    With `backward_s`, what stays exposed where the K buckets become ready evenly over it and go one after the other: the
    last bucket, which nothing can hide, or communication - backward (1 - 1/K) where that is more. It leaves out that
    communication slows computing down. `compute_s` is the whole step's computing.
    """
    total = _positive("parameters", parameters) * nbytes_of(dtype)
    bucket = total if bucket_nbytes is None else min(_positive("bucket_nbytes", bucket_nbytes), total)
    calls = math.ceil(total / bucket)
    part = _collective("gradients", "all_reduce", calls, total / calls, cluster)
    return _overlapped(f"DDP, {calls} buckets", part, backward_s, compute_s)


def zero(
    stage: int,
    parameters: float,
    cluster: Cluster,
    dtype: str = "bfloat16",
    gradient_dtype: str | None = None,
    reshard_after_forward: bool = True,
) -> Price:
    """ZeRO (Rajbhandari et al., arXiv:1910.02054). Stages 1 and 2: reduce_scatter gradients, all_gather parameters: 2P.

    Stage 3: all_gather before forward and, resharded, before backward again, and reduce_scatter: 3P.
    """
    if stage not in (1, 2, 3):
        raise WorkloadError(f"there is no ZeRO stage {stage!r}; there are 1, 2 and 3")
    count = _positive("parameters", parameters)
    weights, gradients = count * nbytes_of(dtype), count * nbytes_of(gradient_dtype or dtype)
    scatter = _collective("gradients", "reduce_scatter", 1, gradients, cluster)
    parts: tuple[Traffic, ...]
    if stage < 3:
        parts = (scatter, _collective("parameters", "all_gather", 1, weights, cluster))
    else:
        gathers = ["parameters for forward", "parameters for backward"][: 2 if reshard_after_forward else 1]
        parts = (*(_collective(what, "all_gather", 1, weights, cluster) for what in gathers), scatter)
    return Price(f"ZeRO-{stage}", parts)


def tensor_parallel(
    layers: int,
    batch: int,
    sequence: int,
    hidden: int,
    cluster: Cluster,
    dtype: str = "bfloat16",
    recompute: bool = False,
    sequence_parallel: bool = False,
) -> Price:
    """Tensor parallelism (Megatron-LM, arXiv:1909.08053): 2 all_reduces forward and 2 backward a layer, of b*s*h elements.

    Full recomputation adds 2. Sequence parallelism makes a reduce_scatter and an all_gather of each: the same bytes.
    """
    nbytes = math.prod(
        _positive(name, value) for name, value in (("batch", batch), ("sequence", sequence), ("hidden", hidden))
    ) * nbytes_of(dtype)
    calls = int(_positive("layers", layers)) * (6 if recompute else 4)
    kinds = ("reduce_scatter", "all_gather") if sequence_parallel else ("all_reduce",)
    return Price("tensor parallel", tuple(_collective("activations", k, calls, nbytes, cluster) for k in kinds))


def pipeline_parallel(
    microbatches: int, microbatch: int, sequence: int, hidden: int, cluster: Cluster, dtype: str = "bfloat16"
) -> Price:
    """Pipeline parallelism, one stage a rank: an inner stage sends each microbatch's activations on and gradients back.

    `efficiency` is that of the bubble alone, m / (m + p - 1), for stages of equal length.
    """
    m = int(_positive("microbatches", microbatches))
    nbytes = math.prod(
        _positive(name, value) for name, value in (("microbatch", microbatch), ("sequence", sequence), ("hidden", hidden))
    ) * nbytes_of(dtype)  # fmt: skip
    p = cluster.ranks
    calls = m if p > 1 else 0
    # with two stages there is no inner one: the first sends activations, the last their gradients
    ways = ("activations", "their gradients") if p > 2 else ("activations, or their gradients",)
    parts = tuple(
        Traffic(what, "send", calls, nbytes, calls * nbytes, calls * (cluster.alpha_s + nbytes / cluster.bytes_per_s))
        for what in ways
    )
    return Price("pipeline parallel", parts, efficiency=m / (m + p - 1))


def expert_parallel(
    tokens: int,
    top_k: int,
    hidden: int,
    cluster: Cluster,
    layers: int = 1,
    dispatch_dtype: str = "bfloat16",
    combine_dtype: str = "bfloat16",
    capacity: float = 1.0,
    training: bool = True,
) -> Price:
    """Expert parallelism with uniform routing: a dispatch and a combine all_to_all a layer, and both again backward.

    A rank sends tokens*k*h*e*(E-1)/E of E ranks each time; `capacity` above 1 pads that.
    """
    values = (("tokens", tokens), ("top_k", top_k), ("hidden", hidden), ("layers", layers), ("capacity", capacity))
    t, k, h, depth, padding = (_positive(name, value) for name, value in values)
    payload = t * k * h * padding
    ways = ("forward", "backward") if training else ("forward",)
    parts = [
        _collective(f"{what}, {way}", "all_to_all", int(depth), payload * nbytes_of(dtype), cluster)
        for way in ways
        for what, dtype in (("dispatch", dispatch_dtype), ("combine", combine_dtype))
    ]
    return Price("expert parallel", tuple(parts))


def nbytes_of(dtype: str) -> int:
    """Bytes of an element. Raises WorkloadError."""
    names = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8"}
    try:
        return ELEMENT_NBYTES[names.get(dtype, dtype)]
    except KeyError:
        raise WorkloadError(f"there is no dtype {dtype!r} here; there are {', '.join(ELEMENT_NBYTES)}") from None


def _collective(what: str, collective: str, calls: int, nbytes: float, cluster: Cluster) -> Traffic:
    terms = cost.terms(collective, cost.TEXTBOOK[collective], cluster.ranks, 1)
    sent = calls * float(terms.nbytes) * nbytes
    seconds = calls * float(terms.messages) * cluster.alpha_s + sent / cluster.bytes_per_s
    return Traffic(what, collective, calls, nbytes, sent, seconds)


def _overlapped(name: str, part: Traffic, backward_s: float | None, compute_s: float | None) -> Price:
    for what, value in (("backward pass", backward_s), ("step's computing", compute_s)):
        if value is not None and not 0 <= value < math.inf:
            raise WorkloadError(f"the {what} takes {value} s; it can't be negative, and is finite")
    if backward_s is None:
        return Price(name, (part,))
    # the first bucket is complete after its share of backward, and the last one when backward is over
    exposed = max(part.seconds - backward_s * (1 - 1 / part.calls), part.seconds / part.calls)
    compute = backward_s if compute_s is None else compute_s
    return Price(name, (part,), exposed, compute / (compute + exposed) if compute + exposed > 0 else None)


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise WorkloadError(f"{name} is {value!r}; it is a number above 0")
    return value

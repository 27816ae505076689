"""What a step of training sends: data, sharded, tensor, pipeline and expert parallelism, in bytes, calls and seconds.

Each collective has the price of the ring (all_to_all: of the pairwise exchange), which sends the fewest bytes: calls *
messages * alpha + bytes that a rank sends * beta. Bytes are those of each collective's own dtype. Imports without torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from allranks.base.errors import CourseError
from allranks.theory import cost

__all__ = [
    "DDP_BUCKET_NBYTES",
    "Cluster",
    "Price",
    "Traffic",
    "WorkloadError",
    "context_parallel",
    "ddp",
    "expert_parallel",
    "nbytes_of",
    "pipeline_parallel",
    "tensor_parallel",
    "zero",
]

ELEMENT_NBYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1}
# The size of DDP's gradient buckets in bytes: torch's default for bucket_cap_mb.
DDP_BUCKET_NBYTES = 25 << 20


class WorkloadError(CourseError, ValueError):
    """A step of training that is impossible: fewer than one rank, no bandwidth, an unknown dtype."""


@dataclass(frozen=True)
class Cluster:
    """`ranks` with equal links: bytes a second in one direction (nccl-tests' busbw), and seconds a message.

    A network card of 200 Gb/s has 25e9 bytes a second. Raises WorkloadError for impossible figures.

    >>> workload.Cluster(ranks=8, bytes_per_s=25e9)
    Cluster(ranks=8, bytes_per_s=25000000000.0, alpha_s=0.0)
    """

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
    """`calls` calls of one collective of `nbytes` each (as in `cost`; "send" is one message), and what a rank sends in them.

    >>> workload.pipeline_parallel(4, 1, 2048, 4096, workload.Cluster(2, 25e9)).parts[0].collective
    'send'
    """

    what: str
    collective: str
    calls: int
    nbytes: float
    bytes_sent: float
    seconds: float


@dataclass(frozen=True)
class Price:
    """The communication of one step: its parts, and their sums for one rank.

    `exposed_s` is the seconds that no computing can hide; None if the backward pass was not given. `efficiency` is
    computing over computing plus exposed seconds.

    >>> round(workload.zero(1, 1e9, workload.Cluster(8, 25e9)).bytes_sent)
    3500000000
    """

    name: str
    parts: tuple[Traffic, ...]
    exposed_s: float | None = None
    efficiency: float | None = None

    @property
    def calls(self) -> int:
        """The calls (or messages) of one rank."""
        return sum(part.calls for part in self.parts)

    @property
    def bytes_sent(self) -> float:
        """The bytes that one rank sends."""
        return sum(part.bytes_sent for part in self.parts)

    @property
    def seconds(self) -> float:
        """Seconds of communication, if one call starts after the other has ended."""
        return sum(part.seconds for part in self.parts)

    def times(self, count: int) -> Price:
        """The price of `count` repetitions, one after the other, for example for each microbatch. Raises WorkloadError."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise WorkloadError(f"count is {count!r}; it is a whole number above 0")
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
    """Distributed data parallel: one all_reduce for each bucket of gradients; with `bucket_nbytes` None, one for all.

    With `backward_s`, the seconds of the backward pass, the price says how much of the communication is exposed. K buckets
    become ready at equal distances over the backward pass, and are sent one after the other. Exposed is then the last
    bucket, or communication - backward (1 - 1/K), whichever is longer. That communication slows computing is left out.
    `compute_s` is the computing of the whole step, in seconds. Raises WorkloadError.

    >>> workload.ddp(7e9, workload.Cluster(8, 25e9), bucket_nbytes=None).seconds
    0.98
    """
    total = _positive("parameters", parameters) * nbytes_of(dtype)
    part = _in_buckets("gradients", "all_reduce", total, bucket_nbytes, cluster)
    return _overlapped(f"DDP, {part.calls} buckets", part, backward_s, compute_s)


def zero(
    stage: int,
    parameters: float,
    cluster: Cluster,
    dtype: str = "bfloat16",
    gradient_dtype: str | None = None,
    reshard_after_forward: bool = True,
    bucket_nbytes: float | None = DDP_BUCKET_NBYTES,
    all_reduce_gradients: bool = False,
) -> Price:
    """ZeRO and FSDP (Rajbhandari et al., arXiv:1910.02054).

    Stages 1 and 2: reduce_scatter of the gradients and all_gather of the parameters. Stage 3: all_gather before the forward
    pass, again before the backward pass if `reshard_after_forward`, and reduce_scatter of the gradients. All go in buckets,
    as in `ddp`. With `all_reduce_gradients`, stages 1 and 2 all_reduce the gradients, as DeepSpeed does by default
    (`use_multi_rank_bucket_allreduce`): 3 times the parameters' bytes instead of 2. Raises WorkloadError.

    >>> [part.collective for part in workload.zero(3, 7e9, workload.Cluster(8, 25e9)).parts]
    ['all_gather', 'all_gather', 'reduce_scatter']
    """
    if stage not in (1, 2, 3):
        raise WorkloadError(f"there is no ZeRO stage {stage!r}; there are 1, 2 and 3")
    count = _positive("parameters", parameters)
    weights, gradients = count * nbytes_of(dtype), count * nbytes_of(gradient_dtype or dtype)
    if all_reduce_gradients and stage == 3:
        raise WorkloadError("all_reduce_gradients is for the stages 1 and 2; in stage 3 no rank keeps all gradients")
    kind = "all_reduce" if all_reduce_gradients else "reduce_scatter"
    scatter = _in_buckets("gradients", kind, gradients, bucket_nbytes, cluster)
    names = ["parameters for forward", "parameters for backward"][: 2 if reshard_after_forward else 1]
    gathers = [
        _in_buckets(what, "all_gather", weights, bucket_nbytes, cluster)
        for what in (["parameters"] if stage < 3 else names)
    ]
    parts = (scatter, *gathers) if stage < 3 else (*gathers, scatter)
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
    """Tensor parallelism (Megatron-LM, arXiv:1909.08053).

    In each layer 2 all_reduces forward and 2 backward, of batch * sequence * hidden elements; with `recompute`, of all
    activations, 2 more. With `sequence_parallel`, each is a reduce_scatter and an all_gather: the same bytes. Raises
    WorkloadError.

    >>> workload.tensor_parallel(32, 1, 2048, 4096, workload.Cluster(8, 240e9)).calls
    128
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
    """Pipeline parallelism with one stage on each rank, for an inner stage.

    It sends the activations of each microbatch to the next stage, and their gradients to the stage before. `efficiency` is
    m / (m + p - 1) for m microbatches, if all stages take equally long: only the bubble counts. Raises WorkloadError.

    >>> workload.pipeline_parallel(7, 1, 2048, 4096, workload.Cluster(4, 25e9)).efficiency
    0.7
    """
    m = int(_positive("microbatches", microbatches))
    nbytes = math.prod(
        _positive(name, value) for name, value in (("microbatch", microbatch), ("sequence", sequence), ("hidden", hidden))
    ) * nbytes_of(dtype)  # fmt: skip
    p = cluster.ranks
    calls = m if p > 1 else 0
    # of two stages, the first sends only activations, and the last only their gradients
    ways = ("activations", "their gradients") if p > 2 else ("activations, or their gradients",)
    parts = tuple(
        Traffic(what, "send", calls, nbytes, calls * nbytes, calls * (cluster.alpha_s + nbytes / cluster.bytes_per_s))
        for what in ways
    )
    return Price("pipeline parallel", parts, efficiency=m / (m + p - 1))


def context_parallel(
    layers: int, batch: int, sequence: int, hidden: float, cluster: Cluster, dtype: str = "bfloat16"
) -> Price:
    """Context parallelism: each rank has a part of every sequence, and keys and values go round (arXiv:2310.01889).

    In each layer a rank sends keys and values of sequence / p tokens p-1 times forward; backward it sends them again, and p-1
    times their gradients. `hidden` is the width of the keys on one rank, as wide as that of the queries: a model whose queries
    share keys sends less. Raises WorkloadError.

    >>> workload.context_parallel(32, 1, 8192, 4096, workload.Cluster(4, 25e9)).calls
    288
    """
    p = cluster.ranks
    tokens = _positive("sequence", sequence) / p
    nbytes = 2 * _positive("batch", batch) * tokens * _positive("hidden", hidden) * nbytes_of(dtype)
    calls = int(_positive("layers", layers)) * (p - 1)
    ways = ("keys and values, forward", "keys and values, backward", "their gradients")
    seconds = calls * (cluster.alpha_s + nbytes / cluster.bytes_per_s)
    return Price(
        "context parallel", tuple(Traffic(what, "send", calls, nbytes, calls * nbytes, seconds) for what in ways)
    )


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
    """Expert parallelism with equally many tokens for each expert.

    In each layer one all_to_all dispatches tokens and one combines results; if `training`, both again backward. Each time a
    rank sends tokens * top_k * hidden elements, of which (p-1)/p leave it; `capacity` above 1 pads them. Raises
    WorkloadError.

    >>> workload.expert_parallel(4096, 2, 4096, workload.Cluster(8, 25e9), layers=32).calls
    128
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
    """Bytes of one element. Raises WorkloadError.

    >>> workload.nbytes_of("bf16")
    2
    """
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


def _in_buckets(what: str, collective: str, total: float, bucket_nbytes: float | None, cluster: Cluster) -> Traffic:
    """One call for each bucket; None is one for all."""
    bucket = total if bucket_nbytes is None else min(_positive("bucket_nbytes", bucket_nbytes), total)
    calls = math.ceil(total / bucket)
    return _collective(what, collective, calls, total / calls, cluster)


def _overlapped(name: str, part: Traffic, backward_s: float | None, compute_s: float | None) -> Price:
    for what, value in (("backward pass", backward_s), ("step's computing", compute_s)):
        if value is not None and not 0 <= value < math.inf:
            raise WorkloadError(f"the {what} takes {value} s; it must be 0 or more, and finite")
    if backward_s is None:
        return Price(name, (part,))
    # bucket i of K is ready after i/K of the backward pass
    exposed = max(part.seconds - backward_s * (1 - 1 / part.calls), part.seconds / part.calls)
    compute = backward_s if compute_s is None else compute_s
    return Price(name, (part,), exposed, compute / (compute + exposed) if compute + exposed > 0 else None)


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise WorkloadError(f"{name} is {value!r}; it is a number above 0")
    return value

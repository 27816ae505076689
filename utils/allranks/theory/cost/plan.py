"""A plan of a training run: a model, a machine, and how the model is split over its ranks; and what a step then sends.

The prices are those of `allranks.cost.workload`; a plan adds which ranks form a group, and which links join them. Ranks are
numbered as Megatron-LM does by default: tensor parallel ranks are neighbours, then come the context parallel ones, then the
data parallel ranks (with the expert parallel ones among them), and the stages of the pipeline are farthest apart. Imports without torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from allranks.theory.cost import workload
from allranks.theory.cost.workload import Cluster, Price, Traffic, WorkloadError
from allranks.theory.schedules import MAX_RANKS
from allranks.theory.topology import Topology, TopologyError, preset

__all__ = [
    "MODELS",
    "Model",
    "Plan",
    "custom_model",
    "links_of_group",
    "plan",
]

# a parameter's float32 copy, momentum and variance: Adam in mixed precision (arXiv:1910.02054, section 3.1)
OPTIMIZER_NBYTES = 12


@dataclass(frozen=True)
class Model:
    """A transformer. `parameters` counts all parameters, `expert_parameters` those of them that belong to experts.

    `heads` are those of attention (0: not known), `vocabulary` the words that the last layer tells apart (0: it is not counted apart).

    >>> MODELS["LLaMA 65B"].layers
    80
    """

    name: str
    parameters: float
    layers: int
    hidden: int
    sequence: int
    experts: int = 0
    top_k: int = 0
    expert_parameters: float = 0.0
    source: str = ""
    heads: int = 0
    vocabulary: int = 0


# the inner width of my model's MLP, that of LLaMA's with 7 billion parameters; its three matrices are one expert's
_MLP = 11008

# The models by name, each with the source of its figures. "my model" is the one whose story the course tells.
MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("7B", 7e9, 32, 4096, 2048, source="7 billion, with the shape of LLaMA's smallest: arXiv:2302.13971, table 2", heads=32, vocabulary=32000),
        Model("LLaMA 65B", 65.2e9, 80, 8192, 2048, source="arXiv:2302.13971, table 2", heads=64, vocabulary=32000),
        Model("GPT-3 175B", 175e9, 96, 12288, 2048, source="arXiv:2005.14165, table 2.1", heads=96, vocabulary=50257),
        # three matrices of hidden x 14336 an expert, 8 experts a layer
        Model("Mixtral 8x7B", 46.7e9, 32, 4096, 4096, 8, 2, 32 * 8 * 3 * 4096 * 14336, "arXiv:2401.04088, table 1; sequences chosen here", 32, 32000),
        Model("my model", 7e9, 32, 4096, 4096, source="7B, with sequences of 4096 tokens", heads=32, vocabulary=32000),
        Model("my model, 8 experts", 7e9 + 7 * 32 * 3 * 4096 * _MLP, 32, 4096, 4096, 8, 2, 8 * 32 * 3 * 4096 * _MLP, "my model; eight of its MLP", 32, 32000),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How a step of training is split over dp * tp * pp * cp ranks.

    `dp` is the number of data parallel replicas, `tp` of tensor parallel ranks, `pp` of pipeline stages, `cp` of context
    parallel ranks, which have equal parts of each sequence; `ep` of the `dp` ranks share the experts. `zero_stage` 0 is plain DDP. `batch` and `microbatch` count sequences: in a step a replica
    computes batch / dp of them, `microbatch` at a time. Interleaved, a pipeline stage has `chunks` parts of the layers. `all_reduce_gradients` is DeepSpeed's way in stages 1 and 2. Raises WorkloadError if these numbers do not fit together.

    >>> split = plan("7B", "dgx-h100", dp=4, tp=8)
    >>> split.ranks, list(split.prices)
    (32, ['data', 'tensor'])
    """

    model: Model
    machine: Topology
    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1
    zero_stage: int = 0
    bucket_nbytes: float | None = workload.DDP_BUCKET_NBYTES
    all_reduce_gradients: bool = False
    batch: int = 256
    microbatch: int = 1
    dtype: str = "bfloat16"
    chunks: int = 1

    def __post_init__(self) -> None:
        model = self.model
        for name in ("dp", "tp", "pp", "ep", "cp", "batch", "microbatch", "chunks"):
            _check_positive(name, getattr(self, name))
        for name in ("layers", "hidden", "sequence"):
            _check_positive(name, getattr(model, name))
        if not model.parameters > 0 or not 0 <= model.expert_parameters <= model.parameters:
            raise WorkloadError(
                f"the model has {model.parameters:g} parameters, {model.expert_parameters:g} of them in experts; a model has "
                "more than 0, and no more in experts than in all"
            )
        if self.zero_stage not in (0, 1, 2, 3):
            raise WorkloadError(f"there is no ZeRO stage {self.zero_stage!r}; there are 1, 2 and 3, and 0 is plain DDP")
        if self.all_reduce_gradients and self.zero_stage not in (1, 2):
            raise WorkloadError(f"all_reduce_gradients is for ZeRO stages 1 and 2; this is stage {self.zero_stage}")
        if self.ranks > MAX_RANKS:
            raise WorkloadError(f"dp x tp x pp x cp is {self.ranks} ranks; it must be at most {MAX_RANKS}")
        workload.nbytes_of(self.dtype)
        for name in ("heads", "vocabulary"):
            if getattr(model, name) != 0:
                _check_positive(name, getattr(model, name))
        if model.hidden * model.vocabulary >= model.parameters:
            raise WorkloadError(
                f"the model has {model.parameters:g} parameters, no more than the {model.hidden * model.vocabulary:g} of its "
                "vocabulary; give it more parameters, or vocabulary=0"
            )
        self._check_divides("layers", model.layers, "pp", self.pp, "every stage has as many layers")
        self._check_divides("hidden", model.hidden, "tp", self.tp, "every rank has as many columns")
        self._check_divides("sequence", model.sequence, "cp", self.cp, "every rank has as many tokens")
        self._check_divides(
            "batch", self.batch, "dp x microbatch", self.dp * self.microbatch, "every replica does whole ones"
        )
        if self.chunks > 1:
            by = self.pp * self.chunks
            self._check_divides("layers", model.layers, "pp x chunks", by, "every chunk has as many layers")
            self._check_divides("microbatches", self.microbatches, "pp", self.pp, "interleaved stages take turns")
        if self.ep > 1 and self.cp > 1:
            raise WorkloadError(
                f"ep is {self.ep} and cp is {self.cp}; one of them must be 1, because both are not priced"
            )
        if self.ep > 1 and model.experts < 2:
            raise WorkloadError(f"ep is {self.ep}, but the model {model.name} has no experts to spread")
        if self.ep > 1:
            self._check_divides("experts", model.experts, "ep", self.ep, "every rank has as many experts")
            self._check_divides(
                "dp", self.dp, "ep", self.ep, "expert parallel ranks are taken from the data parallel ones"
            )
        if self.machine.nic is None and self.ranks > self.machine.ranks_per_node:
            raise WorkloadError(
                f"{self.machine.name} is one node of {self.machine.ranks_per_node} ranks, not {self.ranks}"
            )

    @property
    def ranks(self) -> int:
        """The world size."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def microbatches(self) -> int:
        """How many microbatches a replica computes in a step."""
        return self.batch // (self.dp * self.microbatch)

    @property
    def state_nbytes(self) -> float:
        """Bytes of weights, gradients and Adam's state on one rank, without activations.

        ZeRO shards the optimizer's 12 bytes a parameter (stages 1 to 3), the gradients (2 and 3) and the weights (3).
        """
        return sum(self.state_parts)

    @property
    def state_parts(self) -> tuple[float, float, float]:
        """Bytes of the weights, of the gradients and of Adam's state on one rank."""
        element = workload.nbytes_of(self.dtype)
        optimizer = OPTIMIZER_NBYTES - (4 if element == 4 else 0)  # float32 weights need no copy
        found = [0.0, 0.0, 0.0]
        dense, expert = self._parameters
        for count, ways in ((dense, self.dp * self.cp), (expert, self.dp // self.ep)):
            for part, (nbytes, first_stage) in enumerate(((element, 3), (element, 2), (optimizer, 1))):
                found[part] += count * nbytes / (ways if self.zero_stage >= first_stage else 1)
        return found[0], found[1], found[2]

    @cached_property
    def prices(self) -> dict[str, Price]:
        """What a rank of an inner pipeline stage sends in a step, by kind: "data", "tensor", "context", "pipeline", "expert".

        A kind whose groups have one rank sends nothing and is left out.
        """
        model, m = self.model, self.microbatches
        stage, tokens = model.layers // self.pp, model.sequence // self.cp
        found = {}
        if self.dp * self.cp > 1:
            found["data"] = self._data()
        if self.tp > 1:
            group = self.group(1, self.tp)
            price = workload.tensor_parallel(stage, self.microbatch, tokens, model.hidden, group, self.dtype)
            found["tensor"] = price.times(m)
        if self.cp > 1:
            group = self.group(self.tp, self.cp)
            price = workload.context_parallel(
                stage, self.microbatch, model.sequence, model.hidden / self.tp, group, self.dtype
            )
            found["context"] = price.times(m)
        if self.pp > 1:
            group = self.group(self.tp * self.dp * self.cp, self.pp)
            sent = workload.pipeline_parallel(m, self.microbatch, tokens, model.hidden, group, self.dtype)
            found["pipeline"] = sent if self.chunks == 1 else sent.times(self.chunks)
        if self.ep > 1:
            group = self.group(self.tp, self.ep, to_all=True)
            price = workload.expert_parallel(
                self.microbatch * tokens,
                model.top_k,
                model.hidden,
                group,
                stage,
                dispatch_dtype=self.dtype,
                combine_dtype=self.dtype,
            )
            found["expert"] = price.times(m)
        return found

    @property
    def calls(self) -> int:
        """The collective calls and messages of one rank in a step."""
        return sum(price.calls for price in self.prices.values())

    @property
    def bytes_sent(self) -> float:
        """The bytes that one rank sends in a step."""
        return sum(price.bytes_sent for price in self.prices.values())

    @property
    def seconds(self) -> float:
        """Seconds of communication in a step, if no call overlaps with another or with computing."""
        return sum(price.seconds for price in self.prices.values())

    @property
    def bubble(self) -> float:
        """The share of a step, from 0 to 1, in which a pipeline stage waits."""
        return (self.pp - 1) / (self.chunks * self.microbatches + self.pp - 1)

    def group(self, stride: int, size: int, to_all: bool = False) -> Cluster:
        """The links of a group of `size` ranks whose numbers are `stride` apart: see `links_of_group`."""
        return links_of_group(self.machine, self.ranks, stride, size, to_all)

    @property
    def _parameters(self) -> tuple[float, float]:
        """The parameters on one rank: (those that every replica has, those of its experts)."""
        shards = self.tp * self.pp
        expert = self.model.expert_parameters if self.ep > 1 else 0.0
        return (self.model.parameters - expert) / shards, expert / (shards * self.ep)

    def _data(self) -> Price:
        dense, expert = self._parameters
        parts: list[Traffic] = []
        for whose, count, stride, size in (
            ("", dense, self.tp, self.dp * self.cp),
            ("experts' ", expert, self.tp * self.ep, self.dp // self.ep),
        ):
            if count and size > 1:
                priced = self._shared(count, self.group(stride, size))
                parts += [replace(part, what=whose + part.what) for part in priced]
        return Price(f"ZeRO-{self.zero_stage}" if self.zero_stage else "DDP", tuple(parts))

    def _shared(self, parameters: float, group: Cluster) -> list[Traffic]:
        """What replicas send for `parameters`: stages 0 and 1 in buckets, once a step, stages 2 and 3 in layers.

        What is sharded is gathered or reduced again for each microbatch.
        """
        if self.zero_stage == 0:
            return list(workload.ddp(parameters, group, self.dtype, self.bucket_nbytes).parts)
        again = {"reduce_scatter", "all_reduce"} | ({"all_gather"} if self.zero_stage == 3 else set())
        layers = self.model.layers // self.pp
        pieces, bucket = (layers, None) if self.zero_stage >= 2 else (1, self.bucket_nbytes)
        price = workload.zero(
            self.zero_stage,
            parameters / pieces,
            group,
            self.dtype,
            bucket_nbytes=bucket,
            all_reduce_gradients=self.all_reduce_gradients,
        )
        often = self.microbatches if self.zero_stage >= 2 else 1
        return [
            Price("", (part,)).times(pieces * (often if part.collective in again else 1)).parts[0]
            for part in price.parts
        ]

    def _check_divides(self, what: str, whole: int, by_what: str, by: int, so: str) -> None:
        if whole % by:
            raise WorkloadError(f"{what} is {whole}, which {by_what} = {by} does not divide; it must, so that {so}")


def links_of_group(machine: Topology, ranks: int, stride: int, size: int, to_all: bool = False) -> Cluster:
    """The links of a group of `size` ranks whose numbers are `stride` apart, as equal links for `workload`.

    They have the bandwidth of the slowest link between the ranks of the group. Groups that use the same bridge or the same
    network cards share them. A group with several ranks in a node uses the cards of all these ranks. `to_all` says that it
    runs an all_to_all: then each rank has an equal share of what is shared, only the bytes that leave a node take its cards,
    and all links work at once. Raises WorkloadError where several nodes are needed and the machine has no network.

    >>> links_of_group(preset("dgx-h100"), ranks=16, stride=8, size=2).bytes_per_s
    50000000000.0
    """
    node, island = machine.ranks_per_node, machine.ranks_per_island or machine.ranks_per_node
    if machine.nic is None and ranks > node:
        raise WorkloadError(f"{machine.name} is one node of {node} ranks, not {ranks}")
    # each level: the ranks that one unit has, the bytes a second of all its links together, and alpha
    levels = []
    if machine.host is not None and island < node and not _stays_within(stride, size, island, ranks):
        levels.append((island, machine.host.bytes_per_s, machine.host.alpha_s))
    if machine.nic is not None and not _stays_within(stride, size, node, ranks):
        cards = machine.nics_per_node * machine.nic.bytes_per_s
        levels.append((node, cards, machine.nic.alpha_s))
        leaf_nodes = machine.nodes_per_leaf or 0
        if leaf_nodes and not _stays_within(stride, size, node * leaf_nodes, ranks):
            levels.append((node * leaf_nodes, cards * leaf_nodes / machine.oversubscription, 0.0))
    alpha = max((machine.inside.alpha_s, *(alpha for _, _, alpha in levels)))
    if to_all and size > 1:
        return Cluster(size, _exchange_rate(machine, stride, size, levels), alpha)
    shares = (rate / min(stride, unit) for unit, rate, _ in levels)
    return Cluster(size, min((machine.inside.bytes_per_s, *shares)), alpha)


def _exchange_rate(machine: Topology, stride: int, size: int, levels: list[tuple[int, float, float]]) -> float:
    """The rate at which a rank of an all_to_all sends its (size-1)/size of the bytes, if all kinds of links work at once."""
    near = [min(size, max(1, unit // stride)) for unit, _, _ in levels]  # the group's ranks in one unit
    busiest = ((near[0] if levels else size) - 1) / machine.inside.bytes_per_s
    for at, (unit, rate, _) in enumerate(levels):
        # bytes to other nodes do not take the links between a node's islands
        reached = near[at + 1] if unit < machine.ranks_per_node and at + 1 < len(levels) else size
        busiest = max(busiest, (reached - near[at]) * unit / rate)
    return (size - 1) / busiest


def plan(model: str | Model, machine: str | Topology, **split: Any) -> Plan:
    """A plan by the names of a model (`MODELS`) and of a machine: a preset, or your own topology file. Raises WorkloadError.

    `split` is the fields of `Plan`.

    >>> plan("7B", "dgx-h100", dp=4, tp=8).ranks
    32
    """
    if isinstance(machine, str):
        try:
            machine = preset(machine)
        except TopologyError as error:
            raise WorkloadError(str(error)) from None
    return Plan(_model(model), machine, **split)


def custom_model(model: Model, **figures: Any) -> Model:
    """The model with other figures; it is then called "own figures".

    >>> custom_model(MODELS["7B"], layers=16).name
    'own figures'
    """
    return replace(model, name="own figures", source="", **figures)


def _model(wanted: str | Model) -> Model:
    if isinstance(wanted, Model):
        return wanted
    try:
        return MODELS[wanted]
    except KeyError:
        raise WorkloadError(f"there is no model {wanted!r}; there are {', '.join(MODELS)}") from None


def _stays_within(stride: int, size: int, unit: int, ranks: int) -> bool:
    """Whether every group of `size` ranks, `stride` apart, lies inside one unit (of `unit` ranks) of the machine."""
    return ranks <= unit or unit % (stride * size) == 0


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WorkloadError(f"{name} is {value!r}; it is a whole number above 0")

"""The story of my model: what it needs at the beginning of each chapter of the core, and what each axis of its split wins.

All figures are those of `plan` and `training_step`; a chapter's text says what `needs` says, and a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from allranks.base import chapters as course_map
from allranks.base.chapters import Chapter
from allranks.theory.cost.plan import MODELS, Model, Plan, plan
from allranks.theory.cost.step import TrainingStep, training_step
from allranks.theory.cost.workload import WorkloadError

MIB, GIB = 1 << 20, 1 << 30
# the model that a model becomes when it gets experts
WITH_EXPERTS = {"my model": "my model, 8 experts"}

# One GPU, before any axis is open. `tokens` are those of a step; a `bucket` of 0 is one call for all gradients; `ep` of 0: no experts.
START: dict[str, Any] = {
    "model": "my model",
    "machine": "dgx-h100",
    "sequence": 4096,
    "tokens": 1 << 20,
    "microbatch": 1,
    "ranks": 1,
    "bucket": 0,
    "zero_stage": 0,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "ep": 0,
}


@dataclass(frozen=True)
class Axis:
    """A way to split a training run: the value that it sets, and the argument of `plan` by which the course's table names it.

    `wanted` is what the story wants at the beginning of the chapter that opens it, as changes of the values before; `choice` is
    what the course then chooses.
    """

    key: str
    name: str
    unlocked_as: str
    wanted: dict[str, Any] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)

    @property
    def opened_by(self) -> Chapter:
        """The chapter that opens it."""
        return next(chapter for chapter in course_map.core() if chapter.unlocks == self.unlocked_as)

    @property
    def chapter(self) -> str:
        """That chapter's name."""
        return name_of(self.opened_by)


def name_of(chapter: Chapter) -> str:
    """What `my_model` calls a chapter: its file's name without the number, which a new order does not change."""
    return chapter.stem.partition("_")[2]


AXES = (
    Axis("ranks", "Data parallel", "dp", choice={"ranks": 64}),
    Axis("bucket", "Buckets", "bucket_nbytes", choice={"bucket": 250 * MIB}),
    Axis("zero_stage", "ZeRO stage", "zero_stage", choice={"zero_stage": 1}),
    Axis("tp", "Tensor", "tp", {"ranks": 1024, "bucket": GIB}, {"tp": 4}),
    Axis("pp", "Pipeline", "pp", {"machine": "cloud-ethernet"}, {"tp": 1, "pp": 4}),
    Axis(
        "cp",
        "Context",
        "cp",
        {"machine": "dgx-h100", "sequence": 131072, "tp": 8, "pp": 1, "zero_stage": 2},
        {"cp": 16},
    ),
    Axis("ep", "Expert", "ep", {"ranks": 64, "sequence": 4096, "tp": 1, "cp": 1, "ep": 1}, {"ep": 2}),
)
# the chapter that ends the course has all axes, and my model as it was before it got experts
LAST = name_of(course_map.core()[-1])
OPENED_BY = {axis.chapter: count for count, axis in enumerate(AXES, 1)} | {LAST: len(AXES)}


def values_after(opened: int) -> dict[str, Any]:
    """What the course has chosen when so many axes are open."""
    values = dict(START)
    for axis in AXES[:opened]:
        values |= axis.wanted | axis.choice
    return values


def values_at(chapter: str) -> dict[str, Any]:
    """What the course has chosen at the end of a chapter."""
    return values_after(OPENED_BY[chapter]) | ({"ep": 0, "bucket": 250 * MIB} if chapter == LAST else {})


def values_wanted(chapter: str) -> dict[str, Any]:
    """What is wanted at the beginning of a chapter, without the axis that it opens."""
    opened = OPENED_BY[chapter]
    return values_after(opened - 1) | AXES[opened - 1].wanted


def model_of(values: dict[str, Any]) -> Model:
    """The model with the chosen sequences; with experts where some are to be spread. Raises WorkloadError."""
    name = values["model"]
    if values["ep"] and not MODELS[name].experts:
        if name not in WITH_EXPERTS:
            raise WorkloadError(f"the model {name} has no experts to spread")
        name = WITH_EXPERTS[name]
    return replace(MODELS[name], sequence=values["sequence"])


def plan_of(values: dict[str, Any]) -> Plan:
    """The plan that the values mean. Raises WorkloadError if it is impossible."""
    shards = values["tp"] * values["pp"] * values["cp"]
    if values["ranks"] % shards:
        raise WorkloadError(f"tp x pp x cp is {shards}, which does not divide {values['ranks']} ranks")
    if values["tokens"] % values["sequence"]:
        raise WorkloadError(f"{values['tokens']} tokens are not whole sequences of {values['sequence']}")
    split = {name: values[name] for name in ("tp", "pp", "cp", "zero_stage", "microbatch")}
    return plan(
        model_of(values),
        values["machine"],
        dp=values["ranks"] // shards,
        ep=max(1, values["ep"]),
        bucket_nbytes=values["bucket"] or None,
        batch=values["tokens"] // values["sequence"],
        **split,
    )


def step_of(values: dict[str, Any], **changed: Any) -> TrainingStep:
    """The memory and the seconds of a step of that plan, with some values changed. Raises WorkloadError if it is impossible."""
    return training_step(plan_of(values | changed))


def sentence(found: TrainingStep) -> str:
    """Whether a step fits, what it needs and takes: the sentence that the browser says too (js/src/explore/verdict.js).

    >>> sentence(step_of(START))
    "A GPU needs 134 GB, and H100 has 80 GB: 54 GB too much. This step can't run."
    """
    limit = found.gpu.nbytes
    held = f"A GPU needs {_gigabytes(found.nbytes)}, and {found.gpu.name} has {_gigabytes(limit)}"
    if not found.fits:
        return f"{held}: {_gigabytes(found.nbytes - limit)} too much. This step can't run."
    exposed = _seconds(found.lost_s) if found.lost_s > 0 else "none"
    return (
        f"{held}: {_gigabytes(limit - found.nbytes)} to spare. A step takes {_seconds(found.seconds)}, "
        f"{exposed} of it exposed: {100 * found.mfu:.0f} % MFU."
    )


def needs(chapter: str) -> str:
    """What my model needs at the beginning of a chapter of the core, in two or three sentences. Raises KeyError for others.

    >>> needs("all_reduce")
    'My model needs this after every step: 64 GPUs add 14 GB of gradients.'
    """
    return _NEEDS[chapter]()


def _start_here() -> str:
    one = step_of(START)
    return (
        "This course follows one model, called *my model*: 7 billion parameters in bfloat16, trained with Adam. "
        f"On one GPU it needs {_gb(one.nbytes)} for weights, gradients, Adam's state and activations, and a GPU has "
        f"{_gb(one.gpu.nbytes)}. At the end of the course it runs on 64 GPUs, "
        "and on 1,024. All of that begins with processes that agree on one number."
    )


def _point_to_point() -> str:
    sent = step_of(values_at("pipelines")).plan.prices["pipeline"].parts[0]
    return (
        "My model will stand on several GPUs in a row, each with some of its layers. "
        f"Then a GPU sends {sent.nbytes / 1e6:.0f} MB to the next one for every sequence, and the next one must be ready to receive."
    )


def _all_reduce() -> str:
    gradients = step_of(values_at("data_parallel")).memory["gradients"]
    return f"My model needs this after every step: 64 GPUs add {_gb(gradients)} of gradients."


def _reduce_scatter() -> str:
    before, after = (step_of(values_at(name)) for name in ("data_parallel", "sharded_training"))
    return (
        f"The optimizer's state of my model takes {_gb(before.memory['optimizer'])}, the same on all 64 GPUs. If each GPU keeps only its own "
        f"part, the model needs {_gb(after.nbytes)} instead of {_gb(before.nbytes)}, activations included."
    )


def _all_to_all() -> str:
    sent = step_of(values_at("mixture_of_experts")).plan.prices["expert"].parts[0]
    return (
        "My model will have experts on several GPUs. "
        f"Then each GPU has {sent.nbytes / 1e6:.0f} MB of tokens for them in every layer, and wants their results back."
    )


def _data_parallel() -> str:
    one, many = step_of(values_wanted("data_parallel")), step_of(values_at("data_parallel"))
    return (
        f"One GPU would take {one.seconds:.0f} s for a step of my model with 1 million tokens. 64 GPUs can share the tokens; then a step "
        f"takes {many.seconds:.2f} s, if all GPUs agree on one gradient. Until its state is sharded it does not fit: {_gb(many.nbytes)} for "
        f"a GPU with {_gb(many.gpu.nbytes)}."
    )


def _overlap() -> str:
    found = step_of(values_wanted("overlap_and_bucketing"))
    return (
        f"On 64 GPUs a step of my model takes {found.seconds:.2f} s. For {1e3 * found.spent['data']:.0f} ms of it all GPUs wait for the "
        f"all-reduce of {_gb(found.memory['gradients'])} of gradients. Can they be sent while the GPUs still compute?"
    )


def _sharded() -> str:
    found = step_of(values_wanted("sharded_training"))
    return (
        f"A step of my model takes {found.seconds:.2f} s on 64 GPUs, but it does not fit: each GPU needs {_gb(found.nbytes)} and has "
        f"{_gb(found.gpu.nbytes)}. Of these, {_gb(found.memory['optimizer'])} are the optimizer's state, and all 64 GPUs hold the same."
    )


def _tensor() -> str:
    found = step_of(values_at("sharded_training"))
    batch = found.plan.batch
    return (
        f"My model fits now: {_gb(found.nbytes)} of {_gb(found.gpu.nbytes)}, and a step takes {found.seconds:.2f} s on 64 GPUs. I want it "
        f"faster, on 1,024 GPUs. But a step has {batch} sequences, and a replica needs at least one: at most {batch} replicas. The other "
        "GPUs can help only if several GPUs share every layer."
    )


def _pipelines() -> str:
    fast, slow = step_of(values_at("tensor_parallel")), step_of(values_wanted("pipelines"))
    return (
        f"On 1,024 GPUs with fast links a step of my model takes {fast.seconds:.2f} s. A cheaper cloud has one Ethernet card for eight "
        f"GPUs. There the same split takes {slow.seconds:.2f} s, and for {slow.spent['data']:.2f} s of it the GPUs wait for gradients. "
        "What if a GPU keeps whole layers?"
    )


def _context() -> str:
    values = values_wanted("context_parallel") | {"ranks": 64}
    one, split = step_of(values, ranks=1, tp=1), step_of(values)
    return (
        f"My model will read {values['sequence']:,} tokens at a time. The activations of one such sequence take "
        f"{_gb(one.memory['activations'])}, and a step of 1 million tokens has only {split.plan.batch} sequences. So {split.plan.dp} replicas "
        f"of {values['tp']} tensor parallel GPUs are {split.plan.ranks} GPUs. I have 1,024, so the sequences must be split."
    )


def _experts() -> str:
    dense = step_of(values_at(LAST))
    full, gathered = (step_of(values_wanted("mixture_of_experts"), zero_stage=stage) for stage in (2, 3))
    model = full.plan.model
    return (
        f"My model should know more and compute only a little more: each layer gets {model.experts} experts, and a token uses {model.top_k} of them. "
        f"That makes {model.parameters / 1e9:.0f} billion parameters. On 64 GPUs ZeRO stage 2 now needs {_gb(full.nbytes)}. Stage 3 fits, "
        f"but a step takes {gathered.seconds:.2f} s; without experts it was {dense.seconds:.2f} s."
    )


def _topology() -> str:
    found = step_of(values_at("tensor_parallel"))
    inside, between = (found.plan.prices[name].parts[0] for name in ("tensor", "data"))
    return (
        f"My model on 1,024 GPUs has groups of {found.plan.tp} that share every layer. In each step a GPU sends {_gigabytes(inside.bytes_sent)} to "
        f"the others of its group, and {_gigabytes(between.bytes_sent)} of gradients to the other replicas. Which of the 1,024 should be a group?"
    )


def _when_it_hangs() -> str:
    found = step_of(values_at(LAST))
    return (
        f"A step of my model on {found.plan.ranks} GPUs has {_calls(found)} collective calls, and every GPU must make each of them. One GPU leaves "
        "out one call. Which of the others notices, and what do I see?"
    )


def _calls(found: TrainingStep) -> int:
    """The collective calls of a step."""
    return sum(part.calls for price in found.plan.prices.values() for part in price.parts)


def _your_own_job() -> str:
    few, many = step_of(values_at(LAST)), step_of(values_at("tensor_parallel"))
    return (
        f"My model runs on 64 GPUs with {_gb(few.nbytes)} each and {few.seconds:.2f} s a step, and on 1,024 GPUs with {many.seconds:.2f} s a "
        "step. These are prices. A real job takes longer, and its profile says why."
    )


def won(chapter: str) -> str:
    """What a chapter of the core means for my model, in one sentence with numbers. Raises KeyError for others.

    >>> won("all_reduce")
    'My model: the all-reduce of 14 GB of gradients makes each of 64 GPUs send 28 GB, and takes 75 ms.'
    """
    if chapter in OPENED_BY:
        values = values_at(chapter)
        found = step_of(values)
        if found.fits:
            return f"My model on {values['ranks']:,} GPUs: {sentence(found)}"
        return (
            f"My model on {values['ranks']:,} GPUs: a step would take {_seconds(found.seconds)}, but it needs {_gb(found.nbytes)}, and a GPU has "
            f"{_gb(found.gpu.nbytes)}."
        )
    return _WON[chapter]()


def _passes_on() -> str:
    sent = step_of(values_at("pipelines")).plan.prices["pipeline"].parts[0]
    return f"My model: a GPU of its pipeline passes {sent.nbytes / 1e6:.0f} MB to the next one for every sequence."


def _adds() -> str:
    step = step_of(values_at("data_parallel"))
    sent = step.plan.prices["data"].parts[0]
    return (
        f"My model: the all-reduce of {_gigabytes(sent.nbytes)} of gradients makes each of {step.plan.ranks} GPUs send "
        f"{_gigabytes(sent.bytes_sent)}, and takes {_seconds(sent.seconds)}."
    )


def _keeps_a_part() -> str:
    step = step_of(values_at("sharded_training"))
    sent = step.plan.prices["data"].parts[0]
    return (
        f"My model: if each of {step.plan.ranks} GPUs needs only its part of the sum, it sends {_gigabytes(sent.bytes_sent)}, "
        f"half of what an all-reduce takes, in {_seconds(sent.seconds)}."
    )


def _stays_inside() -> str:
    found = step_of(values_at("tensor_parallel"))
    slow = step_of(values_wanted("pipelines"))
    return (
        f"My model on {found.plan.ranks:,} GPUs: with its groups of {found.plan.tp} inside the nodes and a network card for each GPU a step takes "
        f"{_seconds(found.seconds)}; where eight GPUs share one card it takes {_seconds(slow.seconds)}."
    )


def _all_must_call() -> str:
    found = step_of(values_at(LAST))
    return f"My model on {found.plan.ranks} GPUs: one GPU that leaves out one of {_calls(found)} calls stops the other {found.plan.ranks - 1}."


def _exchanges() -> str:
    sent = step_of(values_at("mixture_of_experts")).plan.prices["expert"].parts[0]
    return (
        f"My model: to bring all tokens of a step to their experts, a GPU sends {_gigabytes(sent.bytes_sent)} in {sent.calls} "
        f"exchanges, which take {_seconds(sent.seconds)}."
    )


_WON: dict[str, Callable[[], str]] = {
    "start_here": lambda: f"My model on one GPU: {sentence(step_of(START))}",
    "point_to_point": _passes_on,
    "all_reduce": _adds,
    "reduce_scatter": _keeps_a_part,
    "all_to_all": _exchanges,
    "topology": _stays_inside,
    "when_it_hangs": _all_must_call,
}
_NEEDS: dict[str, Callable[[], str]] = {
    "start_here": _start_here,
    "point_to_point": _point_to_point,
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "data_parallel": _data_parallel,
    "overlap_and_bucketing": _overlap,
    "sharded_training": _sharded,
    "tensor_parallel": _tensor,
    "pipelines": _pipelines,
    "context_parallel": _context,
    "mixture_of_experts": _experts,
    "topology": _topology,
    "when_it_hangs": _when_it_hangs,
    LAST: _your_own_job,
}


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:.0f} GB"


def _gigabytes(nbytes: float) -> str:
    return f"{digits(nbytes / 1e9)} GB"


def _seconds(seconds: float) -> str:
    """Of a step, in which a hundredth counts: 1.13 s, 72 s, 447 ms."""
    if seconds >= 9.995:
        return f"{digits(seconds)} s"
    if seconds >= 0.9995:
        return f"{seconds:.2f} s"
    return f"{digits(1e3 * seconds)} ms" if seconds >= 999.5e-6 else f"{digits(1e6 * seconds)} µs"


def digits(value: float, exact: bool = False) -> str:
    """With two or three digits that count, as the browser writes it; with `exact` up to three, and no ".0".

    >>> digits(1.52), digits(24.3), digits(1447)
    ('1.5', '24', '1,447')
    >>> digits(24.3, exact=True), digits(24, exact=True)
    ('24.3', '24')
    """
    text = fixed(value, 1 if value < (99.95 if exact else 9.95) else 0)
    return f"{int(text):,}" if value >= 1000 else text.removesuffix(".0") if exact else text


def percent(share: float) -> str:
    """As the browser writes it: below ten there is one digit more."""
    return f"{fixed(100 * share, 1 if 0 < share < 0.0995 else 0)} %"


def duration(seconds: float) -> str:
    """Seconds in their unit, as the browser writes them.

    >>> duration(2.5e-6), duration(0.47), duration(12.34)
    ('2.5 µs', '470 ms', '12.3 s')
    """
    if seconds >= 0.9995:
        return f"{digits(seconds, exact=True)} s"
    scaled, unit = (1e6 * seconds, "µs") if seconds < 999.5e-6 else (1e3 * seconds, "ms")
    return f"{digits(scaled, exact=True)} {unit}"


def fixed(value: float, places: int) -> str:
    """With so many digits behind the point, as the browser rounds: what lies just between two becomes the larger one.

    >>> fixed(10.5, 0), fixed(2.25, 1), fixed(0.15, 1)  # the last one is a little less than 0.15
    ('11', '2.3', '0.1')
    """
    return str(Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))

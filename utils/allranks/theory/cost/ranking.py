"""All splits of a training run that fit into memory, the fastest step first.

Imports without torch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from allranks.theory.cost.plan import Model, Plan, plan
from allranks.theory.cost.rooflines import Recompute
from allranks.theory.cost.step import OTHER_NBYTES, TrainingStep, training_step
from allranks.theory.cost.workload import WorkloadError
from allranks.theory.topology import Topology

__all__ = ["ranked_plans"]

SPLIT = ("tp", "pp", "cp", "ep", "zero_stage", "microbatch", "chunks")
MICROBATCHES = (1, 2, 4, 8)


def ranked_plans(
    model: str | Model,
    machine: str | Topology,
    ranks: int,
    batch: int = 256,
    *,
    recompute: Recompute | None = None,
    tensor_overlap: bool = False,
    other_nbytes: float = OTHER_NBYTES,
    **split: int,
) -> list[TrainingStep]:
    """The steps of all splits of `ranks` ranks that fit into the GPU's memory, the fastest first.

    Tried are tensor parallel ranks inside a node, pipeline stages, the ZeRO stages, microbatches of 1 to 8 sequences, expert parallel
    ranks if the model has experts, and `recompute` "selective" and "full"; what `split` names (tp, pp, cp, ep, zero_stage,
    microbatch, chunks) or `recompute` says is kept. Raises WorkloadError if nothing can be split so, or nothing fits: then it says
    how much the smallest split needs.

    >>> best = ranked_plans("LLaMA 65B", "dgx-h100", ranks=64, batch=2048)[0]
    >>> best.fits, best.plan.tp, best.plan.zero_stage
    (True, 1, 3)
    """
    if unknown := sorted(set(split) - set(SPLIT)):
        raise WorkloadError(f"there is no {unknown[0]!r} in a split; there are {', '.join(SPLIT)}")
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise WorkloadError(f"ranks is {ranks!r}; it is a whole number above 0")
    fixed = math.prod(split.get(name, 1) for name in ("tp", "pp", "cp"))
    if fixed < 1 or ranks % fixed:
        raise WorkloadError(f"tp x pp x cp is {fixed}, which does not divide {ranks} ranks")
    first = plan(model, machine)  # says what is wrong with the model or the machine
    found, why = [], None
    ways: tuple[Recompute, ...] = ("selective", "full") if recompute is None else (recompute,)
    for shape in _shapes(first, ranks, split):
        dp = ranks // (shape["tp"] * shape["pp"] * shape["cp"])
        try:
            tried = Plan(first.model, first.machine, dp=dp, batch=batch, **shape)
        except WorkloadError as error:
            why = why or error
            continue
        for way in ways:
            found.append(training_step(tried, None, None, other_nbytes, tensor_overlap, way))
    if not found:
        raise WorkloadError(f"no split of {ranks} ranks is possible: {why or 'none of their divisors suits the model'}")
    fitting = [step for step in found if step.fits]
    if not fitting:
        least = min(found, key=lambda step: step.nbytes)
        raise WorkloadError(
            f"none of {len(found)} splits fits: {in_words(least)} needs the least, {least.nbytes / 1e9:.0f} GB a GPU, and "
            f"{least.gpu.name} has {least.gpu.nbytes / 1e9:.0f} GB"
        )
    return sorted(fitting, key=lambda step: (step.seconds, step.nbytes))


def in_words(step: TrainingStep) -> str:
    """A split in a few words, such as "dp 8 x tp 8, ZeRO-1, microbatches of 2, full recomputation".

    >>> from allranks import plan, training_step
    >>> in_words(training_step(plan("7B", "dgx-h100", dp=4, tp=2)))
    'dp 4 x tp 2, no ZeRO, microbatches of 1'
    """
    split = step.plan
    ways = [("dp", split.dp), ("tp", split.tp), ("pp", split.pp), ("cp", split.cp)]
    words = [" x ".join(f"{name} {count}" for name, count in ways if count > 1 or name == "dp")]
    words += [f"ep {split.ep}"] if split.ep > 1 else []
    words += [f"{split.chunks} chunks a stage"] if split.chunks > 1 else []
    words += [f"ZeRO-{split.zero_stage}" if split.zero_stage else "no ZeRO", f"microbatches of {split.microbatch}"]
    return ", ".join([*words, *(["full recomputation"] if step.recompute == "full" else [])])


def _shapes(first: Plan, ranks: int, split: dict[str, int]) -> Iterator[dict[str, Any]]:
    """All splits of the ranks, apart from the batch, with what is given in `split` kept."""
    model, node = first.model, first.machine.ranks_per_node

    def choices(name: str, usual: Sequence[int]) -> Sequence[int]:
        return (split[name],) if name in split else usual

    tps = choices("tp", [t for t in _divisors(ranks) if t <= min(node, 16) and model.hidden % t == 0])
    pps = choices("pp", [p for p in _divisors(ranks) if model.layers % p == 0])
    experts = _divisors(model.experts) if model.experts > 1 else [1]
    for tp, pp, cp, ep, stage, microbatch, chunks in itertools.product(
        tps,
        pps,
        choices("cp", (1,)),
        choices("ep", experts),
        choices("zero_stage", (0, 1, 2, 3)),
        choices("microbatch", MICROBATCHES),
        choices("chunks", (1,)),
    ):
        if min(tp, pp, cp) > 0 and ranks % (tp * pp * cp) == 0:
            values = (tp, pp, cp, ep, stage, microbatch, chunks)
            yield dict(zip(SPLIT, values, strict=True))


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(max(number, 0)) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})

"""ring_all_reduce(tensor): in place, the sum over all ranks, round a ring of neighbours, chunk by chunk."""

from __future__ import annotations

import torch

from allranks.judge import evidence, rules
from allranks.judge.cases import Setup, vectors
from allranks.judge.common import (
    CIRCUMSTANCES,
    LAYOUTS,
    RING_RANKS,
    SIZES,
    SUM_DTYPES,
    SUM_MISTAKES,
    Make,
    in_place,
    many_ranks,
    sum_oracle,
)
from allranks.judge.exercise import P2P, Exercise, FaultKind, Group, Mistakes, ResultFault, Rule, Run


def _one_pass(step: int) -> Make:
    return lambda tensors, rank, setup: tensors[rank] + tensors[(rank + step) % len(tensors)]


def _reduce_scatter_only(shift: int, step: int) -> Make:
    """The state after p-1 steps of the ring: each chunk on rank r with the contributions that had reached it."""

    def make(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
        p = len(tensors)
        chunks = [t.reshape(-1).tensor_split(p) for t in tensors]
        parts = []
        for chunk in range(p):
            # the chunk starts on the rank that sends it first; each step adds one contribution
            start = (chunk + shift) % p
            distance = (step * (rank - start)) % p
            held = [chunks[(start + step * i) % p][chunk] for i in range(distance + 1)]
            parts.append(sum(held[1:], held[0]))
        return torch.cat(parts).reshape(tensors[0].shape)

    return make


def _explain(run: Run, fault: ResultFault) -> str | None:
    """By provenance: the first wrong step, else what is missing at the end."""
    if fault.kind is not FaultKind.VALUES:
        return None
    return (
        evidence.too_few_steps(run, 2 * (run.ranks - 1), "a reduce-scatter and an all-gather of p-1 steps each")
        or rules.first_wrong_step(run)
        or rules.wrong_ring_step(run)
        or rules.wrong_end_state(run, fault.rank, fault.call)
    )


MISTAKES: Mistakes = {
    **SUM_MISTAKES,
    "only the neighbour's contribution was added: one pass instead of p-1 steps": [
        in_place(_one_pass(step)) for step in (-1, 1)
    ],
    "the all-gather half is missing, or what it brings is not stored: after the reduce-scatter each rank has only one "
    "complete chunk": [in_place(_reduce_scatter_only(shift, step)) for step in (1, -1) for shift in (0, 1, -1)],
}

GROUPS = (
    Group("right sum", 2, (Setup(2, 2), Setup(3, 6), Setup(4, 12))),
    Group("any rank count", 1, (Setup(1, 4), Setup(4, 4), Setup(5, 15))),
    Group("any size", 1, (Setup(2, 1), Setup(3, 7), Setup(5, 3), Setup(4, 10), Setup(5, 12), Setup(3, 0), Setup(1, 0))),
    many_ranks(ranks=RING_RANKS, size=SIZES),
    Group("any dtype", 0.5, (*SUM_DTYPES, Setup(3, 6, "float16"))),
    Group("any layout", 0.5, LAYOUTS),
    Group("any circumstances", 1, CIRCUMSTANCES),
)

EXERCISE = Exercise(
    name="ring_all_reduce",
    promise="replaces tensor by its sum over all ranks, in place, over the ring",
    won="sends 2(p-1)/p of the bytes from each rank, the least there is",
    groups=GROUPS,
    inputs=vectors,
    oracle=sum_oracle,
    allow=P2P,
    rules=(
        Rule("ring neighbours only", 3, rules.ring_neighbours),
        Rule("2(p-1)/p of the bytes", 4, lambda run: rules.chunk_bytes(run, 2, "2(p-1)/p of the bytes")),
        rules.in_rounds(lambda p: 2 * (p - 1), "2(p-1)", 5),
        rules.carried(),
    ),
    blocking_weight=2,
    mistakes=MISTAKES,
    explain=_explain,
    collective="all_reduce",
    algorithm="ring",
    chunking="split",
    peer_advice="Take the peer's number modulo the number of ranks.",
)

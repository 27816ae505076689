"""ring_reduce_scatter(tensor) -> Tensor: rank r gets chunk r of torch.tensor_split, summed over all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from allranks.judge import evidence, provenance, rules
from allranks.judge.cases import Args, Expected, Setup, plain, summed, vectors
from allranks.judge.common import CIRCUMSTANCES, LAYOUTS, RING_RANKS, SIZES, SUM_DTYPES, Make, many_ranks, returning
from allranks.judge.exercise import P2P, Exercise, FaultKind, Group, ResultFault, Rule, Run


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    total, atol = summed([plain(a[0]) for a in args])
    limits = atol.tensor_split(setup.ranks) if atol is not None else [None] * setup.ranks
    return [Expected(chunk, {}, limit) for chunk, limit in zip(total.tensor_split(setup.ranks), limits, strict=True)]


def _chunk(step: int) -> Make:
    return lambda tensors, rank, setup: summed(tensors)[0].tensor_split(setup.ranks)[(rank + step) % setup.ranks]


def _own_chunk(run: Run, call: int, rank: int) -> int:
    """The rank's own chunk, to which all others contribute."""
    chunk = plain(run.args[call][rank][0]).tensor_split(run.ranks)[rank]
    return chunk.numel() * chunk.element_size()


def _explain(run: Run, fault: ResultFault) -> str | None:
    if fault.kind is not FaultKind.VALUES:
        return None
    return evidence.too_few_steps(run, run.ranks - 1, "a reduce-scatter of p-1 steps") or rules.first_wrong_step(run)


def _another_is_complete(run: Run) -> bool:
    """Whether the last message to each rank brought all the others' contributions to a chunk that is not the rank's own."""
    for rank in range(run.ranks):
        came = [e for e in evidence.received_by(run, rank) if e.call == 0]
        numbers = provenance.numbers(came[-1]) if came else None
        if numbers is None:
            return False
        others = [plain(a[0]).tensor_split(run.ranks) for r, a in enumerate(run.args[0]) if r != rank]
        sums = [summed([chunks[i] for chunks in others])[0].reshape(-1) for i in range(run.ranks)]
        same = [s.shape == numbers.shape and bool(torch.isclose(s, numbers.to(s.dtype)).all()) for s in sums]
        if same[rank] or not any(same):
            return False
    return True


_NEXT = "off by one chunk: rank r ends with a neighbour's chunk instead of chunk r"

_own_came_back = returning(lambda t, r, s: t[r].tensor_split(s.ranks)[r])

EXERCISE = Exercise(
    name="ring_reduce_scatter",
    promise="returns chunk r of the sum over all ranks on rank r",
    won="sends (p-1)/p of the bytes from each rank, the least there is",
    groups=(
        Group("right sum", 3, (Setup(2, 2), Setup(3, 6), Setup(4, 12))),
        Group("any rank count", 1, (Setup(1, 4), Setup(3, 3), Setup(5, 15), Setup(8, 16))),
        Group(
            "any size", 2, (Setup(2, 1), Setup(3, 7), Setup(4, 2), Setup(4, 10), Setup(5, 13), Setup(3, 0), Setup(1, 0))
        ),
        many_ranks(ranks=RING_RANKS, size=SIZES),
        Group("any dtype", 1, SUM_DTYPES),
        Group("any layout", 1, LAYOUTS),
        # tensor_split cuts rows: four on three ranks, and two on five
        Group(
            "rows that p does not divide",
            1,
            (Setup(3, 12, layout="transposed"), Setup(5, 12, layout="three dimensions")),
        ),
        Group("any circumstances", 1, CIRCUMSTANCES),
    ),
    inputs=vectors,
    oracle=_oracle,
    allow=P2P,
    rules=(
        Rule("ring neighbours only", 3, rules.ring_neighbours),
        Rule("(p-1)/p of the bytes", 4, lambda run: rules.chunk_bytes(run, 1, "(p-1)/p of the bytes")),
        rules.in_rounds(lambda p: p - 1, "p-1", 5),
        rules.carried(_own_chunk, rules.nothing),
    ),
    blocking_weight=2,
    mistakes={
        _NEXT: [returning(_chunk(1)), returning(_chunk(-1))],
        "the whole sum was returned: rank r keeps chunk r only": returning(lambda t, r, s: summed(t)[0]),
        "the rank's own chunk came back, and the chunk that is complete on rank r is another one: start one chunk "
        "earlier": (_own_came_back, _another_is_complete),
        "the rank's own chunk came back: nothing was added, or the sum was not returned": (
            _own_came_back,
            lambda run: not _another_is_complete(run),
        ),
        "the mean instead of the sum": returning(
            lambda t, r, s: (summed(t)[0] / len(t)).to(t[0].dtype).tensor_split(s.ranks)[r]
        ),
        "the rank's own contribution is missing": returning(
            lambda t, r, s: (summed(t)[0] - t[r]).tensor_split(s.ranks)[r]
        ),
        "the flat vector was cut: tensor_split cuts the tensor itself, along its first dimension": returning(
            lambda t, r, s: summed(t)[0].reshape(-1).tensor_split(s.ranks)[r]
        ),
        "the chunk came flat: keep the shape that tensor_split gives it": returning(
            lambda t, r, s: summed(t)[0].tensor_split(s.ranks)[r].flatten()
        ),
    },
    explain=_explain,
    collective="reduce_scatter",
    algorithm="ring",
    chunking="split",
    demo_setup=Setup(4, 12, "float64", values="provenance"),
    peer_advice="Take the peer's number modulo the number of ranks.",
)

"""ring_all_gather(tensor) -> Tensor: the tensors of all ranks one after the other, in rank order, round the ring."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from allranks.checking import evidence, rules
from allranks.checking.cases import Args, Expected, Setup, plain, vectors
from allranks.checking.common import (
    CIRCUMSTANCES,
    LAYOUTS,
    MOVED_DTYPES,
    RING_RANKS,
    SIZES,
    Make,
    many_ranks,
    returning,
)
from allranks.checking.exercise import P2P, P2P_ONLY, About, Exercise, Group, ResultFault, Rule, Run


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return [Expected(torch.cat([plain(a[0]) for a in args])) for _ in args]


def _rotated(step: int) -> Make:
    """In order of arrival: the rank's own tensor first, then the neighbour's, and so on."""
    return lambda tensors, rank, setup: torch.cat(
        [tensors[(rank + step * i) % len(tensors)] for i in range(len(tensors))]
    )


def _own_sent(step: int) -> Make:
    """Where every rank sends its own tensor in every step: the neighbour's tensor in all places but one."""
    return lambda t, rank, setup: torch.cat(
        [t[rank] if i == rank else t[(rank + step) % len(t)] for i in range(len(t))]
    )


def _explain(run: Run, fault: ResultFault) -> str | None:
    return evidence.too_few_steps(run, run.ranks - 1, "an all-gather of p-1 steps")


_PLACE = "off by one place: rank r's tensor belongs in place r"
_ORDER = "in order of arrival instead of rank order: rank r's tensor belongs in place r"


def _all_others(run: Run, call: int, rank: int) -> int:
    return (run.ranks - 1) * rules.nbytes_of(run, call, rank)


def _no_more_bytes(run: Run) -> str | None:
    """Every rank must send p-1 tensors and no more."""
    enough = run.setup.times * (run.ranks - 1) * rules.nbytes_of(run)
    for rank, sent in enumerate(run.bytes_sent()):
        if sent > enough:
            longest = max((e for e in run.sends if e.rank == rank), key=lambda e: e.nbytes)
            return About(
                f"rank {rank} sends {sent} bytes{run.at(longest.line)}, but (p-1)n = {enough} are enough: in each step send only the tensor that you received last",
                longest,
            )
    return None


EXERCISE = Exercise(
    name="ring_all_gather",
    promise="returns all ranks' tensors, concatenated in rank order",
    groups=(
        Group("right result", 3, (Setup(2, 2), Setup(3, 4), Setup(4, 3))),
        Group("any rank count", 1, (Setup(1, 4), Setup(3, 1), Setup(5, 2), Setup(8, 3))),
        Group("any size", 1, (Setup(2, 1), Setup(3, 0), Setup(4, 17), Setup(1, 0))),
        many_ranks(ranks=RING_RANKS, size=SIZES),
        Group("any dtype", 1, MOVED_DTYPES),
        Group("any layout", 1, LAYOUTS),
        Group("any circumstances", 1, CIRCUMSTANCES),
    ),
    inputs=vectors,
    oracle=_oracle,
    allow=P2P,
    rules=(
        Rule("ring neighbours only", 4, rules.ring_messages),
        Rule("(p-1)n of bytes", 2, _no_more_bytes),
        rules.in_rounds(lambda p: p - 1, "p-1", 5),
        rules.carried(_all_others),
    ),
    blocking_weight=2,
    mistakes=(
        returning(_ORDER, _rotated(-1)),
        returning(_ORDER, _rotated(1)),
        returning(_PLACE, lambda t, r, s: torch.cat(t[1:] + t[:1])),
        returning(_PLACE, lambda t, r, s: torch.cat(t[-1:] + t[:-1])),
        returning("in reversed order", lambda t, r, s: torch.cat(t[::-1])),
        returning("the tensors were stacked: concatenate along the first dimension", lambda t, r, s: torch.stack(t)),
        *(
            returning(
                "the neighbour's tensor in every place: pass on what you received last, not your own",
                _own_sent(step),
                evidence.own_tensor_sent_only,
            )
            for step in (-1, 1)
        ),
        returning("the sum came instead of the concatenation", lambda t, r, s: sum(t[1:], t[0])),
    ),
    collective="all_gather",
    algorithm="ring",
    chunking="rank",
    demo_setup=Setup(4, 3, "float64", values="provenance"),
    explain=_explain,
    forbidden_advice=P2P_ONLY,
    peer_advice="Take the peer's number modulo the number of ranks.",
)

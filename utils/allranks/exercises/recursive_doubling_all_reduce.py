"""recursive_doubling_all_reduce(tensor): in place, the sum over any number of ranks in ceil(lg p) + 2 rounds at most."""

from __future__ import annotations

import itertools

import torch

from allranks.judge import rules
from allranks.judge.cases import Setup, summed, vectors
from allranks.judge.common import (
    CIRCUMSTANCES,
    LAYOUTS,
    SUM_DTYPES,
    SUM_MISTAKES,
    Make,
    explain_sum,
    in_place,
    many_ranks,
    sum_oracle,
)
from allranks.judge.exercise import P2P, Exercise, Group, Rule, Run
from allranks.theory.schedules import ceil_lg


def _rounds(run: Run) -> str | None:
    limit = ceil_lg(run.ranks) + 2
    words = rules.rounds(run, limit, f"ceil(lg {run.ranks}) + 2")
    if words and _take_turns(run):
        return f"{words}: the two of a pair must send at the same time (isend, then recv)"
    return words


def _take_turns(run: Run) -> bool:
    """Whether the ranks of each pair send one after the other. With a p that is no power of two the folded ranks do not count."""
    seen: dict[tuple, list[int]] = {}  # by two messages between two ranks, one after the other
    for rank in range(run.ranks):
        mine = [e for e in run.outcome.trace.events if e.rank == rank and e.op in ("send", "recv")]
        for a, b in itertools.pairwise(mine):
            if a.peer == b.peer and a.op != b.op and a.end <= b.start:
                seen.setdefault((a.match, b.match), []).append(rank)
    swapping = {rank for ranks in seen.values() if len(ranks) == 2 for rank in ranks}
    return len(swapping) >= 1 << (run.ranks.bit_length() - 1)


def _bytes(run: Run) -> str | None:
    limit = (ceil_lg(run.ranks) + 1) * rules.nbytes_of(run)
    for rank, nbytes in enumerate(run.bytes_sent()):
        if nbytes > limit:
            return f"rank {rank} sends {nbytes} bytes: one vector in each round is enough, {limit} bytes in all"
    return rules.wrong_dtype(run)


def _first_round(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
    other = rank ^ 1
    return tensors[rank] + tensors[other] if other < len(tensors) else tensors[rank]


def _rounds_only(rounds: int, *, in_pairs: bool) -> Make:
    """What so many rounds give, after the ranks beyond a power of two are folded: `in_pairs` (0, 1), (2, 3) ..., or r and r - that power."""

    def made(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
        whole = 1 << (len(tensors).bit_length() - 1)
        if 1 << rounds >= whole:
            raise ValueError("these rounds are enough")
        extra = len(tensors) - whole
        if in_pairs:
            groups = [[2 * i, 2 * i + 1] for i in range(extra)] + [[rank] for rank in range(2 * extra, len(tensors))]
        else:
            groups = [[r, r + whole] if r < extra else [r] for r in range(whole)]
        place = next(i for i, group in enumerate(groups) if rank in group)
        first = place >> rounds << rounds
        return summed([tensors[r] for group in groups[first : first + (1 << rounds)] for r in group])[0]

    return made


EXERCISE = Exercise(
    name="recursive_doubling_all_reduce",
    promise="replaces tensor by its sum over all ranks, in place, in ceil(lg p) + 2 rounds at most",
    won="needs ceil(lg p) + 2 rounds at most: 12 instead of the ring's 2046 on 1024 ranks",
    groups=(
        Group("right sum", 3, (Setup(2, 2), Setup(4, 5), Setup(8, 7))),
        Group("any rank count", 3, (Setup(1, 4), Setup(3, 5), Setup(5, 5), Setup(6, 4), Setup(7, 3))),
        many_ranks(),
        Group("any size", 1, (Setup(2, 1), Setup(4, 0), Setup(3, 0), Setup(4, 17), Setup(1, 0))),
        Group("any dtype", 1, SUM_DTYPES),
        Group("any layout", 1, LAYOUTS),
        Group("any circumstances", 1, CIRCUMSTANCES),
    ),
    inputs=vectors,
    oracle=sum_oracle,
    allow=P2P,
    rules=(
        Rule("at most ceil(lg p) + 2 rounds", 8, _rounds, rules.on_one_call),
        Rule("one vector a round", 1, _bytes, lambda s: s.ranks > 1 and s.times == 1),
        rules.carried(),
    ),
    blocking_weight=2,
    mistakes={
        **SUM_MISTAKES,
        "only the first round was done, or only its sum was kept: go on with partners 2, 4, 8 ... away": in_place(
            _first_round
        ),
        **{
            f"this is what {does}, which {reaches}: go on until the distance is the largest power of two up to p": [
                in_place(_rounds_only(rounds, in_pairs=in_pairs)) for in_pairs in (False, True)
            ]
            for rounds, does, reaches in (
                (1, "1 round of doubling gives", "reaches 2 ranks"),
                (2, "2 rounds of doubling give", "reach 4 ranks"),
            )
        },
    },
    explain=explain_sum,
    collective="all_reduce",
    algorithm="recursive doubling",
    chunking="split",
    demo_setup=Setup(8, 8, "float64", values="provenance"),
    peer_advice="If p is no power of two, fold first: each rank beyond the largest power of two hands its tensor to one below, "
    "and gets the sum at the end.",
)

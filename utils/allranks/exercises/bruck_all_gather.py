"""bruck_all_gather(tensor) -> Tensor: the tensors of all ranks one after the other, in rank order, in ceil(lg p) rounds."""

from __future__ import annotations

import torch

from allranks.judge import evidence, rules
from allranks.judge.cases import Expected, Setup, plain, vectors
from allranks.judge.common import CIRCUMSTANCES, LAYOUTS, MOVED_DTYPES, SIZES, many_ranks
from allranks.judge.exercise import P2P, About, Exercise, Group, ResultFault, Rule, Run
from allranks.theory.schedules import ceil_lg


def _explain(run: Run, fault: ResultFault) -> str | None:
    return evidence.too_few_steps(run, ceil_lg(run.ranks), "an all-gather of ceil(lg p) steps")


def _no_more_bytes(run: Run) -> str | None:
    """Every rank must send p-1 tensors and no more."""
    enough = run.setup.times * (run.ranks - 1) * rules.nbytes_of(run)
    for rank, sent in enumerate(run.bytes_sent()):
        if sent > enough:
            longest = max((e for e in run.sends if e.rank == rank), key=lambda e: e.nbytes)
            return rules.wider(run, longest) or About(
                f"rank {rank} sends {sent} bytes{run.at(longest.line)}, but {enough} are enough, p-1 tensors: "
                "send no tensor that the receiver has already, and in the last round only what is still missing there",
                longest,
            )
    return rules.wrong_dtype(run)


def _rounds(run: Run) -> str | None:
    limit = ceil_lg(run.ranks)
    words = rules.rounds(run, limit, "ceil(lg p)")
    most = max(sum(e.rank == rank for e in run.sends) for rank in range(run.ranks)) if words else 0
    if words and most > limit:
        return f"{words}: a rank sends {most} messages. In each round send all tensors for one receiver in one message, to a rank twice as far away (or half as far, if you begin with the farthest)"
    return words and f"{words}: in each round every rank sends and receives at the same time (one batch_isend_irecv)"


EXERCISE = Exercise(
    name="bruck_all_gather",
    promise="returns all ranks' tensors, concatenated in rank order, in ceil(lg p) rounds",
    won="takes ceil(lg p) rounds and brings no piece twice: both are the least there is",
    groups=(
        Group("right result", 3, (Setup(2, 2), Setup(4, 3), Setup(8, 3))),
        Group("any rank count", 3, (Setup(1, 4), Setup(3, 1), Setup(5, 2), Setup(6, 3), Setup(7, 2))),
        many_ranks(size=SIZES),
        Group("any size", 1, (Setup(2, 1), Setup(3, 0), Setup(4, 17), Setup(1, 0))),
        Group("any dtype", 1, MOVED_DTYPES),
        Group("any layout", 1, LAYOUTS),
        Group("any circumstances", 1, CIRCUMSTANCES),
    ),
    inputs=vectors,
    oracle=lambda setup, args: [Expected(torch.cat([plain(a[0]) for a in args])) for _ in args],
    allow=P2P,
    rules=(
        Rule("p-1 tensors of bytes", 3, lambda run: rules.no_messages(run) or _no_more_bytes(run)),
        Rule("at most ceil(lg p) rounds", 8, _rounds, rules.on_one_call),
        rules.carried(rules.times(lambda p: p - 1)),
    ),
    blocking_weight=2,
    collective="all_gather",
    algorithm="bruck",
    chunking="rank",
    demo_setup=Setup(6, 3, "float64", values="provenance"),
    explain=_explain,
    peer_advice="Take the peer's number modulo the number of ranks.",
)

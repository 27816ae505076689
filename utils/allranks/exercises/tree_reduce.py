"""tree_reduce(tensor, dst): in place on dst, the sum over all ranks, after at most ceil(lg p) rounds."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from allranks.judge import provenance, rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, plain, summed, vectors
from allranks.judge.common import SUM_DTYPES, SUM_MISTAKES, explain_sum, in_place, rooted_groups
from allranks.judge.evidence import received_before, received_by
from allranks.judge.exercise import P2P, Exercise, Rule, Run
from allranks.theory.schedules import ceil_lg


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    total, atol = summed([plain(a[0]) for a in args])
    return [Expected(None, {(0,): total} if rank == setup.root else {}, atol) for rank in range(setup.ranks)]


def _rounds_only(rounds: int) -> Oracle:
    """What so many rounds bring to dst: the sum of 2^rounds ranks, counted from dst."""

    def made(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor | None:
        if 1 << rounds >= len(tensors):
            raise ValueError("these rounds are enough")
        root = setup.root or 0
        return summed([tensors[(root + i) % len(tensors)] for i in range(1 << rounds)])[0] if rank == root else None

    return in_place(made)


_own_only = in_place(lambda tensors, rank, setup: tensors[rank] if rank == setup.root else None)


def _dst_received(run: Run) -> bool:
    return bool(received_by(run, run.setup.root or 0))


def _sent_own_after_receiving(run: Run) -> set[bool]:
    """Of the ranks that received before they sent: whether they sent their own tensor, which says that they add nothing."""
    found: set[bool] = set()
    for entry in run.sends:
        sent = provenance.numbers(entry)
        read = [provenance.numbers(e) for e in received_before(run, entry)]
        if sent is not None and any(r is not None and bool(r.any()) for r in read):
            own = plain(run.args[entry.call][entry.rank][0]).reshape(-1)
            found.add(torch.equal(sent, own.to(sent.dtype)))
    return found


def _rounds(run: Run) -> str | None:
    return rules.rounds(run, ceil_lg(run.ranks), f"ceil(lg {run.ranks})")


def _bytes(run: Run) -> str | None:
    if broken := rules.wrong_dtype(run):
        return broken
    limit = rules.nbytes_of(run)
    for rank, nbytes in enumerate(run.bytes_sent()):
        if nbytes > limit:
            return f"rank {rank} sends {nbytes} bytes; the tensor has {limit}: each rank must send its sum once"
    return None


EXERCISE = Exercise(
    name="tree_reduce",
    promise="replaces tensor on rank dst by the sum over all ranks, in ceil(lg p) rounds",
    won="has the sum on its root in ceil(lg p) rounds, the least there is",
    groups=rooted_groups("right sum", SUM_DTYPES),
    inputs=lambda setup, rng: [(view, setup.root) for (view,) in vectors(setup, rng)],
    oracle=_oracle,
    allow=P2P,
    rules=(
        Rule("at most ceil(lg p) rounds", 8, _rounds, rules.on_one_call),
        Rule("each rank sends once", 1, _bytes, lambda s: s.ranks > 1 and s.times == 1),
        rules.carried(rules.nothing, rules.but_at_the_root),
    ),
    blocking_weight=3,
    mistakes={
        "dst received nothing, so it has its own contribution only": (_own_only, lambda run: not _dst_received(run)),
        # with two or three ranks nobody passes a sum on: there both of these hold, and the larger cases tell which it is
        "dst's own contribution only: what was received was not added (a.add(b) makes a new tensor, a += b adds)": (
            _own_only,
            lambda run: _dst_received(run) and False not in _sent_own_after_receiving(run),
        ),
        "dst's own contribution only: what dst received was probably added in another tensor, and the sum was never "
        "written into the tensor itself (copy_)": (
            _own_only,
            lambda run: _dst_received(run) and True not in _sent_own_after_receiving(run),
        ),
        **{
            f"dst has the sum of {1 << rounds} ranks only, counted from dst: {bring} no more, so go on until all ranks "
            "are reached": _rounds_only(rounds)
            for rounds, bring in enumerate(("one round brings", "2 rounds bring", "3 rounds bring"), 1)
        },
        **SUM_MISTAKES,
    },
    explain=explain_sum,
    root_name="dst",
    collective="reduce",
    algorithm="binomial",
    chunking="split",
    demo_setup=Setup(8, 8, "float64", values="provenance", root=0),
    peer_advice="Counted from dst, rank q is rank (q + dst) mod p; beyond the last rank there is no partner.",
    own_rank_advice="In a tree no rank is its own partner. Counted from dst, rank q is rank (q + dst) mod p: is one of the two left out here?",
)

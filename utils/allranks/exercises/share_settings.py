"""share_settings(settings): rank 0's settings on all ranks, in place."""

from __future__ import annotations

from allranks.judge import rules
from allranks.judge.cases import Expected, Setup, plain, vectors
from allranks.judge.common import LAYOUTS, MOVED_DTYPES, circumstances, in_place, many_ranks
from allranks.judge.exercise import Exercise, Group, Rule, Run


def _one(run: Run) -> str | None:
    return rules.calls(run, "broadcast", "one is enough", least=1, most=1)


def _all_but_the_root(run: Run, call: int, rank: int) -> int:
    return rules.nbytes_of(run, call, rank) if rank else 0


EXERCISE = Exercise(
    name="share_settings",
    promise="leaves rank 0's settings on every rank",
    groups=(
        Group("right settings", 3, (Setup(2, 3), Setup(3, 4), Setup(4, 5))),
        Group("any rank count", 1, (Setup(1, 3), Setup(5, 3), Setup(8, 2))),
        many_ranks(),
        Group("any dtype", 1, MOVED_DTYPES),
        Group("any layout", 1, LAYOUTS),
        circumstances(Setup(3, 6), job=Setup(4, 6)),
    ),
    inputs=vectors,
    oracle=lambda setup, args: [Expected(None, {(0,): plain(args[0][0])}) for _ in args],
    allow=frozenset({"broadcast"}),
    rules=(Rule("one broadcast", 1, _one), rules.in_dtype(0), rules.carried(_all_but_the_root, rules.nothing)),
    mistakes={
        "the settings of each machine's first rank: there is one root for all": in_place(
            lambda tensors, rank, setup: tensors[rank - rank % max(setup.ranks // 2, 1)]
        ),
        "the last rank's settings: the root is rank 0": in_place(lambda tensors, rank, setup: tensors[-1]),
    },
    collective="broadcast",
    demo_setup=Setup(4, 4),
    forbidden_advice="One dist.broadcast is all that it needs.",
)

"""job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s) -> Tensor: the whole job's MFU, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.exercises.families import known
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, plain
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

FLOP_PER_TOKEN, FLOP_PER_S = 5.79e10, 989e12  # an 8B model with sequences of 8192, and an H100
GATHERS = frozenset({"all_gather", "all_gather_into_tensor"})
COUNT_NBYTES, TIME_NBYTES = 4, 8  # the least of a count of tokens, and of a time


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    t = setup.option("ranks_per_replica")
    made: list[Args] = []
    replicas = [rng.of_rank(setup.ranks + r).integers(4000, 9000, setup.size) for r in range(setup.ranks // t)]
    for rank in range(setup.ranks):
        tokens = replicas[rank // t]  # the ranks of a replica work on the same ones
        seconds = 0.5 + rng.of_rank(rank).uniform(setup.size)
        made.append((View.of(tokens, setup.layout), View.of(seconds, setup.layout), t, FLOP_PER_TOKEN, FLOP_PER_S))
    return made


Numbers = tuple[torch.Tensor, torch.Tensor, int]  # tokens [rank, step], seconds [rank, step], ranks a replica


def _oracle_from(made: Callable[[Numbers, int], torch.Tensor]) -> Oracle:
    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        tokens, seconds = (torch.stack([plain(given[i]).double() for given in args]) for i in range(2))
        found = [made((tokens, seconds, args[0][2]), rank) * FLOP_PER_TOKEN / FLOP_PER_S for rank in range(setup.ranks)]
        return [Expected(share, {}, 1e-9) for share in found]

    return oracle


def _job(of: Numbers) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens that the job computes a step, and the ranks' seconds."""
    tokens, seconds, t = of
    return tokens[::t].sum(0), seconds


def _right(of: Numbers, rank: int) -> torch.Tensor:
    total, seconds = _job(of)
    return total / (seconds.amax(0) * len(seconds))


def _with_seconds(chosen: Callable[[torch.Tensor, int], torch.Tensor]) -> Oracle:
    """The MFU with other seconds than the slowest rank's."""

    def made(of: Numbers, rank: int) -> torch.Tensor:
        total, seconds = _job(of)
        return total / (chosen(seconds, rank) * len(seconds))

    return _oracle_from(made)


def _scaled(by: Callable[[Numbers], float]) -> Oracle:
    return _oracle_from(lambda of, rank: _right(of, rank) * by(of))


def _own(of: Numbers, rank: int) -> torch.Tensor:
    return of[0][rank] / (of[2] * of[1][rank])


def _mean_of_ranks(of: Numbers, rank: int) -> torch.Tensor:
    return (of[0] / of[1]).mean(0) / of[2]


def _mean_of_ranks_counted_often(of: Numbers, rank: int) -> torch.Tensor:
    return (of[0] / of[1]).mean(0)


def _most_tokens(of: Numbers, rank: int) -> torch.Tensor:
    tokens, seconds, t = of
    return tokens.amax(0) * (len(tokens) // t) / (seconds.amax(0) * len(tokens))


def _over_all_steps(of: Numbers, rank: int) -> torch.Tensor:
    total, seconds = _job(of)
    return (total.sum() / (seconds.amax(0).sum() * len(seconds))).expand(len(total)).contiguous()


def _two_calls(run: Run) -> str | None:
    """A sum and a maximum, or one gather of both."""
    broken = rules.no_messages(run)
    if broken:
        return broken
    for call in range(run.setup.times):
        for rank in range(run.ranks):
            mine = [e for e in run.collectives if e.rank == rank and e.call == call]
            if len(mine) > 2:
                words = f"rank {rank} makes {len(mine)} calls{run.at(mine[-1].line)}, but two are enough: a sum of tokens and a maximum of seconds"
                return About(words, mine[-1])
    return None


def _both(run: Run, call: int, rank: int) -> int:
    """The other ranks' tokens and seconds come, or their sum and maximum, and the own ones go."""
    return (COUNT_NBYTES + TIME_NBYTES) * run.setup.size


def _case(ranks: int, size: int, t: int = 1, **more: object) -> Setup:
    return Setup(ranks, size, **more).with_options(ranks_per_replica=t)  # type: ignore[arg-type]


EXERCISE = Exercise(
    name="job_mfu",
    promise="returns the MFU of the whole job for every step",
    groups=(
        Group("right share", 3, (_case(2, 3), _case(3, 2), _case(4, 4))),
        Group("ranks that share tokens", 3, (_case(4, 3, 2), _case(6, 2, 3), _case(4, 2, 4), _case(8, 2, 2))),
        Group("any rank count", 1, (_case(1, 3), _case(5, 2), _case(8, 2))),
        Group("many ranks", 2, (_case(12, 5, 3).with_choices(ranks=(9, 12), size=(2, 5, 7)),)),
        Group("any number of steps", 1, (_case(3, 1), _case(4, 7, 2), _case(3, 0))),
        Group("any layout", 1, (_case(3, 4, layout="strided"), _case(4, 4, 2, layout="offset"))),
        Group("any circumstances", 1, (_case(3, 4, times=2), _case(4, 4, 2, outer_world=True))),
    ),
    inputs=_inputs,
    oracle=_oracle_from(_right),
    allow=GATHERS | {"all_reduce"},
    rules=(
        Rule("at most two calls", 2, _two_calls),
        Rule(
            "at most 16 bytes x steps x p received",
            2,
            lambda run: rules.received_at_most(run, 16 * run.setup.size * run.ranks, "16 bytes x steps x p"),
        ),
        rules.in_dtype(1, whole=True),
        rules.carried(_both, _both),
    ),
    mistakes=known(
        {
            "the largest number of tokens counts for every replica: tokens are "
            "added, only seconds have a maximum": _oracle_from(_most_tokens),
            "this rank's own share: tokens and seconds of the other ranks are missing": _oracle_from(_own),
            "the mean of the ranks' shares: fast ranks wait for the slowest one, so all tokens are divided by its "
            "seconds": _oracle_from(_mean_of_ranks),
            "the mean of the ranks' shares, in which the tokens of a replica count on each of its ranks": _oracle_from(
                _mean_of_ranks_counted_often
            ),
            "this rank's own seconds: the step ends when the slowest rank is done, so it takes the maximum": _with_seconds(
                lambda seconds, rank: seconds[rank]
            ),
            "the mean of the seconds: the step ends when the slowest rank is done": _with_seconds(
                lambda s, rank: s.mean(0)
            ),
            "the seconds of the fastest rank: the step ends when the slowest one is done": _with_seconds(
                lambda s, rank: s.amin(0)
            ),
            "the seconds of all ranks added: ranks work at the same time": _with_seconds(lambda s, rank: s.sum(0)),
            "every token counts ranks_per_replica times: the ranks of a replica work on the same tokens": _scaled(
                lambda of: of[2]
            ),
            "the number of GPUs is missing: the peak is that of one GPU": _scaled(lambda of: len(of[0])),
            "divided by the number of replicas: a replica has ranks_per_replica GPUs, and each has the peak": _scaled(
                lambda of: of[2]
            ),
            "one number for all steps: each step has a share of its own": _oracle_from(_over_all_steps),
        }
    ),
    unit="step",
    collective="all_reduce",
    chunking="none",
    demo_setup=_case(4, 3, 2),
    forbidden_advice="dist.all_reduce (with SUM and with MAX) or dist.all_gather is all that it needs.",
)

"""What several exercises share: tables of typical mistakes, and how far right results may be apart."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from allranks.judge.cases import Args, Expected, Oracle, Setup, oracle_maker
from allranks.judge.compare import difference
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Holds, Mistakes, Run, Told, each_of
from allranks.judge.known import is_wrong, makes_wrong

_TRIES = 100  # draws of one case's inputs, at most


def gave_up(words: str) -> None:
    """Is told where `steadied` found no draw: a test raises here, and a student must see nothing of it."""


def everywhere(oracle: Oracle) -> Told:
    """A result that its mistake leaves on every rank: where one rank is right, it was not made."""
    return oracle, lambda run: True, True


@oracle_maker
def only_where(
    setup: Setup, args: Sequence[Args], shows: Callable[[Setup, Sequence[Args]], object], oracle: Oracle
) -> Sequence[Expected]:
    """The oracle, in the cases in which the mistake can be made."""
    if not shows(setup, args):
        raise ValueError("it is no mistake here")
    return oracle(setup, args)


def seen(right: Oracle, is_so: Callable[[torch.Tensor, torch.Tensor], bool]) -> Told:
    """A mistake that is seen in what came back: `is_so(found, right)` of each rank's tensor that is wrong."""

    def holds(run: Run) -> bool:
        pairs = zip(run.results[0], run.expected[0], strict=True)
        wrong = [
            (got.returned, want.returns)
            for got, want in pairs
            if got is not None and difference(got.returned, want.returns, want.atol) is not None
        ]
        return bool(wrong) and all(
            isinstance(found, torch.Tensor) and found.shape == wanted.shape and is_so(found, wanted)
            for found, wanted in wrong
        )

    return (lambda setup, args: [replace(e, atol=math.inf) for e in right(setup, args)]), holds


def no_other(exact: Mistakes) -> Holds:
    """Whether none of these mistakes, whose results are known, explains the ranks that are wrong in the run's first call."""

    def holds(run: Run) -> bool:
        got = [result.returned if result is not None else None for result in run.results[0]]
        right = run.expected[0]
        wrong = [r for r, want in enumerate(right) if difference(got[r], want.returns, want.atol) is not None]
        for mistake in (m for m in each_of(exact) if m.holds(run)):
            told = mistake.oracle(run.setup, run.args[0])
            if all(difference(got[r], told[r].returns, told[r].atol) is None for r in wrong):
                return False
        return True

    return holds


def where_they_show(mistakes: Mistakes) -> Mistakes:
    """The mistakes, only in runs in which their results are beyond what is right: else they are no cause."""
    found: dict[str, list[Told]] = defaultdict(list)
    for mistake in each_of(mistakes):
        found[mistake.cause].append((mistake.oracle, functools.partial(makes_wrong, mistake.oracle)))
    return found


def steadied(exercise: Exercise, shown: Mapping[str, Callable[[Setup], bool]]) -> Exercise:
    """The exercise, whose inputs are drawn until some of its mistakes show: else what they cost would be luck.

    `shown` has words of their causes, each with the cases in which every mistake of such a cause must show. It must be able to.
    """
    must = [(m.oracle, where) for words, where in shown.items() for m in exercise.known if words in m.cause]

    @functools.wraps(exercise.inputs)
    def inputs(setup: Setup, rng: Draws) -> Sequence[Args]:
        args = list(exercise.inputs(setup, rng))
        if not setup.earns_credit or setup.values == "provenance":
            return args
        wrong = [oracle for oracle, where in must if where(setup)]
        for _ in range(_TRIES if wrong else 0):
            right = exercise.oracle(setup, args)
            hidden = next((o for o in wrong if not is_wrong(o, setup, args, right)), None)
            if hidden is None:
                return args
            wrong.sort(key=lambda oracle: oracle is not hidden)  # the one that shows least often is asked first
            args = list(exercise.inputs(setup, rng))
        if wrong:
            gave_up(f"{exercise.name}, {setup.label()}: no draw of {_TRIES} shows all mistakes that must show")
        return args

    return replace(exercise, inputs=inputs)


def attention_error(
    sizes: torch.Tensor, scores: torch.Tensor, v: torch.Tensor, blocks: int, kind: torch.dtype
) -> torch.Tensor:
    """How far any order of operations in `kind` may be from the exact attention, for each element; half of it is a margin.

    `scores` are (..., queries, keys) in float64, minus infinity where a key is not seen, `v` (..., keys, width), and `sizes` the sums
    of the absolute products behind the scores. A score is off by the roundings of its products and sums and of its scaling, whether
    q, k or the product is scaled; maxima that are subtracted and log-sums, one a block and one a merge, round numbers as large as the
    largest score. Weights that are off by factors e^±d move the mean of v by no more than the sum of w (e^d - 1) |v - mean|, over
    that of w e^-d. What is added rounds once for each key and block, and log-sums that are off scale all of it.
    """
    half, width = torch.finfo(kind).eps / 2, v.shape[-1]
    largest = scores.masked_fill(scores.isneginf(), 0).abs().amax(-1, keepdim=True)
    off = (half * ((width + 5) * sizes + (blocks + 6) * largest)).clamp(max=30)
    weights = torch.softmax(scores, -1).nan_to_num(0)
    mean = weights @ v
    away = (v[..., None, :, :] - mean[..., :, None, :]).abs()
    apart = torch.einsum("...qk,...qkd->...qd", weights * off.expm1(), away)
    moved = apart / (weights * (-off).exp()).sum(-1, keepdim=True).clamp(min=1e-30)
    added = (scores.shape[-1] + 4 * blocks + 8 + (blocks + 2) * largest) * half * (weights @ v.abs())
    return 1.5 * (moved + added)


def log_sum_error(rows: torch.Tensor, ranks: int) -> torch.Tensor:
    """How far the logarithm of a row's sum of exponentials, less a logit, may be off in the rows' dtype, in any order of operations.

    `rows` are (..., columns), the whole rows; the result is (..., 1). Maxima that are subtracted and log-sums, one a rank and one a
    merge, round numbers as large as the largest logit; the sum rounds once for each column and rank.
    """
    largest = rows.double().abs().amax(-1, keepdim=True)
    return torch.finfo(rows.dtype).eps / 2 * ((ranks + 4) * largest + rows.shape[-1] + ranks + 6)

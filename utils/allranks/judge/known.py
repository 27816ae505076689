"""The mistakes that would have given just these results: the exercise's own, each by what it leaves, then those that all exercises may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from allranks.judge import compare, wrong_result
from allranks.judge.cases import Args, Expected, Oracle, Setup, views
from allranks.judge.causes import Cause, Code, cause, clause
from allranks.judge.exercise import FaultKind, Mistake, ResultFault, Run


def fitting_mistakes(run: Run, faults: Sequence[ResultFault], right: Sequence[Run] = ()) -> list[Cause]:
    """Every known mistake that would have given just these results, the exercise's own first.

    Where ranks send no messages and put nothing, a result follows from the rank's own arguments alone: then a mistake that would have
    shown on a rank that is right, or in a run of `right`, was not made.
    """
    found = _mistakes_of_exercise(run, faults, right)
    found += wrong_result.remainders_left_out(run, faults)
    common = wrong_result.common_mistake(run, faults)
    if not found and common is None and run.ranks > 1 and run.exercise.allow and not run.sends and not run.collectives:
        common = cause(Code.NO_MESSAGE)
    return [*found, common] if common is not None else found


def _mistakes_of_exercise(run: Run, faults: Sequence[ResultFault], right_runs: Sequence[Run]) -> list[Cause]:
    result_kinds = (FaultKind.VALUES, FaultKind.SHAPE, FaultKind.DTYPE, FaultKind.RETURNED)
    if any(f.kind not in result_kinds for f in faults) or any(
        wrong_result.only_the_shape(run, f) and _has_several(run, f) for f in faults
    ):
        return []  # one element alone has the right value by chance
    call, found = faults[0].call, []
    for mistake in run.exercise.known:
        if not mistake.holds(run):
            continue
        try:
            predicted = mistake.oracle(run.setup, run.args[call])
        except (RuntimeError, IndexError, ValueError):  # this mistake can't be made with these shapes
            continue
        # a prediction that accepts any item can't explain a wrong dtype or shape
        if any(f.kind is not FaultKind.VALUES and _accepts_any_item(predicted[f.rank]) for f in faults):
            continue
        fits = all(_matches(run, call, f.rank, predicted[f.rank]) for f in faults)
        right = set(range(run.ranks)) - {f.rank for f in faults}
        everywhere = all(_matches(run, call, r, predicted[r]) or not says_something(predicted[r]) for r in right)
        if fits and not everywhere and all(_is_empty(predicted[f.rank].returns) for f in faults):
            continue  # zeros and NaN alone name no cause
        if fits and not run.exercise.allow and not run.outcome.accesses:
            exact = not any(_accepts_any_item(predicted[f.rank]) for f in faults)  # else it is a family of mistakes
            if not everywhere or (exact and any(_shows(r, mistake) for r in right_runs)):
                continue
        if not everywhere and mistake.everywhere:
            continue  # it is right on some
        if fits and (own := _own(run, mistake, everywhere)) not in found:  # one vote for each cause
            found.append(own)
    return found


def _own(run: Run, mistake: Mistake, everywhere: bool) -> Cause:
    said = clause(mistake.cause)
    code = Code.OWN if everywhere else Code.OWN_ON_SOME
    return cause(code, exercise=run.exercise.name, number=mistake.number, short=said.short, rest=said.rest)


def _is_empty(returned: Any) -> bool:
    """Whether it is nothing but zeros and NaN."""
    return isinstance(returned, torch.Tensor) and not bool(returned.nan_to_num(0).any())


def _shows(run: Run, mistake: Mistake) -> bool:
    """Whether the mistake would have made this run, which is right, wrong on some rank. Only numbers can be compared so."""
    try:
        predicted = mistake.oracle(run.setup, run.args[0])
    except (RuntimeError, IndexError, ValueError):
        return False
    return any(
        isinstance(told.returns, tuple)
        and isinstance(want.returns, tuple)
        and compare.difference(want.returns, told.returns, want.atol) is not None
        for want, told in zip(run.expected[0], predicted, strict=True)
    )


def would_show(run: Run, number: int) -> bool:
    """Whether the exercise's mistake of this number would have made the run's first call wrong on some rank."""
    return any(makes_wrong(mistake.oracle, run) for mistake in run.exercise.known if mistake.number == number)


def makes_wrong(oracle: Oracle, run: Run) -> bool:
    """Whether the oracle of a mistake leaves what is beyond right on some rank, in the run's first call."""
    return is_wrong(oracle, run.setup, run.args[0], run.expected[0])


def is_wrong(oracle: Oracle, setup: Setup, args: Sequence[Args], right: Sequence[Expected]) -> bool:
    """Whether the oracle of a mistake leaves what is beyond right on some rank, with these arguments."""
    try:
        predicted = oracle(setup, args)
    except (RuntimeError, IndexError, ValueError):  # it can't be made with these shapes
        return False
    return any(_is_other(want, told) for want, told in zip(right, predicted, strict=True))


def _is_other(right: Expected, predicted: Expected) -> bool:
    """Whether what is predicted differs from what is right."""
    told = predicted.returns
    if isinstance(told, tuple) and isinstance(right.returns, tuple) and len(told) == len(right.returns):
        # an item that may be anything may be right
        told = tuple(right.returns[i] if item is None else item for i, item in enumerate(told))
    if told is not None and compare.difference(told, right.returns, right.atol) is not None:
        return True
    return any(
        path in right.changed and compare.difference(value, right.changed[path], right.atol) is not None
        for path, value in predicted.changed.items()
    )


def _matches(run: Run, call: int, rank: int, predicted: Expected | None) -> bool:
    return predicted is not None and says_something(predicted) and ended_as(run, call, rank, predicted)


def ended_as(run: Run, call: int, rank: int, predicted: Expected) -> bool:
    """Whether the rank ended as predicted, in what it returned and in the tensors that are predicted to change."""
    got, given = run.results[call][rank], run.args[call][rank]
    if got is None or compare.difference(got.returned, predicted.returns, predicted.atol) is not None:
        return False
    return all(
        now is not None and compare.difference(now, predicted.changed[path], predicted.atol) is None
        for (path, _), (now, _) in zip(views(given), got.tensors, strict=True)
        if path in predicted.changed
    )


def says_something(expected: Expected | None) -> bool:
    """Whether it is expected that anything is returned or changed."""
    return expected is not None and (expected.returns is not None or bool(expected.changed))


def _has_several(run: Run, fault: ResultFault) -> bool:
    """Whether the rank must return more than one element."""
    right = run.expected[fault.call][fault.rank].returns
    return isinstance(right, torch.Tensor) and right.numel() > 1


def _accepts_any_item(expected: Expected | None) -> bool:
    """Whether the expected tuple accepts any value somewhere."""
    return (
        expected is not None and isinstance(expected.returns, tuple) and any(item is None for item in expected.returns)
    )

"""Mistakes that look alike in all exercises, seen in the results without an exercise's help: own input only, another rank's result,
an order of pieces.

Each says of a run that it fits, that it does not, or that this can't be told; one that does not fit a like case was not made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from allranks.judge import compare
from allranks.judge.cases import Expected, plain, views
from allranks.judge.causes import Cause, Code, cause
from allranks.judge.exercise import FaultKind, Result, ResultFault, Run
from allranks.judge.known import ended_as, says_something
from allranks.judge.wrong_result import left_unchanged

_KINDS = (FaultKind.VALUES, FaultKind.SHAPE)
_LEAST = 3  # ranks, for a pattern: with two all look alike

Found = tuple[list[Cause], set[Code]]  # what fits, and the codes of which nothing does


def fitting(run: Run, faults: Sequence[ResultFault]) -> Found:
    """The patterns that fit a run with wrong results, and the codes of those that it speaks against."""
    if not faults or run.ranks < 2 or any(f.kind not in _KINDS for f in faults) or _nothing_written(run, faults):
        return [], set()
    told = {code: find(run, faults) for code, find in _FINDS.items()}
    return [one for one in told.values() if isinstance(one, Cause)], {
        code for code, one in told.items() if one is False
    }


def _nothing_written(run: Run, faults: Sequence[ResultFault]) -> bool:
    """Whether all that the function had to change is as it was: that has causes of its own."""
    expected = run.expected[faults[0].call]
    return any(expected[f.rank].changed for f in faults) and all(left_unchanged(run, f) for f in faults)


def _own_only(run: Run, faults: Sequence[ResultFault]) -> Cause | bool | None:
    """Whether each rank has what its own arguments alone give, as in a world of one rank."""
    told = _alone(run, faults)
    if told is None:
        return None
    return cause(Code.OWN_ONLY) if _all_ended_as(run, faults[0].call, told) else False


def _own_only_times(run: Run, faults: Sequence[ResultFault]) -> Cause | bool | None:
    """Whether each rank has what its own arguments alone give, times p or divided by it."""
    told = _alone(run, faults)
    if told is None:
        return None
    for value, times in (("1/p", 1 / run.ranks), ("p", run.ranks)):
        scaled = [_scaled(one, times) for one in told]
        if None not in scaled and _all_ended_as(run, faults[0].call, scaled):
            return cause(Code.OWN_ONLY_TIMES, value=value)
    return False


def _all_ended_as(run: Run, call: int, told: Sequence[Expected | None]) -> bool:
    return all(one is not None and ended_as(run, call, rank, one) for rank, one in enumerate(told))


def _scaled(told: Expected, times: float) -> Expected | None:
    """What is told, times this number; None if it is no floating tensors."""
    returns = {} if told.returns is None else {"returns": told.returns}
    tensors: dict[Any, Any] = {**told.changed, **returns}
    if not all(isinstance(t, torch.Tensor) and t.dtype.is_floating_point for t in tensors.values()):
        return None
    scaled = {path: t * times for path, t in tensors.items()}
    return replace(told, returns=scaled.pop("returns", None), changed=scaled)


def _alone(run: Run, faults: Sequence[ResultFault]) -> list[Expected] | None:
    """What each rank's own arguments alone give; None if there is no such world, or nothing to be seen."""
    call, root = faults[0].call, run.setup.root
    alone = replace(run.setup, ranks=1, root=None if root is None else 0)
    told: list[Expected] = []
    for given in run.args[call]:
        try:
            told += run.exercise.oracle(alone, [given])
        except Exception:  # with these arguments there is no such world
            return None
    if all(_is_zero(told[f.rank]) for f in faults) or not all(says_something(told[f.rank]) for f in faults):
        return None
    return told


def _is_zero(told: Expected) -> bool:
    tensors = [t for t in (told.returns, *told.changed.values()) if isinstance(t, torch.Tensor)]
    return bool(tensors) and not any(bool(t.any()) for t in tensors)


def _input_back(run: Run, faults: Sequence[ResultFault]) -> Cause | bool | None:
    """Whether each wrong rank returned its first argument as it was."""
    call = faults[0].call
    pairs = [(run.results[call][f.rank], plain(run.args[call][f.rank][0])) for f in faults]
    if not all(isinstance(given, torch.Tensor | list) for _, given in pairs):
        return None
    return cause(Code.INPUT_BACK) if all(_is_same(got, given) for got, given in pairs) else False


def _is_same(got: Result | None, given: Any) -> bool:
    return got is not None and compare.difference(got.returned, given, None) is None


def _of_another_rank(run: Run, faults: Sequence[ResultFault]) -> Cause | bool | None:
    """Whether each rank has what another one must have: always the next one, the one before, or the same one."""
    call, p = faults[0].call, run.ranks
    wanted = run.expected[call]
    if p < _LEAST or any(one.changed or not isinstance(one.returns, torch.Tensor) for one in wanted):
        return None
    if any(_equal(a.returns, b.returns, a.atol) for a, b in itertools.combinations(wanted, 2)):
        return None  # two ranks must end with the same
    for name, other in _OTHERS:
        if all(ended_as(run, call, rank, wanted[other(rank, p)]) for rank in range(p)):
            return cause(Code.OF_ANOTHER_RANK, other=name)
    return False


_OTHERS: tuple[tuple[str, Callable[[int, int], int]], ...] = (
    ("rank r+1", lambda rank, p: (rank + 1) % p),
    ("rank r-1", lambda rank, p: (rank - 1) % p),
    ("rank p-1-r", lambda rank, p: p - 1 - rank),
    ("rank 0", lambda rank, p: 0),
    ("rank p-1", lambda rank, p: p - 1),
)


def _zero(run: Run, faults: Sequence[ResultFault]) -> Cause | bool | None:
    """Whether 0 came back where another number is right."""
    call = faults[0].call
    pairs = [(run.results[call][f.rank], run.expected[call][f.rank].returns) for f in faults]
    if any(got is None or isinstance(right, bool) or not isinstance(right, int | float) for got, right in pairs):
        return None
    return cause(Code.ZERO_RETURNED) if all(got and got.returned == 0 != right for got, right in pairs) else False


def _other_order(run: Run, faults: Sequence[ResultFault]) -> Cause | bool | None:
    """Whether the pieces of every rank's result are right ones, in an order that is the same function of rank and place on all."""
    call, p = faults[0].call, run.ranks
    rows = next((view.size[0] for _, view in views(run.args[call][0]) if view.size), 0)
    wanted = [_pieces(one.returns, p, rows) for one in run.expected[call]]
    found = [[] if got is None else _pieces(got.returned, p, rows) for got in run.results[call]]
    if p < _LEAST or not all(wanted):
        return None
    if any(len(pieces) != p for pieces in found):
        return False
    limits = [compare.limit_of_item(run.expected[call][0].atol, piece) for piece in range(p)]
    if any(_equal(w[i], w[j], limits[i]) for w in wanted for i, j in itertools.combinations(range(p), 2)):
        return None  # two pieces are alike
    for a, b, c in _FORMULAS:
        places = [(r, i, (a * r + b * i + c) % p) for r in range(p) for i in range(p)]
        if all(_equal(found[r][i], wanted[r][piece], limits[piece]) for r, i, piece in places):
            order = _ORDERS.get((a, b, c)) or f"piece {_in_words(a, b, c)} (modulo p) stands in place i of rank r"
            return cause(Code.OTHER_ORDER, order=order)
    return False


def _pieces(value: Any, count: int, rows: int) -> list[torch.Tensor]:
    """The pieces of a returned list, or of a tensor that has all ranks' `rows`; none if it has not so many."""
    if isinstance(value, list | tuple):
        return list(value) if len(value) == count and all(isinstance(t, torch.Tensor) for t in value) else []
    if not isinstance(value, torch.Tensor) or not value.numel() or value.shape[:1] != (count * rows,):
        return []
    return list(value.chunk(count))


def _equal(a: torch.Tensor, b: torch.Tensor, atol: Any) -> bool:
    return compare.difference(a, b, atol) is None


def _in_words(a: int, b: int, c: int) -> str:
    """ "2r + i - 1", of such a formula."""
    terms = [f"{'-' if n < 0 else '+'} {abs(n) if abs(n) > 1 else ''}{name}" for n, name in ((a, "r"), (b, "i")) if n]
    terms += [f"{c:+d}".replace("+", "+ ").replace("-", "- ")] if c else []
    return " ".join(terms).removeprefix("+ ")


_ORDERS = {
    (1, 1, 0): "each rank's own piece stands first, then those of the ranks behind it",
    (1, -1, 0): "each rank's own piece stands first, then those of the ranks before it, as they come round a ring",
    (0, -1, -1): "the last rank's piece stands first",
    (0, 1, 1): "off by one place: the piece of rank i + 1 stands in place i",
    (0, 1, -1): "off by one place: the piece of rank i - 1 stands in place i",
    (2, -1, 0): "what came from s ranks to one side stands s places on the other side of the rank's own",
    (1, 0, 0): "each rank's own piece stands in every place",
    (0, 0, 0): "rank 0's piece stands in every place",
    (0, 0, -1): "the last rank's piece stands in every place",
}
_RIGHT = (0, 1, 0)
_FORMULAS = (
    tuple(  # (a, b, c): piece a r + b i + c, modulo p, stands in place i of rank r; of few ranks several are the same
        dict.fromkeys([*_ORDERS, *(f for f in itertools.product((0, 1, 2, -1), (1, -1, 0), (0, 1, -1)) if f != _RIGHT)])
    )
)
_FINDS: dict[Code, Callable[[Run, Sequence[ResultFault]], Cause | bool | None]] = {
    Code.INPUT_BACK: _input_back,
    Code.OWN_ONLY: _own_only,
    Code.OWN_ONLY_TIMES: _own_only_times,
    Code.OF_ANOTHER_RANK: _of_another_rank,
    Code.OTHER_ORDER: _other_order,
    Code.ZERO_RETURNED: _zero,
}
CODES = frozenset(_FINDS)

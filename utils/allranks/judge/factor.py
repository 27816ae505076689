"""A wrong result that is a constant multiple of the right one: the factor, and what it is in terms of p."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import torch

from allranks.base.errors import listed
from allranks.judge.cases import Setup, plain, views
from allranks.judge.causes import Cause, Code, cause
from allranks.judge.compare import difference, limit_of_item, name_of
from allranks.judge.exercise import FaultKind, ResultFault, Run

_EXACT = 1e-3  # of the factor; results in float32 have rounding errors
_EXACT_OLD = 1e-5  # of that of old values, which may be as near to 1 as a weight decay's
_NAMED: tuple[tuple[str, str, Callable[[Setup], float | None]], ...] = (
    ("2", "as if everything were added twice", lambda s: 2),
    ("1/2", "as if halved once too often", lambda s: 1 / 2),
    ("-1", "the sign is wrong", lambda s: -1),
    ("0", "only the change is there", lambda s: 0),
    (
        "p",
        "as if multiplied by the number of ranks, or not divided by it, such as a sum in the place of a mean",
        lambda s: s.ranks,
    ),
    (
        "1/p",
        "as if divided by the number of ranks once too often, such as a mean in the place of a sum",
        lambda s: 1 / s.ranks,
    ),
    ("p^2", "as if multiplied by the number of ranks twice too often", lambda s: s.ranks**2),
    ("1/p^2", "as if divided by the number of ranks twice too often", lambda s: 1 / s.ranks**2),
    ("p/(p-1)", "as if divided by p-1 instead of p", lambda s: s.ranks / (s.ranks - 1)),
    ("p/(p+1)", "as if divided by p+1 instead of p", lambda s: s.ranks / (s.ranks + 1)),
    ("(p-1)/p", "as if divided by p instead of p-1", lambda s: (s.ranks - 1) / s.ranks),
    ("p-1", "as if multiplied by p-1", lambda s: s.ranks - 1),
    ("1/(p-1)", "as if divided by p-1", lambda s: 1 / (s.ranks - 1)),
    ("p/2", "as if divided by 2 instead of by the number of ranks", lambda s: s.ranks / 2),
    ("2/p", "as if divided by half the number of ranks once too often", lambda s: 2 / s.ranks),
    ("p/4", "as if divided by 4 instead of by the number of ranks", lambda s: s.ranks / 4),
    ("ranks_per_node", "as if the sum of each node were added that often", lambda s: s.option("ranks_per_node")),
    ("1/ranks_per_node", "as if divided by it", lambda s: 1 / s.option("ranks_per_node", math.nan)),
    ("lr", "as if multiplied by lr once more", lambda s: s.option("lr")),
    ("1/lr", "as if lr were missing", lambda s: 1 / s.option("lr", math.nan)),
)
_MOST_DECAY = 0.2  # of one step, without lr
_DECAYS = "as by a weight decay, and there is none in this step"


class Of(StrEnum):
    """What of each element is a multiple of the right one."""

    WHOLE = "each element"
    CHANGE = "the change of each element"
    OLD = "the old value in each element"  # and the change is right


class Factor(NamedTuple):
    """`value` times the right one is every element of `thing` ("" for all that the function gives), or only a part `of` it."""

    value: float
    of: Of
    thing: str = ""


class _Part(NamedTuple):
    """One tensor that a rank gives: what it has and what it must have, what it had before if it is the caller's, and how near it must be."""

    thing: str
    got: torch.Tensor
    wanted: torch.Tensor
    before: torch.Tensor | None
    atol: Any


def factor(run: Run, faults: Sequence[ResultFault]) -> Factor | None:
    """What every rank's result is a multiple of, if there is one such number other than 1.

    It may be that of the change of the caller's tensors only, or of what was there before, or of some of several tensors while the others
    are right. A rank that must end with zeros is right with any factor.
    """
    if any(f.kind is not FaultKind.VALUES for f in faults):
        return None
    parts: list[_Part] = []
    for rank in range(run.ranks):
        mine = _parts(run, faults[0].call, rank)
        if mine is None or (all(f.rank != rank for f in faults) and any(bool(part.wanted.any()) for part in mine)):
            return None
        parts += mine
    things = {part.thing for part in parts if difference(part.got, part.wanted, part.atol) is not None}
    all_wrong = listed(sorted(things)) if things else ""
    some = [part for part in parts if part.thing in things]
    with_old = ((Of.CHANGE, _of_the_change), (Of.OLD, _of_the_old)) if all(p.before is not None for p in some) else ()
    for of, constant in ((Of.WHOLE, _of_all), *with_old):
        for thing, chosen in (("", parts), (all_wrong, some)):
            found = constant(chosen)
            if found is not None:
                return Factor(found, of, thing)
    return None


def _with_before(parts: Sequence[_Part]) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Of each tensor of the caller's, flat: what it has, what it must have and what it had."""
    return [
        (part.got.reshape(-1).double(), part.wanted.reshape(-1).double(), part.before.reshape(-1).double())
        for part in parts
        if part.before is not None and part.got.shape == part.wanted.shape
    ]


def _of_all(parts: Sequence[_Part]) -> float | None:
    return _constant([(part.got, part.wanted) for part in parts])


def _of_the_change(parts: Sequence[_Part]) -> float | None:
    return _constant([(got - old, wanted - old) for got, wanted, old in _with_before(parts)])


def _of_the_old(parts: Sequence[_Part]) -> float | None:
    """The one number that all old values were multiplied with before the right change was added."""
    triples = _with_before(parts)
    if not triples:
        return None
    got, wanted, old = (torch.cat(each) for each in zip(*triples, strict=True))
    change = wanted - old
    if len(old[old != 0].unique()) < 3 or not bool(got.isfinite().all()) or not bool(change.any()):
        return None
    value = float((got - change) @ old / (old @ old))
    near = bool(((got - change - value * old).abs() <= _EXACT_OLD * (old.abs() + change.abs())).all())
    if not near or abs(value - 1) <= 4 * _EXACT_OLD:
        return None
    return 0.0 if abs(value) < _EXACT_OLD else value


def _parts(run: Run, call: int, rank: int) -> list[_Part] | None:
    got, expected = run.results[call][rank], run.expected[call][rank]
    if got is None:
        return None
    found = []
    if isinstance(expected.returns, torch.Tensor) and isinstance(got.returned, torch.Tensor):
        found.append(_Part("what is returned", got.returned, expected.returns, None, expected.atol))
    if isinstance(expected.returns, list | tuple) and isinstance(got.returned, list | tuple):
        items = list(zip(got.returned, expected.returns, strict=False))
        if not all(isinstance(item, torch.Tensor) for pair in items for item in pair):
            return None
        for i, (now, wanted) in enumerate(items):
            found.append(_Part(f"item {i} of what is returned", now, wanted, None, limit_of_item(expected.atol, i)))
    given = run.args[call][rank]
    for (path, view), (now, _) in zip(views(given), got.tensors, strict=True):
        if path in expected.changed and now is not None:
            before, wanted = plain(view), expected.changed[path]
            fits = before.shape == wanted.shape == now.shape and not wanted.dtype.is_complex
            name = name_of(path, given, run.exercise.arguments)
            found.append(_Part(name, now, wanted, before if fits else None, expected.atol))
    # a number beside tensors
    if found and isinstance(expected.returns, float) and isinstance(got.returned, int | float):
        number, right = (torch.tensor([float(n)], dtype=torch.float64) for n in (got.returned, expected.returns))
        found.append(_Part("what is returned", number, right, None, expected.atol))
    return found


def _constant(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float | None:
    """The one number that all first tensors are the second ones times; None if there is none, or if it could be chance."""
    if not pairs or any(a.shape != b.shape or b.dtype.is_complex for a, b in pairs):
        return None
    got = torch.cat([a.reshape(-1).double() for a, _ in pairs])
    right = torch.cat([b.reshape(-1).double() for _, b in pairs])
    clear = right.abs() > 1e-6 * right.abs().max() if right.numel() else right.bool()
    if len(right[clear].unique()) < 2 or not bool(got.isfinite().all()):
        return None
    ratios = got[clear] / right[clear]
    value = ratios.median().item()
    same = bool(((ratios - value).abs() <= _EXACT * abs(value)).all()) and bool((got[~clear].abs() < 1e-6).all())
    return value if same and value and abs(value - 1) > 10 * _EXACT else None


def in_common(found: Sequence[tuple[Setup, Factor]]) -> Cause | None:
    """What the factors of these cases have in common: a name that holds for different p, else None."""
    things = {one.thing for _, one in found} - {""}  # where the rest is zeros, it may be a multiple too
    if len({setup.ranks for setup, _ in found}) < 2 or len({one.of for _, one in found}) != 1 or len(things) > 1:
        return None
    first = found[0][1]._replace(thing="".join(things))
    if first.of is Of.OLD and (rate := _decay(found)) is not None:
        return cause(Code.FACTOR_NAMED, thing=_about(first), value=f"1 - {rate:.2g} lr", meaning=_DECAYS)
    for name, meaning, of in _NAMED:
        if all(_is(one.value, of(setup)) for setup, one in found):
            return cause(Code.FACTOR_NAMED, thing=_about(first), value=name, meaning=meaning)
    if all(_is(one.value, first.value) for _, one in found):
        return cause(Code.FACTOR, thing=_about(first), value=f"{first.value:.4g}")
    return None


def _decay(found: Sequence[tuple[Setup, Factor]]) -> float | None:
    """The one rate by which old values shrank, times lr."""
    rates = [(1 - one.value) / lr for setup, one in found if (lr := setup.option("lr"))]
    same = len(rates) == len(found) and all(math.isclose(rate, rates[0], rel_tol=0.1) for rate in rates)
    return rates[0] if same and 0 < rates[0] < _MOST_DECAY else None


def of_one(setup: Setup, found: Factor) -> Cause:
    """The factor of one case, without a name that it could have by chance."""
    return cause(Code.FACTOR_OF_ONE, thing=_about(found), value=f"{found.value:.4g}", p=setup.ranks)


def _about(found: Factor) -> str:
    return f"{found.of} of {found.thing} is" if found.thing else f"{found.of} is"


def _is(value: float, named: float | None) -> bool:
    return named is not None and math.isclose(value, named, rel_tol=2 * _EXACT)

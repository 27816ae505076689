"""A wrong result that is a constant multiple of the right one: the factor, and what it is in terms of p."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from allranks.judge.cases import Setup, plain, views
from allranks.judge.compare import difference, name_of
from allranks.judge.exercise import FaultKind, ResultFault, Run

_EXACT = 1e-3  # of the factor; results in float32 have rounding errors
_NAMED: tuple[tuple[str, str, Callable[[Setup], float | None]], ...] = (
    ("2", "as if everything were added twice", lambda s: 2),
    ("1/2", "as if halved once too often", lambda s: 1 / 2),
    ("-1", "the sign is wrong", lambda s: -1),
    ("p", "as if multiplied by the number of ranks, or not divided by it", lambda s: s.ranks),
    ("1/p", "as if divided by the number of ranks once too often", lambda s: 1 / s.ranks),
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


class Factor(NamedTuple):
    """`value` times the right one is every element of `thing` ("" for all that the function gives), or only its `change`."""

    value: float
    change: bool
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

    It may be that of the change of the caller's tensors only, or of one of several tensors while the others are right.
    """
    if len(faults) < run.ranks or any(f.kind is not FaultKind.VALUES for f in faults):
        return None
    parts: list[_Part] = []
    for rank in range(run.ranks):
        mine = _parts(run, faults[0].call, rank)
        if mine is None:
            return None
        parts += mine
    things = {part.thing for part in parts if difference(part.got, part.wanted, part.atol) is not None}
    for thing in ("", *sorted(things if len(things) == 1 else ())):
        some = [part for part in parts if thing in ("", part.thing)]
        found = _constant([(part.got, part.wanted) for part in some])
        if found is not None:
            return Factor(found, False, thing)
        found = _constant(
            [
                (part.got.double() - part.before.double(), part.wanted.double() - part.before.double())
                for part in some
                if part.before is not None
            ]
        )
        if found is not None:
            return Factor(found, True, thing)
    return None


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
            atol = expected.atol[i] if isinstance(expected.atol, tuple | list) else expected.atol
            found.append(_Part(f"item {i} of what is returned", now, wanted, None, atol))
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


def in_words(found: Sequence[tuple[Setup, Factor]]) -> str | None:
    """What the factors of these cases have in common: a name that holds for different p, else None."""
    if len({setup.ranks for setup, _ in found}) < 2 or len({one[1:] for _, one in found}) != 1:
        return None
    for name, meaning, of in _NAMED:
        if all(_is(one.value, of(setup)) for setup, one in found):
            return f"{_about(found[0][1])} {name} times the right one on every rank: {meaning}"
    if all(_is(one.value, found[0][1].value) for _, one in found):
        return f"{_about(found[0][1])} {found[0][1].value:.4g} times the right one on every rank"
    return None


def of_one(setup: Setup, found: Factor) -> str:
    """The factor of one case, without a name that it could have by chance."""
    return f"{_about(found)} {found.value:.4g} times the right one on every rank (for p = {setup.ranks})"


def _about(found: Factor) -> str:
    element = f"each element of {found.thing}" if found.thing else "each element"
    return f"the change of {element} is" if found.change else f"{element} is"


def _is(value: float, named: float | None) -> bool:
    return named is not None and math.isclose(value, named, rel_tol=2 * _EXACT)

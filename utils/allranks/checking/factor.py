"""A wrong result that is a constant multiple of the right one: the factor, and what it is in terms of p."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from allranks.checking.cases import Setup, plain, views
from allranks.checking.exercise import FaultKind, ResultFault, Run

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


def factor(run: Run, faults: Sequence[ResultFault]) -> tuple[float, bool] | None:
    """What every rank's result is a multiple of, if there is one such number other than 1, and whether only the *change* of the
    caller's tensors is that multiple."""
    if len(faults) < run.ranks or any(f.kind is not FaultKind.VALUES for f in faults):
        return None
    whole, step = [], []
    for rank in range(run.ranks):
        got, expected = run.results[faults[0].call][rank], run.expected[faults[0].call][rank]
        if got is None:
            return None
        if isinstance(expected.returns, torch.Tensor) and isinstance(got.returned, torch.Tensor):
            whole.append((got.returned, expected.returns))
        if isinstance(expected.returns, list) and isinstance(got.returned, list | tuple):
            items = list(zip(got.returned, expected.returns, strict=False))
            if not all(isinstance(item, torch.Tensor) for pair in items for item in pair):
                return None
            whole += items
        for (path, view), (now, _) in zip(views(run.args[faults[0].call][rank]), got.tensors, strict=True):
            if path in expected.changed and now is not None:
                before, wanted = plain(view), expected.changed[path]
                whole.append((now, wanted))
                if before.shape == wanted.shape == now.shape and not wanted.dtype.is_complex:
                    step.append((now.double() - before.double(), wanted.double() - before.double()))
    found = _constant(whole)
    if found is not None:
        return found, False
    found = _constant(step)
    return None if found is None else (found, True)


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


def in_words(found: Sequence[tuple[Setup, tuple[float, bool]]]) -> str | None:
    """What the factors of these cases have in common: a name that holds for different p, else None."""
    if len({setup.ranks for setup, _ in found}) < 2 or len({step for _, (_, step) in found}) != 1:
        return None
    for name, meaning, of in _NAMED:
        if all(_is(value, of(setup)) for setup, (value, _) in found):
            return f"{_thing(found[0][1][1])} {name} times the right one on every rank: {meaning}"
    return None


def of_one(setup: Setup, found: tuple[float, bool]) -> str:
    """The factor of one case, without a name that it could have by chance."""
    value, step = found
    return f"{_thing(step)} {value:.4g} times the right one on every rank (for p = {setup.ranks})"


def _thing(step: bool) -> str:
    return "the change of each element is" if step else "each element is"


def _is(value: float, named: float | None) -> bool:
    return named is not None and math.isclose(value, named, rel_tol=2 * _EXACT)

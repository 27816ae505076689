"""What came against what was expected: the first fault of each rank, in words that give away no value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from allranks.checking.cases import GUARD, Args, Expected, View, Whole, views
from allranks.checking.exercise import Fault, Result

_KNOWN_TYPES = (
    "ndarray",
    "dict",
    "set",
    "str",
    "bytes",
    "complex",
    "generator",
    "Size",
    "Parameter",
    "float64",
    "int64",
)


def faults(
    name: str, args: Sequence[Args], expected: Sequence[Expected], results: Sequence[Result | None], call: int
) -> list[Fault]:
    """One fault for each rank that ended wrong, lowest rank first."""
    found = []
    for rank, (given, wanted, got) in enumerate(zip(args, expected, results, strict=True)):
        fault = _rank_fault(name, rank, given, wanted, got, call)
        if fault is not None:
            found.append(fault)
    return found


def _rank_fault(name: str, rank: int, given: Args, wanted: Expected, got: Result | None, call: int) -> Fault | None:
    if got is None:
        return Fault("returned", rank, call, f"rank {rank} handed back nothing that can be read")
    problem = value_fault(got.returned, wanted.returns, wanted.atol, f"what rank {rank} returned")
    if problem:
        return Fault(problem[0], rank, call, problem[1], problem[2])
    tracked = views(given)
    for (path, view), (now, base) in zip(tracked, got.tensors, strict=True):
        thing = _thing(path, given)
        if path in wanted.changed:
            problem = value_fault(now, wanted.changed[path], wanted.atol, f"{thing} on rank {rank}")
            if problem:
                return Fault(problem[0], rank, call, problem[1], problem[2])
            # a parameter may be given other data, a tensor argument is memory that its caller looks at by other names too
            if path[-1] not in ("data", "grad") and not _there(view, base, now):
                words = f"{thing} on rank {rank} was given other memory, and the caller's own is as it was"
                return Fault("elsewhere", rank, call, words)
        elif now is None or not same(now, view.tensor()):
            words = f"rank {rank} changed {thing}, which is an input and no output of {name}"
            return Fault("clobbered", rank, call, words)
        if not _guarded(view, base):
            words = f"rank {rank} wrote into memory beside {thing}: it is a window on a larger tensor"
            return Fault("beside", rank, call, words)
    return None


def _thing(path: tuple, given: Args) -> str:
    if path[-1] == "grad":
        return f"parameter {path[-2]}'s gradient"
    if path[-1] == "data":
        return f"parameter {path[-2]}"
    if len(path) > 1:
        return f"tensor {path[-1]} of the list"
    several = sum(isinstance(a, View) for a in given) > 1
    return f"tensor argument {path[0] + 1}" if several else "its tensor"


def value_fault(got: Any, wanted: Any, atol: Any, thing: str) -> tuple[str, str, tuple[int, ...]] | None:
    """(kind, words, wrong flat indices) or None where it is right. Only shapes, dtypes, counts and places are named."""
    if wanted is None:
        return None  # the result of an in-place function is its own affair
    if isinstance(wanted, Whole):
        problem = value_fault(got, wanted.numbers, None, thing)
        return (
            problem
            if problem is None or problem[0] == "returned"
            else ("values", f"{thing} is not the {wanted.name}", ())
        )
    if isinstance(wanted, torch.Tensor):
        if not isinstance(got, torch.Tensor):
            return "returned", f"{thing} is {_kind(got)}; it must be a tensor", ()
        if got.dtype != wanted.dtype:
            name, right = str(got.dtype).removeprefix("torch."), str(wanted.dtype).removeprefix("torch.")
            return "dtype", f"{thing} has dtype {name}; it must be {right}", ()
        if got.shape != wanted.shape:
            return "shape", f"{thing} has shape {tuple(got.shape)}; it must be {tuple(wanted.shape)}", ()
        wrong = torch.nonzero(~_close(got, wanted, atol).reshape(-1)).reshape(-1).tolist()
        if not wrong:
            return None
        first = f", the first at index {wrong[0]}" if wanted.numel() > 1 else ""
        count = f"{len(wrong)} of {wanted.numel()} elements wrong" if wanted.numel() > 1 else "the wrong value"
        return "values", f"{thing} has {count}{first}", tuple(wrong)
    if isinstance(wanted, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(wanted):
            return "returned", f"{thing} is {_kind(got)}; it must be {_kind(wanted)}", ()
        for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
            tolerance = atol[i] if isinstance(atol, tuple | list) else atol
            item = getattr(wanted, "_fields", ())[i : i + 1] or (f"item {i}",)
            problem = value_fault(a, b, tolerance, f"{item[0]} of {thing}")
            if problem:
                return problem
        return None
    if isinstance(got, torch.Tensor) and got.numel() == 1:
        got = got.item()  # a number may come as a tensor of one element
    if isinstance(got, bool) or not isinstance(got, int | float):
        return "returned", f"{thing} is {_kind(got)}; it must be a number", ()
    equal = got == wanted or (got != got and wanted != wanted) or _near(got, wanted, atol)
    return None if equal else ("values", f"{thing} is not the right number", ())


def _near(got: float, wanted: float, atol: Any) -> bool:
    """Whether a number is within a tolerance; a whole number may be too large to be subtracted from."""
    return isinstance(atol, float) and -1e300 < got < 1e300 and abs(got - wanted) <= atol


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in shape, dtype and every value, NaN included."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(_close(a, b, None).all())


def _close(got: torch.Tensor, wanted: torch.Tensor, atol: Any) -> torch.Tensor:
    equal = got == wanted
    if got.dtype.is_floating_point or got.dtype.is_complex:
        equal = equal | (got.isnan() & wanted.isnan())
        if atol is not None:
            wide = torch.complex128 if got.dtype.is_complex else torch.float64
            limit = (
                atol.reshape(wanted.shape)
                if isinstance(atol, torch.Tensor) and atol.numel() == wanted.numel()
                else atol
            )
            equal = equal | ((got.to(wide) - wanted.to(wide)).abs() <= limit)
    return equal


def _there(view: View, base: torch.Tensor, now: torch.Tensor) -> bool:
    """Whether the storage that the caller gave holds what the tensor now does."""
    usable = base.shape == view.base.shape and base.dtype == view.base.dtype and base.is_contiguous()
    return usable and not base.storage_offset() and same(view.tensor(base), now)


def _guarded(view: View, base: torch.Tensor) -> bool:
    if not isinstance(base, torch.Tensor) or base.shape != view.base.shape or base.dtype != view.base.dtype:
        return True  # the rank says nothing usable about its storage; its values decide
    outside = torch.ones(view.base.shape, dtype=torch.bool)
    torch.as_strided(outside, view.size, view.stride, view.offset).fill_(False)
    return bool((base == torch.full_like(base, GUARD))[outside].all())


def _kind(value: Any) -> str:
    match value:
        case None:
            return "None"
        case torch.Tensor():
            return f"a tensor of shape {tuple(value.shape)}"
        case tuple() | list():
            return f"a {'list' if isinstance(value, list) else 'tuple'} of {len(value)}"
        case str():  # the type's name, which the rank chose: it must not carry anything else
            return f"of type {value}" if value in _KNOWN_TYPES else "of a type of its own"
    return f"a {type(value).__name__}"

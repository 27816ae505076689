"""What a rank ended with, compared with what it must end with; no sentence gives away a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from allranks.judge import computed
from allranks.judge.cases import GUARD, AllOrNothing, Args, Expected, Parameter, Setup, Text, Texts, View, views
from allranks.judge.exercise import FaultKind, Result, ResultFault, Run
from allranks.ranks.wire.values import dtype_name

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


@dataclass(frozen=True)
class Difference:
    """How a value differs from the expected one. `items` are the names or numbers of its items, the outermost tuple's first."""

    kind: FaultKind
    detail: str
    wrong: tuple[int, ...] = ()  # flat indices of wrong elements
    items: tuple[str | int, ...] = ()
    dtype_found: torch.dtype | None = None
    dtype_expected: torch.dtype | None = None

    def sentence(self, thing: str) -> str:
        """ "item 1 of what rank 0 returned is wrong", without a full stop."""
        parts = [f"item {item} of " if isinstance(item, int) else f"{item} in " for item in reversed(self.items)]
        return f"{''.join([*parts, thing])} {self.detail}"


@dataclass(frozen=True)
class Comparison:
    """A case of a group, its run (None: it was not run), and how the results of that differ from what they must be."""

    group: str
    name: str
    setup: Setup
    run: Run | None = None
    faults: tuple[ResultFault, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the results are right, and came without files."""
        run = self.run
        return run is not None and run.failure is None and not self.faults and not run.outcome.files


def compared(group: str, name: str, run: Run) -> Comparison:
    """The case with the faults of its run: a run that failed has none, it has its failure."""
    judged = run.failure is None and not run.outcome.files
    return Comparison(group, name, run.setup, run, tuple(result_faults(run)) if judged else ())


def result_faults(run: Run) -> list[ResultFault]:
    """The faults of the first call that has any, at most one for each rank. Wrong weights are told before what came of them."""
    if computed_with := computed.faults(run):
        return computed_with
    for call, (args, expected, results) in enumerate(zip(run.args, run.expected, run.results, strict=True)):
        if found := faults(run.exercise.name, args, expected, results, call, run.exercise.arguments):
            return found
    for call, results in enumerate(run.later):
        if found := changed_later(run.exercise.name, run.args[call], run.expected[call], results, call):
            return found
    return []


def faults(
    name: str,
    args: Sequence[Args],
    expected: Sequence[Expected],
    results: Sequence[Result | None],
    call: int,
    arguments: Sequence[str] = (),
) -> list[ResultFault]:
    """One fault for each rank that ended wrong, lowest rank first.

    `name` is the student's function, and `arguments` are the names of its arguments, if they are known.
    """
    found = []
    for rank, (given, wanted, got) in enumerate(zip(args, expected, results, strict=True)):
        fault = _rank_fault(name, rank, given, wanted, got, call, arguments)
        if fault is not None:
            found.append(fault)
    return found


def changed_later(
    name: str,
    args: Sequence[Args],
    expected: Sequence[Expected],
    results: Sequence[Result | None],
    call: int,
) -> list[ResultFault]:
    """One fault for each rank whose right result of call `call` is not right any more after the calls that follow."""
    which = "the first call was changed by the second" if call == 0 else f"call {call + 1} was changed by a later one"
    return [
        ResultFault(
            FaultKind.CHANGED_LATER,
            fault.rank,
            call,
            f"rank {fault.rank}'s result of {which}",
        )
        for fault in faults(name, args, expected, results, call)
    ]


def _rank_fault(
    name: str, rank: int, given: Args, wanted: Expected, got: Result | None, call: int, arguments: Sequence[str]
) -> ResultFault | None:
    if got is None:
        return ResultFault(FaultKind.RETURNED, rank, call, f"rank {rank} returned nothing that can be read")
    found = difference(got.returned, wanted.returns, wanted.atol)
    if found:
        return _as_fault(found, rank, call, f"what rank {rank} returned")
    for (path, view), (now, base) in zip(views(given), got.tensors, strict=True):
        thing = name_of(path, given, arguments)
        if path in wanted.changed:
            found = difference(now, wanted.changed[path], wanted.atol)
            if found:
                return _as_fault(found, rank, call, f"{thing} on rank {rank}")
            # a parameter may be given other data, but the caller reads a tensor argument's memory by other names too
            if path[-1] not in ("data", "grad") and not _in_given_memory(view, base, now):
                words = f"{thing} on rank {rank} was given other memory, and the caller's own memory is unchanged"
                return ResultFault(FaultKind.OTHER_MEMORY, rank, call, words)
        elif now is None or not same(now, view.tensor()):
            words = f"rank {rank} changed {thing}, which is an input and not an output of {name}"
            return ResultFault(FaultKind.INPUT_CHANGED, rank, call, words)
        if not _guards_unchanged(view, base):
            words = f"rank {rank} wrote into memory beside {thing}: it is a window on a larger tensor"
            return ResultFault(FaultKind.WROTE_BESIDE, rank, call, words)
    for place in got.lists:
        thing = arguments[place] if 0 <= place < len(arguments) else "an argument"
        words = f"rank {rank} changed the items of {thing}, which is an input and not an output of {name}"
        return ResultFault(FaultKind.LIST_CHANGED, rank, call, words)
    return None


def _as_fault(found: Difference, rank: int, call: int, thing: str) -> ResultFault:
    part = next((name for name in found.items if isinstance(name, str)), "")
    return ResultFault(
        found.kind, rank, call, found.sentence(thing), found.wrong, found.dtype_found, found.dtype_expected, part
    )


def name_of(path: tuple, given: Args, arguments: Sequence[str] = (), the: str = "the ") -> str:
    """A tensor argument in words: "the gradient of x", "parameter 2", "error", "anchor[0]", "the tensor".

    `arguments` are the names of the function's arguments, if they are known. `the` is the article, where one is needed.
    """
    name = arguments[path[0]] if path[0] < len(arguments) else ""
    if path[-1] in ("grad", "data"):
        owner = given[path[0]]
        if isinstance(owner, Parameter) and owner.name:
            return f"{the}gradient of {owner.name}" if path[-1] == "grad" else owner.name
        lists = sum(isinstance(a, list) and any(isinstance(item, Parameter) for item in a) for a in given)
        one = f"{name}[{path[-2]}]" if name and lists > 1 else f"parameter {path[-2]}"
        return f"{one}'s gradient" if path[-1] == "grad" else one
    if len(path) > 1:
        return name + "".join(f"[{place}]" for place in path[1:]) if name else f"tensor {path[-1]} of the list"
    if sum(isinstance(a, View) for a in given) == 1:
        return f"{the}tensor"
    return name or f"tensor argument {path[0] + 1}"


def difference(got: Any, wanted: Any, atol: Any) -> Difference | None:
    """How the value differs, or None if it is right. Only shapes, dtypes, counts and indices are named."""
    if wanted is None:
        return None  # an in-place function may return anything
    if isinstance(wanted, AllOrNothing):
        found = difference(got, wanted.numbers, None)
        if found is None or found.kind is FaultKind.RETURNED:
            return found
        return Difference(FaultKind.VALUES, f"is not the {wanted.name}")
    if isinstance(wanted, Texts):
        return _texts_difference(got, wanted)
    if isinstance(wanted, torch.Tensor):
        return _tensor_difference(got, wanted, atol)
    if isinstance(wanted, tuple | list):
        return _items_difference(got, wanted, atol)
    if isinstance(got, torch.Tensor) and got.numel() == 1:
        got = got.item()  # a number may come as a tensor of one element
    if isinstance(got, bool) or not isinstance(got, int | float):
        return Difference(FaultKind.RETURNED, f"is {_type_in_words(got)}; it must be a number")
    equal = got == wanted or (got != got and wanted != wanted) or _near(got, wanted, atol)
    return None if equal else Difference(FaultKind.VALUES, "is wrong")


def _texts_difference(got: Any, wanted: Texts) -> Difference | None:
    if not isinstance(got, tuple | list):
        return Difference(FaultKind.RETURNED, f"is {_type_in_words(got)}; it must be {wanted.name}")
    strange = next((item for item in got if not isinstance(item, Text)), None)
    if strange is not None or None in got:
        words = f"has an item that is {_type_in_words(strange)}; it must be {wanted.name}"
        return Difference(FaultKind.RETURNED, words)
    fault = wanted.fault(got)
    return Difference(FaultKind.VALUES, fault) if fault else None


def _tensor_difference(got: Any, wanted: torch.Tensor, atol: Any) -> Difference | None:
    if not isinstance(got, torch.Tensor):
        return Difference(FaultKind.RETURNED, f"is {_type_in_words(got)}; it must be a tensor")
    if got.dtype != wanted.dtype:
        name, right = dtype_name(got.dtype), dtype_name(wanted.dtype)
        return Difference(
            FaultKind.DTYPE,
            f"has dtype {name}; it must be {right}",
            dtype_found=got.dtype,
            dtype_expected=wanted.dtype,
        )
    if got.shape != wanted.shape:
        return Difference(FaultKind.SHAPE, f"has shape {tuple(got.shape)}; it must be {tuple(wanted.shape)}")
    wrong = torch.nonzero(~_close(got, wanted, atol).reshape(-1)).reshape(-1).tolist()
    if not wrong:
        return None
    if wanted.numel() == 1:
        return Difference(FaultKind.VALUES, "has the wrong value", tuple(wrong))
    detail = f"has {len(wrong)} of {wanted.numel()} elements wrong, the first at index {wrong[0]}"
    return Difference(FaultKind.VALUES, detail, tuple(wrong))


def _items_difference(got: Any, wanted: tuple | list, atol: Any) -> Difference | None:
    if not isinstance(got, tuple | list) or len(got) != len(wanted):
        return Difference(FaultKind.RETURNED, f"is {_type_in_words(got)}; it must be {_type_in_words(wanted)}")
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        found = difference(a, b, limit_of_item(atol, i))
        if found:
            names = _names(wanted)
            if found.kind is FaultKind.VALUES and not found.items and isinstance(wanted, tuple):
                found = replace(found, detail=found.detail + _items_right(got, wanted, atol))
            return replace(found, items=(names[i] if names else i, *found.items))
    return None


def limit_of_item(atol: Any, item: int) -> Any:
    """The bound of one item of a list or tuple, which may be the same for all."""
    return atol[item] if isinstance(atol, tuple | list) else atol


def _names(wanted: Any) -> Sequence[str]:
    """What the items of a named tuple are called: by its `words`, if it has some, else by its fields."""
    names: Sequence[str] = getattr(wanted, "words", getattr(wanted, "_fields", ()))
    return names


def _items_right(got: Sequence, wanted: tuple, atol: Any) -> str:
    """Which items of a tuple are right: ", but items 0 and 1 are right"."""
    names = _names(wanted) or [str(i) for i in range(len(wanted))]
    right = [
        name
        for i, (name, a, b) in enumerate(zip(names, got, wanted, strict=True))
        if b is not None and is_compared(b) and difference(a, b, limit_of_item(atol, i)) is None
    ]
    if not right:
        return ""
    what = "" if hasattr(wanted, "_fields") else "item"
    if len(right) == 1:
        return f", but {what} {right[0]} is right".replace("  ", " ")
    return f", but {what + 's' if what else ''} {', '.join(right[:-1])} and {right[-1]} are right".replace("  ", " ")


def is_compared(wanted: Any) -> bool:
    """Whether all of a returned value is compared. An item of a tuple that may be anything is not, so it must not be called right."""
    return not isinstance(wanted, tuple | list) or all(w is not None and is_compared(w) for w in wanted)


def _near(got: float, wanted: float, atol: Any) -> bool:
    """Whether a number is within a tolerance; an int may be too large for a float, so its size is looked at first."""
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
            equal = equal | ((got.to(wide) - wanted.to(wide)).abs() <= _limit(atol, wanted))
    return equal


def _limit(atol: Any, wanted: torch.Tensor) -> Any:
    """The bound of each element; the largest one if the bounds are those of a tensor with another number of elements."""
    if not isinstance(atol, torch.Tensor):
        return atol
    if atol.numel() == wanted.numel():
        return atol.reshape(wanted.shape)
    return atol.max() if atol.numel() else 0.0


def _in_given_memory(view: View, base: torch.Tensor, now: torch.Tensor) -> bool:
    """Whether the memory that the caller gave holds the tensor's values."""
    usable = base.shape == view.base.shape and base.dtype == view.base.dtype and base.is_contiguous()
    return usable and not base.storage_offset() and same(view.tensor(base), now)


def _guards_unchanged(view: View, base: torch.Tensor) -> bool:
    """Whether the elements around the window still hold GUARD."""
    if not isinstance(base, torch.Tensor) or base.shape != view.base.shape or base.dtype != view.base.dtype:
        return True  # the rank reports no usable memory; then only its values are compared
    outside = torch.ones(view.base.shape, dtype=torch.bool)
    torch.as_strided(outside, view.size, view.stride, view.offset).fill_(False)
    return bool((base == torch.full_like(base, GUARD))[outside].all())


def _type_in_words(value: Any) -> str:
    match value:
        case None:
            return "None"
        case torch.Tensor():
            return f"a tensor of shape {tuple(value.shape)}"
        case tuple() | list():
            return f"a {'list' if isinstance(value, list) else 'tuple'} of {len(value)}"
        case Text():
            return "of type str"
        case str():  # the type's name, which the rank chose: it must not carry anything else
            return f"of type {value}" if value in _KNOWN_TYPES else "of a type of its own"
    return f"a {type(value).__name__}"

"""Why a result is wrong, whatever the exercise: read from the result of one rank, what is right there, and what the messages brought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from allranks.base.errors import listed
from allranks.judge import compare, evidence
from allranks.judge.cases import Args, Expected, Upstream, View, plain, views
from allranks.judge.causes import Cause, Code, cause
from allranks.judge.exercise import FaultKind, Result, ResultFault, Run
from allranks.ranks.wire import LogEntry
from allranks.ranks.wire.buffers import holds_poison

NARROWER = (Code.NARROWER_ON_WIRE, Code.LESS_PRECISE)
_NARROW = 0.05  # the error of a few additions in bfloat16, relative to the largest value


def common_mistake(run: Run, faults: Sequence[ResultFault]) -> Cause | None:
    first = faults[0]
    got, expected = run.results[first.call][first.rank], run.expected[first.call][first.rank]
    given = run.args[first.call][first.rank]
    if got is None:
        return None
    match first.kind:
        case FaultKind.RETURNED if got.returned is None:
            return cause(Code.NOTHING_RETURNED)
        case FaultKind.RETURNED if names := _without_gradient(given, got):
            return cause(Code.NO_GRADIENT, names=listed(names))
        case FaultKind.SHAPE if all(only_the_shape(run, fault) for fault in faults):
            return cause(Code.OTHER_SHAPE)
        case FaultKind.DTYPE:
            return _dtype_mistake(first, [view for _, view in views(given)], _outputs(run, first))
        case FaultKind.INPUT_CHANGED:
            return cause(Code.INPUT_CHANGED)
        case FaultKind.LIST_CHANGED:
            return cause(Code.LIST_CHANGED)
        case FaultKind.OTHER_MEMORY:
            return cause(Code.OTHER_MEMORY)
        case FaultKind.CHANGED_LATER:
            return cause(Code.CHANGED_LATER)
        case FaultKind.VALUES:
            outputs = [
                (path, view, now)
                for (path, view), (now, _) in zip(views(given), got.tensors, strict=True)
                if path in expected.changed
            ]
            if not any(_differs(now, expected, path) for path, _, now in outputs):
                outputs = []  # what it wrote is right, and what it returned is wrong
            not_written = _result_not_written(run, faults, got, expected, outputs) if outputs else None
            return not_written or _value_mistake(run, got, expected, outputs) or _never_received(run, faults)
    return None


def remainders_left_out(run: Run, faults: Sequence[ResultFault]) -> list[Cause]:
    """The counts that the size is taken to be a multiple of: p, the ranks of a node, the number of segments, or 2."""
    segments, in_node = run.setup.option("segments"), run.setup.option("ranks_per_node")
    counts = {"segments": segments} if segments else {"p": run.ranks} | ({"ranks_per_node": in_node} if in_node else {})
    named = {"p": "the number of ranks", "segments": "the number of segments"}
    if run.ranks < 2 or (run.ranks > 2 and len(faults) == 1):
        return []
    found = [
        cause(Code.REST_LEFT_OUT, what=what, named=named.get(what, what))
        for what, count in counts.items()
        if all(_left_out(run, fault, count) for fault in faults)
    ]
    if 2 not in counts.values() and all(_left_out(run, fault, 2) for fault in faults):
        found.append(cause(Code.LAST_LEFT_OUT))
    return found


def _left_out(run: Run, fault: ResultFault, count: int) -> bool:
    """Whether only the elements beyond the last whole multiple of `count` are wrong, and they are as they were."""
    got, wanted = run.results[fault.call][fault.rank], run.expected[fault.call][fault.rank]
    if fault.kind is not FaultKind.VALUES or got is None or (0,) not in wanted.changed or not got.tensors:
        return False
    if compare.difference(got.returned, wanted.returns, wanted.atol) is not None:
        return False  # what it returned is wrong, and no element
    if not run.collectives and not run.outcome.accesses and not evidence.received_by(run, fault.rank):
        return False
    now, before = got.tensors[0][0], plain(run.args[fault.call][fault.rank][0])
    if now is None or now.shape != before.shape or now.dtype != before.dtype:
        return False
    found, right, old = now.reshape(-1), wanted.changed[0,].reshape(-1), before.reshape(-1)
    whole = len(found) // count * count
    if whole in (0, len(found)) or torch.equal(found[whole:], right[whole:]):
        return False
    return torch.equal(found[:whole], right[:whole]) and torch.equal(found[whole:], old[whole:])


def only_the_shape(run: Run, fault: ResultFault) -> bool:
    """Whether the rank returned the right elements in their order, in another shape."""
    got, expected = run.results[fault.call][fault.rank], run.expected[fault.call][fault.rank]
    if fault.kind is not FaultKind.SHAPE or got is None or not isinstance(got.returned, torch.Tensor):
        return False
    right = expected.returns
    if not isinstance(right, torch.Tensor) or got.returned.numel() != right.numel():
        return False
    return compare.difference(got.returned.reshape(right.shape), right, expected.atol) is None


def _without_gradient(given: Args, got: Result) -> list[str]:
    """The arguments that have no gradient, where what was returned has been differentiated."""
    if not any(isinstance(arg, Upstream) for arg in given):
        return []
    states = zip(views(given), got.tensors, strict=True)
    return [given[path[0]].name for (path, _), (now, _) in states if path[-1] == "grad" and now is None]


def _differs(now: torch.Tensor | None, expected: Expected, path: tuple) -> bool:
    return compare.difference(now, expected.changed[path], expected.atol) is not None


def _outputs(run: Run, fault: ResultFault) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors that the rank ended with, each with the right one."""
    got, expected = run.results[fault.call][fault.rank], run.expected[fault.call][fault.rank]
    if got is None:
        return []
    given = views(run.args[fault.call][fault.rank])
    found = [(now, expected.changed.get(path)) for (path, _), (now, _) in zip(given, got.tensors, strict=True)]
    many = isinstance(expected.returns, tuple | list) and isinstance(got.returned, tuple | list)
    found += zip(got.returned, expected.returns, strict=False) if many else [(got.returned, expected.returns)]
    return [(a, b) for a, b in found if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)]


def _part_of_complex(found: torch.Tensor, right: torch.Tensor) -> Cause | None:
    """What real numbers are of the complex ones that they stand for."""
    if found.shape == (*right.shape, 2):
        return cause(Code.PAIRS_OF_REALS)
    if found.shape != right.shape or not found.numel():
        return None
    for part, code in ((right.real, Code.REAL_PART), (right.abs(), Code.ABSOLUTE)):
        if torch.allclose(found.double(), part.double(), rtol=1e-4, atol=1e-5):
            return cause(code)
    return None


def _dtype_mistake(
    fault: ResultFault, inputs: Sequence[View], outputs: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> Cause | None:
    found, expected = fault.dtype_found, fault.dtype_expected
    if expected is torch.int64 and not any(view.base.dtype == torch.int64 for view in inputs):
        return None  # counts and indices have a dtype of their own
    if expected is not None and found is not None and expected.is_complex and found.is_floating_point:
        pair = next(((a, b) for a, b in outputs if b.is_complex() and a.is_floating_point()), None)
        return (_part_of_complex(*pair) if pair else None) or cause(Code.OTHER_DTYPE)
    return cause(Code.OTHER_DTYPE)


def _result_not_written(
    run: Run, faults: Sequence[ResultFault], got: Result, expected: Expected, outputs: list
) -> Cause | None:
    """For a function that works in place: the result is nowhere in the tensor, or on one rank only."""
    call, path = faults[0].call, outputs[0][0]
    if not all(now is not None and compare.same(now, view.tensor()) for _, view, now in outputs):
        return None
    silent = [] if run.collectives else [f.rank for f in faults if not evidence.received_by(run, f.rank)]
    if silent and run.sends:
        return cause(Code.RECEIVED_NOTHING, ranks=tuple(silent))
    if isinstance(got.returned, torch.Tensor):
        if compare.difference(got.returned, expected.changed[path], expected.atol) is None:
            return cause(Code.RETURNED_NOT_COPIED)
    if isinstance(expected.returns, torch.Tensor | tuple | list | int | float):
        return None  # it has to return something too, and that may be what is wrong
    if len(faults) == run.ranks and all(left_unchanged(run, fault) for fault in faults):
        moved = [e.numel for e in (*run.sends, *run.collectives)] + [op.numel for op in run.outcome.accesses]
        if moved and not any(moved) and run.setup.size:
            return cause(Code.EMPTY_MESSAGES)
        if moved:
            return cause(Code.NOTHING_CHANGED)
        return cause(Code.NO_MESSAGE) if run.exercise.allow else cause(Code.NOTHING_PUT)
    if run.ranks > 2 and len(faults) == run.ranks - 1:
        right = next(r for r in range(run.ranks) if r not in {f.rank for f in faults})
        if (run.sends or run.collectives) and _result_equals_input(run, call, right):
            return cause(Code.NOTHING_CHANGED)
        return cause(Code.ONLY_ONE_HAS_IT, ranks=(right,))
    return None


def _value_mistake(run: Run, got: Result, expected: Expected, outputs: list) -> Cause | None:
    pairs = [(now, expected.changed[path]) for path, _, now in outputs if isinstance(now, torch.Tensor)]
    if isinstance(expected.returns, torch.Tensor) and isinstance(got.returned, torch.Tensor):
        pairs.append((got.returned, expected.returns))
    # of several outputs the first may be right, up to rounding
    pairs = [pair for pair in pairs if compare.difference(*pair, expected.atol) is not None]
    items = got.returned if isinstance(got.returned, list | tuple) else []
    if any(isinstance(one, torch.Tensor) and holds_poison(one) for one in [*(one for one, _ in pairs), *items]):
        return cause(Code.READ_EARLY)
    if not pairs:
        return None
    found, right = pairs[0]
    if (strange := _not_finite(found, right, expected.atol)) is not None:
        return strange
    if found.numel() > 1 and _is_cut(found, right):
        return cause(Code.WHOLE_NUMBERS)
    narrow = evidence.narrower_dtype(run, right.dtype)
    if narrow is not None and _near_enough(found, right, _error_of(narrow)):
        return cause(Code.NARROWER_ON_WIRE, dtype=narrow.dtype, at=run.at(narrow.line))
    if _right_to_half_the_bits(found, right):
        single = found.dtype in (torch.float32, torch.complex64)
        more = ", or lost digits in a difference of large numbers" if single else ""
        return cause(Code.LESS_PRECISE, narrower="bfloat16" if single else "float32", more=more)
    return None


def _is_cut(found: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether whole numbers stand where the right ones have fractions; a right one that was rounded may be a whole one itself."""
    if not found.is_floating_point() or found.shape != right.shape or torch.equal(right, right.floor()):
        return False
    off = right.double() - found.double()
    near = torch.finfo(found.dtype).eps * right.double().abs()
    # zeros alone may come of anything
    return bool(found.any()) and torch.equal(found, found.floor()) and bool(((off >= -near) & (off < 1)).all())


def _not_finite(found: torch.Tensor, right: torch.Tensor, atol: Any) -> Cause | None:
    """Whether all that is wrong is NaN, or infinite, where the right numbers are finite."""
    differs = compare.difference(found, right, atol)
    if differs is None or differs.kind is not FaultKind.VALUES or not found.is_floating_point():
        return None
    wrong, wanted = (t.reshape(-1)[torch.tensor(differs.wrong)] for t in (found, right))
    if not bool(wanted.isfinite().all()):
        return None
    if bool(wrong.isnan().all()):
        return cause(Code.NOT_A_NUMBER)
    return cause(Code.INFINITE) if bool(wrong.isinf().all()) else None


def _never_received(run: Run, faults: Sequence[ResultFault]) -> Cause | None:
    """Whether all that is wrong are zeros in place of other ranks' elements, and no message brought those."""
    zeros = [_zero_for(run, fault) for fault in faults]
    if any(lacked is None for lacked in zeros):
        return None
    if all(_had_it(run, fault) for fault in faults):
        return cause(Code.OWN_ZERO)
    for fault, lacked in zip(faults, zeros, strict=True):
        brought = evidence.brought(run, fault.call, fault.rank)
        if lacked is None or brought is None or _had_it(run, fault):
            return None
        others = [a for rank, a in enumerate(run.args[fault.call]) if rank != fault.rank]
        values = [plain(view).reshape(-1) for args in others for _, view in views(args)]
        given = [v.double() for v in values if not v.is_complex()]
        if not given or not bool(torch.isin(lacked, torch.cat(given)).all()) or bool(torch.isin(lacked, brought).any()):
            return None
    return cause(Code.SOME_ZERO)


def _had_it(run: Run, fault: ResultFault) -> bool:
    """Whether the tensors that this rank must end with are those that it was given."""
    expected = run.expected[fault.call][fault.rank]
    return bool(expected.changed) and _result_equals_input(run, fault.call, fault.rank)


def _zero_for(run: Run, fault: ResultFault) -> torch.Tensor | None:
    """What the rank's wrong elements must hold, if all of them are zero; None if one is wrong in another way."""
    got, expected = run.results[fault.call][fault.rank], run.expected[fault.call][fault.rank]
    if got is None or fault.kind is not FaultKind.VALUES or isinstance(expected.returns, tuple | list):
        return None
    pairs = [] if expected.returns is None else [(got.returned, expected.returns)]
    for (path, _), (now, _) in zip(views(run.args[fault.call][fault.rank]), got.tensors, strict=True):
        if path in expected.changed:
            pairs.append((now, expected.changed[path]))
    lacked = []
    for found, right in pairs:
        differs = compare.difference(found, right, expected.atol)
        if differs is None:
            continue
        if differs.kind is not FaultKind.VALUES or not isinstance(found, torch.Tensor) or found.is_complex():
            return None
        wrong = torch.tensor(differs.wrong)
        if found.numel() < 2 or bool(found.reshape(-1)[wrong].any()):
            return None
        lacked.append(right.reshape(-1)[wrong].double())
    return torch.cat(lacked) if lacked else None


def _result_equals_input(run: Run, call: int, rank: int) -> bool:
    """Whether the expected result equals the input."""
    changed = run.expected[call][rank].changed
    return all(
        compare.same(changed[path], view.tensor()) for path, view in views(run.args[call][rank]) if path in changed
    )


def left_unchanged(run: Run, fault: ResultFault) -> bool:
    """Whether the tensors that this rank must change are as they were."""
    got, given = run.results[fault.call][fault.rank], run.args[fault.call][fault.rank]
    changed = run.expected[fault.call][fault.rank].changed
    if got is None:
        return False
    return all(
        now is not None and compare.same(now, view.tensor())
        for (path, view), (now, _) in zip(views(given), got.tensors, strict=True)
        if path in changed
    )


def _right_to_half_the_bits(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether the error is as small as rounding to half the bits would make it."""
    eps = {
        torch.float64: 1e-6,
        torch.complex128: 1e-6,
        torch.int64: 1e-6,
        torch.float32: 5e-3,
        torch.complex64: 5e-3,
    }.get(got.dtype)
    if eps is None or got.numel() < 2 or (got.dtype == torch.int64 and int(wanted.abs().max()) < 1 << 24):
        return False
    return _near_enough(got, wanted, eps) and _near_each(got, wanted, eps)


def _near_each(got: torch.Tensor, wanted: torch.Tensor, eps: float) -> bool:
    """Whether most of the wrong elements are near their own right value: a term that is missing is as large for small ones."""
    found, right = (t.to(torch.complex128).reshape(-1) for t in (got, wanted))
    wrong = found != right
    near = (found - right).abs()[wrong] <= 2 * eps * right.abs()[wrong]
    return 2 * int(near.sum()) > len(near)


def _error_of(sent: LogEntry) -> float:
    """How far a result may be off that some additions in the message's dtype have rounded, relative to the largest value."""
    kind = getattr(torch, str(sent.dtype))
    return min(_NARROW, 1000 * torch.finfo(kind).eps) if kind.is_floating_point or kind.is_complex else _NARROW


def _near_enough(got: torch.Tensor, wanted: torch.Tensor, eps: float) -> bool:
    """Whether no error is larger than `eps` times the largest value."""
    if not got.numel() or got.shape != wanted.shape:
        return False
    error = (got.to(torch.complex128) - wanted.to(torch.complex128)).abs().max()
    return bool(error <= eps * wanted.to(torch.complex128).abs().max())

"""The cause of a failed case in the course's words: which rank, which step, which line, and what to do instead."""

from __future__ import annotations

import builtins
import importlib.util
import re
from collections.abc import Sequence
from typing import Any

import torch

from allranks.checking import compare
from allranks.checking.cases import Setup, plain, views
from allranks.checking.exercise import Fault, Run
from allranks.wire import FailureKind

ORDER_HELP = (
    "A send may wait until its receiver is there: start one of the two with isend or irecv, use batch_isend_irecv, "
    "or let every other rank receive first."
)


_INTO_THE_TENSOR = "nothing changed: the function must write its result into the tensor (copy_), not into a new one"


def size_order(setup: Setup) -> tuple:
    """Smaller and plainer setups first."""
    plainness = (
        setup.dtype != "float32",
        setup.layout != "contiguous",
        setup.times > 1,
        setup.outer_world,
        setup.delivery != "rendezvous",
    )
    return (not setup.weighty, sum(plainness), setup.ranks, setup.size, setup.root or 0)


def of_failure(run: Run, withhold: bool = False) -> str:
    """Why the run itself failed. `withhold` leaves out the text of the student's own exceptions."""
    failure = run.failure
    kind = failure.kind
    if kind is FailureKind.DEADLOCK:
        return _deadlock(run)
    if kind is FailureKind.FORBIDDEN_OP:
        op = failure.op
        what = f"{op} is not allowed here" if op else failure.message.rstrip(".")
        instead = f" {run.exercise.instead}" if run.exercise.instead else ""
        at = run.at(failure.line) if op else ""
        return f"rank {failure.rank} calls an operation that this exercise forbids: {what}{at}.{instead}"
    if failure.error == "NotImplementedError":
        return f"{run.exercise.name} is not written yet: it raises NotImplementedError{run.at(failure.line)}."
    if kind in (FailureKind.EXCEPTION, FailureKind.IMPORT) and withhold:
        # a name that the student made up could carry inputs as well as a text could
        name = failure.error if hasattr(builtins, failure.error or "") else "an exception"
        return f"rank {failure.rank} raised {name}{run.at(failure.line)}.{_missing_tool(failure)}"
    if kind is FailureKind.EXITED and withhold:  # sys.exit takes any text
        return f"rank {failure.rank} ended its process{run.at(failure.line)}. Return from the function instead."
    words = _placed(failure.message, run, failure.line) + _missing_tool(failure)
    if re.search(r"(to|from) rank -?\d+, but there are only ranks", words):
        words += " Count round the ring modulo the number of ranks, or leave that partner out."
    if failure.error == "RuntimeError" and re.search(r"modified inplace|leaf Variable that requires grad", words):
        words += " Parameters require grad: take parameter.detach(), or work under torch.no_grad()."
    return words


def _missing_tool(failure: Any) -> str:
    """A hint for who uses the course's own tools, which are left out of what ranks run."""
    name = re.search(r"name '(\w+)' is not defined", failure.message) if failure.error == "NameError" else None
    if name is None or importlib.util.find_spec(f"allranks.{name[1]}") is None:
        return ""
    return " The course's own tools are not there when it is marked: write it yourself."


def _placed(message: str, run: Run, line: int | None) -> str:
    """The message with the place of the line as the student knows it, where it does not name the line already."""
    if line is None:
        return message
    where = run.where(line)
    if where in message:
        return message
    return message.replace(f"line {line}", where) if f"line {line}" in message else f"{message} ({where})"


def _deadlock(run: Run) -> str:
    failure = run.failure
    cycle = tuple(failure.cycle or ())
    waits = [w for w in failure.waits if w.rank in cycle] if cycle else list(failure.waits)
    if not waits or not cycle:
        return _placed(failure.message, run, failure.line)
    ring = " → ".join(str(r) for r in (*cycle, cycle[0]))
    first = next((w for w in waits if w.rank == cycle[0]), waits[0])
    offered = [e for e in run.sends if e.rank in cycle and e.match is None]
    posted = [e for e in run.outcome.log if e.kind == "recv" and e.match is None]
    # a batch waits for its sends and its receives alike
    if offered and all("send" in w.op for w in waits) and any(e.rank in cycle for e in posted):
        return (
            f"deadlock: ranks {ring} each wait for the next; rank {first.rank} waits for rank {first.peer} in "
            f"{first.op}{run.at(first.line)}. {_do_not_meet(run, offered, posted)}"
        )
    if offered and all("send" in w.op for w in waits):
        many = "every rank" if len(cycle) == run.ranks else "each of these ranks"
        return (
            f"deadlock: {many} sends before it receives, so they wait for each other in a cycle, {ring}; "
            f"rank {first.rank} waits in {first.op} to rank {first.peer}{run.at(first.line)}. {ORDER_HELP}"
        )
    if offered and all("recv" in w.op for w in waits):
        astray = next((e for e in offered if e.peer in cycle), offered[0])
        elsewhere = (
            f"They have sent, but not that way: rank {astray.rank} sends to rank {astray.peer}{run.at(astray.line)}"
            f"{', which receives from another' if astray.peer in cycle else ''}."
        )
        return (
            f"deadlock: ranks {ring} each wait to receive from the next; rank {first.rank} waits in {first.op} from rank "
            f"{first.peer}{run.at(first.line)}. {_other_tag(run) or elsewhere}"
        )
    if all("recv" in w.op for w in waits):
        sent = any(e.rank in cycle for e in run.sends)
        what = "what they sent has all been received" if sent else "none of them has sent"
        hint = (
            "One receive is too many, or a send is missing or comes too late."
            if sent
            else "Somebody has to send first: start the send with isend before you receive."
        )
        return (
            f"deadlock: ranks {ring} each wait to receive from the next, and {what}; "
            f"rank {first.rank} waits in {first.op} from rank {first.peer}{run.at(first.line)}. {hint}"
        )
    return _placed(failure.message, run, failure.line)


def _other_tag(run: Run) -> str | None:
    """The wire's sentence on two ranks that would meet but for their tags or groups."""
    found = re.search(r"Rank \d+ sends (with tag|in another group) .*", run.failure.message)
    return found.group() if found else None


def _do_not_meet(run: Run, offered: Sequence[Any], posted: Sequence[Any]) -> str:
    """Which send and which receive, both without a partner, go past each other."""
    tag = _other_tag(run)
    if tag:
        return tag
    pairs = ((s, r) for s in offered for r in posted if r.rank == s.peer and r.peer not in (s.rank, None))
    send, recv = next(pairs, (None, None))
    if send is None:
        return "Their sends and their receives do not meet."
    return (
        f"Rank {send.rank} sends to rank {send.peer}{run.at(send.line)}, but rank {recv.rank} has posted a receive "
        f"from rank {recv.peer}{run.at(recv.line)}."
    )


def known(run: Run, faults: Sequence[Fault]) -> list[str]:
    """Every typical mistake that would have given just these results, the exercise's own first."""
    found = []
    if all(f.kind in ("values", "shape", "dtype", "returned") for f in faults):
        call = faults[0].call
        for mistake in run.exercise.mistakes:
            try:
                would = mistake.oracle(run.setup, run.args[call])
            except (RuntimeError, IndexError, ValueError):  # a mistake that can't be made with these shapes
                continue
            if any(f.kind != "values" and _leaves_open(would[f.rank]) for f in faults):
                continue
            fits = all(_agrees(run, call, f.rank, would[f.rank]) for f in faults)
            if fits and mistake.cause not in found:  # made in two ways it has one vote all the same
                found.append(mistake.cause)
    tail = _tail(run, faults)
    if tail:
        found.append(tail)
    general = _general(run, faults)
    if not found and general is None and run.ranks > 1 and run.exercise.allow and not run.sends and not run.collectives:
        general = "no rank sent a message"
    return [*found, general] if general else found


def of_faults(faults: Sequence[Fault], cause: str | None) -> str:
    """The cause, if one is known, and what differs on the first rank that is wrong."""
    first = faults[0]
    again = " in the second call, though the first was right" if first.call else ""
    words = first.words[0].upper() + first.words[1:]
    return f"{cause}: {first.words}{again}." if cause else f"{words}{again}."


def _agrees(run: Run, call: int, rank: int, would: Any) -> bool:
    got, given = run.results[call][rank], run.args[call][rank]
    if got is None or would is None:
        return False
    if would.returns is not None and compare.value_fault(got.returned, would.returns, would.atol, ""):
        return False
    for (path, _), (now, _) in zip(views(given), got.tensors, strict=True):
        if path in would.changed and (now is None or compare.value_fault(now, would.changed[path], would.atol, "")):
            return False
    return would.returns is not None or bool(would.changed)


def _leaves_open(would: Any) -> bool:
    """Whether some item may be anything, which tells nothing of a wrong dtype or shape."""
    return would is not None and isinstance(would.returns, tuple) and any(item is None for item in would.returns)


def _general(run: Run, faults: Sequence[Fault]) -> str | None:
    """Mistakes that look the same in every exercise."""
    first = faults[0]
    call, rank = first.call, first.rank
    got, wanted, given = run.results[call][rank], run.expected[call][rank], run.args[call][rank]
    if got is None:
        return None
    if first.kind == "returned" and got.returned is None:
        return "nothing was returned"
    if first.kind == "dtype":
        if "must be int64" in first.words and not any(v.base.dtype == torch.int64 for _, v in views(given)):
            return None  # counts and places have a dtype of their own
        if "must be complex" in first.words and "has dtype float" in first.words:
            return (
                "pairs of reals came back: take the complex tensor itself, not what a future holds, or view_as_complex"
            )
        return "the dtype was promoted or narrowed: results keep the dtype of the input"
    if first.kind == "clobbered":
        return "an input was clobbered: work on a copy (tensor.clone())"
    if first.kind == "elsewhere":
        return "this function works in place: write into the tensor (copy_), since .data and set_ make it another one"
    if first.kind != "values":
        return None
    outputs = [
        (path, view, now)
        for (path, view), (now, _) in zip(views(given), got.tensors, strict=True)
        if path in wanted.changed
    ]
    if outputs:
        path = outputs[0][0]
        untouched = all(n is not None and compare.same(n, v.tensor()) for _, v, n in outputs)
        returned = isinstance(got.returned, torch.Tensor)
        if untouched and returned and compare.value_fault(got.returned, wanted.changed[path], wanted.atol, "") is None:
            return "the right result was returned, but this function works in place: copy it into the tensor (copy_)"
        if untouched and len(faults) == run.ranks and all(_untouched(run, fault) for fault in faults):
            return _INTO_THE_TENSOR
        if untouched and run.ranks > 2 and len(faults) == run.ranks - 1:
            there = next(r for r in range(run.ranks) if r not in {f.rank for f in faults})
            if (run.sends or run.collectives) and _gave_the_result(run, call, there):
                return _INTO_THE_TENSOR
            return f"only rank {there} has the result: every rank must end with it"
    pair = _value_pair(got, wanted, outputs)
    if pair is not None:
        a, b = pair
        if _narrow(a, b):
            single = a.dtype in (torch.float32, torch.complex64)
            one = "bfloat16, or lost digits in a difference of large numbers" if single else "float32"
            return f"right only to the precision of a narrower dtype: on the way the values passed through one, such as {one}"
        zeros = (a == 0) & (b != 0)
        if a.numel() > 1 and bool(zeros.any()) and bool(((a == b) | zeros).all()):
            return "some elements are still zero: that part was never received, or not stored"
    return None


def _gave_the_result(run: Run, call: int, rank: int) -> bool:
    """Whether what this rank must end with is what it came with."""
    changed = run.expected[call][rank].changed
    return all(
        compare.same(changed[path], view.tensor()) for path, view in views(run.args[call][rank]) if path in changed
    )


def _untouched(run: Run, fault: Fault) -> bool:
    """Whether the tensors that this rank should have changed are as they were."""
    got, given = run.results[fault.call][fault.rank], run.args[fault.call][fault.rank]
    changed = run.expected[fault.call][fault.rank].changed
    if got is None:
        return False
    return all(
        now is not None and compare.same(now, view.tensor())
        for (path, view), (now, _) in zip(views(given), got.tensors, strict=True)
        if path in changed
    )


def _value_pair(got: Any, wanted: Any, outputs: list) -> tuple[torch.Tensor, torch.Tensor] | None:
    if outputs:
        return outputs[0][2], wanted.changed[outputs[0][0]]
    if isinstance(wanted.returns, torch.Tensor) and isinstance(got.returned, torch.Tensor):
        return got.returned, wanted.returns
    return None


def _narrow(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether the error is as small as rounding to half the bits would make it."""
    eps = {
        torch.float64: 1e-6,
        torch.complex128: 1e-6,
        torch.int64: 1e-6,
        torch.float32: 5e-3,
        torch.complex64: 5e-3,
    }.get(got.dtype)
    if eps is None or not got.numel() or (got.dtype == torch.int64 and int(wanted.abs().max()) < 1 << 24):
        return False
    error = (got.to(torch.complex128) - wanted.to(torch.complex128)).abs().max()
    return bool(error <= eps * wanted.to(torch.complex128).abs().max())


def _tail(run: Run, faults: Sequence[Fault]) -> str | None:
    """Only the elements beyond the last whole multiple of p, or of the number of segments, are as they were."""
    segments = run.setup.option("segments")
    count, many = (segments, "segments") if segments else (run.ranks, "ranks")
    for fault in faults:
        got, wanted = run.results[fault.call][fault.rank], run.expected[fault.call][fault.rank]
        if fault.kind != "values" or got is None or (0,) not in wanted.changed or not got.tensors:
            return None
        now, before = got.tensors[0][0], plain(run.args[fault.call][fault.rank][0])
        if now is None or now.shape != before.shape or now.dtype != before.dtype:
            return None
        a, b, k = now.reshape(-1), wanted.changed[0,].reshape(-1), before.reshape(-1)
        whole = len(a) // count * count
        if whole in (0, len(a)) or not torch.equal(a[:whole], b[:whole]) or not torch.equal(a[whole:], k[whole:]):
            return None
    return (
        f"the elements beyond the last whole multiple of {'p' if many == 'ranks' else many} were left out: "
        f"the number of {many} need not divide the size"
    )


def pattern(found: Sequence[tuple[Setup, bool]]) -> str:
    """What all failing cases have in common and no passing one has, as the start of a sentence, or ""."""
    counted = [(s, ok) for s, ok in found if s.weighty]
    right = [s for s, ok in counted if ok]
    wrong = [s for s, ok in counted if not ok]
    if len(right) < 2 or not wrong:
        return ""
    for sentence, holds in _PATTERNS:
        if all(not holds(s) for s in right) and all(holds(s) for s in wrong):
            return f"{sentence} "
    if {s.ranks for s in right} == {4} and any(s.ranks != 4 for s in wrong):
        return "Only right for p = 4: use the world size, not a number. "
    return ""


def _power(n: int) -> bool:
    return n & (n - 1) == 0


_PATTERNS = (
    (
        "Only right with as many nodes as ranks in each.",
        lambda s: s.option("ranks_per_node", 0) ** 2 not in (0, s.ranks),
    ),
    ("Only right where the number of ranks divides the size.", lambda s: not s.divides),
    ("Only right for p = 4: use the world size, not a number.", lambda s: s.ranks != 4),
    ("Only right for two ranks.", lambda s: s.ranks > 2),
    ("Only right where the number of ranks is a power of two.", lambda s: not _power(s.ranks)),
    ("Only right where the number of ranks is even.", lambda s: s.ranks % 2 == 1),
    ("Only wrong with a transposed, so non-contiguous, tensor.", lambda s: s.layout == "transposed"),
    ("Only wrong with non-contiguous tensors.", lambda s: s.layout in ("strided", "transposed")),
    ("Only wrong with tensors that are windows on larger ones.", lambda s: s.layout != "contiguous"),
    ("Only wrong the second time in a row: something is left over from the first call.", lambda s: s.times > 1),
    ("Only wrong as part of a larger job: ask dist.get_rank(), not the environment.", lambda s: s.outer_world),
    ("Only right in float32.", lambda s: s.dtype != "float32"),
    ("Only right with root 0.", lambda s: bool(s.root)),
    ("Only wrong when messages are delayed.", lambda s: s.delivery == "shuffled"),
)

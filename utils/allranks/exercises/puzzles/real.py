"""The same code on real processes: forked ranks, real tensors, the wire's torch.distributed."""

from __future__ import annotations

from typing import Any

from allranks.exercises.puzzles.judging import cases, inputs
from allranks.exercises.puzzles.table import Puzzle
from allranks.exercises.puzzles.vector import NAMES
from allranks.exercises.puzzles.verdict import CLOSE

# stands behind the reader's code, so that its lines keep their numbers: what it calls by a puzzle's names is torch's
_BEHIND = """

import torch as _torch
import torch.distributed as _dist


def _on_real_ranks(x, ranks_per_node):
    given = {name: getattr(_torch, name) for name in {names}}
    given |= {name: getattr(_dist, name) for name in ("send", "recv", "isend", "irecv", "P2POp")}
    given |= dict(batch=_batch, batch_isend_irecv=_batch, wait=_wait)
    given |= dict(rank=_dist.get_rank(), world_size=_dist.get_world_size(), Vector=_torch.Tensor, Tensor=_torch.Tensor)
    of_torch = {name: getattr(_torch.Tensor, name) for name in ("tensor_split", "chunk", "split")}
    for name, method in of_torch.items():  # a puzzle's give lists, so that c[i] += new is one line
        as_list = lambda *args, method=method: list(method(*args))
        setattr(_torch.Tensor, name, as_list)
        given[name] = as_list
    for name, value in (given | ({"node_size": ranks_per_node} if ranks_per_node else {})).items():
        globals().setdefault(name, value)
    try:
        result = {function}(x)
    finally:
        for name, method in of_torch.items():
            setattr(_torch.Tensor, name, method)
    return x if result is None else result


def _batch(*operations):
    operations = operations[0] if len(operations) == 1 and isinstance(operations[0], (list, tuple)) else operations
    begun = [one for one in operations if isinstance(one, _dist.Work)]
    new = [one for one in operations if not isinstance(one, _dist.Work)]
    made = [one if isinstance(one, _dist.P2POp) else _dist.P2POp(*one) for one in new]
    return begun + (_dist.batch_isend_irecv(made) if made else [])


def _wait(*requests):
    for one in requests:
        _wait(*one) if isinstance(one, (list, tuple)) else one.wait()

"""


def run_real(puzzle: Puzzle, code: str) -> tuple[bool, str]:
    """Whether the code gives the right values on real processes, and a sentence; needs torch."""
    import torch

    from allranks.ranks.wire import Program, run
    from allranks.ranks.wire.messages import OpKind

    case = next(cases(puzzle))
    p, x = case.ranks, inputs(puzzle, case)
    behind = _BEHIND.replace("{names}", repr(sorted(NAMES))).replace("{function}", puzzle.function)
    tensors = [torch.tensor(row) for row in x]
    per_rank = [(one, puzzle.node_size(p)) for one in tensors]
    outcome = run(Program(code + behind, "_on_real_ranks"), ranks=p, per_rank=per_rank)
    if outcome.failure is not None:
        return False, f"On {p} real processes: {outcome.failure.message}"
    for rank, (result, wanted) in enumerate(zip(outcome.results, puzzle.expected(x), strict=True)):
        if not _is_close(result, wanted):
            return False, f"On {p} real processes rank {rank} ends with other values than the right ones."
    sent = sum(entry.kind is OpKind.SEND for entry in outcome.log)
    return (
        True,
        f"The same on {p} real processes, with torch {torch.__version__}: {sent} messages, and the right values.",
    )


def _is_close(result: Any, wanted: list[float]) -> bool:
    import torch

    try:
        found = torch.as_tensor(result, dtype=torch.float32).reshape(-1)
    except (TypeError, ValueError, RuntimeError):
        return False
    return len(found) == len(wanted) and torch.allclose(found, torch.tensor(wanted), rtol=CLOSE)

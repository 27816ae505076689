"""The broken programs of lab 10 are broken as the diagnosis says: the rank, the line and the kind, by what the wire sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import torch
from allranks.exercises import get
from allranks.exercises.diagnosis import DIGESTS, EVERY, noticing, truth
from allranks.judge.judging import judge_text
from allranks.ranks.wire import FailureKind, Outcome, Program
from allranks.ranks.wire.wait import Doing

ROOT = Path(__file__).resolve().parents[2]
LAB = nbformat.read(ROOT / "labs/lab10_debugging/debugging.ipynb", as_version=4)
CELLS = {c.metadata.nbgrader.grade_id: c.source for c in LAB.cells if "nbgrader" in c.metadata}
PROGRAMS = [name for name in CELLS if name.startswith("broken_")]


def dealt(p: int) -> list[torch.Tensor]:
    each = -(-9 // p)
    return [torch.arange(9.0)[r * each : (r + 1) * each] for r in range(p)]


# what each rank is given, as in the lab
GIVEN: dict[str, Callable[[int], list[tuple]]] = {
    "count_samples": lambda p: [(torch.zeros(r + 5),) for r in range(p)],
    "mean_loss": lambda p: [(torch.tensor([6.0]), torch.tensor([r + 1.0])) for r in range(p)],
    "mirror": lambda p: [(torch.tensor([10.0 * r]),) for r in range(p)],
    "share_settings": lambda p: [(torch.full((2,), float(r)),) for r in range(p)],
    "hand_out": lambda p: [(torch.arange(2.0 * p).view(p, 2),)] * p,
    "mean_of_samples": lambda p: [(shard,) for shard in dealt(p)],
}
# the text of the line to blame
LINE = {
    "count_samples": "torch.zeros(1)",
    "mean_loss": "order = ",
    "mirror": "dist.send(",
    "share_settings": "dist.broadcast(",
    "hand_out": "row.copy_(",
    "mean_of_samples": "return torch.tensor(0.0)",
}


def blamed(name: str, outcome: Outcome) -> int | None:
    """The rank to blame, from the run alone."""
    failure = outcome.failure
    match name:
        case "count_samples":
            assert failure.kind is FailureKind.EXCEPTION and "different dtypes" in failure.message
            return EVERY
        case "mean_loss":  # no failure: the odd one has another number
            assert failure is None
            values = [result.item() for result in outcome.results]
            return next(rank for rank, value in enumerate(values) if values.count(value) == 1)
        case "mirror":
            assert failure.kind is FailureKind.DEADLOCK
            return EVERY if all(wait.op == "send" for wait in failure.waits) else None
        case "share_settings":
            assert failure.kind is FailureKind.DESYNC and "with root" in failure.message
        case "hand_out":
            assert failure.kind is FailureKind.CHANGED_BEFORE_WAIT
        case "mean_of_samples":
            assert failure.kind is FailureKind.DESYNC
            return next(wait.rank for wait in failure.waits if wait.doing is Doing.RETURNED)
    return failure.rank


@pytest.mark.parametrize("name", DIGESTS)
def test_each_program_is_broken_as_the_diagnosis_says(name, pool):
    text = CELLS[f"broken_{name}"]
    [line] = {truth(name, p)[1] for p in DIGESTS[name]}
    assert LINE[name] in text.splitlines()[line - 1]
    notices = noticing(name)
    assert notices is None or (1 <= notices <= len(text.splitlines()) and notices != line)
    program = Program(f"import torch, torch.distributed as dist; {chr(10)}{text}", f"broken_{name}", "lab.py")
    for p in DIGESTS[name]:
        assert blamed(name, pool.run(program, p, per_rank=GIVEN[name](p))) == truth(name, p)[0], f"{p} ranks"


def test_the_lab_has_these_programs_and_these_kinds():
    assert sorted(PROGRAMS) == sorted(f"broken_{name}" for name in DIGESTS)
    told: dict = {}
    exec(CELLS["kinds"], told)  # assignments of the course's own lab
    from allranks.exercises.diagnosis import Kind

    assert {kind.name: kind.value for kind in Kind} | {"EVERY": EVERY} == {
        name: value for name, value in told.items() if name.isupper()
    }


@pytest.mark.parametrize("name", DIGESTS)
def test_a_program_left_as_it_was_earns_less_than_half(name, pool):
    text = CELLS[f"broken_{name}"].replace(f"broken_{name}", name)
    verdict = judge_text(get(name), f"import torch\nimport torch.distributed as dist\n\n\n{text}\n", pool=pool)
    assert not verdict.passed
    assert verdict.score < 0.5, verdict.text()


def test_a_guess_is_not_told_which_part_of_it_is_right(pool):
    source = "def diagnosis(program):\n    return -1, 4, 9\n"
    verdict = judge_text(get("diagnosis"), source, pool=pool)
    assert verdict.score == 0
    assert "is not the diagnosis" in verdict.text() and "item" not in verdict.text()

"""The verdict under NCCL's rules: what NCCL refuses gets its reason, and what runs on NCCL passes."""

from __future__ import annotations

import ast
import json
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from allranks.checking import judging
from allranks.checking.cases import DTYPES, Setup
from allranks.checking.exercise import Exercise
from allranks.checking.judging import judge, judge_text
from allranks.checking.source import read_source
from allranks.cli.check import command
from allranks.exercises import check, get, names
from allranks.nccl_rules import Rule
from allranks.wire import FailureKind, Ranks
from allranks.wire.failures import DeadlockCause
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
RIGHT = sorted((ROOT / "tests/exercises/right").glob("*/*.py"))
MOST_RANKS = 4

# right answers that hang on NCCL: an isend or irecv outside a batch holds up the rank's next operation
UNBATCHED = {
    "halo_exchange/isends_first",
    "hierarchical_all_reduce/rings_of_messages",
    "mirror/isend",
    "pairwise_all_to_all/rotating",
    "recursive_doubling_all_reduce/fold",
    "ring_all_gather/both_directions",
    "ring_all_gather/isend_recv",
    "ring_all_reduce/isend_recv",
    "ring_all_reduce/own_chunk_last",
    "ring_all_reduce/padded",
    "ring_all_reduce/registry",
    "ring_reduce_scatter/isend_recv",
    "ring_reduce_scatter/travelling_sum",
    "ring_shift/isend_recv",
}


def few_cases(exercise: Exercise) -> Exercise:
    """The exercise with one case for each property, of few ranks, so that all answers can be judged in a test."""
    groups = []
    for group in exercise.groups:
        small = [s for s in group.setups if s.ranks <= MOST_RANKS]
        if small:
            groups.append(replace(group, setups=(min(small, key=lambda s: (not s.earns_credit, s.ranks)),)))
    return replace(exercise, groups=tuple(groups), demo_setup=replace(exercise.demo_setup, ranks=MOST_RANKS))


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Ranks for all answers of this file."""
    with pytest.MonkeyPatch.context() as patch, Ranks(MOST_RANKS) as ranks:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("answers")))
        yield ranks


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", RIGHT, ids=_name)
def test_a_right_answer_passes_or_is_known_to_hang_on_nccl(path, pool):
    exercise = path.parent.name
    verdict = judge(few_cases(get(exercise)), read_source(path, exercise), pool=pool, rules="nccl")
    if _name(path) in UNBATCHED:
        assert DeadlockCause.NOT_IN_A_BATCH in verdict.code, verdict.text()
    else:
        assert verdict.passed, verdict.text()


def test_the_known_ones_exist():
    assert {_name(path) for path in RIGHT} >= UNBATCHED


def reference_solutions() -> dict[str, Path]:
    """The notebook in solutions/ that defines each exercise's function."""
    found = {}
    for path in sorted((ROOT / "solutions").glob("*/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        found |= {name: path for name in names() if f"def {name}(" in code}
    return found


SOLUTIONS = reference_solutions()


def test_every_exercise_has_a_reference_solution():
    assert set(SOLUTIONS) == set(names())


@pytest.mark.parametrize("exercise", names())
def test_a_reference_solution_passes(exercise, pool):
    verdict = judge(few_cases(get(exercise)), read_source(SOLUTIONS[exercise], exercise), pool=pool, rules="nccl")
    assert verdict.passed, verdict.text()

"""The answers that chapters fold away pass the check that stands above them; whole chapters with them run in test-nightly."""

from __future__ import annotations

import re

import pytest
import test_chapter_12
import test_chapter_13
import test_chapter_14
import test_chapter_17
from allranks.exercises import get
from allranks.judge.judging import judge_text
from test_chapters import CHAPTERS, read

PRELUDE = "import torch\nimport torch.distributed as dist\nfrom torch.nn import functional as F\n\n\n"
FILLED = {
    "tree_reduce": test_chapter_12.solved_tree,
    "recursive_doubling_all_reduce": test_chapter_17.solved_fold,
    "bruck_all_gather": test_chapter_13.solved_bruck,
    "ring_reduce_scatter": test_chapter_14.solved_ring,
}  # the others that are not whole functions are checked with their chapters


def whole() -> list[tuple[str, str, str]]:
    """(chapter, function, text) of every folded answer that is the function checked above it."""
    found = []
    for path in CHAPTERS:
        asked = None
        for cell in read(path.stem).cells:
            if cell.cell_type == "code":
                asked = (re.findall(r"^check\((\w+)\)", cell.source, flags=re.M) or [asked])[0]
            elif asked:
                for text in re.findall(r"```python\n(.*?)```", cell.source, flags=re.S):
                    if f"def {asked}(" in text:
                        found.append((path.stem, asked, text))
    return found


@pytest.mark.parametrize(("function", "text"), [pytest.param(f, t, id=c) for c, f, t in whole()])
def test_a_folded_function_passes_its_check(function, text):
    verdict = judge_text(get(function), PRELUDE + text)
    assert verdict.passed, verdict.text()


def test_folded_functions_are_found():
    assert {"distributed_mean", "ring_shift", "tree_broadcast", "distributed_argmax"} <= {
        name for _, name, _ in whole()
    }


@pytest.mark.parametrize("function", FILLED)
def test_a_cell_with_its_hole_filled_passes_its_check(function):
    verdict = judge_text(get(function), PRELUDE + FILLED[function]().split("\n\n\ncheck(")[0])
    assert verdict.passed, verdict.text()

"""Every chapter and every lab's reference solution runs under NCCL's rules: would it run on the cluster?

On every change only the chapters that break most of the rules do, and test_any_world.py reads the code of all.
A cell that does on purpose what NCCL refuses or leaves undefined has the tag "not-on-nccl"; each other cell must pass.
"""

from __future__ import annotations

import re

import nbformat
import pytest
from test_chapters import CHAPTERS, RANKS, START, execute, read
from test_labs_run import ROOT

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(400)]
LABS = sorted((ROOT / "solutions").glob("*/*.ipynb"))
# a world that asks for gloo by name has gloo's rules everywhere
LIVE = [path.stem for path in CHAPTERS if re.search(r"World\((?!backend)", path.read_text(encoding="utf-8"))]
# two ranks are enough to break a rule, and take the least time; other sizes run in test-ranks and test-nightly
SIZES = [2] if RANKS == [4] else RANKS
BREAK_MOST = {"16_barrier_and_groups", "42_what_changes_on_nccl"}
MOST_MESSAGES = {"lab03_all_reduce"}  # the judge tries all solutions under these rules in test_under_rules.py
RAISES, NOT_ON_NCCL = "raises-exception", "not-on-nccl"


def run(notebook: nbformat.NotebookNode, folder) -> None:
    expected = set()
    for cell in notebook.cells:
        tags = cell.metadata.setdefault("tags", [])
        if {RAISES, NOT_ON_NCCL} & set(tags):
            expected.add(cell.id)
            cell.metadata.tags = [*tags, RAISES]
    done = execute(notebook, folder)
    errors = {name: told for name, told in done.errors().items() if name not in expected}
    assert not errors
    assert any("under NCCL's rules" in done.text(cell.id) for cell in notebook.cells if cell.cell_type == "code")


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    monkeypatch.setenv("ALLRANKS_RULES", "nccl")


@pytest.mark.parametrize("ranks", SIZES)
@pytest.mark.parametrize(
    "chapter", [pytest.param(name, marks=() if name in BREAK_MOST else pytest.mark.nightly) for name in LIVE]
)
def test_chapter(chapter, ranks):
    run(read(chapter, ranks), CHAPTERS[0].parent)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.parent.name, marks=() if path.parent.name in MOST_MESSAGES else pytest.mark.nightly)
        for path in LABS
    ],
)
def test_reference_solution(path):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace(START, "World(ranks=4)") if cell.cell_type == "code" else cell.source
    run(notebook, path.parent)

"""The chapter on all-gather: what its cells say, released and solved."""

from __future__ import annotations

import ast
import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "13_all_gather"
source = source_of(CHAPTER)


def solved_bruck() -> str:
    """The exercise's cell with the two lines that the folded answer gives."""
    answers = re.findall(r"```python\n *(.*?)\n```", source("bruck_answer"), flags=re.S)
    cell = source("bruck_all_gather")
    holes = re.findall(r"^ *(\S.*# your turn.*)$", cell, flags=re.M)
    for hole, answer in zip(holes, answers, strict=True):
        cell = cell.replace(hole, answer)
    return cell


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_all_gather(ranks, solved):
    replace = {"bruck_all_gather": solved_bruck()} if solved else {}
    chapter = execute(read(CHAPTER, ranks, **replace))
    everyone = range(ranks)

    errors = chapter.errors()
    assert set(errors) == {"unequal", "dtype"}
    assert "invalid tensor size" in errors["unequal"]
    assert "different dtypes" in errors["dtype"]

    gathered = [10.0 * r + i for r in everyone for i in (0, 1)]
    assert set(chapter.by_rank("two_forms").values()) == {f"{gathered[-2:]} {gathered}"}
    shapes = f"(3, 8) ({3 * ranks}, 8) True"
    assert chapter.by_rank("sharded_layer") == {rank: shapes for rank in everyone}
    assert chapter.by_rank("grad") == {rank: "False" for rank in everyone}

    assert "it was: piece 2\n" in chapter.text("reveal_last")
    verdict = chapter.text("bruck_all_gather")
    assert ("passed (" in verdict) is solved
    assert ("not yet" in verdict) is not solved
    messages = ranks * (ranks - 1).bit_length()
    if solved:
        assert f"{ranks} ranks, {messages} messages" in chapter.text("bruck_live")
    for player in ("watch", "watch_bruck"):
        assert WIDGET in chapter.outputs(player)[0].data
    assert "bruck : 3 steps, each rank sends 5000 of 6000 bytes" in chapter.text("reveal_bruck")
    assert "receives 12.25 GB and sends 12.25 GB" in chapter.text("answer")
    assert "it was 1,048,576,000\n" in chapter.text("reveal_growth")

    rows = [line.split() for line in chapter.text("fit_model").splitlines()[2:]]
    assert [int(row[0]) for row in rows] == [4**k * ranks for k in range(9) if 4**k * ranks <= 64 << 10]
    assert all(float(cell) > 0 for row in rows for cell in row[1:])

    lengths = [3] * (ranks - 1) + [4]
    rows = [[float(rank)] * length for rank, length in enumerate(lengths)]
    assert [ast.literal_eval(text) for text in chapter.by_rank("padded").values()] == [rows] * ranks

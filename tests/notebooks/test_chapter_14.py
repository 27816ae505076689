"""The chapter on reduce-scatter: what its cells say, released and solved."""

from __future__ import annotations

import ast
import re

import pytest
from test_chapters import RANKS, WIDGET, execute, folded_code, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "14_reduce_scatter"
source = source_of(CHAPTER)


def solved_ring() -> str:
    """The exercise's cell with the two lines that the folded answer gives."""
    cell = source("ring_reduce_scatter")
    for line in folded_code(source, "ring_answer").splitlines():
        name = line.split(" = ")[0]
        assert cell.count(f"{name} = ") == 1
        cell = re.sub(rf"^{name} = .*$", line, cell, flags=re.M)
    return cell


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_reduce_scatter(ranks, solved):
    replace = {"ring_reduce_scatter": solved_ring()} if solved else {}
    chapter = execute(read(CHAPTER, ranks, **replace))
    everyone = range(ranks)
    total = ranks * (ranks + 1) / 2

    errors = chapter.errors()
    assert set(errors) == {"left_over"}
    assert f"({4 * ranks} vs. {4 * ranks + 1})" in errors["left_over"]

    ends = {rank: float(text.split(" -> ")[1]) for rank, text in chapter.by_rank("promise_run").items()}
    assert ends == {rank: total * 10.0**rank for rank in everyone}
    assert all("close: True" in text for text in chapter.by_rank("two_in_a_row_run").values())
    assert "it was: chunk 3\n" in chapter.text("reveal_first")
    for player in ("watch", "watch_halving"):
        assert WIDGET in chapter.outputs(player)[0].data

    verdict = chapter.text("ring_reduce_scatter")
    assert ("passed (" in verdict) is solved
    assert ("The rank's own chunk came back" in verdict) is not solved
    assert "400 and 700, in 3 steps" in chapter.text("reveal_halving")

    kept = f"agree: True  momentum kept: {8 * ranks} and 8"
    assert chapter.by_rank("zero_steps") == {rank: kept for rank in everyone}
    memory = [float(gb) for gb in re.findall(r"([\d.]+) GB a GPU", chapter.text("answer"))]
    assert memory == [112.0, 30.6, 17.1, 3.5]
    assert chapter.text("own_gradient_run").endswith(str([total] * ranks))

    rows = chapter.text("measured").splitlines()[1:]
    assert [row[:20].strip() for row in rows] == ["all_reduce", "reduce_scatter", "your ring"]
    assert all(float(t) > 0 for row in rows for t in re.findall(r"([\d.]+) ms", row))

    padded = [number for text in chapter.by_rank("padded").values() for number in ast.literal_eval(text)]
    assert padded[: 4 * ranks + 1] == [float(ranks)] * (4 * ranks + 1)
    assert not any(padded[4 * ranks + 1 :])
    for rank, text in chapter.by_rank("layout").items():
        lying, transposed = (ast.literal_eval(line.split(":")[1].strip()) for line in text.splitlines())
        assert lying == [float(ranks * column) for column in everyone]
        assert transposed == [float(ranks * rank)] * ranks

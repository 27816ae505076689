"""The chapter on survival: the others go on with the right mean, checkpoints reshard bit for bit, formula and simulation agree."""

from __future__ import annotations

import functools
import re

import pytest
from test_chapters import RANKS, WIDGET, Executed, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "46_survive"


@functools.cache
def executed(ranks: int) -> Executed:
    """Run once for all tests of this file."""
    return execute(read(CHAPTER, ranks))


@pytest.mark.parametrize("ranks", RANKS)
def test_survive(ranks):
    chapter = executed(ranks)
    assert set(chapter.errors()) == {"shrink"}
    left = [r for r in range(ranks) if r != 1]
    assert "Rank 1 was killed by SIGKILL" in str(chapter.errors()["shrink"])
    told = chapter.by_rank("shrink")
    assert set(told) == set(left)
    for text in told.values():
        assert f"ranks {left} go on from step" in text
        assert f"30 steps, weight 30, the last mean was over {len(left)}" in text

    for text in chapter.by_rank("vote").values():
        assert "times zero" in text and text.split("]")[0].count("nan") == 1
        healthy = ranks - 1
        assert f"{healthy} healthy, {healthy} wanted: commit" in text
        assert f"{healthy} healthy, {ranks} wanted: nobody commits" in text
    assert "the vote alone" in chapter.by_rank("vote_price")[0]

    files = chapter.text("save_live")
    assert ".metadata" in files and files.count(".distcp") == ranks
    half = max(ranks // 2, 1)
    loaded = chapter.by_rank("load_live")
    assert set(loaded) == set(range(half))
    assert sum(int(re.search(r"loaded (\d+) rows", text)[1]) for text in loaded.values()) == 10
    assert all("equal in every bit: True" in text for text in loaded.values())
    long, wide = -(-10 // ranks), -(-10 // half)  # torch.chunk's rows a rank, before and after
    moved = sum(row // long != row // wide for row in range(10))
    assert f"{moved} of 10 rows" in chapter.text("rows_moved")
    assert "the old weights are in the checkpoint: True" in chapter.text("async_live")


def test_figures_of_the_llama_run_and_of_the_formulas():
    chapter = executed(RANKS[0])  # on any number of ranks they are the same
    assert "one every 3.09 hours" in chapter.text("mtbf") and "5.8 years" in chapter.text("mtbf")
    assert "one every 30 minutes" in chapter.text("mtbf")
    rows = re.findall(
        r"C = +(\d+) s: Young +([\d.]+) min \(Daly +([\d.]+)\), goodput ([\d.]+) by the formula, ([\d.]+)",
        chapter.text("formulas"),
    )
    assert [(c, young, daly) for c, young, daly, _, _ in rows][1] == ("60", "19.3", "18.6")
    for cost, _, _, formula, simulated in rows:
        assert abs(float(formula) - float(simulated)) < (0.01 if int(cost) < 100 else 0.05)
    kept = [
        tuple(map(float, row)) for row in re.findall(r"goodput ([\d.]+), formula ([\d.]+)", chapter.text("restart"))
    ]
    assert len(kept) == 4 and all(abs(a - b) < 0.015 for a, b in kept)
    checked = chapter.text("table_checked")
    assert checked.count("but the table prints") == 1 and "but the table prints 30.1 %" in checked
    assert "268 of 419 = 64.0 %; the printed shares add up to 58.7 %" in checked
    assert all(WIDGET in chapter.outputs(name)[0]["data"] for name in ("guess_divisor", "guess_interval"))

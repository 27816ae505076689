"""The chapter on search: what it finds is what it says, and the found schedule runs on live ranks."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "63_can_a_machine_find_it"


def microseconds(text: str) -> float:
    return float(re.search(r"time +([\d.]+) µs", text)[1])


@pytest.mark.parametrize("ranks", RANKS)
def test_can_a_machine_find_it(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()
    rows = chapter.curves("machine").values()
    assert [sum(links for _, links in row) for row in rows] == [6] * 8, "each GPU has six links"

    # S alpha + R/C L beta, with alpha 2 µs, and L = 768 KiB over 25 GB/s
    part = 786432 / 25e9 * 1e6
    for cell, steps, rounds in (("rings", 7, 7 / 6), ("two_steps", 2, 2), ("three_steps", 3, 7 / 6)):
        assert microseconds(chapter.text(cell).replace("\\n", "\n")) == pytest.approx(
            2 * steps + rounds * part, abs=1e-3
        )
    assert "3 steps" in chapter.text("three_steps")
    assert "300 tries found no all-gather" in chapter.text("two_tight")

    best = [line.split(", ")[1].rsplit(",")[0] for line in chapter.text("best").splitlines()]
    assert best[0] == "2 steps" and best[-1] == "3 steps" and "six rings" not in best
    above = [y for curve in chapter.curves("sizes_plot").values() for _, y in curve]
    assert min(above) >= 1

    assert "reduce_scatter: 8 ranks, 48 chunks, 3 steps" in chapter.text("backwards_proved")
    assert "all_reduce: 8 ranks, 48 chunks, 6 steps" in chapter.text("backwards_proved")
    assert f"{ranks // 2} steps" in chapter.text("live_search") and f"{ranks - 1} steps" in chapter.text("live_search")
    assert chapter.text("live_run") == f"{[float(r + 1) for r in range(ranks)]} True"
    assert chapter.text("live_time").count("both ways") == 2
    assert float(re.search(r"([\d.]+) µs", chapter.text("broken"))[1]) == pytest.approx(6 + 2 * part, abs=0.1)
    plan = chapter.text("as_program").splitlines()
    puts, waits = (sum(line.startswith(word) for line in plan) for word in ("put", "wait"))
    assert puts and waits and puts + waits == len(plan) - 1
    # each message is a put on one GPU and a wait on another
    lines, channels = map(int, re.findall(r"(\d+) lines, (\d+) channels", plan[-1])[0])
    assert lines % 2 == 0 and channels == 32, "four neighbours for each of eight GPUs"
    for name in ("guess_steps", "watch", "what_you_knew"):
        assert any(WIDGET in output.get("data", {}) for output in chapter.outputs(name)), name

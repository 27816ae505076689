"""The chapter on speed: the ring waits for one card, what-if says what helps, and the prices are the clock's."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "47_make_it_fast"


@pytest.mark.parametrize("ranks", RANKS)
def test_make_it_fast(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()
    took, bound = map(float, re.findall(r"([\d.]+) ms", chapter.text("run_ring")))
    assert took / bound == pytest.approx(7, abs=0.1)
    told = chapter.text("path")
    assert "14 messages one after the other: 100 % is bytes over the network card" in told
    assert "100 % of the path is rank 0's wait" in told

    changes = chapter.text("what_if")
    assert "With both directions: 1.76 times faster." in changes
    assert "segments" not in changes
    chain = chapter.text("chain")
    assert "7 messages one after the other" in chain
    assert "With 8 segments: 1.95 times faster." in chain
    assert "best k by the formula: 5.8" in chapter.text("segments_curve")

    compared = chapter.text("compare")
    rows = dict(re.findall(r"(?m)^(\w[\w ]*?) +[\d.]+ ms, +([\d.]+) bounds", compared))
    assert float(rows["ring"]) == 7.0
    assert float(rows["two levels"]) == float(rows["rabenseifner"]) == 1.8
    assert max(map(len, compared.splitlines())) < 110  # a line of the window
    assert "50 % is computing" in chapter.text("overlap_wire")
    assert "With communication behind computing: 2.00 times faster." in chapter.text("overlap_wire")
    assert "at the same time" in chapter.text("overlap_measured")
    assert len(re.findall(r"price +[\d.]+ ms", chapter.text("measured"))) == 3
    assert "On dgx-h100, 16 ranks take" in chapter.text("check_on_topology")
    assert all(WIDGET in chapter.outputs(name)[0]["data"] for name in ("watch_path", "watch_levels", "guess_ratio"))

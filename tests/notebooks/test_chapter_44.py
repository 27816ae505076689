"""The chapter on shared memory: a race loses additions, repairs lose none, and every way adds up to the same."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "44_without_messages"


@pytest.mark.parametrize("ranks", RANKS)
def test_without_messages(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()
    for rank, text in chapter.by_rank("memory_live").items():
        left = (rank - 1) % ranks
        assert text == f"rank {left} wrote [{left:.1f}, {left:.1f}] into my part"

    (said,) = set(chapter.by_rank("race").values())
    asked, held = (int(n.replace(",", "")) for n in re.findall(r"[\d,]+\d", said))
    assert held < asked == 200_000 // ranks * ranks
    for text in chapter.by_rank("mended").values():
        assert f"lock: {1000 * ranks}," in text and f"own numbers: {1000 * ranks}," in text

    unfenced, fenced = chapter.text("overtaken").splitlines()
    assert "races found: 1" in unfenced and "[1.0, 1.0]" not in unfenced
    assert "[1.0, 1.0], races found: 0" in fenced

    assert "races found: 2" in chapter.text("read_early") and "[1.0, 1.0]" not in chapter.text("read_early")

    total = [float(sum(range(ranks)))]
    assert set(chapter.by_rank("one_shot").values()) == set(chapter.by_rank("two_shot").values()) == {str(8 * total)}
    assert all(text.endswith(f"holds {4 * total}") for text in chapter.by_rank("switch_live").values())
    told = chapter.text("switch") + chapter.text("switch_live")
    assert len(set(re.findall(r"process (\d+)", told))) == ranks + 1

    curves = chapter.curves("crossover")
    assert set(curves) == {"one shot", "two shots", "gloo"} and all(len(points) == 6 for points in curves.values())
    assert " 8       7.00        1.75           1.00   1.12" in chapter.text("links")
    assert all(WIDGET in chapter.outputs(name)[0]["data"] for name in ("guess_lost", "guess_order", "guess_cross"))

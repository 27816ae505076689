"""The chapter on context parallelism: every way gives the result of one process, and the counted bytes are the formulas'."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, off_by, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "26_context_parallel"


@pytest.mark.parametrize("ranks", RANKS)
def test_context_parallel(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()
    for name in ("gather_live", "ring_live"):
        assert all(off_by(text) < 1e-5 for text in chapter.by_rank(name).values())
    assert "19,780 tokens a rank" in chapter.text("hidden") and "2,198 tokens a rank" in chapter.text("hidden")

    told = chapter.text("count_pairs")
    assert "pairs of each rank in all: [10, 26, 42, 58]" in told
    assert "1.71 times the mean; all steps: 58 pairs" in told
    assert "[34, 34, 34, 34], 34 pairs one after the other" in chapter.text("zigzag_pairs")

    for text in chapter.by_rank("loss_live").values():
        of_means, of_tokens = map(float, re.findall(r"\d\.\d+", text))
        assert of_means == pytest.approx(1 + 4 / ranks, abs=1e-3)
        assert of_tokens == pytest.approx(1 + 4 / (8 * (ranks - 1) + 1), abs=1e-3)

    for rank, text in chapter.by_rank("ulysses_live").items():
        assert f"(3, {2 * ranks}, 4) became ({3 * ranks}, 2, 4)" in text, rank
        assert text.rstrip().endswith(str([r for r in range(ranks) for _ in range(3)]))
    for line in chapter.text("count_bytes").splitlines():
        counted, formula = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+)(?: bytes|$)", line))
        assert counted == formula > 0
    assert "16 ranks                503       566                    1544      1132" in chapter.text("llama_numbers")
    assert "it was: forward the ring, together Ulysses\n" in chapter.text("reveal_llama")
    assert all(WIDGET in chapter.outputs(name)[0]["data"] for name in ("watch", "guess_balance"))
    only_data, both = chapter.text("trained").splitlines()
    assert off_by(both) < 1e-5 < 0.01 < off_by(only_data)  # without the context ranks the gradient lacks their tokens
    rows = -(-48 // ranks)
    assert f"rank 0 keeps ({rows}, 16) of (48, 16)" in both
    in_order, whole, each = chapter.text("packed").splitlines()
    assert "[136, 392, 328, 72], the busiest 1.69 times" in in_order
    assert "[72, 136, 200, 520], the busiest 2.24 times" in whole
    assert "[232, 232, 232, 232], the busiest 1.00 times" in each
    assert "tp = 8: Ulysses up to cp = 1 without copies of keys, up to 16 with" in chapter.text("limit")

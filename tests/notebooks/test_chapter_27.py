"""The chapter on mixtures of experts: results, gradients and bytes against one process and the formulas; drops; overlap."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "27_mixture_of_experts"


def numbers(text: str, start: str = "") -> list[float]:
    """The numbers after `start` in the first line that begins with it."""
    line = next(line for line in text.splitlines() if line.startswith(start))
    return [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*\.?\d*(?:e-\d+)?", line[len(start) :])]


@pytest.mark.parametrize("ranks", RANKS)
def test_mixture_of_experts(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()
    told = chapter.text("step_live")
    assert all(max(numbers(told, f"rank {rank}: ")) < 1e-4 for rank in range(ranks))
    assert "5 calls a rank" in told
    for name in ("dispatch ", "combine ", "backward of combine ", "backward of dispatch "):
        counted, formula, *by_rank = numbers(chapter.text("bytes_live"), name)
        assert counted == formula == sum(by_rank) == ranks * 32 * 2 * 16 * 4
    assert "462 MB" in chapter.text("large") and "1.85 GB" in chapter.text("large")

    assert numbers(chapter.text("nodes_counted"), "a copy for each node")[:2] == [5.29, 5.29]
    limited, most = numbers(chapter.text("nodes_counted"), "at most 4 nodes")
    assert 3.9 < limited < 4 == most
    drops = chapter.text("dropped")
    fair, few, skewed = (numbers(drops, name)[1::2] for name in ("fair  ", "fair, 256 tokens", "Zipf 0.5"))
    assert fair[0] == pytest.approx(3.5, abs=0.2) and fair[2] < 0.1  # 3.5 % at a factor of 1, nearly none at 1.25
    assert few[2] == pytest.approx(5, abs=0.5)
    assert skewed == pytest.approx([21, 18, 15, 11, 6], abs=1)
    assert "alike 0.010" in chapter.text("auxiliary") and "0.640" in chapter.text("auxiliary")

    assert [numbers(line)[1:] for line in chapter.text("chunks_timed").splitlines()] == [
        [2 + 2 / n, 2 + 2 / n] for n in (1, 2, 4, 8)
    ]
    assert [numbers(line)[1] for line in chapter.text("chunks_live").splitlines()] == [4.1, 3.1, 2.6, 2.8]
    ep = 2 if ranks % 2 == 0 else ranks
    for rank in range(ranks):
        ratio, of, off = numbers(chapter.text("expert_gradient"), f"rank {rank}:")
        assert ratio == of == ep and off < 1e-5
    assert "2.00 times as far" in chapter.text("hidden_by_adam") and "1.00 times" in chapter.text("hidden_by_adam")
    assert all(WIDGET in chapter.outputs(name)[0]["data"] for name in ("guess_calls", "guess_nodes"))
    one, normalised, two, _ = (float(line.split("norm ")[1]) for line in chapter.text("router_gradient").splitlines())
    assert normalised < 1e-6 < 1e-4 < min(one, two)
    before, during = chapter.text("shared_expert").splitlines()
    assert before.endswith("4.50 s") and during.endswith("4.00 s")
    for text in chapter.by_rank("grouped_live").values():
        assert float(re.search(r"differs from the loop by (\S+)", text)[1]) < 0.05
    wrong, right = (re.findall(r"(\d\.\d\d)[ ,]", line) for line in chapter.text("divisors").splitlines())
    assert wrong == [f"{ep:.2f}"] * ranks and right == ["1.00"] * ranks
    without, slow, good, _ = (
        [float(n) for n in re.findall(r"(?:first|then|and) (\d\.\d\d)", line)]
        for line in chapter.text("watched").splitlines()[:4]
    )
    assert without[2] > 2 > 1.7 > good[2] and slow[1] > good[1]

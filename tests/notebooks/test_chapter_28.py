"""The chapter on memory and rooflines: counted bytes are the formulas', and published figures come out."""

from __future__ import annotations

import re

import pytest
from allranks import rooflines
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "28_memory_and_rooflines"


def numbers(text: str) -> list[float]:
    """All numbers of a text."""
    return [float(n.replace(",", "")) for n in re.findall(r"[-+]?\d[\d,]*\.?\d*", text)]


@pytest.mark.parametrize("ranks", RANKS)
def test_memory_and_rooflines(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()
    counted, formula, more = numbers(chapter.text("compare"))[:3]
    # what is more: mean and deviation of two layer norms, four bytes each
    tokens, hidden = 48 * ranks, 32 * ranks
    assert counted - formula == 16 * tokens and 0 < more < 1

    by_tensor, by_sequence, gathered = (numbers(line) for line in chapter.text("compare_split").splitlines())
    shape = {"tokens": tokens, "hidden": hidden, "heads": 2 * ranks, "sequence": tokens, "tp": ranks}
    for line, parallel in ((by_tensor, False), (by_sequence, True)):
        says = rooflines.layer_activation_nbytes(**shape, sequence_parallel=parallel, element_nbytes=4)
        assert line[1] == pytest.approx(says, abs=1)
    assert by_tensor[2] == pytest.approx(16 * tokens, abs=1)
    assert by_sequence[2] == pytest.approx(gathered[0] + 16 * tokens / ranks, abs=1)
    assert gathered[0] == 2 * 4 * tokens * hidden * (ranks - 1) // ranks

    told = chapter.text("gpt3")
    assert [int(n) for n in re.findall(r"(\d+) MB a layer", told)] == [2869, 579, 359, 107, 50]

    for text in chapter.by_rank("recompute_live").values():
        whole, little, ratio = numbers(text)
        assert whole == counted and little == 4 * tokens * hidden and ratio > 1.05
    assert "full      1.333 times" in chapter.text("again_operations")

    roof, measured = chapter.curves("roofline_plot").values()
    assert all(0 < rate <= max(y for _, y in roof) * 1.001 for _, rate in measured)
    assert measured[-1][1] > measured[0][1]

    shown = chapter.text("gather_price")
    few, many = map(float, re.search(r"takes ([\d.]+) times .* with 2048 ([\d.]+) times", shown).groups())
    bound = float(re.search(r"hidden from ([\d,]+) tokens", shown)[1].replace(",", ""))
    # at the bound both take as long: with b tokens the gather takes about bound / b times as long as the product
    assert many == pytest.approx(bound / 2048, abs=0.01) and few > many

    told = chapter.text("bounds_real")
    assert [int(n.replace(",", "")) for n in re.findall(r"FSDP from +([\d,]+)", told)] == [2198, 2472, 2500, 5625]
    assert "up to 13 ranks" in told and "width of 19,780" in told and "1,024 tokens" in told
    assert "HFU 52.2%, MFU 39.2%" in chapter.text("megatron")
    assert re.findall(r"[\d.]+%", chapter.text("published")) == ["56.0%", "56.3%", "33.7%", "30.0%", "28.1%"]
    assert WIDGET in chapter.outputs("guess_tensor")[0]["data"]

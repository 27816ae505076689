"""The chapter on sending less: what stalls and what does not, the counted bytes are the formulas', and torch's hooks do what is said."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "60_send_less"


def numbers(text: str) -> list[float]:
    return [float(n.replace(",", "")) for n in re.findall(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?", text)]


def losses(text: str) -> dict[str, float]:
    """The loss after 200 steps of each way."""
    return {
        line[:20].strip(): float(re.search(r"(\S+)(?: after)", line.replace("loss", ""))[1])
        for line in text.splitlines()
    }


@pytest.mark.parametrize("ranks", RANKS)
def test_send_less(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()

    first = float(re.search(r"loss +(\S+) at first", chapter.by_rank("train_live")[0])[1])
    found = losses(chapter.by_rank("train_live")[0]) | losses(chapter.by_rank("one_bit_live")[0])
    assert found["all numbers"] < 1e-3 * first
    assert found["top-4"] > 0.6 * first
    assert found["top-4 with feedback"] < 5e-3 * first
    without, with_it = (
        [float(n) for n in re.findall(r"loss (\S+) at first, (\S+) after 200", line)[0]]
        for line in chapter.by_rank("same_goal")[0].splitlines()
    )
    assert with_it[1] < 1e-3 * with_it[0]
    assert 0.1 * without[0] < without[1] < 0.5 * without[0]  # it falls, since nothing cancels, but far less
    assert found["1 bit with feedback"] < 0.1 * found["1 bit"]
    # "one bit reaches the same loss with the fewest bytes"
    needed = {n: min(kb for kb, y in c if y <= 1) for n, c in chapter.curves("one_bit_bytes").items() if n != "1 bit"}
    assert min(needed, key=needed.get) == "1 bit with feedback" and len(needed) == 3
    without, with_feedback = (
        int(re.search(r"(\d+) of the 64", line)[1]) for line in chapter.text("which").splitlines()[:2]
    )
    assert without < 16 and with_feedback > 56

    for line in chapter.text("count_bytes").splitlines():
        _, counted, formula = numbers(line)
        assert counted == formula > 0
    assert "1024 ranks: 1 % of the numbers are 10.24 times" in chapter.text("many_ranks")
    assert "100 ranks: 1 % of the numbers are  1.00 times" in chapter.text("many_ranks")
    eight = next(line for line in chapter.text("uint8_numbers").splitlines() if line.startswith("  8 ranks"))
    gathered, reduced, two = (float(n) for n in re.findall(r"(\d+\.\d) GB", eight))
    assert gathered == reduced == pytest.approx(4 * two, abs=0.3)

    for text in chapter.by_rank("power_live").values():
        *off, best = (float(n) for n in re.findall(r"\d\.\d+", text))
        assert off[0] > off[-1] and best <= off[-1] < 1.1 * best
    for line in chapter.text("power_bytes").splitlines():
        counted, formula = int(re.search(r"(\d+) bytes", line)[1]), int(re.search(r"formula (\d+)", line)[1])
        assert counted == formula
    assert [re.search(r"statistics (\d+)", line)[1] for line in chapter.text("power_bytes").splitlines()[1:]] == [
        "32",
        "8",
    ]

    above = [float(line.split()[-1]) for line in chapter.by_rank("local_runs")[0].splitlines()]
    assert above[0] < above[1] < above[2] and above[2] > 0.01
    local, outer = (float(n) for n in re.findall(r"\d\.\d{3}|\d+\.\d{3}", chapter.by_rank("diloco_live")[0]))
    assert outer < 0.5 * local
    assert "24.5 GB a step" in chapter.text("peak_numbers") and "250 times less" in chapter.text("peak_numbers")

    alone, averaged = (re.findall(r"\d\.\d+", line) for line in chapter.text("averager_live").splitlines())
    assert alone[-1] != "0.0" and [i for i, spread in enumerate(averaged) if spread == "0.0"] == [0, 4, 8]
    assert "a rank sends" in chapter.text("worth")
    assert WIDGET in chapter.outputs("guess_stall")[0]["data"]

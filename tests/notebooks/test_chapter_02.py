"""The chapter on why communication decides: what its cells show, as released and with the exercise solved."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, execute, folded_code, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "02_why_communication"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_why_communication(ranks, solved):
    replace = {"distributed_mean": answer() + "\n\ncheck(distributed_mean)"} if solved else {}
    chapter = execute(read(CHAPTER, ranks, **replace))
    assert not chapter.errors()

    # the bytes of a step are the parameters', whatever the batch: 2 * (1024 * 1024 + 1024) of 4 bytes
    rows = re.findall(r"(\d+) samples.*?, ([\d.]+) MB", chapter.text("two_parts"))
    assert rows == [("16", "8.4"), ("64", "8.4"), ("256", "8.4")]
    assert float(re.search(r"factor (\d+)", chapter.text("reveal_factor"))[1]) > 1  # 256 calls against one

    rows = [line.split() for line in chapter.text("scaling_table").splitlines()[4:]]
    assert [int(row[0]) for row in rows] == list(range(1, ranks + 1))
    work, measured, model = ([float(row[column]) for row in rows] for column in (1, 2, 3))
    assert work == pytest.approx([work[0] / p for p in range(1, ranks + 1)], abs=1)
    assert measured[0] == model[0] == work[0] > 0
    assert all(m >= w - 1 for m, w in zip(model, work, strict=True))

    thousand, hundred_thousand = (
        float(h.replace(",", "")) for h in re.findall(r"it was ([\d.,]+) h", chapter.text("reveal_step_times"))
    )
    assert thousand == pytest.approx(by_hand(1000), abs=0.5)
    assert hundred_thousand == pytest.approx(by_hand(100_000), abs=0.5)
    assert 10 < thousand < hundred_thousand
    best = int(re.search(r"the fastest is (\d+)", chapter.text("best")).group(1))
    assert by_hand(best) <= min(by_hand(best - 1), by_hand(best + 1))
    assert chapter.curves("figure")

    shares = re.findall(r"communication (\d+)%", chapter.text("shares"))
    assert shares[:2] == shares[2:]  # the size of the model does not matter
    assert int(shares[0]) > int(shares[1])
    assert "5333 tokens per GPU" in chapter.text("tokens")

    waited = {rank: float(re.search(r"([\d.]+) ms", text)[1]) for rank, text in chapter.by_rank("straggler").items()}
    assert min(waited, key=waited.get) == 0  # it came last, so it waited least

    verdict = chapter.text("distributed_mean")
    assert ("not yet" in verdict, "calls all_reduce 2 times" in verdict) == (not solved, not solved)


def by_hand(p: int) -> float:
    """Hours on p GPUs: 7 billion bfloat16 gradients, 2**21 tokens a step, 400 TFLOP/s, 50 GB/s, 5 µs, ring."""
    work_s = 6 * 7e9 * 2**21 / 400e12
    step_s = work_s / p + 2 * (p - 1) / p * 14e9 / 50e9 + 2 * (p - 1) * 5e-6
    return 10_000 * step_s / work_s


def answer() -> str:
    """The answer that the folded text gives."""
    return folded_code(source_of(CHAPTER), "mean_answer")

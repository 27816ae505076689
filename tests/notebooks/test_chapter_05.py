"""The chapter on gather: what its cells show, as released and with the exercise solved."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "05_gather"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_gather(ranks, solved):
    replace = {"distributed_argmax": answer() + "\n\ncheck(distributed_argmax)"} if solved else {}
    chapter = execute(read(CHAPTER, ranks, **replace))
    everyone = range(ranks)

    assert chapter.by_rank("own_room") == {0: str([rank + 1.0 for rank in everyone])}
    same = eval(chapter.by_rank("same_room")[0])
    assert len(same) == ranks
    assert len(set(same)) == 1  # one tensor under many names
    errors = chapter.errors()
    assert set(errors) == {"uneven_run"}
    assert "invalid tensor size" in errors["uneven_run"]
    filled = chapter.by_rank("ways_out")[0].splitlines()
    assert filled[ranks - 1] == f"tensor([{', '.join(f'{ranks - 1}.' for _ in everyone)}])"
    assert eval(filled[-1]) == {"rank": ranks - 1, "rewards": [ranks - 1.0] * ranks}

    paid = [[float(x) for x in re.findall(r"rank \d+ ([\d.]+)", t)] for t in chapter.text("reveal_pay").splitlines()]
    assert sum(paid[0]) / ranks == pytest.approx(0.5, abs=0.15)  # nobody knows anything yet
    assert min(paid[3]) > 0.9  # the best arm pays 1
    words = chapter.outputs("my_trace")[0].data["text/plain"]
    told = 2 if "more steps" in words else 3  # long films are told with a gap
    assert words.count("rank 0 takes part in broadcast of 40 B") >= told
    assert words.count("rank 0 takes part in gather of 512 B") >= told
    assert all(WIDGET in chapter.outputs(name)[0].data for name in ("my_trace", "watch"))

    assert "flat  12.915 ms, tree  12.630 ms" in chapter.text("prices")  # 63/64 of 640 MB, 63 or 6 latencies
    actors = int(re.search(r"from (\d+) actors", chapter.text("answer"))[1])
    assert (actors - 1) * (5e-6 + 10e6 / 50e9) <= 0.05 < actors * (5e-6 + 10e6 / 50e9)
    rows = re.findall(r"(\d+) ranks: gather +(\d+) MB, reduce by a tree +(\d+) MB", chapter.text("less"))
    assert rows == [("8", "70", "30"), ("64", "630", "60"), ("512", "5110", "90")]

    gathered, came = chapter.text("reveal_late").splitlines()
    assert float(re.search(r"returned after (\d+) ms", gathered)[1]) > 300  # the last rank slept for 400 ms
    order = [int(rank) for rank in re.findall(r"rank (\d+) after", came)]
    assert sorted(order) == list(everyone)[1:]
    assert order[-1] == ranks - 1

    rows = [line.split() for line in chapter.text("table").splitlines()[3:]]
    assert [int(row[0]) for row in rows] == list(range(2, ranks + 1))
    assert float(rows[0][3]) == 1.0  # beta is fitted to it
    assert all(float(row[1]) > 0 for row in rows)

    verdict = chapter.text("distributed_argmax")
    assert ("not yet" in verdict, "16 bytes x 4 ranks" in verdict) == (not solved, not solved)


def answer() -> str:
    """The answer that the folded text gives."""
    prose = next(cell.source for cell in read(CHAPTER).cells if cell.id == "argmax_answer")
    return re.search(r"```python\n(.*?)```", prose, flags=re.S).group(1)

"""The chapter on scatter and gather: what its cells show, as released and with the exercise solved."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, folded_code, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "11_scatter_and_gather"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_scatter_and_gather(ranks, solved):
    replace = {"distributed_argmax": answer() + "\n\ncheck(distributed_argmax)"} if solved else {}
    chapter = execute(read(CHAPTER, ranks, **replace))
    everyone = range(ranks)

    parts = [[2.0 * rank, 2.0 * rank + 1] for rank in everyone]
    back = chapter.by_rank("there_and_back")
    assert [back[rank].splitlines()[0] for rank in everyone] == [f"my part {part}" for part in parts]
    assert back[0].splitlines()[1] == f"results {[[x * x for x in part] for part in parts]}"
    errors = chapter.errors()
    assert set(errors) == {"too_many_lists", "uneven_run"}
    assert "must NOT be specified on non-source ranks" in errors["too_many_lists"]
    assert "rank 0: in dist.scatter" in errors["too_many_lists"]
    assert "invalid tensor size" in errors["uneven_run"]
    split = chapter.text("pieces").splitlines()
    assert "[[0, 1, 2], [3, 4, 5], [6, 7, 8]]" in split[0]
    assert "[[0, 1, 2], [3, 4], [5, 6], [7, 8]]" in split[1]
    filled = chapter.by_rank("ways_out")[0].splitlines()
    assert filled[ranks - 1] == f"tensor([{', '.join(f'{ranks - 1}.' for _ in everyone)}])"
    assert eval(filled[-1]) == {"rank": ranks - 1, "rewards": [ranks - 1.0] * ranks}

    same = eval(chapter.by_rank("same_room")[0])
    assert len(same) == ranks
    assert len(set(same)) == 1  # one tensor under many names
    for rank, text in chapter.by_rank("columns").items():
        got, wanted = (eval(line[line.index("[") :]) for line in text.splitlines())
        assert wanted == [rank + row * ranks for row in range(4)]
        assert got != wanted  # gloo reads a view with gaps as if it had none

    rounds = chapter.text("actor_learner").splitlines()
    paid = [[float(x) for x in re.findall(r"rank \d+ ([\d.]+)", text)] for text in rounds]
    assert sum(paid[0]) / ranks == pytest.approx(0.5, abs=0.15)  # nobody knows anything yet
    assert min(paid[3]) > 0.9  # the best arm pays 1
    words = chapter.outputs("my_trace")[-1].data["text/plain"]  # a slow machine counts seconds before it
    told = 2 if "more steps" in words else 3  # long films are told with a gap
    assert words.count(f"rank 0 takes part in scatter of {size(256 * ranks)}") >= told
    assert words.count(f"all {ranks} ranks take part in gather of 256 B") >= told
    assert all(WIDGET in chapter.outputs(name)[-1].data for name in ("my_trace", "watch"))
    gathered, came = chapter.text("came").splitlines()
    assert float(re.search(r"returned after (\d+) ms", gathered)[1]) > 300  # the last rank slept for 400 ms
    order = [int(rank) for rank in re.findall(r"rank (\d+) after", came)]
    assert sorted(order) == list(everyone)[1:]
    assert order[-1] == ranks - 1

    rows = [re.findall(r"\d+", line) for line in chapter.text("count").splitlines()[1:]]
    assert [[int(n) for n in row] for row in rows] == [[8, 7, 7, 7], [8, 3, 7, 12], [64, 63, 63, 63], [64, 6, 63, 192]]
    assert chapter.text("backwards") == "True"
    assert "flat  12.915 ms, tree  12.630 ms" in chapter.text("prices")  # 63/64 of 640 MB, 63 or 6 latencies
    actors = int(re.search(r"from (\d+) actors", chapter.text("answer"))[1])
    assert (actors - 1) * (5e-6 + 10e6 / 50e9) <= 0.05 < actors * (5e-6 + 10e6 / 50e9)
    rows = re.findall(r"(\d+) ranks: gather +(\d+) MB, reduce by a tree +(\d+) MB", chapter.text("less"))
    assert rows == [("8", "70", "30"), ("64", "630", "60"), ("512", "5110", "90")]
    assert "1.05 times as fast" in chapter.text("faster")
    dealt = [sample for text in chapter.by_rank("sampler").values() for sample in eval(text)]
    assert sorted(set(dealt)) == list(range(2 * ranks + 1))
    assert len(dealt) == 3 * ranks  # some samples twice, with any number of ranks

    rows = [line.split() for line in chapter.text("table").splitlines()[3:]]
    assert [int(row[0]) for row in rows] == list(range(2, ranks + 1))
    assert float(rows[0][4]) == 1.0  # beta is fitted to it
    assert all(float(row[1]) > 0 and float(row[2]) > 0 for row in rows)

    verdict = chapter.text("distributed_argmax")
    assert ("not yet" in verdict, "16 bytes x 4 ranks" in verdict) == (not solved, not solved)


def size(nbytes: int) -> str:
    """Bytes as the player writes them."""
    return f"{nbytes} B" if nbytes < 1000 else f"{nbytes / 1000:.3g} kB"


def answer() -> str:
    """The answer that the folded text gives."""
    return folded_code(source_of(CHAPTER), "argmax_answer")

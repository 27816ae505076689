"""The chapter on composing collectives: its figures against one process, and the answer that it gives."""

from __future__ import annotations

import math
import re

import pytest
from test_chapters import RANKS, WIDGET, execute, folded_code, numbers, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "18_composing"
source = source_of(CHAPTER)


def solved_softmax() -> str:
    """The cell of `distributed_softmax` with the two lines that its folded answer gives."""
    lines = folded_code(source, "softmax_answer").splitlines()
    marks = re.findall(r".*: your turn", source("softmax_mine"))
    assert len(lines) == len(marks) == 2
    cell = source("softmax_mine")
    for mark, line in zip(marks, lines, strict=True):
        cell = cell.replace(mark, line)
    return cell


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_composing(ranks, solved):
    chapter = execute(read(CHAPTER, ranks, **({"softmax_mine": solved_softmax()} if solved else {})))
    everyone = range(ranks)
    assert not chapter.errors()

    weights = [r + 1 for r in everyone]
    whole = sum(r * w for r, w in zip(everyone, weights, strict=True)) / sum(weights)
    for text in chapter.by_rank("means").values():
        of_means, of_all = (numbers(line)[-1] for line in text.splitlines())
        assert of_means == pytest.approx(sum(everyone) / ranks)
        assert of_all == pytest.approx(whole, rel=1e-4)  # six digits are printed

    value, place = chapter.text("argmax_check").removeprefix("alone: ").split(" at (rank, index) ")
    rank, index = eval(place)
    assert set(chapter.by_rank("argmax_live").values()) == {f"{value} on rank {rank}, index {index}"}
    assert "float32 16,777,216, float64 16,777,217" in chapter.text("float_index_shown")
    assert all(text.endswith("torch.max says nan") for text in chapter.by_rank("nan_live").values())

    for text in chapter.by_rank("naive_softmax").values():
        fifty, *over = text.splitlines()
        share = 1 / (ranks * (1 + math.exp(-1)))
        assert float(fifty.split()[-1]) == pytest.approx(share, abs=1e-4)
        assert [line.split()[1:] for line in over] == [["inf", "nan"]] * 2
    verdict = chapter.text("softmax_mine")
    assert ("passed" in verdict, "nothing of the other ranks" in verdict) == (solved, not solved)
    assert sum(numbers(text)[-1] for text in chapter.by_rank("one_round").values()) == pytest.approx(1, abs=1e-3)
    assert numbers(chapter.text("one_round_check"))[-1] < 1e-6
    assert WIDGET in chapter.outputs("watch")[0].data

    for text in chapter.by_rank("merged_variance").values():
        one_round, two_rounds, merged, right = (float(line.split()[-1]) for line in text.splitlines())
        assert abs(one_round - right) > 0.1  # neighbouring floats are 8 apart there
        assert two_rounds == pytest.approx(right, rel=1e-3)
        assert merged == pytest.approx(right, rel=1e-3)

    ours, gathered = chapter.text("compare").splitlines()
    assert ours.split()[1] == gathered.split()[2]
    assert ours.endswith(f"[('all_gather_into_tensor', {3 * 32 * 4})]")
    assert gathered.endswith(f", {32 * 1024 * 4})]")
    assert "98.3 kB instead of 4.29 GB" in chapter.text("answer")
    assert numbers(chapter.text("gradient"))[-1] < 1e-6

    one, _, many = (re.findall(r"(?:gather|compose) +([\d.]+) ms", line) for line in chapter.text("model").splitlines())
    assert float(one[0]) < float(one[1])
    assert float(many[1]) < float(many[0])
    rows = [numbers(line) for line in chapter.text("table").splitlines()[2:]]
    assert [row[0] for row in rows] == [1, 16, 256]
    assert all(x > 0 for row in rows for x in row)
    assert rows[0][3] == pytest.approx(rows[0][4], abs=0.02)  # fitted to


def test_the_answer_is_right(tmp_path):
    from allranks import check

    file = tmp_path / "softmax.py"
    body = solved_softmax().split("\n\n\ncheck(")[0]
    file.write_text(f"import torch.distributed as dist\n\n\n{body}\n")
    namespace: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    assert check(namespace["distributed_softmax"]).passed

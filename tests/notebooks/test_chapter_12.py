"""The chapter on reduce: what its cells say, released and solved."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, folded_code, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "12_reduce"
source = source_of(CHAPTER)


def solved_tree() -> str:
    """The exercise's cell with the three lines that the folded answer gives."""
    cell = source("tree_reduce")
    for line in folded_code(source, "tree_answer").splitlines():
        start = re.match(r" *(place = |dist\.send\(|dist\.recv\()", line).group(0)
        assert len(re.findall(rf"^{re.escape(start)}", cell, flags=re.M)) == 1
        cell = re.sub(rf"^{re.escape(start)}.*$", line, cell, flags=re.M)
    return cell


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_reduce(ranks, solved):
    chapter = execute(read(CHAPTER, ranks, **({"tree_reduce": solved_tree()} if solved else {})))
    total = ranks * (ranks + 1) / 2

    errors = chapter.errors()
    assert set(errors) == {"early_stop"}
    assert f"rank {ranks - 1}: done" in errors["early_stop"]
    assert "rank 0: in dist.barrier" in errors["early_stop"]

    # only the root's number is promised; what the others hold is not, so nothing is asked of it here
    assert chapter.by_rank("others")[0] == str(total)
    assert chapter.by_rank("patchwork")[0] == str([int(total)] * 8)
    assert chapter.by_rank("early_stop")[0] == f"mean here: {total / ranks:.2f}"

    of_means, over_count = (float(line.split()[-1]) for line in chapter.by_rank("mean")[0].splitlines())
    assert float(chapter.text("reveal_mean").split()[-1]) == pytest.approx(over_count, abs=2e-4)
    assert of_means < over_count  # later ranks have more samples and more loss
    slowest = dict(line.removesuffix(" s").split() for line in chapter.by_rank("slowest")[0].splitlines())
    assert (slowest["MAX"], slowest["MIN"]) == ("0.1300", "0.1000")

    assert WIDGET in chapter.outputs("watch")[0].data
    assert chapter.text("reveal_steps").startswith("8 ranks: 3 steps, 6 ranks: 3\n")
    verdict = chapter.text("tree_reduce")
    assert ("passed (" in verdict) is solved
    assert ("Results are only right with root 0" in verdict) is not solved

    assert re.search(r"binomial_reduce +8 bytes: +50.0 µs", chapter.text("answer"))
    assert re.findall(r"([\d.]+) µs", chapter.text("compare")) == ["50.0", "50.0"]
    waits = {
        line.split()[0]: [float(t) for t in re.findall(r"([\d.]+) s", line)]
        for line in chapter.text("waiting").splitlines()
    }
    assert {name: len(seconds) for name, seconds in waits.items()} == {"reduce": ranks, "all_reduce": ranks}
    rows = [[float(cell) for cell in line.split()] for line in chapter.text("measured").splitlines()[1:]]
    assert [row[0] for row in rows] == [1, 32, 1024, 8192]
    assert all(cell > 0 for row in rows for cell in row)

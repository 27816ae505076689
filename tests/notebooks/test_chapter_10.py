"""The chapter on broadcast: what its cells show, as released and with its two tasks solved."""

from __future__ import annotations

import math
import re

import pytest
from test_chapters import RANKS, WIDGET, execute, folded_code, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "10_broadcast"
source = source_of(CHAPTER)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_broadcast(ranks, solved):
    replace = {}
    if solved:
        replace["tree_broadcast"] = answer() + "\n\ncheck(tree_broadcast)"
        replace["chain_formula"] = source("chain_formula").replace("return 0", "return p + k - 2")
    chapter = execute(read(CHAPTER, ranks, **replace))
    everyone = range(ranks)

    printed = chapter.by_rank("parameters_only")
    weights, outputs = zip(*(text.splitlines() for text in printed.values()), strict=True)
    assert len(printed) == ranks
    assert len(set(weights)) == 1
    assert len(set(outputs)) == ranks  # the buffers still differ
    assert len(set(chapter.by_rank("whole_state").values())) == 1
    assert chapter.by_rank("in_a_group") == {rank: "1 1" for rank in everyone if rank}
    short = {rank: eval(text) for rank, text in chapter.by_rank("short").items()}
    assert short[0] == [0.0] * 4
    assert all(short[rank][:4] == [0.0] * 4 and short[rank][4] > 0 for rank in everyone if rank)

    errors = chapter.errors()
    assert set(errors) == {"roots_live"}
    assert all(f"rank {rank}: in dist.broadcast" in errors["roots_live"] for rank in everyone)
    assert chapter.text("roots_wire").startswith("The ranks disagree: rank 0 called broadcast with root 0")

    assert chapter.text("flat_live") == chapter.text("chain_broadcast") == str([1.0] * ranks)
    assert "the tree takes 3 rounds, flat takes 7" in chapter.text("reveal_rounds")
    assert "the tree takes 10 rounds, flat takes 1023" in chapter.text("reveal_rounds")
    assert all(WIDGET in chapter.outputs(name)[0].data for name in ("watch_tree", "watch_chain"))
    rows = re.findall(r"yours +(\d+) +counted +(\d+)", chapter.text("chain_formula"))
    assert [int(counted) for _, counted in rows] == [3, 8, 12, 106]
    assert all((mine == counted) is solved for mine, counted in rows)

    # the reader's own program on the virtual clock against the formula: p = 8, alpha = 1, n beta = 32
    rows = [line.split() for line in chapter.text("virtual").splitlines()[3:]]
    for k, messages, formula in rows:
        assert float(formula) == pytest.approx((6 + int(k)) * (1 + 32 / int(k)), abs=0.06)
        assert float(messages) == pytest.approx(float(formula), rel=0.05)
    assert [row[0] for row in rows] == ["1", "4", "16", "64", "256"]
    assert min(rows, key=lambda row: float(row[1]))[0] == "16"

    lines = chapter.text("competition").splitlines()[1:5]
    names, times = [line[:21].strip() for line in lines], [re.findall(r"([\d.]+) ms", line) for line in lines]
    winners = [min(zip(map(float, column), names, strict=True))[1] for column in zip(*times, strict=True)]
    assert winners == ["tree", "tree", "chain, best k"]
    assert float(times[1][2]) == pytest.approx(10 * (5e-3 + 280), abs=0.01)
    best_ms = 1e3 * (math.sqrt(1022 * 5e-6) + math.sqrt(0.28)) ** 2
    assert float(times[3][2]) == pytest.approx(best_ms, abs=0.01)
    pairs = re.findall(r"([\d.]+) µs, formula +([\d.]+) µs", chapter.text("compare_prices"))
    assert len(pairs) == 4
    assert all(counted == formula for counted, formula in pairs)
    order = [line.split(": ")[1] for line in chapter.text("winners").splitlines()]
    assert order == ["tree", "scatter, all-gather", "chain, best k"] * 2  # on 64 ranks and on 1024
    assert chapter.curves("figure")

    rows = [re.findall(r"(\d+\.\d{3})(?!\S)", line) for line in chapter.text("live_table").splitlines()[1:]]
    assert [len(row) for row in rows] == [4] * 4
    assert all(float(cell) > 0 for row in rows for cell in row)

    verdict = chapter.text("tree_broadcast")
    assert ("not yet" in verdict) == (not solved)
    if not solved:
        assert "rounds of messages one after the other, all of them through rank 0" in verdict


def test_the_chain_moves_what_the_schedule_says():
    """The package's chain and the chapter's are one algorithm in two forms."""
    import torch
    import torch.distributed as dist
    from allranks import schedules
    from allranks.ranks.wire import run

    namespace = {"torch": torch, "dist": dist}
    exec(source("chain_broadcast").split("\n\n\nworld.run")[0], namespace)
    for ranks in (2, 3, 5):
        planned = schedules.pipelined_chain_broadcast(ranks, root=1, segments=3)
        sizes = planned.chunk_nbytes(8)
        outcome = run(namespace["chain_broadcast"], ranks=ranks, per_rank=[(torch.zeros(8), 1, 3)] * ranks)
        assert outcome.failure is None
        for rank in range(ranks):
            sent = [(m.dst, m.nbytes) for m in outcome.trace.messages() if m.src == rank]
            assert sent == [(m.dst, 4 * sizes[m.chunks[0]]) for m in planned.moves if m.src == rank]


def answer() -> str:
    """The answer that the folded text gives."""
    return folded_code(source, "tree_answer")

"""The chapter on all-reduce algorithms: what its cells say, released and solved."""

from __future__ import annotations

import math
import re

import pytest
from allranks import explore, schedules
from test_chapters import RANKS, WIDGET, execute, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "17_all_reduce_algorithms"
source = source_of(CHAPTER)


def solved_fold() -> str:
    """The exercise's cell with the two pieces that the folded answer gives."""
    before, after = re.findall(r"```python\n(.*?)```", source("fold_answer"), flags=re.S)
    cell = source("recursive_doubling_all_reduce")
    for hole, piece in (("    # before the loop: your turn", before), ("    # after the loop: your turn", after)):
        assert cell.count(hole) == 1
        cell = cell.replace(hole, piece.rstrip())
    return cell


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_all_reduce_algorithms(ranks, solved):
    replace = {"recursive_doubling_all_reduce": solved_fold()} if solved else {}
    chapter = execute(read(CHAPTER, ranks, **replace))
    assert not chapter.errors()

    sent = [1000 * (ranks - 1)] + [1000] * (ranks - 1)
    assert chapter.text("flat_trace").endswith(f"bytes sent by each rank: {sent}")
    assert chapter.text("reveal_tree").startswith("8 ranks: 6 steps, 1024 ranks: 20\n")
    assert "swaps with rank 7" in chapter.text("reveal_doubling") and "it was 3\n" in chapter.text("reveal_doubling")
    for player in ("watch_tree", "watch_doubling", "watch_halving", "watch_double"):
        assert WIDGET in chapter.outputs(player)[0].data

    # the wire's clock is computed: 14 messages one after the other, and 3 steps, of 5 µs and 1000 bytes at 200 GB/s
    flat_us, doubling_us = re.findall(r"([\d.]+) µs", chapter.text("doubling_wire"))
    assert (float(flat_us), float(doubling_us)) == (70.07, 15.02)
    assert "batch_isend_irecv to rank 6, but there are only ranks 0 to 5" in chapter.text("six")

    verdict = chapter.text("recursive_doubling_all_reduce")
    assert ("passed (" in verdict) is solved
    assert ("Results are only right if the number of ranks is a power of two" in verdict) is not solved

    assert "1470 bytes in 6 steps" in chapter.text("reveal_halving")
    crossing = {
        line[:20].strip(): re.findall(r"([\d.]+) n", line) for line in chapter.text("crossing").splitlines()[1:]
    }
    assert crossing["ring"] == ["1.88", "15.00"]
    assert crossing["rabenseifner"] == ["1.00", "8.00"]
    for line in chapter.text("trees").splitlines():
        assert "with children: [" in line
    first, second = re.findall(r"with children: \[(.*?)\]", chapter.text("trees"))
    assert not set(first.split(", ")) & set(second.split(", "))

    (milliseconds,) = chapter.curves("segments").values()
    assert min(milliseconds, key=lambda point: point[1])[0] == 4  # which is what "about four" says

    assert WIDGET in chapter.outputs("competition")[0].data
    assert chapter.text("competition").startswith(
        "At 1,000,000 bytes on 32 ranks recursive doubling is the fastest: 50 µs"
    )
    winners = [explore.crossover(32, n, 5e-6, 200e9).text() for n in (1e3, 1e9)]
    assert "recursive doubling is the fastest" in winners[0] and "rabenseifner is the fastest" in winners[1]
    assert "it was 205\n" in chapter.text("reveal_answer")

    formula = {}
    for line in chapter.text("crossing_formula").splitlines():
        for pair in line.split(":", 1)[1].split(", "):
            for one, other, kb in re.findall(r"(\w[\w ]+) \| (\w+) (never|[\d,]+(?= KB))", pair):
                formula[int(line[3:8].strip(" :")), one, other] = (
                    None if kb == "never" else 1e3 * float(kb.replace(",", ""))
                )
    assert len(formula) >= 9
    for (p, one, other), nbytes in formula.items():
        if p < 1024:  # the schedules, added up move by move, cross there too
            left, right = (schedules.find("all_reduce", name)(p) for name in (one, other))
            prices = [(left.price(n, 5e-6, 5e-12), right.price(n, 5e-6, 5e-12)) for n in (1e3, nbytes or 1e6, 1e9)]
            assert nbytes is None or prices[1][0] == pytest.approx(prices[1][1], rel=2e-3)
            assert prices[0][0] <= prices[0][1] and (prices[2][0] > prices[2][1]) == (nbytes is not None)
    assert (formula[32, "rabenseifner", "ring"] is None) and (formula[24, "rabenseifner", "ring"] is not None)

    assert re.search(
        r"^alpha = [\d.]+ µs a message, 1/beta = [\d.]+ GB/s per direction$", chapter.text("sweep"), flags=re.M
    )
    lines = [x for x in chapter.text("crossing_measured").splitlines() if " | " in x]
    assert [x.split(":")[0] for x in lines] == ["tree | ring", "tree | rabenseifner", "rabenseifner | ring"]
    assert all(re.search(r"formula (never|[\d,]+ KB); measured (never|between \d+ and \d+ KiB)", x) for x in lines)
    assert {"tree", "rabenseifner", "ring"} < set(chapter.curves("crossing_measured"))

    rows = chapter.text("measured").splitlines()[1:]
    names = {row[:20].strip() for row in rows}
    assert names == {"flat", "library"} | ({"recursive doubling"} if math.log2(ranks).is_integer() else set())
    assert all(float(t) > 0 for row in rows for t in re.findall(r"([\d.]+) ms", row))

    latency = chapter.curves("tuner_table")
    ratios = [ring / tree for (_, ring), (_, tree) in zip(latency["ring"], latency["tree"], strict=True)]
    assert ratios[0] == pytest.approx(0.99, abs=0.005)  # one machine: equal within 2 %
    assert f"{ratios[0]:.2f} on 1 machine, {ratios[-1]:.1f} on 128" in chapter.text("tuner_table")
    assert ratios == sorted(ratios)


def test_the_doubling_moves_what_the_schedule_says():
    """The chapter's loop and the package's schedule are one algorithm in two forms."""
    import torch
    import torch.distributed as dist
    from allranks.ranks.wire import run

    namespace = {"torch": torch, "dist": dist, "math": math}
    exec(source("doubling_code"), namespace)
    for ranks in (2, 4, 8):
        outcome = run(namespace["doubling"], ranks=ranks, args=(torch.ones(3),), alpha=1.0)
        assert outcome.failure is None
        moves = {(m.src, m.dst) for m in schedules.recursive_doubling_all_reduce(ranks).moves}
        assert {(m.src, m.dst) for m in outcome.trace.messages()} == moves
        assert outcome.seconds == math.log2(ranks)

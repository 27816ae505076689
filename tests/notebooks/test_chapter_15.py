"""The chapter on all-to-all: what its cells show, and that its answer and its exchange are right."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, filled, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "15_all_to_all"
source = source_of(CHAPTER)


def solved_moe() -> str:
    """The cell of `moe_dispatch_combine` with the answer that its folded text gives."""
    return filled(source, "moe", "moe_answer", "    # the way back: your turn")


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_all_to_all(ranks, solved):
    chapter = execute(read(CHAPTER, ranks, **({"moe": solved_moe()} if solved else {})))
    everyone = range(ranks)

    errors = chapter.errors()
    assert set(errors) == {"skip", "disagree"}
    assert "it was 279 tokens\n" in chapter.text("reveal_serving")
    assert f"rank {ranks - 1}: done" in errors["skip"]
    assert "rank 0: in dist.all_to_all_single" in errors["skip"]
    assert "Rank 1 was killed" in errors["disagree"]

    for rank, text in chapter.by_rank("exchange_numbers").items():
        sent, received = ([10 * rank + r for r in everyone], [10 * r + rank for r in everyone])
        assert text == f"{sent}\n{received}"
    assert chapter.text("transpose").endswith("True")
    assert chapter.by_rank("again") == {rank: str([10 * rank + r for r in everyone]) for rank in everyone}

    tokens = {}
    for rank, text in chapter.by_rank("tokens").items():
        numbers, experts = (re.findall(r"\d+", line) for line in text.splitlines())
        assert numbers == [str(100 * rank + i) for i in range(6)]
        tokens |= dict(zip(numbers, map(int, experts), strict=True))
    for rank, text in chapter.by_rank("exchange_tokens").items():
        inbox = re.findall(r"\d+", text.splitlines()[1])
        assert inbox == [token for token, expert in tokens.items() if expert == rank]

    verdict = chapter.text("moe")
    assert ("passed" in verdict, "not yet" in verdict) == (solved, not solved)

    assert f"rank 0 sent {ranks - 1}" in chapter.text("traced")
    assert any(WIDGET in output.get("data", {}) for output in chapter.outputs("traced"))
    pairwise, bruck = (re.findall(r"(\d+) µs", line) for line in chapter.text("competition").splitlines()[1:])
    assert int(bruck[0]) < int(pairwise[0])
    assert int(pairwise[2]) < int(bruck[2])
    sent = dict(re.findall(r"(\w+) +([\d.]+) GB", chapter.text("bytes_each")))
    assert float(sent["ring_all_reduce"]) == pytest.approx(2 * float(sent["pairwise_all_to_all"]), abs=2e-3)

    rows = [line.split() for line in chapter.text("table").splitlines()[1:-1]]
    assert [int(row[0]) for row in rows] == [8**k for k in range(6)]
    assert all(float(cell) > 0 for row in rows for cell in row[1:])

    left = [float(x) for x in re.findall(r"([\d.]+) GB leave", chapter.text("nodes"))]
    assert left == [1.5, 6.0, 6.0]
    even, skewed = (float(x) for x in re.findall(r"(\d+) µs", chapter.text("skew")))
    assert skewed > 3 * even  # priced by the virtual clock, the same on every machine
    assert chapter.text("skew_explored").startswith("50 % of the tokens go to expert 0: 597 µs")
    assert WIDGET in chapter.outputs("skew_explored")[0].data
    assert "0.694 GB a rank" in chapter.text("bill")
    told = chapter.text("serving").splitlines()
    assert "1 tokens: messages  315 µs, bytes      1 µs" in told[0] and "4096 tokens" in told[-1]
    late = chapter.by_rank("late_live")
    assert len(late) == ranks and all(len(re.findall(r"[\d.]+ s", line)) == 2 for line in late.values())


def test_the_answer_is_right_and_the_exchange_moves_what_the_schedule_says(tmp_path):
    from allranks import check, schedules
    from allranks.ranks.wire import run

    file = tmp_path / "chapter.py"
    imports = "import torch\nimport torch.distributed as dist\n"
    file.write_text("\n\n".join([imports, source("exchange"), solved_moe().split("\n\n\ncheck(")[0]]) + "\n")
    namespace: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    assert check(namespace["moe_dispatch_combine"]).passed

    exchange = namespace["exchange"]

    def body():
        import torch
        import torch.distributed as dist

        p = dist.get_world_size()
        exchange(torch.ones(p, 3), torch.empty(p, 3))

    for ranks in (2, 3, 4, 5):
        outcome = run(body, ranks=ranks)
        assert outcome.failure is None
        moves = schedules.pairwise_all_to_all(ranks).moves
        planned = [(m.src, m.dst) for m in sorted(moves, key=lambda m: (m.src, m.step))]
        sent = [(m.src, m.dst) for m in sorted(outcome.trace.messages(), key=lambda m: (m.src, m.step))]
        # off powers of two the order is the same too; there the schedule's partner is r xor i instead of r + i
        assert sent == planned if ranks in (2, 3, 5) else sorted(sent) == sorted(planned)
        assert {m.nbytes for m in outcome.trace.messages()} == {12}

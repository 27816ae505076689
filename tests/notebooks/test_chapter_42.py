"""What changes on NCCL: each section shows under NCCL's rules what its text says."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, execute, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "42_what_changes_on_nccl"
source = source_of(CHAPTER)


@pytest.mark.parametrize("ranks", RANKS)
def test_what_changes_on_nccl(ranks):
    start = source("start_world")
    assert "World(rules=" in start
    late = source("late")
    assert "time.sleep(1)" in late
    replaced = {
        "start_world": start.replace("World(", f"World(ranks={ranks}, "),
        "late": late.replace("time.sleep(1)", "time.sleep(4)"),  # others may be late, too, on a busy machine
    }
    chapter = execute(read(CHAPTER, **replaced))
    errors = chapter.errors()
    assert set(errors) == {"too_early", "circle_run", "tag_order", "mismatch"}
    assert "gloo under NCCL's rules" in chapter.text("start_world")

    calls = re.findall(
        r"rank (\d+): sum (\d+), all_reduce returned after (\S+) s, reading it took (\S+) s", chapter.text("late")
    )
    assert [int(rank) for rank, *_ in calls] == list(range(ranks))
    for rank, total, call_s, read_s in calls:
        assert int(total) == 4 * ranks
        assert float(call_s) < 2
        assert rank == "0" or float(read_s) > 2
    assert "ar-figure" in chapter.outputs("late_figure")[-1].data["text/html"]

    assert "this reads a tensor that all_reduce, begun in line" in errors["too_early"]
    assert chapter.text("in_time") == str([4.0 * (ranks + 3)] * ranks)
    for words in (
        "in the CPU's memory", "expected all tensors on the same device", "tensor.cpu().numpy()", "torch.Generator(device)",
        "has gaps", "no int16", "no ReduceOp.BOR", "from any source", "only in a batch",
    ):  # fmt: skip
        assert words in chapter.text("refused")
    assert chapter.text("refused").count("\n    ") == 9
    assert "it was 9\n" in chapter.text("reveal_refused")
    assert "a pair's first message makes their connection" in errors["circle_run"]
    assert chapter.text("batch") == str([float((rank - 1) % ranks) for rank in range(ranks)])
    assert "NCCL ignores tags" in errors["tag_order"]
    assert f"rank {ranks - 1}: all_reduce of 3 elements" in errors["mismatch"]

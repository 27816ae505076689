"""The chapter on overlap: gradients from the last layer on, one order on all ranks, buckets, and figures that add up."""

from __future__ import annotations

import re

import pytest
from allranks import explore
from test_chapters import RANKS, WIDGET, execute, filled, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "21_overlap_and_bucketing"
source = source_of(CHAPTER)


def solved_buckets() -> str:
    """The cell of `bucketed_gradients` with the answer that its folded text gives."""
    return filled(
        source,
        "bucketed_mine",
        "bucketed_answer",
        "    buckets = [[parameter.grad for parameter in reversed(trained)]]  # your turn: this is one for all",
    )


def mixed(ranks: int) -> list[tuple[float, float]]:
    """What the hooks leave in A and B on each rank: the first call adds B of even ranks to A of odd ones."""
    even, odd = (ranks + 1) // 2, ranks // 2
    first, second = (10 * even + odd) / ranks, (even + 10 * odd) / ranks
    return [(second, first) if rank % 2 == 0 else (first, second) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_overlap_and_bucketing(ranks, solved):
    chapter = execute(read(CHAPTER, ranks, **({"bucketed_mine": solved_buckets()} if solved else {})))
    last = ranks - 1

    errors = chapter.errors()
    assert set(errors) == {"never"}
    assert f"rank {last}: done" in errors["never"]
    assert errors["never"].count("line 9: work.wait()") == last
    assert not any("Warning" in chapter.text(name) for name in chapter.cells if chapter.cells[name].cell_type == "code")

    for text in chapter.by_rank("ready_run").values():
        layers = [int(name[0]) for name in text.split(", ")]
        assert layers == [2, 2, 1, 1, 0, 0]
    for rank, text in chapter.by_rank("async_run").items():
        at_once, after = text.splitlines()
        assert after.split()[-1] == str(ranks)
        assert rank == 0 or "completed: False" in at_once  # rank 0 had not come yet

    difference, _ = chapter.text("one_step_run").splitlines()[-2:]
    assert float(difference.split()[-1]) < 1e-6
    assert WIDGET in chapter.outputs("one_step_player")[0].data

    found = re.findall(r"rank \d+: A ([\d.]+), B ([\d.]+)", chapter.text("order_run"))
    wanted = mixed(ranks)
    assert [(float(a), float(b)) for a, b in found] == [
        (pytest.approx(a, rel=1e-5), pytest.approx(b, rel=1e-5)) for a, b in wanted
    ]
    assert wanted[0] != (1, 10)

    rows = chapter.text("diary_run").splitlines()[-ranks:]
    for rank, row in enumerate(rows):
        assert row.endswith("bytes [20, 8, 12]  gradients 2 and 20")
        ready = "B A" if rank % 2 == 0 else "A B"
        assert f"{ready} [A B]" in row
        assert ("B [B] A [A]" if rank % 2 == 0 else "A B [B] [A]") in row
    calls = eval(chapter.text("rebuilt"))
    reduces = [i for i, (op, _) in enumerate(calls) if op == "all_reduce"]
    assert [calls[i][1] for i in reduces] == [20, 8, 12]
    assert ("broadcast", 8) in calls[reduces[0] : reduces[1]]  # rank 0's buckets

    every, skipped = (line.split(": ")[1].strip() for line in chapter.text("tied_run").splitlines()[-2:])
    assert "it was: once, at the embedding: last of all\n" in chapter.text("reveal_tied")
    assert every == "body.1.weight [body.1.weight] body.0.weight [body.0.weight] head.weight [head.weight]"
    assert skipped == "body.1.weight head.weight [head.weight] [body.1.weight] [body.0.weight]"

    verdict = chapter.text("bucketed_mine")
    assert ("passed" in verdict, "not yet" in verdict) == (solved, not solved)

    assert "it was: 50 MiB\n" in chapter.text("reveal_size")  # the best of the choices
    assert any(WIDGET in output.get("data", {}) for output in chapter.outputs("sizes_explored"))
    said = [
        explore.overlap(bucket_nbytes=nbytes, backward_s=0.3).text()
        for nbytes in (25 << 20, 50 << 20, 3200 << 20, 14e9)
    ]
    exposed = [float(re.search(r"waits ([\d.]+) ms", text)[1]) for text in said]
    assert exposed[1] < exposed[0] < 5 < exposed[2] and exposed[3] == pytest.approx(135.6, abs=0.5)

    table = chapter.text("measured_table").splitlines()[1:]
    rows = [line.split() for line in table if line.endswith("%")]
    assert [(row[0], int(row[1])) for row in rows] == [
        (kind, n) for kind in ("cores", "elsewhere") for n in (1, 2, 4, 8)
    ]
    for _, _, backward, communication, both, model, _ in rows:
        assert 0 < float(backward) < float(model)
        assert float(communication) > 0
        assert float(both) > 0
    layer_ms = float(re.search(r"takes ([\d.]+) ms", chapter.text("elsewhere"))[1])
    slept = [float(row[2]) for row in rows if row[0] == "elsewhere"]
    assert layer_ms >= 1 and all(
        ms >= 8 * 1.5 * (layer_ms - 0.05) for ms in slept
    )  # as long as communication, on any device
    assert chapter.text("no_sync_run").splitlines()[-2:] == [
        "no_sync=False: 4 all-reduces",
        "no_sync=True: 1 all-reduces",
    ]


def test_the_clock_takes_a_gpus_own_times_where_the_ranks_are_on_gpus(monkeypatch):
    """A GPU comes to the marks later than they are queued: here 2 s and 1 s before the moment that both clocks know."""
    import time

    import torch

    ages_ms = iter([2000.0, 1000.0, 0.0])

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing
            self.age_ms = next(ages_ms)

        def record(self):
            self.recorded = True

        def synchronize(self):
            assert self.recorded

        def elapsed_time(self, other):
            return self.age_ms - other.age_ms

    names = {"time": time, "torch": torch}
    exec(source("clock"), names)
    monkeypatch.setattr(torch, "get_default_device", lambda: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = names["Clock"]()
    clock.mark()
    clock.mark()
    began = time.monotonic()
    first, second = clock.seconds()
    assert second - first == pytest.approx(1)
    assert began - 1 <= second <= time.monotonic() - 1


def test_the_answer_is_right(tmp_path):
    from allranks import check

    file = tmp_path / "buckets.py"
    body = solved_buckets().split("\n\n\ncheck(")[0]
    file.write_text(f"import torch\nimport torch.distributed as dist\n\n\n{body}\n")
    namespace: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    assert check(namespace["bucketed_gradients"]).passed

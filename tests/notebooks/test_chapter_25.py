"""The chapter on pipelines: its bubbles against the formula, the orders against one process, and what torch has."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from test_chapters import RANKS, execute, off_by, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "25_pipelines"
source = source_of(CHAPTER)
ORDERS = ("gpipe", "one_f_one_b", "zb_h1")
PASSES = r"takes ([\d.]+) forward passes"


@pytest.mark.parametrize("ranks", RANKS)
def test_pipelines(ranks):
    chapter = execute(read(CHAPTER, ranks))
    everyone = range(ranks)
    errors = chapter.errors()
    assert set(errors) == {"blocking_1f1b"}
    assert chapter.text("answer") == "0.10 GB in 2 calls; GPUs work 12.5% of the time"

    bubbles = re.findall(r"m = (\d): idle \d+%, formula (\d+)%", chapter.text("bubbles"))
    assert bubbles == [(str(m), f"{100 * (ranks - 1) / (m + ranks - 1):.0f}") for m in (1, 2, 4, 8)]
    kept = [eval(line[line.index("[") :]) for line in chapter.text("one_f_one_b").splitlines() if "[" in line]
    assert kept == [[8] * ranks, [ranks - rank for rank in everyone]]
    assert "ar-pipeline" in chapter.outputs("figure")[-1].data["text/html"]
    lengths = [float(x) for x in re.findall(PASSES, chapter.text("figure"))]
    assert lengths == [3 * (7 + ranks)] * 2
    assert all(off_by(line) < 1e-4 for line in chapter.text("pipeline_check").splitlines())

    assert chapter.text("blocking_gpipe") == f"GPipe ended on {ranks} ranks"
    last = ranks - 1
    assert f"rank {last - 1}: in dist.send to rank {last}, float32[8, 16]" in errors["blocking_1f1b"]
    assert f"rank {last}: in dist.send to rank {last - 1}, float32[8, 16]" in errors["blocking_1f1b"]
    assert chapter.text("wire_deadlock").startswith("Deadlock")
    assert "<svg" in chapter.outputs("wire_deadlock")[0].data["text/html"]

    rows = [line.split() for line in chapter.text("axes_table").splitlines()[1:4]]
    assert [row[0] for row in rows] == ["tensor", "pipeline", "data"]
    sent = [float(row[2]) for row in rows]
    assert sent == pytest.approx([135.3, 3.2, 9.5])

    shares = [[int(x) for x in re.findall(r"(\d+)%", line)] for line in chapter.text("zb_h1").splitlines()[:2]]
    assert [computed for _, computed in shares] == [
        round(100 * (ranks - 1) * 3 / (3 * (7 + ranks))),
        round(100 * (ranks - 1) / (24 + ranks - 1)),
    ]
    assert float(chapter.text("zb_h1").split()[-1]) < 1e-5
    m = 2 * ranks
    made = re.findall(PASSES, chapter.text("shorter_figure"))
    assert [float(x) for x in made] == [3 * (m + ranks - 1), 3 * m + 1.5 * (ranks - 1), 3 * m + ranks - 1]
    assert len(set(re.findall(PASSES, chapter.text("zero_figure")))) == 1
    assert "as long" in chapter.text("reveal_zero")
    torchs = dict(line.split(":", 1) for line in chapter.text("of_torch").splitlines())
    assert set(torchs) == {"Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"}
    assert f"takes {3 * m + 0.5 * (ranks - 1):g} forward passes" in torchs["ZBVZeroBubble"]
    counted, computed = chapter.text("counted").splitlines()
    assert counted.split(maxsplit=1)[1] == computed.split(maxsplit=1)[1]
    scaled = chapter.text("scaled").splitlines()
    for line, ratio in zip(scaled, (1, 8, 1 / 8, 1), strict=True):
        assert f"losses on the ranks {[0] * (ranks - 1) + [8]}" in line
        found = re.search(r"gradients (.*) times", line)[1].split(", ")
        assert [float(x) for x in found] == pytest.approx([ratio] * ranks, rel=0.01)
    first, last = chapter.text("split").splitlines()
    assert "'2.0.bias'" in first and "3.0" not in first and last == "stage 1: ['3.0.weight', '3.0.bias']"
    resharded, kept = chapter.text("fsdp_counted").splitlines()
    for line in (resharded, kept):
        assert "1 reduce-scatter" in line and float(line.rsplit("off by ", 1)[1]) < 1e-5
    assert "False: 1 all-gathers" in kept
    assert int(re.search(r"(\d+) all-gathers", resharded)[1]) > 4


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_the_orders_end_where_a_send_waits_for_its_receiver(ranks):
    """The batches hold without any buffer, so with messages of any size on NCCL too."""
    import time

    import torch
    import torch.distributed as dist
    from allranks import pipelines, wire

    at_once = SimpleNamespace(
        monotonic=time.monotonic, sleep=lambda _: None
    )  # who waits for whom does not depend on it
    names = {"pipelines": pipelines, "time": at_once, "torch": torch, "dist": dist}
    for name in ("stage", "forward_backward", "exchange", "gpipe", "pipelined", "halves"):
        exec(source(name), names)
    exec(source("one_f_one_b").partition("runs =")[0], names)
    exec(source("zb_h1").partition("runs[")[0], names)
    with wire.Ranks(ranks) as pool:
        pool.import_autograd()
        for order in ORDERS:
            outcome = pool.run(names["pipelined"], args=(names[order], 4))
            assert outcome.failure is None
            kept = [max(entry[4] for entry in log) for log, _ in outcome.results]
            few = {"one_f_one_b": [min(ranks - rank, 4) for rank in range(ranks)], "zb_h1": [min(ranks, 4)] * ranks}
            assert kept == few.get(order, [4] * ranks)

"""The chapter on FSDP by hand: its order of calls, gradients against one process, whole blocks, and the published sizes."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "23_fsdp_by_hand"


@pytest.mark.parametrize("ranks", RANKS)
def test_fsdp_by_hand(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()
    forward = [f"{what}{i}" for i in range(4) for what in ("gather ", "F", "free ")]
    backward = [f"{what}{i}" for i in (3, 2, 1, 0) for what in ("gather ", "B", "scatter ", "free ")]
    assert chapter.text("step").split(", ") == forward + backward
    assert all(float(line.split()[-1]) < 1e-5 for line in chapter.text("right").splitlines())
    assert (
        chapter.text("keep_last").split()
        == "Sharded 8 gathers, at most 1 whole KeepLast 7 gathers, at most 1 whole".split()
    )
    times = re.findall(r"(\d+) ms, at most (\d) blocks whole", chapter.text("timed"))
    assert [int(whole) for _, whole in times] == [1, 2, 4]
    pass_ms = float(re.search(r"each pass take ([\d.]+) ms", chapter.text("one_gather"))[1])
    assert all(int(took) + 1 >= 8 * (pass_ms - 0.05) for took, _ in times)
    assert chapter.text("llama") == "a block 0.44 GB, embedding and head 2.10 GB, all 16.1 GB"
    assert chapter.text("llama_peaks").splitlines() == [
        "never freed  16.06 GB of whole weights at most",
        "prefetch      2.97 GB of whole weights at most",
    ]
    sent = [float(line.split()[-6]) for line in chapter.text("bytes_table").splitlines()]
    assert sent == [28.1, 56.2, 42.2, 56.2, 42.2]
    per_node = ranks // 2 if ranks % 2 == 0 else ranks
    mean, calls = chapter.text("hsdp_live").splitlines()
    assert mean == f"nodes of {per_node}: mean {(ranks - 1) / 2:g}, should be {(ranks - 1) / 2:g}"
    assert eval(calls) == [("reduce_scatter_tensor", 4 * 3360), ("all_reduce", 4 * (3360 // per_node))]
    assert "HSDP, between nodes    7.0 GB" in chapter.text("hsdp_price")
    assert "FSDP over 64          63.2 GB" in chapter.text("hsdp_price")
    assert "7.9 GB for each GPU leave a node" in chapter.text("hsdp_price")
    for m, fsdp, hsdp in re.findall(r"(\d+) micro-batches: FSDP +(\S+) s, HSDP +(\S+) s", chapter.text("hsdp_price")):
        assert (float(hsdp) < float(fsdp)) == (int(m) > 2)  # the order reverses
    assert "it was 3 micro-batches\n" in chapter.text("reveal_hsdp")
    sizes = [p for p in (1, 2, 4, 8) if p < ranks] + [ranks]
    lines = re.findall(
        r"(\w+) +(\d) ranks: +([\d.]+) ms \(([\d.]+) to ([\d.]+)\), efficiency +(\d+)%", chapter.text("study_table")
    )
    pass_ms = float(re.search(r"a pass of 120 samples ([\d.]+) ms", chapter.text("study_run"))[1])
    assert [(name, int(p)) for name, p, *_ in lines] == [(name, p) for name in ("strong", "weak") for p in sizes]
    for name, p, median, low, high, _ in lines:
        stated = 8 * (pass_ms - 0.05) / (int(p) if name == "strong" else 1)  # 120 samples, or a rank's share of them
        assert stated - 0.1 <= float(low) <= float(median) <= float(high)
    fair, *_ = (int(line.split()[-1].rstrip("%")) for line in chapter.text("mistakes").splitlines())
    assert fair == [int(share) for kind, *_, share in lines if kind == "strong"][-1]
    real = chapter.text("study_real").splitlines()
    assert [re.findall(r"(\d+)%", line) for line in real] == [
        ["100", "94", "37"],
        ["100", "94", "37"],
        ["100", "100", "99"],
    ]

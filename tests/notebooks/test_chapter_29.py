"""The chapter that prices a training run: its figures are workload's, and its prose says what its cells print."""

from __future__ import annotations

import re

import pytest
from allranks.theory.cost import workload
from allranks.theory.cost.plan import plan
from allranks.theory.cost.step import training_step
from allranks.theory.cost.workload import Cluster
from test_chapters import WIDGET, execute, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]
CHAPTER = "29_price_a_training_run"


def source(name: str) -> str:
    """The source of a cell of the chapter, its lines joined."""
    return " ".join(source_of(CHAPTER)(name).splitlines())


def test_the_chapter_on_prices():
    # a reader who presses buttons before going on: the cell after the picture does it
    found = "mine.set(tp=4, pp=2, zero_stage=1)\n"
    sweep = source_of(CHAPTER)("sweep")
    chapter = execute(read(CHAPTER, sweep=found + sweep))
    assert not chapter.errors()
    shown = chapter.outputs("your_split")[0].data
    assert WIDGET in shown and "<script" in shown["text/html"]

    whole = workload.ddp(7e9, Cluster(32, 200e9), bucket_nbytes=None)
    assert (1e3 * whole.seconds, whole.bytes_sent / 1e9) == (
        pytest.approx(135.6, abs=0.05),
        pytest.approx(27.12, abs=0.01),
    )
    assert chapter.text("known_price") == "135.6 ms in 1 call; a rank sends 27.12 GB"
    cut = workload.ddp(7e9, Cluster(32, 200e9, 5e-6))
    assert chapter.text("buckets_price") == f"{1e3 * cut.seconds:.1f} ms in 535 calls"

    stages = re.findall(r"stage (\d): +([\d.]+) GB a rank, +([\d.]+) s", chapter.text("stages"))
    assert [float(gb) <= 80 for _, gb, _ in stages] == [False, False, False, True]  # "only stage 3 fits"
    buckets, whole = (plan("LLaMA 65B", "dgx-h100", dp=64, zero_stage=z, batch=2048).prices["data"] for z in (0, 1))
    assert buckets.seconds == pytest.approx(whole.seconds)  # "stages 0 and 1 take equally long"
    gathers = workload.zero(3, 65.2e9 / 80, Cluster(64, 371e9, 5e-6), bucket_nbytes=None).times(32 * 80)
    assert f"{gathers.calls} calls of 1.6 GB" in source("stages_explained") and float(stages[3][2]) == pytest.approx(
        gathers.seconds, abs=0.005
    )

    lines = chapter.text("best").splitlines()
    theirs = training_step(plan("LLaMA 65B", "dgx-h100", dp=8, tp=4, pp=2, zero_stage=1, batch=2048))
    assert "ZeRO 1 DP  8 TP 4 PP 2 CP 1" in lines[1] and f"{theirs.seconds:7.2f} s" in lines[1]
    seconds = [float(re.search(r"([\d.]+) s, of", line)[1]) for line in lines[3:]]
    assert seconds == sorted(seconds) and "ZeRO 3 DP 64" in lines[3]  # "the winner sends for 36 s"
    assert all(float(re.search(r"([\d.]+) GB", line)[1]) <= 80 for line in lines[3:])
    assert float(stages[3][2]) == pytest.approx(36, abs=0.5) and "0.01 s lost" in lines[3]  # "hides nearly all of it"
    fast, small, slow = chapter.text("compute").splitlines()
    assert "ZeRO 3" in fast and "ZeRO 3" in small and "ZeRO 1 DP  4 TP 1 PP 8" in slow  # "with 64 sequences only"

    machines = dict(line.split(None, 1) for line in chapter.text("machines").splitlines())
    tensor = {name: float(re.search(r"tensor +([\d.]+)", text)[1]) for name, text in machines.items()}
    assert max(tensor, key=tensor.get) == "cloud-ethernet"
    whole_s = sum(map(float, re.findall(r"([\d.]+) s", machines["cloud-ethernet"])))
    assert whole_s == pytest.approx(180, abs=15)  # "three minutes"
    pipelined = plan("LLaMA 65B", "cloud-ethernet", dp=4, pp=16, zero_stage=1, batch=2048)
    assert f"DP 4, PP 16 takes {pipelined.seconds:.0f} s" in source("machines_explained")

    def experts(ep, what):
        line = next(x for x in chapter.text("experts_price").splitlines() if x.startswith(f"EP {ep}, ") and what in x)
        return [float(x) for x in re.findall(r"([\d.]+) (?:GB|s)\b", line)]

    assert experts(8, "in all")[1] < experts(1, "in all")[1] and experts(8, "in all")[2] > experts(1, "in all")[2]
    shapes = {"dp": 32, "zero_stage": 1, "batch": 512}
    one, cut, spread = (
        plan("Mixtral 8x7B", "dgx-h100", **shapes, **way) for way in ({"bucket_nbytes": None}, {}, {"ep": 8})
    )
    said = f"{cut.seconds - one.seconds:.1f} s of $\\alpha$ for {cut.calls} calls"
    assert said in source("experts_explained") and spread.seconds < cut.seconds
    assert experts(8, "data")[0] < experts(1, "data")[0] / 7 and experts(8, "data")[1] > experts(1, "data")[1] / 2

"""The chapter with the calculator: its figures are workload's, and its prose says what its cells print."""

from __future__ import annotations

import re

import pytest
from allranks.cost import workload
from allranks.cost.plan import plan
from allranks.cost.workload import Cluster
from test_chapters import WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]
CHAPTER = "93_price_a_training_run"


def source(name: str) -> str:
    """The source of a cell of the chapter, its lines joined."""
    return " ".join(next(cell.source for cell in read(CHAPTER).cells if cell.id == name).splitlines())


def test_the_calculators_chapter():
    # a reader who turns the knobs by hand before going on: the cell after the calculator does it
    found = "calculator.fields['tp'].value = 0\nprint(calculator.problem)\n"
    found += "calculator.set(dp=8, tp=4, pp=2, zero_stage=1)\n"
    sweep = next(cell.source for cell in read(CHAPTER).cells if cell.id == "sweep")
    chapter = execute(read(CHAPTER, sweep=found + sweep))
    assert not chapter.errors()
    for name in ("known_price", "calculator"):
        data = chapter.outputs(name)[0].data
        assert WIDGET in data and "<table>" in data["text/html"]

    whole = workload.ddp(7e9, Cluster(32, 200e9), bucket_nbytes=None)
    row = re.search(r"^data .*?([\d,]+) calls +([\d.]+) GB +([\d.]+) ms$", chapter.text("known_price"), flags=re.M)
    assert (
        row.groups() == ("1", f"{whole.bytes_sent / 1e9:.2f}", f"{1e3 * whole.seconds:.1f}") == ("1", "27.12", "135.6")
    )
    cut = workload.ddp(7e9, Cluster(32, 200e9, 5e-6))
    assert chapter.text("buckets_price") == f"{1e3 * cut.seconds:.1f} ms in 535 calls"

    stages = re.findall(r"stage (\d): +([\d.]+) GB a rank, +([\d.]+) s", chapter.text("stages"))
    assert [float(gb) <= 80 for _, gb, _ in stages] == [False, False, False, True]  # "only stage 3 fits"
    buckets, whole = (plan("LLaMA 65B", "dgx-h100", dp=64, zero_stage=z, batch=2048).prices["data"] for z in (0, 1))
    assert buckets.bytes_sent == whole.bytes_sent  # "stages 0 and 1 send the same bytes"
    said = f"pays {buckets.seconds - whole.seconds:.1f} s of $\\alpha$ for its {buckets.calls} buckets"
    assert said in source("stages_explained")
    gathers = workload.zero(3, 65.2e9, Cluster(64, 371e9, 5e-6)).times(32)
    assert gathers.calls == 96 and float(stages[3][2]) == pytest.approx(gathers.seconds, abs=0.005)

    assert chapter.text("sweep") == "TP is 0; it is a whole number above 0."
    lines = chapter.text("best").splitlines()
    theirs = plan("LLaMA 65B", "dgx-h100", dp=8, tp=4, pp=2, zero_stage=1, batch=2048)
    assert "DP  8 TP 4 PP  2 stage 1" in lines[1] and f"{theirs.seconds:8.3f} s" in lines[1]
    seconds = [float(re.search(r"([\d.]+) s,", line)[1]) for line in lines[3:]]
    assert seconds == sorted(seconds) and all("TP 1 PP" in line for line in lines[3:5])  # "pipelines send the least"
    assert all(float(re.search(r"([\d.]+) GB", line)[1]) <= 60 for line in lines[3:])
    best, worst = (float(t) for t in re.findall(r": ([\d.]+)% of", chapter.text("compute")))
    assert best < 5 and worst > 100  # "there is room", and "the worst splits are avoided"

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
    assert experts(8, "data")[0] < experts(1, "data")[0] / 7 and experts(8, "data")[1] > experts(1, "data")[1] / 2

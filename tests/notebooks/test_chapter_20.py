"""The chapter on data parallelism by hand: the copies stay equal, and each thing that parts them does."""

from __future__ import annotations

import re

import pytest
import torch
from test_chapters import RANKS, WIDGET, execute, filled, read, source_of
from torch.utils.data import DistributedSampler

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "20_data_parallel"
source = source_of(CHAPTER)


def solved_mean() -> str:
    """The cell of `distributed_mean` with the answer that its folded text gives."""
    return filled(source, "mean_mine", "mean_answer", "    mean = tensor.clone()\n    # your turn")


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_data_parallel(ranks, solved):
    chapter = execute(read(CHAPTER, ranks, **({"mean_mine": solved_mean()} if solved else {})))
    everyone = range(ranks)

    errors = chapter.errors()
    assert set(errors) == {"uneven_run", "ddp_unused"}
    assert f"rank {ranks - 1}: done" in errors["uneven_run"]
    assert "rank 0: in dist.all_reduce, float32[1], line 4" in errors["uneven_run"]
    assert "Expected to have finished reduction in the prior iteration" in errors["ddp_unused"]
    # two backward passes, in each of which the ranks that used head A brought ones and the others zeros
    users = (ranks + 1) // 2
    found = [float(x) for x in re.findall(r"True: \[\[([\d.]+), ([\d.]+)\]\]", chapter.text("ddp_unused"))[0]]
    assert found == pytest.approx([2 * users / ranks] * 2)

    assert len(set(chapter.by_rank("build").values())) == ranks
    assert set(chapter.by_rank("broadcast").values()) == {chapter.by_rank("build")[0]}

    dealt = {rank: re.findall(r"\[.*\]", text) for rank, text in chapter.by_rank("sampler").items()}
    padded, dropped = ([eval(dealt[rank][i]) for rank in everyone] for i in (0, 1))
    assert {len(mine) for mine in dropped} == {2}
    assert sorted([i for mine in dropped for i in mine]) == list(range(2 * ranks))
    assert len({len(mine) for mine in padded}) == 1
    assert {i for mine in padded for i in mine} == set(range(2 * ranks + 1))
    for text in chapter.by_rank("epochs").values():
        first, second, after = re.findall(r"\[.*\]", text)
        assert first == second != after

    between, alone, never = (float(line.split()[-1]) for line in chapter.text("runs").splitlines()[-3:])
    assert between == 0
    assert alone < 1e-5
    assert never > 1e-3
    assert chapter.curves("figure")

    sgd, adam = (float(line.split()[1]) for line in chapter.text("forgot").splitlines()[-2:])
    assert sgd == pytest.approx(ranks, rel=1e-3)
    assert adam == pytest.approx(1, rel=1e-2)
    verdict = chapter.text("mean_mine")
    assert ("passed" in verdict, "not yet" in verdict) == (solved, not solved)

    difference, hand, ddp = chapter.text("ddp_compare").splitlines()
    assert float(difference.split()[-1]) < 1e-6
    assert re.findall(r"'all_reduce', (\d+)", hand) == ["1024", "128", "128", "4"]
    assert re.findall(r"'all_reduce', (\d+)", ddp) == ["1284"]
    assert "'broadcast', 1284" in ddp
    assert WIDGET in chapter.outputs("ddp_player")[0].data

    times = [float(x) for x in re.findall(r"([\d.]+) ms", chapter.text("table"))]
    assert len(times) == 3
    assert all(t > 0 for t in times)
    counted = chapter.text("server_counted")
    mean = ranks / 2  # of the workers' numbers, 1 to p - 1
    assert f"the workers' mean: {[mean] * ranks}" in counted
    worker = 4000 * (ranks - 1)
    assert f"bytes sent with a server: {[(ranks - 1) * worker] + [worker] * (ranks - 1)}" in counted
    assert "  40 workers, 100 MB, 10 Gb/s: one server  6.40 s, a ring 0.16 s" in chapter.text("server_price")
    assert "1024 GPUs: one call   150.1 ms, efficiency  77%; 535 buckets  5612.9 ms, efficiency   8%" in chapter.text(
        "efficiency_shown"
    )

    total = {head: float(sum(r + 1 for r in everyone if r % 2 == i)) for i, head in enumerate("AB")}
    *skipping, zeros = chapter.text("unused_run").splitlines()[-ranks - 1 :]
    mixed = [float(sum(total.values()))] * 2
    for rank, line in enumerate(skipping):
        heads = eval(line[line.index("{") :])
        used, other = ("A", "B") if rank % 2 == 0 else ("B", "A")
        assert heads == {used: mixed, other: None}
    assert eval(zeros.removeprefix("zeros instead: ")) == {head: [t, t] for head, t in total.items()}

    masks = [text.splitlines() for text in chapter.by_rank("dropout").values()]
    assert len({equal for equal, _ in masks}) == 1
    assert len({own for _, own in masks}) == ranks


def test_the_sampler_shuffles_on_the_cpu_whatever_the_default_device(monkeypatch, capsys):
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    names = {"torch": torch, "world_size": 4, "DistributedSampler": DistributedSampler}
    torch.set_default_device("meta")  # like a GPU's it takes no generator of the CPU
    try:
        exec(source("epochs").removeprefix("%%ranks"), names)
    finally:
        torch.set_default_device(None)
    assert "first epoch" in capsys.readouterr().out


def test_the_answer_is_right(tmp_path):
    from allranks import check

    file = tmp_path / "mean.py"
    body = solved_mean().split("\n\n\ncheck(")[0]
    file.write_text(f"import torch\nimport torch.distributed as dist\n\n\n{body}\n")
    namespace: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    assert check(namespace["distributed_mean"]).passed

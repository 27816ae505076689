"""The chapter on topology: what it simulates, what it counts between pretended nodes, and that its answer is right."""

from __future__ import annotations

import re

import pytest
from allranks.theory.topology import round_robin
from test_chapters import RANKS, WIDGET, execute, folded_code, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "40_topology"
source = source_of(CHAPTER)


def answer() -> str:
    """The chapter's `ranks_by_node` as its folded text gives it."""
    return folded_code(source, "judge_answer")


def numbers(line: str) -> list[float]:
    """The decimal numbers of a line."""
    return [float(x) for x in re.findall(r"\d+\.\d+", line)]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_topology(ranks, solved):
    chapter = execute(read(CHAPTER, ranks, **({"ranks_by_node": answer()} if solved else {})))
    assert not chapter.errors()
    g = ranks // 2 if ranks % 2 == 0 else 1
    m, n = ranks // g, 480

    assert re.search(r"dgx-h100 +8 +371.0 +50.0 +8 +7.4:1", chapter.text("presets"))
    # 2 * 31 hops of 5 µs and 1/32 GB at 50 GB/s
    flat_ms = 62 * (5e-6 + 1e9 / 32 / 50e9) * 1e3
    simulated, formula = numbers(chapter.text("ring"))[:2]
    assert simulated == formula == pytest.approx(flat_ms, abs=0.05)
    assert "cards used: {7}" in chapter.text("ring")
    assert [numbers(line)[-1] for line in chapter.text("robin").splitlines()] == [1.0, 8.0]
    assert any(WIDGET in output.get("data", {}) for output in chapter.outputs("watch"))
    assert WIDGET in chapter.outputs("placement")[0].data
    assert chapter.text("placement").startswith(f"ring, ranks in order, on dgx-h100: {formula:.1f} ms")

    found = re.findall(r"^(\S+) +(\w+) +([\d.]+) ms, a rank sends at most ([\d.]+) GB", chapter.text("two_levels"), flags=re.M)  # fmt: skip
    dgx, cloud = ({name: float(ms) for of, name, ms, _ in found if of == machine} for machine in ("dgx-h100", "cloud-ethernet"))  # fmt: skip
    assert min(dgx, key=dgx.get) == "hierarchical"
    assert min(cloud, key=cloud.get) == "ring"
    assert dgx["hierarchical"] < dgx["ring"] / 4
    assert dgx["leader"] > dgx["ring"]
    pcie_ms = 1e3 * (14 * 4e-6 + 1.75e9 / 31.5e9)  # two walks of 7 steps inside
    saved_ms = cloud["ring"] - (cloud["hierarchical"] - pcie_ms)
    assert f"saves {saved_ms:.0f} ms, but the steps inside cost {pcie_ms:.0f} ms" in source("two_explained")
    assert {float(gb) for _, name, _, gb in found if name != "leader"} == {1.938}  # "equally many bytes in both cases"
    two_ms = 1e3 * (14 * 2e-6 + 1.75e9 / 371e9 + 6 * 5e-6 + 1.5e9 / 8 / 50e9)
    formulas, *in_pieces = chapter.text("two_formula").splitlines()
    by_formula, by_events, bound = numbers(formulas)
    assert by_formula == by_events == pytest.approx(two_ms, abs=1e-2)
    assert bound < by_formula
    rings, levels, cloud_rings, cloud_levels = (numbers(line)[-1] for line in in_pieces)
    assert bound < levels == pytest.approx(rings, rel=0.03)  # "eight rings are as good as two levels"
    assert cloud_levels < cloud_rings == cloud["ring"]  # "two levels win after all"; "as one ring's bytes did"
    # the question's two figures
    assert f"in {by_formula:.0f} ms, or in {formula:.0f} ms" in source("title")

    by_nodes = chapter.curves("busbw_nodes")
    assert set(by_nodes) == {"1 GiB", "16 MiB", "1 MiB"}
    for points in by_nodes.values():
        assert [x for x, _ in points] == [1, 2, 4, 8, 16, 32, 64]
        assert points[0][1] > points[-1][1]

    rails = [numbers(line) for line in chapter.text("rails").splitlines()[1:]]
    assert rails[0][0] == rails[0][2] < rails[0][3]
    assert rails[1] == sorted(rails[1])
    assert rails[1][3] > 4 * rails[1][0]
    assert len(set(rails[2])) == 1
    assert rails[3][3] > 1.9 * rails[3][0]

    assert [line.split()[0] for line in chapter.text("doctor").splitlines()] == ["gpus", "links", "cores", "shared"]
    everybody = str(list(range(ranks)))
    assert len(chapter.by_rank("hosts")) == ranks
    assert all(text.endswith(f"my node has ranks {everybody}") for text in chapter.by_rank("hosts").values())
    lines = re.findall(r"^(.+?)  +(\w+) +(\d+) +([\d.]+) ms +([\d.]+) ms$", chapter.text("crossing_counted"), flags=re.M)  # fmt: skip
    assert [name for name, *_ in lines] == ["ring", "ring, round robin", "two levels", "two levels, round robin"]
    assert {right for _, right, *_ in lines} == {"True"}
    crossed = {name: int(kb) for name, _, kb, *_ in lines}
    own_ms, one_ms = ({name: float(row[i]) for name, *row in lines} for i in (2, 3))
    ring_hop = 2 * (ranks - 1) / ranks * n
    assert crossed["ring"] == pytest.approx(m * ring_hop, abs=1)
    assert crossed["ring, round robin"] == pytest.approx(ranks * ring_hop, abs=1)
    assert crossed["two levels"] == pytest.approx(2 * (m - 1) * n, abs=1)
    if g > 1:
        assert crossed["two levels, round robin"] > 1.5 * crossed["two levels"]
        assert own_ms["two levels"] < own_ms["two levels, round robin"]
        assert own_ms["ring"] == own_ms["ring, round robin"]
        assert one_ms["ring, round robin"] > 1.9 * one_ms["ring"]
    else:
        assert len(set(crossed.values())) == 1

    judged = {line[:12].strip(): int(re.search(r"(\d+) kB cross", line)[1]) for line in chapter.text("judge").splitlines()}  # fmt: skip
    assert list(judged) == ["in order", "round robin", "by pairs"]
    assert judged["in order"] == 960
    assert (set(judged.values()) == {960}) is solved
    if not solved:
        assert judged["round robin"] > judged["by pairs"] > 960


@pytest.mark.parametrize("together", [1, 2, 4])
def test_the_answer_finds_the_nodes_however_ranks_were_dealt(together):
    namespace: dict = {}
    exec(answer(), namespace)
    seats = round_robin(12, 4, together)
    nodes = namespace["ranks_by_node"]([f"node{seat // 4}" for seat in seats])
    assert sorted(rank for node in nodes for rank in node) == list(range(12))
    assert [{seats[rank] // 4 for rank in node} for node in nodes] == [{0}, {1}, {2}]

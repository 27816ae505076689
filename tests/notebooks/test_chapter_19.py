"""The chapter on topology: what it simulates, what it counts between pretended nodes, and that its answer is right."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "19_topology"
PLANS = ("ring in order", "ring, round robin", "two levels, wrong", "two levels")


def source(name: str) -> str:
    """The source of a cell of the chapter."""
    return next(cell.source for cell in read(CHAPTER).cells if cell.id == name)


def answer() -> str:
    """The chapter's `hierarchical_all_reduce` as its folded text gives it."""
    return re.search(r"```python\n(.*?)```", source("hierarchical_answer"), flags=re.S).group(1)


def numbers(line: str) -> list[float]:
    """The decimal numbers of a line."""
    return [float(x) for x in re.findall(r"\d+\.\d+", line)]


def by_plan(text: str) -> dict[str, str]:
    """The lines of a table that begin with the name of a plan."""
    return {next(plan for plan in PLANS if line.startswith(plan)): line for line in text.splitlines() if line.startswith(PLANS)}  # fmt: skip


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_topology(ranks, solved):
    replace = {"hierarchical": f"{answer()}\n\ncheck(hierarchical_all_reduce)"} if solved else {}
    chapter = execute(read(CHAPTER, ranks, **replace))
    assert not chapter.errors()
    g = ranks // 2 if ranks % 2 == 0 else 1
    m, n = ranks // g, 480

    assert [line.split()[0] for line in chapter.text("doctor").splitlines()] == ["gpus", "links", "cores", "shared"]
    assert len(chapter.by_rank("seats")) == ranks
    assert len(re.findall(r"^\d+ and \d+: +\d+ µs$", chapter.text("distance_table"), flags=re.M)) == ranks * (ranks - 1) / 2  # fmt: skip
    assert re.search(r"dgx-h100 +8 +371.0 +50.0 +8 +7.4:1", chapter.text("presets"))

    # 2 * 31 hops of 5 µs and 1/32 GB at 50 GB/s
    flat_ms = 62 * (5e-6 + 1e9 / 32 / 50e9) * 1e3
    simulated, formula = numbers(chapter.text("ring"))[:2]
    assert simulated == formula == pytest.approx(flat_ms, abs=0.05)
    assert "cards used: {7}" in chapter.text("ring")
    assert [numbers(line)[-1] for line in chapter.text("placed").splitlines()] == [1.0, 8.0]
    assert any(WIDGET in output.get("data", {}) for output in chapter.outputs("watch"))

    found = {}
    for line in chapter.text("two_table").splitlines():
        machine, name = re.match(r"(\S+) +(.*?)  +", line).groups()
        found[machine, name] = numbers(line)[-1]
    dgx, cloud = ({name: ms for (of, name), ms in found.items() if of == m} for m in ("dgx-h100", "cloud-ethernet"))
    assert min(dgx, key=dgx.get) == "hierarchical"
    assert min(cloud, key=cloud.get) == "ring"
    assert dgx["hierarchical"] < dgx["eight rings"] < dgx["ring"] / 3
    assert dgx["leader"] > dgx["ring"]
    two_ms = 1e3 * (14 * 2e-6 + 1.75e9 / 371e9 + 6 * 5e-6 + 1.5e9 / 8 / 50e9)
    by_formula, by_events = numbers(chapter.text("formula"))[:2]
    assert by_formula == by_events == pytest.approx(two_ms, abs=1e-2)
    # the question's two figures
    assert f"in {by_formula:.0f} ms, or in {formula:.0f} ms" in source("title")
    assert "a rank sends 1.938 GB, in the flat ring 1.938 GB" in chapter.text("formula")

    places = chapter.by_rank("live_groups")
    assert places == {rank: f"place {rank % g} of node {rank // g}: equal True" for rank in range(ranks)}

    lines = by_plan(chapter.text("crossing_counted"))
    assert set(lines) == set(PLANS)
    assert all("sum right: True" in line for line in lines.values())
    crossed = {plan: int(re.search(r"crossed +(\d+) kB", line)[1]) for plan, line in lines.items()}
    ring_hop = 2 * (ranks - 1) / ranks * n
    assert crossed["ring in order"] == pytest.approx(m * ring_hop, abs=1)
    assert crossed["ring, round robin"] == pytest.approx(ranks * ring_hop, abs=1)
    assert crossed["two levels"] == pytest.approx(2 * (m - 1) * n, abs=1)
    if g > 1:
        assert crossed["two levels, wrong"] > 1.5 * crossed["two levels"]

    modelled, measured = {}, {}
    for plan, line in by_plan(chapter.text("emulated_table")).items():
        modelled[plan], measured[plan] = numbers(line)[:2]
    assert set(modelled) == set(PLANS)
    # the sleeps of one rank's messages are in the measured time, whatever else is
    assert all(measured[plan] > 0.5 * modelled[plan] for plan in PLANS)
    if g > 1:
        assert modelled["two levels"] < modelled["two levels, wrong"] < modelled["ring in order"]

    rails = [numbers(line) for line in chapter.text("rails").splitlines()[1:]]
    assert rails[0][0] == rails[0][2] < rails[0][3]
    assert rails[1] == sorted(rails[1])
    assert rails[1][3] > 4 * rails[1][0]
    assert len(set(rails[2])) == 1
    assert rails[3][3] > 1.9 * rails[3][0]

    slow = {line[:16].strip(): numbers(line) for line in chapter.text("stragglers").splitlines()}
    healthy = slow["healthy"]
    assert slow["rank 5 slow"][0] == healthy[0]
    assert slow["rank 5 slow"][1] == pytest.approx(2 * healthy[1], rel=0.01)
    assert slow["rank 7 slow"][0] == pytest.approx(2 * healthy[0], rel=0.01)
    assert slow["card 3 gone"][0] == healthy[0]
    assert slow["card 3 gone"][1] > 1.3 * healthy[1]

    verdict = chapter.text("hierarchical")
    assert ("passed" in verdict, "not yet" in verdict) == (solved, not solved)
    assert ("as if it spoke for its whole node" in verdict) is not solved


def test_the_answer_is_right(tmp_path):
    from allranks import check

    file = tmp_path / "hierarchical.py"
    file.write_text(f"import torch\nimport torch.distributed as dist\n\n\n{answer()}")
    namespace: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    verdict = check(namespace["hierarchical_all_reduce"])
    assert verdict.passed, verdict.reason

"""The chapter on barriers and groups: who waits for whom, what groups hold, and the ways in which they hang."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, filled, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "16_barrier_and_groups"
source = source_of(CHAPTER)


def solved_hierarchy() -> str:
    """The cell of `hierarchical_all_reduce` with the answer that its folded text gives."""
    return filled(source, "hierarchical", "hierarchical_answer", "    place = None  # your turn")


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_barrier_and_groups(ranks, solved):
    chapter = execute(read(CHAPTER, ranks, **({"hierarchical": solved_hierarchy()} if solved else {})))
    everyone = range(ranks)
    teams = 2 if ranks % 2 == 0 else 1
    columns = ranks // teams
    total = ranks * (ranks + 1) // 2

    errors = chapter.errors()
    assert set(errors) == {"members_only", "order"}
    assert "rank 0: in dist.new_group, line 6" in errors["members_only"]
    assert set(chapter.by_rank("members_only").values()) == {"so far, so good"}
    for rank in everyone:
        assert f"rank {rank}: in dist.all_reduce, float32[1], line 6" in errors["order"]

    waits = [float(text.split()[1]) for text in chapter.by_rank("wait").values()]
    ours = [float(x) for x in re.findall(r"[\d.]+", chapter.text("own_wait").splitlines()[0])]
    for waited in (waits, ours):
        assert waited[0] > waited[-1]  # the first one waits for the last
    assert set(chapter.by_rank("file").values()) == {"6 words"}
    assert "it was: all in the same round\n" in chapter.text("reveal_first")
    for name in ("watch", "own_wait"):
        assert any(WIDGET in output.get("data", {}) for output in chapter.outputs(name))
    assert f"{(ranks - 1).bit_length()} rounds" in chapter.text("own_timings")

    width = 2 if ranks % 2 == 0 else ranks
    for rank, text in chapter.by_rank("rows").items():
        row = list(range(rank // width * width, (rank // width + 1) * width))
        assert text == f"{sum(r + 1 for r in row)}; rank {rank} is number {row.index(rank)} of {row}"
    outsider = chapter.by_rank("outsider")
    assert "does not belong to the given group" in outsider.pop(ranks - 1)
    assert set(outsider.values()) == {str(ranks - 1)}

    assert "[8, 9, 10, 11, 12, 13, 14, 15]" in chapter.text("grid")
    for rank, text in chapter.by_rank("mesh_live").items():
        team, place = divmod(rank, columns)
        in_team = sum(r + 1 for r in everyone if r // columns == team)
        assert text == f"({team}, {place}): team {in_team}, all {total}"
    verdict = chapter.text("hierarchical")
    assert ("passed" in verdict, "not yet" in verdict) == (solved, not solved)


def test_the_answer_is_right_and_the_barrier_moves_what_the_schedule_says(tmp_path):
    from allranks import check, schedules
    from allranks.ranks.wire import run

    file = tmp_path / "chapter.py"
    imports = "import torch\nimport torch.distributed as dist\n"
    body = solved_hierarchy().split("\n\n\ncheck(")[0]
    file.write_text("\n\n".join([imports, source("own_barrier"), body]) + "\n")
    namespace: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    assert check(namespace["hierarchical_all_reduce"]).passed

    for ranks in (2, 3, 4, 5, 8):
        outcome = run(namespace["dissemination_barrier"], ranks=ranks)
        assert outcome.failure is None
        moves = sorted(schedules.dissemination_barrier(ranks).moves, key=lambda m: (m.src, m.step))
        sent = sorted(outcome.trace.messages(), key=lambda m: (m.src, m.step))
        assert [(m.src, m.dst) for m in sent] == [(m.src, m.dst) for m in moves]

"""Your own job: the files of live ranks, read by hand and with the tool, name the rank that is late, and the one that skips."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "48_your_own_job"
STEPS = 6


@pytest.mark.parametrize("ranks", RANKS)
def test_your_own_job(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()
    assert len(re.findall(r"profile_rank\d+\.json", chapter.text("record"))) == ranks

    late = int(chapter.text("was_it").split()[-1])
    rows = re.findall(
        r"rank (\d+): +(\d+) ms in all_reduce, came last +(\d+) of (\d+) times", chapter.text("all_files")
    )
    assert [int(rank) for rank, *_ in rows] == list(range(ranks))
    assert {int(count) for *_, count in rows} == {2 * STEPS}
    inside = [int(ms) for _, ms, _, _ in rows]
    assert inside.index(min(inside)) == late
    assert int(rows[late][2]) >= STEPS - 1  # the first call of each step
    assert f"Rank {late}" in chapter.text("tool_words").splitlines()[0]

    assert "Not every rank returned within 3 s" in chapter.text("hang")
    assert chapter.text("hang").count("dump_rank") == ranks
    *same, last = chapter.text("dump_by_hand").splitlines()
    assert len({tuple(line.split()[-2:]) for line in same if "gloo:" in line}) >= 1
    assert last.split()[-2:] == ["gloo:all_reduce", "gloo:barrier"] or "-" in last
    told = chapter.text("dump_tool")
    assert "another call" in told.splitlines()[0]
    assert "barrier" in told
    assert "all_reduce" in told
    missing = chapter.text("missing")
    assert missing.startswith("no file of rank 1\n")
    assert "There is no dump of rank 1." in missing
    assert "was killed" in missing
    assert chapter.outputs("own")

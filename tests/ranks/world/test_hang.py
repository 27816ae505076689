"""What is said of ranks that don't return, from statuses written by hand."""

from __future__ import annotations

import pytest
from allranks.ranks.world.hang import awaited, keeps_away, sentences
from allranks.ranks.world.rank_status import RankStatus

EVERYONE = (0, 1, 2, 3)


def inside(rank: int, op: str = "all_reduce", seq: int = 3, **more) -> RankStatus:
    return RankStatus(rank, op=op, seq=seq, group=EVERYONE, line=2, **more)


def receiving(rank: int, peer: int) -> RankStatus:
    return RankStatus(rank, op="recv", peer=peer, line=4)


def test_who_waits_for_whom():
    assert awaited([inside(1), inside(2), receiving(3, 0)]) == {1: (0, 3), 2: (0, 3), 3: (0,)}
    assert awaited([inside(r) for r in EVERYONE]) == {}
    assert awaited([RankStatus(0, line=1), RankStatus(1, known=False)]) == {}


@pytest.mark.parametrize(
    ("statuses", "gone", "said"),
    [
        (
            [inside(1), inside(2), inside(3)],
            {0: "is done"},
            "ranks 1, 2 and 3 wait in all_reduce (collective 3); rank 0 is done.",
        ),
        (
            [receiving(0, 1), receiving(1, 0), inside(2)],
            {3: "is done"},
            "rank 2 waits in all_reduce (collective 3); rank 0 is in dist.recv, rank 1 is in dist.recv, rank 3 is done.",
        ),
        (
            [receiving(0, 1), receiving(1, 0)],
            {},
            "All 2 ranks wait for each other in a circle: rank 0 is in recv from rank 1, rank 1 is in recv from rank 0.",
        ),
        ([receiving(1, 0)], {0: "is done"}, "Rank 1 is in recv from rank 0; rank 0 is done."),
        ([RankStatus(0, known=False), RankStatus(1, line=3)], {}, "Rank 0 does not answer"),
        ([RankStatus(0, line=3), RankStatus(1, line=3)], {}, "Nothing is waited for: all 2 ranks need more time"),
        (
            [RankStatus(1, line=3, text="work.wait()")],
            {0: "is done"},
            "Rank 1 waits for an operation that others have not begun; rank 0 is done.",
        ),
        ([RankStatus(1, op="barrier", line=3)], {0: "failed"}, "Rank 1 waits for an operation"),
    ],
)
def test_one_sentence_whatever_holds_them_up(statuses, gone, said):
    ranks = 1 + max([*(s.rank for s in statuses), *gone])
    lines = sentences(statuses, gone, ranks)
    assert len(lines) == 1
    assert lines[0].startswith(said)
    assert lines[0].endswith(".")


def test_a_rank_that_waits_is_not_said_to_compute():
    assert "computing" not in str(RankStatus(1, line=3, text="work.wait()"))
    assert "computing" in str(RankStatus(1, line=3, text="x = x + 1"))


@pytest.mark.parametrize(
    ("source", "line", "found"),
    [
        ("if rank != 0:\n    dist.all_reduce(x)", 2, 1),
        ("for step in range(rank):\n    if x:\n        pass\n    dist.all_reduce(x)", 4, 1),
        ("dist.all_reduce(x)", 1, None),
        ("if rank != 0: dist.all_reduce(x)", 1, None),
        ("not python (", 1, None),
    ],
)
def test_the_line_that_lets_ranks_pass_by(source, line, found):
    assert keeps_away(source, line) == found

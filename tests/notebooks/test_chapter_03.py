"""The chapter on point to point: what its cells show, as released and with the exercise solved."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, folded_code, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "03_point_to_point"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_point_to_point(ranks, solved):
    replace = {"ring_shift": answer() + "\n\ncheck(ring_shift)"} if solved else {}
    chapter = execute(read(CHAPTER, ranks, **replace))
    everyone = range(ranks)

    got = chapter.by_rank("first_message")
    assert got == {rank: "[10.0, 20.0]" if rank == 1 else "[0.0, 0.0]" for rank in everyone}
    assert sorted(re.findall(r"\d+", chapter.by_rank("any_source")[0])) == [str(r) for r in everyone][1:]
    took_ms = float(re.search(r"rank 0 spent (\d+) ms", chapter.text("reveal_send"))[1])
    assert took_ms > 100  # the receiver came 300 ms after a barrier: the send did not return before

    errors = chapter.errors()
    assert set(errors) == {"live_deadlock"}
    for rank in everyone:
        assert f"rank {rank}: in dist.send to rank {(rank + 1) % ranks}" in errors["live_deadlock"]
    deadlock = chapter.text("wire_deadlock")
    assert deadlock.startswith("Deadlock")
    assert "rank 3 waits for rank 0 in send, line 9:  dist.send(x, right)" in deadlock
    assert "<svg" in chapter.outputs("wire_deadlock")[0].data["text/html"]

    shifted = [float((rank - 1) % ranks) for rank in everyone]
    assert all(line.endswith(str(shifted)) for line in chapter.text("three_live").splitlines())
    assert len(chapter.text("three_live").splitlines()) == 3
    assert chapter.by_rank("batch") == {rank: str(shifted[rank]) for rank in everyone}
    rounds = [re.findall(r"\d+", line) for line in chapter.text("count_rounds").splitlines()]
    assert rounds == [list("23458"), list("23458"), list("23232"), list("11111")]
    assert WIDGET in chapter.outputs("watch_ways")[0].data

    assert chapter.text("too_early") == "[7.0, 7.0, 7.0]"
    assert "changed the buffer of isend" in chapter.text("wire_too_early")
    assert chapter.by_rank("mismatch_run")[1] == "1065353216 [0.0, 1.0, 2.0, 3.0, -1.0, -1.0]"

    rows = [line.split() for line in chapter.text("fit_link").splitlines()[3:]]
    assert [int(row[0]) for row in rows] == [4 * 8**k for k in range(8)]
    assert float(rows[-1][3]) == 1.0  # the last point of the model is fitted to
    assert all(float(row[1]) > 0 for row in rows)
    assert "image/svg+xml" in chapter.outputs("plot_link")[0].data
    times = re.findall(r"^(\S+).*?([\d.]+) ms$", chapter.text("activations"), flags=re.M)
    assert ("NDR", "0.67") in times  # 2**25 bytes at 50 GB/s and 3 µs

    verdict = chapter.text("ring_shift")
    assert ("not yet" in verdict, "deadlock: every rank sends before it receives" in verdict) == (
        not solved,
        not solved,
    )


def answer() -> str:
    """The answer that the folded text gives."""
    return folded_code(source_of(CHAPTER), "shift_answer")

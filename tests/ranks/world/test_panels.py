"""The pictures of a call that does not return: drawn from statuses by hand, and shown by a real kernel."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import ClassVar

import nbclient
import nbformat
import pytest
from allranks.base.errors import WIDTH
from allranks.ranks.world import call
from allranks.ranks.world.call import Call
from allranks.ranks.world.failures import RanksStuck
from allranks.ranks.world.panels import MOST, Panel, live, report, shared
from allranks.ranks.world.rank_status import RankStatus
from allranks.ranks.world.screen import Screen

EVERYONE = (0, 1, 2, 3)


def waiting(rank: int, **more) -> Panel:
    found = RankStatus(rank, op="all_reduce", seq=3, group=EVERYONE, line=2, text="dist.all_reduce(x)", **more)
    return Panel((rank,), found, None, 1.4)


def body(page: str) -> str:
    """What is shown, without the style sheet."""
    return page.rpartition("</style>")[2]


def test_a_panel_for_each_rank_with_arrows_to_those_they_wait_for():
    page = body(live([Panel((0,), None, "done"), *map(waiting, EVERYONE[1:])], {1: (0,), 2: (0,), 3: (0,)}, 1.4, 3))
    assert page.count('class="ar-panel"') == 4
    assert page.count("waiting in <code>all_reduce</code>") == 3
    assert 'aria-label="rank 1 waits for rank 0; rank 2 waits for rank 0; rank 3 waits for rank 0"' in page
    assert page.count("width:47%") == 3  # 1.4 of 3 s, for ranks that wait only


def test_a_failed_rank_keeps_its_place_and_turns_red():
    page = body(live([waiting(0), Panel((1,), None, "failed")], {0: (1,)}, 2, 60))
    assert re.search(r'ar-panel ar-bad"><b[^>]*><span>rank 1</span><span>failed', page)


def test_what_a_rank_printed_is_shown_though_it_comes_seconds_after_its_answer(capsys):
    class Reply:
        metadata: ClassVar[dict] = {}

        def ready(self):
            return True

        def wait_for_output(self, timeout):
            if timeout > 5:
                self.metadata = {"stdout": "late\n"}

    Screen(2).finish([Reply(), Reply()], {})
    assert capsys.readouterr().out.count("late") == 2


def test_a_report_has_time_for_the_answers_of_ranks_that_are_woken_late(monkeypatch):
    """A picture comes again, a report once."""

    def late(sockets, timeout_s=0.5):
        return {rank: {"op": "barrier"} for rank in sockets} if timeout_s > 1 else {}

    monkeypatch.setattr(call, "ask_ranks", late)
    monkeypatch.setattr(call, "dump_stacks", lambda pids, stacks: {})
    engines = SimpleNamespace(
        placement=SimpleNamespace(ranks=2), described=[{"pid": 1}, {"pid": 2}], watch=str, stacks=str
    )
    statuses = Call(engines, None, (), 60)._statuses()
    assert [str(status) for status in statuses] == ["rank 0: in dist.barrier", "rank 1: in dist.barrier"]


def test_text_of_a_program_is_no_html():
    status = RankStatus(0, line=1, text="x = '<script>alert(1)</script>'")
    assert "<script" not in live([Panel((0,), status)], {}, 2, 3)
    assert "<script" not in report("<script>", "<script>", [Panel((0,), status)], {}, "<script>", None, 1)


def test_the_red_text_of_a_report_has_no_line_that_a_notebook_breaks_in_a_word():
    """It read "send t" and below it "o rank 3"."""
    words = "Ranks 0 to 3 wait for each other in a circle: " + ", ".join(
        f"rank {r} in dist.send to rank 1" for r in EVERYONE
    )
    given = f"{words}\n  rank 0: {'a' * 120}\n    line 3: x = 1"
    [shown] = RanksStuck(given, [])._render_traceback_()
    assert shown.split() == given.split() and shown.endswith("\n    line 3: x = 1")
    assert [line for line in shown.split("\n") if len(line) > WIDTH] == ["      " + "a" * 120]


def test_many_ranks_that_do_the_same_share_a_panel():
    panels = [Panel((0,), None, "done"), *(waiting(r) for r in range(1, MOST + 1))]
    assert [p.ranks for p in shared(panels)] == [(0,), tuple(range(1, MOST + 1))]
    assert shared(panels[:MOST]) == panels[:MOST]


def test_the_report_shows_the_missing_call_and_the_line_to_blame():
    panels = [Panel((0,), None, "done"), *map(waiting, EVERYONE[1:])]
    page = body(
        report(
            "Rank 0 never came.", "It is done.", panels, {1: 3, 2: 3, 3: 3}, "#\nif rank:\n    dist.all_reduce(x)", 2, 3
        )
    )
    assert page.count("ar-missing") == 1
    assert page.count("ar-waits") == 3
    assert "<mark>if rank:</mark>" in page


def test_a_rank_in_a_call_of_another_group_is_drawn_as_one_that_never_came():
    """Both groups are in their first call."""
    engines = SimpleNamespace(placement=SimpleNamespace(ranks=4), described=[{"pid": 1}] * 4, watch=str, stacks=str)
    everyone = [
        RankStatus(rank, op="all_reduce", seq=1, group=(0, 1) if rank == 1 else EVERYONE, line=2) for rank in EVERYONE
    ]
    page = body(Call(engines, None, (), 60)._report(everyone, ""))
    assert "Rank 1 never came to the all_reduce that ranks 0, 2 and 3 wait in." in page
    assert "(a call of ranks 0 and 1 only)" in page
    row = page.split("rank 1</th>")[1].split("</tr>")[0]
    assert "never came" in row
    assert "ar-waits" not in row


def test_ranks_that_are_absent_alike_are_told_once():
    """Rank 0 is in a broadcast, the others of 4 in one all_reduce: the report named each with the same words."""
    engines = SimpleNamespace(placement=SimpleNamespace(ranks=4), described=[{"pid": 1}] * 4, watch=str, stacks=str)
    everyone = [
        RankStatus(rank, op="all_reduce" if rank else "broadcast", seq=1, group=EVERYONE, line=2 + (rank > 0))
        for rank in EVERYONE
    ]
    page = body(Call(engines, None, (), 60)._report(everyone, ""))
    assert "Ranks 1, 2 and 3: in dist.all_reduce, line 3" in page
    assert "Rank 2: in" not in page


def test_a_rank_that_is_in_no_group_of_the_call_has_no_row():
    engines = SimpleNamespace(placement=SimpleNamespace(ranks=3), described=[{"pid": 1}] * 3, watch=str, stacks=str)
    statuses = [RankStatus(0, op="barrier", seq=1, group=(0, 1), line=2), RankStatus(2, line=3)]
    page = body(Call(engines, None, (), 60)._report(statuses, ""))
    assert "rank 1</th>" in page
    assert "rank 2</th>" not in page


HANGS = """%%ranks --deadline 8
if rank != 0:
    dist.all_reduce(torch.ones(2))"""
DIFFERS = """%%ranks --deadline 4
if rank == 0:
    dist.broadcast(torch.ones(4), src=0)
else:
    dist.all_reduce(torch.ones(2))"""
FAILS = """%%ranks
if rank == 2:
    1 / 0
dist.barrier()"""
ENDS = """%%ranks
import os, time
while not os.path.exists({go_on!r}):
    time.sleep(0.02)
print("ended")"""


def live_picture(page: str) -> bool:
    """Whether it shows what a rank does that computes."""
    return "computing" in body(page) or "line 3" in body(page)


@pytest.mark.live
@pytest.mark.timeout(180)
def test_a_notebook_shows_where_each_rank_is_and_then_the_report(tmp_path):
    go_on = tmp_path / "go_on"
    ends = ENDS.format(go_on=str(go_on))
    start = "from allranks import World\nimport torch, torch.distributed as dist\nworld = World(ranks=3)"
    cells = [nbformat.v4.new_code_cell(text) for text in (start, HANGS, FAILS, ends, DIFFERS, "world.stop()")]
    shown: dict[int, list[str]] = {}

    class Client(nbclient.NotebookClient):
        def process_message(self, msg, cell, cell_index):
            if msg["msg_type"] in ("display_data", "update_display_data"):
                page = msg["content"]["data"].get("text/html", "")
                shown.setdefault(cell_index, []).append(body(page))
                if cell_index == 3 and live_picture(page):
                    go_on.touch()
            return super().process_message(msg, cell, cell_index)

    Client(nbformat.v4.new_notebook(cells=cells), allow_errors=True, kernel_name="python3", timeout=120).execute()
    *live_pages, last = shown[1]
    assert any(
        page.count("waiting in <code>all_reduce</code>") == 2 and "done with the cell" in page for page in live_pages
    )
    assert "Rank 0 never came to the all_reduce that ranks 1 and 2 wait in." in last
    assert "<mark>if rank != 0:</mark>" in last
    assert "<td>1</td></tr>" in last  # the collective that sets up the group is not the reader's
    assert "raised ZeroDivisionError in line 3" in shown[2][-1]
    assert "<mark>    1 / 0</mark>" in shown[2][-1]
    assert any(map(live_picture, shown[3][:-1]))
    differs = re.sub("<[^>]*>", "", shown[4][-1])
    assert (
        "Rank 0 waits in broadcast, and ranks 1 and 2 in all_reduce: calls with one number that do not match."
        in differs
    )
    assert "ar-hang" not in shown[3][-1]
    assert shown[3][-1].count("ended") == 3

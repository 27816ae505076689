"""The cheat sheet's figures are those of the schedules and of the price list."""

from fractions import Fraction

import pytest
from allranks.base.chapters import find
from allranks.show.pictures.moves import MOVES
from allranks.show.widgets.cheatsheet import ENTRIES, CheatSheet
from allranks.theory.schedules import COLLECTIVES, algorithms

N = 840


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.collective)
def test_traffic_is_what_the_schedule_moves(entry, ranks):
    schedule = algorithms(entry.collective)[entry.example](ranks)
    trace = schedule.trace(N)
    sent, received = trace.bytes_sent(), trace.bytes_received()
    assert (sent[0], received[0]) == (N * entry.root_sends.of(ranks), N * entry.root_receives.of(ranks))
    for rank in range(1, ranks):
        assert received[rank] == N * entry.receives.of(ranks) or entry.example == "binomial"
        assert sent[rank] == N * entry.sends.of(ranks) or entry.example == "binomial"
    if entry.example == "binomial":  # the others pass on what came: only one direction is alike for all
        alike = received if entry.receives.text else sent
        assert set(alike[1:]) == {N}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.collective)
def test_words_say_what_the_functions_calculate(entry):
    for flow in (entry.root_sends, entry.root_receives, entry.sends, entry.receives):
        if flow.text and "lg" not in flow.text:
            for p in (2, 3, 8):
                text = flow.text.replace("2n(", "2*n*(").replace("n(", "n*(")
                assert eval(text, {"n": Fraction(1), "p": p}) == flow.of(p)


def test_every_collective_has_its_row_and_its_place_in_the_choice():
    rows = {entry.collective for entry in ENTRIES}
    assert rows == set(COLLECTIVES)
    assert {move.name for _, moves in MOVES for move in moves} == (rows - {"barrier"}) | {"send_recv"}
    chapters = {move.name: find(move.chapter.rpartition("/")[2]).number for _, moves in MOVES for move in moves}
    for entry in ENTRIES:
        assert entry.chapter == chapters.get(entry.collective, "16")
        assert {entry.example, entry.short, entry.long} <= set(algorithms(entry.collective))
        assert all(cost for _, cost in entry.costs())


def test_the_page_has_a_column_a_rank_and_escapes_what_ranks_hold():
    sheet = CheatSheet([{"broadcast": ([1], [1])}, {"broadcast": ("<b>", [1.5])}])
    page = sheet._repr_html_()
    assert page.count("<th scope=col>rank ") == 2
    assert "&lt;b&gt;<br>→ 1.5" in page and "<b>→" not in page
    assert "rank 1: <b> → 1.5" in repr(sheet)
    assert sheet.changes("gather") == ["", ""]


def test_the_nine_moves_have_pictures_that_lead_to_their_chapters():
    page = CheatSheet([{}])._repr_html_()
    for _, moves in MOVES:
        for move in moves:
            assert f'<a href="../{move.chapter}.ipynb"><svg' in page
    assert ".ar-pic .r0{fill:var(--ar-rank-0)}" in page and 'body[data-jp-theme-light="false"] .ar-sheet' in page

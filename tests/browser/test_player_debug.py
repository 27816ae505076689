"""The player as a debugger of a student's run: breakpoints, the line of the message, the right schedule beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from allranks.judge.verdict import BESIDE, PLAY, Case, Verdict
from allranks.show.player import Player
from allranks.theory.schedules import ring_all_reduce
from allranks.theory.trace import Trace
from test_player_picture import in_timeline

pytestmark = pytest.mark.browser

LINES = ["def ring_all_reduce(tensor):", "    for step in range(p - 1):", "        swap(chunks[rank])", "    done()"]


def run(wrong: bool = True) -> Trace:
    """A ring of four ranks; a wrong one adds the first step's messages twice."""
    events = [replace(e, line=12 if e.step == 0 else 13) for e in ring_all_reduce(4).trace(4096).events]
    if wrong:
        first = [e for e in events if e.step == 0]
        events = [*first, *(replace(e, step=1, match=e.match + 100, contrib=None) for e in first)]
    code = {"first": 10, "shown": 1, "lines": LINES}
    return Trace("wire", 4, tuple(events), "all_reduce", "ring", 4, 4096, meta={"code": code})


def stopped(page) -> str:
    page.wait_for_selector('.ar-player[data-playing="false"]')
    return page.locator(".ar-player").get_attribute("data-position")


def test_playing_stops_at_a_breakpoint_set_by_the_keyboard(show):
    page = show(Player(run(wrong=False)))
    page.emulate_media(reduced_motion="reduce")
    player = page.locator(".ar-player")
    for _ in range(4):
        player.press("ArrowRight")
    player.press("2")
    assert player.get_attribute("data-stops") == "2:3"
    assert page.locator("[aria-live]").first.text_content().startswith("Playing stops at rank 2, step 4. ")
    player.press("Home")
    player.press(" ")
    page.wait_for_selector('.ar-player[data-position="3.500"][data-playing="false"]')
    assert page.locator("[aria-live]").first.text_content().startswith("Stopped at rank 2, step 4. ")
    assert page.locator(".ar-packet.ar-picked").count() == 1
    player.press(" ")
    page.wait_for_selector('.ar-player[data-step="6"][data-playing="false"]')
    page.emulate_media(reduced_motion="no-preference")


def test_a_second_press_on_a_lane_sets_a_breakpoint_and_playing_stops_there(show):
    page = show(Player(run(wrong=False)))
    at = in_timeline(page, 2.5 / 6, 22 + 21 + 8)
    page.mouse.click(*at)
    player = page.locator(".ar-player")
    assert player.get_attribute("data-stops") is None, "the first press picks the message"
    page.mouse.click(*at)
    assert player.get_attribute("data-stops") == "1:2"
    player.press("Home")
    player.press(" ")
    assert stopped(page) == "2.500"
    page.mouse.click(*at)
    assert player.get_attribute("data-stops") == "", "another press takes it away"


def test_the_line_of_the_message_is_marked(show):
    page = show(Player(run()))
    assert page.locator(".ar-code h4").text_content() == "Your line 3"
    assert page.locator(".ar-code .ar-marked").all_text_contents() == ["3        swap(chunks[rank])"]
    button = page.locator(".ar-code button")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert page.locator(".ar-player").get_attribute("data-stops") == "1:1"
    assert page.evaluate("document.querySelector('.ar-player').getBoundingClientRect().height") <= 780


def test_a_schedule_has_no_code_panel(show):
    assert show(Player(ring_all_reduce(4))).locator(".ar-code").count() == 0


def test_beside_the_right_schedule_it_opens_at_the_wrong_move_on_one_clock(show):
    page = show(Player(run(), ring_all_reduce(4)))
    assert page.locator(".ar-title strong").text_content() == "Two all-reduces, one clock"
    assert page.locator(".ar-player").get_attribute("data-position") != "0.000"
    assert page.locator(".ar-half").nth(0).locator(".ar-wrong-move").count() == 1
    assert page.locator(".ar-half").nth(1).locator(".ar-wrong-move").count() == 0


def test_a_page_without_a_kernel_has_both_players(new_page, tmp_path):
    cases = (Case("sum: 4 ranks", False, "It is wrong.", "sum"),)
    verdict = Verdict("ring_all_reduce", False, 0.0, cases, "It is wrong.", run(), expected=ring_all_reduce(4))
    path = tmp_path / "verdict.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{verdict.html()}", encoding="utf-8")
    page = new_page()
    page.goto(path.as_uri())
    for words, halves in ((PLAY, 0), (BESIDE, 2)):
        folded = page.locator("details", has=page.locator("summary", has_text=words))
        folded.locator("summary").first.click()
        player = folded.locator(".ar-player[data-ready]")
        player.wait_for()
        assert player.locator(".ar-half-title").count() == halves
        assert player.locator(".ar-code .ar-marked").count() == 1
        folded.locator("summary").first.click()

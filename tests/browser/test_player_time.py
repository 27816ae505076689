"""The player on the time axis: the steps, the clock, the questions and the timeline of runs whose messages take
time.
"""

from __future__ import annotations

import re

import pytest
from allranks.show.player import Player
from allranks.theory.schedules import ring_all_reduce
from allranks.theory.simulator.simulation import simulate
from allranks.theory.topology import uniform
from allranks.theory.trace import Event, Trace
from test_player_picture import cells, done, in_timeline, meter

pytestmark = pytest.mark.browser


def timed(ranks: int, *messages: tuple[int, int, int, float, float]) -> Trace:
    """A simulated run of messages (step, sender, receiver, start, end) of 8 bytes."""
    events = []
    for number, (step, src, dst, start, end) in enumerate(messages):
        at = {"nbytes": 8, "step": step, "start": start, "end": end, "match": number}
        events += [Event(src, "send", dst, **at), Event(dst, "recv", src, **at)]
    return Trace("simulated", ranks, tuple(events), clock="virtual")


def test_real_times_and_overlap(show):
    events = [
        Event(0, "compute", start=0.0, end=2e-3, label="layer 2"),
        Event(0, "all_reduce", start=1e-3, end=3e-3, nbytes=100, label="bucket 0"),
        Event(1, "compute", start=0.0, end=1e-3, label="layer 2"),
        Event(1, "all_reduce", start=1e-3, end=3e-3, nbytes=100, label="bucket 0"),
    ]
    player = Player(Trace("live", 2, tuple(events), clock="wall"))
    assert player.axis == "time"
    page = show(player)
    page.mouse.click(*in_timeline(page, 0.5, 30))
    assert page.locator('.ar-rank[data-rank="0"] .ar-bytes').all_text_contents() == [
        "computes layer 2",
        "moves bucket 0",
    ]
    assert page.locator('.ar-rank[data-rank="1"] .ar-bytes').all_text_contents() == ["computes –", "moves bucket 0"]
    assert meter(page, "clock") == "1.5 ms of 3 ms"
    page.mouse.click(*in_timeline(page, 0.6, 30))
    assert meter(page, "clock") == "1.8 ms of 3 ms", "the clock runs where nothing lands"


def test_a_step_in_time_ends_with_its_own_message_and_not_with_a_wait_that_began_in_it(show):
    page = show(Player(simulate("broadcast", "flat", 8, 1000, uniform(1e-6, 1e9)).trace))
    page.locator(".ar-player").press("ArrowRight")
    done(page, 1)
    assert meter(page, "step").startswith("step 1 of 7")
    assert sum(has == [0] for has in cells(page).values()) == 2, "the root and the first receiver"
    beside = """() => [...document.querySelectorAll('.ar-rank[data-state="waiting"]')].map((card) => {
      const box = (kind) => card.querySelector(kind).getBoundingClientRect();
      return box(".ar-state").left - box(".ar-name").right; })"""
    gaps = page.evaluate(beside)
    assert len(gaps) == 6 and min(gaps) > 0, "the word is beside the rank's name"


def test_two_timed_films_share_one_clock(show):
    def run(seconds: float) -> Trace:
        events = []
        for r in range(2):
            events.append(Event(r, "send", 1 - r, nbytes=8, step=0, start=0.0, end=seconds, match=r))
            events.append(Event(1 - r, "recv", r, nbytes=8, step=0, start=0.0, end=seconds, match=r))
        return Trace("simulated", 2, tuple(events), clock="virtual")

    page = show(Player(run(2e-6), run(4e-6)))
    page.mouse.click(*in_timeline(page, 0.75, 60))
    assert [half.locator(".ar-packet").count() for half in page.locator(".ar-half").all()] == [0, 2]
    assert page.locator('[data-meter="step"]').all_text_contents() == ["done, step 1 of 1", "step 1 of 1"]
    clock = meter(page, "position").split(" of ")
    assert clock[1] == "4 µs"
    assert float(clock[0].split()[0]) == pytest.approx(3, abs=0.02)
    # beside each lane of both films stands the colour of its rank
    seen, wanted = page.evaluate(
        """() => {
          const canvas = document.querySelector(".ar-timeline canvas"), pen = canvas.getContext("2d");
          const scale = canvas.width / canvas.clientWidth;
          const at = (x, y) => [...pen.getImageData(x * scale, y * scale, 1, 1).data].slice(0, 3).join();
          const style = getComputedStyle(canvas), probe = document.createElement("canvas").getContext("2d");
          const rank = (r) => {
            probe.fillStyle = style.getPropertyValue(`--ar-rank-${r}`);
            probe.fillRect(0, 0, 1, 1);
            return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3).join();
          };
          const x = Number(canvas.parentElement.dataset.left) - 29;
          return [[29, 46, 73, 90].map((y) => at(x, y)), [0, 1, 0, 1].map(rank)];
        }"""
    )
    assert seen == wanted


def test_in_time_the_steps_are_those_of_the_film_that_lasts_longest(show):
    def run(steps: int, seconds: float) -> Trace:
        return timed(2, *((s, 0, 1, s * seconds, (s + 1) * seconds) for s in range(steps)))

    page = show(Player(run(5, 1e-6), run(2, 9e-6)))
    page.locator(".ar-player").press("End")
    done(page, 2)
    page.locator(".ar-player").press("ArrowLeft")
    done(page, 1)
    assert page.locator('[data-meter="step"]').all_text_contents() == ["done, step 5 of 5", "step 1 of 2"]
    page.get_by_label("Axis").select_option("step")
    page.locator(".ar-player").press("End")
    done(page, 5)
    assert page.get_by_role("slider").get_attribute("aria-valuemax") == "5"


def test_no_question_is_asked_about_a_message_that_has_landed(show):
    run = timed(3, (0, 0, 1, 0.0, 9e-6), (1, 2, 0, 0.0, 1e-6), (1, 1, 2, 9e-6, 10e-6))
    page = show(Player(run, quiz=True, speed=4))
    question = page.locator(".ar-question p").first
    page.locator(".ar-player").press("ArrowRight")
    assert question.text_content() == "Step 1: to which rank does rank 0 send?"
    page.keyboard.press("ArrowRight")
    done(page, 1)
    page.keyboard.press("ArrowRight")
    assert question.text_content() == "Step 2: to which rank does rank 1 send?", "rank 2's message landed at 1 µs"


def test_the_right_button_does_not_drag_and_the_last_lanes_words_are_seen(show):
    page = show(Player(timed(4, *((s, 3, 0, s * 1e-6, (s + 1) * 1e-6) for s in range(4)))))
    root, box = page.locator(".ar-player"), page.locator(".ar-timeline").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] - 12
    page.mouse.move(x, y)
    page.mouse.down(button="right")
    page.mouse.move(x + 30, y)
    page.mouse.up(button="right")
    page.mouse.move(x + 60, y)
    assert root.get_attribute("data-position") == "0.000"
    assert page.locator(".ar-tip").text_content() == "3 → 0: 8 B"
    assert page.locator(".ar-tip").evaluate(
        """(tip) => { const { left, top, bottom } = tip.getBoundingClientRect();
          tip.style.pointerEvents = "auto";
          return [top + 2, bottom - 2].every((y) => document.elementFromPoint(left + 4, y) === tip); }"""
    )
    page.mouse.down()
    page.mouse.move(x, y)
    page.mouse.up()
    at = root.get_attribute("data-position")
    page.mouse.move(x + 60, y)
    assert root.get_attribute("data-position") == at != "0.000"


def test_no_two_ticks_of_the_timeline_say_the_same(show):
    page = show(Player(timed(2, (0, 0, 1, 0.0, 1.2), (1, 1, 0, 1.2, 1.25))))
    page.locator(".ar-player").press("End")
    for _ in range(9):
        ticks = page.evaluate(
            """() => {
              const seen = [], pen = CanvasRenderingContext2D.prototype, write = pen.fillText;
              pen.fillText = function (text, ...at) { seen.push(text); write.call(this, text, ...at); };
              document.querySelector('[aria-label="Zoom in"]').click();
              pen.fillText = write;
              return seen.filter((text) => text.endsWith("s"));
            }"""
        )
        assert len(ticks) == len(set(ticks)) > 2


def test_the_canvas_follows_the_systems_theme_and_the_pages(show):
    page = show(Player(ring_all_reduce(17)))
    paint = "() => ['.ar-timeline canvas', '.ar-dense canvas'].map((c) => document.querySelector(c).toDataURL())"
    light = page.evaluate(paint)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"(light) => ({paint})().every((now, i) => now !== light[i])", arg=light)
    page.evaluate("() => { document.body.dataset.theme = 'light'; }")
    page.wait_for_function(f"(light) => ({paint})().every((now, i) => now === light[i])", arg=light)
    page.emulate_media(color_scheme="light")
    page.evaluate("() => { document.body.dataset.theme = 'dark'; }")
    page.wait_for_function(f"(light) => ({paint})()[0] !== light[0]", arg=light)


def test_the_critical_path_is_said_and_drawn_below_its_bars(show):
    found = simulate("all_reduce", "ring", 4, 4 << 20, uniform(1e-6, 1e9).with_straggler(2, 4.0))
    page = show(Player(found.critical_path.marked(found.trace)))
    assert re.search(r"of the path is rank [23]'s wait", page.inner_text(".ar-path"))
    leg = found.critical_path.legs[2]
    place = (leg.start + leg.end) / 2 / found.seconds
    lane = page.evaluate("() => document.querySelector('.ar-timeline').clientHeight") - 2
    x, y = in_timeline(page, place, 20 + (lane - 20) * (leg.rank + 0.5) / 4)
    page.mouse.move(x, y)
    page.wait_for_selector(".ar-tip:not([hidden])")
    assert "on the critical path" in page.inner_text(".ar-tip")

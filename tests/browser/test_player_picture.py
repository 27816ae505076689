"""What the player shows, on a page without a kernel: the chunks, their contributions, the words, the counters, the
keys.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from allranks.show.player import Player
from allranks.theory.schedules import (
    ALGORITHMS,
    Schedule,
    flat_all_reduce,
    recursive_doubling_all_reduce,
    ring_all_reduce,
    tree_all_reduce,
)
from allranks.theory.trace import Event, Trace

pytestmark = pytest.mark.browser


def cells(page, half: int = 0) -> dict[tuple[int, int], list[int]]:
    """(rank, chunk) -> the contributing ranks, as the picture has them."""
    found = page.evaluate(
        """(half) => [...document.querySelectorAll(".ar-half")[half].querySelectorAll(".ar-cell")].map((c) =>
             [+c.dataset.rank, +c.dataset.chunk, c.dataset.contrib])""",
        half,
    )
    return {(rank, chunk): [int(r) for r in text.split(",") if r] for rank, chunk, text in found}


def by_hand(schedule) -> list[dict[tuple[int, int], list[int]]]:
    """What every cell holds after each step, worked out with plain lists and nothing of the player's."""
    held = {cell: sorted(bag.elements()) for cell, bag in schedule.initial().items()}
    states = [dict(held)]
    for step in range(schedule.steps):
        before = dict(held)
        for move in schedule.moves:
            if move.step == step:
                for chunk in move.chunks:
                    old = held.get((move.dst, chunk), []) if move.reduce else []
                    held[move.dst, chunk] = sorted(old + before[move.src, chunk])
        states.append(dict(held))
    return states


def filled(page, rank: int, chunk: int, contributor: int) -> bool:
    """Whether the stripe of a contributor is painted: looked up by where it is drawn, not by a data attribute."""
    return page.evaluate(
        """([rank, chunk, contributor]) => {
          const card = document.querySelector(`.ar-rank[data-rank="${rank}"]`);
          const cell = card.querySelector(`.ar-cell[data-chunk="${chunk}"]`).getBBox();
          const stripes = card.querySelectorAll("path[data-contributor]"), share = (contributor + 0.5) / stripes.length;
          const at = card.ownerSVGElement.createSVGPoint(), lying = cell.width > 2 * cell.height;
          const square = Math.abs(cell.width - cell.height) < 0.1;
          at.x = cell.x + (lying ? share : 0.5) * cell.width;
          at.y = cell.y + (lying || square ? 0.5 : share) * cell.height;
          return stripes[contributor].isPointInFill(at);
        }""",
        [rank, chunk, contributor],
    )


def say(page) -> str:
    return page.locator("[aria-live]").first.text_content()


def meter(page, name: str) -> str:
    return page.locator(f'[data-meter="{name}"]').first.text_content()


def to_step(page, step: float) -> None:
    """Whole steps by the keyboard, which jumps where motion is reduced; a part of a step by dragging the marker."""
    page.emulate_media(reduced_motion="reduce")
    player = page.locator(".ar-player")
    if step != int(step):
        x, y = in_timeline(page, step / int(page.locator(".ar-timeline").get_attribute("aria-valuemax")))
        page.mouse.move(x - 20, y)
        page.mouse.down()
        page.mouse.move(x, y)
        page.mouse.up()
    else:
        player.press("Home")
        for _ in range(int(step)):
            player.press("ArrowRight")
    page.emulate_media(reduced_motion="no-preference")


LANES_RIGHT = 6


def in_timeline(page, share: float, y: float = 8) -> tuple[float, float]:
    """A point of the timeline: a share of its axis, pixels below its upper edge (8: above the lanes)."""
    box = page.locator(".ar-timeline").bounding_box()
    left = float(page.locator(".ar-timeline").get_attribute("data-left"))
    return box["x"] + left + (box["width"] - left - LANES_RIGHT) * share, box["y"] + y


def done(page, step: int) -> None:
    page.wait_for_selector(f'.ar-player[data-step="{step}"][data-playing="false"]')


@pytest.mark.parametrize(
    "name",
    [
        "ring_all_reduce",
        "rabenseifner_all_reduce",
        "tree_all_reduce",
        "bruck_all_to_all",
        "binomial_gather",
        "flat_reduce",
    ],
)
def test_every_cell_holds_what_the_schedule_says_at_every_step(show, name):
    schedule = ALGORITHMS[name](5)
    page = show(Player(schedule))
    for step, wanted in enumerate(by_hand(schedule)):
        to_step(page, step)
        assert {cell: has for cell, has in cells(page).items() if has} == wanted, f"after step {step}"
    for rank, chunk in ((0, 0), (3, schedule.chunks - 1)):
        for contributor in range(5):
            assert filled(page, rank, chunk, contributor) == (contributor in wanted.get((rank, chunk), []))


def test_words_and_counters(show):
    page = show(Player(ring_all_reduce(4), nbytes=4096))
    assert say(page) == ""
    page.locator(".ar-player").press("ArrowRight")
    done(page, 1)
    page.locator(".ar-player").press("ArrowRight")
    done(page, 2)
    assert say(page) == (
        "step 2 of 6: rank 0 sends chunk 3 to rank 1, which adds it; rank 1 sends chunk 0 to rank 2, which adds it; "
        "rank 2 sends chunk 1 to rank 3, which adds it; rank 3 sends chunk 2 to rank 0, which adds it"
    )
    assert page.locator(".ar-caption").text_content() == (
        "Each rank passes on what it has just added up: rank 0 sends c3 to rank 1, which adds it."
    )
    assert meter(page, "step") == "step 2 of 6"
    assert meter(page, "links") == "4 of 4 busy"
    assert meter(page, "bytes") == "2.05 kB"
    assert meter(page, "bound") == "least: 6.14 kB"
    assert page.locator('.ar-cell[data-rank="2"][data-chunk="0"] title').text_content() == (
        "rank 2, chunk 0: holds the contributions of ranks 0 + 1 + 2; in step 2 what rank 1 sent was added to it"
    )
    page.locator(".ar-player").press("End")
    assert meter(page, "bytes") == "6.14 kB", "a ring reaches the lower bound exactly"
    assert page.locator(".ar-cell.ar-done").count() == 16
    page.get_by_role("button", name="Table of this step").click()
    page.locator(".ar-scroll tbody").wait_for()
    assert page.locator(".ar-scroll tbody tr").nth(2).locator("td").all_text_contents() == [
        *["0 + 1 + 2 + 3"] * 4,
        "6.14 kB",
        "6.14 kB",
    ]


def test_keys_buttons_and_scrubbing(show):
    page = show(Player(ring_all_reduce(4)))
    root = page.locator(".ar-player")
    assert root.get_attribute("data-playing") == "false", "it starts paused"
    root.focus()
    page.keyboard.press("End")
    done(page, 6)
    page.keyboard.press("ArrowLeft")
    done(page, 5)
    page.keyboard.press("Home")
    done(page, 0)
    page.keyboard.press("Space")
    page.wait_for_selector('.ar-player[data-playing="true"] .ar-packet')
    page.keyboard.press("Space")
    page.wait_for_selector('.ar-player[data-playing="false"]')
    page.get_by_label("To the end").click()
    done(page, 6)
    page.get_by_label("Step back").click()
    done(page, 5)
    # the speed's own keys stay its own
    page.get_by_label("Speed").focus()
    page.keyboard.press("ArrowDown")
    done(page, 5)
    # the timeline is the slider: a click on a bar shows its packet half-way, a drag any moment
    page.mouse.click(*in_timeline(page, 2.2 / 6, 40))
    assert float(root.get_attribute("data-position")) == pytest.approx(2.5)
    assert page.locator(".ar-packet").count() == 4
    assert page.locator(".ar-packet.ar-picked").get_attribute("data-dst") == "0", "the first lane's"
    assert page.locator(".ar-caption").text_content() == "Rank 3 sends c1 to rank 0, which adds it."
    to_step(page, 4.25)
    assert float(root.get_attribute("data-position")) == pytest.approx(4.25, abs=0.02)
    assert page.locator(".ar-picked").count() == 0
    slider = page.get_by_role("slider", name="Step")
    assert [slider.get_attribute(f"aria-value{part}") for part in ("min", "max", "now", "text")] == [
        *("0", "6", "5"),
        "step 5 of 6",
    ]
    slider.focus()
    page.keyboard.press("Home")
    done(page, 0)
    to_step(page, 3)
    cursor = page.locator(".ar-cursor").bounding_box()
    assert cursor["x"] + 1 == pytest.approx(in_timeline(page, 0.5)[0], abs=1.5)


def test_a_second_quick_press_of_step_is_not_lost(show):
    page = show(Player(ring_all_reduce(4)))
    page.evaluate(
        """() => { const next = document.querySelector('[data-do="next"]');
          next.click(); next.click(); next.click(); }"""
    )
    done(page, 3)


def test_keys_in_the_table_scroll_it_and_it_keeps_the_focus(show):
    page = show(Player(ring_all_reduce(24)))
    page.get_by_role("button", name="Table of this step").click()
    table = page.locator(".ar-scroll")
    table.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.ar-scroll').scrollLeft > 0")
    assert page.locator(".ar-player").get_attribute("data-position") == "0.000"
    page.evaluate("""() => { const next = document.querySelector('[data-do="next"]'); next.click(); next.click(); }""")
    done(page, 2)
    assert "after step 2" in table.text_content()
    assert table.evaluate("(e) => e === document.activeElement && e.scrollLeft > 0")


def test_taken_off_the_page_while_it_plays_it_goes_on_when_it_is_back(show):
    page = show(Player(ring_all_reduce(3), speed=4))
    page.evaluate(
        """async () => {
          const root = document.querySelector(".ar-player"), home = root.parentNode;
          root.querySelector('[data-do="play"]').click();
          root.remove();
          for (const _ of [1, 2]) await new Promise(requestAnimationFrame);  // it plays by frames: two pass without it
          home.append(root);
        }"""
    )
    done(page, 4)


def test_two_players_of_a_page_share_no_id(show):
    player = Player(ring_all_reduce(3))
    page = show(SimpleNamespace(page=lambda: player.page() + player.page()))
    page.locator(".ar-player[data-ready]").nth(1).wait_for()
    ids = page.evaluate("() => [...document.querySelectorAll('.ar-player [id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids)) == 6


def test_packets_carry_what_the_sender_held_and_fly_from_sender_to_receiver(show):
    page = show(Player(ring_all_reduce(4)))
    seen = {}
    for part in (1.15, 1.85):
        to_step(page, part)
        for packet in page.locator(".ar-packet").all():
            key = (packet.get_attribute("data-src"), packet.get_attribute("data-dst"))
            assert packet.locator(".ar-op").text_content() == "+"
            seen.setdefault(key, []).append((packet.get_attribute("data-contrib"), packet.bounding_box()))
    assert {key: pair[0][0] for key, pair in seen.items()} == {
        ("0", "1"): "0,3",
        ("1", "2"): "0,1",
        ("2", "3"): "1,2",
        ("3", "0"): "2,3",
    }
    for (src, dst), pair in seen.items():
        boxes = [page.locator(f'.ar-rank[data-rank="{r}"]').bounding_box() for r in (src, dst)]
        near, far = (_gap(pair[i][1], boxes[0]) for i in (0, 1))
        assert near < far, f"the packet from {src} to {dst} moves away from {src}"


def _gap(a: dict, b: dict) -> float:
    return ((a["x"] - b["x"]) ** 2 + (a["y"] - b["y"]) ** 2) ** 0.5


def test_reduced_motion_goes_in_whole_steps(show):
    page = show(Player(ring_all_reduce(3), speed=4), motion="reduce")
    positions = page.evaluate(
        """() => new Promise((done) => {
          const root = document.querySelector(".ar-player"), seen = new Set();
          new MutationObserver(() => {
            seen.add(root.dataset.position);
            if (root.dataset.position === "4.000") done([...seen]);
          }).observe(root, { attributes: true });
          root.querySelector('[data-do="play"]').click();
        })"""
    )
    assert set(positions) <= {"0.000", "1.000", "2.000", "3.000", "4.000"}


def test_a_deadlock_is_seen_as_a_wait(show):
    sends = [Event(r, "send", (r + 1) % 4, nbytes=1024, line=7) for r in range(4)]
    page = show(Player(Trace("wire", 4, tuple(sends), clock="virtual")))
    page.locator(".ar-player").press("End")
    assert page.locator(".ar-packet.ar-lost").count() == 4
    assert page.locator(".ar-rank.ar-forever .ar-state").all_text_contents() == [
        f"waits for {(r + 1) % 4}" for r in range(4)
    ]
    assert "rank 2 tries to send 1.02 kB to rank 3, which never receives it (line 7)" in say(page)
    assert page.locator(".ar-caption.ar-bad").count() == 1
    assert page.locator(".ar-packet").first.text_content() == "1.02 kB"


def test_a_receive_that_nobody_serves_is_seen_as_a_wait(show):
    events = (
        Event(0, "send", 1, nbytes=8, step=0, match=0),
        Event(1, "recv", 0, nbytes=8, step=0, match=0),
        Event(2, "recv", 1, line=12),
    )
    page = show(Player(Trace("wire", 3, events, clock="virtual")))
    page.locator(".ar-player").press("End")
    assert page.locator('.ar-rank[data-rank="2"]').get_attribute("data-state") == "waiting for ever"
    assert "rank 2 waits for rank 1 to send, for ever (line 12)" in say(page)
    assert page.locator('.ar-rank[data-rank="1"]').get_attribute("data-state") == ""


def test_what_is_counted_twice_or_missing_looks_wrong(show):
    first = [e for e in ring_all_reduce(4).trace(4096) if e.step == 0]
    again = [replace(e, step=1, match=e.match + 100, contrib=None) for e in first]
    page = show(Player(Trace("wire", 4, (*first, *again), "all_reduce", chunks=4, nbytes=4096)))
    page.locator(".ar-player").press("End")
    assert cells(page)[1, 0] == [0, 0, 1]
    assert page.locator(".ar-cell.ar-twice").count() == 4
    assert page.locator(".ar-cell.ar-missing").count() == 12
    hatched = page.locator('.ar-rank[data-rank="1"] path.ar-hatch').get_attribute("d")
    assert hatched.count("M") == 1
    assert "0 (2 times) + 1" in page.locator('.ar-cell[data-rank="1"][data-chunk="0"] title').text_content()


def test_a_trace_without_chunks_plays_with_bytes(show):
    events = []
    for step in range(2):
        for r in range(4):
            events.append(Event(r, "send", (r + 1) % 4, nbytes=2000, step=step, match=4 * step + r))
            events.append(Event((r + 1) % 4, "recv", r, nbytes=2000, step=step, match=4 * step + r))
    page = show(Player(Trace("wire", 4, tuple(events))))
    to_step(page, 1.5)
    assert page.locator(".ar-packet").all_text_contents() == ["2 kB"] * 4
    assert page.locator('.ar-rank[data-rank="0"] .ar-bytes').all_text_contents() == ["sent 2 kB", "received 2 kB"]
    to_step(page, 2)
    assert meter(page, "bytes") == "4 kB"


def test_quiz_stops_asks_and_tells_the_truth(show):
    page = show(Player(ring_all_reduce(4), quiz=True, speed=4))
    page.get_by_role("button", name="Play", exact=True).click()
    question = page.locator(".ar-question")
    assert question.locator("p").first.text_content() == "Step 1: which chunk does rank 1 send to rank 2?"
    page.get_by_role("button", name="chunk 3", exact=True).click()
    assert question.locator(".ar-result").text_content() == (
        "Not quite. Rank 1 sends chunk 1, which carries the contribution of rank 1; rank 2 adds it. (0 of 1 right)"
    )
    assert question.locator(".ar-right").all_text_contents() == ["chunk 1"]
    assert page.locator(".ar-player").get_attribute("data-step") == "0", "nothing is revealed before the answer"
    page.get_by_role("button", name="Show me").click()
    page.wait_for_selector('.ar-player[data-step="1"][data-playing="false"]')
    assert question.locator("p").first.text_content() == (
        "Step 2: rank 2 sends chunk 1 to rank 3. Whose contributions does rank 3's chunk 1 hold afterwards?"
    )
    page.get_by_role("button", name="1 + 2 + 3", exact=True).click()
    assert question.locator(".ar-result").text_content().startswith("Right. Rank 3 held 3.")
    assert question.locator(".ar-result").text_content().endswith("(1 of 2 right)")


def test_a_question_is_named_and_leaves_the_focus_in_the_player(show):
    page = show(Player(ring_all_reduce(4), quiz=True))
    page.locator(".ar-player").press("ArrowRight")
    page.get_by_role("group", name="Step 1: which chunk does rank 1 send to rank 2?").wait_for()
    assert page.locator(".ar-option").first.evaluate("(e) => e === document.activeElement")
    page.keyboard.press("ArrowRight")
    done(page, 1)
    assert page.locator(".ar-player").evaluate("(e) => e.contains(document.activeElement)")


def test_every_question_of_every_algorithm_has_one_right_answer(show):
    for schedule in (ring_all_reduce(4), tree_all_reduce(6), recursive_doubling_all_reduce(8)):
        page = show(Player(schedule, quiz=True, speed=4), motion="reduce")
        held, asked = by_hand(schedule), 0
        for step in range(schedule.steps):
            page.locator(".ar-player").press("ArrowRight")
            options = page.locator(".ar-option")
            if options.count():
                asked += 1
                text = page.locator(".ar-question p").first.text_content()
                options.first.click()
                assert page.locator(".ar-option.ar-right").count() == 1, text
                right = page.locator(".ar-option.ar-right").text_content()
                if "hold afterwards" in text:
                    rank, chunk = (
                        int(text.split("does rank ")[1].split("'")[0]),
                        int(text.split(" hold")[0].split()[-1]),
                    )
                    assert right == " + ".join(map(str, held[step + 1][rank, chunk])), text
                page.get_by_role("button", name="Show me").click()
            done(page, step + 1)
        assert asked == schedule.steps, schedule


def test_two_films_side_by_side_in_step(show):
    page = show(Player(ring_all_reduce(4), tree_all_reduce(4), nbytes=4000, axis="step"))
    to_step(page, 6)
    assert all(has == [0, 1, 2, 3] for half in (0, 1) for has in cells(page, half).values())
    assert page.locator('[data-meter="step"]').all_text_contents() == ["done, step 6 of 6", "done, step 4 of 4"]
    assert page.locator('[data-meter="bytes"]').all_text_contents() == [
        "6 kB of 6 kB sent by each rank",
        "8 kB of 8 kB sent by the busiest rank",
    ]
    to_step(page, 2)
    assert cells(page, 0) == by_hand(ring_all_reduce(4))[2]
    assert cells(page, 1) == by_hand(tree_all_reduce(4))[2]


@pytest.mark.parametrize(
    "schedule", [ring_all_reduce(8), flat_all_reduce(6), recursive_doubling_all_reduce(8)], ids=str
)
def test_in_every_layout_the_cards_stand_apart(show, schedule):
    for layout in ("ring", "line", "tree", "grid", "all-to-all"):
        page = show(Player(schedule, layout=layout))
        assert page.locator(".ar-stage").get_attribute("data-layout") == layout
        boxes = page.evaluate(
            "() => [...document.querySelectorAll('.ar-card')].map((c) => c.getBoundingClientRect().toJSON())"
        )
        assert len(boxes) == schedule.ranks
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                apart = (
                    a["right"] < b["left"] or b["right"] < a["left"] or a["bottom"] < b["top"] or b["bottom"] < a["top"]
                )
                assert apart, f"{layout}: two cards overlap"
        to_step(page, 1)
        assert cells(page) == by_hand(schedule)[1]


RECORD_TEXT = """() => { window.texts = []; const pen = CanvasRenderingContext2D.prototype, write = pen.fillText;
  pen.fillText = function (text, ...at) { window.texts.push(text); write.call(this, text, ...at); }; }"""


def test_many_ranks_in_the_dense_form(show):
    page = show(Player(ring_all_reduce(64)))
    shares = lambda: [float(s) for s in page.locator(".ar-dense").get_attribute("data-shares").split(",")]  # noqa: E731
    assert shares() == [pytest.approx(1 / 64, abs=1e-3)] * 64
    to_step(page, 63)
    wanted = (1 + sum(range(1, 65)) - 1) / 64**2
    assert shares() == [pytest.approx(wanted, abs=1e-3)] * 64
    assert meter(page, "links") == "64 of 64 busy"
    page.locator(".ar-player").press("End")
    assert shares() == [1.0] * 64
    ink = page.evaluate(
        """() => { const c = document.querySelector(".ar-dense canvas"), pen = c.getContext("2d");
          return [...pen.getImageData(53, 25, 1, 1).data]; }"""
    )
    assert ink == [27, 31, 36, 255], "the matrix shows that everything is held"
    box = page.locator(".ar-dense").bounding_box()
    page.evaluate(RECORD_TEXT)
    page.mouse.move(box["x"] + 100, box["y"] + 60)
    said = page.evaluate("() => window.texts")
    assert any(text.startswith("rank ") and text != "rank 0" for text in said), said
    assert "64 of 64 chunks complete" in said


def test_a_cell_counted_twice_is_vermilion_among_many_ranks(show):
    first = [e for e in ring_all_reduce(17).trace(17_000) if e.step == 0]
    again = [replace(e, step=1, match=e.match + 100, contrib=None) for e in first]
    page = show(Player(Trace("wire", 17, (*first, *again), "all_reduce", chunks=17, nbytes=17_000)))
    red = """() => { const c = document.querySelector(".ar-dense canvas"), pen = c.getContext("2d");
      const { data } = pen.getImageData(0, 0, c.width, c.height), at = (i) => data.slice(i, i + 3).join();
      return data.some((_, i) => i % 4 === 0 && at(i) === "213,94,0"); }"""
    to_step(page, 1)
    assert not page.evaluate(red)
    to_step(page, 2)
    assert page.evaluate(red)


def test_a_picture_of_160000_cells_is_shown(show):
    page = show(Player(Schedule("all_gather", "idle", 400, 400, ())))
    assert page.locator(".ar-dense").get_attribute("data-shares").split(",")[-1] == "0.003"


@pytest.mark.parametrize("ranks", [1, 2])
def test_few_ranks(show, ranks):
    page = show(Player(ring_all_reduce(ranks)))
    page.get_by_role("button", name="Play", exact=True).click()
    page.locator(".ar-player").press("End")
    done(page, 2 * (ranks - 1))
    assert set(map(tuple, cells(page).values())) == {tuple(range(ranks))}


def test_words_from_a_trace_are_never_markup(show):
    bad = "</script><img src=x onerror=document.title='broken'>"
    events = (Event(0, "compute", step=0, label=bad), Event(1, "compute", step=0, label=bad))
    page = show(Player(Trace("live", 2, events, algorithm=bad)))
    page.locator(".ar-player").press("End")
    assert page.title() == "Player"
    assert bad in page.locator(".ar-caption").text_content()


def test_light_and_dark_have_the_colours_of_the_course(show):
    def look(page):
        return page.evaluate(
            """() => [getComputedStyle(document.querySelector(".ar-player")).backgroundColor,
                      getComputedStyle(document.querySelector(".ar-rank path[data-contributor]")).fill]"""
        )

    light, dark = (look(show(Player(ring_all_reduce(4)), scheme)) for scheme in ("light", "dark"))
    assert light == ["rgb(255, 255, 255)", "rgb(0, 114, 178)"]
    assert dark == ["rgb(22, 25, 29)", "rgb(61, 155, 224)"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(show, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = show(Player(ring_all_reduce(4), tree_all_reduce(4), quiz=True), scheme)
    page.get_by_role("button", name="Table of this step").click()
    page.locator(".ar-scroll tbody").first.wait_for()
    page.get_by_role("button", name="Play", exact=True).click()
    page.locator(".ar-option").nth(1).click()

    def scan():
        found = axe.Axe().run(page).response["violations"]
        return {v["id"]: v["nodes"][0]["html"] for v in found if v["impact"] in ("serious", "critical")}

    assert scan() == {}
    page.evaluate("() => document.querySelector('.ar-button').removeAttribute('aria-label')")
    page.evaluate("() => document.querySelector('.ar-button').removeAttribute('title')")
    assert "button-name" in scan(), "the scan finds what was planted"


def _collectives(ranks: int, code: tuple[str, ...] = ()) -> Trace:
    """A run on the wire: a long name, a pass of a block while it is under way, and the wait for it."""
    work = ("all_gather_into_tensor", "reduce_scatter_tensor")
    names, sizes = ("all_gather_single", "reduce_scatter_single"), ((1_280_000, 5_120_000), (5_120_000, 1_280_000))
    events = []
    for r in range(ranks):
        for seq, (op, label, (put, got)) in enumerate(zip(work, names, sizes, strict=True)):
            what = {
                "label": label,
                "nbytes": put,
                "received_nbytes": got,
                "group": "0",
                "seq": seq,
                "line": 2 + 3 * seq,
            }
            events.append(Event(r, op, start=4.0 * seq, end=4.0 * seq + 3, blocking=bool(seq), **what))
        events.append(Event(r, "compute", start=0.0, end=2.0, line=3, label="block 10 forward"))
        events.append(Event(r, "wait", start=2.0, end=3.0, line=4, group="0", seq=0))
        events.append(Event(r, "wait", start=4.0, end=7.0, line=5, group="0", seq=1))
    meta = {"code": {"first": 1, "shown": 1, "lines": ["def step(x):", *("    ...",) * 4]}}
    events.sort(key=lambda e: e.start)
    return Trace("wire", ranks, tuple(events), clock="virtual", source="your fsdp_step", meta=meta)


def _texts_outside(page) -> list[str]:
    """The words that are not inside their card, with 3 px to spare."""
    return page.evaluate(
        """() => [...document.querySelectorAll(".ar-rank")].flatMap((card) => {
             const box = card.querySelector(".ar-card").getBoundingClientRect();
             return [...card.querySelectorAll("text")].filter((text) => {
               const at = text.getBoundingClientRect();
               return at.width && (at.left < box.left + 3 || at.right > box.right - 3 || at.bottom > box.bottom);
             }).map((text) => text.textContent);
           })"""
    )


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_run_of_collectives_says_what_each_rank_does_and_its_bytes_in_its_box(show, ranks):
    page = show(Player(_collectives(ranks)))
    player = page.locator(".ar-player")
    assert page.locator(".ar-title strong").text_content() == "Your fsdp_step"
    page.get_by_role("button", name="Table of this step").click()
    heads, cells = page.locator(".ar-scroll thead th"), page.locator(".ar-scroll tbody tr").nth(1).locator("td")
    assert heads.all_text_contents() == ["rank", "put in", "got out"]
    said = []
    for step in range(1, 5):
        player.press("ArrowRight")
        done(page, step)
        said.append([page.locator(".ar-code h4").text_content(), *cells.all_text_contents()])
        assert _texts_outside(page) == []
        words = page.locator('.ar-rank[data-rank="1"] .ar-bytes').all_text_contents()
        if step == 2:
            assert words[0].endswith("block 10 forward") and words[1].endswith("all_gather_single")
            assert words[2] == "1.28 MB in, 5.12 MB out"
    assert said == [
        ["Your line 2", "0 B", "0 B"],
        ["Your line 3", "0 B", "0 B"],
        ["Your line 4", "1.28 MB", "5.12 MB"],
        ["Your line 5", "6.4 MB", "6.4 MB"],
    ]
    who = "Ranks 0 and 1" if ranks == 2 else f"All {ranks} ranks"
    line = "take part in reduce_scatter_single: each 5.12 MB in, 1.28 MB out (line 5)."
    assert page.locator(".ar-caption").first.text_content() == f"{who} {line}"
    assert page.locator(".ar-legend .ar-meaning").all_text_contents() == ["computes", "in a collective", "waits"]


def test_two_halves_count_on_one_scale_and_name_the_same_rank_at_the_start_and_at_the_end(show):
    star = [(1, 0), (2, 0), (3, 0), (0, 1), (0, 2), (0, 3)]
    events = [
        event
        for step, (src, dst) in enumerate(star)
        for event in (
            Event(src, "send", dst, nbytes=16, step=step, match=step),
            Event(dst, "recv", src, nbytes=16, step=step, match=step),
        )
    ]
    run = Trace("wire", 4, tuple(events), "all_reduce", nbytes=16, source="your ring_all_reduce")
    page = show(Player(run, ring_all_reduce(4), titles=("your messages", "the right schedule")))

    def said() -> list[str]:
        return [page.locator(".ar-half").nth(i).locator('[data-meter="bytes"]').text_content() for i in (0, 1)]

    assert said() == ["0 B of 48 B sent by the busiest rank", "0 B of 24 B sent by each rank"]
    page.get_by_role("button", name="To the end").click()
    assert said() == ["48 B of 48 B sent by the busiest rank", "24 B of 24 B sent by each rank"]
    wide = page.locator(".ar-half-meter .ar-fill").evaluate_all("(bars) => bars.map((bar) => bar.style.width)")
    assert wide == ["100%", "50%"]

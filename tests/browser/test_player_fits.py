"""The player's place on the page: its height, its width, the theme, and what an open question covers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from allranks.show.player import Player
from allranks.theory.schedules import ALGORITHMS, ring_all_reduce, tree_all_reduce
from allranks.theory.trace import Trace
from test_player_picture import in_timeline, meter, to_step

pytestmark = pytest.mark.browser

WIDE, PHONE = {"width": 916, "height": 900}, {"width": 390, "height": 844}
BOX = "(name) => document.querySelector(name).getBoundingClientRect().toJSON()"
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture
def sized(show):
    """A function that shows a player in a window of a size."""
    pages = []

    def start(player, size, scheme="light"):
        page = show(player, scheme)
        pages.append(page)
        page.set_viewport_size(size)
        page.add_style_tag(content="body { margin: 8px }")
        page.evaluate(TWO_FRAMES)
        return page

    yield start
    for page in pages:
        page.set_viewport_size({"width": 1280, "height": 1000})


@pytest.mark.parametrize(
    "player",
    [
        Player(ring_all_reduce(4), nbytes=1 << 20),
        Player(ring_all_reduce(8)),
        Player(ring_all_reduce(64)),
        Player(ALGORITHMS["pairwise_all_to_all"](6)),
        Player(ring_all_reduce(8), tree_all_reduce(8)),
    ],
    ids=["4", "8", "64", "all-to-all", "compare"],
)
def test_it_is_at_most_620_px_high_at_900_px_and_its_text_has_12_px(sized, player):
    page = sized(player, WIDE)
    for step in (0, 1.5):
        if step:
            to_step(page, step)
        box = page.evaluate(BOX, ".ar-player")
        assert (box["width"], box["height"] <= 620) == (900, True), box
    small = page.evaluate(
        """() => [...document.querySelectorAll(".ar-player *")].filter((e) => e.firstChild?.nodeType === 3 &&
             e.textContent.trim() && e.getClientRects().length && !e.closest(".ar-live, style, title") &&
             parseFloat(getComputedStyle(e).fontSize) < 12).map((e) => `${e.className} ${e.textContent}`)"""
    )
    assert small == []


def test_the_picture_is_drawn_to_scale_and_no_packet_or_card_is_cut(sized):
    for schedule in (ring_all_reduce(8), tree_all_reduce(8), ALGORITHMS["pairwise_all_to_all"](6)):
        page = sized(Player(schedule), WIDE)
        to_step(page, 0.5)
        stage = page.evaluate(BOX, ".ar-stage")
        for box in page.evaluate(
            "() => [...document.querySelectorAll('.ar-card, .ar-parcel')].map((c) => "
            "c.getBoundingClientRect().toJSON())"
        ):
            assert box["left"] >= stage["left"] - 1 and box["right"] <= stage["right"] + 1, schedule
            assert box["top"] >= stage["top"] - 1 and box["bottom"] <= stage["bottom"] + 1, schedule
        assert page.evaluate(
            "() => { const s = document.querySelector('.ar-board'); return s.viewBox.baseVal.width }"
        ) == (pytest.approx(page.evaluate(BOX, ".ar-board")["width"], abs=1))


def test_at_390_px_all_is_reached_and_buttons_have_44_px(sized):
    page = sized(Player(ring_all_reduce(4), quiz=True), PHONE)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Step forward").click()
    page.locator(".ar-option").first.wait_for()
    for box in page.evaluate(
        "() => [...document.querySelectorAll('.ar-player button')].filter((b) => b.getClientRects().length)"
        ".map((b) => [b.textContent, b.getBoundingClientRect().toJSON()])"
    ):
        assert box[1]["height"] >= 44, box
        assert 0 <= box[1]["left"] and box[1]["right"] <= 390, box
    assert page.evaluate(BOX, ".ar-rail")["top"] > page.evaluate(BOX, ".ar-timeline")["bottom"]


def test_in_a_low_window_the_timeline_folds_and_a_button_opens_it(sized):
    page = sized(Player(ring_all_reduce(4)), {"width": 916, "height": 470})
    assert page.evaluate(BOX, ".ar-player")["height"] <= 454
    opens = page.get_by_role("button", name="Timeline")
    assert opens.get_attribute("aria-expanded") == "false"
    page.locator(".ar-timeline").scroll_into_view_if_needed()
    page.mouse.click(*in_timeline(page, 0.5, 20))
    assert float(page.locator(".ar-player").get_attribute("data-position")) == pytest.approx(3, abs=0.05)
    opens.click()
    assert page.evaluate(BOX, ".ar-timeline")["height"] > 100


def test_in_a_low_window_the_legend_is_a_turn_of_the_wheel_away(sized):
    page = sized(Player(ring_all_reduce(8)), {"width": 1050, "height": 470})
    rail = page.evaluate(BOX, ".ar-rail")
    assert page.evaluate(BOX, ".ar-legend")["bottom"] > rail["bottom"]
    page.mouse.move(rail["left"] + 40, rail["top"] + 40)
    page.mouse.wheel(0, 400)
    page.wait_for_function("() => document.querySelector('.ar-rail').scrollTop > 0")
    page.evaluate(TWO_FRAMES)
    assert page.evaluate(BOX, ".ar-legend")["bottom"] <= page.evaluate(BOX, ".ar-rail")["bottom"] + 1


def test_a_question_covers_what_comes_and_moves_nothing(sized):
    page = sized(Player(ring_all_reduce(4), quiz=True), WIDE)
    before = page.evaluate(BOX, ".ar-deck")
    page.locator(".ar-player").press("ArrowRight")
    page.locator(".ar-option").first.wait_for()
    assert page.evaluate(BOX, ".ar-deck") == before
    assert page.locator(".ar-caption").is_hidden()
    cover, lanes = page.evaluate(BOX, ".ar-cover"), page.evaluate(BOX, ".ar-timeline")
    assert cover["left"] <= in_timeline(page, 0)[0] + 1 and cover["right"] >= lanes["right"] - 1
    page.mouse.move(*in_timeline(page, 0.2, 40))
    assert page.locator(".ar-tip").is_hidden(), "the pointer tells nothing either"
    page.locator(".ar-option").first.click()
    assert page.evaluate(BOX, ".ar-deck") == before
    page.get_by_role("button", name="Show me").click()
    page.wait_for_selector('.ar-player[data-step="1"][data-playing="false"]')
    assert page.evaluate(BOX, ".ar-cover")["left"] == pytest.approx(in_timeline(page, 1 / 6)[0], abs=1)


def test_a_theme_change_while_it_has_no_width_leaves_a_timeline_that_scrubs(sized):
    page = sized(Player(ring_all_reduce(4)), WIDE)
    paint = "() => document.querySelector('.ar-timeline canvas').toDataURL()"
    light = page.evaluate(paint)
    page.evaluate(
        """() => { const p = document.querySelector(".ar-player"); p.parentNode.style.display = "none";
          document.body.dataset.theme = "dark"; }"""
    )
    page.evaluate(TWO_FRAMES)
    page.evaluate("() => { document.querySelector('.ar-player').parentNode.style.display = ''; }")
    page.wait_for_function(f"(light) => ({paint})() !== light", arg=light)
    to_step(page, 2)
    cursor = page.evaluate(BOX, ".ar-cursor")
    assert cursor["left"] + 1 == pytest.approx(in_timeline(page, 2 / 6)[0], abs=1.5)


def test_two_schedules_share_one_clock_and_their_halves_have_names(sized):
    page = sized(Player(ring_all_reduce(8), tree_all_reduce(8), nbytes=8_000_000), WIDE)
    page.mouse.click(*in_timeline(page, 0.5, 4))
    # by hand: the ring takes 14 x 25 us, the tree 6 x 165 us
    assert meter(page, "position").endswith(" of 990 µs")
    assert page.locator('[data-meter="step"]').all_text_contents() == ["done, step 14 of 14", "step 3 of 6"]
    assert page.locator(".ar-half-title > span:first-child").all_text_contents() == [
        "Ring all-reduce",
        "Tree all-reduce",
    ]
    assert "a step takes 5 µs + its bytes at 50 GB/s" in page.locator(".ar-title").text_content()
    run = replace(ring_all_reduce(4).trace(4096), kind="wire", clock="virtual")
    page = sized(Player(run, compare=ring_all_reduce(4)), WIDE)
    assert page.locator(".ar-you").all_text_contents() == ["yours"]


def test_a_run_that_went_wrong_opens_at_its_first_wrong_move(sized):
    first = [replace(e, line=12) for e in ring_all_reduce(4).trace(4096).events if e.step == 0]
    again = [replace(e, step=1, match=e.match + 100, contrib=None) for e in first]
    page = sized(Player(Trace("wire", 4, (*first, *again), "all_reduce", chunks=4, nbytes=4096)), WIDE)
    assert page.locator(".ar-player").get_attribute("data-position") == "1.500"
    assert page.locator(".ar-packet.ar-picked.ar-wrong-move").count() == 1
    assert page.locator(".ar-caption.ar-bad").text_content() == (
        "Rank 0 sends c0 to rank 1, which adds it (line 12): the first wrong move, c0 then holds rank 0 twice."
    )


# half-way through a step: packets that cover another one, or the name of a rank, by more than an edge
COVERED = """() => {
  const boxes = (name) => [...document.querySelectorAll(name)].map((e) => e.getBoundingClientRect());
  const covers = (a, b, x, y) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > x
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > y;
  const packets = boxes(".ar-packet"), names = boxes(".ar-rank .ar-name");
  const pairs = packets.flatMap((a, i) => packets.slice(0, i).filter((b) => covers(a, b, 10, 8)));
  return [packets.length, pairs.length, packets.filter((a) => names.some((b) => covers(a, b, 4, 3))).length];
}"""


@pytest.mark.parametrize(
    "player",
    [
        Player(ALGORITHMS["double_binary_tree_all_reduce"](8, segments=4), layout="ring"),
        Player(ALGORITHMS["rabenseifner_all_reduce"](8), ring_all_reduce(8), nbytes=840),
        Player(ALGORITHMS["flat_all_reduce"](8), tree_all_reduce(8)),
    ],
    ids=["double tree", "two of 8 ranks", "flat and tree"],
)
def test_packets_of_a_step_cover_neither_each_other_nor_a_name(sized, player):
    page = sized(player, WIDE)
    steps = int(page.locator(".ar-timeline").get_attribute("aria-valuemax"))
    for step in range(steps):
        to_step(page, step + 0.5)
        shown, pairs, names = page.evaluate(COVERED)
        assert shown, f"no packet in step {step + 1}"
        assert not pairs and not names, f"step {step + 1}: {pairs} pairs of packets, {names} names covered"


def test_forty_eight_chunks_are_a_matrix_and_not_stripes(sized):
    chunks = ALGORITHMS["ring_all_gather"](8)
    parts = replace(
        chunks,
        chunks=48,
        moves=tuple(replace(m, chunks=tuple(6 * c + k for c in m.chunks for k in range(6))) for m in chunks.moves),
    )
    page = sized(Player(parts), WIDE)
    assert page.locator(".ar-dense canvas").count() == 1
    legend = page.locator(".ar-legend").inner_text()
    assert "arrives now" in legend
    assert "whose numbers" not in legend


def test_a_folded_timeline_shows_no_frame_of_what_was_drawn_before(sized):
    page = sized(Player(ring_all_reduce(4)), WIDE)
    to_step(page, 2)
    ink = """() => {
      const canvas = document.querySelectorAll(".ar-timeline canvas")[1];
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return data.some((part, i) => i % 4 === 3 && part);
    }"""
    assert page.evaluate(ink)
    page.set_viewport_size({"width": 916, "height": 460})
    page.wait_for_selector(".ar-low")
    page.evaluate(TWO_FRAMES)
    assert not page.evaluate(ink)

"""The widget's settings, its errors, and what it leaves where no script runs."""

from __future__ import annotations

import base64
import html.parser
import re
import xml.etree.ElementTree as ET

import ipywidgets
import pytest
from allranks.show.player import Player, PlayerError
from allranks.show.player.still import COLOURS
from allranks.show.player.widget import LOADER, script
from allranks.theory.schedules import rabenseifner_all_reduce, ring_all_reduce, tree_all_reduce
from allranks.theory.trace import Event, Trace

RING = ring_all_reduce(4)


def test_it_is_an_ipywidget_that_fits_in_a_box():
    player = Player(RING)
    assert isinstance(player, ipywidgets.DOMWidget)
    assert isinstance(player.layout, ipywidgets.Layout)
    ipywidgets.HBox([player, ipywidgets.IntSlider()])
    assert repr(player) == "<Player ring all_reduce>"
    assert repr(Player(RING, tree_all_reduce(4))) == "<Player ring all_reduce beside tree all_reduce>"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Player("ring"), "it was given a str"),
        (lambda: Player(RING, compare=3), "it was given a int"),
        (lambda: Player(RING, layout="star"), "must be auto, ring, line, tree, grid, all-to-all"),
        (lambda: Player(RING, axis="bytes"), "must be step or time"),
        (lambda: Player(RING, axis="time"), "a schedule has no times"),
        (lambda: Player(RING, speed=3), "must be one of 0.25, 0.5, 1, 2, 4"),
        (lambda: Player(RING, nbytes=-1), "can't be negative"),
        (lambda: Player(RING, titles=["a", "b"]), "give one for each of the 1 that are played"),
    ],
)
def test_what_it_can_not_play_is_said_in_one_sentence(call, words):
    with pytest.raises(PlayerError, match=re.escape(words)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_live_runs_are_shown_in_time_and_the_others_in_steps():
    events = (Event(0, "compute", start=0.0, end=1.0), Event(1, "compute", start=0.0, end=1.0))
    assert Player(Trace("live", 2, events, clock="wall")).axis == "time"
    assert Player(Trace("wire", 2, events, clock="virtual")).axis == "step"
    assert Player(RING).axis == "step"
    assert Player(RING, tree_all_reduce(4)).axis == "time", "two schedules are compared on one clock"


def test_all_that_an_8_by_8_ring_sends_is_under_39_kb():
    player = Player(ring_all_reduce(8), nbytes=8 << 20)
    state = player.get_state()
    total = sum(len(v) if isinstance(v, (str, bytes)) else len(repr(v)) for v in state.values())
    assert total < 39_000, f"{total} bytes"
    assert len(player.animation) < 3_000


def test_no_address_is_asked_for():
    assert set(re.findall(r"https?://[^\s\"'`)]+", script())) <= {"http://www.w3.org/2000/svg"}
    assert "import(" not in script()
    assert "http" not in LOADER


def test_the_bundle_has_a_widget_a_page_and_words():
    data, _ = Player(RING)._repr_mimebundle_()
    assert {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"} <= set(data)
    assert data["text/plain"].splitlines()[:3] == [
        "ring all_reduce, 4 ranks",
        "start: 4 ranks, 4 chunks",
        "step 1 of 6: rank 0 sends chunk 0 to rank 1, which adds it; rank 1 sends chunk 1 to rank 2, which adds it; "
        "rank 2 sends chunk 2 to rank 3, which adds it; rank 3 sends chunk 3 to rank 0, which adds it",
    ]
    picture = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', data["text/html"]).group(1)
    ET.fromstring(base64.b64decode(picture))


def test_the_still_picture_shows_contributions_and_messages():
    svg = ET.fromstring(Player(RING).svg())
    name = "{http://www.w3.org/2000/svg}"
    stripes = {p.get("fill"): p.get("d").count("M") for p in svg.iter(f"{name}path") if p.get("fill") in COLOURS}
    # by hand, for each of the seven states: reducing step s adds s stripes of each colour; copying then puts whole
    # chunks in place of cells with one, two and three contributions
    assert stripes == dict.fromkeys(COLOURS, 4 + 5 + 7 + 10 + 13 + 15 + 16)
    labels = [t.text for t in svg.iter(f"{name}text") if t.text and t.text[-1] in "+="]
    assert len(labels) == 24
    assert labels[:4] == ["c0+", "c1+", "c2+", "c3+"]
    assert labels[-1][-1] == "="


def test_the_still_picture_has_dotted_hues_from_rank_4_on_and_none_above_eight():
    eight, nine = Player(ring_all_reduce(8)).svg(), Player(ring_all_reduce(9)).svg()
    assert all(f'fill="url(#rank-{r})"' in eight for r in range(4, 8))
    assert not any('d="M' in line and f'fill="{COLOURS[0]}"' in line for line in nine.split("<path")[1:])
    for picture in (eight, nine):
        assert "#c62828" not in picture


def test_an_arrow_names_all_its_chunks():
    svg = Player(rabenseifner_all_reduce(8)).svg()
    assert ">c4…7+<" in svg
    assert ">c4+<" in svg, "the last halving carries one chunk"


def test_a_label_stays_within_the_pictures_words():
    label = "STATE onload=alert(1) BINARY MODULE x="
    page = Player(Trace("live", 2, (Event(0, "compute", step=0, label=label),))).page()
    seen = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attrs: seen.extend(name for name, _ in attrs if tag == "img")
    parser.feed(page)
    assert seen == ["alt", "style", "src"]
    assert f"rank 0 computes {label}" in page


def test_a_long_run_stays_a_small_picture_and_a_short_text():
    player = Player(ring_all_reduce(64))
    assert len(player.svg()) < 200_000
    assert "... 109 more steps ..." in player.text()


def test_the_still_picture_of_whole_collectives_has_lanes_in_time():
    bars = [("all_gather_into_tensor", 0.0, 1.0), ("compute", 1.0, 3.0), ("all_gather_into_tensor", 3.0, 4.0)]
    events = [Event(r, op, start=a, end=b) for r in (0, 1) for op, a, b in bars]
    svg = ET.fromstring(Player(Trace(kind="live", ranks=2, events=tuple(events))).svg())
    name = "{http://www.w3.org/2000/svg}"
    widths = [re.findall(r"h([\d.]+)v", p.get("d")) for p in svg.iter(f"{name}path")]
    assert widths == [["175.0"] * 4, ["350.0"] * 2]  # 1 s and 2 s of 4 s, on 700 units
    words = [t.text for t in svg.iter(f"{name}text")]
    assert words[-2:] == ["all_gather", "compute"]


def test_in_a_comparison_a_step_lasts_alpha_and_its_bytes():
    player = Player(ring_all_reduce(8), tree_all_reduce(8), nbytes=8_000_000)
    ring, tree = player.animations
    # by hand: 14 steps of 1 MB, and 6 of 8 MB, at 5 us and 50 GB/s
    assert max(t.end for t in ring.transfers) == pytest.approx(14 * (5e-6 + 1e6 / 50e9))
    assert max(t.end for t in tree.transfers) == pytest.approx(6 * (5e-6 + 8e6 / 50e9))
    assert ring.pace == "a step takes 5 µs + its bytes at 50 GB/s"
    assert Player(ring_all_reduce(8), tree_all_reduce(8), nbytes=8_000_000, axis="step").axis == "step"
    sizeless = Player(ring_all_reduce(4), tree_all_reduce(4)).animations[0]
    assert max(t.end for t in sizeless.transfers) == pytest.approx(6 * (5e-6 + 250_000 / 50e9))


def test_a_schedule_beside_a_run_moves_as_many_bytes():
    run, ring = Player(RING.trace(4096), compare=RING).animations
    assert run.bytes_sent() == ring.bytes_sent()


def test_the_least_that_a_rank_must_send_can_be_kept_for_the_reader_to_find():
    """A chapter asked for a formula, and the player above the question said it."""
    assert Player(RING).animations[0].bound is not None
    kept = Player(RING, tree_all_reduce(4), bound=False)
    assert [one.bound for one in kept.animations] == [None, None]
    assert kept.animation == kept.animations[0].payload() != Player(RING).animation

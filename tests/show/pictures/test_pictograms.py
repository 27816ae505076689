"""The pictograms say what the collectives do: read off verified schedules, in the course's colours, the same bytes each time."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from allranks import schedules
from allranks.show.pictures import NAMES, flow, pictogram
from allranks.show.pictures.moves import MOVES
from allranks.show.pictures.palette import CLASSES, DARK, LIGHT, WORDS, page_style
from allranks.theory.schedules import COLLECTIVES

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_collective_has_a_picture():
    assert set(NAMES) == {*COLLECTIVES, "send_recv"}
    assert {move.name for _, row in MOVES for move in row} == set(NAMES) - {"barrier"}


@pytest.mark.parametrize("ranks", [3, 4, 8])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_after_is_what_every_schedule_of_the_collective_ends_with(name, ranks):
    """Played message by message: the trace says which contributions arrive, and the picture shows these and no others."""
    f = flow(name, ranks)
    drawn = {(part.rank, part.chunk): set(part.owners) for part in f.after}
    for build in schedules.algorithms(name).values():
        schedule = build(ranks)
        schedule.verify()
        if schedule.chunks != max(part.chunk for part in f.before) + 1:
            continue  # cut into other chunks: pipelines and trees
        held = {place: set(owners) for place, owners in schedule.initial().items()}
        assert {(part.rank, part.chunk): set(part.owners) for part in f.before} == held
        for now in schedule.by_step:
            sent = [(m, c, held[m.src, c]) for m in now for c in m.chunks]
            for move, chunk, payload in sent:
                held[move.dst, chunk] = held.get((move.dst, chunk), set()) | payload if move.reduce else payload
        assert {place: held[place] for place in drawn} == drawn
    assert drawn == {place: set(owners) for place, owners in _final(name, ranks).items()}


def _final(name: str, ranks: int):
    chunks = max(part.chunk for part in flow(name, ranks).before) + 1
    return next(s for b in schedules.algorithms(name).values() if (s := b(ranks)).chunks == chunks).final()


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_shows_its_flow(name):
    """A stripe for each contribution before and after, in the hue of its rank; a ribbon from each source."""
    f = flow(name)
    root = ElementTree.fromstring(pictogram(name))
    assert root.find(f"{SVG}title").text and root.find(f"{SVG}desc").text == f.words()
    kinds = [element.get("class", "") for element in root.iter()]
    if name == "barrier":
        assert [kinds.count(f"r{rank}") for rank in range(4)] == [2, 2, 2, 2]
        return
    for rank in range(4):
        stripes = sum(part.owners.count(rank) for part in (*f.before, *f.after))
        assert kinds.count(f"r{rank}") == stripes
    adding = [stream for stream in f.streams if stream.adds]
    assert kinds.count("ink edge") == len(adding)
    ribbons = sum(len(s.sources) * (len(s.targets) + s.adds) for s in f.streams)
    assert sum(bool(re.match(r"[ab]\d edge", kind)) for kind in kinds) == ribbons


@pytest.mark.parametrize("name", NAMES)
def test_the_small_one_has_three_ranks_and_no_plus_sign(name):
    root = ElementTree.fromstring(pictogram(name, 48))
    assert root.get("width") == "48" and not any(e.get("class") == "r3" for e in root.iter())
    assert not any(e.get("class") == "edge" for e in root.iter())


@pytest.mark.parametrize("size", [800, 48])
@pytest.mark.parametrize("name", NAMES)
def test_drawing_twice_gives_the_same_bytes_and_stays_small(name, size):
    assert pictogram(name, size) == pictogram(name, size)
    assert len(pictogram(name, size)) < 12_000


def test_every_class_that_is_drawn_has_a_colour_in_both_themes():
    for name in NAMES:
        text = pictogram(name)
        used = {kind for kinds in re.findall(r'class="([^"]+)"', text) for kind in kinds.split()} - {"ar-pic"}
        assert used <= set(CLASSES)
        light, dark = text.split("@media (prefers-color-scheme:dark)")
        for kind in used:
            assert f".{kind}{{" in light
            what, colour, _ = CLASSES[kind]
            assert (f".{kind}{{" in dark) == (LIGHT[colour] != DARK[colour] or CLASSES[kind][2] != 100), (kind, what)
    assert all(f".ar-pic .{kind}{{" in page_style() for kind in CLASSES)


def test_what_stands_on_a_colour_can_be_read():
    for colours in (LIGHT, DARK):
        for rank in range(4):
            on = colours["on-rank-0" if rank == 0 else "on-rank"]
            assert contrast(on, colours[f"rank-{rank}"]) >= 4.5
    # words beside the boxes stand on the page, whose theme a picture can't know: 4.5 on its own, 3.5 on the other
    for words, own, other in ((WORDS[0], "#ffffff", "#111111"), (WORDS[1], "#16191d", "#ffffff")):
        assert contrast(words, own) >= 4.5 and contrast(words, other) >= 3.5

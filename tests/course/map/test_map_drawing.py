"""The map as it is drawn: every chapter once in each width and in the story's order, colours of the theme, one place for the reader."""

import re
import xml.etree.ElementTree as ET

import pytest
from allranks.base.chapters import chapters, core, find, parts
from allranks.base.theme import DARK, LIGHT
from allranks.course.map.drawing import Manner, drawing
from allranks.course.map.end import ChapterEnd
from allranks.course.map.page import WIDTHS, page, picture, style
from allranks.course.map.shapes import Line
from allranks.course.map.tall import tall
from allranks.course.state import state

LINKED = Manner(lambda chapter: f"/lab/{chapter.path.as_posix()}")


@pytest.mark.parametrize(
    "svg", [*(drawing(state(None), width, LINKED) for width in WIDTHS), tall(state(None), manner=LINKED)]
)
def test_every_chapter_is_a_link_once_and_the_core_is_in_order(svg):
    ET.fromstring(svg)
    numbers = re.findall(r'<a href="[^"]+" class="[^"]+" data-chapter="(\d\d)"', svg)
    assert sorted(numbers) == [chapter.number for chapter in chapters()]
    assert [number for number in numbers if find(number).core] == [chapter.number for chapter in core()]
    assert svg.count('aria-current="step"') == 1 and "begin here" in svg
    assert all(part.title in svg.replace("&#x27;", "'") for part in parts())


def test_no_text_is_smaller_than_12_pixels():
    sizes = [int(size) for size in re.findall(r'font-size="(\d+)"', drawing(state(None)) + tall(state(None)))]
    assert min(sizes) == 12


def test_colours_are_the_themes():
    written = re.sub(r"--ar-[\w-]+:\s*#\w+", "", style())
    assert not re.search(r":#[0-9a-f]{3,6}\b", page(state(None), LINKED))
    assert {name for name in re.findall(r"var\(--ar-([\w-]+)", written)} <= set(LIGHT) | {"font", "mono"}
    for colours in (LIGHT, DARK):
        ET.fromstring(picture(state(None), colours, "begin here"))


def test_the_line_knows_how_far_along_a_place_is():
    line = Line([(0, 0), (100, 0), (100, 200)])
    assert line.length_to((60, 0)) == 60
    assert 100 + 100 - line.length_to((100, 100)) == pytest.approx(34 * (2 - 3.14159265 / 2))


def test_the_end_of_a_chapter_leads_on_and_a_side_trip_leads_back():
    for chapter in chapters():
        end = ChapterEnd(chapter, state(None))
        links = re.findall(r'<a class="m-button main" href="([^"]+)"', end.html())
        assert len(links) == (end.next is not None)
        assert all((find_folder(chapter) / link).resolve().is_file() for link in links)
        assert f"You can now {chapter.can}." in end.text()


def find_folder(chapter):
    from pathlib import Path

    return (Path(__file__).resolve().parents[3] / chapter.path).parent

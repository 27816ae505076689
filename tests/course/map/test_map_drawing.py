"""The map as it is drawn: every chapter once in each width and in the story's order, colours of the theme, one place for the reader."""

import re
import xml.etree.ElementTree as ET
from html import escape
from pathlib import Path

import pytest
from allranks.base.chapters import chapters, core, find, parts
from allranks.base.record import Checked, Did, Record
from allranks.base.theme import DARK, LIGHT
from allranks.course.contents import contents
from allranks.course.map import words
from allranks.course.map.drawing import EDGE, LINE_AT, Manner, drawing, status
from allranks.course.map.end import ChapterEnd
from allranks.course.map.page import WIDTHS, page, picture, style
from allranks.course.map.shapes import Line, width_of
from allranks.course.map.tall import tall
from allranks.course.state import State, state
from allranks.course.state import _state as of_record
from allranks.show.widgets.my_model_story import START, step_of

ROOT = Path(__file__).resolve().parents[3]
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
        if not contents(ROOT)[chapter.number].checks + contents(ROOT)[chapter.number].questions:
            continue  # to read it is all that there is
        end = ChapterEnd(chapter, state(None))
        links = re.findall(r'<a class="m-button main" href="([^"]+)"', end.html())
        assert len(links) == (end.next is not None)
        assert all((find_folder(chapter) / link).resolve().is_file() for link in links)
        # nothing is proved here, so the card does not say that the reader can do it
        assert "You can now" not in end.text() and f" {chapter.can}." in end.text()
        assert ("My model" in end.text()) == chapter.core


def test_quizzes_are_answered_and_predictions_are_made():
    """The card and the map count a chapter's questions as what they are."""
    for number, said in (("01", "0 of 2 quizzes answered"), ("00", "0 of 4 predictions made")):
        end = ChapterEnd(find(number), did(ended=[number]))
        assert said in end.text() and f"<small>{said[7:]}</small>" in end.html()
        assert said in drawing(did())


@pytest.mark.parametrize("chapter", [c for c in chapters() if not c.core], ids=lambda chapter: chapter.stem)
def test_the_name_of_a_side_trip_covers_no_station_of_the_card(chapter):
    card = ChapterEnd(chapter, state(None)).html()
    line = re.search(r'<svg width="912".*?</svg>', card)[0]
    ((x, y),) = re.findall(r'class="m-tag" transform="translate\(([\d.]+),([\d.]+)\)"', line)
    [wide] = re.findall(r'data-width="([\d.]+)"', line)
    for across, down, radius in re.findall(r'<circle class="m-stop" cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', line):
        beside = abs(float(across) - float(x)) > float(wide) / 2 + float(radius)
        assert beside or float(y) - 10.5 > float(down) + float(radius)
    assert float(x) + float(wide) / 2 < 912 and float(y) + 10.5 < float(re.search(r'height="([\d.]+)"', line)[1])


def find_folder(chapter):
    return (ROOT / chapter.path).parent


def did(ended=(), proved=(), predicted=()) -> State:
    """The state of a reader who ended, proved and predicted all of some chapters."""
    about, done = contents(ROOT), Record()
    for number in proved:
        for item in about[number].checks:
            done.checks[item.name] = Checked(True)
            done.order.append((Did.CHECKED, item.name))
    for number in predicted:
        for item in about[number].questions:
            done.answered.add(item.name)
            done.order.append((Did.ANSWERED, item.name))
    for number in ended:
        done.ended.add(number)
        done.order.append((Did.ENDED, number))
    return of_record(about, done, {})


def dashes(svg: str) -> list[float]:
    """The lengths that are inked and not inked of the line, in turn."""
    [found] = re.findall(r'class="m-walked" d="[^"]+" stroke-dasharray="([^"]+)"', svg)
    return [float(one) for one in found.split()]


SKIPPED = {"14": {"ended": ["14"]}, "48": {"ended": ["48"]}, "04": {"ended": ["00", "03", "04"]}}


@pytest.mark.parametrize("number", SKIPPED)
def test_to_skip_chapters_walks_and_finishes_nothing(number):
    """To run a chapter's last cell is not to have proved it: the map and the card say so, with the same words and the same line."""
    found = did(**SKIPPED[number])
    end = ChapterEnd(find(number), found)
    for shown in (page(found, LINKED), end.html(), end.text(), words.text(found)):
        assert "You finished" not in shown and "You can now" not in shown
    said = words.standing(found[number])
    assert said.endswith(": proved 0 of 1") and words.heading(found) == said
    assert end.text().startswith(said) and escape(said) in end.html()
    assert not any(found.walked)
    for svg in (drawing(found), tall(found), end.html()):
        inked = dashes(svg)[::2]
        assert sum(inked) == 0, inked
    # to end a chapter reads what stands after its last question, and no more
    for ended in SKIPPED[number]["ended"]:
        assert 0.7 * found[ended].contents.minutes <= found[ended].minutes_left


def test_the_line_is_inked_where_something_was_proved_and_only_there():
    found = did(ended=["00", "03", "04", "14"], proved=["03", "14"], predicted=["00", "14"])
    assert found.walked == (True, True, False, True, *[False] * 10)
    for svg in (drawing(found), tall(found)):
        first, gap, second, rest = dashes(svg)
        stops = [float(one) for one in re.findall(r'data-stops="([^"]+)"', svg)[0].split()]
        assert first == pytest.approx(stops[2], abs=0.1) and gap == pytest.approx(stops[3] - stops[2], abs=0.1)
        assert second == pytest.approx(stops[4] - stops[3], abs=0.1) and rest > stops[-1]
    kinds = {number: status(found, find(number)) for number in ("00", "03", "04", "14", "15", "20")}
    assert kinds == {"00": "walked", "03": "walked", "04": "seen", "14": "here", "15": "next", "20": "ahead"}
    assert words.heading(found) == "You finished 14 Reduce-scatter"
    end = ChapterEnd(find("14"), found)
    assert end.text().startswith("You finished 14 Reduce-scatter") and "You can now build half" in end.text()
    # the card's piece of the line begins behind 04, of which nothing is proved
    assert dashes(end.html())[0] == 0 or dashes(end.html())[1] > 0


def test_a_check_that_passed_in_another_chapter_walks_nothing():
    found = did(proved=["04"])
    shared = [p for p in found.chapters if p.proved and p.chapter.number != "04"]
    assert shared, "ring_all_reduce is checked in chapters after 04 too"
    assert {status(found, p.chapter) for p in shared} <= {"ahead", "next"}


def test_minutes_are_one_sum():
    for found in (did(), did(ended=["14"]), did(ended=["00", "03"], predicted=["00", "03", "21"], proved=["03"])):
        held = [progress.minutes_left for progress in found.core]
        assert found.minutes_left == sum(held)
        of_parts = [words.of_part(part, found).partition(" left")[0] for part in parts() if part.number]
        there = [
            [p.minutes_left for p in found.core if p.chapter.part == part.folder] for part in parts() if part.number
        ]
        assert of_parts == [words.time(sum(one)) for one in there]
        assert words.time(found.minutes) in words.left(found)
    everything = did(
        ended=[c.number for c in core()], proved=[c.number for c in core()], predicted=[c.number for c in core()]
    )
    assert (
        everything.minutes_left == 0
        and everything.go_on is None
        and words.heading(everything) == "You finished the core"
    )


def test_what_was_only_ended_is_not_left_out():
    """From 40 the map led to 48, because the last cell of 45 had been run once."""
    skimmed = did(ended=["45", "40"])
    assert skimmed.go_on == ChapterEnd(find("40"), skimmed).next == find("45")
    proved = did(ended=["45", "40"], proved=["45"], predicted=["45"])
    assert of_order(proved, "40").go_on == ChapterEnd(find("40"), proved).next == find("48")


def test_the_map_says_what_it_counts_and_where_minutes_are_left():
    found = did(ended=["00", "03", "04"], proved=["03"], predicted=["00", "03"])
    assert words.proved(found).startswith("In the 3 chapters that you opened: ")
    left = found["04"].minutes_left
    assert words.of_part(parts()[0], found) == f"{words.time(left)} left in 04"


def test_the_map_says_how_long_a_side_trip_takes():
    trip = state(None)["10"]
    length = words.time(trip.contents.minutes).replace(" ", "\u00a0")
    assert f"rounds? {length}<" in drawing(state(None))
    assert f">{words.time(trip.contents.minutes)}<" in tall(did(ended=["14"]))


def test_the_tag_of_the_first_station_lies_between_no_two():
    """Between 00 and 03 it read as if it named 03."""
    svg = drawing(state(None))
    [x] = re.findall(r'class="m-tag" transform="translate\(([\d.]+),', svg)
    stations = re.findall(r'<(?:circle|rect) class="m-stop" (?:cx|x)="([\d.]+)"', svg)
    assert 0 < float(x) < min(map(float, stations))


def test_the_card_of_a_side_trip_names_the_next_one_too():
    """The text of 12 leads to 13, and the card had a link to 14 only."""
    card = ChapterEnd(find("12"), state(None)).html()
    assert ">aside: All-gather</a>" in card and "Reduce-scatter</a>" in card
    assert ">aside: All-gather</a>" not in ChapterEnd(find("12"), did(ended=["13"])).html()


def of_order(found: State, number: str) -> State:
    """The same with the reader in this chapter."""
    return State(found.chapters, find(number))


def test_after_the_last_chapter_the_map_leads_to_what_was_skipped():
    assert did(ended=["48"]).go_on == find("00")
    assert did(ended=["00", "03", "48"]).go_on == find("04")


def test_the_map_has_one_button():
    for found in (did(), did(ended=["14"]), did(predicted=["14"])):
        assert page(found, LINKED).count('class="m-button') == 1


def test_the_model_on_the_map_is_that_of_the_story():
    alone = step_of(START)
    assert f"my model needs {alone.nbytes / 1e9:.0f} GB; one GPU has {alone.gpu.nbytes / 1e9:.0f} GB" in drawing(did())


def boxes(svg: str) -> list[tuple[float, float, float, float, str]]:
    """About where each text of a drawing stands: left, right, top, bottom, words."""
    found = []
    for element in ET.fromstring(svg).iter():
        if not element.tag.endswith("text") or not element.text or "number" in element.get("class", ""):
            continue
        size, x, y = float(element.get("font-size")), float(element.get("x")), float(element.get("y"))
        wide = width_of(element.text, size, int(element.get("font-weight", 400)))
        left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor", "start")]
        found.append((left, left + wide, y - 0.75 * size, y + 0.2 * size, element.text))
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("found", [did(), did(ended=["00"], predicted=["00", "14"])], ids=["fresh", "at 14"])
def test_no_words_lie_on_others_nor_on_an_edge(width, found):
    svg = drawing(found, width)
    placed = [one for one in boxes(svg) if one[4] not in ("you are here", "begin here")]
    for number, a in enumerate(placed):
        for b in placed[number + 1 :]:
            apart = a[1] <= b[0] + 2 or b[1] <= a[0] + 2 or a[3] <= b[2] + 2 or b[3] <= a[2] + 2
            assert apart, f"{a[4]!r} lies on {b[4]!r}"
    rects = re.findall(r'<rect class="m-field" x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)"', svg)
    fields = [tuple(map(float, one)) for one in rects]
    assert len(fields) == 4
    for left, right, top, bottom, said in placed:
        for x, y, wide, high in fields:
            if y < (top + bottom) / 2 < y + high and x < (left + right) / 2 < x + wide:
                assert left >= x + 8 and right <= x + wide - 4, f"{said!r} runs out of its part"
    # where the line goes down to the next row
    first, second, third = (fields[number][1] + LINE_AT for number in (0, 2, 3))
    for left, right, top, bottom, said in placed:
        assert not (bottom > first and top < second) or right <= width - EDGE - 5, f"{said!r} lies on the line"
        assert not (bottom > second and top < third) or left >= EDGE + 5, f"{said!r} lies on the line"
    pictures = re.findall(r'<svg x="([^"]+)" y="([^"]+)" aria-hidden="true" [^>]*?width="(\d+)"', svg)
    for x, y, size in ((float(a), float(b), float(c)) for a, b, c in pictures):
        inside = [f for f in fields if f[0] + 8 <= x and x + size <= f[0] + f[2] - 8 and f[1] <= y <= f[1] + f[3]]
        assert inside, "a picture lies on the edge of its part"
        for left, right, top, bottom, said in placed:
            assert right <= x + 2 or left >= x + size - 2 or bottom <= y + 2 or top >= y + size - 2, (
                f"{said!r} lies on a picture"
            )

"""One story: from the first chapter "Next" leads along the whole core, every side trip hangs on it, and no number is
of another time.
"""

import re
import subprocess
from base64 import b64decode
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from allranks.base.chapters import after, chapters, core, find, link, parts, side_trips
from allranks.course.length import minutes
from allranks.course.map.shapes import width_of
from allranks.course.map.top import picture, top, where

ROOT = Path(__file__).resolve().parents[2]
NEXT = re.compile(r"^\*\*Next question:\*\* ((?:.+\n?)+)", flags=re.M)
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
BY_STEM = {chapter.stem: chapter for chapter in chapters()}
# what tells of the time before, and what plays it
OLD_NUMBERS = {
    "docs/moved.md",
    "tests/course/test_folder.py",
    "tests/house/test_front_page.py",
    "tests/house/test_story.py",
    "tests/hub/test_singleuser.py",
    "utils/allranks/base/chapters.toml",
    "utils/allranks/base/chapters.py",
}


def prose(chapter) -> str:
    """What a chapter says, without code."""
    cells = nbformat.read(ROOT / chapter.path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def linked(text: str) -> list:
    """The chapters to which a text links, in order."""
    stems = [Path(address.partition("#")[0]).stem for _, address in LINK.findall(text)]
    return [BY_STEM[stem] for stem in stems if stem in BY_STEM]


def following(chapter) -> list:
    """The chapters that the line "Next question" names."""
    found = NEXT.findall(prose(chapter))
    assert len(found) == 1, f"{chapter.stem} has {len(found)} lines that begin with **Next question:**"
    return linked(found[0])


def test_next_leads_from_the_first_chapter_through_the_whole_core():
    walked = [find("00")]
    while after(walked[-1]) is not None:
        [step] = following(walked[-1])
        assert step not in walked, f"{walked[-1].stem} leads back to {step.stem}"
        walked.append(step)
    assert tuple(walked) == core()


@pytest.mark.parametrize("chapter", [c for c in chapters() if not c.core], ids=lambda chapter: chapter.stem)
def test_a_side_trip_leads_back_to_the_core(chapter):
    named = following(chapter)
    assert named[-1] == after(chapter), f"the last link of its Next must be {after(chapter).stem}"
    assert chapter not in named


@pytest.mark.parametrize("chapter", core(), ids=lambda chapter: chapter.stem)
def test_a_chapter_of_the_core_names_its_side_trips(chapter):
    text = prose(chapter)
    for trip in side_trips(chapter):
        assert f"- [{trip.title}]({link(chapter, trip)}): {trip.why}" in text


def test_something_leads_to_every_chapter():
    reached = {find("00")}
    while new := {step for chapter in reached for step in linked(prose(chapter))} - reached:
        reached |= new
    assert set(chapters()) - reached == set()


@pytest.mark.parametrize("chapter", chapters(), ids=lambda chapter: chapter.stem)
def test_what_is_needed_comes_before(chapter):
    """And a chapter of the core needs nothing that is not of the core."""
    needed = [find(number) for number in chapter.needs]
    assert needed or chapter.number in ("00", "64", "65")
    assert all(need.number < chapter.number for need in needed)
    assert not chapter.core or all(need.core for need in needed)
    assert not set(chapter.needs) & set(chapter.helps) and all(find(number) != chapter for number in chapter.helps)


def test_a_side_trip_hangs_on_what_the_reader_has_met():
    """On a chapter before it; only the collectives on the way to reduce-scatter, and a ring that is slow, do not."""
    trips = [chapter for chapter in chapters() if not chapter.core]
    assert [trip.number for trip in trips if trip.number < trip.hangs_on] == ["10", "11", "12", "13", "47"]


@pytest.mark.parametrize("trip", [c for c in chapters() if not c.core], ids=lambda chapter: chapter.stem)
def test_what_a_side_trip_needs_hangs_no_later_on_the_core(trip):
    """Who turns off where it hangs has met all that it needs, or passed where that hangs."""
    path = core()
    at = {one: path.index(one if one.core else find(one.hangs_on)) for one in chapters()}
    assert [number for number in trip.needs if at[find(number)] > at[trip]] == []


@pytest.mark.parametrize("chapter", chapters(), ids=lambda chapter: chapter.stem)
def test_a_chapter_begins_with_where_it_stands(chapter):
    """Its part, its place on the core or what it hangs on, what is before and after it, how long it takes."""
    cells = nbformat.read(ROOT / chapter.path, as_version=4).cells
    source = (ROOT / "chapters/source" / chapter.part / f"{chapter.stem}.py").read_text(encoding="utf-8")
    assert source.count("# {{here}}") == 1 and not re.search(r"\d+ minutes ·", source)
    heading, *place, rest = cells[0].source.split("\n\n", 3)
    cells[0].source = f"{heading}\n\n{{{{here}}}}\n\n{rest}"
    assert heading.startswith("# ") and "\n\n".join(place) == top(chapter, cells)
    said = where(chapter)
    path = core()
    if chapter.core:
        at = path.index(chapter)
        beside = [*path[max(0, at - 1) : at], *path[at + 1 : at + 2]]
        assert f"{at + 1} of {len(path)} on the core" in said and not chapter.why
    else:
        beside = list(dict.fromkeys([find(chapter.hangs_on), after(chapter)]))
        assert "a side trip" in said and f"*{chapter.why}*" in said
    assert linked(said) == beside
    folders = {part.folder: part for part in parts()}
    assert folders[chapter.part].title in said


@pytest.mark.parametrize("chapter", chapters(), ids=lambda chapter: chapter.stem)
def test_the_strip_has_the_readers_station_in_yellow_and_no_titles_that_touch(chapter):
    svg = b64decode(re.search(r"base64,([^\"]+)", picture(chapter))[1]).decode()
    station = chapter if chapter.core else find(chapter.hangs_on)
    [(_, there)] = re.findall(r'class="you inkline"(?! tag)[^>]*/><text (.*?)>(\d\d)<', svg)
    assert there == station.number
    titles = re.findall(r'<text class="words" x="([\d.]+)" y="14" font-size="12"([^>]*)>([^<]+)<', svg)
    assert len(titles) == 4
    for (x, weight, title), (later, *_) in pairwise(titles):
        assert float(x) + width_of(title, 12, 700 if "700" in weight else 400) + 4 < float(later), title


def test_a_side_trip_says_where_it_leads():
    for trip in (one for one in chapters() if not one.core):
        assert re.search(r" · then (?:\[|back$)|on the way to ", where(trip)), trip.stem


def test_minutes_follow_the_text():
    """A longer text, a question, a picture and an exercise each take longer."""
    text = {"cell_type": "markdown", "source": "word " * 2000}
    code = {"cell_type": "code", "source": "%%ranks\nprint(1)\n"}
    asked = {"cell_type": "code", "source": 'predict("How many?")\nPlayer(x)\nexplore.ring()\n'}
    written = {"cell_type": "markdown", "source": "<details><summary><b>An answer</b></summary></details>"}
    assert minutes([text]) == 10 and minutes([text] * 2) == 20
    assert minutes([code]) == 5 < minutes([asked] * 4) and minutes([written]) == 10
    assert minutes([{"cell_type": "markdown", "source": f"**Sources.** {'word ' * 2000}"}]) == 5


def texts() -> dict[str, str]:
    """Every file of the repository that is read as text, by its path."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    kinds = (".py", ".md", ".ipynb", ".yml", ".yaml", ".js", ".json", ".html", ".toml", ".txt", ".in", "")
    wanted = [
        name for name in names if Path(name).suffix in kinds and not name.startswith(("docs/verified/", "shared/"))
    ]
    return {
        name: (ROOT / name).read_text(encoding="utf-8", errors="replace")
        for name in wanted
        if (ROOT / name).is_file() and name not in OLD_NUMBERS
    }


def stale(text: str) -> list[str]:
    """Each mention of a chapter by a name or a number that it no longer has."""
    old = "|".join(chapter.was for chapter in chapters() if chapter.was not in ("", chapter.stem))
    found = re.findall(rf"(?<!\w)(?:{old})(?!\w)", text)
    for words, address in LINK.findall(text):
        number, stem = re.match(r"(\d\d)\b", words), Path(address.partition("#")[0]).stem
        if number and stem in BY_STEM and number[1] != BY_STEM[stem].number:
            found.append(f"[{words}]({address})")
    for list_ in re.findall(r"\b[Cc]hapters? (\d\d?(?:(?:, | and | or | to )\d\d?)*)(?![\d.])", text):
        numbers = {chapter.number for chapter in chapters()}
        found += [f"chapter {number}" for number in re.findall(r"\d+", list_) if number not in numbers]
    return found


def test_no_name_or_number_is_of_another_time():
    faults = {name: found for name, text in texts().items() if (found := stale(text))}
    assert faults == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see [07 "
         "All-reduce](../1_first_hours/04_all_reduce.ipynb)", [("[07 "
                                                               "All-reduce](../1_first_hours/04_all_reduce.ipynb)")]),
        ("chapters/07_all_reduce.ipynb", ["07_all_reduce"]),
        ("as in chapters 04 and 7", ["chapter 7"]),
        ("MPI 4.1, [16](x.md), chapter 04, 17_all_reduce_algorithms", []),
    ],
)  # fmt: skip
def test_a_stale_number_is_found(text, found):
    assert stale(text) == found


def test_one_page_says_where_each_old_number_went():
    page = (ROOT / "docs" / "moved.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d\d) \| `(\w+)` \| \[(\d\d) [^\]]+\]\(\.\./(chapters/\S+\.ipynb)\) \|$", page, flags=re.M)
    expected = [
        (c.was[:2], c.was, c.number, c.path.as_posix()) for c in sorted(chapters(), key=lambda c: c.was) if c.was
    ]
    assert rows == expected

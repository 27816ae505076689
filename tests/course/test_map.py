"""The one table of the course: every chapter has a place, and the story is one path with side trips."""

import dataclasses
import re
import subprocess
import sys

import pytest
from allranks.base.chapters import after, chapters, core, find, parts, side_trips
from allranks.theory.cost.plan import Plan


def test_numbers_and_titles_are_unique_and_in_the_order_of_the_story():
    numbers = [chapter.number for chapter in chapters()]
    assert numbers == sorted(set(numbers)) and all(re.fullmatch(r"\d\d", number) for number in numbers)
    titles = [chapter.title for chapter in chapters()]
    assert len(set(titles)) == len(titles) and all(0 < len(title) <= 24 for title in titles)
    old = [chapter.was[:2] for chapter in chapters() if chapter.was]
    assert len(set(old)) == len(old) == 40


def test_a_part_is_a_folder_and_its_number():
    assert [part.number for part in parts()] == ["1", "2", "3", "4", ""]
    for part in parts():
        assert all(chapter.part == part.folder for chapter in part.chapters)


def test_every_side_trip_hangs_on_the_core_and_says_why():
    numbers = {chapter.number for chapter in core()}
    hanging = [trip for chapter in core() for trip in side_trips(chapter)]
    assert sorted(trip.number for trip in hanging) == [c.number for c in chapters() if c.number not in numbers]
    for trip in hanging:
        assert trip.hangs_on in numbers
        assert 0 < len(trip.why) <= 40 and trip.why.endswith("?"), trip.stem
        assert not trip.unlocks
    assert not any(chapter.why for chapter in core())


def test_what_a_chapter_unlocks_is_an_argument_of_plan():
    unlocked = [chapter.unlocks for chapter in core() if chapter.unlocks]
    assert unlocked == ["dp", "bucket_nbytes", "zero_stage", "tp", "pp", "cp", "ep"]
    assert set(unlocked) <= {field.name for field in dataclasses.fields(Plan)}


def test_next_walks_the_whole_core_and_side_trips_lead_back():
    walked = [find("00")]
    while (following := after(walked[-1])) is not None:
        walked.append(following)
    assert tuple(walked) == core()
    for chapter in chapters():
        if not chapter.core:
            back = after(chapter)
            assert back is None or back.core
            assert back in (find(chapter.hangs_on), after(find(chapter.hangs_on)))


def test_an_unknown_chapter_is_refused():
    with pytest.raises(KeyError, match="there is no chapter"):
        find("99")


def test_the_map_needs_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from allranks.base.chapters import chapters; print(len(chapters()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == str(len(chapters())), ran.stderr

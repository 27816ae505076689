"""The story of my model in the chapters of the core: each says what the cost model says, and ends with the axis that it opens."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from allranks import my_model
from allranks.base import chapters as course_map
from allranks.show.widgets import my_model_story as story

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = {story.name_of(chapter): ROOT / chapter.path for chapter in course_map.core()}


def cells(chapter: str) -> dict[str, nbformat.NotebookNode]:
    return {cell.id: cell for cell in nbformat.read(CHAPTERS[chapter], as_version=4).cells}


def test_every_chapter_of_the_core_has_its_part_of_the_story():
    assert list(story._NEEDS) == list(CHAPTERS)
    assert [axis.opened_by for axis in story.AXES] == [chapter for chapter in course_map.core() if chapter.unlocks]


def test_each_chapter_of_the_core_wins_something_else():
    said = [story.won(chapter) for chapter in CHAPTERS]
    assert len(set(said)) == len(said)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_of_the_core_says_what_my_model_needs(chapter):
    said = cells(chapter)["my_model_needs"].source
    assert " ".join(said.replace("*", "").split()) == story.needs(chapter).replace("*", "")


@pytest.mark.parametrize("chapter", sorted(story.OPENED_BY))
def test_a_chapter_that_opens_an_axis_ends_with_my_model(chapter):
    source = cells(chapter)["my_model"].source
    assert f'my_model("{chapter}")' in source
    names = list(cells(chapter))
    assert names.index("my_model") > names.index("recap")


def test_the_last_chapter_has_my_model_on_64_and_on_1024_gpus():
    few = my_model("your_own_job")
    code = cells("your_own_job")["my_model_on_1024"].source
    many = eval(code, {"my_model": my_model})
    assert (few.plan.ranks, many.plan.ranks) == (64, 1024) and few.step.fits and many.step.fits
    assert f"{many.step.seconds:.2f} s a step" in story.needs("your_own_job")

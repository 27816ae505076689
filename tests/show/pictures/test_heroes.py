"""The chapters' pictures: every collective's chapter has one in its first cell, without a run and without a file
beside it.
"""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import nbformat
import pytest
from allranks import cost
from allranks.base.chapters import chapters, find
from allranks.show.pictures import hero, pictogram, scenes, scenes_programs
from allranks.show.pictures.moves import MOVES, markdown_table
from allranks.show.pictures.palette import CLASSES
from loading import loaded
from nbconvert import HTMLExporter

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"
# a gallery: each of its cells is a picture, and it asks no question that one picture could pose
WITHOUT = {"64_player_gallery"}
TABLES = {"65_cheatsheet", "01_nine_pictures"}


def first_cell(chapter: str) -> str:
    return nbformat.read(ROOT / find(chapter).path, as_version=4).cells[0].source


def embedded(text: str) -> list[str]:
    """The SVGs in a text."""
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    svgs = [base64.b64decode(code).decode() for code in found]
    assert "You are here" in svgs[0] and "You are here" not in "".join(svgs[1:]), "the first one is the reader's place"
    return svgs[1:]


def test_every_chapter_has_its_picture_or_is_named_here():
    assert set(hero.CHAPTERS) | WITHOUT | TABLES == {chapter.stem for chapter in chapters()}
    assert {move.chapter for _, row in MOVES for move in row} <= {f"{c.part}/{c.stem}" for c in chapters()}
    for chapter in WITHOUT:
        assert embedded(first_cell(chapter)) == []


@pytest.mark.parametrize("chapter", hero.CHAPTERS)
def test_the_first_cell_has_the_picture_with_its_words(chapter):
    text = first_cell(chapter)
    assert embedded(text) == [hero.hero(chapter)]
    words = hero.CHAPTERS[chapter]()[2]
    assert re.findall(r'<img alt="([^"]+)"', text)[1].replace("&#x27;", "'") == words
    root = ElementTree.fromstring(hero.hero(chapter))
    assert root.find(f"{SVG}title").text and root.find(f"{SVG}desc").text == words
    assert len(hero.hero(chapter)) < 12_000
    used = {kind for element in root.iter() for kind in element.get("class", "").split()}
    assert used - {"ar-pic", "mark", "small"} <= set(CLASSES)


@pytest.mark.parametrize("chapter", sorted(TABLES))
def test_the_table_of_the_nine_moves_is_there_with_its_links(chapter):
    text = first_cell(chapter)
    assert markdown_table() in text
    assert embedded(text) == [pictogram(move.name, 168) for _, row in MOVES for move in row]


def test_nbconvert_keeps_the_pictures():
    page, _ = HTMLExporter().from_filename(str(ROOT / find("04_all_reduce").path))
    assert hero.hero("04_all_reduce") in embedded(page)


def test_figures_in_pictures_are_those_of_the_chapters():
    """Chapter 21 asks about 136 ms, chapter 22 about 80 GB that are full, chapter 24 about 12 layers of 96."""
    assert "136 ms" in scenes.one_after_the_other()[2] and "136 ms" in first_cell("21_overlap_and_bucketing")
    assert "the same 80 GB" in scenes.eight_copies()[2]
    assert "12 whole layers" in scenes.two_cuts()[2] and "12 whole layers" in first_cell("24_tensor_parallel")
    sends = cost.price("all_reduce", "ring", 256, 14 * 10**9, 5e-6, 1 / 50e9)
    assert f"{float(sends):.2f} s in which" in scenes.one_step()[2]
    assert "1,043 GB" in scenes_programs.training_run()[2], "65.2 billion parameters of 16 bytes"


def test_a_picture_that_is_not_drawn_is_refused():
    notebooks = loaded(ROOT / "tools" / "notebooks.py")
    script = '# %% [markdown] name="title"\n# {{here}}\n#\n# {{picture}}\n'
    built = notebooks.read_script(script, "chapters/source/2_collectives/10_broadcast.py")
    assert embedded(built.cells[0].source) == [hero.hero("10_broadcast")]
    with pytest.raises(notebooks.NotebookError, match=r"99_new.py, cell 1: there is no {{picture}}; draw it in "):
        notebooks.read_script(script, "chapters/source/extras/99_new.py")

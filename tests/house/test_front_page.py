"""The front page: the map of a visitor without a past, and the short courses of the guide."""

import re
from pathlib import Path

import nbformat
import pytest
from allranks.base import chapters as course_map
from allranks.course.map import words
from allranks.course.state import state
from loading import loaded

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def front():
    return loaded(ROOT / "tools" / "front.py")


@pytest.fixture(scope="module")
def page(front) -> str:
    return front.page(ROOT, [("Lab", "labs/lab.html")], [])


def test_every_chapter_is_on_the_map_once_in_each_width(page):
    numbers = re.findall(r'<a href="chapters/[^"]+\.html" class="m-chapter[^"]*" data-chapter="(\d\d)"', page)
    assert sorted(numbers) == sorted(3 * [chapter.number for chapter in course_map.chapters()])
    assert "begin here" in page and "you are here" not in page.partition("<script type=")[0]


def test_every_page_says_the_length_that_the_chapters_add_up_to(page):
    length = words.length(state(None))
    assert length.startswith(words.time(sum(one.contents.minutes for one in state(None).core)))
    assert length in page and length in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_documents_list_every_chapter_in_the_maps_order():
    table = (ROOT / "docs/README.md").read_text(encoding="utf-8").partition("## The chapters")[2]
    listed = re.findall(r"\]\(\.\./(chapters/\w+/\w+\.ipynb)\)", table)
    assert listed == [chapter.path.as_posix() for chapter in course_map.chapters()]


@pytest.mark.parametrize("path", ["README.md", "docs/README.md"])
def test_a_page_counts_the_labs_and_what_they_grade(path):
    labs = [nbformat.read(lab, as_version=4) for lab in ROOT.glob("labs/*/*.ipynb")]
    code = [cell for lab in labs for cell in lab.cells if cell.cell_type == "code"]
    graded = sum(cell.metadata.get("nbgrader", {}).get("grade", False) for cell in code)
    said = re.search(
        r"twenty-three labs\S* with (\d+) graded exercises", (ROOT / path).read_text(encoding="utf-8"), flags=re.I
    )
    assert len(labs) == 23 and int(said[1]) == graded


def test_paths_are_those_of_the_guide(front):
    paths = front.courses(ROOT)
    assert paths["The short way"] == ["00", "03", "04"]
    assert paths["Two hours"] == ["00", "04", "14", "45", "01"]
    assert paths["One day"] == ["00", "02", "03", "04", "13", "14", "20", "45", "01"]


def test_old_addresses_lead_to_chapters_that_are_there(tmp_path):
    site = loaded(ROOT / "tools" / "site.py")
    (tmp_path / "chapters").mkdir()
    site.forward(tmp_path)
    for old, new in site.MOVED.items():
        assert not (ROOT / old).with_suffix(".ipynb").exists() and (ROOT / new).with_suffix(".ipynb").exists()
        assert f'href="{new.removeprefix("chapters/")}"' in (tmp_path / old).read_text(encoding="utf-8")
    assert {"chapters/05_gather.html", "chapters/07_all_reduce.html", "chapters/92_which_collective.html"} <= set(
        site.MOVED
    )


def test_nothing_is_left_to_fill_in_and_nothing_is_loaded(page):
    assert "{{" not in page
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert all(address.startswith(("data:image/svg+xml", "#", "chapters/", "docs/", "labs/")) for address in loaded)
    assert len(page) < 500_000

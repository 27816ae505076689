"""The front page's map: every chapter is on it once, with what the chapter says of itself, and the paths are the guide's."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from allranks.course import map as course_map

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def front():
    spec = importlib.util.spec_from_file_location("allranks_front", ROOT / "tools" / "front.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(front) -> str:
    return front.page(ROOT, [("Lab", "labs/lab.html")], [])


def test_every_chapter_is_on_the_map_once(page):
    numbers = re.findall(r'data-chapter="(\d\d)"', page)
    assert sorted(numbers) == [chapter.number for chapter in course_map.chapters()]


def test_cards_say_what_the_chapters_say(front, page):
    there = front.chapters(ROOT)
    assert there["22"].needs == ("14", "21") and there["00"].needs == ()
    for chapter in there.values():
        assert all(need < chapter.number for need in chapter.needs)
        if chapter.number not in front.BESIDE:
            assert f"{chapter.number} · {chapter.minutes} min" in page


def test_paths_are_those_of_the_guide(front):
    paths = front.courses(ROOT)
    assert paths["The short way"] == ["00", "02", "03", "04"]
    assert paths["Two hours"] == ["00", "04", "14", "45", "01"]
    assert paths["One day"] == ["00", "02", "03", "04", "13", "14", "20", "45", "01"]


def test_old_addresses_lead_to_chapters_that_are_there(tmp_path):
    spec = importlib.util.spec_from_file_location("allranks_site", ROOT / "tools" / "site.py")
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)
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
    assert all(address.startswith(("data:image/svg+xml", "chapters/", "docs/", "labs/")) for address in loaded)
    assert len(page) < 500_000

"""The instructor's guide agrees with the chapters: all of them, their titles, and the minutes that they state."""

import re
from pathlib import Path

import nbformat
import pytest
from allranks.base.chapters import find
from allranks.course.contents import contents
from allranks.course.length import taken

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[\d\d ([^\]]+)\]\(\.\./chapters/\w+/(\w+)\.ipynb\) \| (\d+) \|", re.M)
ROWS = {name: (title, int(minutes)) for title, name, minutes in ROW.findall(GUIDE)}
CHAPTERS = sorted((ROOT / "chapters" / "source").glob("*/*.py"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_chapter_has_its_row_with_the_minutes_it_states(path):
    head = path.read_text(encoding="utf-8")[:2000]
    heading = re.search(r"^# # (.+)$", head, flags=re.M).group(1)
    title, minutes = ROWS[path.stem]
    assert heading.startswith(title)
    assert minutes == contents(ROOT)[path.stem[:2]].minutes


def test_no_row_is_for_a_chapter_that_is_not_there():
    assert set(ROWS) == {path.stem for path in CHAPTERS}


def cells_of(number: str, last: str) -> list:
    """The cells of a chapter up to the end of a section; all of them if there is no last one."""
    cells = nbformat.read(ROOT / find(number).path, as_version=4).cells
    ends = (at for at, cell in enumerate(cells) if last and f"## {int(last) + 1}. " in cell.source)
    return cells[: next(ends, None)]


def test_the_short_way_takes_as_long_as_it_says():
    section = GUIDE.split("## The short way")[1].split("## Two hours")[0]
    rows = re.findall(r"^\| (\d+) \| \[(\d\d)\]\S+?(?:: sections (\d).+?(\d),.*)? \|$", section, flags=re.M)
    assert [number for _, number, _, _ in rows] == ["00", "03", "04"]
    assert sum(int(minutes) for minutes, _, _, _ in rows) == 85
    stated = sum(contents(ROOT)[number].minutes for _, number, _, _ in rows)
    assert f"whole are {stated} minutes" in section and f"{stated} for all three" in (ROOT / "README.md").read_text()
    for minutes, number, _, last in rows:
        assert abs(int(minutes) - taken(cells_of(number, last))) <= 3


def test_the_short_courses_fit_their_time():
    two_hours = GUIDE.split("## Two hours")[1].split("## One day")[0]
    assert sum(map(int, re.findall(r"^\| (\d+) \|", two_hours, flags=re.M))) == 120
    day = GUIDE.split("## One day")[1].split("## A semester")[0]
    minutes = [int(n) for row in re.findall(r"^\| (\d+) \|.*?\| (\d+) \|", day, flags=re.M) for n in row]
    assert 5 * 60 <= sum(minutes) <= 7 * 60


def test_every_chapter_and_lab_has_its_week():
    semester = GUIDE.split("## A semester")[1].split("## What goes wrong")[0]
    weeks = re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]*) ?\|$", semester, flags=re.M)
    assert [int(week) for week, _, _ in weeks] == list(range(1, 15))
    numbers = {n for _, chapters, _ in weeks for n in re.findall(r"\b\d\d\b", chapters)}
    beside = {"29", "42", "63", "64", "65"}  # to look up, or to read alone
    assert {path.stem[:2] for path in CHAPTERS} - beside <= numbers
    labs = re.findall(r"\.\./labs/(\w+)/", semester)
    assert sorted(labs) == sorted(path.name for path in (ROOT / "labs").iterdir() if path.is_dir())


def test_the_plan_for_training_has_ten_weeks_of_chapters_that_are_there():
    plan = GUIDE.split("## Distributed training in ten weeks")[1]
    weeks = re.findall(r"^\| (\d+) \| ([\d, ]+) \| ([^|]*) ?\|$", plan, flags=re.M)
    assert [int(week) for week, _, _ in weeks] == list(range(1, 11))
    numbers = [n for _, chapters, _ in weeks for n in re.findall(r"\d\d", chapters)]
    assert len(numbers) == len(set(numbers)) and set(numbers) <= {path.stem[:2] for path in CHAPTERS}
    assert {"20", "21", "22", "24", "26"} <= set(numbers)
    assert all((ROOT / "labs" / lab).is_dir() for lab in re.findall(r"\.\./labs/(\w+)/", plan))

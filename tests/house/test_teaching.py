"""The instructor's guide agrees with the chapters: all of them, their titles, and the minutes that they state."""

import re
from pathlib import Path

import pytest

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
    assert minutes == int(re.search(r"(\d+) minutes", head).group(1))


def test_no_row_is_for_a_chapter_that_is_not_there():
    assert set(ROWS) == {path.stem for path in CHAPTERS}


def minutes_of(text: str) -> float:
    """At 130 words a minute, 20 s a cell, 45 s a prediction and ten minutes for what is written, as the guide says."""
    cells = re.split(r"^# %%(?= |$)", text, flags=re.M)[1:]
    words = sum(len(re.sub(r"^# ?", "", cell, flags=re.M).split()) for cell in cells if " [markdown]" in cell[:12])
    code = [cell for cell in cells if " [markdown]" not in cell[:12]]
    asked = sum(len(re.findall(r"= predict\(", cell)) for cell in code)
    return words / 130 + len(code) / 3 + 0.75 * asked + 10 * sum("\ncheck(" in cell for cell in code)


def test_the_short_way_takes_as_long_as_it_says():
    section = GUIDE.split("## The short way")[1].split("## Two hours")[0]
    rows = re.findall(r"^\| (\d+) \| \[(\d\d)\]\S+?(?:: sections (\d).+?(\d),.*)? \|$", section, flags=re.M)
    assert [number for _, number, _, _ in rows] == ["00", "02", "03", "04"]
    assert sum(int(minutes) for minutes, _, _, _ in rows) == 75
    whole = {path.stem[:2]: path.read_text(encoding="utf-8") for path in CHAPTERS}
    stated = sum(int(re.search(r"(\d+) minutes", whole[number][:2000]).group(1)) for _, number, _, _ in rows)
    assert f"whole are {stated} minutes" in section and f"{stated} for all four" in (ROOT / "README.md").read_text()
    taken = 0.0
    for _, number, _, last in rows:
        text = whole[number]
        taken += minutes_of(text.split(f"# ## {int(last) + 1}. ")[0] if last else text)
    assert 60 <= taken <= 75


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

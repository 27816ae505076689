"""docs/pictures is what the command draws; the README's ring is its schedule, moves only where that is wanted, and
is on the first screen.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from allranks import schedules
from allranks.show.pictures.motion import motion, states
from loading import loaded

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def tool():
    return loaded(ROOT / "tools" / "pictures.py")


def test_the_files_are_what_is_drawn(tool):
    assert tool.main(["--check"]) == 0
    assert tool.build() == tool.build()


def test_a_spoilt_a_missing_and_a_foreign_picture_are_named(tool, tmp_path, capsys):
    assert tool.main(["--root", str(tmp_path)]) == 0
    folder = tmp_path / "docs" / "pictures"
    (folder / "reduce.svg").write_text("<svg/>", encoding="utf-8")
    (folder / "ring.svg").unlink()
    (folder / "by_hand.svg").write_text("<svg/>", encoding="utf-8")
    assert tool.main(["--check", "--root", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert re.findall(r"docs/pictures/(\S+) is not what", said) == ["reduce.svg", "ring.svg", "by_hand.svg"]


@pytest.mark.parametrize("build", [schedules.ring_all_reduce, schedules.ring_all_gather])
def test_the_moving_picture_is_its_schedule(build):
    schedule = build(4)
    svg = motion(schedule, "A ring")
    packets = re.findall(r'class="packet p(\d)"', svg)
    assert Counter(map(int, packets)) == Counter(move.step for move in schedule.moves)
    last = states(schedule)[-1]
    assert {place: last[place] for place in schedule.final()} == {p: set(c) for p, c in schedule.final().items()}
    # every contribution appears once, in the step after which it is there
    appear = re.findall(r'class="r\d s(\d)"', svg)
    for step, (before, after) in enumerate(zip(states(schedule), states(schedule)[1:], strict=False)):
        new = sum(len(owners - before.get(place, set())) for place, owners in after.items())
        assert appear.count(str(step)) == new
    assert re.findall(r">([+=]) c\d<", svg).count("+") == sum(move.reduce for move in schedule.moves)


def test_it_stands_still_for_who_wants_that():
    svg = motion(schedules.ring_all_reduce(4), "Ring")
    rest, moving = svg.split("@media (prefers-reduced-motion:no-preference)")
    assert "animation" not in rest and moving.count(" 3 both") == 21
    assert "animation" not in motion(schedules.ring_all_reduce(4), "Ring", still=True)


def test_letters_are_large_enough():
    sizes = re.findall(r"font(?:-size)?:(?:\d+ )?(\d+)px", motion(schedules.ring_all_reduce(4), "Ring"))
    assert min(map(int, sizes)) >= 14  # 880 px wide; GitHub's column is 838


def test_the_readme_begins_with_it():
    first = (ROOT / "README.md").read_text(encoding="utf-8").split("## Five minutes")[0]
    still, moves = re.search(r'srcset="([^"]+)"', first)[1], re.search(r'<img src="([^"]+)"', first)[1]
    assert "prefers-reduced-motion: reduce" in first
    assert (ROOT / still).exists() and "animation" not in (ROOT / still).read_text(encoding="utf-8")
    assert "animation" in (ROOT / moves).read_text(encoding="utf-8")

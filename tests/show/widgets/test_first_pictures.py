"""The pictures with which chapters begin: they are the first code of their chapters, and refuse what can't be drawn."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from allranks import explore
from allranks.base.chapters import find
from allranks.base.errors import CourseError
from allranks.show.widgets.my_model_story import digits, fixed

ROOT = Path(__file__).resolve().parents[3]
CHAPTERS = {
    "20": "data_parallel",
    "22": "sharded",
    "23": "fsdp",
    "24": "tensor",
    "25": "pipeline",
    "26": "attention",
    "27": "router",
    "28": "recompute",
    "29": "splits",
    "41": "flag",
    "43": "protocols",
    "44": "writes",
    "46": "interval",
    "47": "path",
    "48": "late",
    "49": "flows",
    "55": "recover",
    "60": "compress",
    "61": "bits",
    "62": "uneven",
    "63": "search",
}
IMPOSSIBLE = {
    "attention": {"step": 5},
    "bits": {"p": 1},
    "compress": {"k": 65},
    "data_parallel": {"p": 3},
    "flag": {"library": "UCC"},
    "fsdp": {"room": 0},
    "interval": {"cost": 61},
    "late": {"delay": -1},
    "path": {"card": 5},
    "pipeline": {"ranks": 5},
    "protocols": {"nbytes": 1000},
    "recompute": {"count": 13},
    "recover": {"hours": 5},
    "search": {"nbytes": 1000},
    "sharded": {"stage": 4},
    "splits": {"model": "8B"},
    "tensor": {"p": 128},
    "uneven": {"share": 0.01},
    "writes": {"looks": 27},
    "router": {"capacity": 9},
}


@pytest.mark.parametrize("number", CHAPTERS)
def test_a_chapter_begins_with_its_picture_and_asks_it(number):
    cells = nbformat.read(ROOT / find(number).path, as_version=4).cells
    assert [cell.cell_type for cell in cells[:3]] == ["markdown", "code", "markdown"]
    assert cells[2].source.startswith("**Ask the picture.**") and "?" in cells[2].source
    call = cells[1].source.splitlines()[-1]
    shown = eval(call, {"explore": explore})
    assert shown.kind == CHAPTERS[number] and shown.text().endswith(".")
    # the call shows the reader what can be changed
    assert re.fullmatch(r"explore\.\w+\(.+\)", call)


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_what_can_not_be_drawn_is_refused_in_one_sentence(kind):
    with pytest.raises(CourseError) as refused:
        getattr(explore, kind)(**IMPOSSIBLE[kind])
    said = str(refused.value)
    assert re.search(r"must be .*\.$", said) and "\n" not in said


def test_a_half_is_rounded_as_in_the_browser():
    """`toFixed` gives the larger one of two that are as near; Python's formats give the even one."""
    assert (digits(10.5), digits(12.5), digits(2.25), digits(1000.5)) == ("11", "13", "2.3", "1,001")
    assert digits(999.5) == "1000"  # as the browser has it, without a comma
    assert fixed(0.15, 1) == "0.1"  # 0.15 is a little less than that
    assert "padding moves 11 times the needed bytes" in explore.uneven(p=32, share=10.5 / 32).text()

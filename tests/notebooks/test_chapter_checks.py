"""From part 3 on each chapter judges code of its reader's: as it is given it is not right yet, and the folded answer is."""

from __future__ import annotations

import ast
import re

import pytest
from allranks import plan, schedules
from allranks.base.chapters import chapters, find
from allranks.exercises import get, names
from allranks.judge.judging import judge_text
from test_chapters import read
from test_folded_answers import PRELUDE

JUDGED = [
    chapter
    for chapter in chapters()
    if re.match(r"2[2-9]|30|4\d|5[56]|6[0-3]", chapter.stem)  # 64 and 65 are for looking things up
]
CHECK = re.compile(r"^check\((\w+)(?:, (\w+)=\"(\w+)\")?\)$", flags=re.M)
# where plain Python is asked for, the page itself judges it
PAGE = {
    "29_price_a_training_run": ("state_mine", "judge_state", {"plan": plan}),
    "48_your_own_job": ("apart_mine", "judge_apart", {}),
    "56_eight_gpus": ("ran_mine", "judge_ran", {}),
    "63_can_a_machine_find_it": ("part_mine", "judge_part", {"schedules": schedules}),
}


def code(stem: str) -> dict[str, str]:
    """A chapter's code cells by name."""
    return {cell.id: cell.source for cell in read(stem).cells if cell.cell_type == "code"}


def given() -> list[tuple[str, str, dict[str, str], str]]:
    """(chapter, function, options, source) of every check of code that the chapter gives to its reader."""
    found = []
    for chapter in JUDGED:
        for source in code(chapter.stem).values():
            for name, option, value in CHECK.findall(source):
                if f"def {name}(" in source:
                    found.append((chapter.stem, name, {option: value} if option else {}, source))
    return found


@pytest.mark.core
@pytest.mark.parametrize("chapter", JUDGED, ids=lambda chapter: chapter.stem)
def test_a_chapter_judges_code_of_its_readers(chapter):
    cells = code(chapter.stem)
    together = "\n".join(cells.values())
    checked = [name for name, *_ in CHECK.findall(together) if f"def {name}(" in together]
    judged = any(name.startswith("judge") for name in cells) and "# your turn" in together
    assert checked or judged


@pytest.mark.core
def test_no_chapter_adds_to_the_exercises():
    assert len(names()) <= 60


@pytest.mark.parametrize(
    ("name", "options", "source"), [pytest.param(n, o, s, id=f"{c[:2]}-{n}") for c, n, o, s in given()]
)
def test_as_given_it_is_not_right_yet(name, options, source):
    verdict = judge_text(get(name), PRELUDE + CHECK.sub("", source), **options)
    assert not verdict.passed and verdict.reason


def test_the_answer_to_an_exchange_passes_under_nccls_rules():
    markdown = {cell.id: cell.source for cell in read("42_what_changes_on_nccl").cells}
    (answer,) = re.findall(r"```python\n(.*?)```", markdown["mirror_mine_answer"], flags=re.S)
    assert judge_text(get("mirror"), PRELUDE + answer, rules="nccl").passed


def judged(stem: str, solved: bool, capsys) -> list[str]:
    """What the page's own judge prints."""
    asked, judge, space = PAGE[stem]
    cells = {cell.id: cell.source for cell in read(stem).cells}
    space = dict(space)
    if stem.startswith("63"):
        lanes = [[int(a != b) for b in range(8)] for a in range(8)]
        space["found"] = schedules.search_all_gather(lanes, chunks=7, rounds=(7,))
    text = re.findall(r"```python\n(.*?)```", cells[f"{asked}_answer"], flags=re.S)[0] if solved else cells[asked]
    ast.parse(text)
    capsys.readouterr()
    exec(text + "\n\n" + cells[judge], space)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("stem", PAGE)
def test_the_pages_judge_tells_right_from_wrong(stem, capsys):
    assert find(stem).stem == stem
    before, after = judged(stem, False, capsys), judged(stem, True, capsys)
    assert len(before) == len(after) >= 2
    assert all("right" in line for line in after)
    assert sum("right" in line for line in before) < len(before) / 2

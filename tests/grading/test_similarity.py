"""Answers that look copied, and answers that only look alike because the exercise is short."""

from __future__ import annotations

import random
import re
import shutil

import nbformat
import pytest
from classes import allranks, hand_in
from grading_course import ROOT, make_course

from autograder.similarity import NothingToCompare, compare, fingerprints, pairs, tokens

RIGHT = ROOT / "tests" / "exercises" / "right"
RELEASED = "def ring_all_reduce(tensor):\n    '''Sums.'''\n    raise NotImplementedError()\n"


def answers() -> dict[str, list[str]]:
    """Right answers in different styles, each by a student of its own."""
    found = {}
    for path in sorted(RIGHT.glob("ring_*/*.py")):
        found[f"{path.parent.name}-{path.stem}"] = [path.read_text(encoding="utf-8")]
    return found


def renamed(code: str) -> str:
    """The same with other names, numbers, comments and layout."""
    names = ("rank", "step", "chunks", "left", "right", "send", "flat", "work", "arrived")
    for number, name in enumerate(names):
        code = re.sub(rf"(?<![.\w]){name}\b(?!\s*=[^=]*dist)", f"zz{number}", code)
    lines = [f"{line}  # mine" if line and line[-1] not in "\\(," else line for line in code.splitlines()]
    return "\n\n".join(lines) if '"""' not in code else code.replace("\n\n", "\n\n\n")


def test_a_copy_with_other_names_is_found():
    others = answers()
    victim = next(name for name in others if name.startswith("ring_all_reduce"))
    found = pairs({**others, "thief": [renamed(others[victim][0])]}, [RELEASED])
    assert found and found[0].students == tuple(sorted((victim, "thief")))
    assert found[0].share > 0.8


@pytest.mark.parametrize("scratch", ["x = '''", "(((", "if x:\n  y\n z", "'", "\0", "def f(:", "$ ?", '"""'])
@pytest.mark.parametrize("place", [0, 1])
def test_a_scratch_cell_that_does_not_parse_hides_nothing(scratch, place):
    """Nor does one in the answer's own cell: what does not parse is read word by word."""
    others = answers()
    victim = next(name for name in others if name.startswith("ring_all_reduce"))
    cells = [*others[victim]]
    cells.insert(place, scratch)
    (first, *_) = pairs({**others, "thief": cells}, [RELEASED])
    assert first.students == tuple(sorted((victim, "thief"))) and first.share == 1.0
    torn = [f"{scratch}\n{others[victim][0]}"]
    assert any("thief" in pair.students for pair in pairs({**others, "thief": torn}, [RELEASED]))


def test_a_copy_is_shown_as_a_copy_though_parts_of_it_are_common():
    """What most of the class wrote too makes no copy less of one."""
    rng = random.Random(3)
    common = "\n".join(f"x.{rng.choice('abcdefgh')}{n}(y) + z[{n}]" for n in range(60))
    own = {f"s{n}": "\n".join(f"q.{rng.choice('abcdefgh')}{n}_{k}(y) - z" for k in range(40)) for n in range(12)}
    handed_in = {name: [common, text] for name, text in own.items()}
    (found,) = pairs({**handed_in, "thief": handed_in["s0"]}, [])
    assert found.students == ("s0", "thief") and found.share == 1.0


def test_what_was_released_counts_for_nothing():
    rng = random.Random(7)
    words = [f"x.{rng.choice('abcdefgh')}{n}(y, {n}) + z[{n}]" for n in range(60)]
    released = "\n".join(words)
    one, other = released + "\nq.first(1) * q.second(2)\n", released + "\nq.third(3) - q.fourth(4)\n"
    assert pairs({"ada": [one], "bo": [other]}, []) != []
    assert pairs({"ada": [one], "bo": [other]}, [released]) == []


def test_what_many_wrote_counts_for_nothing():
    code = next(iter(answers().values()))
    assert pairs({f"s{n}": code for n in range(3)}, []) != []
    assert pairs({f"s{n}": code for n in range(10)}, []) == []


def test_names_numbers_and_comments_do_not_count():
    assert tokens("a = b.size(3)  # why") == tokens("left   =   right.size(44)")
    assert fingerprints("a = 1") == set()
    assert tokens("def f(:\n  '''") is not None, "what does not parse is no error"


def test_a_labs_submissions_are_compared(tmp_path):
    course = make_course(tmp_path / "course", record=False)
    with pytest.raises(NothingToCompare):
        compare(course.root, "lab03_all_reduce")
    hand_in(course, {"ada": {"ring_all_reduce": "half_duplex"}, "bo": {"ring_all_reduce": "half_duplex"}})
    hand_in(course, {"cy": {"ring_all_reduce": "through_rank_zero", "distributed_mean": "sum"}})
    course.submission("eve").write_bytes(b"junk")
    notebook = nbformat.read(course.submission("bo"), as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("a = b(c, 1) + d\n" * 100_000))
    nbformat.write(notebook, course.submission("bo"))
    found, told = compare(course.root, "lab03_all_reduce")
    assert found[0].students == ("ada", "bo") and found[0].share == 1.0
    assert [line.partition(":")[0] for line in told] == ["bo", "eve"]
    assert "1599999 characters of code" in told[0]


def test_earlier_terms_are_compared_too(tmp_path):
    course, old = (make_course(tmp_path / name, record=False) for name in ("course", "ml-2025"))
    hand_in(course, {"ada": {"ring_all_reduce": "half_duplex"}, "cy": {"ring_all_reduce": "through_rank_zero"}})
    hand_in(old, {"zoe": {"ring_all_reduce": "half_duplex"}, "yan": {"ring_all_reduce": "half_duplex"}})
    shutil.copytree(course.submission("cy").parents[1], old.root / "autograder" / "submitted" / "cy")
    lab = "lab03_all_reduce"
    assert compare(course.root, lab, 0.9)[0] == []
    found, _ = compare(course.root, lab, 0.9, [old.root])
    # those of one earlier term are no news, and who takes the course again hands in the own work
    assert [pair.students for pair in found] == [("ada", "yan of ml-2025"), ("ada", "zoe of ml-2025")]
    said = allranks(course, "similar", "--least", "0.9", "--earlier", str(old.root)).stdout
    assert "ada and zoe of ml-2025" in said
    refused = allranks(course, "similar", "--earlier", str(tmp_path))
    assert refused.returncode == 2 and "has no submissions of lab03_all_reduce: name the folder" in refused.stderr

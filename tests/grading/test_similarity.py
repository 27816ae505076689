"""Answers that look copied, and answers that only look alike because the exercise is short."""

from __future__ import annotations

import random
import re

from classes import hand_in
from grading_course import ROOT, make_course

from autograder.similarity import NothingToCompare, compare, fingerprints, pairs, tokens

RIGHT = ROOT / "tests" / "exercises" / "right"
RELEASED = "def ring_all_reduce(tensor):\n    '''Sums.'''\n    raise NotImplementedError()\n"


def answers() -> dict[str, str]:
    """Right answers in different styles, each by a student of its own."""
    found = {}
    for path in sorted(RIGHT.glob("ring_*/*.py")):
        found[f"{path.parent.name}-{path.stem}"] = path.read_text(encoding="utf-8")
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
    found = pairs({**others, "thief": renamed(others[victim])}, [RELEASED])
    assert found and found[0].students == tuple(sorted((victim, "thief")))
    assert found[0].share > 0.8


def test_what_was_released_counts_for_nothing():
    rng = random.Random(7)
    words = [f"x.{rng.choice('abcdefgh')}{n}(y, {n}) + z[{n}]" for n in range(60)]
    released = "\n".join(words)
    one, other = released + "\nq.first(1) * q.second(2)\n", released + "\nq.third(3) - q.fourth(4)\n"
    assert pairs({"ada": one, "bo": other}, []) != []
    assert pairs({"ada": one, "bo": other}, [released]) == []


def test_what_many_wrote_counts_for_nothing():
    code = next(iter(answers().values()))
    assert pairs({f"s{n}": code for n in range(3)}, []) != []
    assert pairs({f"s{n}": code for n in range(10)}, []) == []


def test_names_numbers_and_comments_do_not_count():
    assert tokens("a = b.size(3)  # why") == tokens("left   =   right.size(44)")
    assert fingerprints("a = 1") == set()
    assert tokens("def f(:\n  '''") is not None, "what does not parse is no error"


def test_a_labs_submissions_are_compared(tmp_path):
    import pytest

    course = make_course(tmp_path / "course", record=False)
    with pytest.raises(NothingToCompare):
        compare(course.root, "lab03_all_reduce")
    hand_in(course, {"ada": {"ring_all_reduce": "half_duplex"}, "bo": {"ring_all_reduce": "half_duplex"}})
    hand_in(course, {"cy": {"ring_all_reduce": "through_rank_zero", "distributed_mean": "sum"}})
    course.submission("eve").write_bytes(b"junk")
    found, told = compare(course.root, "lab03_all_reduce")
    assert found[0].students == ("ada", "bo") and found[0].share == 1.0
    assert [line.partition(":")[0] for line in told] == ["eve"]

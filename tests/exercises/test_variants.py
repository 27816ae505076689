"""Variants: an answer that does the student's own passes, a neighbour's that has the neighbour's values in it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import allranks.exercises as exercises
import pytest
from allranks import VariantError, as_student, check
from allranks.base import variants
from allranks.exercises import get, names
from allranks.judge.judging import judge
from allranks.judge.source import from_text, read_source
from allranks.judge.variants import of_student, with_variant

HERE = Path(__file__).parent
WITH = sorted(name for name in names() if get(name).variants is not None)
KEY = "0123456789abcdef" * 2
SAID = {  # what a neighbour's answer gets to hear
    "ring_shift": "elements in one message",
    "tree_broadcast": "it must only receive",
    "pipelined_broadcast": "it must only receive",
    "distributed_argmax": "",
    "heal": "is slow, and rank",
}


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A student's folder of a course that gives variants; nobody has said who works in it."""
    exercises._student.clear()
    for name in ("JUPYTERHUB_USER", "ALLRANKS_STUDENT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / variants.FILE).write_text(json.dumps({"lab": "lab02_rooted", "key": KEY}))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    exercises._student.clear()


def answer(name: str, value: int):
    """The answer of tests/exercises/variants, with this value in it."""
    text = (HERE / "variants" / f"{name}.py").read_text(encoding="utf-8")
    assert "MINE = 5" in text
    return from_text(text.replace("MINE = 5", f"MINE = {value}"), name, f"{name}.py")


def theirs(name: str, value: int):
    exercise = get(name)
    ((what, values),) = exercise.variants.choices
    assert value in values
    return with_variant(exercise, "ada", {what: value})


def test_there_are_variants_in_four_labs():
    assert WITH == sorted(SAID)


@pytest.mark.parametrize("name", WITH)
def test_ones_own_passes_and_a_neighbours_fails(name, pool):
    mine, neighbours = 3, 6
    verdict = judge(theirs(name, mine), answer(name, mine), pool=pool)
    assert verdict.passed, verdict.text()
    assert str(mine) in verdict.variant.words and verdict.to_dict()["variant"]["student"] == "ada"
    copied = judge(theirs(name, mine), answer(name, neighbours), pool=pool)
    assert not copied.passed and copied.score < 1 and SAID[name] in copied.reason, copied.text()
    assert any(case.group.startswith("your variant") and not case.passed for case in copied.cases), copied.text()
    assert verdict.variant.words in copied.html().replace("&#x27;", "'")


@pytest.mark.parametrize("name", WITH)
def test_an_answer_that_knows_no_variant_fails(name, pool):
    path = sorted((HERE / "right" / name).glob("*.py"))[0]
    assert not judge(theirs(name, 3), read_source(path, name), pool=pool).passed, path


def test_what_is_drawn_follows_from_key_and_name_and_is_spread():
    drawn = [of_student(get("tree_broadcast"), KEY, f"student{n}").variant.brief for n in range(70)]
    assert drawn == [of_student(get("tree_broadcast"), KEY, f" student{n} ").variant.brief for n in range(70)]
    assert len(set(drawn)) == 7 and max(Counter(drawn).values()) <= 20
    assert drawn != [of_student(get("tree_broadcast"), KEY[::-1], f"student{n}").variant.brief for n in range(70)]
    assert of_student(get("ring_all_reduce"), KEY, "ada") is get("ring_all_reduce")


def tree_broadcast(tensor, src):
    raise NotImplementedError


def test_check_asks_who_it_is_and_then_shows_the_variant(course, monkeypatch):
    with pytest.raises(VariantError, match="as_student"):
        check(tree_broadcast)
    (course / "rooted.ipynb").write_text('{"source": "def tree_broadcast(tensor, src):"}')
    assert of_student(get("tree_broadcast"), KEY, "ada").variant.words in as_student("ada")
    verdict = check(tree_broadcast)
    assert verdict.variant == of_student(get("tree_broadcast"), KEY, "ada").variant and not verdict.passed
    exercises._student.clear()
    monkeypatch.setenv("JUPYTERHUB_USER", "bo")
    assert check(tree_broadcast).variant.student == "bo", "the account on a hub"
    monkeypatch.chdir(course.parent)
    assert check(tree_broadcast).variant is None, "no variants here"


def test_the_command_knows_the_student(course):
    path = course / "answer.py"
    path.write_text((HERE / "variants" / "tree_broadcast.py").read_text(encoding="utf-8"), encoding="utf-8")
    program = [str(Path(sys.executable).parent / "allranks"), "check", "tree_broadcast", str(path), "--json"]
    environment = os.environ | {"ALLRANKS_IDLE_S": "0"}
    done = subprocess.run([*program, "--student", "ada"], env=environment, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert told["variant"]["brief"] == of_student(get("tree_broadcast"), KEY, "ada").variant.brief
    assert told["passed"] == (told["variant"]["brief"] == "rank 5 is slow")
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 2 and "as_student" in json.loads(done.stdout)["reason"]


@pytest.mark.parametrize("text", ["", "{}", '{"key": "../../etc"}', '{"key": 7}', "[]", "\x00"])
def test_a_damaged_file_is_one_sentence(course, text):
    (course / variants.FILE).write_text(text)
    with pytest.raises(VariantError, match="is damaged: fetch the lab again"):
        check(tree_broadcast)


@pytest.mark.parametrize("name", [" ", "a/b", "a\nb", "x" * 300])
def test_what_is_no_name_is_refused(course, name):
    with pytest.raises(VariantError, match="no student's name"):
        as_student(name)

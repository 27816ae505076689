"""Thirty made-up submissions of lab 3, each known wrong answer of its exercises once: what the overview says of them."""

from __future__ import annotations

import json
from collections import Counter
from itertools import zip_longest

import pytest
from allranks.exercises import get
from allranks.judge.judging import judge
from allranks.judge.source import read_source
from classes import WRONG, Answers, allranks, hand_in
from grading_course import LAB, NOTEBOOK, ROOT, Course, make_course
from test_other_systems import Container

from autograder.gradescope import pack

pytestmark = [pytest.mark.notebooks, pytest.mark.nightly, pytest.mark.timeout(1800)]
EXERCISES = ("distributed_mean", "distributed_argmax", "ring_all_reduce")
# wrong answers whose cause another one has too: thirty students can't hand in all of ring_all_reduce's
SAME = {"gathers_from_the_wrong_chunk", "half_duplex", "half_precision", "pads_in_front", "reduce_scatter_only"}
# made up so that three causes stand out, beside each cause once or more
MORE = {"distributed_mean": ["sum"] * 7, "distributed_argmax": ["last_tie"] * 4 + ["ignores_nan"] * 3}
MORE["ring_all_reduce"] = []


def wrong_answers(exercise: str) -> list[str]:
    return sorted(path.stem for path in (WRONG / exercise).glob("*.py") if path.stem not in SAME)


def students() -> dict[str, Answers]:
    """Thirty students, each with a wrong answer to every exercise for which there is one left."""
    columns = {exercise: [*wrong_answers(exercise), *MORE[exercise]] for exercise in EXERCISES}
    assert max(map(len, columns.values())) == 30
    rows = zip_longest(*columns.values())
    return {
        f"s{number:02}": {exercise: name for exercise, name in zip(EXERCISES, row, strict=True) if name}
        for number, row in enumerate(rows)
    }


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Course:
    made = make_course(tmp_path_factory.mktemp("thirty"))
    hand_in(made, students())
    assert allranks(made, "grade").returncode == 0
    return made


def test_the_three_commonest_causes_are_named_rightly(course):
    told = json.loads(allranks(course, "class", "--json").stdout)
    assert len(told["students"]) == 30
    three = [(c["exercise"], c["mistake"], len(c["students"])) for c in told["causes"][:3]]
    assert three == [
        ("distributed_mean", "the sum instead of the mean", 8),
        ("distributed_argmax", "ties go to the lowest rank, then the lowest index", 6),
        ("distributed_argmax", "NaN was ignored", 5),
    ]


def test_each_student_has_the_cause_of_the_answer(course):
    told = json.loads(allranks(course, "class", "--json").stdout)
    causes = {
        row["student"]: {name: mark["cause"] for name, mark in row["exercises"].items()} for row in told["students"]
    }
    wanted: dict[tuple[str, str], str] = {}
    differ = Counter()
    for student, answers in students().items():
        for exercise, name in answers.items():
            if (exercise, name) not in wanted:
                path = WRONG / exercise / f"{name}.py"
                wanted[exercise, name] = judge(get(exercise), read_source(str(path), exercise)).mistake
            if causes[student][exercise] != wanted[exercise, name]:
                differ[exercise, name, causes[student][exercise], wanted[exercise, name]] += 1
        right = set(EXERCISES) - set(answers)
        assert all(causes[student][exercise] == "" for exercise in right)
    assert not differ


def test_gradescope_gives_all_thirty_the_points_of_the_gradebook(course, tmp_path):
    pack(ROOT, LAB, tmp_path / "autograder.zip")
    container = Container(tmp_path / "container", tmp_path / "autograder.zip")
    differ, total = {}, Counter()
    for student in students():
        handed_in = course.root / "autograder" / "submitted" / student / LAB / f"{NOTEBOOK}.ipynb"
        code, said, results = container.mark(handed_in)
        assert code == 0, said
        told = {test["name"]: test["score"] for test in results["tests"]}
        scores = course.scores(student)
        recorded = {name: scores[f"{name}-graded"] for name in EXERCISES}
        total.update(gradescope=sum(told.values()), gradebook=sum(recorded.values()))
        if told != recorded:
            differ[student] = (told, recorded)
    print(f"{len(students())} submissions, points in all: {dict(total)}")
    assert not differ

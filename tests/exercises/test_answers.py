"""Every right answer passes whole; each known wrong one gets the message it must get, in a notebook or from a file.

All of them are judged whenever this file or its folder is named, and nightly, and those of an exercise after a change of it; a run of
everything takes one right and two wrong answers of each exercise.
"""

from __future__ import annotations

from collections import defaultdict

import known
import pytest
from allranks.exercises import get, names
from allranks.judge.judging import MAX_RANKS, judge
from allranks.judge.score import MOST_WITHOUT
from allranks.judge.source import from_text, read_source
from allranks.ranks.wire import Ranks
from known import Answer

RIGHT, WRONG = known.answers("right"), known.answers("wrong")


def _shared_out(answers: list[Answer], always: int) -> list:
    """One parameter for each answer; of each exercise all but `always`, evenly spread, are nightly."""
    by_exercise: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        by_exercise[answer.exercise].append(answer)
    daily = {found[len(found) * turn // always] for found in by_exercise.values() for turn in range(always)}
    return [pytest.param(answer, marks=() if answer in daily else pytest.mark.nightly) for answer in answers]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Ranks for all answers of this file: forking them anew for each would take most of its time."""
    with pytest.MonkeyPatch.context() as patch, Ranks(MAX_RANKS) as ranks:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("answers")))  # one of the wrong answers writes files there
        yield ranks


@pytest.mark.parametrize("answer", _shared_out(RIGHT, 1), ids=str)
def test_a_right_answer_passes(answer, pool):
    verdict = judge(get(answer.exercise), from_text(answer.text, answer.exercise, f"{answer.name}.py"), pool=pool)
    assert verdict.passed, verdict.text()
    assert verdict.score == 1.0
    assert verdict.reason == ""


@pytest.mark.parametrize("answer", _shared_out(WRONG, 2), ids=str)
def test_a_wrong_answer_gets_its_message(answer, pool):
    assert answer.must_get and all(answer.must_get), (
        "a wrong answer names its message in its docstring: `Must get: ...`"
    )
    verdict = judge(get(answer.exercise), from_text(answer.text, answer.exercise, f"{answer.name}.py"), pool=pool)
    assert not verdict.passed
    assert verdict.score < 1
    for message in answer.must_get:
        assert message.lower() in verdict.reason.lower(), verdict.text()
    for message in answer.must_not_get:
        assert message.lower() not in verdict.reason.lower(), verdict.text()


@pytest.mark.parametrize(
    "answer",
    (
        "ring_shift/sends_first",  # hangs when sends wait
        "ring_reduce_scatter/whole_vectors",  # too many bytes
        "bruck_all_gather/a_ring",  # too many rounds
        "tree_broadcast/flat",  # too many rounds
        "fsdp_step/one_scatter_for_all",
    ),
)
def test_right_results_by_wrong_messages_miss_what_is_taught(answer, pool):
    exercise = answer.partition("/")[0]
    verdict = judge(get(exercise), read_source(known.HERE / "wrong" / f"{answer}.py", exercise), pool=pool)
    assert [case.group for case in verdict.cases if not case.passed and case.judged]
    assert 0.3 < verdict.score <= MOST_WITHOUT, verdict.text()


@pytest.mark.parametrize("exercise", names())
def test_every_exercise_has_right_and_wrong_answers(exercise):
    assert sum(answer.exercise == exercise for answer in RIGHT) >= 3
    assert sum(answer.exercise == exercise for answer in WRONG) >= 5

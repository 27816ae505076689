"""A student's variant of an exercise: values that follow from the course's key and the student's name, and the exercise with them.

An exercise says what may be drawn, in `Exercise.variants`. `of_student` is the one place where it is drawn, for `check` in a notebook,
for `allranks check` and for the grader, so that all of them judge the same.
"""

from __future__ import annotations

from dataclasses import replace

from allranks.base.variants import Variant, name_of
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise


def of_student(exercise: Exercise, key: str, student: str) -> Exercise:
    """The exercise with this student's variant; the exercise itself if it has none. Raises VariantError for an impossible name.

    >>> from allranks.exercises import get
    >>> of_student(get("tree_broadcast"), "0" * 32, "ada").variant.brief
    'rank 4 is slow'
    """
    if exercise.variants is None:
        return exercise
    student = name_of(student)
    draws = Draws("variant", key, exercise.name, student)
    drawn = {name: values[draws.integer(0, len(values))] for name, values in exercise.variants.choices}
    return with_variant(exercise, student, drawn)


def with_variant(exercise: Exercise, student: str, drawn: dict[str, int]) -> Exercise:
    """The exercise with these values of its variant."""
    about = exercise.variants
    if about is None:
        return exercise
    made = Variant(student, about.brief.format(**drawn), about.words.format(**drawn))
    # the usual schedule is not right for every variant, so none is shown beside the student's messages
    return replace(about.make(exercise, drawn), variant=made, algorithm=None)

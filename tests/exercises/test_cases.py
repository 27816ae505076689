"""What the cases of every exercise have, whatever is drawn."""

from __future__ import annotations

import ast

import pytest
from allranks.exercises import get, names
from allranks.judge.cases import Setup, views
from known import answers


def _sizes(setup: Setup, exercise: str, call: int) -> list:
    return [
        [(path, tuple(view.size)) for path, view in views(args)]
        for args in get(exercise).inputs(setup, setup.draws(7, call))
    ]


@pytest.mark.parametrize("exercise", names())
def test_a_buffer_that_is_kept_by_its_size_would_be_used_again(exercise):
    twice = [setup for group in get(exercise).groups for setup in group.setups if setup.times > 1]
    if get(exercise).allow and exercise != "count_samples":  # its result has one number a rank, whatever comes
        assert any(_sizes(s, exercise, 0) == _sizes(s, exercise, 1) for s in twice)


@pytest.mark.parametrize("exercise", names())
def test_verdicts_know_the_arguments_by_the_names_that_answers_give_them(exercise):
    tree = ast.parse(next(answer.text for answer in answers("right") if answer.exercise == exercise))
    (function,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == exercise]
    assert get(exercise).arguments == tuple(argument.arg for argument in function.args.args)

"""What the cases of every exercise have, whatever is drawn."""

from __future__ import annotations

import pytest
from allranks.exercises import get, names
from allranks.judge.cases import Setup, views


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

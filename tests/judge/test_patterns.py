"""Mistakes that look alike in all exercises: each is told of its own results, and of no others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from allranks.exercises import get, names
from allranks.judge import factor, patterns
from allranks.judge.cases import Setup, View, views
from allranks.judge.common import lost_digits
from allranks.judge.compare import faults as faults_of
from allranks.judge.exercise import Result, Run, each_of
from allranks.judge.judging import judge_text

HEAD = "import torch\nimport torch.distributed as dist\n\n"
SHIFT = """def ring_shift(tensor, k):
    p, r = dist.get_world_size(), dist.get_rank()
    if (k + {more}) % p == 0:
        return tensor.clone()
    out = torch.empty_like(tensor).contiguous()
    ops = [
        dist.P2POp(dist.isend, tensor.contiguous(), (r + k + {more}) % p),
        dist.P2POp(dist.irecv, out, (r - k - {more}) % p),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return {back}
"""
REDUCED = """def column_row_linear(x, a_shard, b_shard):
    y = torch.relu(x @ a_shard) @ b_shard
    dist.all_reduce({what})
    return y{then}
"""


@pytest.mark.parametrize(
    ("exercise", "text", "said"),
    (
        ("ring_shift", SHIFT.format(more=1, back="out"), "each rank r ends with what rank r-1 must have"),
        ("ring_shift", SHIFT.format(more=0, back="tensor"), "the rank's own input came back"),
        ("column_row_linear", REDUCED.format(what="y.clone()", then=""), "of its own arguments only"),
        ("column_row_linear", REDUCED.format(what="y", then=" * -1"), "each element is -1 times the right one"),
    ),
)
def test_a_mistake_that_is_alike_everywhere_has_its_cause(exercise, text, said, pool):
    verdict = judge_text(get(exercise), HEAD + text, pool=pool)
    assert not verdict.passed and said in verdict.reason, verdict.text()


def test_the_right_order_is_no_other_order():
    assert (0, 1, 0) not in patterns._FORMULAS
    assert patterns._in_words(2, -1, 1) == "2r - i + 1" and patterns._in_words(-1, 0, -1) == "- r - 1"


def test_a_decay_is_told_by_its_rate_and_what_shrinks_by_chance_is_not():
    def told(*kept):
        rates = ((2, 0.5), (3, 0.125), (4, 2.0))
        found = [(Setup(p).with_options(lr=lr), of(lr)) for (p, lr), of in zip(rates, kept, strict=True)]
        return factor.in_common([(setup, factor.Factor(value, factor.Of.OLD)) for setup, value in found])

    decay = told(*(lambda lr: 1 - 0.01 * lr,) * 3)
    assert "1 - 0.01 lr times" in decay.sentence and "weight decay" in decay.sentence
    assert told(lambda lr: 0.9, lambda lr: 0.8, lambda lr: 0.7) is None


def test_a_number_that_arrives_as_infinity_is_no_lost_digit():
    def predict(setup, args, value, index):
        return [value(2**60 + 1)]

    mistakes = lost_digits("the value", "the index", predict)
    args = [(View.of(torch.zeros(1)),)]
    refused = 0
    for mistake in each_of(mistakes):
        try:
            mistake.oracle(Setup(1, 1), args)
        except ValueError:
            refused += 1
    assert refused >= 3  # float16 holds no such number, whatever is sent in it


_TAKEN = (  # what a rank may end with instead of its own result
    lambda wanted, r: wanted[(r + 1) % len(wanted)],  # the next rank's
    lambda wanted, r: wanted[len(wanted) - 1 - r],  # the mirrored rank's
    lambda wanted, r: _each(wanted[r], lambda t: t + t),  # twice its own
    lambda wanted, r: _each(wanted[r], lambda t: t.reshape(-1)[:-1]),  # one element less
)
_NOTHING_LOGGED = SimpleNamespace(failure=None, accesses=(), log=(), files=())


def _each(one, change):
    def changed(value):
        if isinstance(value, torch.Tensor):
            return change(value)
        return [changed(v) for v in value] if isinstance(value, list | tuple) else value

    return replace(one, returns=changed(one.returns), changed={path: change(t) for path, t in one.changed.items()})


@pytest.mark.parametrize("name", names())
def test_whatever_ranks_end_with_the_looks_at_it_end(name):
    exercise = get(name)
    setups = [next((s for s in group.setups if (s.ranks or 0) > 2), None) for group in exercise.groups]
    for setup in (s.drawn(b"0" * 32) for s in (*setups, exercise.demo_setup) if s is not None):
        args = tuple(exercise.inputs(setup, setup.draws(b"0" * 32, 0)))
        expected = tuple(exercise.oracle(setup, args))
        for taken in _TAKEN:
            _look(
                Run(exercise, setup, (args,), (expected,), (_ended(args, expected, taken),), _NOTHING_LOGGED, "direct")
            )


def _ended(args, expected, taken):
    ended = [taken(expected, rank) for rank in range(len(args))]
    return tuple(
        Result(e.returns, tuple((e.changed.get(path, view.tensor()), view.base) for path, view in views(given)))
        for e, given in zip(ended, args, strict=True)
    )


def _look(run):
    faults = tuple(
        faults_of(run.exercise.name, run.args[0], run.expected[0], run.results[0], 0, run.exercise.arguments)
    )
    if faults:
        patterns.fitting(run, faults)
        factor.factor(run, faults)

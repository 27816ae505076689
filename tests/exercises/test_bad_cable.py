"""The networks of find_bad_cable: each has one answer, right answers find it under 50 seeds, and no wrong one does."""

from __future__ import annotations

import known
import pytest
from allranks.exercises import get
from allranks.exercises.find_bad_cable import APART, NBYTES, _at_most, _worst
from allranks.judge.drawing import Draws
from allranks.theory.topology import Link, Topology, cable_names, flow_seconds, hashed_fabric

EXERCISE = get("find_bad_cable")


def _function(answer):
    space = {}
    exec(compile(answer.text, answer.name, "exec"), space)
    return space["find_bad_cable"]


@pytest.fixture(scope="module", params=[4, pytest.param(50, marks=pytest.mark.nightly)], ids="{} seeds".format)
def networks(request):
    """For each seed the arguments and the right cables of all cases."""
    return [
        [
            (args, want.returns)
            for group in EXERCISE.groups
            for setup in group.setups
            for args, want in _drawn(setup, seed)
        ]
        for seed in range(request.param)
    ]


def _drawn(setup, seed):
    made = EXERCISE.inputs(setup, Draws("bad cable", seed, repr(setup)))
    return zip(made, EXERCISE.oracle(setup, made), strict=True)


def test_no_network_is_near_to_two_answers(networks):
    for cases in networks:
        for (ways, rounds), bad in cases:
            most = _at_most(ways, rounds)
            assert most[bad] >= APART * max(figure for cable, figure in most.items() if cable != bad)


@pytest.mark.parametrize("answer", [a for a in known.answers("right") if a.exercise == "find_bad_cable"], ids=str)
def test_a_right_answer_finds_every_cable(answer, networks):
    find = _function(answer)
    some = networks[:2] if answer.name == "try_every_cable" else networks  # it tries 64 cables six times
    assert all(find(*args) == bad for cases in some for args, bad in cases)


@pytest.mark.parametrize("answer", [a for a in known.answers("wrong") if a.exercise == "find_bad_cable"], ids=str)
def test_no_wrong_answer_finds_the_cables_of_any_seed(answer, networks):
    find = _function(answer)
    assert not any(all(find(*args) == bad for args, bad in cases) for cases in networks)


def test_the_figure_that_finds_it_is_never_below_the_truth_without_noise():
    pods = Topology("pods", 2, Link("NVLink", 0.0, 400e9), Link("card", 0.0, 50e9), nics_per_node=2, nodes_per_leaf=2)
    healthy = hashed_fabric(pods, 16, seed=3)
    names = list(cable_names(healthy))
    sick = healthy.with_slow_link(2, names[40])
    number = {name: index for index, name in enumerate(names)}
    ways = [[[number[x] for x in sick.route(a, b) if x in number] for b in range(16)] for a in range(16)]
    rng = Draws("no noise")
    rounds = []
    for _ in range(30):
        flows = [(a, b) for a, b in enumerate(rng.permutation(16)) if ways[a][b]]
        times = flow_seconds(sick, flows, NBYTES)
        rounds.append([(a, b, s) for (a, b), s in zip(flows, times, strict=True)])
    most = _at_most(ways, rounds)
    alone = NBYTES / 50e9
    assert _worst(most) == 40 and most[40] == pytest.approx(2 * alone)
    assert all(figure >= alone * 0.999 for figure in most.values())

"""`check(..., topology=...)`: the time on a machine, what the answer waits for, and bad input; points by ratio."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from allranks.cli.check import command
from allranks.exercises import check, get
from allranks.judge import speed
from allranks.judge.judging import judge
from allranks.judge.source import read_source
from allranks.ranks.wire import Ranks
from allranks.theory.topology import TopologyError, preset
from click.testing import CliRunner

HERE = Path(__file__).parent
RING = HERE / "right/ring_all_reduce/isend_recv.py"


@pytest.fixture(scope="module")
def pool():
    with Ranks(speed.MAX_RANKS) as ranks:
        yield ranks


def on_dgx(pool, exercise: str, path: str, **options):
    return judge(get(exercise), read_source(HERE / path, exercise), pool=pool, **{"topology": "dgx-h100", **options})


def test_a_right_answer_is_told_its_time_and_its_critical_path(pool):
    verdict = on_dgx(pool, "ring_all_reduce", "right/ring_all_reduce/isend_recv.py")
    assert verdict.passed
    first, *others = verdict.speed
    assert first == "On dgx-h100, 16 ranks take 2.67 ms for 64 MiB, 8.69 times the lower bound of 307 µs."
    assert any("rank 15's sends over the network card (line" in sentence for sentence in others)
    assert any(sentence.startswith("With both directions: 1.6") for sentence in others)
    assert verdict.trace is not None
    assert verdict.trace.ranks == 16
    assert verdict.trace.meta["critical_path"]["legs"]
    assert (
        first in verdict.text() and "8.69 times" in verdict.html() and verdict.to_dict()["speed"] == list(verdict.speed)
    )


def test_a_slow_answer_is_told_how_slow_and_why_in_one_sentence_and_more_below(pool):
    path = HERE / "wrong/segmented_ring/plain.py"
    verdict = judge(get("segmented_ring"), read_source(path, "segmented_ring"), pool=pool)
    (first, head), (second, why) = verdict.told
    assert (first, second) == ("reason", "more")
    assert "and at most 1.25 times is asked: " in head and "'s wait for rank " in head and head.count(". ") == 0
    assert "With 2 segments" in why
    assert verdict.reason == f"{head} {why}"
    html = verdict.html()
    assert html.count('class="reason"') == 1
    assert html.index('class="reason"') < html.index('class="more"')


def test_grades_do_not_depend_on_the_topology(pool):
    path = "wrong/ring_all_reduce/adds_in_the_all_gather.py"
    plain, timed = (on_dgx(pool, "ring_all_reduce", path, topology=t) for t in (None, "dgx-h100"))
    assert (timed.score, timed.reason, timed.cases) == (plain.score, plain.reason, plain.cases)
    assert plain.speed == ()
    assert "its time is told when its results are right there" in timed.speed[0]


@pytest.mark.parametrize(
    ("exercise", "has_bound"),
    [
        ("pipelined_broadcast", True),
        ("hierarchical_all_reduce", True),
        ("ring_attention", False),
        ("run_pipeline", False),
        ("distributed_mean", False),
    ],
)
def test_other_exercises_have_a_time_too(pool, exercise, has_bound):
    path = sorted((HERE / "right" / exercise).glob("*.py"))[0].relative_to(HERE)
    verdict = on_dgx(pool, exercise, str(path))
    assert verdict.speed[0].startswith("On dgx-h100, 16 ranks")
    assert ("lower bound" in verdict.speed[0]) is has_bound
    assert verdict.speed[1].startswith("The critical path has")


def test_collectives_of_the_library_are_not_cut_into_segments(pool):
    path = sorted((HERE / "right/hierarchical_all_reduce").glob("lists_of_chunks.py"))[0].relative_to(HERE)
    assert not any(sentence.startswith("With") for sentence in on_dgx(pool, "hierarchical_all_reduce", str(path)).speed)


def test_a_topology_of_your_own(pool):
    slow = replace(preset("dgx-h100"), name="one slow rank", ranks_per_node=4).with_straggler(2, 20.0)
    verdict = on_dgx(pool, "ring_all_reduce", "right/ring_all_reduce/isend_recv.py", topology=slow, nbytes=1 << 30)
    assert "On one slow rank, 8 ranks take" in verdict.speed[0] and "for 1 GiB" in verdict.speed[0]
    assert any("ank 2" in sentence or "ank 3" in sentence for sentence in verdict.speed)


@pytest.mark.parametrize(
    ("exercise", "options", "error", "words"),
    [
        ("ring_all_reduce", {"topology": "dgx-h300"}, TopologyError, "there is no topology 'dgx-h300'"),
        ("ring_all_reduce", {"topology": 7}, speed.MachineError, "topology is a int"),
        ("ring_all_reduce", {"nbytes": 0}, speed.MachineError, "nbytes is 0"),
        ("ring_all_reduce", {"nbytes": 2**60}, speed.MachineError, "nbytes is 1152921504606846976"),
        ("fit_line", {}, speed.MachineError, "fit_line sends no messages"),
    ],
)
def test_bad_input_is_one_sentence(pool, exercise, options, error, words):
    path = sorted((HERE / "right" / exercise).glob("*.py"))[0].relative_to(HERE)
    with pytest.raises(error, match=words) as raised:
        on_dgx(pool, exercise, str(path), **options)
    assert "\n" not in str(raised.value)


def test_check_takes_it_as_well():
    with pytest.raises(speed.MachineError, match="nbytes is -1"):
        check(print, exercise="ring_all_reduce", topology="dgx-h100", nbytes=-1)


def test_the_command_says_it_and_refuses_in_one_line():
    told = CliRunner().invoke(
        command, ["ring_all_reduce", str(RING), "--topology", "dgx-h100", "--bytes", "1048576", "--json"]
    )
    assert told.exit_code == 0
    assert json.loads(told.output)["speed"][0].startswith("On dgx-h100, 16 ranks take")
    refused = CliRunner().invoke(command, ["ring_all_reduce", str(RING), "--topology", "cray"])
    assert (refused.exit_code, refused.output.count("\n")) == (2, 1)


def test_points_fall_with_the_ratio(pool):
    """One ring, both directions one after the other, and leaders are correct: the slower, the fewer points, and never none."""
    paths = ["right/two_level_ring/rings.py", "wrong/two_level_ring/two_way.py", "wrong/two_level_ring/one_ring.py"]
    right, twice, one = (on_dgx(pool, "two_level_ring", path, topology=None) for path in paths)
    assert right.score == 1.0
    assert 0.3 < one.score < 0.6
    assert 0.3 < twice.score < 0.6
    leaders = on_dgx(pool, "two_level_ring", "wrong/two_level_ring/leaders.py", topology=None)
    assert "times the lower bound" in leaders.reason
    assert 0.3 < leaders.score < 0.6


def test_a_passing_answer_is_told_its_ratio(pool):
    verdict = on_dgx(pool, "two_way_ring", "right/two_way_ring/one_batch.py", topology=None)
    assert verdict.passed
    assert "times the lower bound" in verdict.speed[0]
    assert verdict.trace.meta["critical_path"]["says"]

"""What the player shows of a verdict: the right schedule beside the messages, in bytes, and what ranks compute."""

from __future__ import annotations

from pathlib import Path

import pytest
from allranks.exercises import get, names
from allranks.judge import computed, provenance
from allranks.judge.running import CaseRunner
from allranks.judge.source import read_source
from allranks.show.player.animation import animate
from allranks.show.player.page import prepared

RIGHT = Path(__file__).parent / "right"
COMPARED = [name for name in names() if get(name).schedule(get(name).demo_setup) is not None]
NOT_COMPARED = ("all_gather_v", "two_way_ring", "segmented_ring", "ring_attention")


def runs_of(name, pool):
    """A run of the demo case by each right answer, one after the other."""
    for path in sorted((RIGHT / name).glob("*.py")):
        runner = CaseRunner(get(name), read_source(path, name), pool, secret=1, wall_s=60)
        run = runner.run(runner.exercise.demo_setup)
        if run.failure is None:
            yield run


@pytest.mark.parametrize("name", COMPARED)
def test_a_right_answer_sends_what_the_right_schedule_sends(name, pool):
    """Both in bytes of the case, rank by rank: else the schedule is not that of this exercise."""
    seen = []
    for run in runs_of(name, pool):
        trace = provenance.trace_with_chunks(run)
        (own, right), _ = prepared([trace, get(name).schedule(run.setup)])
        assert own.nbytes == right.nbytes == get(name).vector_nbytes(run.setup, run.args[0])
        seen.append(own.bytes_sent())
        if sorted(own.bytes_sent()) == sorted(right.bytes_sent()):
            return
    pytest.fail(f"no right answer sends {right.bytes_sent()}: {seen}")


@pytest.mark.parametrize("name", NOT_COMPARED)
def test_no_schedule_is_shown_where_it_does_other_work_than_the_exercise(name):
    assert name not in COMPARED
    assert get(name).vector_nbytes(get(name).demo_setup, ()) is None


def test_a_computing_rank_names_the_block_and_the_pass_and_the_line(pool):
    run = next(runs_of("fsdp_step", pool))
    trace = run.outcome.trace.with_events(computed.with_blocks(run.outcome.trace.events, run))
    works = [bar for bar in animate(trace).bars if bar.op == "compute" and bar.rank == 1]
    blocks = len(works) // 2
    turns = [(b, "forward") for b in range(blocks)] + [(b, "backward") for b in reversed(range(blocks))]
    assert [bar.label for bar in works] == [f"block {block} {way}" for block, way in turns]
    assert all(bar.line for bar in works)
    assert not any(bar.op == "wait" and not bar.own for bar in animate(trace).bars), "nothing is lost in a right answer"

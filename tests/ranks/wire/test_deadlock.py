"""A run that can't go on is known at once, with the circle of waits and every rank's line."""

import xml.etree.ElementTree as ET

import pytest
import torch
import torch.distributed as dist
from allranks.ranks.wire import FailureKind
from allranks.ranks.wire.failures import DeadlockCause

FOR_EVER = {"wall_s": 3600, "cpu_s": 3600}  # nothing below may need a limit to be found


def test_the_classic_ring_that_sends_first(pool, program):
    outcome = pool.run(
        program("""
        t = torch.zeros(4)
        dist.send(t, (r + 1) % p)
        dist.recv(t, (r - 1) % p)
        """),
        4,
        **FOR_EVER,
    )
    results, trace, deadlock = outcome
    assert deadlock is outcome.failure
    assert deadlock.kind is FailureKind.DEADLOCK
    assert deadlock.cycle == (0, 1, 2, 3)
    assert [(w.rank, w.op, w.peer, w.line) for w in deadlock.waits] == [(r, "send", (r + 1) % 4, 5) for r in range(4)]
    assert deadlock.waits[2].text == "dist.send(t, (r + 1) % p)"
    assert (deadlock.rank, deadlock.line, deadlock.op) == (0, 5, "send")
    assert "rank 3 waits for rank 0 in send, line 5" in deadlock.message
    assert "isend" in deadlock.message
    assert results == [None] * 4
    assert [e.op for e in trace] == ["send"] * 4
    assert all(not m.delivered for m in trace.messages())


def test_everybody_receives_first(pool, program):
    outcome = pool.run(
        program("t = torch.zeros(1); dist.recv(t, (r - 1) % p); dist.send(t, (r + 1) % p)"), 3, **FOR_EVER
    )
    assert outcome.deadlock.cycle == (0, 2, 1)
    assert outcome.failure.cause is DeadlockCause.RECEIVES_FIRST
    assert "None of them has sent" in outcome.failure.message


@pytest.mark.parametrize("delivery", ["rendezvous", "buffered", "shuffled"])
def test_receive_first_deadlocks_whatever_the_delivery(pool, program, delivery):
    body = program("t = torch.zeros(1); dist.recv(t, 1 - r); dist.send(t, 1 - r)")
    assert pool.run(body, 2, delivery=delivery, **FOR_EVER).deadlock is not None


def test_the_cycle_is_named_and_not_its_victims(pool, program):
    """Ranks 2 and 3 wait for each other, 0 and 1 only for them."""
    outcome = pool.run(
        program("""
        t = torch.zeros(1)
        if r < 2:
            dist.recv(t, 2)
        elif r == 2:
            dist.recv(t, 3)
        else:
            dist.recv(t, 2)
        """),
        4,
        **FOR_EVER,
    )
    assert outcome.failure.cycle == (2, 3)
    assert outcome.failure.rank == 2
    assert outcome.failure.line == 8


def test_a_cycle_is_the_cause_and_not_those_who_wait_for_it_in_a_collective(pool, program):
    """Ranks 0 and 1 wait for each other; 2 and 3 for all four."""
    outcome = pool.run(
        program("""
        t = torch.zeros(1)
        if r < 2:
            dist.recv(t, 1 - r)
        dist.all_reduce(t)
        """),
        4,
        **FOR_EVER,
    )
    assert outcome.failure.kind is FailureKind.DEADLOCK
    assert (outcome.failure.cycle, outcome.failure.line) == ((0, 1), 6)
    assert "rank 0 waits for rank 1 in recv, line 6" in outcome.failure.message


def test_a_wait_names_its_own_line_and_the_operation(pool, program):
    outcome = pool.run(
        program("""
        t = torch.zeros(1)
        w = dist.isend(t, 1 - r)
        w.wait()
        dist.recv(t, 1 - r)
        """),
        2,
        **FOR_EVER,
    )
    assert outcome.failure.cycle == (0, 1)
    assert outcome.failure.waits[0].op == "wait() of isend"
    assert outcome.failure.line == 6
    assert outcome.failure.waits[0].text == "w.wait()"


def test_polling_for_ever_is_a_deadlock(pool, program):
    body = program("w = dist.irecv(torch.zeros(1), 1 - r)\nwhile not w.is_completed():\n    pass")
    assert pool.run(body, 2, **FOR_EVER).deadlock.cycle == (0, 1)


def test_tags_that_do_not_meet(pool, program):
    body = program("t = torch.zeros(1)\ndist.send(t, 1, tag=7) if r == 0 else dist.recv(t, 0, tag=8)")
    failure = pool.run(body, 2, **FOR_EVER).failure
    assert failure.kind is FailureKind.DEADLOCK
    assert "tag 7" in failure.message
    assert "tag 8" in failure.message


def test_a_rank_that_left_early(pool, program):
    failure = pool.run(program("if r:\n    dist.recv(torch.zeros(1), 0)"), 2, **FOR_EVER).failure
    assert failure.kind is FailureKind.LEFT_EARLY
    assert (failure.rank, failure.line, failure.cycle) == (1, 5, ())
    assert "rank 0 has returned and never sends it" in failure.message
    failure = pool.run(program("if r:\n    dist.send(torch.zeros(1), 0)"), 2, **FOR_EVER).failure
    assert "never receives it" in failure.message
    failure = pool.run(program("if r:\n    dist.recv(torch.zeros(1))"), 2, **FOR_EVER).failure
    assert failure.kind is FailureKind.LEFT_EARLY


def test_a_collective_that_only_some_call(pool, program):
    failure = pool.run(program("if r != 1:\n    dist.all_reduce(torch.zeros(1))"), 3, **FOR_EVER).failure
    assert failure.kind is FailureKind.DESYNC
    assert "Ranks 0 and 2 wait in all_reduce, line 5" in failure.message
    assert "rank 1 has returned without calling it" in failure.message


def test_different_collectives(pool, program):
    failure = pool.run(
        program("t = torch.zeros(1)\ndist.broadcast(t, 0) if r == 2 else dist.all_reduce(t)"), 3, **FOR_EVER
    ).failure
    assert failure.kind is FailureKind.DESYNC
    assert failure.rank == 2
    assert "ranks 0 and 1 called all_reduce(SUM)" in failure.message
    assert "rank 2 called broadcast with root 0" in failure.message


def test_a_collective_against_a_message(pool, program):
    body = program("t = torch.zeros(1)\ndist.barrier() if r == 0 else dist.recv(t, 0)")
    failure = pool.run(body, 2, **FOR_EVER).failure
    assert failure.kind is FailureKind.DESYNC
    assert "rank 1 is in recv, line 5" in failure.message


def test_different_roots_and_reductions(pool, program):
    failure = pool.run(program("dist.broadcast(torch.zeros(1), r)"), 2, **FOR_EVER).failure
    assert failure.kind is FailureKind.DESYNC
    body = program("dist.all_reduce(torch.zeros(1), dist.ReduceOp.MAX if r else dist.ReduceOp.SUM)")
    assert "all_reduce(MAX)" in pool.run(body, 2, **FOR_EVER).failure.message


def test_a_subgroup_of_which_one_is_missing(pool, program):
    body = program("g = dist.new_group([0, 2])\nif r == 0:\n    dist.all_reduce(torch.zeros(1), group=g)")
    failure = pool.run(body, 3, **FOR_EVER).failure
    assert failure.kind is FailureKind.DESYNC
    assert failure.waits[0].peers == (2,)


def test_lines_of_a_function_in_a_file(pool):
    def ring(t):
        helper(t)

    def helper(t):
        dist.send(t, (dist.get_rank() + 1) % 2)

    failure = pool.run(ring, 2, (torch.zeros(1),), **FOR_EVER).failure
    assert failure.source_line == "dist.send(t, (dist.get_rank() + 1) % 2)"
    assert failure.waits[1].text == failure.source_line


def test_the_verdict_is_the_same_every_time(pool, program):
    body = program("dist.send(torch.zeros(1), (r + 1) % p) if r != 3 else dist.recv(torch.zeros(1), 5)")
    assert len({pool.run(body, 8, **FOR_EVER).failure.text() for _ in range(5)}) == 1


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_the_drawing_is_a_legible_svg(pool, program, ranks):
    failure = pool.run(program("w = dist.isend(torch.zeros(1), (r + 1) % p); w.wait()"), ranks, **FOR_EVER).failure
    svg = ET.fromstring(failure.svg())
    texts = [t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert [t for t in texts if t.isdigit()] == [str(r) for r in range(ranks)]
    assert sum("waits for rank" in t and "line " in t for t in texts) == ranks  # in one line each
    assert svg.get("stroke") == "currentColor"
    width, height = float(svg.get("width")), float(svg.get("height"))
    for node in svg.iter("{http://www.w3.org/2000/svg}circle"):
        assert 17 <= float(node.get("cx")) <= width - 17
        assert 17 <= float(node.get("cy")) <= height - 17
    bundle = failure._repr_mimebundle_()
    assert "<svg" in bundle["text/html"]
    assert failure.message in bundle["text/plain"]


def test_a_picture_of_a_deadlock_comes_before_the_way_out_which_is_folded(pool, program):
    sends_first = program("t = torch.zeros(1); dist.send(t, (r + 1) % p); dist.recv(t, (r - 1) % p)")
    failure = pool.run(sends_first, 4, **FOR_EVER).failure
    page = failure._repr_mimebundle_()["text/html"]
    seen, _, folded = page.partition("<details><summary>A way out</summary>")
    assert "isend" not in seen and "isend" in folded and "rank 0 waits for rank 1" in seen
    assert failure.advice in failure.text()


def test_a_rank_that_has_returned_is_drawn_too(pool, program):
    failure = pool.run(program("dist.recv(torch.zeros(1), 1) if r == 0 else None"), 3).failure
    svg = ET.fromstring(failure.svg())
    texts = [t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert [t for t in texts if t.isdigit()] == ["0", "1", "2"]
    assert any("rank 1 has returned" in t for t in texts)


def test_a_failure_without_waits_draws_nothing(pool, program):
    outcome = pool.run(program("raise ValueError('<b>&')"), 1)
    assert outcome.failure.svg() == ""
    assert "&lt;b&gt;&amp;" in outcome.failure._repr_mimebundle_()["text/html"]

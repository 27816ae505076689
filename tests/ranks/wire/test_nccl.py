"""NCCL's rules on the wire: what a rank refuses, one queue for each rank, tags ignored."""

import pytest
import torch
from allranks.ranks.nccl_rules import Rule
from allranks.ranks.wire import FailureKind, Rules
from allranks.ranks.wire.failures import DeadlockCause
from allranks.ranks.wire.pool import Ranks

NCCL = Rules(nccl=True, contiguous=True)
PLAIN = Rules(contiguous=True)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("dist.all_reduce(torch.Tensor(2))", Rule.HOST_TENSOR),
        ("dist.all_reduce(torch.ones(2).cpu())", Rule.HOST_TENSOR),
        ("torch.ones(2) + torch.ones(2, device='cpu')", Rule.MIXED_DEVICES),
        ("torch.ones(2).numpy()", Rule.NUMPY),
        ("torch.randn(2, generator=torch.Generator())", Rule.GENERATOR),
        ("torch.ones(4).long() @ torch.ones(4).long()", Rule.NO_KERNEL),
        ("dist.all_reduce(torch.ones(4)[::2])", Rule.GAPS),
        ("dist.all_reduce(torch.ones(4, dtype=torch.int16))", Rule.DTYPE),
        ("dist.all_reduce(torch.ones(4, dtype=torch.int32), op=dist.ReduceOp.BOR)", Rule.REDUCE_OP),
        ("dist.recv(torch.ones(1))", Rule.ANY_SOURCE),
        ("dist.isend(torch.ones(1), r).wait()", Rule.SELF_MESSAGE),
        ("x = torch.ones(2); w = dist.all_reduce(x, async_op=True); x + 1; w.wait()", Rule.IN_FLIGHT),
        ("x = torch.ones(2); w = dist.all_reduce(x, async_op=True); x += 1; w.wait()", Rule.IN_FLIGHT),
        ("x = torch.ones(2); w = dist.all_reduce(x, async_op=True); x.tolist(); w.wait()", Rule.IN_FLIGHT),
    ],
)
def test_what_nccl_refuses_is_refused_at_its_line(pool, program, body, rule):
    failure = pool.run(program(body), 2, rules=NCCL).failure
    assert (failure.kind, failure.rule, failure.rank, failure.line) == (FailureKind.NCCL_RULE, rule, 0, 4)
    without = pool.run(program(body), 2, rules=PLAIN, wall_s=5).failure
    assert without is None or without.kind is not FailureKind.NCCL_RULE


def test_an_unbatched_circle_is_the_deadlock_that_it_is_on_nccl(pool, program):
    body = program("""
    mine, arrived = torch.full((1,), float(r)), torch.empty(1)
    sending = dist.isend(mine, (r + 1) % p)
    dist.recv(arrived, (r - 1) % p)
    sending.wait()
    return int(arrived)
    """)
    failure = pool.run(body, 3, rules=NCCL, wall_s=3600, cpu_s=3600).failure
    assert (failure.kind, failure.cause) == (FailureKind.DEADLOCK, DeadlockCause.NOT_IN_A_BATCH)
    assert failure.cycle == (0, 1, 2)
    assert [(w.op, w.peer, w.line, w.held_by, w.held_line) for w in failure.waits] == [
        ("recv", (r + 1) % 3, 6, "isend", 5) for r in range(3)
    ]
    assert "rank 2 waits for rank 0 in recv, line 6, held up by its isend, line 5" in failure.message
    assert pool.run(body, 3, rules=PLAIN).results == [2, 0, 1]


def test_a_batch_runs_at_the_same_time_and_has_one_handle(pool, program):
    body = program("""
    mine, arrived = torch.full((1,), float(r)), torch.empty(1)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, mine, (r + 1) % p), dist.P2POp(dist.irecv, arrived, (r - 1) % p)]
    )
    for work in works:
        work.wait()
    return int(arrived), len(works)
    """)
    outcome = pool.run(body, 3, rules=NCCL)
    assert outcome.results == [(2, 1), (0, 1), (1, 1)]
    assert {entry.op for entry in outcome.log} == {"batch_isend_irecv"}
    assert pool.run(body, 3, rules=PLAIN).results == [(2, 2), (0, 2), (1, 2)]


def test_a_batch_may_send_to_its_own_rank(pool, program):
    body = program("""
    a, b = torch.full((1,), 7.0), torch.empty(1)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, a, r), dist.P2POp(dist.irecv, b, r)]):
        work.wait()
    return int(b)
    """)
    assert pool.run(body, 1, rules=NCCL).results == [7]


def test_tags_do_not_sort_messages(pool, program):
    body = program("""
    a, b = torch.ones(1), torch.ones(1)
    if r == 0:
        dist.send(a, 1, tag=1)
        dist.send(b, 1, tag=2)
    else:
        works = [dist.irecv(b, 0, tag=2), dist.irecv(a, 0, tag=1)]
        for work in works:
            work.wait()
    """)
    failure = pool.run(body, 2, rules=NCCL).failure
    assert (failure.rule, failure.rank, failure.line) == (Rule.TAG_ORDER, 1, 9)
    assert "Rank 1, line 9: recv with tag 2 meets a message that rank 0 sent with tag 1" in failure.message


def test_groups_share_the_queue(pool, program):
    body = program("""
    groups = [dist.new_group(list(range(p))) for _ in range(2)]
    tensors = [torch.ones(1), torch.ones(1)]
    order = [0, 1] if r else [1, 0]
    works = [dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in order]
    for work in works:
        work.wait()
    """)
    failure = pool.run(body, 2, rules=NCCL).failure
    assert (failure.cause, failure.cycle, failure.line) == (DeadlockCause.GROUP_ORDER, (0, 1), 9)
    assert pool.run(body, 2, rules=PLAIN).failure is None


def test_messages_and_collectives_share_the_queue(pool, program):
    body = program("""
    a, b = torch.ones(1), torch.ones(1)
    if r == 0:
        sending = dist.isend(a, 1)
        dist.all_reduce(b)
        sending.wait()
    else:
        reducing = dist.all_reduce(b, async_op=True)
        dist.recv(a, 0)
        reducing.wait()
    """)
    assert pool.run(body, 2, rules=NCCL).failure.cause is DeadlockCause.QUEUE_ORDER
    assert pool.run(body, 2, rules=PLAIN).failure is None


def test_sends_first_are_told_of_the_batch(pool, program):
    body = program("t = torch.ones(1); dist.send(t, 1 - r); dist.recv(t, 1 - r)")
    failure = pool.run(body, 2, rules=NCCL).failure
    assert failure.cause is DeadlockCause.SENDS_FIRST
    assert "dist.batch_isend_irecv" in failure.advice
    assert "start one of the two with isend" not in failure.advice


def test_the_queue_orders_operations_on_the_same_memory(pool, program):
    """A chain may send on what an earlier receive fills, without a wait between them."""
    body = program("""
    x = torch.full((1,), 5.0 if r == 0 else 0.0)
    receiving = dist.irecv(x, r - 1) if r else None
    if r + 1 < p:
        dist.send(x, r + 1)
    if receiving:
        receiving.wait()
    return int(x)
    """)
    assert pool.run(body, 3, rules=NCCL).results == [5, 5, 5]


def test_a_result_may_be_read_once_its_operation_is_complete(pool, program):
    body = program("""
    x = torch.ones(1)
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        pass
    torch.cuda.synchronize()
    return int(x)
    """)
    assert pool.run(body, 2, rules=NCCL).results == [2, 2]


def test_synchronize_waits_for_all_that_is_under_way(pool, program):
    body = program("""
    x = torch.ones(1)
    work = dist.all_reduce(x, async_op=True)
    torch.cuda.synchronize()
    return int(x), work.is_completed()
    """)
    assert pool.run(body, 2, rules=NCCL).results == [(2, True), (2, True)]


def test_a_wait_that_is_forgotten_is_named_as_without_the_rules(pool, program):
    body = program("x = torch.ones(1); dist.all_reduce(x, async_op=True); return x")
    assert pool.run(body, 2, rules=NCCL).failure.kind is FailureKind.NEVER_WAITED


def test_arguments_are_on_the_device_and_the_next_run_has_no_rules(pool, program):
    body = program("dist.all_reduce(args[0]); return args[0].tolist(), str(args[0].device), torch.cuda.is_available()")
    assert pool.run(body, 2, (torch.ones(1),), rules=NCCL).results == [([2.0], "cpu:0", True)] * 2
    assert pool.run(body, 2, (torch.ones(1),)).results == [([2.0], "cpu", torch.cuda.is_available())] * 2


def test_many_operations_in_the_queue(pool, program):
    body = program("""
    x = torch.ones(1)
    move = dist.isend if r == 0 else dist.irecv
    works = [move(x.clone() if r == 0 else torch.empty(1), 1 - r) for _ in range(300)]
    for work in works:
        work.wait()
    return len(works)
    """)
    assert pool.run(body, 2, rules=NCCL, cpu_s=60, wall_s=60).results == [300, 300]


def test_only_a_run_under_the_rules_may_report_one(program):
    """A text of the program's own must not reach a verdict in this way."""
    forged = program("""
    import sys
    from allranks.ranks.wire.endpoint import _endpoint
    _endpoint.get().halt("nccl rule", "a secret", (None, None), rule="numpy")
    """)
    with Ranks(1) as ranks:
        failure = ranks.run(forged, 1, wall_s=10).failure
        assert failure.kind is FailureKind.KILLED
        assert "a secret" not in failure.message

"""Every collective of torch.distributed against local arithmetic, on the world and on a sub-group."""

import pytest
import torch
import torch.distributed as dist
from allranks.ranks.wire import FailureKind, Rules

P = 4


def data(r, n=6, dtype=torch.float32):
    return (torch.arange(n) + 10 * r + 1).to(dtype)


ALL = [data(r) for r in range(P)]
TOTAL = torch.stack(ALL).sum(0)


def check(pool, program, body, expected, ranks=P):
    prelude = "data = lambda r, n=6: torch.arange(n).float() + 10 * r + 1\nx = data(r)\n"
    outcome = pool.run(program(prelude + body), ranks)
    assert outcome.failure is None, outcome.failure.text()
    for r in range(ranks):
        got = outcome.results[r]
        want = expected(r)
        assert (got is None) == (want is None)
        assert want is None or torch.equal(torch.as_tensor(got), want), (r, got, want)
    return outcome


@pytest.mark.parametrize("op", ["SUM", "AVG", "MAX"])
def test_a_long_tensor_is_reduced_to_its_end(pool, program, op):
    """The wire reduces slice by slice."""
    n = 3 * 16_384 + 5
    each = torch.stack([torch.arange(n).float() + 10 * r + 1 for r in range(P)])
    wanted = {"SUM": each.sum(0), "AVG": each.mean(0), "MAX": each.amax(0)}[op]
    check(pool, program, f"x = data(r, {n})\ndist.all_reduce(x, dist.ReduceOp.{op}); return x", lambda r: wanted)


CASES = {
    "broadcast": ("dist.broadcast(x, 2); return x", lambda r: ALL[2]),
    "all_reduce": ("dist.all_reduce(x); return x", lambda r: TOTAL),
    "all_reduce max": ("dist.all_reduce(x, dist.ReduceOp.MAX); return x", lambda r: ALL[3]),
    "all_reduce min": ("dist.all_reduce(x, dist.ReduceOp.MIN); return x", lambda r: ALL[0]),
    "all_reduce avg": ("dist.all_reduce(x, dist.ReduceOp.AVG); return x", lambda r: TOTAL / P),
    "all_reduce product": ("dist.all_reduce(x, dist.ReduceOp.PRODUCT); return x", lambda r: torch.stack(ALL).prod(0)),
    "all_reduce coalesced": (
        "y = x + 1\ndist.all_reduce_coalesced([x, y]); return torch.cat([x, y])",
        lambda r: torch.cat([TOTAL, TOTAL + P]),
    ),
    "reduce": ("dist.reduce(x, 1); return x if r == 1 else None", lambda r: TOTAL if r == 1 else None),
    "gather": (
        "out = [torch.empty(6) for _ in range(p)] if r == 3 else None\ndist.gather(x, out, 3)\n"
        "return torch.stack(out) if r == 3 else None",
        lambda r: torch.stack(ALL) if r == 3 else None,
    ),
    "scatter": (
        "out = torch.empty(6)\ndist.scatter(out, [data(i) * 2 for i in range(p)] if r == 1 else None, 1); return out",
        lambda r: ALL[r] * 2,
    ),
    "all_gather": (
        "out = [torch.empty(6) for _ in range(p)]\ndist.all_gather(out, x); return torch.stack(out)",
        lambda r: torch.stack(ALL),
    ),
    "all_gather_into_tensor": (
        "out = torch.empty(24)\ndist.all_gather_into_tensor(out, x); return out",
        lambda r: torch.cat(ALL),
    ),
    "reduce_scatter": (
        "out = torch.empty(2)\ndist.reduce_scatter(out, list(data(r, 8).split(2))); return out",
        lambda r: torch.stack([data(i, 8) for i in range(P)]).sum(0).split(2)[r],
    ),
    "reduce_scatter_tensor": (
        "out = torch.empty(2)\ndist.reduce_scatter_tensor(out, data(r, 8)); return out",
        lambda r: torch.stack([data(i, 8) for i in range(P)]).sum(0).split(2)[r],
    ),
    "all_to_all": (
        "out = [torch.empty(i + 1) for i in range(p)]\n"
        "dist.all_to_all(out, [torch.full((r + 1,), 10.0 * r + i) for i in range(p)]); return torch.cat(out)",
        lambda r: torch.cat([torch.full((i + 1,), 10.0 * i + r) for i in range(P)]),
    ),
    "all_to_all_single": (
        "out = torch.empty(p, 3)\ndist.all_to_all_single(out, torch.arange(p * 3.0).view(p, 3) + 100 * r); return out",
        lambda r: torch.stack([torch.arange(3.0) + 3 * r + 100 * i for i in range(P)]),
    ),
    "all_to_all_single uneven": (
        "out = torch.empty(sum(range(p)) and r * p)\n"
        "dist.all_to_all_single(out, torch.arange(float(sum(range(p)))) + 100 * r, [r] * p, list(range(p))); return out",
        lambda r: torch.cat([torch.arange(r) + r * (r - 1) // 2 + 100.0 * i for i in range(P)]),
    ),
    "barrier": ("dist.barrier(); return x", lambda r: ALL[r]),
    "async": ("w = dist.all_reduce(x, async_op=True); w.wait(); return x", lambda r: TOTAL),
    "non-contiguous": (
        "y = torch.stack([x, -x]).t()\ndist.all_reduce(y); return y.contiguous()",
        lambda r: torch.stack([TOTAL, -TOTAL]).t(),
    ),
    "zero elements": ("y = torch.empty(0, 3)\ndist.all_reduce(y); return y", lambda r: torch.empty(0, 3)),
    "coalescing manager": (
        "from torch.distributed.distributed_c10d import _coalescing_manager as many\ny = x * 2\n"
        "with many():\n    dist.all_reduce(x); dist.all_reduce(y)\nreturn torch.cat([x, y])",
        lambda r: torch.cat([TOTAL, 2 * TOTAL]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_collective(pool, program, name):
    body, expected = CASES[name]
    check(pool, program, body, expected)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.complex64, torch.bool]
)
def test_all_reduce_of_every_dtype(pool, dtype):
    def reduce(t):
        dist.all_reduce(t)
        return t

    inputs = [torch.randint(0, 9, (7,)).to(dtype) for _ in range(3)]
    expected = inputs[0] + inputs[1] + inputs[2]
    outcome = pool.run(reduce, 3, per_rank=[(t,) for t in inputs])
    assert outcome.failure is None, outcome.failure.text()
    for result in outcome.results:
        assert torch.equal(result, expected)
    assert outcome.final_args[1][0].dtype == dtype


def test_reductions_go_in_rank_order(pool):
    """Floating-point sums depend on the order; the wire's is ((r0 + r1) + r2), in every run."""

    def reduce(t):
        dist.all_reduce(t)
        return t

    inputs = [torch.tensor([x]) for x in (1e8, 1.0, -1e8)]
    for _ in range(3):
        outcome = pool.run(reduce, 3, per_rank=[(t,) for t in inputs])
        assert outcome.results[2].item() == ((inputs[0] + inputs[1]) + inputs[2]).item() == 0.0


def test_large_all_reduce_by_shared_memory(pool):
    def reduce(t):
        dist.all_reduce(t)
        return float(t[0]), float(t[-1]), float(t.double().sum())

    outcome = pool.run(reduce, 3, per_rank=[(torch.full((200_001,), float(r)),) for r in (1, 2, 3)])
    assert outcome.failure is None
    assert outcome.results == [(6.0, 6.0, 6.0 * 200_001)] * 3


@pytest.mark.parametrize(
    ("groups", "rank", "words"),
    [
        ("[[r]]", 1, "Rank 1, line 5: it makes a group of rank 1, but rank 0 makes one of rank 0."),
        ("[[0, 1]] if r < 2 else [[2, 3]]", 2, "a group of ranks 2 and 3, but rank 0 makes one of ranks 0 and 1."),
        ("[[0, 1], [2, 3]] if r < 3 else [[2, 3], [0, 1]]", 3, "a group of ranks 2 and 3, but rank 0 makes one of"),
    ],
)
def test_every_rank_makes_every_group_in_one_order(pool, program, groups, rank, words):
    """Real gloo mixes the groups up, and hangs or adds wrong numbers."""
    body = f"for members in {groups}:\n    group = dist.new_group(members)\ndist.barrier()"
    failure = pool.run(program(body), 4).failure
    assert (failure.kind, failure.rank, failure.line) == (FailureKind.DESYNC, rank, 5)
    assert words in failure.message
    assert "every rank calls it for every group, in one order." in failure.message


def test_groups_that_only_their_members_make(pool, program):
    body = """
    mine = dist.new_group([r // 2 * 2, r // 2 * 2 + 1], use_local_synchronization=True)
    x = torch.tensor([float(r)])
    dist.all_reduce(x, group=mine)
    return float(x)
    """
    outcome = pool.run(program(body), 4)
    assert outcome.failure is None, outcome.failure.text()
    assert outcome.results == [1, 1, 5, 5]


def test_subgroups(pool, program):
    body = """
    even, odd = dist.new_group([0, 2]), dist.new_group([1, 3])
    mine = even if r % 2 == 0 else odd
    x = torch.tensor([float(r)])
    dist.all_reduce(x, group=mine)
    t = torch.zeros(1)
    me, n = dist.get_rank(mine), dist.get_world_size(mine)
    w = dist.isend(torch.tensor([float(r)]), group_dst=(me + 1) % n, group=mine)
    dist.recv(t, group_src=(me - 1) % n, group=mine)
    w.wait()
    dist.broadcast(x, src=2 if r % 2 == 0 else 1, group=mine)
    return [float(x), float(t), me, n]
    """
    outcome = pool.run(program(body), 4)
    assert outcome.failure is None, outcome.failure.text()
    assert outcome.results == [[2.0, 2.0, 0, 2], [4.0, 3.0, 0, 2], [2.0, 0.0, 1, 2], [4.0, 1.0, 1, 2]]
    assert {e.group for e in outcome.log} == {(0, 2), (1, 3)}
    assert {e.peer for e in outcome.log if e.rank == 0 and e.kind == "send"} == {2}


def test_bytes_of_collectives(pool, program):
    outcome = check(pool, program, *CASES["all_gather"])
    assert [(e.nbytes, e.received_nbytes) for e in outcome.log] == [(24, 96)] * P
    assert {e.match for e in outcome.log} == {0}
    outcome = check(pool, program, *CASES["all_to_all_single uneven"])
    assert outcome.log[0].splits == (0, 4, 8, 12)


def test_object_variants_are_refused(pool, program):
    for call in (
        "dist.all_gather_object([None] * p, {'a': 1})",
        "dist.broadcast_object_list(['x'], 0)",
        "dist.send_object_list(['x'], 1) if r == 0 else dist.recv_object_list(['y'], 0)",
    ):
        outcome = pool.run(program(call), 2)
        assert outcome.failure.kind is FailureKind.FORBIDDEN_OP
        assert "pickles" in outcome.failure.message
        assert outcome.failure.line == 4


def test_autograd_and_ddp_work(pool, program):
    body = """
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp(torch.full((1, 2), float(r))).sum().backward()
    return model.weight.grad
    """
    outcome = pool.run(program(body), 2)
    assert outcome.failure is None, outcome.failure.text()
    assert outcome.results[0].tolist() == outcome.results[1].tolist() == [[0.5, 0.5]]


def test_a_hook_of_ddp_may_hand_futures_to_torch(pool, program):
    body = """
    def hook(state, bucket):
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda future: future.value()[0] * 10)

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp.register_comm_hook(None, hook)
    ddp(torch.full((1, 2), float(r))).sum().backward()
    return model.weight.grad
    """
    outcome = pool.run(program(body), 2)
    assert outcome.failure is None, outcome.failure.text()
    assert [r.tolist() for r in outcome.results] == [[[10.0, 10.0]]] * 2


def test_a_future_waits_when_it_is_asked_and_not_before(pool, program):
    body = """
    t, u = torch.full((2,), float(r)), torch.ones(1)
    first = dist.all_reduce(t, async_op=True).get_future()
    second = dist.all_reduce(u, async_op=True).get_future().then(lambda future: future.value()[0].item() / p)
    early = bool(t.isnan().all()), bool(u.isnan().all())
    whole = torch.futures.wait_all([first, second])
    assert torch.futures.collect_all([first]).wait()[0].value()[0] is t
    wrong = first.then(lambda future: 1 / 0)
    try:
        wrong.wait()
    except ZeroDivisionError:
        return torch.tensor([*early, *t.tolist(), whole[1], wrong.done()])
    """
    outcome = pool.run(program(body), 2)
    assert outcome.failure is None, outcome.failure.text()
    assert [r.tolist() for r in outcome.results] == [[1, 1, 1, 1, 1, 1]] * 2


def test_functional_collectives_and_dtensor_work_and_have_the_names_of_collectives(pool, program):
    body = """
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    rows = functional.wait_tensor(functional.all_gather_tensor(torch.full((2,), float(r)), 0, dist.group.WORLD))
    mesh = init_device_mesh("cpu", (2,))
    sharded = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
    return rows, sharded.redistribute(mesh, [Replicate()]).to_local(), (2 * sharded).sum().full_tensor()
    """
    outcome = pool.run(program(body), 2)
    assert outcome.failure is None, outcome.failure.text()
    for rows, whole, total in outcome.results:
        assert (rows.tolist(), whole.tolist(), total.item()) == ([0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0], 12.0)
    mine = [e.op for e in outcome.log if e.rank == 0]
    assert mine == ["all_gather_into_tensor", "scatter", "all_gather_into_tensor", "all_reduce"]


def test_what_gloo_refuses_is_refused_where_only_contiguous_tensors_are_taken(pool):
    def uneven():
        rank = dist.get_rank()
        dist.all_to_all([torch.zeros(1 + rank) for _ in range(2)], [torch.ones(1 + i) for i in range(2)])

    def nothing_from_anybody():
        if dist.get_rank():
            dist.send(torch.empty(0), 0)
        else:
            dist.recv(torch.empty(0), None)

    strict = Rules(contiguous=True)
    assert pool.run(uneven, ranks=2).failure is None and pool.run(nothing_from_anybody, ranks=2).failure is None
    assert "lists of tensors of one size on gloo; these have 1 to 2 elements" in str(
        pool.run(uneven, ranks=2, rules=strict).failure
    )
    assert "gloo can't receive a tensor without elements" in str(
        pool.run(nothing_from_anybody, ranks=2, rules=strict).failure
    )


@pytest.mark.parametrize("called", ["all_gather_single", "all_gather_into_tensor"])
def test_words_have_the_name_that_the_student_wrote_and_rules_the_one_that_they_know(pool, program, called):
    called = getattr(dist, called, dist.all_gather_into_tensor).__name__  # torch before 2.13 has the older name only
    body = f"x = torch.ones(2)\ny = torch.empty(2 * p)\ndist.{called}(y, x)\n"
    outcome = pool.run(program(body), 2)
    assert {(e.op, e.called) for e in outcome.log} == {("all_gather_into_tensor", called)}
    assert {(e.op, e.label) for e in outcome.trace if e.op != "wait"} == {("all_gather_into_tensor", called)}
    failed = pool.run(program(f"{body}if r: dist.{called}(y, x)"), 2).failure
    assert f"wait in {called}" in failed.message or f"waits in {called}" in failed.message
    refused = pool.run(program(body), 2, rules=Rules(allow={"all_reduce"})).failure
    assert (refused.op, refused.called) == ("all_gather_into_tensor", called)
    assert f"called {called}, which is not allowed" in refused.message


def test_the_trace_has_what_each_rank_put_in_and_got_and_which_calls_waited(pool, program):
    body = """x = torch.ones(2)
y = torch.empty(2 * p)
dist.all_gather_into_tensor(y, x)
work = dist.all_reduce(x, async_op=True)
z = torch.ones(1)
dist.broadcast(z, 1)
work.wait()
"""
    trace = pool.run(program(body), 3).trace
    calls = {(e.rank, e.op): (e.nbytes, e.received_nbytes, e.blocking) for e in trace if e.op != "wait"}
    assert calls == {
        **{(r, "all_gather_into_tensor"): (8, 24, True) for r in range(3)},
        **{(r, "all_reduce"): (8, 8, False) for r in range(3)},
        **{(r, "broadcast"): (4 * (r == 1), 4 * (r != 1), True) for r in range(3)},
    }
    numbers = {e.op: (e.group, e.seq) for e in trace if e.op != "wait"}
    assert sorted(numbers.values()) == [("0", 0), ("0", 1), ("0", 2)]
    assert {(e.group, e.seq) for e in trace if e.op == "wait"} <= set(numbers.values())

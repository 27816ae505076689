"""`World(rules="nccl")`: what NCCL refuses is refused, what hangs there hangs, and what is right there is right here."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist
from allranks import World, WorldError
from allranks.ranks.world import RanksError, RanksStuck, nccl_group
from allranks.ranks.world.nccl_queue import Queue, Ticket

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
P = 4


@pytest.fixture(scope="module")
def world():
    with World(ranks=P, rules="nccl") as started:
        yield started


# ten faults that gloo lets pass or explains in another way


def cpu_tensor():
    dist.all_reduce(torch.ones(3, device="cpu"))


def mixed_devices():
    x = torch.ones(3)
    dist.all_reduce(x)
    return (x + torch.ones(3, device="cpu")).tolist()


def into_numpy():
    x = torch.ones(3)
    dist.all_reduce(x)
    return x.numpy()


def gap():
    dist.all_reduce(torch.ones(4, 4)[:, 0])


def int16():
    dist.all_reduce(torch.ones(4, dtype=torch.int16))


def any_source():
    if dist.get_rank() == 0:
        dist.recv(torch.empty(4))
    elif dist.get_rank() == 1:
        dist.send(torch.ones(4), 0)


def unbatched_circle():
    rank, p = dist.get_rank(), dist.get_world_size()
    arrived = torch.empty(4)
    work = dist.isend(torch.full((4,), float(rank)), (rank + 1) % p)
    dist.recv(arrived, (rank - 1) % p)
    work.wait()
    return arrived.tolist()


def too_early():
    x = torch.ones(4)
    work = dist.all_reduce(x, async_op=True)
    seen = x.sum().item()
    work.wait()
    return seen


def tag_order():
    a, b = torch.zeros(2), torch.ones(2)
    if dist.get_rank() == 0:
        dist.send(a, 1, tag=1)
        dist.send(b, 1, tag=2)
    elif dist.get_rank() == 1:
        dist.recv(b, 0, tag=2)
        dist.recv(a, 0, tag=1)
    return a.tolist(), b.tolist()


def group_order():
    pair = dist.new_group([0, 1])
    x, y, rank = torch.ones(2), torch.ones(2), dist.get_rank()
    works = [dist.all_reduce(x, async_op=True)] if rank != 1 else []
    if rank < 2:
        works.append(dist.all_reduce(y, group=pair, async_op=True))
    if rank == 1:
        works.append(dist.all_reduce(x, async_op=True))
    for work in works:
        work.wait()
    return x.tolist()


RAISED = {
    cpu_tensor: "all_reduce: NCCL moves only tensors on the rank's GPU",
    mixed_devices: "add: expected all tensors on the same device",
    into_numpy: "tensor.cpu().numpy()",
    gap: "of shape [4] and stride [4], has gaps",
    int16: "NCCL has no int16",
    too_early: "this reads a tensor that all_reduce, begun in line",
}


@pytest.mark.parametrize("program", RAISED, ids=lambda program: program.__name__)
def test_what_nccl_refuses_is_refused_with_its_line(world, program):
    with pytest.raises(RanksError) as told:
        world.run(program)
    assert f"All {P} ranks: NcclRuleError: " in str(told.value) and RAISED[program] in str(told.value)
    assert f"in {program.__name__}: " in str(told.value)
    assert world.run(sums) == [sums_of(P)] * P  # the same ranks go on


def fails_in_a_batch():
    other, gaps = (dist.get_rank() + 1) % 2, torch.empty(8)[::2]
    dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(4), other), dist.P2POp(dist.irecv, gaps, other)])


def test_after_a_batch_that_failed_in_its_middle_the_ranks_are_fresh(world):
    """torch takes the group's later calls for parts of that batch: an all_reduce would return at once and add nothing."""
    with pytest.raises(RanksError, match="has gaps") as told:
        world.run(fails_in_a_batch)
    assert "fresh ranks" in str(told.value)
    assert world.run(sums) == [sums_of(P)] * P


def test_a_receive_from_any_source(world):
    world.reset()  # no pair is connected yet
    with pytest.raises(RanksStuck) as told:
        world.run(any_source)
    assert "Rank 0: NcclRuleError: recv: NCCL can't receive from any source" in str(told.value)
    assert "rank 1: waits for its peer: dist.send to rank 0" in str(told.value)


def test_tags_that_would_reorder(world):
    pids = world.pids
    with pytest.raises(RanksError) as told:
        world.run(tag_order)
    assert "Rank 1: NcclRuleError: recv with tag 2 meets a message that rank 0 sent with tag 1" in str(told.value)
    assert "It was begun in line" in str(told.value)
    assert set(world.pids).isdisjoint(pids)  # a message is left over, so the group can't be used any more


def test_an_unbatched_circle_hangs_at_its_first_messages(world, reached):
    reached(lambda found: len(found) == P and all(s.why for s in found))
    world.reset()
    with pytest.raises(RanksStuck) as told:
        world.run(unbatched_circle, deadline=2)
    for rank in range(P):
        assert f"rank {rank}: waits for its peer: dist.send to rank {(rank + 1) % P}" in str(told.value)
    assert "a pair's first message makes their connection" in str(told.value)


def test_a_circle_of_small_messages_passes_when_the_pairs_are_connected(world, reached):
    """As on NCCL: luck with buffers, which a larger message does not have."""
    reached(lambda found: len(found) == P and any(s.why for s in found))
    world.reset()
    everybody = [[float((rank - 1) % P)] * 4 for rank in range(P)]
    assert world.run(by_parity) == everybody
    assert world.run(unbatched_circle) == everybody
    with pytest.raises(RanksStuck) as told:
        world.run(large_circle, deadline=2)
    assert "waits for its queue: dist.send to rank" in str(told.value)
    assert "too large for NCCL's buffers" in str(told.value)


def test_an_all_to_all_connects_every_pair(world):
    def program():
        dist.all_to_all_single(torch.empty(P), torch.ones(P))
        return unbatched_circle()

    world.reset()
    assert world.run(program) == [[float((rank - 1) % P)] * 4 for rank in range(P)]


def test_layouts_types_and_averages_as_on_nccl(world):
    def program():
        image = torch.full((1, 2, 2, 2), 1.0 + dist.get_rank()).to(memory_format=torch.channels_last)
        image[0, 1] *= 10
        dist.all_reduce(image)
        whole, half = torch.tensor([-1 - 2 * dist.get_rank()]), torch.full((2,), 60_000.0, dtype=torch.float16)
        dist.all_reduce(whole, op=dist.ReduceOp.AVG)
        dist.all_reduce(half, op=dist.ReduceOp.AVG)
        return image[0, :, 0, 0].tolist(), whole.item(), half.tolist()

    total = sum(range(1, P + 1))
    assert world.run(program) == [([total, 10.0 * total], -(P * P) // P, [60_000.0] * 2)] * P
    with pytest.raises(RanksError, match="torch does not hand complex numbers to NCCL here"):
        world.run(
            lambda: dist.reduce_scatter_tensor(
                torch.empty(1, dtype=torch.complex64), torch.ones(P, dtype=torch.complex64)
            )
        )


def test_groups_in_another_order_hang(world, reached):
    reached(lambda found: [(s.waits_for, s.op) for s in found] == [("queue", "all_reduce")] * P)
    with pytest.raises(RanksStuck) as told:
        world.run(group_order, deadline=3)
    assert "rank 1: waits for its queue: dist.all_reduce, float32[2], begun in line" in str(told.value)
    assert "(in the group of ranks 0 and 1)" in str(told.value)


def one_for_half():
    group = dist.new_group([0, 1], backend="gloo")
    x = torch.ones(1, device="cpu")
    if dist.get_rank() < 2:
        dist.all_reduce(x, group=group)
    return x.item()


def of_members_only():
    if dist.get_rank() < 2:
        group = dist.new_group([0, 1], use_local_synchronization=True)
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        return x.item()
    return 1.0


@pytest.mark.parametrize("program", [one_for_half, of_members_only])
def test_a_group_that_not_every_rank_splits_is_made_and_the_next_split_is_right(world, program):
    """The world has a bound device, as on GPUs; ncclCommSplit would wait for the ranks that never call it."""
    assert world.run(program, deadline=30) == [2.0, 2.0, 1.0, 1.0]
    assert world.trace(program, deadline=30)[0] == [2.0, 2.0, 1.0, 1.0]
    assert world.run(sums) == [sums_of(P)] * P


def test_a_split_waits_for_every_rank(world, reached):
    """On NCCL a group of two needs a call of all four."""
    reached(lambda found: len(found) == P - 1 and all(s.why for s in found))

    def without_the_last():
        if dist.get_rank() < P - 1:
            dist.new_group([0, 1])

    with pytest.raises(RanksStuck, match="every rank takes part in making a group"):
        world.run(without_the_last, deadline=3)
    assert world.run(sums) == [sums_of(P)] * P


@pytest.mark.parametrize(
    "name_it",
    [
        lambda: torch.cuda.set_device(0),
        lambda: torch.ones(2, device="cuda:0"),
        lambda: torch.ones(2).to("cuda:0"),
        lambda: torch.ones(2, device="cpu").cuda(0),
        lambda: torch.nn.Linear(2, 2).to(torch.device("cuda", 0)),
        lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2), device_ids=[0]),
    ],
    ids=["set_device", "made", "moved", "cuda", "module", "DDP"],
)
def test_a_gpu_of_another_rank_is_refused(world, name_it):
    """Each rank sees all GPUs of its world: on ranks 1 to 3, cuda:0 is rank 0's."""

    def program():
        return name_it() and None if dist.get_rank() else None

    with pytest.raises(RanksError, match="cuda:0 is another rank's GPU: this rank's is cuda:1") as told:
        world.run(program)
    assert sorted(told.value.errors) == [1, 2, 3]


def by_parity():
    rank, p = dist.get_rank(), dist.get_world_size()
    x, arrived = torch.full((4,), float(rank)), torch.empty(4)
    if rank % 2:
        dist.recv(arrived, (rank - 1) % p)
        dist.send(x, (rank + 1) % p)
    else:
        dist.send(x, (rank + 1) % p)
        dist.recv(arrived, (rank - 1) % p)
    return arrived.tolist()


def large_circle():
    rank, p = dist.get_rank(), dist.get_world_size()
    x, arrived = torch.full((100_000,), float(rank)), torch.empty(100_000)
    dist.isend(x, (rank + 1) % p)
    dist.recv(arrived, (rank - 1) % p)
    return arrived[0].item()


def sums():
    """What every collective gives; a list of numbers."""
    rank, p = dist.get_rank(), dist.get_world_size()
    found = []
    x = torch.arange(4.0) + rank
    dist.all_reduce(x)
    found.append(x.sum().item())
    for op in (dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
        y = torch.full((2,), float(rank + 1))
        dist.all_reduce(y, op=op)
        found.append(y.sum().item())
    parts = [torch.empty(i + 1) for i in range(p)]  # of different sizes, as NCCL takes them and gloo does not
    dist.all_gather(parts, torch.full((rank + 1,), float(rank)))
    found.append(sum(part.sum().item() for part in parts))
    mine = torch.empty(rank + 1)
    dist.reduce_scatter(mine, [torch.ones(i + 1) for i in range(p)])
    found.append(mine[0].item())
    dist.broadcast(x, p - 1)
    found.append(x.sum().item())
    dist.reduce(z := torch.ones(2), 0)
    found.append(p if rank else z[0].item())
    arrived = [torch.empty(rank + 1) for _ in range(p)]
    dist.all_to_all(arrived, [torch.full((i + 1,), float(rank)) for i in range(p)])
    found.append(sum(part[0].item() for part in arrived))
    gathered = [torch.empty(2) for _ in range(p)] if rank == 0 else None
    dist.gather(torch.ones(2), gathered, 0)
    dist.scatter(one := torch.empty(2), [torch.full((2,), 7.0)] * p if rank == 0 else None, 0)
    found.append(one[0].item())
    true = torch.tensor([rank == 0])
    dist.all_reduce(true)  # NCCL's sum of bool is a maximum
    found.append(float(true.item()))
    dist.barrier()
    dist.all_reduce(empty := torch.empty(0))
    found.append(float(empty.numel()))
    return found


def sums_of(p: int) -> list[float]:
    total = sum(range(p))
    everybody = sum(4 * r + 6 for r in range(p))
    return [
        *(everybody, p + 1, 2 * p, 2, 2 * torch.arange(1, p + 1).prod().item()),
        *(sum(r * (r + 1) for r in range(p)), p, everybody, p, total, 7, 1, 0),
    ]


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "complex64", "float8_e5m2"]
)
def test_every_type_that_nccl_has(world, dtype):
    def program():
        x = torch.ones(3).to(getattr(torch, dtype))
        dist.all_reduce(x)
        dist.broadcast(x, 1)
        return x.to(torch.complex64 if x.is_complex() else torch.float32).real.tolist()

    assert world.run(program) == [[P] * 3] * P


def test_what_only_differs_between_ranks_is_named(world):
    def sizes():
        dist.all_reduce(torch.ones(3 + dist.get_rank() % 2))

    def types():
        dist.all_reduce(torch.ones(2, dtype=torch.int32 if dist.get_rank() else torch.float32))

    def calls():
        x = torch.ones(2)
        dist.broadcast(x, 0) if dist.get_rank() else dist.all_reduce(x)

    def roots():
        dist.broadcast(torch.ones(2), dist.get_rank())

    for program, words in (
        (sizes, "ranks 0 and 2: all_reduce of 3 elements of float32 (SUM)"),
        (types, "rank 0: all_reduce of 2 elements of float32 (SUM)"),
        (
            calls,
            "rank 0: all_reduce of 2 elements of float32 (SUM); ranks 1, 2 and 3: broadcast of 2 elements",
        ),
        (roots, "rank 3: broadcast of 2 elements of float32, root 3"),
    ):
        with pytest.raises(RanksError, match="The ranks don't make the same call") as told:
            world.run(program)
        assert words in str(told.value)


def test_a_call_returns_before_the_operation_is_done(world, tmp_path):
    """Returned is not done: rank 0 comes once the calls of the others have returned. Only reading the result waits."""

    def program():
        rank, came = dist.get_rank(), tmp_path / "came"
        while rank == 0 and len(list(tmp_path.iterdir())) < P - 1:
            time.sleep(0.01)
        if rank == 0:
            came.touch()
        x = torch.ones(4)
        dist.all_reduce(x)
        early = came.exists()
        if rank:
            (tmp_path / f"{rank} returned").touch()
        return early, x.sum().item(), came.exists()

    assert world.run(program) == [(rank == 0, 4.0 * P, True) for rank in range(P)]


def test_events_are_marks_in_the_queue(world, tmp_path):
    def program():
        rank = dist.get_rank()
        if rank == 0:
            while len(list(tmp_path.iterdir())) < P - 1:
                time.sleep(0.01)
            time.sleep(0.35)
        x = torch.ones(4)
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        before.synchronize()
        dist.all_reduce(x)
        after.record()
        early = after.query()
        if rank:
            (tmp_path / f"{rank} called").touch()
        after.synchronize()
        return early, after.query(), before.elapsed_time(after) > 300

    assert world.run(program)[1:] == [(False, True, True)] * (P - 1)


def test_objects_batches_groups_and_ddp_pass(world):
    def program():
        rank, p = dist.get_rank(), dist.get_world_size()
        told = [None] * p
        dist.all_gather_object(told, {"rank": rank})
        arrived = [torch.empty(2) for _ in range(p)]
        ops = [dist.P2POp(dist.isend, torch.full((2,), float(rank)), dst) for dst in range(p)]
        ops += [dist.P2POp(dist.irecv, arrived[src], src) for src in range(p)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        pairs = [dist.new_group([i, i + 1]) for i in range(0, p, 2)]
        x = torch.ones(1)
        dist.all_reduce(x, group=pairs[rank // 2])
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
        model(torch.full((3, 4), float(rank))).sum().backward()
        return (
            [t["rank"] for t in told],
            [a[0].item() for a in arrived],
            x.item(),
            model.module.weight.grad[0, 0].item(),
        )

    numbers = list(range(P))
    assert world.run(program) == [(numbers, numbers, 2.0, 3 * sum(numbers) / P)] * P


def test_functional_collectives_and_dtensor_wait_by_themselves(world):
    def program():
        import torch.distributed._functional_collectives as functional
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        summed = functional.all_reduce(torch.ones(100_000), "sum", dist.group.WORLD)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        torch.manual_seed(0)
        whole = torch.randn(8, 4)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        return sum((summed + 1).tolist()), torch.equal(sharded.full_tensor(), whole)

    assert world.run(program) == [(100_000 * (P + 1.0), True)] * P


def test_an_operation_leaves_no_trace_in_autograd(world):
    """gloo and NCCL write memory; torch must not take that for a change of a tensor with a history."""

    def program():
        x = torch.ones(4, requires_grad=True)
        view = (x * 2).view(2, 2)[0]
        version = view._version
        dist.all_reduce(view)
        view.sum().backward()
        return view._version == version, view.tolist(), x.grad.tolist()

    assert world.run(program) == [(True, [2.0 * P] * 2, [2, 2, 0, 0])] * P


def test_a_trace_tells_what_was_sent_and_when_it_ended(world):
    def program():
        rank, p = dist.get_rank(), dist.get_world_size()
        x, arrived = torch.ones(8), torch.empty(8)
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, (rank + 1) % p), dist.P2POp(dist.irecv, arrived, (rank - 1) % p)]
        ):
            work.wait()
        dist.all_reduce(arrived)
        return arrived[0].item()

    results, trace = world.trace(program)
    assert results == [float(P)] * P
    assert sorted(e.op for e in trace.events if e.rank == 0) == ["all_reduce", "recv", "send"]
    assert all(e.end is not None and e.end > e.start for e in trace.events)


def test_a_bar_of_a_trace_ends_with_its_operation(world):
    """The program does something else before it waits; and a trace must not make an early read right."""

    def between():
        x = torch.ones(1000)
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            time.sleep(0.001)
        dist.all_reduce(torch.ones(1))
        work.wait()

    _, trace = world.trace(between)
    for rank in range(P):
        first, second = sorted((e for e in trace.events if e.rank == rank), key=lambda e: e.start)
        assert first.end <= second.start
    with pytest.raises(RanksError, match="this reads a tensor that all_reduce, begun in line"):
        world.trace(too_early)


def test_device_and_what_a_world_says_of_itself(world):
    assert world.run(lambda: str(torch.ones(1).device)) == ["cpu:0"] * P
    assert "gloo under NCCL's rules" in repr(world) and world.rules == "nccl"
    assert World(rules="nccl") is world


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rules": "mpi"}, "rules='mpi' is unknown"),
        ({"rules": "nccl", "backend": "nccl"}, "leave one out"),
        ({"rules": "nccl", "name": "shared"}, "leave name= out"),
        ({"rules": "nccl", "gpus": 1}, "leave gpus= out"),
        ({"rules": "nccl", "profile": "slurm"}, "leave profile= out"),
    ],
)
def test_requests_that_make_no_sense(world, options, sentence):
    with pytest.raises(WorldError) as told:
        World(**options)
    assert sentence in str(told.value)
    assert world.running


def test_the_environment_can_ask_for_the_rules():
    program = "from allranks import World\nwith World(ranks=2) as a: print(a.rules)\nwith World(ranks=2, backend='gloo') as b: print(b.rules)"
    told = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "ALLRANKS_RULES": "nccl"}, capture_output=True, text=True
    )
    assert told.stdout.split() == ["nccl", "None"], told.stderr


def test_fsdp_and_tensor_parallel_pass(world):
    def program():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh, sums = init_device_mesh("cpu", (dist.get_world_size(),)), []
        for kind in ("alone", "sharded", "parallel"):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))
            if kind == "sharded":
                fully_shard(model, mesh=mesh)
            if kind == "parallel":
                parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            for _ in range(2):
                loss = model(torch.ones(4, 8)).square().sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            sums.append(round(loss.item(), 3))
        return sums

    for alone, sharded, parallel in world.run(program):
        assert alone == pytest.approx(sharded, rel=1e-3) == pytest.approx(parallel, rel=1e-3)


def test_the_forms_of_a_cluster_pass(world):
    """What training scripts write for GPUs: device_ids, "cuda", autocast, a group with nccl, a wait with a time-out."""

    def program():
        from datetime import timedelta

        from torch.distributed.device_mesh import init_device_mesh

        assert torch.cuda.is_available() and dist.is_nccl_available() and dist.get_backend() == "nccl"
        local = dist.get_rank()
        torch.cuda.set_device(local)
        assert (torch.cuda.current_device(), torch.cuda.device_count()) == (local, dist.get_world_size())
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).to("cuda"), device_ids=[local])
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = model(torch.ones(3, 4, device=f"cuda:{local}"))
        y.float().sum().backward()
        mesh = init_device_mesh("cuda", (2, dist.get_world_size() // 2))
        x = torch.from_numpy(model.module.bias.grad.cpu().numpy()).type_as(y)
        dist.all_reduce(x, group=mesh.get_group(0))
        group = dist.new_group(backend="nccl")
        z = torch.empty_like(torch.ones(2, device="cpu"), device="cuda").fill_(1)
        dist.all_reduce(z, group=group, async_op=True).wait(timeout=timedelta(seconds=60))
        group.allreduce(z).wait()
        torch.cuda.synchronize()
        return str(y.dtype), x.tolist(), z.tolist()

    assert world.run(program) == [("torch.bfloat16", [6.0, 6.0], [16.0, 16.0])] * P


def test_what_is_not_played_says_so(world):
    with pytest.raises(RanksError, match=r"this part of torch\.cuda is not played") as told:
        world.run(lambda: torch.cuda.get_device_properties(0))
    assert "under rules='nccl', which has no GPU" in str(told.value)


def test_a_value_can_not_be_saved_too_early(world):
    def saved():
        import io

        x = torch.ones(4)
        work = dist.all_reduce(x, async_op=True)
        torch.save({"weights": x}, io.BytesIO())
        work.wait()

    def gathered():
        x = torch.ones(4)
        dist.all_reduce(x, async_op=True)
        dist.all_gather_object([None] * P, x)

    for program in (saved, gathered):
        with pytest.raises(RanksError, match="Too early: this reads a tensor that all_reduce"):
            world.run(program)


def test_a_callback_may_wait_for_another_collective(world):
    """As DDP's PowerSGD hook does."""

    def program():
        x = torch.ones(4)

        def again(future):
            return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

        done = dist.all_reduce(x, async_op=True).get_future().then(again)
        while not done.done():  # within the run's deadline
            time.sleep(0.01)
        return done.wait().tolist()

    assert world.run(program) == [[16.0] * 4] * P


def test_one_batch_more_of_ddp_meets_the_next_collective_without_a_crash(world):
    def program():
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4, device="cuda"))
        for _ in range(3 if dist.get_rank() == 0 else 2):
            model(torch.ones(2, 4, device="cuda")).sum().backward()
        dist.all_reduce(torch.ones(3, device="cuda"))

    with pytest.raises(RanksError, match="The ranks don't make the same call") as told:
        world.run(program)
    assert "rank 0: all_reduce of 20 elements" in str(told.value) and "SIGSEGV" not in str(told.value)
    assert "running the callback" not in str(told.value)


def test_a_queue_has_the_error_of_an_operation_before_anyone_is_told():
    """DDP's C++ code may raise at once in another thread, and the queue must then know why."""

    def job():
        raise ValueError("the job's")

    queue, told = Queue(), threading.Event()
    ticket, seen = Ticket(queue, job, {}), []
    ticket.then(lambda: (seen.append(queue.failed), told.set()))
    ticket.run()
    assert told.wait(60) and seen == [ticket.error] and str(ticket.error) == "the job's"


def test_a_callback_that_another_thread_takes_first_does_not_end_the_queue():
    class Taken(list):
        def __bool__(self):
            called = super().__len__() > 0
            self.clear()  # between the look and the taking
            return called

    queue = Queue()
    ticket = Ticket(queue, lambda: None, {})
    ticket._then = Taken([lambda: None])
    ticket.run()
    assert ticket.done


def test_sizes_of_an_all_gather_and_lists_of_a_new_group_that_differ_are_named(world):
    def sizes():
        x = torch.zeros(12 if dist.get_rank() == 0 else 1)
        dist.all_gather([torch.zeros_like(x) for _ in range(dist.get_world_size())], x)

    def lists():
        dist.new_group([0, 1] if dist.get_rank() == 0 else [1, 2])

    for program, words in (
        (
            sizes,
            "rank 0: all_gather of parts of 12 elements of float32; ranks 1, 2 and 3: all_gather of parts of 1 element ",
        ),
        (lists, "rank 0: ranks 0 and 1; ranks 1, 2 and 3: ranks 1 and 2"),
    ):
        with pytest.raises(RanksError) as told:
            world.run(program)
        assert words in str(told.value)


def test_the_message_of_a_batch_without_a_partner_is_named(world, reached):
    reached(lambda found: any(s.why for s in found))

    def program():
        rank, x, y = dist.get_rank(), torch.ones(1), torch.zeros(1)
        if rank > 1:
            return
        for last in (False, True):
            batch = [dist.P2POp(dist.irecv, y, 1 - rank)]
            if not last or rank == 0:
                batch.append(dist.P2POp(dist.isend, x, 1 - rank))
            for work in dist.batch_isend_irecv(batch):
                work.wait()
        y.item()

    with pytest.raises(RanksStuck) as told:
        world.run(program, deadline=5)
    assert "its recv from rank 1 has no send" in str(told.value)


def test_a_hang_inside_ddp_names_its_all_reduce(world, reached):
    reached(lambda found: [(s.rank, s.op) for s in found] == [(rank, "all_reduce") for rank in range(1, P)])

    def program():
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        for _ in range(2 if dist.get_rank() == 0 else 3):
            model(torch.ones(1, 4)).sum().backward()

    with pytest.raises(RanksStuck) as told:
        world.run(program, deadline=6)
    assert "rank 1: waits for its queue: dist.all_reduce" in str(told.value)
    assert "rank 0: done" in str(told.value)


def test_any_error_of_an_operation_replaces_the_ranks(world):
    """Else each later call would get it again."""

    def through_the_group():
        group, error = dist.group.WORLD, ZeroDivisionError("planted")
        group._compare = lambda *_: (_ for _ in ()).throw(error)
        dist.all_reduce(torch.ones(1))

    pids = world.pids
    with pytest.raises(RanksError, match="planted"):
        world.run(through_the_group)
    assert set(world.pids).isdisjoint(pids)
    assert world.run(sums) == [sums_of(P)] * P


def test_a_measurement_waits_for_the_queue(world):
    """Else it would measure how long it takes to queue."""
    from allranks import bench

    sweep = bench.sweep(world, bench.Call("all_reduce"), [16, 4096], iterations=2, warmups=1)
    assert [(row.size, row.wrong) for row in sweep.rows] == [(16, 0), (4096, 0)]

    def program():
        def late():
            if dist.get_rank() == 0:
                time.sleep(0.2)
            dist.all_reduce(torch.ones(4))

        return bench.seconds_of(late, iterations=2)[0]

    assert min(world.run(program)) > 0.15


@pytest.mark.parametrize("said", ["No CUDA GPUs are available", "Torch not compiled with CUDA enabled"])
def test_a_torch_for_cuda_gets_the_hint_too(said):
    """Ranks under the rules see no GPU: what torch/csrc/cuda says there, and what torch for CPUs says."""
    assert "this part of torch.cuda is not played" in (nccl_group._hint(RuntimeError(said)) or "")

"""`world.trace`: what real ranks sent over gloo, held against the schedule that the program follows."""

import inspect
import time

import pytest
import torch
import torch.distributed as dist
from allranks import World
from allranks.ranks.world import RanksError, live
from allranks.theory.schedules import ring_all_reduce
from allranks.theory.trace import Trace

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def world():
    with World(ranks=4) as started:
        yield started


def ring(numel):
    import torch
    import torch.distributed as dist

    rank, p = dist.get_rank(), dist.get_world_size()
    vector = torch.full((numel,), float(rank))
    chunks = list(torch.tensor_split(vector, p))
    right, left = (rank + 1) % p, (rank - 1) % p
    for step in range(p - 1):
        arriving = torch.empty_like(chunks[(rank - step - 1) % p])
        sending = dist.isend(chunks[(rank - step) % p], right)
        dist.recv(arriving, left)
        sending.wait()
        chunks[(rank - step - 1) % p] += arriving
    for step in range(p - 1):
        sending = dist.isend(chunks[(rank + 1 - step) % p], right)
        dist.recv(chunks[(rank - step) % p], left)
        sending.wait()
    return vector.tolist()


def several():
    import torch
    import torch.distributed as dist

    rank, p = dist.get_rank(), dist.get_world_size()
    x = torch.ones(6)
    dist.all_reduce(x)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    dist.broadcast(x, 1)
    rows = [torch.empty(2) for _ in range(p)]
    dist.all_gather(rows, torch.full((2,), float(rank)))
    out = torch.empty(2)
    dist.reduce_scatter(out, [torch.ones(2)] * p)
    dist.all_to_all_single(torch.empty(p), torch.arange(float(p)))
    pair = dist.new_group([1, 2])
    if rank in (1, 2):
        dist.all_reduce(out, group=pair)
    reqs = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, (rank + 1) % p), dist.P2POp(dist.irecv, torch.empty(6), (rank - 1) % p)]
    )
    for req in reqs:
        req.wait()
    dist.barrier()
    return [r.tolist() for r in rows], out.tolist()


def test_a_ring_by_hand_moves_what_the_schedule_says(world):
    results, trace = world.trace(ring, 1000)
    assert results == [[6.0] * 1000] * 4
    schedule = ring_all_reduce(ranks=4)
    assert (trace.kind, trace.clock, trace.ranks, trace.chunks, trace.nbytes) == ("live", "wall", 4, 4, 4000)
    moved = {(m.step, m.src, m.dst, m.chunks) for m in trace.messages() if m.delivered}
    assert moved == {(m.step, m.src, m.dst, m.chunks) for m in schedule.moves}
    assert trace.bytes_sent() == schedule.bytes_sent(4000) == trace.bytes_received() == [6000] * 4


def ddp_step():
    import torch
    import torch.distributed as dist

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    model(torch.full((2, 3), float(dist.get_rank()))).sum().backward()
    return model.module.weight.grad.tolist()


def test_what_only_a_future_tells_the_end_of_has_one(world):
    """DDP launches from C++ and waits for futures; the trace has its all_reduce from start to end all the same."""
    results, trace = world.trace(ddp_step)
    assert results == [[[3.0, 3.0, 3.0]]] * 4  # twice the mean of 0, 1, 2, 3
    reduced = [event for event in trace if event.op == "all_reduce"]
    assert [event.nbytes for event in reduced] == [16] * 4
    assert all(event.end is not None and event.end > event.start for event in reduced)


def test_a_bar_ends_with_the_collective_and_not_with_the_wait(world):
    """What the program does between its call and its wait is beside the bar, and not in it."""

    def between():
        x = torch.ones(1000)
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            time.sleep(0.01)
        dist.all_reduce(torch.ones(1))
        work.wait()

    _, trace = world.trace(between)
    for rank in range(trace.ranks):
        first, second = sorted((e for e in trace.events if e.rank == rank), key=lambda e: e.start)
        assert first.end <= second.start


def test_times_and_lines_are_those_of_the_run(world):
    _, trace = world.trace(ring, 10)
    source, first = inspect.getsourcelines(ring)
    lines = {first + i: text for i, text in enumerate(source)}
    for event in trace:
        assert ("isend" if event.op == "send" else "dist.recv") in lines[event.line]
        assert 0 <= event.start <= event.end <= trace.seconds
    starts = [e.start for e in trace]
    assert starts == sorted(starts) and starts[0] == 0
    sent = {e.match: e for e in trace if e.op == "send"}
    assert all(e.end >= sent[e.match].start for e in trace if e.op == "recv"), "received before it was sent"
    assert trace.meta["backend"] == "gloo" and trace.meta["clocks"] == "one machine's"


def test_collectives_sub_groups_and_batches_are_recorded_and_right(world):
    results, trace = world.trace(several)
    assert results == [
        ([[float(r)] * 2 for r in range(4)], [4.0, 4.0] if rank in (0, 3) else [8.0, 8.0]) for rank in range(4)
    ]
    of_rank_0 = [e.op for e in trace if e.rank == 0]
    assert of_rank_0 == [
        "all_reduce", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all_single",
        "send", "recv", "barrier",
    ]  # fmt: skip
    assert [e.op for e in trace if e.rank == 1].count("all_reduce") == 3
    paired = {(e.rank, e.op, e.seq) for e in trace if e.group == "1,2"}
    assert paired == {(1, "all_reduce", 1), (2, "all_reduce", 1)}
    whole = [(e.op, e.seq) for e in trace if e.rank == 2 and e.group == "0,1,2,3"]
    assert whole == [(e.op, e.seq) for e in trace if e.rank == 0 and e.group]  # the same numbers on all ranks
    assert [seq for _, seq in whole] == [1, 2, 3, 4, 5, 6, 7]
    assert next(e.nbytes for e in trace if e.op == "all_gather") == 8
    assert all(e.end is not None for e in trace)


def test_functional_collectives_and_dtensor_find_the_recorded_group(world):
    def functional():
        import torch
        import torch.distributed as dist
        import torch.distributed._functional_collectives as functional
        from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

        summed = functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD) + 0
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        mine = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)]).to_local()
        return summed.tolist(), mine.tolist()

    results, trace = world.trace(functional)
    assert results == [([4.0] * 3, [[2.0 * r, 2.0 * r + 1]]) for r in range(4)]
    assert [e.op for e in trace if e.rank == 0] == ["all_reduce", "scatter"]
    assert trace.steps == 2, "a step in which nothing moves"


def test_functional_gathers_and_scatters_work_where_the_backend_lacks_their_method(world):
    def functional():
        import torch
        import torch.distributed as dist
        import torch.distributed._functional_collectives as functional

        group = dist.group.WORLD
        x = torch.tensor([float(dist.get_rank())])
        # torch before 2.13 has other names
        gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
        scatter = getattr(functional, "reduce_scatter_single", None) or functional.reduce_scatter_tensor
        whole = gather(x, 0, group) + 0
        share = scatter(whole, "sum", 0, group) + 0
        both = functional.all_gather_into_tensor_coalesced([x, x + 10], group)
        return whole.tolist(), share.tolist(), [(t + 0).tolist() for t in both]

    results, trace = world.trace(functional)
    everyone = [0.0, 1.0, 2.0, 3.0]
    tens = [10.0, 11.0, 12.0, 13.0]
    assert results == [(everyone, [4.0 * r], [everyone, tens]) for r in range(4)]
    mine = [e for e in trace if e.rank == 0]
    assert [(e.op, e.nbytes) for e in mine] == [
        ("all_gather_into_tensor", 4),
        ("reduce_scatter_tensor", 16),
        ("all_gather_into_tensor", 8),
    ]
    assert all(e.end is not None for e in mine)


def test_the_names_of_chapters_hold_on_every_torch_and_a_trace_says_the_older_ones(world):
    """`all_gather_single` and `reduce_scatter_single` came with torch 2.13; chapters use them."""

    def single():
        import torch
        import torch.distributed as dist

        whole, share = torch.empty(4), torch.empty(1)
        dist.all_gather_single(whole, torch.tensor([float(dist.get_rank())]))
        dist.reduce_scatter_single(share, whole)
        return whole.tolist(), share.tolist()

    expected = [([0.0, 1.0, 2.0, 3.0], [4.0 * r]) for r in range(4)]
    assert world.run(single) == expected
    results, trace = world.trace(single)
    assert results == expected
    assert [(e.op, e.nbytes) for e in trace if e.rank == 0] == [
        ("all_gather_into_tensor", 4),
        ("reduce_scatter_tensor", 16),
    ]


def test_objects_go_round_in_a_trace(world):
    def objects():
        import torch.distributed as dist

        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, {"rank": dist.get_rank()})
        return found

    results, _ = world.trace(objects)
    assert results == [[{"rank": r} for r in range(4)]] * 4


def test_a_trace_survives_a_file(world, tmp_path):
    _, trace = world.trace(ring, 16)
    trace.save(tmp_path / "ring.json")
    assert Trace.load(tmp_path / "ring.json") == trace


def test_outside_of_trace_nothing_is_recorded(world):
    world.trace(ring, 8)

    def group_type():
        import torch.distributed as dist

        return type(dist.group.WORLD).__name__, dist.get_backend()

    assert world.run(group_type) == [("ProcessGroup", "gloo")] * 4


def test_an_error_inside_leaves_the_world_as_it_was(world):
    def fail():
        raise ValueError("boo")

    with pytest.raises(RanksError, match="All 4 ranks: ValueError: boo"):
        world.trace(fail)
    test_outside_of_trace_nothing_is_recorded(world)


@pytest.mark.parametrize(
    ("hosts", "aligned", "clocks"),
    [("aa", False, "one machine's"), ("ab", False, "not aligned"), ("ab", True, "aligned by an all_reduce")],
)
def test_a_trace_says_whether_its_ranks_clocks_agree(hosts, aligned, clocks):
    about = {"device": "a GPU", "backend": "nccl", "nccl": "2.30.7", "torch": "2", "aligned": aligned}
    parts = [({"records": [], "program": []}, {**about, "host": host}) for host in hosts]
    assert live.join(parts).meta["clocks"] == clocks


def test_a_message_that_was_never_received_has_no_partner():
    def part(records, program):
        return {"records": records, "program": program}, {
            "host": "h", "device": "CPU", "backend": "gloo", "nccl": None, "torch": "2",
        }  # fmt: skip

    def one(kind, peer, done):
        return {
            "kind": kind, "name": kind, "group": (0, 1), "peer": peer, "nbytes": 4, "offset": 0, "extent": 4, "tag": 0,
            "dtype": "float32", "line": 1, "posted": 1.0, "done": done,
        }  # fmt: skip

    trace = live.join([part([one("send", 1, None)], [("post", 0)]), part([], [])])
    (message,) = trace.messages()
    assert not message.delivered and trace.events[0].end is None

"""The executor: every algorithm moves real numbers, on the wire for 1 to 9 ranks and on gloo in a live world."""

import pytest
import torch
from allranks import World
from allranks.ranks.wire import Ranks
from allranks.theory.schedules import ALGORITHMS, describe

NUMEL = 23  # divides into no number of chunks that occurs here


@pytest.fixture(scope="module")
def pool():
    with Ranks(9) as ranks:
        yield ranks


def program(schedule, numel):
    import torch.distributed as dist
    from allranks.machine.bench.executor import execute

    rank = dist.get_rank()
    vector = torch.arange(numel, dtype=torch.int64) + 1000 * rank
    before = vector.clone()
    result = execute(schedule, vector)
    unchanged = torch.equal(vector, before)
    return result, unchanged


def expected(schedule, rank, numel):
    """What the collective promises, by local arithmetic."""
    p, root = schedule.ranks, schedule.root
    inputs = [torch.arange(numel, dtype=torch.int64) + 1000 * r for r in range(p)]
    cut = [v.tensor_split(p) for v in inputs]
    total = sum(inputs)
    match schedule.collective:
        case "broadcast":
            return inputs[root]
        case "reduce":
            return total if rank == root else None
        case "all_reduce":
            return total
        case "scatter":
            return cut[root][rank]
        case "reduce_scatter":
            return total.tensor_split(p)[rank]
        case "gather" | "all_gather":
            gathered = torch.cat([cut[r][r] for r in range(p)])
            return gathered if root is None or rank == root else None
        case "all_to_all":
            return torch.cat([cut[r][rank] for r in range(p)])


def check(schedule, results, numel):
    for rank, (got, unchanged) in enumerate(results):
        wanted = expected(schedule, rank, numel)
        assert unchanged
        assert (got is None) == (wanted is None), f"rank {rank}"
        assert wanted is None or torch.equal(got, wanted), f"rank {rank}: {got} is not {wanted}"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_runs_on_the_wire_as_it_is_written(pool, name):
    for p in range(1, 10):
        schedule = ALGORITHMS[name](p)
        if "root" in describe(schedule.collective, schedule.algorithm).options:
            schedule = ALGORITHMS[name](p, root=p // 2)
        outcome = pool.run(program, ranks=p, args=(schedule, NUMEL))
        assert outcome.failure is None, outcome.failure
        check(schedule, outcome.results, NUMEL)
        wanted = sorted(
            (m.src, m.dst, sum(8 * schedule.chunk_nbytes(NUMEL)[c] for c in m.chunks)) for m in schedule.moves
        )
        assert sorted((m.src, m.dst, m.nbytes) for m in outcome.trace.messages()) == wanted


@pytest.mark.live
def test_every_algorithm_runs_on_gloo():
    with World(ranks=4, backend="gloo") as world:
        for build in ALGORITHMS.values():
            schedule = build(4)
            check(schedule, world.run(program, schedule, NUMEL), NUMEL)
        for schedule in (ALGORITHMS["double_binary_tree_all_reduce"](3), ALGORITHMS["bruck_all_to_all"](3)):
            results = world.run(in_a_group, schedule, [0, 1, 3], NUMEL)
            check(schedule, [results[r] for r in (0, 1, 3)], NUMEL)


def in_a_group(schedule, members, numel):
    import torch.distributed as dist
    from allranks.machine.bench.executor import Executor

    group = dist.new_group(members)
    if dist.get_rank() not in members:
        return None
    vector = torch.arange(numel, dtype=torch.int64) + 1000 * dist.get_rank(group)
    run = Executor(schedule, group)
    run(vector)
    return run(vector), True


def test_the_group_must_have_the_schedules_ranks(pool):
    outcome = pool.run(program, ranks=3, args=(ALGORITHMS["ring_all_reduce"](4), NUMEL))
    assert "the schedule is for 4 ranks; this group has 3" in outcome.failure.message


def into(schedule, numel):
    """One executor, three calls: into a tensor of its own, twice, and in place where that goes."""
    import torch.distributed as dist
    from allranks.machine.bench.executor import Executor

    rank, run = dist.get_rank(), Executor(schedule)
    vector = torch.arange(numel, dtype=torch.int64) + 1000 * rank
    before = vector.clone()
    fresh = run(vector)
    if fresh is None:
        return None, all(run(vector, out=torch.empty(3)) is None for _ in range(2))  # as often as ranks with a result
    out = torch.full_like(fresh, -1)
    memory = out.data_ptr()
    kept = []
    for _ in range(2):
        out.fill_(-1)
        again = run(vector, out=out)
        kept.append(again.data_ptr() == memory and torch.equal(again, fresh) and torch.equal(out, fresh))
    unchanged = torch.equal(vector, before)
    if schedule.collective in ("all_reduce", "broadcast", "all_gather") and run._whole:
        run(vector, out=vector)
        kept.append(torch.equal(vector, fresh))
    return out, unchanged and all(kept)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_result_goes_where_it_is_wanted_and_memory_is_kept(pool, name):
    for p in (1, 3, 4):
        schedule = ALGORITHMS[name](p)
        outcome = pool.run(into, ranks=p, args=(schedule, NUMEL))
        assert outcome.failure is None, outcome.failure
        check(schedule, outcome.results, NUMEL)


def refused(how):
    from allranks.machine.bench.executor import Executor
    from allranks.theory.schedules import ScheduleError

    x = torch.zeros(12)
    schedule = ALGORITHMS["ring_reduce_scatter" if how == "part in place" else "ring_all_reduce"](2)
    out = {
        "too short": torch.zeros(11), "other type": torch.zeros(12, dtype=torch.int64), "gaps": torch.zeros(24)[::2],
        "part in place": x[:6], "overlap": torch.zeros(20)[4:16],
    }[how]  # fmt: skip
    tensor = out.as_strided((12,), (1,), 0) if how == "overlap" else x
    try:
        Executor(schedule)(tensor, out=out)
    except ScheduleError as error:
        return str(error)


@pytest.mark.parametrize("how", ["too short", "other type", "gaps", "part in place", "overlap"])
def test_an_out_that_does_not_fit_is_refused(pool, how):
    outcome = pool.run(refused, ranks=2, args=(how,))
    assert outcome.failure is None and all("out" in said for said in outcome.results)


def test_two_calls_allocate_nothing_large(pool):
    outcome = pool.run(second_call, ranks=2, args=(ALGORITHMS["ring_all_reduce"](2),))
    assert outcome.failure is None and outcome.results == [True, True]


def second_call(schedule):
    from allranks.machine.bench.executor import Executor

    run, x = Executor(schedule), torch.ones(1 << 12)
    run(x, out=x)
    before = {name: memory.data_ptr() for name, memory in run._memory.items()}
    run(x, out=x)
    return before == {name: memory.data_ptr() for name, memory in run._memory.items()} and x[0].item() == 4

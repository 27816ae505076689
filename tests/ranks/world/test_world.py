"""The live world on real engines and gloo: results, reports, fresh ranks, and nothing left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest
from allranks import World
from allranks.ranks.engines.forkserver.client import ForkServer
from allranks.ranks.world import RankDied, RanksError, RanksStuck, WorldError, current
from waiting import until

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def world():
    with World(ranks=4) as started:
        yield started


def sum_of_ranks(value):
    import torch
    import torch.distributed as dist

    tensor = torch.full((3,), float(value + dist.get_rank()))
    dist.all_reduce(tensor)
    return tensor.tolist()


def identity():
    import torch.distributed as dist

    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    return os.getpid(), dist.get_rank(), [int(os.environ[name]) for name in names], dist.get_backend()


def one_fails():
    import torch
    import torch.distributed as dist

    if dist.get_rank() == 2:
        raise ValueError("boo")
    dist.all_reduce(torch.ones(3))


def ring_of_receives():
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    if rank != 3:
        dist.recv(torch.ones(3), src=(rank + 1) % size)


@pytest.mark.core
def test_every_rank_answers_in_order(world):
    assert world.run(sum_of_ranks, 10) == [[46.0] * 3] * 4


def test_each_rank_is_its_own_process_with_its_own_environment(world):
    seen = world.run(identity)
    assert [s[1] for s in seen] == [0, 1, 2, 3]
    assert [s[2] for s in seen] == [[r, r, 4] for r in range(4)]
    assert {s[3] for s in seen} == {"gloo"}
    assert [s[0] for s in seen] == world.pids
    assert len({s[0] for s in seen} | {os.getpid()}) == 5


def test_random_numbers_differ_between_ranks(world):
    def draw():
        import random

        import numpy
        import torch

        return random.random(), float(numpy.random.rand()), float(torch.rand(1))

    drawn = world.run(draw)
    assert all(len(set(column)) == 4 for column in zip(*drawn, strict=True))


def test_its_repr_is_a_table_of_ranks(world):
    lines = repr(world).splitlines()
    assert lines[0].split() == ["rank", "pid", "device", "backend"]
    assert [line.split()[:2] for line in lines[1:]] == [[str(r), str(pid)] for r, pid in enumerate(world.pids)]
    assert all(line.endswith("gloo") and "CPU" in line for line in lines[1:])
    assert world._repr_html_().count("<tr>") == 5


def test_a_second_world_of_the_same_size_is_the_same_ranks(world):
    assert World(ranks=4).pids == World().pids == world.pids
    assert current().pids == world.pids


def test_an_error_on_all_ranks_is_said_once_with_its_line(world):
    def fail():
        raise KeyError("lost")

    with pytest.raises(RanksError) as caught:
        world.run(fail)
    said = str(caught.value)
    assert said.count("KeyError: ") == 1
    assert said.startswith("All 4 ranks: KeyError: 'lost'")
    assert 'raise KeyError("lost")' in said
    assert "allranks/" not in said
    assert world.run(sum_of_ranks, 0) == [[6.0] * 3] * 4


def test_errors_that_differ_name_their_ranks(world):
    def fail():
        import torch.distributed as dist

        raise ValueError("odd" if dist.get_rank() % 2 else "even")

    with pytest.raises(RanksError, match=r"Ranks 0 and 2: ValueError: even(.|\n)*Ranks 1 and 3: ValueError: odd"):
        world.run(fail)


def test_a_long_error_that_differs_only_in_numbers_is_said_once_and_cut():
    from allranks.ranks.world.failures import describe

    def error(rank):
        prefix = f"[rank{rank}]:[E1121 09:26:34.47{rank} ProcessGroupGloo.cpp:144] "
        return {
            "type": "RuntimeError",
            "message": f"{prefix}port {5000 + rank}: " + "x" * 3000,
            "hint": None,
            "frames": [],
        }

    said = describe({rank: error(rank) for rank in range(4)}, 4)
    assert said.startswith("All 4 ranks: RuntimeError: port 5000: xxx")
    assert said.count("RuntimeError") == 1 and "characters more]" in said and len(said) < 2000
    short = {r: {"type": "ValueError", "message": f"rank {r}", "hint": None, "frames": []} for r in range(2)}
    assert describe(short, 2) == "Rank 0: ValueError: rank 0\nRank 1: ValueError: rank 1"


def test_a_recursion_without_an_end_is_said_in_a_few_lines():
    from allranks.ranks.world.failures import describe

    error = {"type": "RecursionError", "message": "too deep", "hint": None, "frames": [("f.py", 1, "f", "f()")] * 970}
    said = describe({0: error}, 2)
    assert said.count("\n") < 20
    assert said.endswith("[... 958 calls more]")


def test_a_progress_bar_is_one_line():
    from allranks.ranks.world.outputs import RankOutput

    bar = "".join(f"\r{i:3d}%|{'#' * (i // 10):10}|" for i in range(101))
    assert RankOutput(stdout="begin\r\n", stderr=f"{bar}\nend").text == "begin\n100%|##########|\nend"
    assert RankOutput(stderr=f"{bar}\r").text == "100%|##########|"


def test_ranks_that_wait_for_one_that_failed_are_not_waited_for(world):
    before = world.pids
    with pytest.raises(RanksStuck) as caught:
        world.run(one_fails)  # no deadline of its own: the default of 60 s must not be needed
    said = str(caught.value)
    assert said.startswith("Rank 2: ValueError: boo")
    assert [(s.rank, s.op, s.text) for s in caught.value.statuses] == [
        (r, "all_reduce", "dist.all_reduce(torch.ones(3))") for r in (0, 1, 3)
    ]
    assert set(before).isdisjoint(world.pids)
    assert world.run(sum_of_ranks, 0) == [[6.0] * 3] * 4


def test_after_the_deadline_each_rank_is_told_where_it_stands(world, reached):
    reached(lambda found: [(s.rank, s.op) for s in found] == [(0, "recv"), (1, "recv"), (2, "recv")])
    with pytest.raises(RanksStuck) as caught:
        world.run(ring_of_receives, deadline=1)
    assert [(s.rank, s.op) for s in caught.value.statuses] == [(0, "recv"), (1, "recv"), (2, "recv")]
    assert "rank 3: done" in str(caught.value)
    assert "line" in str(caught.value) and "dist.recv(torch.ones(3), src=(rank + 1) % size)" in str(caught.value)
    assert world.run(sum_of_ranks, 0) == [[6.0] * 3] * 4


def test_an_endless_loop_is_ended_too(world, reached):
    reached(lambda found: all("computing, line" in str(s) for s in found))

    def loop():
        while True:
            pass

    with pytest.raises(RanksStuck, match="computing"):
        world.run(loop, deadline=1)
    assert world.run(sum_of_ranks, 0) == [[6.0] * 3] * 4


@pytest.mark.core
def test_a_rank_that_dies_is_named_and_replaced(world):
    def die():
        import torch.distributed as dist

        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    with pytest.raises(RankDied, match="Rank 1 was killed by SIGKILL"):
        world.run(die)
    assert world.run(sum_of_ranks, 0) == [[6.0] * 3] * 4


def test_a_rank_killed_between_calls_is_noticed_at_the_next(world):
    os.kill(world.pids[3], signal.SIGKILL)
    until(world._engines.dead)
    with pytest.raises(RankDied, match="Rank 3 was killed by SIGKILL"):
        world.run(sum_of_ranks, 0)
    assert world.run(sum_of_ranks, 0) == [[6.0] * 3] * 4


def test_reset_gives_fresh_ranks_also_when_they_are_stopped(world):
    before = world.pids
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    world.reset()
    assert set(before).isdisjoint(world.pids)
    assert not any(psutil.pid_exists(pid) for pid in before)
    assert world.run(sum_of_ranks, 0) == [[6.0] * 3] * 4


def test_cells_share_a_namespace_on_each_rank_and_it_can_be_read(world):
    world.cell("loss = 10 * rank")
    world.cell("loss += world_size")
    assert world["loss"] == [4, 14, 24, 34]
    with pytest.raises(RanksError, match="All 4 ranks: NameError: there is no 'nothing'"):
        world["nothing"]
    with pytest.raises(WorldError, match="by its name"):
        world[0]


def test_what_a_failed_cell_held_is_let_go_at_once(world):
    """After "out of memory" its tensors would else fill the GPU also for the next, smaller try."""
    source = """
        import gc, sys, weakref
        gc.disable()

        def grow(outer=True):
            global held
            big = torch.ones(4)
            held = weakref.ref(big)
            if outer:
                raise RuntimeError("full")
            try:
                grow()
            except RuntimeError:
                raise MemoryError("full") from None

        grow({})
    """
    for outer, name in ((True, "RuntimeError"), (False, "MemoryError")):
        with pytest.raises(RanksError, match=f"All 4 ranks: {name}: full"):
            world.cell(textwrap.dedent(source).replace("{}", str(outer)))
        world.cell("gc.enable(); left = held() is not None, hasattr(sys, 'last_value')")
        assert world["left"] == [(False, False)] * 4


@pytest.mark.core
def test_tensors_come_back_and_large_arguments_go_out(world):
    import torch

    def scale(tensor):
        import torch.distributed as dist

        return tensor * dist.get_rank()

    given = torch.arange(2_000_000, dtype=torch.float32)
    for rank, got in enumerate(world.run(scale, given)):
        assert torch.equal(got, given * rank)


@pytest.mark.parametrize(
    "bad, words",
    [
        (lambda w: w.run(42), "takes a function"),
        (lambda w: w.run(lambda: w.ranks), "can't be sent to its own ranks"),
        (lambda w: w.run(sum_of_ranks, threading.Lock()), "can't be sent to the ranks"),
        (lambda w: w.run(sum_of_ranks, 0, deadline=0), "above 0"),
        (lambda w: w.run(sum_of_ranks, 0, deadline="soon"), "above 0"),
        (lambda w: World(ranks=4, launcher="slurm?"), "launcher='slurm\\?' is unknown"),
    ],
)
def test_bad_calls_are_refused_and_the_ranks_stay(world, bad, words):
    before = world.pids
    with pytest.raises(WorldError, match=words):
        bad(world)
    assert world.pids == before
    assert world.run(sum_of_ranks, 0) == [[6.0] * 3] * 4


def test_a_result_that_can_not_be_sent_is_an_error_of_the_rank(world):
    def give():
        return (i for i in range(3))

    with pytest.raises(RanksError, match="while the result was packed"):
        world.run(give)


# --------------------------------------------------------------------------- worlds of their own: start, end, ghosts


@pytest.fixture
def own_fork_server(no_ghosts):
    """A fork server in the test's own run directory, ended before its ghosts are counted."""
    before, ForkServer._current = ForkServer._current, None
    yield
    if ForkServer._current is not None:
        ForkServer._current.close()
    ForkServer._current = before


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_a_world_of_any_size_starts_and_leaves_nothing(own_fork_server, ranks):
    with World(ranks=ranks) as world:
        assert world.run(identity)[-1][1] == ranks - 1
    assert not world.running
    assert "stopped" in repr(world)
    with pytest.raises(WorldError, match="was stopped"):
        world.run(identity)
    world.stop()


def test_a_world_of_another_size_replaces_the_first(own_fork_server):
    first = World(ranks=2)
    old = first.pids
    with World(ranks=3) as second:
        assert len(second.run(identity)) == 3
        assert not first.running or first.pids == []
        assert not any(psutil.pid_exists(pid) for pid in old)


def test_an_engine_that_dies_at_start_is_one_sentence_and_no_ghost(own_fork_server, monkeypatch):
    from allranks.ranks.engines.launchers import WarmEngineLauncher

    arguments = WarmEngineLauncher.find_args
    monkeypatch.setattr(WarmEngineLauncher, "find_args", lambda self: [*arguments(self), "--IPEngine.no_such=1", "--x"])
    monkeypatch.setattr(WarmEngineLauncher, "target", "os:abort")
    with pytest.raises(WorldError, match=r"Rank \d .* before it had registered") as caught:
        World(ranks=2)
    assert "Traceback" not in str(caught.value)


def test_an_engine_that_has_died_before_anybody_looks_is_missed_too(own_fork_server, monkeypatch):
    from allranks.ranks.engines.launchers import WarmEngineLauncher
    from ipyparallel import Cluster

    start = Cluster.start_engines

    async def slowly(cluster, ranks):
        name = await start(cluster, ranks)
        deadline = time.monotonic() + 30
        while cluster.engines[name].launchers and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return name

    monkeypatch.setattr(WarmEngineLauncher, "target", "os:abort")
    monkeypatch.setattr(Cluster, "start_engines", slowly)
    with pytest.raises(WorldError, match=r"Rank 0 .* before it had registered"):
        World(ranks=2)


def test_a_run_directory_that_is_taken_is_one_sentence(no_ghosts, monkeypatch):
    taken = os.path.join(no_ghosts, "file")
    with open(taken, "w"):
        pass
    monkeypatch.setenv("ALLRANKS_RUN_DIR", taken)
    with pytest.raises(WorldError, match="ALLRANKS_RUN_DIR"):
        World(ranks=2)
    os.unlink(taken)


@pytest.mark.parametrize("how", ["exit", "exit of a Python that starts no more threads", "SIGKILL", "exception"])
def test_nothing_outlives_the_process_that_started_the_world(no_ghosts, how):
    code = f"""
        import atexit, os, signal, threading
        from allranks import World
        world = World(ranks=2)
        print(*world.pids, flush=True)
        def refuse(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        if "no more threads" in {how!r}:  # Python 3.12.0 to 3.12.2
            atexit.register(setattr, threading.Thread, "start", refuse)
        if {how!r} == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        if {how!r} == "exception":
            raise SystemExit("as asked")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert len(done.stdout.split()) == 2, done.stderr
    assert done.returncode == {"SIGKILL": -9, "exception": 1}.get(how, 0)
    if how.startswith("exit"):
        assert done.stderr == ""
    if how == "SIGKILL":  # nobody is left to remove its files: the next start does
        from allranks.base.rundir import sweep

        until(lambda: not any(psutil.pid_exists(int(pid)) for pid in done.stdout.split()))
        from pathlib import Path

        sweep(Path(no_ghosts))


def test_the_local_launcher_gives_the_same_world(no_ghosts):
    code = """
        from allranks import World
        with World(ranks=2, launcher="local") as world:
            print(world.run(lambda: __import__("torch").distributed.get_rank()))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=170)
    assert done.stdout.strip() == "[0, 1]", done.stderr

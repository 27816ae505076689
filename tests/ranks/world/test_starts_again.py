"""Ranks that start again, and how they end: NCCL's settings, the times of a slow start, and CUDA's MPS."""

import inspect
from dataclasses import fields, replace

import psutil
import pytest
from allranks import World
from allranks.ranks.engines.devices import MPS_ENV, Placement
from allranks.ranks.world import WorldError, cluster
from allranks.ranks.world.request import Request


def test_the_arguments_of_world_stand_in_one_place():
    shown = inspect.signature(World)
    names = [name for name in shown.parameters if name != "asked_backend"]
    assert names == [each.name for each in fields(Request) if each.name not in ("_", "asked_backend")]
    assert [p.kind.name for p in shown.parameters.values()] == ["POSITIONAL_OR_KEYWORD"] + ["KEYWORD_ONLY"] * 13
    assert list(inspect.signature(World.__init__).parameters)[1:] == names
    with pytest.raises(TypeError, match="unexpected keyword argument 'rank'"):
        World(rank=4)
    with pytest.raises(TypeError, match="too many positional arguments"):
        World(4, "gloo")


@pytest.mark.live
def test_settings_of_nccl_reach_the_ranks_that_start_now_and_are_said(monkeypatch):
    """An experiment sets NCCL_ALGO and starts ranks again; NCCL has read the old value for good in those that run."""

    def seen():
        import os

        return os.environ.get("NCCL_ALGO")

    monkeypatch.setenv("NCCL_ALGO", "Ring")
    with World(ranks=1) as world:
        assert world.run(seen) == ["Ring"]
        monkeypatch.setenv("NCCL_ALGO", "Tree")
        world.reset()
        assert world.run(seen) == ["Tree"]
        monkeypatch.delenv("NCCL_ALGO")
        assert World(ranks=1) is world, "gloo does not read it"
        # as on GPUs: the ranks, which have read it, are of another world now
        world._engines.placement = replace(world._placement, backend="nccl")
        assert "NCCL runs with your settings: NCCL_ALGO=Tree." in world._ready
        other = World(ranks=1)
        assert other is not world and not world.running and other.run(seen) == [None]
        assert "NCCL_ALGO" not in other._ready
        other.stop()


@pytest.mark.live
def test_ranks_under_mps_may_end_by_themselves_before_they_are_killed(tmp_path, monkeypatch):
    """A process that is killed in the middle of its work can break all other clients of CUDA's MPS."""

    def leave_word():
        import os
        import signal

        from allranks.ranks.engines import rank

        os._exit = lambda code, leave=os._exit: (word.write_text(f"{code}"), leave(code))
        signal.signal(signal.SIGTERM, rank.end_in_peace)

    word = tmp_path / "word"
    monkeypatch.setattr(cluster, "PEACE_S", 60)  # a busy machine may need more than the three seconds
    with World(ranks=1) as world:
        world.run(leave_word)
        world._engines.placement = replace(
            world._placement, fixed=({**world._placement.fixed[0], MPS_ENV: "1"},), shares=4
        )
        with pytest.raises(WorldError, match="can end other people's ranks too"):
            world.fault(0, "kill")
        (pid,) = world.pids
    assert word.read_text() == "0" and not psutil.pid_exists(pid)


class Slow:
    """An engine whose replies come after some seconds of the pretended clock."""

    def __init__(self, clock, **seconds):
        self.clock, self.seconds = clock, seconds

    def apply_async(self, function, *arguments):
        return Reply(self.clock, self.clock.now + self.seconds[function.__name__])


class Reply:
    def __init__(self, clock, at):
        self.clock, self.at = clock, at

    def ready(self):
        return self.clock.now >= self.at

    def wait(self, seconds):
        self.clock.now += 1

    def successful(self):
        return True

    def get(self):
        return {}


class Clock:
    """The module time, of which a second passes whenever somebody sleeps."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += 1


def test_a_slow_import_of_torch_is_not_blamed_on_the_gpus_links(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(cluster, "time", clock)
    monkeypatch.setattr(cluster.strangers, "sockets", lambda pid: frozenset())
    monkeypatch.setattr(cluster.strangers, "refuse", lambda *_: None)
    placed = Placement("nccl", (None,) * 2, ({}, {}), 1, local=False)
    engines = cluster.Engines(placed, "local")
    engines.directory = tmp_path
    engines._views = [Slow(clock, import_torch=200, join=80)] * 2
    engines._import()
    assert engines._join(clock.now + cluster.START_TIMEOUT_S) == [{}, {}] and clock.now >= 280
    engines._views = [Slow(clock, import_torch=400, join=80)] * 2
    with pytest.raises(
        WorldError, match=r"had imported torch after 300 s\. The first import from a network disk"
    ) as told:
        engines._import()
    assert "PCIe" not in str(told.value)
    with pytest.raises(WorldError, match=r"had joined after 90 s.* PCIe"):
        engines._views = [Slow(clock, join=100)] * 2
        engines._join(clock.now + cluster.START_TIMEOUT_S)

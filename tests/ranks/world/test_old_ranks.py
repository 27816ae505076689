"""New ranks start only when the old ones have left their GPUs; NVML's list is pretended, everything else is real."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from allranks import World
from allranks.ranks.engines import gpu_processes
from allranks.ranks.engines.devices import Gpu, Placement
from allranks.ranks.world import WorldError, cluster
from allranks.ranks.world.cluster import Engines

GPU = Gpu(0, "GPU-0", "NVIDIA H200", 150_000_000_000)


def test_a_process_is_waited_for_until_it_has_ended_and_no_gpu_lists_it(monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    looks = []

    def listed(uuids):
        looks.append(list(uuids))
        if len(looks) == 1:
            process.kill()
            process.wait()
        return {process.pid, 1} if len(looks) < 3 else {1}

    monkeypatch.setattr(gpu_processes, "listed", listed)
    assert gpu_processes.wait_until_gone([process.pid], ["GPU-0"], 20) == set()
    assert looks == [["GPU-0"]] * 3


def test_one_that_does_not_leave_is_named_after_the_limit():
    assert gpu_processes.wait_until_gone([os.getpid()], [], 0) == {os.getpid()}


def test_what_nvml_lists_is_asked_of_each_gpu(monkeypatch):
    import pynvml

    asked = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: asked.append("shutdown"))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: asked.append(uuid) or uuid)

    def running(handle):
        if handle == "GPU-1":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        return [SimpleNamespace(pid=7), SimpleNamespace(pid=8)]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", running)
    assert gpu_processes.listed(["GPU-0", "GPU-1"]) == {7, 8}
    assert asked == ["GPU-0", "GPU-1", "shutdown"]


@pytest.mark.live
def test_new_ranks_start_when_the_gpus_list_the_old_ones_no_more(monkeypatch):
    """Real ranks, of which the world believes that they are on a GPU."""
    seen = []

    def listed(uuids):
        seen.append((list(uuids), set(Engines.ended)))
        return set(Engines.ended) if len(seen) < 3 else set()

    monkeypatch.setattr(gpu_processes, "listed", listed)
    monkeypatch.setattr(Engines, "ended", set())  # other tests' worlds left theirs in it
    with World(ranks=2) as world:
        old = set(world.pids)
        placed = world._engines.placement
        world._engines.placement = Placement(placed.backend, (GPU, GPU), placed.fixed, placed.threads)
        world.reset()
        assert seen == [(["GPU-0"], old)] * 3
        assert not old & set(world.pids) and world.run(os.getpid) == world.pids
        monkeypatch.setattr(gpu_processes, "listed", lambda uuids: set(Engines.ended))
        monkeypatch.setattr(cluster, "LEAVE_S", 0)
        with pytest.raises(
            WorldError, match=r"Processes of the old ranks \(pid .*\) still hold a GPU .* call world.reset"
        ):
            world.reset()
        world._engines.placement = placed
        world.reset()
        assert len(world.run(os.getpid)) == 2
    assert not Engines.ended

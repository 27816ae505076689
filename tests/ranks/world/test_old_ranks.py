"""New ranks start only when the old ones have left their GPUs; NVML's list is pretended, everything else is real."""

import json
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


@pytest.fixture
def driver(monkeypatch):
    """NVML, and the GPUs that it has open: the driver shuts down those that nobody has (NVIDIA's page "Driver Persistence")."""
    import pynvml

    state = SimpleNamespace(users=0, open=set())

    def shutdown():
        state.users -= 1
        if not state.users:
            state.open.clear()

    def handle(uuid):
        if uuid == "GPU-9":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        state.open.add(uuid)
        return uuid

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: setattr(state, "users", state.users + 1))
    monkeypatch.setattr(pynvml, "nvmlShutdown", shutdown)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", handle)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda handle: [])
    return state


def test_gpus_stay_started_between_two_looks(driver, monkeypatch, tmp_path):
    let_go = gpu_processes.keep_initialized(["GPU-0", "GPU-9", "GPU-1"])
    assert gpu_processes.listed(["GPU-0"]) == set() and driver.open == {"GPU-0", "GPU-1"}
    let_go()
    assert driver.users == 0 and not driver.open
    # a service ends the processes that have a GPU open without a lease
    monkeypatch.setenv("ALLRANKS_GPU_SOCKET", str(tmp_path / "gpus.sock"))
    gpu_processes.keep_initialized(["GPU-0"])()
    assert driver.users == 0 and not driver.open


@pytest.mark.live
def test_a_world_keeps_its_gpus_started_as_long_as_it_has_them(driver, monkeypatch, tmp_path):
    """Else every fresh set of ranks waits until the driver has started each GPU, for 1 to 3 s."""
    inventory = tmp_path / "inventory.json"
    gpus = [{"uuid": f"GPU-{i}", "name": "Pretend", "memory_bytes": 1 << 30} for i in range(2)]
    inventory.write_text(json.dumps({"gpus": gpus, "cores": 2, "nccl": "2.30.7"}))
    monkeypatch.setenv("ALLRANKS_INVENTORY", str(inventory))
    monkeypatch.setenv("ALLRANKS_LEASES", str(tmp_path / "leases"))
    seen = []
    monkeypatch.setattr(Engines, "start", lambda self, progress: seen.append(set(driver.open)))
    world = World()
    world.reset()
    assert seen == [{"GPU-0", "GPU-1"}] * 2 and driver.open == {"GPU-0", "GPU-1"}
    world.stop()
    assert driver.users == 0 and not driver.open


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

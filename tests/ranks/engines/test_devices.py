"""Placing ranks on GPUs and cores, on pretend inventories: no GPU is needed to know what would happen with one."""

import json
import os
import re
import sys
from dataclasses import replace

import psutil
import pytest
import torch
from allranks.ranks.engines import devices, libraries, rank
from allranks.ranks.engines.devices import (
    GPU_INDEX_ENV,
    GPU_SHARE_ENV,
    MAX_RANKS,
    DeviceError,
    Driver,
    Gpu,
    Inventory,
    _visible,
    own_settings,
    place,
)
from pretend_nvml import OlderNvml, PretendNvml

H200 = 150_000_000_000


def machine(gpus: int, nccl=(2, 30, 7), cores: int = 16) -> Inventory:
    return Inventory(tuple(Gpu(i, f"GPU-{i}{i}{i}{i}-uuid", "NVIDIA H200", H200) for i in range(gpus)), cores, nccl)


def seen(placed) -> list[str]:
    """The UUID of the GPU that each rank uses, as CUDA and torch find it from the rank's environment."""
    return [e["CUDA_VISIBLE_DEVICES"].split(",")[int(e[GPU_INDEX_ENV])] for e in placed.env]


def test_each_rank_sees_all_gpus_of_its_world_and_uses_its_own():
    placed = place(8, inventory=machine(8))
    assert placed.backend == "nccl"
    everything = [f"GPU-{i}{i}{i}{i}-uuid" for i in range(8)]
    assert {e["CUDA_VISIBLE_DEVICES"] for e in placed.env} == {",".join(everything)}
    assert seen(placed) == everything
    # one index for each device, as symmetric memory wants it, and as set_device(LOCAL_RANK) of a script finds it
    assert [e[GPU_INDEX_ENV] for e in placed.env] == [e["LOCAL_RANK"] for e in placed.env]
    assert [e["RANK"] for e in placed.env] == [str(i) for i in range(8)]
    assert {e["WORLD_SIZE"] for e in placed.env} == {"8"}
    assert placed.threads == 2


@pytest.mark.parametrize(
    "ranks, backend, gpus, nccl, expected",
    [
        (None, None, 0, None, (4, "gloo")),
        (None, None, 1, (2, 30, 7), (4, "gloo")),
        (None, None, 2, (2, 27, 3), (2, "nccl")),
        (None, None, 8, (2, 30, 7), (8, "nccl")),
        (None, None, 8, None, (4, "gloo")),
        (4, None, 8, (2, 30, 7), (4, "nccl")),
        (8, None, 4, (2, 30, 7), (8, "gloo")),
        (2, "gloo", 8, (2, 30, 7), (2, "gloo")),
        (None, "nccl", 1, (2, 27, 3), (1, "nccl")),
        (1, None, 0, None, (1, "gloo")),
    ],
)
def test_the_world_size_and_backend_follow_what_is_there(ranks, backend, gpus, nccl, expected):
    placed = place(ranks, backend, machine(gpus, nccl))
    assert (placed.ranks, placed.backend) == expected


def test_gloo_ranks_see_no_gpu_and_stay_on_loopback():
    for env in place(3, "gloo", machine(8)).env:
        assert env["CUDA_VISIBLE_DEVICES"] == ""
        assert env["GLOO_SOCKET_IFNAME"].startswith("lo")


def test_nccl_2_30_shares_a_gpu_when_asked_by_name():
    placed = place(4, "nccl", machine(1))
    assert placed.backend == "nccl"
    assert {e["NCCL_MULTI_RANK_GPU_ENABLE"] for e in placed.env} == {"1"}
    assert "experimental" in placed.note
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in place(2, "nccl", machine(2)).env[0]


@pytest.mark.parametrize(
    "ranks, backend, gpus, nccl, words",
    [
        (8, "nccl", 2, (2, 27, 3), r"8 ranks on 2 GPUs: NCCL 2\.27\.3 takes one rank a GPU\. Ask for World\(ranks=2\)"),
        (2, "nccl", 0, (2, 30), "needs an NVIDIA GPU and none is visible"),
        (2, "nccl", 2, None, "built without NCCL"),
        (0, None, 0, None, "at least one rank"),
        (-3, None, 0, None, "at least one rank"),
        (10_000, None, 8, (2, 30), f"at most {MAX_RANKS}"),
        ("4", None, 0, None, "not a whole number"),
        (2.0, None, 0, None, "not a whole number"),
        (True, None, 0, None, "not a whole number"),
        (4, "mpi", 0, None, "'mpi' is unknown"),
    ],
)
def test_what_can_not_be_placed_is_refused_in_one_sentence(ranks, backend, gpus, nccl, words):
    with pytest.raises(DeviceError, match=words) as caught:
        place(ranks, backend, machine(gpus, nccl))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "setting, left",
    [(None, [0, 1, 2]), ("", []), ("2,0", [2, 0]), ("GPU-1111", [1]), ("0,9,1", [0]), ("-1", []), ("NoDevFiles", [])],
)
def test_cuda_visible_devices_is_respected(setting, left):
    assert [g.index for g in _visible(list(machine(3).gpus), setting)] == left


# ------------------------------------------------------------------------------------------ parts of GPUs

MIG = [("MIG-aaaa-0", "GPU-aaaa"), ("MIG-aaaa-1", "GPU-aaaa"), ("MIG-bbbb-0", "GPU-bbbb"), ("MIG-bbbb-1", "GPU-bbbb")]


def cut_machine(nccl=(2, 30, 7)) -> Inventory:
    gpus = (Gpu(i // 2, uuid, "NVIDIA H100 MIG 3g.40gb", 40 << 30, parent) for i, (uuid, parent) in enumerate(MIG))
    return Inventory(tuple(gpus), 16, nccl)


def test_mig_devices_are_gpus_and_what_they_are_cut_from_is_not(monkeypatch):
    nvml = PretendNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = Inventory.of_this_machine().gpus
    assert [(g.index, g.uuid, g.parent) for g in found] == [
        (0, "MIG-0000-0", "GPU-0000-0"),
        (0, "MIG-0000-3", "GPU-0000-0"),
        (1, "GPU-0000-1", None),
        (2, "GPU-0000-2", None),
    ]
    assert [g.memory_bytes >> 30 for g in found] == [40, 40, 80, 80] and nvml.open == 0
    for setting, left in (("MIG-0000-3", ["MIG-0000-3"]), ("0", ["MIG-0000-0"]), ("1,0", ["GPU-0000-1", "MIG-0000-0"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
        assert [g.uuid for g in Inventory.of_this_machine().gpus] == left


@pytest.mark.parametrize("error", ["NVMLError_NoPermission", "NVMLError_GpuIsLost", "NVMLError_Unknown"])
def test_a_gpu_of_another_job_or_a_lost_one_is_left_out(monkeypatch, error):
    class Job(PretendNvml):
        def nvmlDeviceGetHandleByIndex(self, index):
            if index == 1:
                raise getattr(self, error)
            return super().nvmlDeviceGetHandleByIndex(index)

    monkeypatch.setitem(sys.modules, "pynvml", Job())
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [g.uuid for g in Inventory.of_this_machine().gpus] == ["MIG-0000-0", "MIG-0000-3", "GPU-0000-2"]


def test_a_driver_of_which_no_gpu_answers_is_told(monkeypatch):
    class Failed(PretendNvml):
        def nvmlDeviceGetUUID(self, handle):
            raise self.NVMLError_Unknown("Unknown Error")

    monkeypatch.setitem(sys.modules, "pynvml", Failed())
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    with pytest.raises(DeviceError, match="is there, but can't list its GPUs: Unknown Error"):
        Inventory.of_this_machine()


def test_a_gpu_without_memory_of_its_own_has_the_machines(monkeypatch):
    class Spark(PretendNvml):
        def nvmlDeviceGetMemoryInfo(self, handle):
            raise self.NVMLError_NotSupported

    monkeypatch.setitem(sys.modules, "pynvml", Spark())
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert {g.memory_bytes for g in Inventory.of_this_machine().gpus} == {psutil.virtual_memory().total}


def test_the_names_of_nvml_are_those_of_its_python_module():
    import pynvml

    for name in (n for n in dir(PretendNvml) if n.startswith(("nvml", "NVML"))):
        assert hasattr(pynvml, name), name


def test_mig_devices_of_different_cards_come_first_and_those_of_one_card_share_it():
    two = place(inventory=cut_machine())
    assert (two.ranks, two.backend) == (2, "nccl")
    assert [g.uuid for g in two.gpus] == ["MIG-aaaa-0", "MIG-bbbb-0"] and two.note is None
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in two.env[0]
    four = place(4, "nccl", cut_machine())
    assert seen(four) == ["MIG-aaaa-0", "MIG-aaaa-1", "MIG-bbbb-0", "MIG-bbbb-1"]  # those of one card are neighbours
    assert [e["CUDA_VISIBLE_DEVICES"] for e in four.env] == seen(four), "CUDA shows a process one MIG device only"
    assert four.env[0]["NCCL_MULTI_RANK_GPU_ENABLE"] == "1" and "does not promise that MIG devices" in four.note
    with pytest.raises(
        DeviceError, match=r"4 ranks on 2 GPUs cut into 4 MIG devices: NCCL 2\.27.*Ask for World\(ranks=2\)"
    ):
        place(4, "nccl", cut_machine((2, 27)))
    assert place(4, inventory=cut_machine()).backend == "gloo"


@pytest.mark.parametrize(
    "ranks, gpus, uuids, crowded",
    [(4, 1, 1, True), (4, 2, 2, True), (2, 2, 2, False), (None, 3, 3, False), (None, 1, 1, False)],
)
def test_how_many_gpus_to_use_can_be_said(ranks, gpus, uuids, crowded):
    placed = place(ranks, None, machine(8), gpus=gpus)
    assert placed.backend == "nccl" and placed.ranks == (ranks or gpus)
    assert placed.gpu_count == len(set(seen(placed))) == uuids
    assert ("NCCL_MULTI_RANK_GPU_ENABLE" in placed.env[0]) == crowded


def test_a_share_of_a_gpu_caps_each_ranks_memory(monkeypatch):
    monkeypatch.delenv("ALLRANKS_GPU_SHARES", raising=False)
    placed = place(2, None, machine(8), shared=True)
    assert placed.shares == 4 and placed.gpu_count == 2 and "1/4 of each GPU's memory is yours" in placed.note
    assert [float(e[GPU_SHARE_ENV]) for e in placed.env] == [0.25, 0.25]
    monkeypatch.setenv("ALLRANKS_GPU_SHARES", "5")
    crowded = place(2, None, machine(8), gpus=1, shared=True)  # both modes at once
    assert [float(e[GPU_SHARE_ENV]) for e in crowded.env] == [0.1, 0.1]
    assert crowded.moved_to((machine(8).gpus[3],)).env[1][GPU_SHARE_ENV] == "0.100000"
    assert GPU_SHARE_ENV not in place(2, None, machine(8)).env[0]


@pytest.mark.parametrize(
    "options, there, words",
    [
        ({"gpus": 0}, 8, "gpus=0 is not a number of GPUs"),
        ({"gpus": True}, 8, "gpus=True is not"),
        ({"gpus": 9}, 8, "gpus=9: this machine has 8 GPUs"),
        ({"gpus": 1}, 0, "gpus= and shared= need an NVIDIA GPU"),
        ({"shared": True}, 0, "gpus= and shared= need an NVIDIA GPU"),
        ({"shared": True, "backend": "gloo"}, 8, "backend='gloo' runs on the CPU"),
    ],
)
def test_parts_that_can_not_be_had_are_one_sentence(options, there, words):
    with pytest.raises(DeviceError, match=words) as caught:
        place(2, inventory=machine(there), **options)
    assert "\n" not in str(caught.value)


def test_the_number_of_shares_must_be_one(monkeypatch):
    monkeypatch.setenv("ALLRANKS_GPU_SHARES", "many")
    with pytest.raises(DeviceError, match="ALLRANKS_GPU_SHARES is 'many'; it is a whole number from 1 to 64"):
        place(2, inventory=machine(8), shared=True)


def test_a_rank_tells_torch_its_share(monkeypatch):
    """Torch's own function is called with the share; on a GPU it has not been run."""
    told = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: told.append((share, device))
    )
    device = torch.device("cuda", 0)
    rank._limit_gpu_memory(None, device)
    rank._limit_gpu_memory("0.125000", device)
    assert told == [(0.125, device)]


# ------------------------------------------------------------------------------------------ the network of one machine


@pytest.mark.parametrize("backend, gpus", [("gloo", 0), ("nccl", 2)])
def test_ranks_of_one_machine_stay_on_loopback(monkeypatch, backend, gpus):
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_RAS_ENABLE"):
        monkeypatch.delenv(name, raising=False)
    for env in place(2, backend, machine(gpus)).env:
        assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")
        assert env["NCCL_RAS_ENABLE"] == "0"


def test_a_users_own_settings_reach_the_ranks_and_win(monkeypatch):
    own = {
        "GLOO_SOCKET_IFNAME": "eth7",
        "NCCL_SOCKET_IFNAME": "ib",
        "NCCL_RAS_ENABLE": "1",
        "NCCL_RAS_ADDR": "localhost:4",
        "NCCL_P2P_DISABLE": "1",
        "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
        "NCCL_MAX_CTAS": "1",
    }
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    for env in place(2, "nccl", machine(1)).env:
        assert {name: env[name] for name in own} == own


# ------------------------------------------------------------------------------------------ what torch can't use

OLD = Driver("550.54.15", (12, 4))


def judged(gpus, **about) -> Inventory:
    return Inventory(tuple(gpus), 16, (2, 30, 7), **about)._judged()


def test_a_driver_too_old_for_torch_means_the_cpu_with_a_sentence():
    old = judged(machine(2).gpus, driver=OLD, torch_cuda=(13, 2))
    placed = place(inventory=old)
    assert (placed.backend, placed.ranks) == ("gloo", 4)
    assert placed.note == (
        "The NVIDIA driver 550.54.15 runs CUDA 12.4 and older; this torch was built for CUDA 13.2 and needs driver 580 "
        "or newer. The ranks run on the CPU with gloo."
    )
    assert place(2, "gloo", old).note is None  # it was asked for
    for options in ({"backend": "nccl"}, {"gpus": 1}, {"shared": True}):
        with pytest.raises(DeviceError, match=r"needs driver 580 or newer\. Leave .* out for gloo on the CPU"):
            place(2, inventory=old, **options)


@pytest.mark.parametrize(
    "driver, built, backend",
    [
        (Driver("580.65.06", (13, 0)), (13, 2), "nccl"),  # within a major version, older drivers run newer programs
        (Driver("580.65.06", (13, 0)), (12, 8), "nccl"),
        (Driver("525.60.13", (12, 0)), (12, 8), "nccl"),
        (Driver("?", None), (13, 2), "nccl"),  # unknown is no reason
        (None, (13, 2), "nccl"),
        (OLD, None, "nccl"),
        (OLD, (13, 0), "gloo"),
        (Driver("580.65.06", (0, 0)), (13, 0), "gloo"),
    ],
)
def test_drivers_and_torch_are_compared_by_major_version(driver, built, backend):
    assert place(inventory=judged(machine(2).gpus, driver=driver, torch_cuda=built)).backend == backend


def test_a_container_without_the_drivers_library_is_told_how_to_get_it():
    bare = judged(machine(1).gpus, driver=Driver("580.65.06", (0, 0)), torch_cuda=(13, 0))
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in place(inventory=bare).note


def test_the_driver_and_its_cuda_are_read(monkeypatch):
    class Bare(PretendNvml):
        def nvmlSystemGetCudaDriverVersion_v2(self):
            raise self.NVMLError_LibraryNotFound

    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(libraries, "torch_cuda", lambda: (13, 2))
    monkeypatch.setattr(libraries, "nccl_version", lambda: (2, 30, 7))
    monkeypatch.setitem(sys.modules, "pynvml", OlderNvml())
    old = Inventory.of_this_machine()
    assert old.driver == Driver("535.183.01", (12, 2)) and not old.gpus and "driver 580" in old.refused[0]
    assert place(inventory=old).backend == "gloo"
    monkeypatch.setitem(sys.modules, "pynvml", Bare())
    assert Inventory.of_this_machine().driver.cuda == (0, 0)
    monkeypatch.setitem(sys.modules, "pynvml", PretendNvml())
    assert len(Inventory.of_this_machine().gpus) == 4


class NoNvml(PretendNvml):
    """An NVML that does not start."""

    class NVMLError_LibRmVersionMismatch(PretendNvml.NVMLError):
        pass

    def __init__(self, error):
        super().__init__()
        self.error = error

    def nvmlInit(self):
        raise getattr(self, f"NVMLError_{self.error}")("RM has detected an NVML/RM version mismatch.")


@pytest.mark.parametrize(
    "error, node, said",
    [
        ("LibRmVersionMismatch", True, "version mismatch.): `nvidia-smi` says the same. After an update"),
        ("Unknown", False, "NVML does not start"),  # WSL2 has no such node
        ("LibraryNotFound", True, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        ("LibraryNotFound", False, None),  # a machine without GPUs, or a container that was given none
        ("DriverNotLoaded", False, None),
    ],
)
def test_a_world_says_why_it_does_not_use_gpus_that_nvml_can_not_name(monkeypatch, tmp_path, error, node, said):
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    monkeypatch.delenv("ALLRANKS_GPU_SOCKET", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", NoNvml(error))
    monkeypatch.setattr(devices, "CONTROL", tmp_path if node else tmp_path / "none")
    monkeypatch.setattr(libraries, "nccl_version", lambda: (2, 30, 7))
    found = Inventory.of_this_machine()
    placed = place(inventory=found)
    assert placed.backend == "gloo" and not found.gpus
    assert said is None if placed.note is None else said in placed.note
    with pytest.raises(DeviceError, match=re.escape(said or "needs an NVIDIA GPU and none is visible here")):
        place(2, "nccl", found)


def test_a_gpu_in_mig_mode_without_devices_is_told(monkeypatch):
    class NotCut(PretendNvml):
        def nvmlDeviceGetMigMode(self, handle):
            return int(handle == ("GPU", 1)), 0

        def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, place):
            raise self.NVMLError_NotFound

    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", NotCut())
    monkeypatch.setattr(libraries, "nccl_version", lambda: (2, 30, 7))
    placed = place(inventory=Inventory.of_this_machine())
    assert placed.ranks == 2 and placed.note.startswith("GPU 1 (")
    assert placed.note.endswith("`nvidia-smi -i 1 -mig 0` ends the mode.")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert place(inventory=Inventory.of_this_machine()).note is None


def test_gpus_that_are_prohibited_or_too_old_count_as_none():
    gpus = machine(4).gpus
    mixed = judged(
        [gpus[0], replace(gpus[1], mode="prohibited"), replace(gpus[2], capability=(7, 0)), gpus[3]], torch_cuda=(13, 0)
    )
    assert [g.index for g in mixed.gpus] == [0, 3]
    assert "compute mode 'prohibited'" in mixed.refused[0] and "capability 7.0" in mixed.refused[1]
    assert place(inventory=mixed).ranks == 2
    assert place(inventory=mixed).note == " ".join(mixed.refused)
    assert place(2, inventory=mixed).note is place(inventory=mixed, gpus=2).note is None, "they were asked for"
    left = judged([replace(gpu, mode="prohibited") for gpu in gpus[:2]])
    assert (place(inventory=left).backend, place(inventory=left).ranks) == ("gloo", 4)
    with pytest.raises(DeviceError, match="nvidia-smi -i 0 -c DEFAULT"):
        place(2, "nccl", left)


def test_the_compute_mode_is_read_and_a_gpu_that_does_not_say_is_shared(monkeypatch):
    class Modes(PretendNvml):
        def nvmlDeviceGetMigMode(self, handle):
            raise self.NVMLError_NotSupported

        def nvmlDeviceGetComputeMode(self, handle):
            if handle == ("GPU", 2):
                raise self.NVMLError_NotSupported
            return self.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if handle == ("GPU", 0) else self.NVML_COMPUTEMODE_PROHIBITED

    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", Modes())
    found = Inventory.of_this_machine()
    assert [(g.index, g.mode, g.capability) for g in found.gpus] == [(0, "exclusive", (9, 0)), (2, "shared", (9, 0))]
    assert "GPU 1" in found.refused[0]


def test_an_exclusive_gpu_takes_one_rank_unless_mps_serves_it():
    alone = [replace(gpu, mode="exclusive") for gpu in machine(2).gpus]
    assert place(inventory=judged(alone)).backend == "nccl"
    with pytest.raises(DeviceError, match=r"GPU 0 .* exclusive compute mode: .* Ask for World\(ranks=2\), or let its"):
        place(4, "nccl", judged(alone))
    with pytest.raises(DeviceError, match=r"exclusive compute mode: .* Leave out shared="):
        place(2, inventory=judged(alone), shared=True)
    assert place(4, "nccl", judged(alone, mps=True)).ranks == place(4, inventory=judged(alone, mps=True), gpus=2).ranks


# ------------------------------------------------------------------------------------------ several ranks on one GPU


@pytest.mark.parametrize("ranks, gpus, ctas, promised", [(2, 1, "4", True), (4, 1, "2", False), (16, 1, "1", False)])
def test_the_ranks_of_one_gpu_get_few_blocks_each(monkeypatch, ranks, gpus, ctas, promised):
    monkeypatch.delenv("NCCL_MAX_CTAS", raising=False)
    monkeypatch.delenv("NCCL_MAX_NCHANNELS", raising=False)
    placed = place(ranks, "nccl", machine(gpus))
    assert {env["NCCL_MAX_CTAS"] for env in placed.env} == {ctas} and f"NCCL_MAX_CTAS={ctas}" in placed.note
    assert ("NCCL promises 2 ranks a GPU" not in placed.note) == promised
    assert "NCCL_MAX_CTAS" not in place(2, inventory=machine(2)).env[0]
    monkeypatch.setenv("NCCL_MAX_NCHANNELS", "1")
    assert "NCCL_MAX_CTAS" not in place(ranks, "nccl", machine(gpus)).env[0]


def test_the_note_says_whether_mps_runs(monkeypatch):
    assert "Without CUDA's MPS they take turns" in place(2, "nccl", machine(1)).note
    assert "MPS runs: they use it at the same time" in place(2, "nccl", judged(machine(1).gpus, mps=True)).note
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    with pytest.raises(DeviceError, match="NCCL_NVLS_ENABLE=1 is set"):
        place(2, "nccl", machine(1))
    assert place(2, "nccl", machine(2)).note is None


@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_a_world_has_a_rank_on_each_gpu(gpus):
    placed = place(inventory=machine(gpus))
    assert (placed.ranks, placed.backend, placed.gpu_count, placed.note) == (gpus, "nccl", gpus, None)


def test_a_lease_on_two_parts_of_one_gpu_allows_that_to_nccl():
    inventory = cut_machine()
    two = place(inventory=inventory)
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in two.moved_to((inventory.gpus[1], inventory.gpus[2])).env[0]
    assert two.moved_to(inventory.gpus[:2]).env[0]["NCCL_MULTI_RANK_GPU_ENABLE"] == "1"


@pytest.mark.parametrize("ranks, gpus, blocks", [(4, 2, "0011"), (5, 2, "00011"), (8, 3, "00011122"), (3, 3, "012")])
def test_ranks_that_share_a_gpu_are_neighbours_and_have_no_nvls(monkeypatch, ranks, gpus, blocks):
    """NCCL 2.30.7 compares neighbouring ranks, and of these only the last pair, before it uses NVLS (init.cc)."""
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)
    there = machine(8).gpus
    for placed in (
        place(ranks, None, machine(8), gpus=gpus),
        place(ranks, None, machine(8), gpus=gpus).moved_to(there[-gpus:]),
    ):
        first = placed.gpus[0].index
        assert "".join(str(gpu.index - first) for gpu in placed.gpus) == blocks
        assert {e.get("NCCL_NVLS_ENABLE") for e in placed.env} == {"0" if ranks > gpus else None}


def test_a_rank_never_sees_a_gpu_that_its_world_does_not_hold():
    leased = machine(8).gpus[5:7]
    moved = place(2, inventory=machine(8)).moved_to(leased)
    assert {e["CUDA_VISIBLE_DEVICES"] for e in moved.env} == {"GPU-5555-uuid,GPU-6666-uuid"}
    assert seen(moved) == [gpu.uuid for gpu in leased]


def test_settings_of_nccl_are_those_of_now_and_not_of_the_first_start(monkeypatch):
    for name in [name for name in os.environ if name.startswith("NCCL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_VERSION", "2.28.9-1")  # of an image of NVIDIA's: NCCL does not read it
    placed = place(2, "nccl", machine(2))
    assert placed.env[0]["NCCL_ALGO"] == "Ring" and own_settings() == {"NCCL_ALGO": "Ring"}
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    assert [e["NCCL_ALGO"] for e in placed.env] == ["Tree", "Tree"]
    monkeypatch.delenv("NCCL_ALGO")
    assert "NCCL_ALGO" not in placed.env[0] and "NCCL_VERSION" not in placed.env[0]
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "2")
    with pytest.raises(DeviceError, match="NCCL_NVLS_ENABLE=2 is set"):
        assert place(4, None, machine(2), gpus=2).env


def test_who_shares_cudas_mps_is_told_what_a_kill_does():
    shared = place(2, inventory=judged(machine(2).gpus, mps=True), shared=True)
    assert "a rank of theirs that is killed in the middle of its work can end yours" in shared.note and shared.mps
    assert not place(2, inventory=machine(2), shared=True).mps


# ------------------------------------------------------------------------------------------ numbers of GPUs, and WSL2


class Job(PretendNvml):
    """Four whole GPUs in another order than that of PCI; the first in it belongs to another job. Two models."""

    BUS = (48, 32, 64, 16)

    def nvmlDeviceGetCount(self):
        return 4

    def nvmlDeviceGetHandleByIndex(self, index):
        if index == 3:
            raise self.NVMLError_NoPermission
        return ("GPU", index)

    def nvmlDeviceGetMigMode(self, handle):
        raise self.NVMLError_NotSupported

    def nvmlDeviceGetPciInfo(self, handle):
        return type("Pci", (), {"domain": 0, "bus": self.BUS[handle[1]], "device": 0})

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H100" if handle[1] else "NVIDIA T4"


@pytest.mark.parametrize(
    "setting, order, uuids, unclear",
    [
        (None, None, [1, 0, 2], False),
        ("0", "PCI_BUS_ID", [1], False),
        ("0", None, [1], True),
        ("0", "FASTEST_FIRST", [1], True),
        ("2,0", None, [2, 1], True),
        ("0,1,2", None, [1, 0, 2], False),  # all of them
        ("GPU-0000-2", None, [2], False),
        ("", None, [], False),
    ],
)
def test_numbers_of_gpus_are_those_of_pci_and_said_to_be(monkeypatch, setting, order, uuids, unclear):
    monkeypatch.setitem(sys.modules, "pynvml", Job())
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    for name, value in (("CUDA_VISIBLE_DEVICES", setting), ("CUDA_DEVICE_ORDER", order)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    found = Inventory.of_this_machine()
    assert [g.uuid for g in found.gpus] == [f"GPU-0000-{i}" for i in uuids]
    assert bool(found.unclear) == unclear
    placed = place(1, "nccl", replace(found, nccl=(2, 30, 7))) if uuids else None
    if placed:
        assert placed.env[0]["CUDA_DEVICE_ORDER"] == (order or "PCI_BUS_ID")
        assert placed.env[0]["CUDA_VISIBLE_DEVICES"] == f"GPU-0000-{uuids[0]}"
        assert ("CUDA_DEVICE_ORDER=PCI_BUS_ID" in (placed.note or "")) == unclear


def test_numbers_of_equal_gpus_are_clear(monkeypatch):
    class Alike(Job):
        def nvmlDeviceGetName(self, handle):
            return "NVIDIA H100"

    monkeypatch.setitem(sys.modules, "pynvml", Alike())
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert Inventory.of_this_machine().unclear is None


def test_on_wsl2_nccl_works_without_p2p():
    here = judged(machine(2).gpus, wsl=True)
    placed = place(inventory=here)
    assert {env["NCCL_P2P_DISABLE"] for env in placed.env} == {"1"} and "WSL2 has no P2P" in placed.note
    assert "NCCL_P2P_DISABLE" not in place(inventory=machine(2)).env[0]
    old = judged(machine(2).gpus, wsl=True, driver=OLD, torch_cuda=(13, 0))
    assert "needs driver 580 or newer on Windows" in place(inventory=old).note


def test_a_pretend_inventory_can_have_all_of_it(tmp_path, monkeypatch):
    gpu = {"uuid": "GPU-a", "name": "Pretend", "memory_bytes": 1 << 30, "mode": "exclusive", "capability": "9.0"}
    about = {"gpus": [gpu], "nccl": "2.30.7", "driver": "580.65.06", "driver_cuda": "13.0", "torch_cuda": "13.2"}
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(about | {"wsl": True, "mps": True}))
    monkeypatch.setenv("ALLRANKS_INVENTORY", str(file))
    found = Inventory.of_this_machine()
    assert found.gpus == (Gpu(0, "GPU-a", "Pretend", 1 << 30, None, "exclusive", (9, 0)),)
    assert found.driver == Driver("580.65.06", (13, 0)) and found.torch_cuda == (13, 2) and found.wsl and found.mps
    file.write_text(json.dumps(about | {"driver_cuda": "12.8"}))
    assert not Inventory.of_this_machine().gpus and "driver 580" in Inventory.of_this_machine().refused[0]

"""Placing ranks on GPUs and cores, on pretend inventories: no GPU is needed to know what would happen with one."""

import sys

import psutil
import pytest
import torch
from allranks.engines import rank
from allranks.engines.devices import GPU_SHARE_ENV, MAX_RANKS, DeviceError, Gpu, Inventory, _visible, place

H200 = 150_000_000_000


def machine(gpus: int, nccl=(2, 30, 7), cores: int = 16) -> Inventory:
    return Inventory(tuple(Gpu(i, f"GPU-{i}{i}{i}{i}-uuid", "NVIDIA H200", H200) for i in range(gpus)), cores, nccl)


def test_each_rank_sees_its_own_gpu_only():
    placed = place(8, inventory=machine(8))
    assert placed.backend == "nccl"
    assert [e["CUDA_VISIBLE_DEVICES"] for e in placed.env] == [f"GPU-{i}{i}{i}{i}-uuid" for i in range(8)]
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


class PretendNvml:
    """NVML's answers, as a stand-in for its Python module: GPU 0 in MIG mode with 2 of 7 parts made, GPU 1 whole, GPU 2 too old.

    It shows that what the driver says would be read rightly; no driver was asked.
    """

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    class NVMLError_NotFound(NVMLError):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    class NVMLError_NoPermission(NVMLError):
        pass

    class NVMLError_GpuIsLost(NVMLError):
        pass

    def __init__(self):
        self.open = 0

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return 3

    def nvmlDeviceGetHandleByIndex(self, index):
        return ("GPU", index)

    def nvmlDeviceGetMigMode(self, handle):
        if handle == ("GPU", 2):
            raise self.NVMLError_NotSupported
        return [1, 1] if handle == ("GPU", 0) else [0, 1]  # GPU 1 will be in MIG mode after its next reset

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, place):
        if place not in (0, 3):
            raise self.NVMLError_NotFound
        return ("MIG", place)

    def nvmlDeviceGetUUID(self, handle):
        return f"{handle[0]}-0000-{handle[1]}"

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H100 MIG 3g.40gb" if handle[0] == "MIG" else "NVIDIA H100"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return type("Memory", (), {"total": (40 if handle[0] == "MIG" else 80) << 30})


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


@pytest.mark.parametrize("error", ["NVMLError_NoPermission", "NVMLError_GpuIsLost"])
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
    assert sorted(e["CUDA_VISIBLE_DEVICES"] for e in four.env) == sorted(uuid for uuid, _ in MIG)
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
    assert placed.gpu_count == len({e["CUDA_VISIBLE_DEVICES"] for e in placed.env}) == uuids
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

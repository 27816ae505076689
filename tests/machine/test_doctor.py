"""The doctor: each check can pass, and each has a machine on which it warns or fails, and says how to fix it."""

import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from allranks import doctor
from allranks.machine.doctor import GIB
from allranks.ranks.engines.devices import Driver, Gpu, Inventory
from allranks.ranks.engines.leases import Ledger
from pretend_nvml import PretendNvml

NONE = Inventory((), 4, None)
TWO = Inventory(tuple(Gpu(i, f"GPU-{i}", "NVIDIA H200", 150 * GIB) for i in range(2)), 16, (2, 30, 7))


OLD = Inventory(TWO.gpus, 16, (2, 30, 7), driver=Driver("550.54.15", (12, 4)), torch_cuda=(13, 2))._judged()
PCIE = ["0-1 PCIe (one host bridge)"]


def refuse(ranks, backend):
    raise RuntimeError("no world today\nsecond line")


BAD = {
    "python": (lambda: doctor.python((3, 10, 4)), "fail", "3.11"),
    "packages missing": (lambda: doctor.packages(["no-such-package>=1"]), "fail", "make setup"),
    "packages old": (lambda: doctor.packages(["torch>=99"]), "fail", "make setup"),
    "gpus": (lambda: doctor.gpus(NONE, lambda: True), "fail", "nvidia-smi"),
    "gpus refused": (lambda: doctor.gpus(OLD), "fail", "driver 580 or newer"),
    "gpus unclear": (lambda: doctor.gpus(replace(TWO, unclear="Say it by UUID.")), "warn", "by UUID"),
    "gpus wsl": (lambda: doctor.gpus(replace(NONE, wsl=True), lambda: True), "fail", "driver on Windows"),
    "nccl": (lambda: doctor.nccl(Inventory(TWO.gpus, 16, None)), "fail", "TORCH=gpu"),
    "cuda": (lambda: doctor.cuda(TWO, 12, "13.2"), "fail", "driver"),
    "cuda refused": (lambda: doctor.cuda(OLD), "fail", "Install NVIDIA driver 580 or newer; until then"),
    "cuda bare": (lambda: doctor.cuda(TWO, 0, "13.2"), "fail", "NVIDIA_DRIVER_CAPABILITIES"),
    "cuda unknown": (lambda: doctor.cuda(replace(TWO, torch_cuda=(13, 0))), "warn", "does not say"),
    "iommu": (lambda: doctor.iommu(TWO, PCIE, True), "warn", "NCCL_P2P_DISABLE"),
    "links": (lambda: doctor.links(TWO, ["0-1 PCIe (across sockets)"]), "warn", "PCIe"),
    "cores": (lambda: doctor.cores(1), "warn", "two cores"),
    "memory low": (lambda: doctor.memory(3 * GIB), "warn", "ranks=2"),
    "memory none": (lambda: doctor.memory(GIB), "fail", "2 GiB"),
    "shared memory": (lambda: doctor.shared_memory(64 << 20), "warn", "--shm-size"),
    "locked memory": (lambda: doctor.locked_memory(64 << 10, TWO), "warn", "memlock"),
    "open files": (lambda: doctor.open_files(256), "warn", "ulimit -n"),
    "processes": (lambda: doctor.processes(100), "warn", "ulimit -u"),
    "forking": (lambda: doctor.forking(False), "warn", "15 s"),
    "disk low": (lambda: doctor.disk({"/a": 100 * GIB, "/b": GIB // 2}), "warn", "/b"),
    "disk full": (lambda: doctor.disk({"/a": 1}), "fail", "/a"),
    "loopback": (lambda: doctor.loopback("192.0.2.1"), "fail", "127.0.0.1"),
    "sandbox missing": (lambda: doctor.sandbox(""), "warn", "apt install bubblewrap"),
    "sandbox without filters": (lambda: doctor.sandbox("/bin/true", "no.so"), "warn", "apt install libseccomp2"),
    "sandbox forbidden": (lambda: doctor.sandbox("/bin/false"), "warn", "What a submission can and can't do"),
    "widgets": (lambda: doctor.widgets([Path("/nonexistent")]), "fail", "make setup"),
    "kernel": (lambda: doctor.kernel("/usr/bin/env"), "warn", "ipykernel install"),
    "clock": (lambda: doctor.clock(3600.0), "warn", "chrony"),
    "world broken": (lambda: doctor.world(refuse, NONE), "fail", "World(ranks=2)"),
    "world wrong": (lambda: doctor.world(lambda ranks, backend: [1.0, 2.0], NONE), "fail", "report"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named_with_its_fix(name):
    check, status, words = BAD[name]
    found = check()
    assert found.status == status
    assert words in found.fix
    assert found.found and "\n" not in found.found + found.fix
    assert found.name == " ".join(w for w in name.split() if w in found.name.split())


def test_the_run_directory_must_be_private(short_path, monkeypatch):
    (short_path / "r").mkdir(mode=0o755)
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(short_path / "r"))
    found = doctor.run_directory()
    assert found.status == "fail" and "chmod 700" in found.fix


def test_an_exchange_that_students_can_not_write_is_named(tmp_path):
    tmp_path.chmod(0o755)
    found = doctor.exchange(tmp_path)
    assert found.status == "warn" and "chmod" in found.fix
    tmp_path.chmod(0o777)
    assert doctor.exchange(tmp_path).status == "pass"
    assert doctor.exchange(tmp_path / "none").status == "pass"


def test_every_check_has_a_test_that_makes_it_fail():
    here = {name.split()[0] for name in BAD} | {"run", "exchange"}
    assert {check.__name__.split("_")[0] for check in doctor.CHECKS} == here
    assert len(doctor.CHECKS) >= 15


@pytest.mark.parametrize(
    "check, words",
    [
        (lambda: doctor.gpus(TWO), "0: NVIDIA H200 (150 GiB), 1:"),
        (lambda: doctor.gpus(NONE, lambda: False), "gloo"),
        (lambda: doctor.nccl(TWO), "2.30.7: one rank a GPU, several"),
        (lambda: doctor.nccl(Inventory(TWO.gpus, 16, (2, 27, 3))), "2.27.3: one rank a GPU"),
        (lambda: doctor.cuda(TWO, 13, "13.2"), "CUDA 13"),
        (lambda: doctor.links(TWO, ["0-1 NVLink"]), "0-1 NVLink"),
        (lambda: doctor.locked_memory(resource.RLIM_INFINITY, TWO), "unlimited"),
        (lambda: doctor.world(lambda ranks, backend: [2.0, 2.0], NONE), "two ranks"),
        (lambda: doctor.nccl(replace(TWO, mps=True)), "NCCL promises 2); CUDA's MPS runs"),
        (
            lambda: doctor.cuda(replace(OLD, driver=Driver("580.65.06", (13, 0)))),
            "driver for CUDA 13, torch built with 13.2",
        ),
        (lambda: doctor.gpus(replace(TWO, gpus=(replace(TWO.gpus[0], mode="exclusive"),))), "exclusive: one process"),
        (lambda: doctor.gpus(replace(TWO, wsl=True)), "on WSL2: NCCL works without P2P"),
        (lambda: doctor.iommu(TWO, PCIE, False), "leaves the GPUs' addresses alone"),
        (lambda: doctor.iommu(TWO, ["0-1 NVLink"], True), "no P2P over PCIe"),
        (lambda: doctor.iommu(TWO, ["0-1 PCIe (one host bridge, no P2P)"], True), "no P2P over PCIe"),
        (lambda: doctor.iommu(replace(TWO, gpus=TWO.gpus[:1])), "no P2P over PCIe"),
    ],
)
def test_a_machine_in_order_passes(check, words):
    found = check()
    assert found.status == "pass" and not found.fix
    assert words in found.found


class Links(PretendNvml):
    """Three GPUs: 0 and 1 with NVLink, 2 on another socket. Only those that were asked for by their UUID have handles."""

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return {"GPU-0": 0, "GPU-1": 1, "GPU-2": 2, "GPU-a": 0, "GPU-b": 2}[uuid]

    def nvmlDeviceGetHandleByIndex(self, index):
        raise AssertionError("numbers are not those of CUDA_VISIBLE_DEVICES")

    def nvmlDeviceGetP2PStatus(self, one, other, index):
        if index == 0:
            return 0 if {one, other} == {0, 1} else 1
        return 0 if {one, other} == {0, 1} else 5

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        return 50

    def nvmlDeviceGetPciInfo(self, handle):
        return type("Pci", (), {"domain": 0, "bus": 0x41 + handle, "device": 0})


class Silent(Links):
    """As NVML under WSL2: it does not tell of links."""

    def nvmlDeviceGetP2PStatus(self, one, other, index):
        raise self.NVMLError_NotSupported

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        raise self.NVMLError_NotSupported


class Closed(Links):
    """Where the GPU service keeps a GPU's node closed until somebody has leased it."""

    def nvmlDeviceGetHandleByUUID(self, uuid):
        raise self.NVMLError_NoPermission


def gpus_of(*uuids, parents=None):
    parents = parents or [None] * len(uuids)
    return Inventory(
        tuple(Gpu(i, u, "H100", GIB, parent) for i, (u, parent) in enumerate(zip(uuids, parents, strict=True))),
        4,
        (2, 30),
    )


@pytest.mark.parametrize(
    "nvml, inventory, status, words",
    [
        (Links, gpus_of("GPU-0", "GPU-1"), "pass", "0-1 NVLink"),
        (Links, gpus_of("GPU-2", "GPU-1"), "warn", "0-1 PCIe (across sockets, no P2P)"),  # CUDA_VISIBLE_DEVICES=2,1
        (
            Links,
            gpus_of("MIG-0", "MIG-1", "MIG-2", parents=["GPU-a", "GPU-a", "GPU-b"]),
            "warn",
            "1-2 PCIe (across sockets, no P2P); these are whole GPUs",
        ),
        (
            Links,
            gpus_of("MIG-0", "MIG-1", parents=["GPU-a", "GPU-a"]),
            "pass",
            "fewer than two GPUs, cut into MIG devices",
        ),
        (Silent, gpus_of("GPU-0", "GPU-1"), "warn", "0-1 PCIe (unknown)"),
        (Closed, gpus_of("GPU-0", "GPU-1"), "pass", "NVML can't look at the GPUs, which nobody has leased"),
    ],
)
def test_links_are_those_of_the_gpus_that_may_be_used(monkeypatch, nvml, inventory, status, words):
    library = nvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    found = doctor.links(inventory)
    assert found.status == status and words in found.found and library.open == 0


def test_the_names_that_links_asks_for_are_those_of_nvmls_module():
    import pynvml

    for name in (n for n in dir(Links) if n.startswith(("nvml", "NVML"))):
        assert hasattr(pynvml, name), name


def test_the_kernel_says_whether_the_iommu_translates(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", Links())
    cards = {"GPU-0": 0, "GPU-1": 1}
    assert not doctor._is_translated(cards, tmp_path)  # no IOMMU
    for bus, kind in (("41", "identity"), ("42", "identity")):
        (tmp_path / f"0000:{bus}:00.0" / "iommu_group").mkdir(parents=True)
        (tmp_path / f"0000:{bus}:00.0" / "iommu_group" / "type").write_text(f"{kind}\n")
    assert not doctor._is_translated(cards, tmp_path)
    (tmp_path / "0000:42:00.0" / "iommu_group" / "type").write_text("DMA-FQ\n")
    assert doctor._is_translated(cards, tmp_path)


@pytest.fixture
def leases(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_LEASES", str(tmp_path))


@pytest.mark.parametrize("gpus, ranks", [(1, 1), (2, 2), (8, 2)])
def test_with_gpus_the_last_check_is_one_of_nccl(leases, gpus, ranks):
    asked = []

    def start(*request):
        asked.append(request)
        return [float(ranks)] * ranks

    found = doctor.world(start, gpus_of(*(f"GPU-{i}" for i in range(gpus))))
    assert found.status == "pass" and asked == [(ranks, "nccl")]
    assert found.found.startswith(
        f"{ranks} rank{'s'[: ranks - 1]} of NCCL 2.30, one on each GPU, started and added in "
    )


def test_an_nccl_that_fails_is_told_from_a_world_that_fails(leases):
    def start(ranks, backend):
        if backend == "nccl":
            raise RuntimeError("no peer")
        return [2.0, 2.0]

    found = doctor.world(start, TWO)
    assert (found.status, found.found) == (
        "fail",
        "NCCL: no peer",
    ) and "World(backend='gloo') works meanwhile" in found.fix
    assert doctor.world(refuse, TWO).found == "no world today"
    asked = []
    doctor.world(lambda *request: asked.append(request) or [2.0, 2.0], Inventory(TWO.gpus, 4, None))
    doctor.world(lambda *request: asked.append(request) or [2.0, 2.0], OLD)
    assert asked == [(2, "gloo"), (2, "gloo")]


def test_the_last_check_does_not_wait_for_gpus_of_others(leases):
    asked = []

    def start(ranks, backend):
        asked.append((ranks, backend))
        return [float(ranks)] * ranks

    with Ledger(TWO.gpus).acquire(1):
        doctor.world(start, TWO)
        with Ledger(TWO.gpus).acquire(1, shares=2):
            found = doctor.world(start, TWO)
    assert asked == [(1, "nccl"), (2, "gloo")]
    assert found.status == "warn" and "allranks gpus" in found.fix and "NCCL was not tried" in found.found


def test_a_check_that_raises_is_a_failed_one(monkeypatch):
    def broken_check():
        raise OSError("as asked")

    monkeypatch.setattr(doctor, "CHECKS", (broken_check,))
    (found,) = doctor.examine()
    assert (found.name, found.status) == ("broken check", "fail")
    assert "as asked" in found.found


@pytest.mark.live
def test_the_command_prints_one_json_object_and_starts_a_real_world(no_ghosts):
    done = subprocess.run([sys.executable, "-m", "allranks.cli", "doctor", "--json"], capture_output=True, text=True)
    checks = json.loads(done.stdout)["checks"]
    assert [c["name"] for c in checks] == [c.__name__.replace("_", " ") for c in doctor.CHECKS]
    assert {c["status"] for c in checks} <= {"pass", "warn", "fail"}
    assert done.returncode == int(any(c["status"] == "fail" for c in checks))
    of = {c["name"]: c for c in checks}
    assert of["world"]["status"] == of["packages"]["status"] == of["widgets"]["status"] == "pass", checks


@pytest.mark.live
def test_for_a_reader_it_is_one_line_a_check(no_ghosts):
    done = subprocess.run([sys.executable, "-m", "allranks.cli", "doctor"], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if "->" not in line]
    assert len(lines) == len(doctor.CHECKS)
    assert all(line.split()[0] in ("pass", "warn", "FAIL") for line in lines)

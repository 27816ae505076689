"""The doctor: each check can pass, and each has a machine on which it warns or fails, and says how to fix it."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from allranks import doctor
from allranks.doctor import GIB
from allranks.engines.devices import Gpu, Inventory

NONE = Inventory((), 4, None)
TWO = Inventory(tuple(Gpu(i, f"GPU-{i}", "NVIDIA H200", 150 * GIB) for i in range(2)), 16, (2, 30, 7))


def refuse():
    raise RuntimeError("no world today\nsecond line")


BAD = {
    "python": (lambda: doctor.python((3, 10, 4)), "fail", "3.11"),
    "packages missing": (lambda: doctor.packages(["no-such-package>=1"]), "fail", "make setup"),
    "packages old": (lambda: doctor.packages(["torch>=99"]), "fail", "make setup"),
    "gpus": (lambda: doctor.gpus(NONE, lambda: True), "fail", "nvidia-smi"),
    "nccl": (lambda: doctor.nccl(Inventory(TWO.gpus, 16, None)), "fail", "TORCH=gpu"),
    "cuda": (lambda: doctor.cuda(TWO, 12, "13.2"), "fail", "driver"),
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
    "world broken": (lambda: doctor.world(refuse), "fail", "World(ranks=2)"),
    "world wrong": (lambda: doctor.world(lambda: [1.0, 2.0]), "fail", "report"),
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
        (lambda: doctor.world(lambda: [2.0, 2.0]), "two ranks"),
    ],
)
def test_a_machine_in_order_passes(check, words):
    found = check()
    assert found.status == "pass" and not found.fix
    assert words in found.found


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

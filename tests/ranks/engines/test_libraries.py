"""What torch and the driver are, asked without torch and without CUDA; the last tests ask the real NCCL of a CUDA wheel."""

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import c_libraries
import pytest
from allranks.ranks.engines import libraries
from allranks.ranks.engines.devices import Gpu, Inventory, place


@pytest.mark.parametrize(
    "line, cuda",
    [
        ("cuda: Optional[str] = '13.2'", (13, 2)),
        ("cuda = '12.8'", (12, 8)),
        ('cuda: str | None = "13"', (13,)),
        ("cuda: Optional[str] = None", None),
        ("__version__ = '2.13.0+cu132'", None),
    ],
)
def test_torchs_cuda_is_read_from_its_text(tmp_path, line, cuda):
    (tmp_path / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\nhip: Optional[str] = None\n")
    assert libraries.torch_cuda(tmp_path) == cuda


def test_torch_is_found_without_importing_it():
    code = (
        "import sys; from allranks.ranks.engines import libraries as l;"
        "print(l.torch_folder(), l.torch_cuda(), l.nccl_version(), 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    import torch

    assert Path(said[0]) == Path(torch.__file__).parent and said[-1] == "False"
    assert libraries.torch_cuda() == (tuple(map(int, torch.version.cuda.split("."))) if torch.version.cuda else None)
    if torch.version.cuda is None:
        assert libraries.nccl_version() is None  # whatever packages of NCCL are installed beside it


@pytest.mark.parametrize(
    "code, version", [(23007, (2, 30, 7)), (22809, (2, 28, 9)), (2708, (2, 7, 8)), (2804, (2, 8, 4))]
)
def test_nccls_number_is_a_version(code, version):
    assert libraries._decoded(code) == version


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A folder like torch's, whose library needs a libnccl.so.2; and how to make one of a version somewhere."""
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)

    def nccl(folder: str, version: int) -> Path:
        return c_libraries.nccl(tmp_path / folder, version)

    def torch(*options: str) -> Path:
        first = nccl("first", 20000)
        place = tmp_path / "torch" / "lib" / "libtorch_cuda.so"
        c_libraries.library(place, c_libraries.NEEDS_NCCL, str(first), *options)
        first.unlink()
        return tmp_path / "torch"

    return torch, nccl


RPATH = ("-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib", "-Wl,--disable-new-dtags")


def test_the_library_that_torch_loads_is_asked(built, monkeypatch, tmp_path):
    torch, nccl = built
    folder = torch(*RPATH)
    wheel, system, preloaded = nccl("nvidia/nccl/lib", 23007), nccl("system", 22900), nccl("mine", 23102)
    monkeypatch.setattr(metadata, "version", lambda name: "1.2.3")  # what pip says counts no longer
    assert libraries.nccl_version(folder) == (2, 30, 7)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(system.parent))
    assert libraries.nccl_version(folder) == (2, 30, 7)  # an RPATH comes first
    monkeypatch.setenv("LD_PRELOAD", str(preloaded))
    assert libraries.nccl_version(folder) == (2, 31, 2)
    monkeypatch.delenv("LD_PRELOAD")
    wheel.unlink()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path / 'nothing'}:{system.parent}")
    assert libraries.nccl_version(folder) == (2, 29, 0)


def test_of_two_nccls_in_a_process_the_one_that_torch_calls_is_named(built, tmp_path):
    """Below LD_PRELOAD, torch 2.11 maps its own NCCL too, and says for which it was built."""
    torch, nccl = built
    folder = torch(*RPATH)
    wheel, preloaded = nccl("nvidia/nccl/lib", 22809), nccl("mine", 23007)
    code = (
        f"import ctypes; ctypes.CDLL({str(wheel)!r}); ctypes.CDLL({str(folder / 'lib' / 'libtorch_cuda.so')!r}); "
        f"from allranks.ranks.engines import libraries; print(*libraries.nccl_in_use())"
    )
    for more, said in (({}, f"(2, 28, 9) {wheel}"), ({"LD_PRELOAD": str(preloaded)}, f"(2, 30, 7) {preloaded}")):
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **more}, capture_output=True, text=True)
        assert done.stdout.strip() == said, done.stderr
    assert libraries.nccl_in_use(tmp_path / "no maps") is None


def test_a_runpath_comes_after_the_users_folders(built, monkeypatch):
    torch, nccl = built
    folder = torch("-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib", "-Wl,--enable-new-dtags")
    nccl("nvidia/nccl/lib", 23007)
    assert libraries.nccl_version(folder) == (2, 30, 7)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nccl("system", 22900).parent))
    assert libraries.nccl_version(folder) == (2, 29, 0)


def test_an_nccl_that_can_not_be_asked_has_its_packages_version(built, monkeypatch):
    torch, _ = built
    folder = torch(*RPATH)  # and there is no libnccl.so.2
    if ctypes.util.find_library("nccl"):
        pytest.skip("this system has an NCCL of its own")

    def version(name):
        if name == "nvidia-nccl-cu13":
            raise metadata.PackageNotFoundError
        return "2.27.5"

    monkeypatch.setattr(metadata, "version", version)
    assert libraries.nccl_version(folder) == (2, 27, 5)


def test_an_nccl_inside_torch_is_asked_through_torch(built, tmp_path, monkeypatch):
    """A torch.cuda.nccl of our own stands for one: to build a torch with NCCL inside takes hours."""
    torch, _ = built
    folder = torch(*RPATH)
    (folder / "lib" / "libtorch_cuda.so").unlink()
    c_libraries.library(folder / "lib" / "libtorch_cuda.so", "int ncclGetVersion;")
    assert libraries.candidates_of(folder / "lib" / "libtorch_cuda.so") is None
    (folder / "__init__.py").write_text("from torch import cuda")
    (folder / "cuda").mkdir()
    (folder / "cuda" / "__init__.py").write_text("from torch.cuda import nccl")
    (folder / "cuda" / "nccl.py").write_text("def version():\n    return 2, 21, 5\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert libraries.nccl_version(folder) == (2, 21, 5)


def test_what_is_no_library_is_left_to_the_system(tmp_path):
    for content in (b"", b"\x7fELF", b"\x7fELF\x02\x01" + 70 * b"\xff", b"#!/bin/sh\n"):
        (tmp_path / "libtorch_cuda.so").write_bytes(content)
        assert libraries.candidates_of(tmp_path / "libtorch_cuda.so") == ["libnccl.so.2"]


def test_wsl_is_known_by_its_kernel(tmp_path):
    version = tmp_path / "version"
    version.write_text("Linux version 5.15.167.4-microsoft-standard-WSL2 (root@f9c826d3017f)")
    assert libraries.is_wsl(version)
    version.write_text("Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)")
    assert not libraries.is_wsl(version) and not libraries.is_wsl(tmp_path / "none")


def test_mps_runs_where_its_pipes_and_its_process_are(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "mps"))
    assert not libraries.mps_runs()
    (tmp_path / "mps").mkdir()
    assert not libraries.mps_runs()
    (tmp_path / "mps" / "control").touch()
    assert libraries.mps_runs()
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY")
    monkeypatch.setattr(libraries, "MPS_PIPES", tmp_path / "mps")
    assert not libraries.mps_runs()  # left behind by one that ended
    sleep = shutil.copy(shutil.which("sleep"), tmp_path / "nvidia-cuda-mps-control")
    with subprocess.Popen([sleep, "60"]) as process:
        try:
            assert libraries.mps_runs()
        finally:
            process.kill()


@pytest.mark.parametrize(
    "cuda, words",
    [((13, 2), "driver 580 or newer"), ((12, 8), "driver 525 or newer"), ((14, 0), "a driver for CUDA 14")],
)
def test_the_needed_driver_is_named(cuda, words):
    assert libraries.needs_driver(cuda) == words


# ------------------------------------------------------------------------------------------ the CUDA wheel itself


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The folder of a torch with CUDA: this Python's, or that of the Python that ALLRANKS_WHEEL names."""
    folder = libraries.torch_folder()
    if (python := os.environ.get("ALLRANKS_WHEEL")) is not None:
        code = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
        folder = Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    if folder is None or not (folder / "lib" / "libtorch_cuda.so").exists():
        pytest.skip("this torch has no CUDA; ALLRANKS_WHEEL=/path/to/python names one that has")
    return folder


def the_nccl_of(wheel: Path) -> str:
    return libraries.candidates_of(wheel / "lib" / "libtorch_cuda.so")[0]


@pytest.mark.wheel
def test_the_wheels_nccl_says_its_version(wheel, monkeypatch):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr(libraries, "_packaged", lambda: None)
    (package,) = wheel.parent.glob("nvidia_nccl_cu1*.dist-info")
    assert libraries.nccl_version(wheel) == tuple(map(int, package.name.split("-")[1][: -len(".dist")].split(".")))
    assert libraries.torch_cuda(wheel)[0] in libraries.DRIVERS


@pytest.mark.wheel
def test_an_nccl_that_is_preloaded_comes_before_the_wheels(wheel, built, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", str(built[1]("mine", 29901)))
    assert libraries.nccl_version(wheel) == (2, 99, 1)


LISTEN = """
import ctypes, json, os, sys
import psutil
lib = ctypes.CDLL(sys.argv[1])
unique = ctypes.create_string_buffer(128)
assert lib.ncclGetUniqueId(unique) == 0
print(json.dumps([c.laddr.ip for c in psutil.Process(os.getpid()).net_connections() if c.status == "LISTEN"]))
"""


@pytest.mark.wheel
def test_the_real_nccl_meets_on_loopback_with_a_worlds_environment(wheel, monkeypatch):
    """NCCL's rendezvous needs no GPU: ncclGetUniqueId opens the socket on which the other ranks would call."""
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    two = Inventory(tuple(Gpu(i, f"GPU-{i}", "Pretend", 1 << 30) for i in range(2)), 4, (2, 30, 7))

    def listens(env: dict[str, str]) -> set[str]:
        command = [sys.executable, "-c", LISTEN, the_nccl_of(wheel)]
        done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=True)
        return set(json.loads(done.stdout))

    assert listens(place(inventory=two).env[0]) == {"127.0.0.1"}
    assert listens({"NCCL_SOCKET_IFNAME": "^lo"}) != {"127.0.0.1"}  # so the test sees where NCCL listens

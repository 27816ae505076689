"""`make kit`, and what its run.sh does on a machine without a network. Wheels from the index are not downloaded here: the kit is
made of the packages that are installed, packed again as wheels."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
import zipfile
from importlib import metadata
from pathlib import Path

import c_libraries
import pytest
from loading import loaded
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packed import packed_again

ROOT = Path(__file__).resolve().parents[2]
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


kit = loaded(ROOT / "tools" / "kit.py")
carry = loaded(ROOT / "tools" / "kit" / "carry.py")
MACHINE = os.uname().machine


# --------------------------------------------------------------------------------------------------- what it is made of


def test_the_names_follow_from_the_metadata():
    found = kit.needed("3.12")
    assert {"nbclient", "ipykernel", "ipyparallel", "anywidget", "jupytext", "matplotlib", "pyzmq", "tornado"} <= set(
        found
    )
    assert not {"torch", "numpy", "jupyterlab", "notebook", "sympy", "nbgrader", "pytest"} & set(found)
    assert found == {name: kit.pins()[name] for name in found}


def test_a_name_that_is_not_pinned_or_not_installed_is_told(monkeypatch):
    with pytest.raises(
        kit.KitError, match=r"no-such-package, which allranks requires on Python 3\.12, is not in constraints\.txt"
    ):
        kit.needed("3.12", [Requirement("no-such-package")])
    monkeypatch.setattr(kit, "pins", lambda: {"no-such-package": "1"})
    with pytest.raises(kit.KitError, match="is not installed here; run make setup first"):
        kit.needed("3.12", [Requirement("no-such-package")])


def test_markers_are_those_of_the_other_python(monkeypatch):
    monkeypatch.setattr(kit, "pins", lambda: {"a": "1", "b": "1"})
    monkeypatch.setattr(kit.metadata, "requires", lambda name: ['b; python_version < "3.12"'] if name == "a" else [])
    assert set(kit.needed("3.11", [Requirement("a")])) == {"a", "b"}
    assert set(kit.needed("3.12", [Requirement("a")])) == {"a"}


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def test_wheels_that_pip_can_not_get_are_named(tmp_path, offline):
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "rich-15.0.0-cp310-cp310-win_amd64.whl").touch()  # not for this machine
    with pytest.raises(
        kit.KitError, match=r"Needed are rich==15\.0\.0; put them into a folder and run make kit WHEELS=folder"
    ):
        kit.wheels({"rich": "15.0.0"}, "3.12", "x86_64", tmp_path / "wheels", tmp_path / "local")


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("a-1.0-py3-none-any.whl", True),
        ("a-1.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("a-1.0-cp310-abi3-manylinux_2_28_x86_64.whl", True),
        ("a-1.0-cp313-cp313-manylinux_2_17_x86_64.whl", False),
        ("a-1.0-cp312-cp312-manylinux_2_17_aarch64.whl", False),
        ("a-1.0-cp312-cp312-musllinux_1_2_x86_64.whl", False),
    ],
)
def test_wheels_fit_the_other_python(name, taken):
    from packaging.utils import parse_wheel_filename

    assert bool(parse_wheel_filename(name)[3] & kit.accepted_tags("3.12", "x86_64")) is taken


def files_of(folder, **sizes):
    folder.mkdir(parents=True, exist_ok=True)
    for name, nbytes in sizes.items():
        (folder / name).write_bytes(b"x" * nbytes)
    return [folder / name for name in sizes]


def test_a_kit_is_no_larger_than_can_be_carried(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    rows = kit.gather(files_of(tmp_path / "in", a=60, b=40), out, limit=100)
    assert [(row["file"], row["bytes"]) for row in rows] == [("a", 60), ("b", 40)] and (out / "b").is_file()
    with pytest.raises(kit.KitError, match=r"The kit has 60\.1 MiB, and 60 can be carried; the largest file is c\."):
        kit.gather(files_of(tmp_path / "in", c=60 << 20, d=1 << 17), out)
    assert kit.KIT_BYTES == 60 << 20


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--python-version", "3.10"], "PYTHON_VERSION=3.10: it is 3.11 or newer, for example 3.12."),
        (["--python-version", "twelve"], "PYTHON_VERSION=twelve: it is 3.11 or newer, for example 3.12."),
        (["--wheels", "/nowhere"], "WHEELS=/nowhere is not a folder."),
        (
            ["--glibc", "musl"],
            "--glibc musl: it is the version that `ldd --version` prints on the machine, for example 2.28.",
        ),
    ],
)
def test_what_can_not_be_made_is_one_sentence(tmp_path, arguments, said, capsys):
    assert kit.main([*arguments, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{said}\n"


# ------------------------------------------------------------------------------------------------------ NCCL's wheel


def nccl_wheel(folder, name=f"nvidia_nccl_cu13-2.30.7-py3-none-manylinux_2_18_{MACHINE}.whl", library=carry.LIBRARY):
    """A stand-in for NVIDIA's wheel, with the file that the kit takes."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr(library, b"\x7fELF" + bytes(range(256)) * 40)
    return folder / name


def test_nccls_wheel_travels_in_slices_that_can_be_carried(tmp_path):
    wheel = kit.nccl_wheel(str(nccl_wheel(tmp_path / "in")), tmp_path / "scratch", MACHINE)
    rows = kit.in_slices(wheel, tmp_path / "nccl", 1000)
    assert b"".join((tmp_path / "nccl" / row["file"]).read_bytes() for row in rows) == wheel.read_bytes()
    assert [row["bytes"] for row in rows[:-1]] == [1000] * (len(rows) - 1) and kit.SLICE_BYTES < kit.KIT_BYTES


def test_slices_that_are_missing_or_damaged_are_named_and_no_failure(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    rows = kit.in_slices(nccl_wheel(tmp_path / "in"), tmp_path / "nccl", 4000)
    library, said = carry.nccl_file({"nccl": rows}, tmp_path / "nccl", work)
    assert library == work / "nccl" / carry.LIBRARY and library.read_bytes()[:4] == b"\x7fELF"
    assert said == "NCCL comes from the kit's wheel." and sorted(p.name for p in work.iterdir()) == ["nccl"]
    (tmp_path / "nccl" / "slice-2").write_bytes(b"x" * 4000)
    (tmp_path / "nccl" / "slice-3").unlink()
    library, said = carry.nccl_file({"nccl": rows}, tmp_path / "nccl", work)
    assert library is None and said.startswith("Of NCCL's wheel, slice-2, slice-3 of 3 slices are not whole in ")
    assert carry.nccl_file({"nccl": []}, tmp_path, work) == (None, "The kit has no NCCL.")
    other = kit.in_slices(nccl_wheel(tmp_path / "in", library="other"), tmp_path / "nccl")
    assert carry.nccl_file({"nccl": other}, tmp_path / "nccl", work)[1].startswith("The slices are no wheel of NCCL")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nvidia_nccl_cu13-2.28.9-py3-none-manylinux_2_18_x86_64.whl", r"nvidia-nccl-cu13 2\.28\.9; the kit needs"),
        ("nvidia_nccl_cu13-2.30.7-py3-none-manylinux_2_18_sparc.whl", "is not for x86_64"),
        ("torch-2.30.0-py3-none-manylinux_2_18_x86_64.whl", r"is torch 2\.30\.0; the kit needs nvidia-nccl"),
        ("nccl.tar.gz", "is not named like a wheel"),
    ],
)
def test_what_is_not_that_nccl_is_refused(tmp_path, name, said):
    with pytest.raises(kit.KitError, match=said):
        kit.nccl_wheel(str(nccl_wheel(tmp_path, name)), tmp_path / "scratch", "x86_64")


def test_an_nccl_that_is_nowhere_is_refused(tmp_path, offline):
    with pytest.raises(kit.KitError, match="is not a file; it is NCCL's wheel, or the word download"):
        kit.nccl_wheel("/nowhere.whl", tmp_path, "x86_64")
    with pytest.raises(kit.KitError, match=r"pip could not get nvidia-nccl-cu13 2\.30\.7"):
        kit.nccl_wheel("download", tmp_path, "x86_64")


# ------------------------------------------------------------------------------------------------------- on the machine

HOPPER = {
    "torch": "2.11.0+cu130", "numpy": "2.4", "nccl": [2, 28, 9], "gpus": 1, "why": "",
    "cuda": [13, 0], "driver_cuda": [13, 0], "capability": [9, 0],
}  # fmt: skip
KITS = {"LD_PRELOAD": "/w/libnccl.so.2"}


@pytest.mark.parametrize(
    ("facts", "preload", "arguments", "preloads"),
    [
        ({}, KITS, [["--ranks", "1", "--gpus", "1"], ["--ranks", "2", "--gpus", "1"]], [False, True]),
        (
            {"nccl": [2, 30, 7]},
            KITS,
            [["--ranks", "1", "--gpus", "1"], ["--ranks", "2", "--gpus", "1"]],
            [False, False],
        ),
        ({}, {}, [["--ranks", "1", "--gpus", "1"], ["--ranks", "2"]], [False, False]),
        ({"gpus": 8}, KITS, [["--ranks", "8", "--gpus", "8"], ["--ranks", "2", "--gpus", "1"]], [False, True]),
        ({"gpus": 8}, {}, [["--ranks", "8", "--gpus", "8"]], [False]),
        ({"gpus": 0, "nccl": None}, {}, [["--ranks", "4"]], [False]),
    ],
)
def test_one_pass_with_torchs_nccl_and_one_with_several_ranks_on_a_gpu(facts, preload, arguments, preloads):
    found = carry.runs({**HOPPER, **facts}, preload)
    assert [run[0] for run in found] == arguments
    assert [run[1] == KITS for run in found] == preloads
    assert sum(run[3] for run in found) == pytest.approx(1)
    # JSON, Markdown and log of each, and what is said of the machine
    assert 3 * len(found) + 1 <= 8 and len({run[2] for run in found}) == len(found)


NO_DRIVER = Path("/nowhere/version")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"driver_cuda": [12, 2]},  # eight A100s whose driver is of the time of CUDA 12
            "The NVIDIA driver runs CUDA 12.2 and older, and torch 2.11.0+cu130 was built for CUDA 13.0. Name a Python whose torch "
            "is for CUDA 12 (PYTHON=/path/to/python3), or install a newer driver.",
        ),
        (
            {"cuda": None, "torch": "2.13.0+cpu"},
            "torch 2.13.0+cpu was built without CUDA. Name the Python whose torch has it",
        ),
        ({"why": "No CUDA GPUs are available"}, "torch 2.11.0+cu130 sees no GPU: No CUDA GPUs are available"),
        ({"driver_cuda": None}, None),
    ],
)
def test_gpus_that_torch_can_not_use_are_told_before_anything_runs(facts, said):
    """The kit would prove the CPU for nine minutes, and its records would not say why."""
    blind = {**HOPPER, "gpus": 0, "capability": None, **facts}
    why = carry.blind(blind, None, NO_DRIVER)
    assert why is None if said is None else why.startswith(said) and why.endswith("CUDA_VISIBLE_DEVICES= bash run.sh")
    assert carry.blind(blind, "", NO_DRIVER) is None, "the CPU was asked for"
    assert carry.blind({**HOPPER, **facts}, None, NO_DRIVER) is None, "there are GPUs that torch uses"


def test_a_driver_without_its_library_for_cuda_is_told(tmp_path):
    (tmp_path / "version").touch()
    why = carry.blind({**HOPPER, "gpus": 0, "driver_cuda": None}, None, tmp_path / "version")
    assert "libcuda.so.1) is missing here; in a container, set NVIDIA_DRIVER_CAPABILITIES" in why


@pytest.mark.parametrize(
    ("wheel", "facts", "said"),
    [
        (
            "nvidia_nccl_cu13-2.30.7",
            {"driver_cuda": [12, 9]},
            "is for CUDA 13, and the driver runs 12.9 and older, so it is not used",
        ),
        ("nvidia_nccl_cu13-2.30.7", {"capability": [7, 0]}, "has no code for GPUs of compute capability 7.0"),
        ("nvidia_nccl_cu13-2.30.7", {"cuda": [12, 9]}, None),  # it brings its own part of CUDA
        ("nvidia_nccl_cu12-2.30.7", {"driver_cuda": [12, 2]}, None),
        ("nvidia_nccl_cu12-2.30.7", {}, None),
    ],
)
def test_an_nccl_that_the_driver_or_the_gpu_can_not_run_is_not_used(wheel, facts, said):
    """It says its version all the same; only the ranks would find out, in a start that fails."""
    cuda = kit._cuda_of(Path(f"{wheel}-py3-none-manylinux_2_18_x86_64.whl"))
    why = carry.unfit({"nccl_cuda": cuda}, {**HOPPER, **facts})
    assert why is None if said is None else said in why
    assert carry.unfit({}, {**HOPPER, **facts}) is None, "a kit without NCCL"


def test_the_drivers_cuda_is_that_of_its_library(torch_of_libraries, tmp_path):
    env, _ = torch_of_libraries
    code = "int cuDriverGetVersion(int* version) { *version = 12020; return 0; }"
    c_libraries.library(tmp_path / "driver/libcuda.so.1", code)
    (tmp_path / "torch/__init__.py").write_text(
        "__version__ = '2.11.0+cu130'\nclass version:\n    cuda = '13.0'\nclass cuda:\n    is_available = staticmethod(lambda: False)\n"
        "    def init():\n        raise RuntimeError('The NVIDIA driver on your system is too old (found version 12020).\\nUpdate')\n"
    )
    facts = carry.look({**env, "LD_LIBRARY_PATH": str(tmp_path / "driver")})
    assert (facts["cuda"], facts["driver_cuda"], facts["gpus"]) == ([13, 0], [12, 2], 0)
    assert facts["why"] == "The NVIDIA driver on your system is too old (found version 12020)."


@pytest.fixture
def torch_of_libraries(tmp_path, monkeypatch):
    """A torch that is a build for GPUs as far as its libraries go: libtorch_cuda.so needs a libnccl.so.2 beside it."""
    own = c_libraries.nccl(tmp_path / "torch/lib", 22809)
    options = (str(own), "-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags")
    c_libraries.library(tmp_path / "torch/lib/libtorch_cuda.so", c_libraries.NEEDS_NCCL, *options)
    # as torch 2.11 does: both are mapped then
    (tmp_path / "torch/__init__.py").write_text(
        f"import ctypes\n__version__ = '2.11.0+cu130'\nctypes.CDLL({str(own)!r})\n"
        f"ctypes.CDLL({str(tmp_path / 'torch/lib/libtorch_cuda.so')!r})\n"
        "class version:\n    cuda = '13.0'\nclass cuda:\n    is_available = staticmethod(lambda: True)\n"
        "    device_count = staticmethod(lambda: 1)\n    get_device_capability = staticmethod(lambda: (9, 0))\n"
    )
    (tmp_path / "numpy.py").write_text("__version__ = '2'")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}, own


def test_the_kits_nccl_is_used_only_if_torch_calls_it(torch_of_libraries, tmp_path):
    env, own = torch_of_libraries
    facts = carry.look(env)
    assert (facts["nccl"], facts["nccl_file"], facts["gpus"]) == ([2, 28, 9], str(own), 1)
    kits = c_libraries.nccl(tmp_path / "kit", 23007)
    more, said = carry.preloaded(kits, {**env, "LD_PRELOAD": "libm.so.6"})
    assert more == {"LD_PRELOAD": f"{kits} libm.so.6"} and said.endswith(f"torch uses NCCL 2.30.7, {kits}.")
    # the linker takes it for another library: torch then keeps its own
    other = c_libraries.nccl(tmp_path / "other", 23007, "libother.so")
    assert carry.preloaded(other, env) == ({}, f"torch does not take the kit's NCCL: it uses 2.28.9, {own}.")
    nowhere = other.with_name("a file.so")  # LD_PRELOAD can't name a file with a blank
    shutil.copy(kits, nowhere)
    assert carry.preloaded(nowhere, env)[0] == {}


@pytest.mark.parametrize("text", ["", "nine", "0", "-1"])
def test_minutes_that_make_no_sense(text):
    with pytest.raises(carry.KitError, match="it is how long all runs may take together, from 1 on"):
        carry.minutes_of(text)


def test_a_run_that_goes_on_is_asked_to_end_and_then_made_to(tmp_path, monkeypatch):
    monkeypatch.setattr(carry, "RESERVE_S", 60)
    asked = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "try:\n    print('begun', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n    print('record'); exit(130)"
    )
    assert carry.run([sys.executable, "-c", asked], None, tmp_path, tmp_path / "log", time.monotonic() + 6) == 130
    assert (tmp_path / "log").read_text() == "begun\nrecord\n"
    monkeypatch.setattr(carry, "RESERVE_S", 0.5)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    assert carry.run([sys.executable, "-c", deaf], None, tmp_path, tmp_path / "log", time.monotonic() + 5) == -9


def test_all_runs_share_the_minutes(tmp_path, monkeypatch):
    """Nine minutes together, whatever the first run took, with time left to end the last one."""
    clock, runs = [1000.0], []
    monkeypatch.setattr(carry.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(carry, "read_manifest", lambda: ({"python": HERE, "nccl": []}, {}))
    monkeypatch.setattr(carry, "look", lambda: HOPPER)
    monkeypatch.setattr(carry, "install", lambda places, work: (work, work))
    monkeypatch.setattr(carry, "about_the_machine", lambda file: None)

    def run(arguments, env, cwd, log, until):
        runs.append((float(arguments[arguments.index("--minutes") + 1]), until - clock[0]))
        clock[0] += 60 if len(runs) == 1 else until - clock[0]  # the first one takes a minute only
        return 0

    monkeypatch.setattr(carry, "run", run)
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    monkeypatch.setenv("WORK", str(tmp_path / "work"))
    monkeypatch.delenv("MINUTES", raising=False)
    assert carry.main([]) == 0
    assert [seconds for _, seconds in runs] == pytest.approx([0.45 * 525, 540 - 15 - 60])
    assert [minutes for minutes, _ in runs] == pytest.approx([(0.45 * 525 - 15) / 60, 7.5], abs=0.051)
    monkeypatch.setattr(carry, "install", lambda *_: (clock.__setitem__(0, clock[0] + 530), (tmp_path, tmp_path))[1])
    assert carry.main([]) == 2 and len(runs) == 2, "an install that took all the time leaves none to run in"


def test_files_that_are_missing_or_damaged(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    rows = kit.gather(files_of(tmp_path / "in", a=60, b=50), out)
    (out / "manifest.json").write_text(json.dumps({"files": rows, "python": HERE, "nccl": []}))
    _, places = carry.read_manifest(out)
    assert places == {"a": out / "a", "b": out / "b"}
    (out / "a").write_bytes(b"y" * 60)
    (out / "b").unlink()
    with pytest.raises(carry.KitError, match="a differs from what was packed; b is missing"):
        carry.read_manifest(out)


def test_another_python_is_refused():
    with pytest.raises(
        carry.KitError,
        match=r"wheels are for Python 3\.12, and .* is Python 3\.10\. Name another one \(PYTHON=python3\.12\)",
    ):
        carry.refuse_python({"python": "3.12"}, (3, 10))


def bare_environment(folder):
    """An environment with pip, torch and numpy and what these require, and without the course's packages."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    there, todo = folder / "there", ["torch", "numpy"]
    there.mkdir()
    done = set()
    while todo:
        name = canonicalize_name(todo.pop())
        if name in done:
            continue
        done.add(name)
        try:
            dist = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for top in {entry.parts[0] for entry in dist.files if entry.parts[0] not in ("..", "__pycache__")}:
            if not (there / top).exists() and Path(dist.locate_file(top)).exists():
                (there / top).symlink_to(dist.locate_file(top))
        required = [Requirement(line) for line in dist.requires or []]
        todo += [r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    [site] = (folder / "env" / "lib").glob("python3*/site-packages")
    (site / "there.pth").write_text(f"{there}\n")
    return folder / "env" / "bin" / "python"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A kit for this Python, of this environment's packages."""
    folder, local = tmp_path_factory.mktemp("kit"), tmp_path_factory.mktemp("wheels")
    if subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True).returncode:
        pytest.skip("This is no git checkout; a kit holds the committed state of one.")
    for name in kit.needed(HERE):
        packed_again(name, local, small=True)
    old = {name: os.environ.get(name) for name in ("PIP_NO_INDEX", "PIP_CONFIG_FILE")}
    os.environ.update(PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    try:
        nccl = nccl_wheel(tmp_path_factory.mktemp("nccl"))
        manifest = kit.make(folder, HERE, MACHINE, local, str(nccl), glibc=platform.libc_ver()[1])
    finally:
        for name, value in old.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    return folder, manifest


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return bare_environment(tmp_path_factory.mktemp("bare"))


def test_every_file_is_in_the_manifest(made):
    folder, manifest = made
    listed = {row["file"] for row in manifest["files"]} | {f"nccl/{row['file']}" for row in manifest["nccl"]}
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there - listed == {"run.sh", "carry.py", "manifest.json"} and manifest["nccl"]
    carried = [path for path in folder.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in carried) <= 60 << 20


def run_kit(folder, python, tmp_path, *arguments, **settings):
    """run.sh in a namespace without a network if we may make one."""
    env = {
        **os.environ,
        "PYTHON": str(python),
        "OUT": str(tmp_path / "out"),
        "WORK": str(tmp_path / "work"),
        **settings,
    }
    command = f"bash {folder}/run.sh {' '.join(arguments)}"
    if os.geteuid() == 0 and shutil.which("unshare") and shutil.which("ip"):
        probe = subprocess.run(["unshare", "-n", "true"], capture_output=True)
        if probe.returncode == 0:
            command = f"unshare -n sh -c 'ip link set lo up && exec {command}'"
    return subprocess.run(command, shell=True, env=env, capture_output=True, text=True, cwd=tmp_path, timeout=500)


@pytest.mark.live
@pytest.mark.servers
@pytest.mark.timeout(600)
def test_the_kit_proves_a_machine_without_a_network(made, bare, tmp_path):
    folder, _ = made
    lacks = subprocess.run([str(bare), "-c", "import torch, numpy; import ipyparallel"], capture_output=True, text=True)
    assert "No module named 'ipyparallel'" in lacks.stderr  # the kit alone brings it
    ran = run_kit(folder, bare, tmp_path, "--only", "machine,calls", "--ranks", "2", MINUTES="7")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (record,) = (tmp_path / "out").glob("*.json")
    data = json.loads(record.read_text())
    assert data["plan"]["ranks"] == 2 and data["ended"] == "complete" and data["counts"]["fail"] == 0
    assert (tmp_path / "out" / "verify-cpu.log").read_text() in ran.stdout
    assert str(tmp_path) not in record.read_text()
    assert len(list((tmp_path / "out").iterdir())) <= 8

    # what a chapter needs is there too
    modules = (
        "import nbclient, ipykernel, anywidget, ipywidgets, matplotlib, jupytext, allranks; print(allranks.__file__)"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "work" / "site")}
    found = subprocess.run([str(bare), "-c", modules], env=env, capture_output=True, text=True)
    assert found.stdout.startswith(str(tmp_path / "work" / "site")), found.stderr
    assert (tmp_path / "work" / "all-ranks" / "chapters/1_first_hours/04_all_reduce.ipynb").is_file()


def test_an_environment_without_torch_is_told(made, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "empty")], check=True)
    ran = run_kit(made[0], tmp_path / "empty" / "bin" / "python", tmp_path)
    assert ran.returncode == 2
    assert "has no torch (No module named 'torch'), and the kit brings none. Name the Python that has it" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_kit_for_another_python_is_told(made, bare, tmp_path):
    copy = tmp_path / "kit"
    shutil.copytree(made[0], copy, copy_function=os.link)
    file = copy / "manifest.json"
    manifest = json.loads(file.read_text())
    file.unlink()  # the kit itself keeps its own
    file.write_text(json.dumps({**manifest, "python": "3.99"}))
    ran = run_kit(copy, bare, tmp_path)
    assert ran.returncode == 2 and "This kit's wheels are for Python 3.99" in ran.stderr
    file.write_text(json.dumps(manifest))
    next(copy.glob("pyzmq-*.whl")).unlink()
    ran = run_kit(copy, bare, tmp_path)
    assert ran.returncode == 2 and "pyzmq" in ran.stderr and "is missing. Carry these files once more" in ran.stderr
    ran = run_kit(copy, "/nowhere/python3", tmp_path)
    assert ran.returncode == 2 and "There is no /nowhere/python3 here; name the Python that has torch" in ran.stderr

"""`make kit`, and what its run.sh does on a machine without a network. Wheels from the index are not downloaded here: the kit is
made of the packages that are installed, packed again as wheels."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packed import packed_again

ROOT = Path(__file__).resolve().parents[2]
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kit = _load("allranks_kit", ROOT / "tools" / "kit.py")
carry = _load("allranks_carry", ROOT / "tools" / "kit" / "carry.py")
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


def test_no_part_is_larger_than_its_limit(tmp_path):
    rows = kit.into_parts(files_of(tmp_path / "in", a=60, b=50, c=40, d=30), tmp_path, limit=100)
    parts = {row["part"]: sum(r["bytes"] for r in rows if r["part"] == row["part"]) for row in rows}
    assert parts == {"part-1": 100, "part-2": 80}
    with pytest.raises(kit.KitError, match="e has 0 MB, and a part has 0; make the file smaller"):
        kit.into_parts(files_of(tmp_path / "in", e=101), tmp_path, limit=100)


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


# -------------------------------------------------------------------------------------------------------- NCCL's source


@pytest.fixture
def nccl(tmp_path):
    """A stand-in for NVIDIA's repository, with the files that the kit takes."""
    folder = tmp_path / "repository"
    for name in ("makefiles", "src", "docs"):
        (folder / name).mkdir(parents=True)
    (folder / "makefiles" / "version.mk").write_text("NCCL_MAJOR   := 2\nNCCL_MINOR   := 30\nNCCL_PATCH   := 7\n")
    for name in ("Makefile", "LICENSE.txt", "src/init.cc", "docs/large"):
        (folder / name).write_text("text\n")
    return folder


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def names_in(path):
    with tarfile.open(path) as archive:
        return {member.name for member in archive.getmembers() if member.isfile()}


WANTED = {"nccl/Makefile", "nccl/LICENSE.txt", "nccl/makefiles/version.mk", "nccl/src/init.cc"}


def test_nccl_comes_from_an_archive_a_clone_or_an_address(nccl, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    archive = shutil.make_archive(str(tmp_path / "given"), "gztar", tmp_path, "repository")
    assert names_in(kit.nccl_source(archive, out)) == WANTED
    git(nccl, "init", "-q")
    git(nccl, "add", "-A")
    git(nccl, "commit", "-qm", "a")
    git(nccl, "tag", kit.NCCL_TAG)
    assert names_in(kit.nccl_source(str(nccl), out)) == WANTED
    assert names_in(kit.nccl_source(f"file://{nccl}", out)) == WANTED


def test_what_is_not_that_nccl_is_refused(nccl, tmp_path):
    with pytest.raises(kit.KitError, match=r"is NCCL 2\.30\.7; the kit needs v2\.31\.0-1"):
        kit.nccl_source(shutil.make_archive(str(tmp_path / "b"), "gztar", nccl), tmp_path, "v2.31.0-1")
    (nccl / "makefiles" / "version.mk").unlink()
    with pytest.raises(kit.KitError, match="it is not NCCL's source"):
        kit.nccl_source(shutil.make_archive(str(tmp_path / "a"), "gztar", nccl), tmp_path)
    with pytest.raises(kit.KitError, match="is no clone of NVIDIA's repository"):
        kit.nccl_source(str(nccl), tmp_path)
    with pytest.raises(kit.KitError, match="is not an archive that tar reads"):
        kit.nccl_source(__file__, tmp_path)
    with pytest.raises(kit.KitError, match="git can't clone it"):
        kit.nccl_source(f"file://{tmp_path}/gone", tmp_path)


# ------------------------------------------------------------------------------------------------------- on the machine

HOPPER = {"torch": "2.11.0+cu130", "numpy": "2.4", "nccl": [2, 28, 9], "gpus": 1, "arch": "90"}
TOOLS = {"nvcc": "/usr/local/cuda/bin/nvcc", "make": "/usr/bin/make", "g++": "/usr/bin/g++"}


@pytest.mark.parametrize(
    ("facts", "source", "tools", "builds", "said"),
    [
        ({}, True, {}, True, "building the kit's NCCL for one architecture, sm_90"),
        ({"nccl": [2, 30, 7]}, True, {}, False, "torch's NCCL is 2.30.7: several ranks can use one GPU."),
        ({}, False, {}, False, "the kit has no source of a newer one"),
        ({}, True, {"nvcc": None}, False, "here is no nvcc to build a newer one"),
        ({"gpus": 0}, True, {}, False, "There is no GPU here"),
        ({"nccl": None}, True, {}, False, "This torch has no NCCL"),
    ],
)
def test_nccl_is_built_where_it_helps(facts, source, tools, builds, said):
    found, words = carry.building({**HOPPER, **facts}, source, {**TOOLS, **tools})
    assert found is builds and said in words


def test_nccl_is_built_for_one_architecture(tmp_path):
    command = carry.build_command("90", str(tmp_path / "cuda" / "bin" / "nvcc"))
    assert command[0] == "make" and "src.build" in command and f"CUDA_HOME={tmp_path}/cuda" in command
    assert "NVCC_GENCODE=-gencode=arch=compute_90,code=sm_90" in command


def test_one_two_and_four_ranks_on_one_gpu():
    one, two = carry.runs(HOPPER, [1, 2], Path("/w/libnccl.so.2"))
    assert one == (["--ranks", "1", "--gpus", "1"], {}, "verify-1.log")
    sharing = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"}
    assert two == (["--ranks", "2", "--gpus", "1"], {**sharing, "LD_PRELOAD": "/w/libnccl.so.2"}, "verify-2.log")
    assert carry.runs({**HOPPER, "nccl": [2, 30, 7]}, [4], None)[0][:2] == (["--ranks", "4", "--gpus", "1"], sharing)
    assert carry.runs(HOPPER, [2], None)[0][:2] == (["--ranks", "2"], {})  # on the CPU
    assert carry.runs({**HOPPER, "gpus": 8}, [], None)[0][0] == ["--gpus", "8", "--ranks", "8"]
    assert carry.runs({**HOPPER, "gpus": 0, "nccl": None}, [2], None) == [(["--ranks", "2"], {}, "verify-2.log")]


@pytest.mark.parametrize("text", ["", "two", "0", "-1"])
def test_world_sizes_that_make_no_sense(text):
    with pytest.raises(carry.KitError, match="it is world sizes, for example RANKS='1 2 4'"):
        carry.world_sizes(text)


def test_parts_that_are_missing_or_damaged(tmp_path):
    rows = kit.into_parts(files_of(tmp_path / "in", a=60, b=50), tmp_path, limit=100)
    (tmp_path / "part-1" / "manifest.json").write_text(json.dumps({"files": rows, "python": HERE}))
    _, places = carry.read_manifest(tmp_path / "part-1")
    assert {name: path.parent.name for name, path in places.items()} == {"a": "part-1", "b": "part-2"}
    shutil.move(tmp_path / "part-2" / "b", tmp_path / "part-1" / "b")  # all in one folder is right too
    carry.read_manifest(tmp_path / "part-1")
    (tmp_path / "part-1" / "a").write_bytes(b"y" * 60)
    (tmp_path / "part-1" / "b").unlink()
    with pytest.raises(carry.KitError, match="part-1/a differs from what was packed; part-2/b is missing"):
        carry.read_manifest(tmp_path / "part-1")


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
        packed_again(name, local)
    old = {name: os.environ.get(name) for name in ("PIP_NO_INDEX", "PIP_CONFIG_FILE")}
    os.environ.update(PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    try:
        manifest = kit.make(folder, HERE, MACHINE, local, None, glibc=platform.libc_ver()[1])
    finally:
        for name, value in old.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    return folder, manifest


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return bare_environment(tmp_path_factory.mktemp("bare"))


def test_every_file_is_in_the_manifest(made):
    folder, manifest = made
    listed = {f"{row['part']}/{row['file']}" for row in manifest["files"]}
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there - listed == {"part-1/run.sh", "part-1/carry.py", "part-1/manifest.json"}
    assert manifest["nccl"] is None
    for part in folder.glob("part-*"):
        assert sum(path.stat().st_size for path in part.iterdir()) <= kit.PART_BYTES


def run_kit(folder, python, tmp_path, *arguments, **settings):
    """run.sh in a namespace without a network if we may make one."""
    env = {
        **os.environ,
        "PYTHON": str(python),
        "OUT": str(tmp_path / "out"),
        "WORK": str(tmp_path / "work"),
        **settings,
    }
    command = f"bash {folder}/part-1/run.sh {' '.join(arguments)}"
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
    ran = run_kit(folder, bare, tmp_path, "--only", "machine,calls", RANKS="1 2")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    records = sorted((tmp_path / "out").glob("*.json"))
    assert [json.loads(path.read_text())["plan"]["ranks"] for path in records] == [1, 2]
    data = json.loads(records[1].read_text())
    assert data["ended"] == "complete" and data["counts"]["fail"] == 0
    assert (tmp_path / "out" / "verify-2.log").read_text() in ran.stdout
    assert str(tmp_path) not in records[1].read_text()

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
    file = copy / "part-1" / "manifest.json"
    manifest = json.loads(file.read_text())
    file.unlink()  # the kit itself keeps its own
    file.write_text(json.dumps({**manifest, "python": "3.99"}))
    ran = run_kit(copy, bare, tmp_path)
    assert ran.returncode == 2 and "This kit's wheels are for Python 3.99" in ran.stderr
    file.write_text(json.dumps(manifest))
    next(copy.glob("part-*/pyzmq-*.whl")).unlink()
    ran = run_kit(copy, bare, tmp_path)
    assert ran.returncode == 2 and "pyzmq" in ran.stderr and "is missing. Carry these parts once more" in ran.stderr
    ran = run_kit(copy, "/nowhere/python3", tmp_path)
    assert ran.returncode == 2 and "There is no /nowhere/python3 here; name the Python that has torch" in ran.stderr

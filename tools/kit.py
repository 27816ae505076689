"""Makes a folder to carry to a machine without a network, where its run.sh proves the machine: `make kit`.

    make kit                                          for Python 3.12, in build/kit/
    make kit PYTHON_VERSION=3.11 OUT=/media/stick     for another Python, to another folder
    make kit NCCL=nvidia_nccl_cu13-2.30.7-....whl     with NCCL 2.30 from its wheel, in slices; NCCL=download gets it with pip
    make kit WHEELS=folder                            wheels from a folder first; what it lacks comes from pip's index

The machine has Python, torch and numpy already; the kit holds the rest, at most 60 MiB in one folder:

- the checkout of HEAD, and a wheel of allranks built from it;
- the wheels that live ranks and chapters need without JupyterLab. Their names follow from pyproject.toml and from the metadata
  of the packages installed here, their versions from constraints.txt;
- run.sh and carry.py, which do the work there, and manifest.json: every file with its size and SHA-256.

NCCL's wheel is larger than all of that. Its slices lie in nccl/, each small enough to be carried by itself, before the rest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
FORMAT = 2  # of manifest.json
KIT_BYTES = 60 << 20  # what is carried at once
SLICE_BYTES = 45 * 10**6
# on the machine already; their own requirements are there too
THERE = {"torch", "numpy"}
# what a reader opens notebooks with; the kit runs them without it
LEFT_OUT = {"jupyterlab"}
# beside the course's own requirements and the extra lab: what executes a notebook and reads a percent script
ALSO = ("nbclient", "jupytext")
NCCL_PACKAGE, NCCL_VERSION = "nvidia-nccl-cu13", "2.30.7"
ON_THE_MACHINE = ("run.sh", "carry.py")
GLIBC = "2.28"  # the machine's C library: that of Debian 10, RHEL 8 and later; a wheel for an older one runs too


class KitError(Exception):
    """The kit can't be made; the message says what to do."""


def pins(root: Path = ROOT) -> dict[str, str]:
    """The version of each package in constraints.txt."""
    lines = (root / "constraints.txt").read_text(encoding="utf-8").split()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def roots(root: Path = ROOT) -> list[Requirement]:
    """What the course requires on the machine: its own requirements, the extra lab without JupyterLab, and `ALSO`."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["lab"], *ALSO]
    return [r for r in map(Requirement, lines) if canonicalize_name(r.name) not in THERE | LEFT_OUT]


def needed(python_version: str, wanted: list[Requirement] | None = None) -> dict[str, str]:
    """The version of every package that the wheels must bring, by name: `wanted` and all that they require on that Python.

    The requirements are read from the packages installed here. Raises KitError if one is not installed or not pinned.
    """
    there = {
        "python_version": python_version,
        "python_full_version": f"{python_version}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    versions, found = pins(), {}
    todo = [(r, "allranks") for r in (roots() if wanted is None else wanted)]
    while todo:
        requirement, whose = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in THERE | LEFT_OUT:
            continue
        seen, extras = name in found, requirement.extras
        if seen and not extras:
            continue
        if name not in versions:
            raise KitError(
                f"{name}, which {whose} requires on Python {python_version}, is not in constraints.txt; pin it there."
            )
        found[name] = versions[name]
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            raise KitError(f"{name}, which {whose} requires, is not installed here; run make setup first.") from None
        for inner in map(Requirement, lines):
            marker = inner.marker
            if marker is None or any(marker.evaluate({**there, "extra": extra}) for extra in ("", *extras)):
                todo.append((inner, name))
    return dict(sorted(found.items()))


def platforms(machine: str, glibc: str = GLIBC) -> list[str]:
    """The platforms whose wheels run on Linux with this C library, the newest first. Raises KitError."""
    if not re.fullmatch(r"2\.\d+", glibc):
        raise KitError(
            f"--glibc {glibc}: it is the version that `ldd --version` prints on the machine, for example {GLIBC}."
        )
    newest = int(glibc.partition(".")[2])
    names = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
    return [*names, *(f"manylinux{year}_{machine}" for year in ("2014", "2010", "1")), f"linux_{machine}"]


def accepted_tags(python_version: str, machine: str, glibc: str = GLIBC) -> set:
    """The tags of wheels that this Python takes on Linux."""
    version = tuple(int(n) for n in python_version.split("."))
    names = platforms(machine, glibc)
    return {*cpython_tags(version, platforms=names), *compatible_tags(version, f"cp{version[0]}{version[1]}", names)}


def wheels(
    packages: dict[str, str], python_version: str, machine: str, folder: Path, local: Path | None, glibc: str = GLIBC
) -> list[Path]:
    """One wheel for each package, in `folder`: from the folder `local` first, then by `pip download`. Raises KitError."""
    folder.mkdir(parents=True, exist_ok=True)
    tags, found = accepted_tags(python_version, machine, glibc), {}
    for path in sorted(local.glob("*.whl")) if local is not None else []:
        name, version, _, its = parse_wheel_filename(path.name)
        if packages.get(name) == str(version) and its & tags:
            found[name] = shutil.copy(path, folder)
    missing = [f"{name}=={version}" for name, version in packages.items() if name not in found]
    if missing:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
        ]
        command += ["--implementation", "cp", "--python-version", python_version, "--dest", str(folder)]
        for platform in platforms(machine, glibc):
            command += ["--platform", platform]
        done = subprocess.run([*command, *missing], capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [
                done.stderr.strip()[-300:]
            ]
            raise KitError(
                f"pip could not get all wheels for Python {python_version} on {machine}: {said[-1]} "
                f"Needed are {', '.join(missing)}; put them into a folder and run make kit WHEELS=folder."
            )
    got = sorted(folder.glob("*.whl"))
    names = {parse_wheel_filename(path.name)[0] for path in got}
    if names != set(packages):
        raise KitError(f"The wheels and what is needed differ: {', '.join(sorted(names ^ set(packages)))}.")
    return got


def unpack(archive: Path, folder: Path) -> None:
    """Extracts an archive; Python 3.11.2, which Debian 12 has, may not know filters."""
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as opened:
        opened.extractall(folder, **safely)


def own_wheel(checkout: Path, folder: Path) -> Path:
    """The wheel of allranks, built from a copy of the checkout. Raises KitError."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(checkout, Path(scratch))
        (source,) = Path(scratch).iterdir()
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "-w",
            str(folder),
        ]
        if _setuptools() >= 77:
            command.append("--no-build-isolation")  # needs no network
        done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    if done.returncode:
        raise KitError(f"The wheel of allranks can't be built: {done.stderr.strip()[-400:]}")
    return next(folder.glob("allranks-*.whl"))


def _setuptools() -> int:
    try:
        return int(metadata.version("setuptools").split(".")[0])
    except metadata.PackageNotFoundError:
        return 0


def checkout(folder: Path, root: Path = ROOT) -> Path:
    """The committed state of the course, as an archive. Raises KitError outside of a git checkout."""
    path = folder / "all-ranks.tar.gz"
    done = subprocess.run(
        ["git", "-C", str(root), "archive", "--prefix=all-ranks/", "-o", str(path), "HEAD"],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise KitError(f"git can't archive the checkout {root}: {done.stderr.strip()}")
    return path


def nccl_wheel(given: str, folder: Path, machine: str, glibc: str = GLIBC) -> Path:
    """NCCL's wheel: a file, or "download", which asks pip. Raises KitError if it is none that several ranks can share a GPU with."""
    folder.mkdir(parents=True, exist_ok=True)
    path = Path(given)
    if given == "download":
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", str(folder), f"{NCCL_PACKAGE}=={NCCL_VERSION}"]
        for platform in platforms(machine, glibc):
            command += ["--platform", platform]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise KitError(f"pip could not get {NCCL_PACKAGE} {NCCL_VERSION}: {done.stderr.strip()[-300:]}")
        (path,) = folder.glob("*.whl")
    if not path.is_file():
        raise KitError(f"NCCL={given} is not a file; it is NCCL's wheel, or the word download.")
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except ValueError:
        raise KitError(f"NCCL={given} is not named like a wheel.") from None
    if not re.fullmatch(r"nvidia-nccl-cu\d+", name) or version.release < (2, 30):
        raise KitError(f"NCCL={given} is {name} {version}; the kit needs nvidia-nccl-cu12 or -cu13, 2.30 or newer.")
    if not any(tag.platform.endswith(machine) for tag in tags):
        raise KitError(f"NCCL={given} is not for {machine}.")
    return path


def _cuda_of(wheel: Path) -> int:
    """The CUDA for which NCCL's wheel was built: 13 for nvidia_nccl_cu13-2.30.7-....whl."""
    return int(parse_wheel_filename(wheel.name)[0].rpartition("cu")[2])


def in_slices(path: Path, folder: Path, nbytes: int = SLICE_BYTES) -> list[dict]:
    """Cuts a file into slices in `folder`; their manifest rows, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with open(path, "rb") as whole:
        while part := whole.read(nbytes):
            target = folder / f"slice-{len(rows) + 1}"
            target.write_bytes(part)
            rows.append(_row(target))
    return rows


def _row(path: Path) -> dict:
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def gather(files: list[Path], out: Path, limit: int = KIT_BYTES) -> list[dict]:
    """Moves the files into `out`; their manifest rows. Raises KitError if they are too large together."""
    total = sum(path.stat().st_size for path in files)
    if total > limit:
        largest = max(files, key=lambda path: path.stat().st_size)
        raise KitError(
            f"The kit has {total / 2**20:.1f} MiB, and {limit / 2**20:.0f} can be carried; the largest file is {largest.name}."
        )
    return [_row(Path(shutil.move(path, out / path.name))) for path in sorted(files)]


def make(
    out: Path,
    python_version: str,
    machine: str,
    local: Path | None,
    nccl: str | None,
    limit: int = KIT_BYTES,
    glibc: str = GLIBC,
) -> dict:
    """Makes the kit in `out`; returns its manifest. A kit that was there before is gone. Raises KitError."""
    if not re.fullmatch(r"3\.\d+", python_version) or int(python_version[2:]) < 11:
        raise KitError(f"PYTHON_VERSION={python_version}: it is 3.11 or newer, for example 3.12.")
    if local is not None and not local.is_dir():
        raise KitError(f"WHEELS={local} is not a folder.")
    platforms(machine, glibc)
    packages = needed(python_version)
    _remove_old(out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as name:
        scratch = Path(name)
        tree = checkout(scratch)
        files = [
            tree,
            own_wheel(tree, scratch),
            *wheels(packages, python_version, machine, scratch / "wheels", local, glibc),
        ]
        rows = gather(files, out, limit - 200_000)  # room for what is beside them
        wheel = nccl_wheel(nccl, scratch / "nccl", machine, glibc) if nccl else None
        slices = [] if wheel is None else in_slices(wheel, out / "nccl")
    for script in ON_THE_MACHINE:
        shutil.copy(ROOT / "tools" / "kit" / script, out / script)
    manifest = {
        "format": FORMAT,
        "python": python_version,
        "machine": machine,
        "commit": _commit(),
        "files": rows,
        "nccl": slices,
        "nccl_cuda": None if wheel is None else _cuda_of(wheel),
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def _remove_old(out: Path) -> None:
    """Removes the files that an older kit's manifest names; others in the folder stay."""
    try:
        old = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
        names = [row["file"] for row in old["files"]]
    except (OSError, ValueError, KeyError):
        return
    for name in [*names, *ON_THE_MACHINE, "manifest.json"]:
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / "nccl", ignore_errors=True)


def _commit() -> str:
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


def main(arguments: list[str] | None = None) -> int:
    """The exit code of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python-version", default="3.12", help="the Python of the machine (default: 3.12)")
    parser.add_argument("--machine", default="x86_64", choices=("x86_64", "aarch64"))
    parser.add_argument("--glibc", default=GLIBC, help=f"the machine's C library, at least (default: {GLIBC})")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "kit")
    parser.add_argument("--wheels", type=Path, help="a folder with wheels, to be used before pip's index")
    parser.add_argument("--nccl", help=f"NCCL's wheel (2.30 or newer), or the word download ({NCCL_VERSION})")
    options = parser.parse_args(arguments)
    try:
        manifest = make(
            options.out,
            options.python_version,
            options.machine,
            options.wheels,
            options.nccl,
            glibc=options.glibc,
        )
    except KitError as error:
        print(error, file=sys.stderr)
        return 2
    for row in manifest["files"]:
        print(f"{row['bytes'] / 1e6:6.2f} MB  {row['file']}")
    count = sum(row["file"].endswith(".whl") for row in manifest["files"])
    nbytes = sum(row["bytes"] for row in manifest["files"])
    print(f"{os.path.relpath(options.out)}: {count} wheels, {nbytes / 2**20:.1f} MiB in all.")
    if manifest["nccl"]:
        print(
            f"nccl/: {len(manifest['nccl'])} slices of NCCL's wheel. Carry them first, one by one, into one folder there."
        )
    else:
        print(
            f"It has no NCCL: several ranks on one GPU will need torch's own to be 2.30. NCCL=download takes {NCCL_VERSION}."
        )
    print("Carry the folder, then there: bash run.sh   (NCCL=folder names the folder with the slices)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

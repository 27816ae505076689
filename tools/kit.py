"""Makes a folder to carry to a machine without a network, where its run.sh proves the machine: `make kit`.

    make kit                                          for Python 3.12, in build/kit/
    make kit PYTHON_VERSION=3.11 OUT=/media/stick     for another Python, to another folder
    make kit NCCL_SOURCE=nccl.tar.gz                  with NCCL's source: an archive, a clone, or the address of a repository
    make kit WHEELS=folder                            wheels from a folder first; what it lacks comes from pip's index

The machine has Python, torch and numpy already; the kit holds the rest, in folders part-1, part-2, ... of at most 60 MB:

- the checkout of HEAD, and a wheel of allranks built from it;
- the wheels that live ranks and chapters need without JupyterLab. Their names follow from pyproject.toml and from the metadata
  of the packages installed here, their versions from constraints.txt;
- NCCL's source, if there is one, to be built there where torch's own NCCL is older;
- run.sh and carry.py, which do the work there, and manifest.json: every file with its size and SHA-256.
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
FORMAT = 1  # of manifest.json
PART_BYTES = 60 * 10**6
# on the machine already; their own requirements are there too
THERE = {"torch", "numpy"}
# what a reader opens notebooks with; the kit runs them without it
LEFT_OUT = {"jupyterlab"}
# beside the course's own requirements and the extra lab: what executes a notebook and reads a percent script
ALSO = ("nbclient", "jupytext")
NCCL_TAG = "v2.30.7-1"
# what `make src.build` reads; the rest of the repository is documents and bindings
NCCL_PATHS = ("Makefile", "makefiles", "src", "LICENSE.txt")
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


def nccl_source(source: str, folder: Path, tag: str = NCCL_TAG) -> Path:
    """NCCL's source as an archive with one folder: of an archive, of a clone, or of a repository that git can clone.

    Raises KitError if it is none of these, or not the version of `tag`.
    """
    path = folder / "nccl.tar.gz"
    given = Path(source)
    with tempfile.TemporaryDirectory() as scratch:
        if given.is_file():
            try:
                unpack(given, Path(scratch))
            except (tarfile.TarError, OSError) as error:
                raise KitError(f"NCCL_SOURCE={source} is not an archive that tar reads: {error}.") from None
            tops = [p for p in [Path(scratch), *Path(scratch).iterdir()] if (p / "makefiles" / "version.mk").is_file()]
            if not tops:
                raise KitError(f"NCCL_SOURCE={source} has no makefiles/version.mk: it is not NCCL's source.")
            _refuse_version((tops[0] / "makefiles" / "version.mk").read_text(encoding="utf-8"), source, tag)
            with tarfile.open(path, "w:gz") as archive:
                for name in NCCL_PATHS:
                    archive.add(tops[0] / name, f"nccl/{name}")
            return path
        clone = given
        if not given.is_dir():
            clone = Path(scratch) / "nccl"
            done = subprocess.run(
                ["git", "clone", "-q", "--depth", "1", "--branch", tag, source, str(clone)],
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise KitError(
                    f"NCCL_SOURCE={source} is neither an archive nor a clone here, and git can't clone it: {done.stderr.strip()}"
                )
        reference = tag if _git(clone, "rev-parse", "-q", "--verify", f"{tag}^{{commit}}") is not None else "HEAD"
        version = _git(clone, "show", f"{reference}:makefiles/version.mk")
        if version is None:
            raise KitError(f"NCCL_SOURCE={source} is no clone of NVIDIA's repository nccl.")
        _refuse_version(version, source, tag)
        if _git(clone, "archive", "--prefix=nccl/", "-o", str(path.absolute()), reference, *NCCL_PATHS) is None:
            raise KitError(f"git can't archive {', '.join(NCCL_PATHS)} of {source}.")
    return path


def _git(clone: Path, *arguments: str) -> str | None:
    """What git prints; None if it fails."""
    done = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, text=True)
    return None if done.returncode else done.stdout


def _refuse_version(text: str, source: str, tag: str) -> None:
    numbers = [re.search(rf"^NCCL_{part}\s*:=\s*(\d+)", text, flags=re.M) for part in ("MAJOR", "MINOR", "PATCH")]
    version = ".".join(n[1] for n in numbers if n)
    if f"v{version}-" != tag.rpartition("-")[0] + "-":
        raise KitError(f"NCCL_SOURCE={source} is NCCL {version or 'of an unknown version'}; the kit needs {tag}.")


def into_parts(files: list[Path], out: Path, limit: int = PART_BYTES) -> list[dict]:
    """Moves the files into part-1, part-2, ... of at most `limit` bytes each; their manifest rows. Raises KitError."""
    rows, room = [], []
    for path in sorted(files, key=lambda path: -path.stat().st_size):
        nbytes = path.stat().st_size
        if nbytes > limit:
            raise KitError(
                f"{path.name} has {nbytes / 1e6:.0f} MB, and a part has {limit / 1e6:.0f}; make the file smaller."
            )
        number = next((n for n, left in enumerate(room) if left >= nbytes), len(room))
        if number == len(room):
            room.append(limit)
        room[number] -= nbytes
        part = out / f"part-{number + 1}"
        part.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.move(path, part / path.name)
        rows.append({"file": path.name, "part": part.name, "bytes": nbytes, "sha256": digest})
    return sorted(rows, key=lambda row: (row["part"], row["file"]))


def make(
    out: Path,
    python_version: str,
    machine: str,
    local: Path | None,
    nccl: str | None,
    limit: int = PART_BYTES,
    glibc: str = GLIBC,
) -> dict:
    """Makes the kit in `out`; returns its manifest. What was in the folder's parts before is gone. Raises KitError."""
    if not re.fullmatch(r"3\.\d+", python_version) or int(python_version[2:]) < 11:
        raise KitError(f"PYTHON_VERSION={python_version}: it is 3.11 or newer, for example 3.12.")
    if local is not None and not local.is_dir():
        raise KitError(f"WHEELS={local} is not a folder.")
    platforms(machine, glibc)
    packages = needed(python_version)
    for old in out.glob("part-*") if out.is_dir() else ():
        shutil.rmtree(old)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as name:
        scratch = Path(name)
        tree = checkout(scratch)
        files = [
            tree,
            own_wheel(tree, scratch),
            *wheels(packages, python_version, machine, scratch / "wheels", local, glibc),
        ]
        if nccl:
            files.append(nccl_source(nccl, scratch))
        # room for what every part-1 has beside them
        rows = into_parts(files, out, limit - 200_000)
    for script in ON_THE_MACHINE:
        shutil.copy(ROOT / "tools" / "kit" / script, out / "part-1" / script)
    manifest = {
        "format": FORMAT,
        "python": python_version,
        "machine": machine,
        "commit": (_git(ROOT, "rev-parse", "HEAD") or "").strip(),
        "nccl": NCCL_TAG if nccl else None,
        "files": rows,
    }
    (out / "part-1" / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def main(arguments: list[str] | None = None) -> int:
    """The exit code of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python-version", default="3.12", help="the Python of the machine (default: 3.12)")
    parser.add_argument("--machine", default="x86_64", choices=("x86_64", "aarch64"))
    parser.add_argument("--glibc", default=GLIBC, help=f"the machine's C library, at least (default: {GLIBC})")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "kit")
    parser.add_argument("--wheels", type=Path, help="a folder with wheels, to be used before pip's index")
    parser.add_argument("--nccl-source", help=f"NCCL's source of {NCCL_TAG}: an archive, a clone or an address for git")
    options = parser.parse_args(arguments)
    try:
        manifest = make(
            options.out,
            options.python_version,
            options.machine,
            options.wheels,
            options.nccl_source,
            glibc=options.glibc,
        )
    except KitError as error:
        print(error, file=sys.stderr)
        return 2
    for row in manifest["files"]:
        print(f"{row['part']}  {row['bytes'] / 1e6:6.2f} MB  {row['file']}")
    count = sum(row["file"].endswith(".whl") for row in manifest["files"])
    print(
        f"{os.path.relpath(options.out)}: {count} wheels, {sum(row['bytes'] for row in manifest['files']) / 1e6:.1f} MB in all."
    )
    if not manifest["nccl"]:
        print(
            f"It has no NCCL: several ranks on one GPU will need torch's own NCCL to be 2.30. NCCL_SOURCE= takes {NCCL_TAG} of "
            "github.com/NVIDIA/nccl, as an archive, a clone or an address."
        )
    print("Carry the folder (or its parts, side by side), then there: bash part-1/run.sh")
    return 0


if __name__ == "__main__":
    sys.exit(main())

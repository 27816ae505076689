"""Installed packages, packed again as wheels: what a test installs elsewhere, without an index."""

from __future__ import annotations

import zipfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def packed_again(name: str, folder: Path, hollow: bool = False, small: bool = False) -> None:
    """The installed package as a wheel in `folder`; a hollow one has the metadata only, a small one is compressed as
    an index's.
    """
    dist = metadata.distribution(name)
    tags = [line.split(": ")[1] for line in dist.read_text("WHEEL").splitlines() if line.startswith("Tag: ")]
    # a file's name joins what differs between its tags: py2.py3-none-any
    joined = "-".join(".".join(dict.fromkeys(column)) for column in zip(*(tag.split("-") for tag in tags), strict=True))
    label = f"{dist.metadata['Name'].replace('-', '_')}-{dist.version}"
    file = f"{label}-{joined}.whl"
    with zipfile.ZipFile(folder / file, "w", zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED) as wheel:
        for entry in dist.files:
            parts = entry.parts
            if (
                "__pycache__" in parts
                or ("bin" in parts[:4] and parts[0] == "..")
                or not dist.locate_file(entry).is_file()
                or (hollow and not parts[0].endswith(".dist-info"))
            ):
                continue
            inside = "/".join(parts)
            if parts[0] == "..":  # share/jupyter and the like
                inside = f"{label}.data/data/{'/'.join(part for part in parts if part != '..')}"
            wheel.write(dist.locate_file(entry), inside)


def folders_of(name: str) -> list[Path]:
    """What the installed package has in site-packages, without its metadata."""
    dist = metadata.distribution(name)
    tops = {entry.parts[0] for entry in dist.files} - {"..", "__pycache__"}
    return [Path(dist.locate_file(top)) for top in sorted(tops) if not top.endswith(".dist-info")]


def required(*wanted: str) -> set[str]:
    """The names of these and of all that they require on this Python, as the installed packages say it."""
    found: dict[str, set[str]] = {}
    todo = [Requirement(line) for line in wanted]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        new = {"", *requirement.extras} - found.setdefault(name, set())
        found[name] |= new
        for inner in map(Requirement, metadata.requires(name) or [] if new else []):
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in new):
                todo.append(inner)
    return set(found)

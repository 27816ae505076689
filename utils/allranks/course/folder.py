"""The learner's folder: the course's notebooks are put there once, and later versions are merged into them.

With them come the pages, scripts and data that they lead to; one of these that the learner changed is left alone. The folder
.allranks holds all files as they were given (`given/`), which a merge needs, and the learner's notebooks
as they were before each update (`before/`). A notebook of the learner's is never written over. A chapter that has another place
in the new version is merged at its old place and then lies at the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from allranks.base import chapters as course_map
from allranks.base import course_files as files
from allranks.base.errors import CourseError
from allranks.base.whole import write_whole
from allranks.course.merge import Notebook, merge

OWN = Path(".allranks")
BASE = OWN / "given"
BEFORE = OWN / "before"
VERSION = OWN / "version"


class FolderError(CourseError):
    """The learner's folder can't be made, read or updated; the message is one sentence that says what to do."""


@dataclass
class Report:
    """What was done to the files of a folder, as paths in it."""

    folder: Path
    version: str
    added: list[Path] = field(default_factory=list)
    updated: list[Path] = field(default_factory=list)  # the learner had written nothing into them
    merged: list[Path] = field(default_factory=list)
    doubled: list[Path] = field(
        default_factory=list
    )  # of the merged: a cell of the learner's has a new version below it
    moved: dict[Path, Path] = field(
        default_factory=dict
    )  # a chapter's old place -> where the learner's notebook is now
    removed: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)  # left alone: they were never given, or can't be read
    before: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        names = ("added", "updated", "merged", "doubled", "removed", "kept")
        lists = {name: [path.as_posix() for path in getattr(self, name)] for name in names}
        moved = {old.as_posix(): new.as_posix() for old, new in self.moved.items()}
        return {
            "folder": str(self.folder),
            "version": self.version,
            **lists,
            "moved": moved,
            "before": str(self.before or ""),
        }

    def text(self) -> str:
        """The report in sentences."""
        lines = []
        done = [(self.added, "added"), (self.updated, "updated"), (self.merged, "merged"), (self.removed, "removed")]
        counts = [f"{len(paths)} {word}" for paths, word in done if paths]
        counts += [f"{len(self.moved)} in a new place"] if self.moved else []
        if not counts:
            lines.append(f"{self.folder} has the notebooks of version {self.version} already.")
        else:
            lines.append(f"{self.folder} now has version {self.version}: {', '.join(counts)}. What you wrote is kept.")
        lines += [f"  {old} is now {new}" for old, new in self.moved.items() if new in self.merged or new in self.kept]
        lines += [
            f"  {path}: a cell that you changed has a new version; it stands below yours." for path in self.doubled
        ]
        lines += [f"  {path}: left as it is, since you changed it, or have it from elsewhere." for path in self.kept]
        if self.before is not None:
            lines.append(f"Your notebooks as they were: {self.before}")
        return "\n".join(lines)


def version() -> str:
    """The version of the course that is installed."""
    return installed_version("allranks")


def home_folder() -> Path:
    """Where the notebooks go if the learner names no folder: ~/all-ranks."""
    return Path.home() / "all-ranks"


def find(start: Path) -> Path | None:
    """The learner's folder that holds `start`; None if it lies in none."""
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / BASE).is_dir() and (folder / first_chapter(folder)).is_file():
            return folder
    return None


def first_chapter(folder: Path) -> Path:
    """Where "Start here" is in `folder`: at its old place until a folder of an older version is updated."""
    old = course_map.find(files.FIRST_CHAPTER.stem).old_path
    there = (folder / old).is_file() and not (folder / files.FIRST_CHAPTER).exists()
    return old if there and (folder / OWN).is_dir() else files.FIRST_CHAPTER


def version_of(folder: Path) -> str:
    """The version of the notebooks in a learner's folder; "" if it does not say."""
    try:
        return (folder / VERSION).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def lay_out(folder: Path) -> Report:
    """Puts the course's notebooks, and what they lead to, into `folder`, which is made if it is missing. Files that are there stay as they are.

    A notebook that the learner deleted comes back. Of a folder of an older version each chapter stays at its old place until `update`.
    Raises FolderError.
    """
    source = _source()
    report = Report(folder, version())
    new = not (folder / OWN).is_dir()
    with _as_folder_error(folder):
        for path in files.for_learners(source):
            if _old_place(folder, path) is not None:
                continue
            if not os.path.lexists(folder / path):
                _give(source, folder, path)
                report.added.append(path)
            elif not (folder / BASE / path).exists():
                if (folder / path).read_bytes() == (source / path).read_bytes():
                    _copy(source / path, folder / BASE / path)
                else:
                    report.kept.append(path)
        if new:
            _write(folder / VERSION, f"{report.version}\n")
    return report


def update(folder: Path) -> Report:
    """Merges the notebooks of the installed version into those of `folder`; each is kept as it was in .allranks/before.

    Raises FolderError if `folder` is not one that `lay_out` made, or can't be written.
    """
    if files.checkout() is not None and folder.resolve() == files.checkout():
        raise FolderError(f"{folder} is a checkout of the course: `git pull` brings its new versions.")
    if not (folder / OWN).is_dir():
        raise FolderError(
            f"{folder} has no notebooks that `allranks lab` put there; `allranks lab` makes such a folder."
        )
    source = _source()
    report = Report(folder, version())
    with _as_folder_error(folder):
        before = _unused(folder / BEFORE / (version_of(folder) or "unknown"))
        there = files.for_learners(source)
        for path in there:
            _move(folder, path, before, report)
            _update(source, folder, path, before, report)
        for path in _given(folder):
            if path not in there:
                _drop(folder, path, report)
        _write(folder / VERSION, f"{report.version}\n")
    report.before = before if before.exists() else None
    return report


def _old_place(folder: Path, path: Path) -> Path | None:
    """Where an older version gave the learner this chapter, if it did and the chapter has not moved since; None for other notebooks."""
    old = next((chapter.old_path for chapter in course_map.chapters() if chapter.path == path), path)
    return old if old != path and (folder / BASE / old).is_file() else None


def _move(folder: Path, path: Path, before: Path, report: Report) -> None:
    """Brings a chapter that the learner has at its old place, and the text that was given, to the new place.

    It stays if something else is at the new place, or if it can't be read, and the report says so.
    """
    old = _old_place(folder, path)
    if old is None or os.path.lexists(folder / path):
        return
    if not os.path.lexists(folder / old):  # the learner deleted it
        (folder / BASE / old).unlink()
        return
    if _notebook(folder / old) is None:
        report.kept.append(old)
        (folder / BASE / old).unlink()
        return
    if (folder / old).read_bytes() != (folder / BASE / old).read_bytes():
        _copy(folder / old, before / old)
    for root in (folder / BASE, folder):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(root / old, root / path)
    report.moved[old] = path


def _update(source: Path, folder: Path, path: Path, before: Path, report: Report) -> None:
    """Brings one notebook to the version of `source`."""
    mine, base = folder / path, folder / BASE / path
    if not os.path.lexists(mine):
        _give(source, folder, path)
        report.added.append(path)
        return
    new = (source / path).read_bytes()
    if mine.read_bytes() == new:
        _copy(source / path, base)
        return
    if not base.exists():
        report.kept.append(path)
        return
    if base.read_bytes() == new:
        return
    if mine.read_bytes() == base.read_bytes():
        _give(source, folder, path)
        report.updated.append(path)
        return
    own = _notebook(mine)
    if own is None:
        report.kept.append(path)
        return
    merged = merge(_read(base), own, json.loads(new), report.version)
    if path not in report.moved.values():  # else it is kept at its old place
        _copy(mine, before / path)
    _write(mine, _as_text(merged.notebook))
    _copy(source / path, base)
    (report.merged if merged.kept else report.updated).append(path)
    if merged.doubled:
        report.doubled.append(path)


def _given(folder: Path) -> list[Path]:
    """What this version or an older one gave, as paths in the folder."""
    base = folder / BASE
    return sorted(path.relative_to(base) for path in base.rglob("*") if path.is_file())


def _drop(folder: Path, path: Path, report: Report) -> None:
    """Removes a notebook that the course no longer has, unless the learner changed or ran it."""
    mine, base = folder / path, folder / BASE / path
    if os.path.lexists(mine):
        if mine.read_bytes() == base.read_bytes():
            mine.unlink()
            report.removed.append(path)
        else:
            report.kept.append(path)
    base.unlink()


def _source() -> Path:
    source = files.given()
    if source is None:
        raise FolderError(
            "This installation of allranks has no notebooks: install it from its wheel, or use a checkout."
        )
    return source


def _notebook(path: Path) -> Notebook | None:
    """The learner's notebook; None if it is none of format 4."""
    try:
        found = _read(path)
    except (OSError, ValueError, RecursionError):
        return None
    good = isinstance(found, dict) and found.get("nbformat") == 4 and isinstance(found.get("cells"), list)
    return found if good and all(isinstance(cell, dict) for cell in found["cells"]) else None


def _read(path: Path) -> Notebook:
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def _as_text(notebook: Notebook) -> str:
    """As Jupyter writes it."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _give(source: Path, folder: Path, path: Path) -> None:
    """Puts one notebook into the folder, as it is, and remembers it."""
    _copy(source / path, folder / path)
    _copy(source / path, folder / BASE / path)


def _copy(source: Path, target: Path) -> None:
    _write(target, source.read_bytes())


def _write(path: Path, content: str | bytes) -> None:
    """Writes a file and the folders above it, with the usual rights: the course's own may be read-only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def _unused(path: Path) -> Path:
    """The path, or the first of path-2, path-3, ... that is not there yet."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


@contextlib.contextmanager
def _as_folder_error(folder: Path) -> Iterator[None]:
    """Turns what the system refuses into a FolderError."""
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file: name another folder.")
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise FolderError(
            f"{error.filename or folder} can't be read or written ({reason}): name a folder of your own."
        ) from None

"""A copy of a course in which a command can be tried: what a dry run shows is what the command does, and the course stays as it is.

The copy has one lab, the gradebook, the secret and the configuration, so that hidden inputs and points are the same. It is gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from allranks.base.errors import CourseError

from autograder.folder import SQLITE, directory_of, has_gradebook

LEFT_OUT = {"gradebook.db", "gradebook.db-journal", "gradebook.db.lock", "__pycache__"}


class RehearsalError(CourseError):
    """The course can't be copied; the message is one sentence."""


@contextmanager
def rehearsal(course: Path, lab: str) -> Iterator[Path]:
    """The copy's folder, which only this account can read. Raises RehearsalError if the configuration leads out of the copy."""
    about = directory_of(course)
    folders = [about.submitted_directory, about.autograded_directory, about.feedback_directory]
    if any(Path(one).is_absolute() for one in (*folders, about.source_directory, about.release_directory)):
        raise _leads_out(course)
    with tempfile.TemporaryDirectory(prefix="allranks-dry-run-") as made:
        copy = Path(made).resolve() / course.name
        (copy / "autograder").mkdir(parents=True)
        for kind in (about.source_directory, about.release_directory):
            if (course / kind / lab).is_dir():
                _copy(course / kind / lab, copy / kind / lab)
        kept = {Path(folder).parts[-1] for folder in folders}
        for path in sorted((course / "autograder").iterdir()):
            if path.name in LEFT_OUT | kept or path.is_symlink():
                continue
            _copy(path, copy / "autograder" / path.name)
        for folder in folders[:2]:
            for theirs in sorted((course / folder).glob(f"*/{lab}")):
                _copy(theirs, copy / folder / theirs.parent.name / lab)
        if has_gradebook(about) and about.db_url.startswith(SQLITE):
            copy_database(Path(about.db_url.removeprefix(SQLITE)), copy / "autograder" / "gradebook.db")
        there = directory_of(copy)
        places = [there.root, there.db_url.removeprefix(SQLITE)]
        if not all(Path(place).resolve().is_relative_to(copy) for place in places):
            raise _leads_out(course)
        _date(course, copy, folders[0], folders[1], lab)
        yield copy


def _leads_out(course: Path) -> RehearsalError:
    return RehearsalError(
        f"A dry run needs a copy of the course, and {course / 'autograder/nbgrader_config.py'} names a folder by its "
        "whole path: name the folders of the course relative to the file, as the shipped configuration does."
    )


def copy_database(source: Path, target: Path) -> None:
    """Copies an SQLite database as it is at one moment, also while somebody writes; the copy is readable for this account only."""
    target.touch(mode=0o600)
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def _copy(source: Path, target: Path) -> None:
    """Copies a file or folder; links stay links, and a pipe that a student made is one in the copy too, so that it is refused there."""
    about = source.lstat()
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISDIR(about.st_mode):
        target.mkdir(exist_ok=True)
        for path in sorted(source.iterdir()):
            if path.name != "__pycache__":
                _copy(path, target / path.name)
        shutil.copystat(source, target)
    elif stat.S_ISLNK(about.st_mode):
        target.symlink_to(os.readlink(source))
    elif stat.S_ISREG(about.st_mode):
        shutil.copy2(source, target)
    else:
        os.mkfifo(target, 0o600)


def _date(course: Path, copy: Path, submitted: str, autograded: str, lab: str) -> None:
    """Makes a graded notebook newer than the work in the copy where it is in the course: so the same work counts as graded."""
    now = time.time() + 0.01
    for graded in (copy / autograded).glob(f"*/{lab}/*.ipynb"):
        inside = graded.relative_to(copy / autograded)
        work, was = course / submitted / inside, course / autograded / inside
        current = not work.exists() or was.stat().st_mtime >= work.stat().st_ctime
        os.utime(graded, (now, now) if current else (0, 0))

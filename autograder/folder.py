"""A course's folder as nbgrader sees it, from its nbgrader_config.py."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from allranks.base.errors import CourseError
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config, PyFileConfigLoader

SQLITE = "sqlite:///"


def config_of(course: Path) -> Config:
    """What the course's nbgrader_config.py sets."""
    return PyFileConfigLoader("nbgrader_config.py", path=str(course / "autograder")).load_config()


def directory_of(course: Path) -> CourseDirectory:
    """nbgrader's names of the course's folders."""
    return CourseDirectory(config=config_of(course))


def has_gradebook(about: CourseDirectory) -> bool:
    """Whether there is a gradebook: nbgrader would make an empty one where it looks."""
    return not about.db_url.startswith(SQLITE) or Path(about.db_url.removeprefix(SQLITE)).exists()


def text_of(path: Path, error: type[CourseError]) -> str | None:
    """What a teacher wrote into a file; None if there is no such file. Raises `error`, with a sentence."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as why:
        raise error(f"{path} can't be read ({getattr(why, 'strerror', None) or 'it is no UTF-8'}).") from None


def table_of(path: Path, columns: Sequence[str], error: type[CourseError]) -> list[dict[str, str]]:
    """The rows of a CSV file that a teacher wrote, without spaces around names and values; none if there is no such file.

    Raises `error`, with a sentence.
    """
    text = text_of(path, error)
    if text is None:
        return []
    try:
        rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
        heads = [head.strip() for head in rows.fieldnames or ()]
        rows.fieldnames = heads
        found = [{head: (row.get(head) or "").strip() for head in heads} for row in rows]
    except csv.Error as why:
        raise error(f"{path} is no table ({why}).") from None
    if not set(columns) <= set(heads):
        raise error(f"{path} needs a first line with {', '.join(columns)}.")
    return found

"""A course's folder as nbgrader sees it, from its nbgrader_config.py."""

from __future__ import annotations

from pathlib import Path

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


def rewrite(path: Path, text: str) -> None:
    """Puts the text into the file, whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)

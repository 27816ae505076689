"""A course's folder as nbgrader sees it, from its nbgrader_config.py."""

from __future__ import annotations

from pathlib import Path

from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config, PyFileConfigLoader


def config_of(course: Path) -> Config:
    """What the course's nbgrader_config.py sets."""
    return PyFileConfigLoader("nbgrader_config.py", path=str(course / "autograder")).load_config()


def directory_of(course: Path) -> CourseDirectory:
    """nbgrader's names of the course's folders."""
    return CourseDirectory(config=config_of(course))

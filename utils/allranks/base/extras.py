"""The optional parts of the installation (pyproject.toml's extras), and one sentence for a reader who lacks one."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from typing import TYPE_CHECKING

from allranks.base.course_files import checkout
from allranks.base.errors import CourseError

if TYPE_CHECKING:
    from packaging.requirements import Requirement


_PACKAGES = {"jwt": "pyjwt"}  # of modules whose package has another name


class MissingExtraError(CourseError, ImportError):
    """A package of an optional part is not installed; the message says how to install it."""


def require(module: str, needed_by: str) -> None:
    """Returns nothing if `module` can be imported. Raises MissingExtraError if it is not installed."""
    if importlib.util.find_spec(module) is None:
        raise missing(module, needed_by)


def missing(module: str, needed_by: str) -> MissingExtraError:
    """The error for `module`, of one of the extras. `needed_by` begins the sentence: "allranks grade", "Player"."""
    package = _package_of(module)
    return MissingExtraError(f"{needed_by} needs {package}, which is not installed. {how_to_install(extra_of(module))}")


def how_to_install(extra: str | None) -> str:
    """The command that installs an extra; in a checkout after the folder where it works."""
    if checkout() is None:
        return f"Install it with: pip install 'allranks[{extra}]'"
    return f"In the course's folder: pip install -c constraints.txt -e '.[{extra}]'"


def extra_of(module: str) -> str | None:
    """The first extra that installs the package of this module; None if no extra does."""
    package = _package_of(module)
    for extra, wanted in requirements().items():
        if extra and package in (requirement.name for requirement in wanted):
            return extra
    return None


def _package_of(module: str) -> str:
    name = module.partition(".")[0]
    return _PACKAGES.get(name, name)


def requirements(lines: list[str] | None = None) -> dict[str, list[Requirement]]:
    """What the course requires, by extra; "" is the core, which is always installed.

    `lines` are requirements as package metadata has them; without it they are those of the installed course.
    """
    from packaging.requirements import Requirement

    found: dict[str, list[Requirement]] = {"": []}
    for line in metadata.requires("allranks") or [] if lines is None else lines:
        requirement = Requirement(line)
        extra = str(requirement.marker or "").partition("extra == ")[2].strip('"')
        found.setdefault(extra, []).append(requirement)
    return found

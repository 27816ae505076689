"""The commands for a class: the grader in autograder/ brings them, by entry points. An installation may have none."""

from __future__ import annotations

import functools
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from allranks.base import course_files
from allranks.course.teaching import grader_of

GROUP = "allranks.commands"
OURS = "allranks"


def commands() -> dict[str, EntryPoint]:
    """The entry points of other packages' commands, by name; the grader's only where the grader is."""
    if home := course_files.teacher():
        _reach(home)
    # of one name the last counts
    return {point.name: point for _, point in _points() if home or not point.module.startswith("autograder.")}


def clashing(name: str) -> list[str]:
    """The other packages that bring a command of the grader's name, which is not used."""
    packages = {package for package, point in _points() if point.name == name}
    return sorted(packages - {OURS, ""}) if OURS in packages else []


@functools.cache
def _points() -> tuple[tuple[str, EntryPoint], ...]:
    """The entry points with their packages' names, the course's own last.

    They are looked up once: it reads files of every installed package, and a list of commands asks for each of them.
    """
    found = [(point.dist.name if point.dist is not None else "", point) for point in entry_points(group=GROUP)]
    return tuple(sorted(found, key=lambda one: one[0] == OURS))


def on_engine(course: str, target: str, *args: Any) -> Any:
    """Runs on an engine: a function of the grader that marks this course; `target` is "MODULE:NAME"."""
    _reach(grader_of(Path(course)))
    return EntryPoint("", target, GROUP).load()(*args)


def _reach(home: Path) -> None:
    if str(home) not in sys.path:
        sys.path.insert(0, str(home))

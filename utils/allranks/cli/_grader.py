"""The commands for a class: the grader in autograder/ brings them, by entry points. An installation may have none."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from allranks.base import course_files
from allranks.course.teaching import grader_of

GROUP = "allranks.commands"


def commands() -> dict[str, EntryPoint]:
    """The entry points of other packages' commands, by name; the grader's only where the grader is."""
    if home := course_files.teacher():
        _reach(home)
    points = sorted(entry_points(group=GROUP), key=_is_ours)  # of one name the last counts
    return {point.name: point for point in points if home or not point.module.startswith("autograder.")}


def clashing(name: str) -> list[str]:
    """The other packages that bring a command of the grader's name, which is not used."""
    points = entry_points(group=GROUP, name=name)
    if not any(map(_is_ours, points)):
        return []
    return sorted({point.dist.name for point in points if point.dist is not None and not _is_ours(point)})


def _is_ours(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == "allranks"


def on_engine(course: str, target: str, *args: Any) -> Any:
    """Runs on an engine: a function of the grader that marks this course; `target` is "MODULE:NAME"."""
    _reach(grader_of(Path(course)))
    return EntryPoint("", target, GROUP).load()(*args)


def _reach(home: Path) -> None:
    if str(home) not in sys.path:
        sys.path.insert(0, str(home))

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
    points = {point.name: point for point in entry_points(group=GROUP)}
    return {name: point for name, point in points.items() if home or not point.module.startswith("autograder.")}


def on_engine(course: str, target: str, *args: Any) -> Any:
    """Runs on an engine: a function of the grader that marks this course; `target` is "MODULE:NAME"."""
    _reach(grader_of(Path(course)))
    return EntryPoint("", target, GROUP).load()(*args)


def _reach(home: Path) -> None:
    if str(home) not in sys.path:
        sys.path.insert(0, str(home))

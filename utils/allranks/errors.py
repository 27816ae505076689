"""The root of the errors that a reader of the course meets."""

from __future__ import annotations


class CourseError(Exception):
    """An error whose message is all that its reader needs: a notebook shows it without a traceback of our insides."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]

"""The root of all errors that the package raises for its readers."""

from __future__ import annotations


class CourseError(Exception):
    """An error whose message is all that its reader needs.

    A notebook shows it as one line, without a traceback through the package; a command prints it and exits with status 2.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]

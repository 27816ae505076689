"""What several commands share: how they fail, write a file, read a number of bytes and say a time."""

from __future__ import annotations

import functools
import os
import re
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

import click

from allranks.base.errors import CourseError, seconds_in_words

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
duration = functools.partial(seconds_in_words, digits=4)


class CommandError(click.ClickException):
    """Ends a command: one sentence on standard error, exit status 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints the sentence, without the word "Error" that click puts before it."""
        click.echo(self.message, err=True)


class GradeError(CourseError):
    """Nothing can be graded; the message is one sentence that says what to do."""


def course_above(start: Path) -> Path:
    """The folder of a class's course: `start` or a folder above it. Raises GradeError if none of them is a course.

    What the command writes from now on, such as marks, pages and exports, only this account can read.
    """
    if context := click.get_current_context(silent=True):
        before = os.umask(0o077)
        context.call_on_close(lambda: os.umask(before))
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / "autograder" / "nbgrader_config.py").is_file():
            return folder
    raise GradeError(f"{start} is in no course: go to the folder that holds autograder/, or give it as --course.")


def as_sentence(error: Exception) -> str:
    """The error's message with a full stop, and with a capital letter if it begins with a plain word."""
    text = str(error)
    first = text.split(maxsplit=1)[0] if text else ""
    return (text.capitalize()[:1] + text[1:] if first.isalpha() and first != "allranks" else text) + (
        "" if text.endswith(".") else "."
    )


def write_text(path: Path, text: str) -> None:
    """Writes a file of the reader's. Raises CommandError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} can't be written: {error.strerror or error}.") from None


class Size(click.ParamType[int]):
    """A number of bytes: "1048576", "25MB", "1MiB". k, M, G, T are powers of 1000; Ki, Mi, Gi, Ti powers of 1024."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes as a whole number. Raises CommandError."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([-+]?\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]?i?)b?", str(value).strip().lower())
        if not found or (found[2] not in _UNITS):
            raise CommandError(f"{value!r} is not a number of bytes; write for example 1048576, 1MiB or 25MB.")
        if float(found[1]) >= 2**63:
            raise CommandError(f"{value!r} is more bytes than there are.")
        number = Fraction(found[1]) * _UNITS[found[2]]
        if number < 0:
            raise CommandError(f"The bytes are {value}; they can't be negative.")
        if number != int(number):
            raise CommandError(f"{value!r} is not a whole number of bytes.")
        return int(number)

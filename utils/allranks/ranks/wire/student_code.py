"""The student's functions: which file they are from, how they travel, and what their lines say."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass

from allranks.ranks.engines.usercode import functions
from allranks.ranks.wire.messages import Program
from allranks.ranks.wire.record import TextOf
from allranks.ranks.wire.wait import NameLine, line_number, named


@dataclass(frozen=True)
class Lines:
    """The program's lines, as sentences need them: their text, and their names, such as "line 4"."""

    text: TextOf
    name: NameLine = line_number

    def place(self, line: int | None) -> str:
        """ "line 4", or nothing."""
        return named(line, self.name) if line else ""

    def at(self, line: int | None) -> str:
        """ ", line 4", or nothing."""
        return f", {named(line, self.name)}" if line else ""

    def in_brackets(self, line: int | None) -> str:
        """ " (line 4)", or nothing."""
        return f" ({named(line, self.name)})" if line else ""


def filename_of(fn: Callable) -> str:
    for function in functions(fn):
        if hasattr(function, "__code__"):
            return function.__code__.co_filename
    return "<program>"


def texts(fn, filename: str) -> TextOf:
    """Looks up a line of the student's. Reads no file but the function's own: the file names come from the ranks."""
    if isinstance(fn, Program):
        lines = fn.source.splitlines()
    else:
        lines = [line.rstrip("\n") for line in linecache.getlines(filename)]

    def text_of(file: str | None, line: int | None) -> str | None:
        if file is None or line is None:
            return None
        if file == filename:
            return lines[line - 1].strip() if 0 < line <= len(lines) else None
        known = linecache.cache.get(file)
        if known is None or len(known) < 3 or not 0 < line <= len(known[2]):
            return None
        return known[2][line - 1].strip()

    return text_of

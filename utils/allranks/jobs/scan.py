"""Reads large JSON files piece by piece: the events of a profile, without the whole file in memory.

Profilers are killed, disks are full: a file may end in the middle. What stands before the end is still given, and
`fault` says in words what is wrong.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allranks.base.unpacked import CHUNK, Unpacked, plain_text

__all__ = ["EventFile", "head_of", "lines_of"]

LOOKAHEAD = 16 << 20  # an event that is still not whole after so many characters is damaged
_ENDS = re.compile(rb"\r\n|\n|\r")
_GAP = re.compile(r"[\s,]*")
_NEXT_EVENT = re.compile(r'\{\s*"ph"\s*:')
_DECODER = json.JSONDecoder(strict=False)


def head_of(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of a file, unpacked.

    >>> head_of(Path("/nowhere"))
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: '/nowhere'
    """
    with path.open("rb") as file:
        return Unpacked(file).first(size)


def lines_of(path: Path, most: int = 1 << 16) -> Iterator[str]:
    """The lines of a text, unpacked and without colours; a line of more than `most` letters is given in parts.

    A carriage return ends a line too: a progress bar writes its states into one.

    >>> list(lines_of(Path("/dev/null")))
    []
    """
    with path.open("rb") as file:
        source, rest = Unpacked(file), b""
        while more := source.read():
            *lines, rest = _ENDS.split(rest + more)
            for line in lines:
                yield plain_text(line[:most].decode("utf-8", "replace")) + "\n"
            if len(rest) > most:
                yield plain_text(rest[:most].decode("utf-8", "replace"))
                rest = b""
        if rest:
            yield plain_text(rest.decode("utf-8", "replace"))


class EventFile:
    """The events of one file in the Trace Event Format: iterate over it once; then `header` and `fault` are complete.

    `header` holds all other members of the file's object. `fault` is a sentence's end, such as "the gzip file ends in
    the middle", or "". `damaged` counts events that are not JSON.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.fault = ""
        self.damaged = 0
        self._text, self._at, self._ended = "", 0, False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self.path.open("rb") as file:
            self._source = Unpacked(file)
            self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
            yield from self._document()
            self.fault = self._source.fault or self.fault

    def _more(self, size: int = CHUNK) -> bool:
        """Reads at least `size` more characters, if there are any; False at the end."""
        parts = [self._text[self._at :]]
        self._at, got = 0, 0
        while got < size and not self._ended:
            found = self._source.read()
            self._ended = not found
            parts.append(self._decode.decode(found, final=self._ended))
            got += len(parts[-1])
        self._text = "".join(parts)
        return got > 0

    def _skip(self) -> str:
        """The next character that is neither white space nor a comma; "" at the end."""
        while True:
            gap = _GAP.match(self._text, self._at)
            self._at = gap.end() if gap else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        """The JSON value that starts here. Raises ValueError if it isn't one, or the file ends in it."""
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
                # a number at the very end of the text may go on in the next piece
                if end < len(self._text) or isinstance(found, (dict, list, str)) or not self._more():
                    self._at = end
                    return found
            except ValueError:
                have = len(self._text) - self._at
                if have >= LOOKAHEAD or not self._more(max(CHUNK, have)):
                    raise
            except RecursionError:
                raise ValueError("nested too deeply") from None

    def _document(self) -> Iterator[dict[str, Any]]:
        first = self._skip()
        if first == "[":  # the format allows a bare array of events
            yield from self._events()
            return
        if first != "{":
            self.fault = "it is not JSON"
            return
        self._at += 1
        while True:
            sign = self._skip()
            if sign == "}":
                return
            try:
                if sign != '"':
                    raise ValueError
                key = self._value()
                if self._skip() != ":":
                    raise ValueError
                self._at += 1
                if key == "traceEvents" and self._skip() == "[":
                    yield from self._events()
                    if self.fault:
                        return
                else:
                    self._skip()
                    self.header[key] = self._value()
            except ValueError:
                self.fault = "the JSON ends in the middle" if self._ended else "the JSON is damaged"
                return

    def _events(self) -> Iterator[dict[str, Any]]:
        self._at += 1
        decode, gap = _DECODER.raw_decode, _GAP.match
        while True:
            # the usual case, without a call: an event that is wholly in the text
            try:
                at = gap(self._text, self._at).end()  # type: ignore[union-attr]
                event, self._at = decode(self._text, at)
                if isinstance(event, dict):
                    yield event
                continue
            except (ValueError, RecursionError):
                pass
            sign = self._skip()
            if sign == "]":
                self._at += 1
                return
            if not sign:
                self.fault = "the JSON ends in the middle"
                return
            try:
                event = self._value()
            except ValueError:
                if not self._recover():
                    return
                continue
            if isinstance(event, dict):
                yield event

    def _recover(self) -> bool:
        """Goes on behind an event that is not JSON; False if the file ends."""
        found = _NEXT_EVENT.search(self._text, self._at + 1)
        if found is None:
            self.fault = "the JSON ends in the middle" if self._ended else "the JSON is damaged"
            return False
        self._at = found.start()
        self.damaged += 1
        return True

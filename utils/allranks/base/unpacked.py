"""The bytes of files as people send them: packed by gzip, bzip2, xz or zstd, or in UTF-16 as PowerShell redirects them.

`Unpacked` gives plain bytes piece by piece, so that a file of any size fits in memory. `plain_text` takes a terminal's
colours away.
"""

from __future__ import annotations

import bz2
import codecs
import importlib
import lzma
import re
import zlib
from collections.abc import Callable
from typing import IO, Any

from allranks.base.errors import CourseError

CHUNK = 1 << 20
_WAYS = {"gzip": b"\x1f\x8b", "bzip2": b"BZh", "xz": b"\xfd7zXZ\x00", "zstd": b"\x28\xb5\x2f\xfd"}  # how each begins
_COLOURS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")
_DAMAGES = (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError)


class PackedError(CourseError):
    """A file that is packed in a way that this Python can't unpack; the message completes the sentence "FILE: ..."."""


def plain_text(text: str) -> str:
    """A text without the colours and titles that programs send to a terminal.

    >>> plain_text("\\x1b[36m(worker)\\x1b[0m done")
    '(worker) done'
    """
    return _COLOURS.sub("", text) if "\x1b" in text else text


class Unpacked:
    """The bytes of a file, unpacked, in UTF-8 without a byte order mark, about `CHUNK` at a time; b"" at the end.

    `fault` says what is wrong with a packed file ("the gzip file is damaged"), or "". Raises PackedError for zstd
    where this Python has no module for it.

    >>> import gzip, io
    >>> Unpacked(io.BytesIO(gzip.compress("a line".encode("utf-16")))).read()
    b'a line'
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.fault = ""
        self._pending = file.read(1 << 16)
        self._way = next((way for way, start in _WAYS.items() if self._pending.startswith(start)), "")
        self._unpack = _unpacker(self._way) if self._way else None
        self._decode: codecs.IncrementalDecoder | None = None
        self._began = False

    def read(self) -> bytes:
        """The next bytes; none at the end, or where the packed bytes are damaged."""
        while True:
            found = self._plain()
            if not self._began:
                self._began = True
                found = found.removeprefix(codecs.BOM_UTF8)
                name = _utf_16(found)
                self._decode = codecs.getincrementaldecoder(name)(errors="replace") if name else None
            if self._decode is None:
                return found
            text = self._decode.decode(found, final=not found)
            if text or not found:
                return text.encode("utf-8", "replace")

    def first(self, most: int) -> bytes:
        """The first `most` bytes, in place of `read`; fewer where the file is shorter or its packing is damaged."""
        parts, size = [], 0
        while size < most and (more := self.read()):
            parts.append(more[: most - size])
            size += len(parts[-1])
        return b"".join(parts)

    def _plain(self) -> bytes:
        if self._unpack is None:
            if self._pending:
                first, self._pending = self._pending, b""
                return first
            return self.file.read(CHUNK)
        while not self.fault:
            packed = self._pending or self.file.read(1 << 16)
            self._pending = b""
            if not packed and not self._held():
                if not self._unpack.eof:
                    self.fault = f"the {self._way} file ends in the middle"
                return b""
            if self._unpack.eof:
                if not packed.startswith(_WAYS[self._way]):
                    return b""
                self._unpack = _unpacker(self._way)  # several files, one after the other
            try:
                found: bytes = self._unpack.decompress(packed, CHUNK)
            except _DAMAGES:
                self.fault = f"the {self._way} file is damaged"
                return b""
            if self._unpack.eof:
                self._pending = self._unpack.unused_data
            elif self._way == "gzip":
                self._pending = self._unpack.unconsumed_tail
            if found:
                return found
        return b""

    def _held(self) -> bool:
        """Whether the unpacker still holds bytes of what it was given; zlib gives them back instead."""
        unpack: Any = self._unpack
        return self._way != "gzip" and not unpack.eof and not getattr(unpack, "needs_input", True)


class _Zstandard:
    """The package zstandard in the manner of bz2's decompressor."""

    def __init__(self, module: Any) -> None:
        self._object = module.ZstdDecompressor().decompressobj()

    def decompress(self, data: bytes, most: int) -> bytes:
        """All that these bytes hold; the package knows no bound."""
        found: bytes = self._object.decompress(data)
        return found

    @property
    def eof(self) -> bool:
        return bool(self._object.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._object.unused_data)


def _unpacker(way: str) -> Any:
    makes: dict[str, Callable[[], Any]] = {
        "gzip": lambda: zlib.decompressobj(31),
        "bzip2": bz2.BZ2Decompressor,
        "xz": lzma.LZMADecompressor,
    }
    if way in makes:
        return makes[way]()
    for name in ("compression.zstd", "zstandard"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return module.ZstdDecompressor() if name == "compression.zstd" else _Zstandard(module)
    raise PackedError("it is packed by zstd, which this Python can't unpack: run zstd -d, or pip install zstandard")


def _utf_16(start: bytes) -> str:
    """The name of the UTF-16 that a file begins in, or "" for another encoding."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    begin = start[:32]
    for zeros, letters, name in ((begin[1::2], begin[::2], "utf-16-le"), (begin[::2], begin[1::2], "utf-16-be")):
        plain = all(32 <= byte < 127 or byte in b"\t\r\n" for byte in letters)
        if len(begin) >= 16 and not any(zeros) and plain:
            return name
    return ""

"""The share link: a puzzle's name and the reader's code behind the #, so that nothing is sent to anybody."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from urllib.parse import parse_qs

from allranks.base.errors import CourseError
from allranks.exercises.puzzles.program import MOST_SOURCE
from allranks.exercises.puzzles.table import PUZZLES


class LinkError(CourseError, ValueError):
    """A share link that is broken."""


def pack(puzzle: str, code: str) -> str:
    """The part of a share link behind the #.

    `puzzle` is an id, `code` the text. Raises LinkError for code of more than 64 KiB.

    >>> puzzles.pack("ring", "def all_reduce(x): ...")[:9]
    'p=ring&c='
    """
    data = code.encode()
    if len(data) > MOST_SOURCE:
        raise LinkError("The code is longer than 64 KiB, which a link can't hold.")
    squeezed = zlib.compressobj(9, wbits=-15)
    text = base64.urlsafe_b64encode(squeezed.compress(data) + squeezed.flush()).decode().rstrip("=")
    return f"p={puzzle}&c={text}"


def unpack(link: str) -> tuple[str, str]:
    """The puzzle's id and the code of a share link: of the whole address, or of what stands behind its #.

    Raises LinkError, with one sentence, if the link is broken.

    >>> puzzles.unpack("https://example.org/#" + puzzles.pack("ring", "x = 1"))
    ('ring', 'x = 1')
    """
    said = parse_qs(link.strip().rpartition("#")[2], keep_blank_values=True, max_num_fields=None)
    puzzle, text = said.get("p", [""])[0], said.get("c", [""])[0]
    if not puzzle:
        raise LinkError("This link is broken: it names no puzzle.")
    if puzzle not in {one.id for one in PUZZLES}:
        raise LinkError(f"This link is broken: there is no puzzle {puzzle[:40]!r}.")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise LinkError("This link is broken: its code can't be read.")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        opened = zlib.decompressobj(wbits=-15)
        plain = opened.decompress(data, MOST_SOURCE + 1)
        if len(plain) > MOST_SOURCE:
            raise LinkError("This link is broken: its code is longer than 64 KiB.")
        if not opened.eof or opened.unused_data:
            raise LinkError("This link is broken: its code is cut off, or something stands behind it.")
        return puzzle, plain.decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError):
        raise LinkError("This link is broken: its code can't be read.") from None

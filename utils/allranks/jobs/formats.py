"""What a reader of one format has to offer; `reading` asks each in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from allranks.jobs.job import RankRecord

__all__ = ["Format"]


@dataclass(frozen=True)
class Format:
    """A format of files: its name, how it is recognised, and how a file is read.

    `looks(path, head)` gets the first 64 KiB, unpacked. `read(path)` gives a record for each rank of which
    the file speaks; it raises ProfileError, whose message completes the sentence "FILE: ...".

    >>> Format("nothing", lambda path, head: not head, lambda path: []).name
    'nothing'
    """

    name: str
    looks: Callable[[Path, bytes], bool]
    read: Callable[[Path], Sequence[RankRecord]]

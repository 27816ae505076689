"""What a reader of one format has to offer; `reading` asks each in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from allranks.jobs.job import RankRecord

__all__ = ["CALLS", "STANDS", "WORK", "Format"]

# what the records of a source say
WORK = "work"  # when each rank computed, and when it communicated
CALLS = "calls"  # when each call began and ended, and nothing of computing
STANDS = "stands"  # which calls each rank has made and ended, without their times


@dataclass(frozen=True)
class Format:
    """A format of files: its name, how it is recognised, and how a file is read.

    `looks(path, head)` gets the first 64 KiB, unpacked. `read(path)` gives a record for each rank of which
    the file speaks; it raises ProfileError, whose message completes the sentence "FILE: ...". `says` has WORK, CALLS
    or STANDS for each `source` of such records; one that says nothing of these is left out.

    >>> Format("nothing", lambda path, head: not head, lambda path: []).name
    'nothing'
    """

    name: str
    looks: Callable[[Path, bytes], bool]
    read: Callable[[Path], Sequence[RankRecord]]
    says: Mapping[str, str] = field(default_factory=dict)

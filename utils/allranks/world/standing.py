"""Where a rank stands: read from the stacks that it writes on SIGUSR1, also while its main thread sits in C++."""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from allranks.engines.rank import in_library

_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>.*)$')
# names of torch's plumbing between a public collective and the C++ below it
_PLUMBING = {"wrapper", "func_wrapper", "_wrapper"}


@dataclass(frozen=True)
class Standing:
    """What one rank is doing: the torch.distributed function it is in (None: none), and its user's innermost line."""

    rank: int
    op: str | None = None
    file: str | None = None
    line: int | None = None
    text: str | None = None
    known: bool = True

    @property
    def waits(self) -> bool:
        """Whether it is in a communication: a torch.distributed function, or a `wait()` on one begun before."""
        return self.op is not None or ".wait(" in (self.text or "")

    def __str__(self) -> str:
        if not self.known:
            return f"rank {self.rank}: does not answer"
        doing = f"in dist.{self.op}" if self.op else "computing" if self.line else "idle"
        where = f", line {self.line}: {self.text}" if self.text else f", line {self.line}" if self.line else ""
        return f"rank {self.rank}: {doing}{where}"


def dump(pids: dict[int, int], stacks: dict[int, Path], timeout_s: float = 1.0) -> dict[int, str]:
    """Asks each rank (rank: pid) for its stacks and returns what each wrote; a rank that stays silent is left out."""
    before = {}
    for rank, pid in pids.items():
        with contextlib.suppress(OSError):
            before[rank] = stacks[rank].stat().st_size
            os.kill(pid, signal.SIGUSR1)
    texts: dict[int, str] = {}
    deadline = time.monotonic() + timeout_s
    while before.keys() - texts.keys() and time.monotonic() < deadline:
        time.sleep(0.02)
        for rank in before.keys() - texts.keys():
            with contextlib.suppress(OSError):
                text = stacks[rank].read_bytes()[before[rank] :].decode(errors="replace")
                # the thread that runs the cell is the main one, which faulthandler writes last
                if "IPKernelApp" in text or "launch_instance" in text or "in engine" in text:
                    texts[rank] = text
    return texts


def read(rank: int, text: str | None, source: str | None = None) -> Standing:
    """What a dump says of one rank. `source` is the cell that it runs, for the text of lines known only to the rank."""
    if text is None:
        return Standing(rank, known=False)
    for thread in reversed(re.split(r"\n\n|^(?=(?:Current thread|Thread) )", text, flags=re.M)):
        frames = [m.groupdict() for line in thread.splitlines() if (m := _FRAME.match(line))]
        if not any(f["name"] in ("launch_instance", "engine") for f in frames):
            continue
        op = None
        for frame in frames:  # the innermost first
            file, line = frame["file"], int(frame["line"])
            if file.endswith("distributed_c10d.py") and frame["name"] not in _PLUMBING:
                op = frame["name"]
            elif not in_library(file) and not file.endswith("engines/parent.py"):
                shown = linecache.getline(file, line).strip() or _line_of(source, line)
                return Standing(rank, op, file, line, shown or None)
        return Standing(rank, op)
    return Standing(rank, known=False)


def _line_of(source: str | None, line: int) -> str:
    lines = (source or "").splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""

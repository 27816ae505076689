"""What a rank is doing: a thread in the rank reports it; if that is silent, we read the stacks written on SIGUSR1."""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import re
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from allranks.ranks.engines.watch import C10D, PLUMBING, is_gpu_synchronize, is_waiting_for_gpu, of_user

STACKS_S = 1.0  # how long the ranks may take to write their stacks
_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>.*)$')


@dataclass(frozen=True)
class RankStatus:
    """What one rank is doing: the torch.distributed function it is in, or None, and the innermost line of user code.

    `shape` and `dtype` are the tensor's. `seq` is how many collectives of the group `group` this rank has begun.
    `waits_for` is "GPU", "queue" or "peer" if the rank waits for what it queued there: the operation `op`, begun at the line
    `begun`, if they are known; `why` says more about that. Without a line, the user's code has ended.
    `RanksStuck.statuses` has one for each rank.

    Example:
        >>> RankStatus(rank=1, op="all_reduce", shape=(4,), seq=2, line=7).waits
        True
    """

    rank: int
    op: str | None = None
    peer: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    seq: int | None = None
    group: tuple[int, ...] | None = None
    file: str | None = None
    line: int | None = None
    text: str | None = None
    known: bool = True
    waits_for: str | None = None
    begun: int | None = None
    why: str | None = None

    @property
    def waits(self) -> bool:
        """Whether the rank is in a torch.distributed function or in a `wait()`, or waits for its GPU or its queue."""
        return self.op is not None or self.waits_for is not None or ".wait(" in (self.text or "")

    @property
    def collective(self) -> tuple | None:
        """The identity of its collective: (group, number in that group); None outside of a collective."""
        if self.op is None and self.waits_for is None:
            return None
        if self.op in ("send", "recv", "isend", "irecv", "batch_isend_irecv"):
            return None
        if self.seq is None:
            return None
        return self.group, self.seq

    def __str__(self) -> str:
        if not self.known:
            return f"rank {self.rank}: does not answer"
        waiting = "waits in wait()" if self.waits else "computing" if self.line else "idle"
        doing = f"in dist.{self.op}" if self.op else waiting
        if self.waits_for is not None:
            what = f": dist.{self.op}" if self.op else "" if self.line else ", where something begun does not end"
            doing = f"waits for its {self.waits_for}{what}"
        if self.peer is not None:
            doing += f" {'to' if 'send' in self.op else 'from'} rank {self.peer}"
        if self.dtype:
            doing += f", {self.dtype}{list(self.shape or ())}"
        if self.begun is not None:
            doing += f", begun in line {self.begun}"
        if self.why is not None:
            doing += f" ({self.why})"
        where = f", line {self.line}: {self.text}" if self.text else f", line {self.line}" if self.line else ""
        return f"rank {self.rank}: {doing}{where}"


def ask_ranks(sockets: dict[int, Path], timeout_s: float = 0.5) -> dict[int, dict]:
    """What each rank reports about itself; a rank that does not answer is left out. `sockets` maps ranks to sockets."""
    answers: dict[int, dict] = {}
    deadline = time.monotonic() + timeout_s
    with contextlib.ExitStack() as stack:
        asked = {}
        for rank, path in sockets.items():
            connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            connection.settimeout(timeout_s)
            with contextlib.suppress(OSError):
                connection.connect(str(path))
                asked[rank] = connection
        for rank, connection in asked.items():
            data = b""
            with contextlib.suppress(OSError, ValueError):
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                while part := connection.recv(65536):
                    data += part
                answers[rank] = json.loads(data)
    return answers


def from_answer(rank: int, answer: dict, source: str | None = None) -> RankStatus:
    """The status from a rank's answer. `source` is the text of the cell that the ranks run."""
    line, file = answer.get("line"), answer.get("file")
    text = answer.get("text") or (line and line_text(file, line, source)) or None
    keep = {name: answer.get(name) for name in ("op", "peer", "dtype", "seq", "waits_for", "begun", "why")}
    shape, group = answer.get("shape"), answer.get("group")
    return RankStatus(
        rank,
        **keep,
        shape=None if shape is None else tuple(shape),
        group=None if group is None else tuple(group),
        file=file,
        line=line,
        text=text,
    )


def dump_stacks(pids: dict[int, int], stacks: dict[int, Path]) -> dict[int, str]:
    """Asks each rank for its stacks and returns what each wrote; a rank that writes nothing is left out.

    `pids` maps ranks to pids.
    """
    before = {}
    for rank, pid in pids.items():
        with contextlib.suppress(OSError):
            before[rank] = stacks[rank].stat().st_size
            os.kill(pid, signal.SIGUSR1)
    texts: dict[int, str] = {}
    deadline = time.monotonic() + STACKS_S
    while before.keys() - texts.keys() and time.monotonic() < deadline:
        time.sleep(0.02)
        for rank in before.keys() - texts.keys():
            with contextlib.suppress(OSError):
                text = stacks[rank].read_bytes()[before[rank] :].decode(errors="replace")
                # the thread that runs the cell is the main one, which faulthandler writes last
                if "IPKernelApp" in text or "launch_instance" in text or "in engine" in text:
                    texts[rank] = text
    return texts


def from_stacks(rank: int, text: str | None, source: str | None = None) -> RankStatus:
    """The status from a dump of stacks. `source` is the text of the cell that the ranks run."""
    if text is None:
        return RankStatus(rank, known=False)
    for thread in reversed(re.split(r"\n\n|^(?=(?:Current thread|Thread) )", text, flags=re.M)):
        frames = [m.groupdict() for line in thread.splitlines() if (m := _FRAME.match(line))]
        if not any(f["name"] in ("launch_instance", "engine") for f in frames):
            continue
        op = waits_for = None
        for frame in frames:  # the innermost first
            file, line = frame["file"], int(frame["line"])
            if file.endswith(C10D) and frame["name"] not in PLUMBING:
                op = frame["name"]
            elif is_waiting_for_gpu(file, frame["name"]):
                return RankStatus(rank, waits_for="GPU")
            elif is_gpu_synchronize(file, frame["name"]):
                waits_for = "GPU"
            elif of_user(file):
                text = line_text(file, line, source) or None
                return RankStatus(rank, op, file=file, line=line, text=text, waits_for=waits_for)
        return RankStatus(rank, op)
    return RankStatus(rank, known=False)


def line_text(file: str, line: int, source: str | None) -> str:
    """The text of a line of user code.

    `source` is the text of the cell that the ranks run, which is in no file here.
    """
    lines = (source or "").splitlines()
    return linecache.getline(file, line).strip() or (lines[line - 1].strip() if 0 < line <= len(lines) else "")

"""What XLA says of threads that wait for each other before a collective: who waits, for how many, who did not come.

Seen: the texts of xla/service/collective_ops_utils.h (jaxlib 0.1 to 0.4: "participant ... waiting for all participants
to arrive at rendezvous RendezvousKey{...}") and of xla/service/rendezvous.cc (jaxlib 0.4 to 0.8: "This thread has been
waiting for `...`"). Each process prints its own threads only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from allranks.base.errors import counted, listed
from allranks.jobs.job import Cause

__all__ = ["XlaWaits"]

MOST_WAITS = 1000
MOST_DEVICES = 64  # in a sentence
_OLD = re.compile(
    r"waiting for (\d{1,9})ms for and may be stuck: participant .*?(?:device ordinal|device_ordinal=|global_device_id=|"
    r"rank=) ?(\d{1,7}).*?RendezvousKey\{run_id=(?:RunId: )?(-?\d+), global_devices=\[([\d,. ]*)\], "
    r"num_local_participants=(\d{1,7}), collective_op_kind=([\w-]+), op_id=(-?\d+)"
)
_NEW = re.compile(
    r"This thread has been waiting for `([^`]{1,2000})` for (\d{1,9}) seconds and may be stuck\. "
    r"Expected (\d{1,7}) threads?"
)
_ENDED = re.compile(r"Termination timeout for `([^`]{1,2000})` of (\d{1,9}) seconds exceeded")
_AGAIN = "Thread is unstuck"
_WHO = re.compile(r"participant for device ordinal (\d{1,7})|device_ordinal=(\d{1,7})|\[id=(\d+)\]|`([^`]{1,2000})`")
_THREAD = re.compile(r"^\W*[EWIF]\d{4} [\d:.]+\s+(\d+) ")
_ID = re.compile(r"\[id=(\d+)\]")
_RANK = re.compile(r"\bfor rank (\d{1,7})\b")
_DEVICES = re.compile(r"devices=(?:\d+:)?\[([\d,. ]*)\]")


@dataclass
class _Wait:
    """One rendezvous: which threads wait in it, by rank or device where the text says it, else by thread."""

    what: str
    expected: int
    devices: tuple[int, ...] = ()
    local: bool = False  # whether all that are expected are threads of this process and numbered as its devices
    waits: dict[str, int | None] = field(default_factory=dict)  # of each thread: its device or rank
    seconds: float = 0.0
    ended_s: int | None = None
    started: bool = False  # a communicator was being made


class XlaWaits:
    """Collects the lines of one file."""

    def __init__(self) -> None:
        self.found: dict[str, _Wait] = {}
        self.went_on = 0  # threads that XLA saw go on

    def take(self, line: str) -> None:
        """Files a line that speaks of a rendezvous."""
        if _AGAIN in line:
            self._went_on(line)
        elif old := _OLD.search(line):
            milliseconds, device, run, devices, local, kind, op = old.groups()
            members = _numbers(devices)
            wait = self._wait(f"{run}/{op}", f"operation {op} of run {run} ({kind})", int(local), members)
            wait.local = int(local) == len(members) or not members
            wait.waits[device] = int(device)
            wait.seconds = max(wait.seconds, int(milliseconds) / 1e3)
        elif new := _NEW.search(line):
            name, seconds, expected = new.groups()
            rank = _RANK.search(name)
            plain = _RANK.sub("", name)
            members = _numbers(found[1]) if (found := _DEVICES.search(name)) else ()
            wait = self._wait(plain, _short(plain), int(expected), members)
            wait.local = rank is not None and int(expected) == len(members)
            wait.started = "clique" in name
            wait.waits[_thread(line, len(wait.waits), rank)] = int(rank[1]) if rank else None
            wait.seconds = max(wait.seconds, int(seconds))
        elif ended := _ENDED.search(line):
            if (known := self.found.get(_RANK.sub("", ended[1]))) is not None:
                known.ended_s = int(ended[2])

    def _wait(self, key: str, what: str, expected: int, devices: tuple[int, ...]) -> _Wait:
        if key not in self.found and len(self.found) >= MOST_WAITS:
            key = next(iter(self.found))
        return self.found.setdefault(key, _Wait(what, expected, devices))

    def _went_on(self, line: str) -> None:
        """Takes out of its rendezvous the thread that goes on: the one that the line names, else any."""
        self.went_on += 1
        who = _WHO.search(line)
        named = next((part for part in who.groups() if part), "") if who else ""
        thread = _thread(line, -1)
        for wait in reversed(self.found.values()):
            for key in (thread, named):
                if key in wait.waits:
                    del wait.waits[key]
                    return
        for wait in reversed(self.found.values()):
            if wait.waits and not named.isdigit():
                wait.waits.popitem()
                return

    def causes(self) -> tuple[Cause, ...]:
        """The rendezvous in which threads still wait, the first one first."""
        return tuple(_cause(wait) for wait in self.found.values() if wait.waits)[:4]

    def said(self) -> list[str]:
        """That threads went on, where XLA says so."""
        if not self.went_on:
            return []
        first = next(iter(self.found.values()), None)
        where = f" ({first.what})" if first else ""
        return [
            f"XLA warned that {counted(self.went_on, 'thread', 'threads')} may be stuck{where}, and then that "
            f"{'it' if self.went_on == 1 else 'they'} went on: late, and no hang"
        ]


def _thread(line: str, default: int, rank: re.Match[str] | None = None) -> str:
    """What tells this line's thread from others: glog's number of it, its rank, XLA's number, or the line's place."""
    if found := _THREAD.search(line):
        return f"thread {found[1]}"
    found = rank or _ID.search(line)
    return found[1] if found else f"line {default}"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d{1,7}", text)))


def _short(name: str) -> str:
    """A rendezvous' name in a clause: the list of its devices is told apart."""
    plain = re.sub(r"\s*(?:clique=|for rank \d+)?[;,]\s*(?=[;,]|$)", "", _DEVICES.sub("", name))
    plain = "; ".join(part.strip() for part in plain.split(";") if part.strip() not in ("", "clique="))
    return plain if len(plain) <= 100 else f"{plain[:100]}…"


def _cause(wait: _Wait) -> Cause:
    known = sorted({rank for rank in wait.waits.values() if rank is not None})
    came = len(wait.waits)
    who = f"{counted(came, 'thread waits', 'threads wait')}"
    if known and len(known) == came:
        kind = "Rank" if wait.started else "Device"
        who = f"{kind}{'s' if came > 1 else ''} {_few(known)} wait{'' if came > 1 else 's'}"
    group = f" of devices {_few(wait.devices)}" if wait.devices else ""
    absent: list[int] = []
    if wait.local and known:
        absent = [n for n in (range(len(wait.devices)) if wait.started else wait.devices) if n not in known]
        absent = absent if len(absent) + len(known) == wait.expected else []
    left = wait.expected - came
    kind = "rank" if wait.started else "device"
    blocks = {n // wait.expected for n in known} if wait.started and wait.devices and wait.expected else set[int]()
    several = left < 0 or (len(wait.devices) > wait.expected and len(blocks) > 1)
    others = [n for n in range(len(wait.devices)) if n not in known] if wait.started and wait.devices else []
    if several:
        absent = []
        missing = f"the log is of several processes, each of which expects {wait.expected}"
        missing += (
            f"; {kind}{'s' if len(others) > 1 else ''} {_few(others)} did not come or have another log"
            if others
            else ""
        )
    elif absent:
        missing = f"{kind}{'s' if len(absent) > 1 else ''} {_few(absent)} did not come"
    elif left > 0:
        missing = f"{left} of the {wait.expected} of this process did not come, or their lines are not in this log"
    else:
        missing = "all of this process came, so that others wait elsewhere"
    words = f"{who} at a rendezvous of XLA{group}; {missing}."
    evidence = f"XLA: {wait.what}, for {wait.seconds:g} s or more"
    if wait.ended_s is not None:
        evidence += f"; after {wait.ended_s} s more it ended the process"
    if wait.started:
        evidence += (
            "; here NCCL's communicator is being made, by the thread that comes last: either one did not come, or NCCL "
            "waits for another process: look at the other processes' logs, and at NCCL_DEBUG=INFO for the network"
        )
    else:
        evidence += (
            ": look what the missing thread does: it compiles, it failed, it runs another program, or it waits for a "
            "collective that others make in another order"
        )
    return Cause(words, evidence, None, 0.85 if absent else 0.7, "missing_rank" if absent else "hang",
                 absent[0] if len(absent) == 1 and wait.started else None)  # fmt: skip


def _few(numbers: Iterable[int]) -> str:
    numbers = sorted(numbers)
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    if len(numbers) > MOST_DEVICES:
        return f"{', '.join(map(str, numbers[:8]))} and {len(numbers) - 8} more"
    return listed(numbers)

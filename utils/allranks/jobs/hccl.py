"""Errors of Ascend's HCCL, EI0001 to EI0020 and EI9999, in logs of torch_npu: who waits for whom, or what differs.

Seen: CANN 6.0 to 9.0 (the lists of HCCL errors and the user guide on hiascend.com; hcomm's error_code.cc), as torch_npu
2.1 to 2.7 prints them. A group numbers its ranks anew; RankID is the rank of the job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from allranks.base.errors import capital, name_ranks
from allranks.jobs.job import MAX_RANKS, Cause
from allranks.jobs.names import operation

__all__ = ["HcclErrors"]

MOST = 10_000  # errors of a file
_CODE = re.compile(r"\b(EI00(?:0[1-9]|1\d|20)|EJ0001)(?::|\b)(.*)")
_OWN = re.compile(r"\bRankID:(\d{1,7})\)|\[rank(\d{1,7})\]")
_TIMEOUT = re.compile(r"remote rank: ?\[(\w+)\]")
_TAG = re.compile(r"\btag ?\[([A-Za-z]+)")
_GROUP = re.compile(r"group:\[([^\]]{1,100})\]")
_PLACE = re.compile(r"rankSize\[(\d{1,7})\], rankId\[(\d{1,7})")
_UNFINISHED = re.compile(r"device\(chipId:(\d{1,7}).*?hccl fftsplus task timeout.*?timeout[:=](\w{1,12})")
_DIFFERS = re.compile(
    r"parameter ?\[?(\w+)\]?, local(?: end| rank)? ?\[?([^\],]{1,100})\]?, remote(?: end| rank)? ?\[?([^\].\s]{1,100})"
)
_LINK = re.compile(r"localUserrank\[(\d{1,7})\].*?remoteUserrank\[(\d{1,7})\]")
# what the code is, and what to look at
_CODES = {
    "EI0001": ("a variable of HCCL's environment is wrong", "the text names it"),
    "EI0003": ("an argument of a collective is not allowed", "the text names it; compare the type and the size"),
    "EI0004": ("the rank table is wrong", "compare it with the machine: device and server numbers, addresses"),
    "EI0007": ("HCCL could not get a resource, such as memory or a stream", "the free memory of the device (npu-smi)"),
    "EI0008": ("the ranks have different versions of HCCL", "the versions of CANN on all hosts"),
    "EI0010": ("two devices of one host do not reach each other directly", "npu-smi info -t topo, and the drivers"),
    "EI0011": ("the memory of a device is full", "HCCL_BUFFSIZE, and what else is on this device"),
    "EI0012": ("a copy between devices failed (SDMA)", "the device's log for a failed memory address"),
    "EI0013": ("the network card reported an error of a transfer (RoCE)", "the link (hccn_tool -link) and its cables"),
    "EI0014": ("the rank table does not fit the machine", "the text names the value"),
    "EI0015": ("the ranks could not exchange who they are", "which ranks did not connect to the first one"),
    "EI0018": ("the network reported an error of a transfer (UB)", "the link and its counters"),
    "EI0019": ("an address and port could not be bound", "who else listens there (ss -ltnp); HCCL_IF_BASE_PORT"),
    "EI0020": ("an address and port could not be bound", "who else listens there (ss -ltnp); HCCL_IF_BASE_PORT"),
    "EJ0001": ("HCCL's helper process (HCCP) did not start", "a process that still runs: end it, and wait 10 s"),
}  # fmt: skip
# lines of CANN's own log (plog), and what they point to; the first that fits is taken
_PLOG = re.compile(r"\[ERROR\] HCCL\(\d+,[^)]*\):\S+ \[[^\]]*\] ?(?:\[\d+\])?(.*)")
_LINES: tuple[tuple[str, str, str, float, str], ...] = (
    (r"listen on ip\[([^\]]*)\] and specific port\[(\d+)\] fail", "HCCL could not listen on port {1} of {0}.",
     "another process has it (ss -ltnp), also one of an earlier run: end it, or choose HCCL_IF_BASE_PORT", 0.9,
     "nccl_error"),
    (r"CMD information (\w+) check fail\. local ?\[([^\]]*)\], remote ?\[([^\]]*)\]",
     "Two ranks made different calls (HCCL): {0} {1} on one, {2} on the other.",
     "all ranks need the same calls in the same order, with the same size and type", 0.95, "desync"),
    (r"Failed to connect agent\[(\d[\d,]*)\]",
     "Of the group, {0} did not connect to the first one in time (HCCL, EI0015).",
     "look at these first: whether they came, and whether they have an earlier error; then at HCCL_SOCKET_IFNAME and "
     "the network", 0.85, "missing_rank"),
    (r"topo exchange server get socket timeout! timeout\[(\d+)",
     "Not all ranks connected to the first one in {0} s, when the group was made (HCCL, EI0015).",
     "the log of the other ranks; HCCL_SOCKET_IFNAME, HCCL_CONNECT_TIMEOUT", 0.7, "hang"),
    (r"wait socket establish timeout, role\[\d+\] rank\[(\d+)\] timeout\[(\d+)\]",
     "A connection with rank {0} of the group was not made in {1} s (HCCL).",
     "look at that rank first: whether it came, and whether it has an earlier error; then at the network", 0.7, "hang"),
)  # fmt: skip
_TOO_LATE = (
    "HCCL_EXEC_TIMEOUT (1800 s, if not set) has passed: look for an earlier error of that rank, and whether it makes "
    "the same calls: another number of batches, a slow start, or a link that lost packets"
)
_CONNECT = (
    "it waits HCCL_CONNECT_TIMEOUT (120 s, if not set) for the others' connections: look at ranks without this error, "
    "which failed before or came later; at the network between the hosts (hccn_tool -ping), and at HCCL_SOCKET_IFNAME"
)


@dataclass(frozen=True)
class _Error:
    """One error: its code, the job's rank that prints it, where that is known, and its text."""

    code: str
    rank: int | None
    text: str


class HcclErrors:
    """Collects the errors of one file; the rank of an error may stand on a line before it."""

    def __init__(self) -> None:
        self.errors: dict[_Error, None] = {}
        self.plog: dict[str, Cause] = {}
        self.unfinished: dict[int, tuple[str, int | None]] = {}  # of a device: HCCL's limit of time, and its rank
        self.rank: int | None = None

    def take(self, line: str) -> bool:
        """Files a line of HCCL's or torch_npu's; whether it is an error that is known."""
        before = len(self.errors), len(self.plog), len(self.unfinished)
        own = _OWN.search(line)
        if own:
            number = int(own[1] or own[2])
            self.rank = number if number < MAX_RANKS else None
        if "HCCL(" in line and (told := _PLOG.search(line)):
            self._plog(told[1].strip())
        if "fftsplus" in line and (late := _UNFINISHED.search(line)) and len(self.unfinished) < MOST:
            self.unfinished[int(late[1])] = late[2], self.rank
        found = _CODE.search(line)
        if found and len(self.errors) < MOST and found[2].strip():
            self.errors.setdefault(_Error(found[1], self.rank, found[2].strip()[:2000]))
        return bool(found) or before != (len(self.errors), len(self.plog), len(self.unfinished))

    def _plog(self, text: str) -> None:
        """Files a line of CANN's own log: of each kind the first."""
        for pattern, words, advice, sure, kind in _LINES:
            if pattern not in self.plog and (found := re.search(pattern, text)):
                parts: Sequence[str] = found.groups()
                if kind == "missing_rank":
                    parts = [name_ranks([int(n) for n in re.findall(r"\d{1,7}", found[1])])]
                self.plog[pattern] = Cause(words.format(*parts), advice, None, sure, kind)
                return

    def causes(self) -> tuple[Cause, ...]:
        """A cause for each kind of error: what differs, and links that failed, stand before those who waited."""
        by_code: dict[str, list[_Error]] = {}
        for error in self.errors:
            by_code.setdefault(error.code, []).append(error)
        found = [*(_told(code, errors) for code, errors in by_code.items()), *self.plog.values()]
        if self.unfinished and "EI0002" not in by_code:
            found.append(_unfinished(self.unfinished))
        return tuple(sorted(found, key=lambda cause: -cause.sure))

    def said(self) -> list[str]:
        """Nothing: all that these errors say is in the causes."""
        return []


def _told(code: str, errors: list[_Error]) -> Cause:
    ranks = sorted({error.rank for error in errors if error.rank is not None})
    who = capital(name_ranks(ranks)) if ranks else "A rank that the log does not name"
    if code == "EI0002":
        return _waited(who, errors)
    if code == "EI0005":
        return _differs(who, errors)
    if code == "EI0009":
        return _no_link(who, errors)
    if code == "EI0006":
        words = f"{who} could not connect to other ranks in time (HCCL, EI0006)."
        return Cause(words, _CONNECT, None, 0.7, "hang")
    words, advice = _CODES.get(code, ("HCCL reports an error", "the text"))
    text = re.sub(r"^\W*(?:\[PID: \d+\] )?[\d.:-]+\s*", "", errors[0].text)
    return Cause(f"{who}: {words} ({code}).", f"HCCL says: {text[:200]}; look at {advice}", None, 0.85, "nccl_error")


def _unfinished(devices: dict[int, tuple[str, int | None]]) -> Cause:
    """Devices on which a call did not end, where no text says for whom they waited."""
    number = ", ".join(map(str, sorted(devices)[:8]))
    limit, _ = next(iter(devices.values()))
    limit = f"{limit} s" if limit.isdigit() else limit
    ranks = sorted({rank for _, rank in devices.values() if rank is not None})
    of = f" of {name_ranks(ranks)}" if ranks else ""
    words = f"A call of HCCL{of} did not end on device{'s' if len(devices) > 1 else ''} {number} in {limit} (EI9999)."
    return Cause(words, f"for which rank it waited, this text does not say; {_TOO_LATE}", None, 0.6, "hang")


def _operation(text: str) -> str:
    tag = _TAG.search(text)
    name = operation(re.sub(r"^Hcom", "", tag[1])) if tag else "unknown"
    return "a collective" if name == "unknown" else name


def _waited(who: str, errors: list[_Error]) -> Cause:
    """Who waited in a collective for whom; of several, those for whom others wait and who do not wait themselves."""
    of: dict[str, tuple[set[int], set[int]]] = {}  # of each group: who waits, and for whom
    size = 0
    for error in errors:
        group = found[1] if (found := _GROUP.search(error.text)) else ""
        waits, awaited = of.setdefault(group, (set(), set()))
        if place := _PLACE.search(error.text):
            size = int(place[1])
            waits.add(int(place[2]))
        awaited |= {int(remote) for remote in _TIMEOUT.findall(error.text) if remote.isdigit()}
    group, (waits, awaited) = max(of.items(), key=lambda item: len(item[1][0]))
    op = _operation(errors[0].text)
    late = sorted(awaited - waits) or sorted(awaited)
    inside = f" of group {group}" if group else ""
    where = f" (in the group {name_ranks(sorted(waits))} of {size})" if waits and group else ""
    for_whom = f"{name_ranks(late)}{inside}" if late else "a rank that the text does not name"
    words = f"{who}{where} waited in {op} for {for_whom}, until HCCL gave up (EI0002)."
    return Cause(words, _TOO_LATE, None, 0.8 if late else 0.6, "hang")


def _differs(who: str, errors: list[_Error]) -> Cause:
    """Two ranks call one collective with other arguments, or other collectives."""
    found = next((found for error in errors if (found := _DIFFERS.search(error.text))), None)
    op = _operation(errors[0].text)
    words = f"Two ranks called {op} with other arguments (HCCL, EI0005)"
    words += f": {found[1]} {found[2].strip()} on one, {found[3].strip()} on the other." if found else "."
    evidence = (
        f"{who} found it when they connected; all ranks need the same shape and type, the same order of calls, and the "
        "same rank table"
    )
    return Cause(words, evidence, None, 0.95 if found else 0.8, "desync")


def _no_link(who: str, errors: list[_Error]) -> Cause:
    links = dict.fromkeys(found.groups() for error in errors if (found := _LINK.search(error.text)))
    words = f"{who} could not make a link to another rank (HCCL, EI0009)."
    if links:
        (mine, other), *more = links
        words = f"{who} could not make a link from rank {mine} to rank {other} of its group (HCCL, EI0009)."
        words += f" {len(more)} more links failed." if more else ""
    evidence = (
        "look at the other end first: its log may have an error of its own, or it did not come; then at the link "
        "between them"
    )
    return Cause(words, evidence, None, 0.75, "nccl_error")

"""NCCL's lines of calls (NCCL_DEBUG_SUBSYS=COLL): which collectives each process enqueued, and the first that differ.

A line names the communicator by its address in the process, and no rank. Which communicators are one group says the
`commId` of the line with which it began (NCCL 2.19 and later), else the order in which each process first used those of
a size. Seen: NCCL 2.3 to 2.30 (src/enqueue.cc: "AllReduce: opCount 28c sendbuff ..."), RCCL (which adds task and
globalrank).
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from allranks.base.errors import capital, counted, listed
from allranks.jobs.job import MAX_RANKS, Cause
from allranks.jobs.names import operation

__all__ = ["CollLines", "Enqueued", "calls_that_differ", "said_of_calls"]

MOST_CALLS = 4_000_000  # of a file; 24 bytes each
MOST_SHAPES = 100_000
MOST_NAMED = 8
_LINE = re.compile(
    r"(\S+?):(\d+):\d+ \[(\d+)\] NCCL INFO (\w+): opCount ([0-9a-f]{1,16}) sendbuff \S+ recvbuff \S+ count (\d{1,18}) "
    r"datatype (\d{1,3}) op (\d{1,3}) root (-?\d{1,7}) comm (\w+) \[nranks=(\d{1,7})\]"
)
_GLOBAL = re.compile(r"globalrank (\d{1,7})\s*$")
_BEGUN = re.compile(
    r"(\S+?):(\d+):\d+ \[\d+\] NCCL INFO (?:\w+ )?comm (0x\w+) rank (\d{1,7}) n[rR]anks (\d{1,7})"
    r"(?:.*? commId (0x\w+))?"
)
# ncclDataType_t
_TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
          "float8_e4m3", "float8_e5m2")  # fmt: skip
_ROOTED = ("Broadcast", "Reduce", "Gather", "Scatter")
Shape = tuple[str, int, int, int, int]  # operation, count, type, reduction, root (-1 where it has none)
Process = tuple[str, int, int]  # host, pid, device


@dataclass
class Enqueued:
    """The collectives of one process in one communicator, as they were enqueued; `group` is one name for all processes.

    `keys` are NCCL's counts of operations, `calls` places in `shapes`. `sends` and `receives` are messages; `rank` is
    that of the group, None where no line says it. `alone` says that no communicator of the process is larger.
    """

    process: Process
    size: int
    group: str
    shapes: list[Shape]
    rank: int | None = None
    keys: array[int] = field(default_factory=lambda: array("Q"))
    calls: array[int] = field(default_factory=lambda: array("l"))
    sends: int = 0
    receives: int = 0
    alone: bool = True

    @property
    def messages(self) -> int:
        """Sends and receives."""
        return self.sends + self.receives

    def numbered(self, by_place: bool) -> dict[tuple[int, int], Shape]:
        """Each call by its key and its place among those of that key, as calls between a GroupStart and its end have
        one key; or by its place among all."""
        found: dict[tuple[int, int], Shape] = {}
        before: Counter[int] = Counter()
        for place, (key, call) in enumerate(zip(self.keys, self.calls, strict=True)):
            number = (0, place) if by_place else (key, before[key])
            before[key] += 1
            found[number] = self.shapes[call]
        return found


class CollLines:
    """Collects the lines of one file."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, str], Enqueued] = {}
        self.begun: dict[tuple[str, str, str], tuple[int, str]] = {}  # of a communicator: rank, and name of the group
        self.used: Counter[tuple[str, str, str, int]] = Counter()  # communicators of a size that a process has used
        self.shapes: list[Shape] = []
        self.places: dict[Shape, int] = {}
        self.count = 0

    def begins(self, line: str) -> None:
        """Files the line with which a communicator begins."""
        if found := _BEGUN.search(line):
            host, pid, comm, rank, size, name = found.groups()
            if int(rank) < int(size) <= MAX_RANKS:
                known = self.begun.get((host, pid, comm))
                group = f"{name}/{size}" if name else known[1] if known else ""
                self.begun[host, pid, comm] = (int(rank), group)

    def take(self, line: str) -> None:
        """Files the line of a call."""
        if self.count >= MOST_CALLS or (found := _LINE.search(line)) is None:
            return
        host, pid, device, op, key, count, kind, reduction, root, comm, size = found.groups()
        where = (host, pid, comm)
        mine = self.found.get(where)
        if mine is None:
            order = self.used[host, pid, device, int(size)]
            self.used[host, pid, device, int(size)] += 1
            rank, group = self.begun.get(where, (None, ""))
            group = group or f"communicator {order + 1} of {size} ranks"
            mine = Enqueued((host, int(pid), int(device)), int(size), group, self.shapes, rank)
            self.found[where] = mine
        if said := _GLOBAL.search(line):
            mine.rank = int(said[1])
        if op in ("Send", "Recv"):
            mine.sends += op == "Send"
            mine.receives += op == "Recv"
            return
        shape = (op, int(count), int(kind), int(reduction), int(root) if op in _ROOTED else -1)
        place = self.places.get(shape)
        if place is None:
            if len(self.shapes) >= MOST_SHAPES:
                return
            place = self.places[shape] = len(self.shapes)
            self.shapes.append(shape)
        mine.keys.append(int(key, 16))
        mine.calls.append(place)
        self.count += 1

    @property
    def calls(self) -> tuple[Enqueued, ...]:
        """What each process enqueued in each communicator."""
        sizes = Counter((e.process, e.size) for e in self.found.values())
        largest = max((e.size for e in self.found.values()), default=0)
        for mine in self.found.values():
            mine.alone = mine.size == largest and sizes[mine.process, mine.size] == 1
        return tuple(self.found.values())


def _in_words(shape: Shape) -> str:
    op, count, kind, _, root = shape
    dtype = _TYPES[kind] if kind < len(_TYPES) else f"elements of type {kind}"
    return f"{operation(op)} of {count:,} {dtype}" + (f" from root {root}" if root >= 0 else "")


def _names(ours: Sequence[Enqueued], all_of_them: Sequence[Enqueued]) -> str:
    """The processes as a sentence calls them: ranks where all are known to be the job's, else GPUs, else processes."""
    if all(e.rank is not None and e.alone for e in all_of_them):
        numbers = sorted(e.rank for e in ours if e.rank is not None)
        more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
        named = ", ".join(map(str, numbers[:MOST_NAMED])) if more else listed(numbers)
        return f"rank{'s' if len(numbers) > 1 else ''} {named}{more}"
    devices = {(e.process[0], e.process[2]) for e in all_of_them}
    by_gpu = len(devices) == len(all_of_them)
    word = "GPU" if by_gpu else "process"
    several = len({e.process[0] for e in all_of_them}) > 1
    of_host: dict[str, list[int]] = defaultdict(list)
    for host, pid, device in sorted(e.process for e in ours):
        of_host[host].append(device if by_gpu else pid)
    words = []
    for host, numbers in list(of_host.items())[:MOST_NAMED]:
        plural = ("s" if by_gpu else "es") if len(numbers) > 1 else ""
        words.append(f"{word}{plural} {listed(sorted(numbers))}" + (f" of {host}" if several else ""))
    more = f", and of {len(of_host) - MOST_NAMED} more hosts" if len(of_host) > MOST_NAMED else ""
    return (", ".join(words) if more else listed(words)) + more


def _groups(calls: Iterable[Enqueued]) -> dict[str, list[Enqueued]]:
    """The processes of each group, of those whose members can be told; several files may name one process."""
    found: dict[str, dict[Process, Enqueued]] = defaultdict(dict)
    for mine in calls:
        found[mine.group].setdefault(mine.process, mine)
    whole = {name: of for name, of in found.items() if len(of) <= next(iter(of.values())).size}
    return {name: [of[process] for process in sorted(of)] for name, of in whole.items()}


def calls_that_differ(calls: Iterable[Enqueued]) -> tuple[Cause, ...]:
    """A cause for each group whose processes enqueued other calls, or, where none differ, fewer.

    >>> shapes = [("AllReduce", 8, 7, 0, -1), ("AllGather", 8, 7, 0, -1)]
    >>> def made(gpu, call):
    ...     return Enqueued(("a", gpu, gpu), 3, "g", shapes, None, array("Q", [5]), array("l", [call]))
    >>> calls_that_differ([made(0, 0), made(1, 1), made(2, 0)])[0].cause
    'GPU 1 made another call than GPUs 0 and 2: all_gather of 8 float32, where they made all_reduce of 8 float32.'
    """
    found = []
    for members in _groups(calls).values():
        if cause := _unpaired(members):
            found.append(cause)
        members = [member for member in members if member.keys]
        # NCCL 2.27 and later counts nothing inside one node; messages count too, and ranks have not the same number
        by_place = any(e.messages or (len(e.keys) > 1 and not any(e.keys)) for e in members)
        if len(members) < 2 or (by_place and len({e.keys[0] for e in members}) > 1):
            continue
        numbered = [member.numbered(by_place) for member in members]
        if cause := _differ(members, numbered) or _fewer(members, numbered):
            if by_place and any(e.rank is None for e in members):  # the lines that begin the communicators are not here
                evidence = f"{cause.evidence}; these lines have no count of calls, and the logs do not show where the "
                evidence += (
                    "communicators begin: if they begin in the middle, calls were compared that do not belong together"
                )
                cause = replace(cause, evidence=evidence, sure=min(cause.sure, 0.4))
            found.append(cause)
    return tuple(sorted(found, key=lambda cause: -cause.sure))


def _differ(members: list[Enqueued], numbered: list[dict[tuple[int, int], Shape]]) -> Cause | None:
    begins = max(min(calls) for calls in numbered)  # logs that begin later say nothing of the calls before
    for key in sorted(set().union(*numbered)):
        here = [(e, calls[key]) for e, calls in zip(members, numbered, strict=True) if key in calls]
        kinds = Counter(shape for _, shape in here)
        if key < begins or len(kinds) < 2:
            continue
        usual = kinds.most_common(1)[0][0]
        others = [e for e, shape in here if shape != usual]
        theirs = dict.fromkeys(shape for _, shape in here if shape != usual)
        usuals = [e for e, shape in here if shape == usual]
        what = listed(map(_in_words, list(theirs)[:3]))
        verb = "they" if len(usuals) > 1 else "it"
        words = (
            f"{capital(_names(others, members))} made another call than {_names(usuals, members)}: {what}, "
            f"where {verb} made {_in_words(usual)}."
        )
        number = f"call {key[1] + 1} of these logs" if key[1] and not key[0] else f"opCount {key[0]:x}"
        alike = "it is the first call that they share" if key == begins else "the calls before it are alike"
        evidence = f"NCCL's lines of calls (COLL) differ at {number}; {alike}"
        evidence += _shifted(key, numbered, set(theirs), usual)
        evidence += "" if all(e.alone for e in members) else f"; in a group of {members[0].size}"
        evidence += (
            f"; the logs have {len(members)} of {members[0].size} ranks" if len(members) < members[0].size else ""
        )
        lone = others[0].rank if len(others) == 1 and len(usuals) > 1 and others[0].alone else None
        return Cause(words, evidence, None, 0.95 if len(members) == members[0].size else 0.85, "desync", lone)
    return None


def _unpaired(members: list[Enqueued]) -> Cause | None:
    """More sends than receives, or fewer, of a group whose members are all in the logs; a log may be cut."""
    sends, receives = sum(e.sends for e in members), sum(e.receives for e in members)
    if sends == receives or len(members) < members[0].size:
        return None
    which = "receive" if sends > receives else "send"
    made = "; ".join(f"{_names([e], members)}: {e.sends:,} and {e.receives:,}" for e in members[:MOST_NAMED])
    words = f"{counted(abs(sends - receives), 'message has', 'messages have')} no {which} in these logs."
    evidence = (
        f"sends and receives enqueued by {made}; each send needs its receive: if the job hung, the last ones say which "
        "is missing, unless a log is cut"
    )
    return Cause(words, evidence, None, 0.5, "missing_message", None)


def _shifted(
    key: tuple[int, int],
    numbered: list[dict[tuple[int, int], Shape]],
    theirs: set[Shape],
    usual: Shape,
) -> str:
    """Whether the one side's call is the other's next one: then it left one out, or the other made one more."""
    if len(theirs) != 1:
        return ""
    for shape, next_of, words in (
        (usual, next(iter(theirs)), "the first made the call that the others make next, so that it left one out"),
        (next(iter(theirs)), usual, "the others made the call that the first makes next, so that it made one more"),
    ):
        for calls in numbered:
            later = sorted(k for k in calls if k > key)
            if calls.get(key) == shape and later and calls[later[0]] == next_of:
                return f"; {words}"
    return ""


def _fewer(members: list[Enqueued], numbered: list[dict[tuple[int, int], Shape]]) -> Cause | None:
    """Processes whose lines end at an earlier call; a log may be cut, so that this is a clue."""
    last = [max(calls) for calls in numbered]
    most = max(last)
    behind = [e for e, key in zip(members, last, strict=True) if key < most]
    if not behind:
        return None
    ahead = [e for e, key in zip(members, last, strict=True) if key == most]
    least = min(last)
    ends = (
        f"{least[1] + 1} and {most[1] + 1} in number"
        if most[1] and not most[0]
        else f"opCount {least[0]:x} and {most[0]:x}"
    )
    who, others = capital(_names(behind, members)), _names(ahead, members)
    words = f"{who} enqueued fewer calls than {others}, as far as these logs go."
    evidence = (
        f"their last calls are {ends}, and what all of them have is alike; a process enqueues a call before it runs: "
        "if the job hung there, look where these stood, or whether their logs are cut"
    )
    if len(members) < members[0].size:
        evidence += (
            f"; the logs have {len(members)} of {members[0].size} ranks, so that another may be the one that is missing"
        )
    return Cause(words, evidence, None, 0.4, "hang", None)


def said_of_calls(calls: Sequence[Enqueued]) -> list[str]:
    """How many calls of which kind the lines have, in sentences."""
    if not calls:
        return []
    kinds = Counter(e.shapes[call][0] for e in calls for call in e.calls)
    largest = max(e.size for e in calls)
    processes = len({e.process for e in calls})
    made = ", ".join(f"{operation(op)} {n:,}" for op, n in kinds.most_common(6)) or "no collective"
    words = [f"calls enqueued, by {counted(processes, 'process', 'processes')} of {largest} ranks: {made}"]
    sends, receives = sum(e.sends for e in calls), sum(e.receives for e in calls)
    if sends + receives:
        words.append(
            f"{counted(sends, 'send')} and {counted(receives, 'receive')} are in the log, which are counted here and "
            "not compared: in a whole log of all ranks, each send has its receive"
        )
    if len(_groups(calls)) < len({e.group for e in calls}):
        words.append("of several groups of one size, these lines do not say which process is in which")
    return words

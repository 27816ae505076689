"""The calls in a profiler trace: what a kernel says of itself, and else what the host was doing when it launched the
kernel.

NCCL's kernels carry the call since torch 2.3. Before, and for kernels that RCCL calls Generic, the launch tells it:
torch's record_param_comms, its "nccl:all_reduce" and its c10d operators enclose the launch. Gloo has no kernels: its
workers' annotations are the times, and the c10d operators say what was called.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from allranks.base.errors import counted
from allranks.jobs.job import MAX_RANKS, Call
from allranks.jobs.kernels import sends
from allranks.jobs.names import (
    UNKNOWN,
    bytes_of,
    dtype_bytes,
    elements,
    group_name,
    operation,
    rank_list,
    short_name,
)

__all__ = ["NO_GPU", "Calls"]

NO_GPU = "the file has no GPU events, so that it does not say how long the calls took"
_ANNOTATION = re.compile(r"^(nccl|gloo|mpi|ucc|xccl|hccl|rccl):(\w+)")
_NOT_CALLS = ("wait", "init", "coalesced", "comm", "group", "monitor", "check")
# where a c10d operator's inputs have the tensor that is received and the one that is sent
_PLACES = {
    "_allgather_base_": (0, 1), "allgather_": (0, 1), "allgather_into_tensor_coalesced_": (0, 1), "gather_": (0, 1),
    "_reduce_scatter_base_": (0, 1), "reduce_scatter_": (0, 1), "reduce_scatter_tensor_coalesced_": (0, 1),
    "alltoall_base_": (0, 1), "alltoall_": (0, 1), "scatter_": (0, 1), "recv_": (0, None),
    "recv_any_source_": (0, None),
}  # fmt: skip
# gloo makes some collectives out of others, and then its annotation has the other's name
_MADE_OF = {"reduce_scatter": ("all_reduce", "reduce_scatter"), "all_to_all": ("all_to_all",)}


@dataclass(frozen=True, slots=True)
class _Said:
    """What one event says of a call; None is what it doesn't say."""

    op: str = UNKNOWN
    sent: int | None = None
    received: int | None = None
    dtype: str | None = None
    pg: str | None = None
    ranks: tuple[int, ...] | None = None
    size: int | None = None
    peer: int | None = None
    in_split: tuple[int, ...] | None = None
    out_split: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Host:
    """An event of the host that encloses a call: a parameter record, an annotation or a c10d operator."""

    name: str
    start: float
    end: float
    thread: int
    args: dict[str, Any]


class Calls:
    """Collects what may be calls; `of_kernels` and `of_host` make the calls of it."""

    def __init__(self) -> None:
        self.kernels: dict[tuple[Any, ...], tuple[str, float, float, int, str, dict[str, Any]]] = {}
        self.repeated = 0
        self.params: list[_Host] = []
        self.annotations: list[_Host] = []
        self.operators: list[_Host] = []

    def host(self, name: str, start: float, end: float, thread: int, args: dict[str, Any]) -> None:
        """Keeps an event of the host if it belongs to a call."""
        if name.startswith("c10d::"):
            self.operators.append(_Host(name[6:], start, end, thread, args))
        elif name == "record_param_comms":
            self.params.append(_Host(name, start, end, thread, args))
        elif (found := _ANNOTATION.match(name)) is not None:
            self.annotations.append(_Host(found[0], start, end, thread, args))

    def kernel(self, name: str, start: float, end: float, correlation: int, stream: str, args: dict[str, Any]) -> None:
        """Keeps a communication kernel, once if the file has it twice."""
        key = (start, end, stream, correlation)
        self.repeated += key in self.kernels
        self.kernels[key] = (name, start, end, correlation, stream, args)

    def correlations(self) -> set[int]:
        """The correlations of all communication kernels."""
        return {key[3] for key in self.kernels}

    @property
    def worker_threads(self) -> set[int]:
        """The threads that only carry out calls: gloo's, which no operator or record of a call is on. NCCL has none."""
        carried = {a.thread for a in self.annotations if a.name.startswith(("gloo:", "mpi:", "ucc:"))}
        return carried - {host.thread for host in (*self.operators, *self.params)}

    def of_kernels(
        self,
        rank: int,
        launches: Mapping[int, tuple[float, int]],
        groups: Mapping[str, tuple[int, ...]],
        notes: list[str],
        device: int | None = None,
    ) -> tuple[Call, ...]:
        """The calls whose kernels are in the file, or on one device of it, in order of their starts."""
        around = [_Enclosing(events) for events in (self.params, self.annotations, self.operators)]
        by_id = {p.args.get("External id"): p for p in self.params if "External id" in p.args}
        found = []
        for name, start, end, correlation, stream, args in self.kernels.values():
            if device is not None and not stream.startswith(f"{device}/"):
                continue
            said = [_from_args(args)]
            if correlation in launches:
                hosts = [events.at(*launches[correlation]) for events in around]
                said += [_from_host(host) for host in hosts if host is not None]
            elif (param := by_id.get(args.get("External id"))) is not None:
                said.append(_from_host(param))
            known = sends(name)
            said.append(_Said(op=known.op if known is not None else operation(name)))
            found.append(_call(rank, _first(said), groups, start, end, stream, short_name(name)))
        found = _numbered(found)
        self._note(found, notes)
        if self.annotations and any(a.name.startswith("gloo:") for a in self.annotations):
            notes.append("calls of gloo on the host are not counted: the file has GPU kernels")
        return tuple(found)

    def of_host(self, rank: int, groups: Mapping[str, tuple[int, ...]], notes: list[str]) -> tuple[Call, ...]:
        """The calls of a file without kernels: gloo's, with times; or those that were only launched, without times."""
        timed = [a for a in self.annotations if not a.name.startswith(("nccl:", "rccl:", "xccl:"))]
        found = []
        if timed:
            for host, note in _paired(self.operators, timed):
                said = _first([_from_host(h) for h in (host, note) if h is not None])
                start, label = (note.start, note.name) if note else (host.start, host.name) if host else (None, "")
                found.append(_call(rank, said, groups, start, note.end if note else None, None, label))
        else:
            # the record of a call encloses its annotation, and the operator encloses the record
            inner, outer = _Enclosed(self.annotations), _Enclosing(self.operators)
            for param in self.params:
                if str(param.args.get("Collective name", "")).lower().startswith(_NOT_CALLS):
                    continue
                around = [inner.of(param), outer.at(param.start, param.thread)]
                said = _first([_from_host(host) for host in (param, *around) if host is not None])
                found.append(_call(rank, said, groups, None, None, None, ""))
            if not self.params:
                for host in self.operators or self.annotations:
                    if (said := _from_host(host)).op != UNKNOWN:
                        found.append(_call(rank, said, groups, None, None, None, ""))
            if found:
                notes.append(NO_GPU)
        found = _numbered(found)
        self._note(found, notes)
        return tuple(found)

    def _note(self, calls: list[Call], notes: list[str]) -> None:
        """Says what the file leaves open."""
        if self.repeated:
            notes.append(f"twice in the file, and counted once: {counted(self.repeated, 'communication kernel')}")
        for what, unknown in (
            ("which collective it is", [c for c in calls if c.op == UNKNOWN]),
            ("how many bytes", [c for c in calls if c.nbytes is None and c.op not in (UNKNOWN, "barrier")]),
            ("in which group", [c for c in calls if c.group is None]),
        ):
            if unknown:
                notes.append(f"of {len(unknown):,} of {len(calls):,} calls, the file does not say {what}")


class _Enclosing:
    """Finds the innermost event of the host that encloses a moment on a thread."""

    def __init__(self, events: Iterable[_Host]) -> None:
        self.events: dict[int, list[_Host]] = defaultdict(list)
        for event in sorted(events, key=lambda e: e.start):
            self.events[event.thread].append(event)
        self.starts = {thread: [e.start for e in events] for thread, events in self.events.items()}

    def at(self, moment: float, thread: int) -> _Host | None:
        """The event, or None."""
        events = self.events.get(thread, [])
        place = bisect_right(self.starts.get(thread, []), moment)
        for event in reversed(events[max(0, place - 8) : place]):
            if event.end >= moment:
                return event
        return None


class _Enclosed:
    """Finds the first annotation inside an event of the same thread."""

    def __init__(self, events: Iterable[_Host]) -> None:
        self.events = sorted(events, key=lambda e: (e.thread, e.start))
        self.keys = [(e.thread, e.start) for e in self.events]

    def of(self, outer: _Host) -> _Host | None:
        """The annotation, or None."""
        place = bisect_left(self.keys, (outer.thread, outer.start))
        if place < len(self.events):
            event = self.events[place]
            if event.thread == outer.thread and event.end <= outer.end:
                return event
        return None


def _from_args(args: Mapping[str, Any]) -> _Said:
    """What "Collective name" and its neighbours say, in a kernel or a record of parameters."""
    if "Collective name" not in args:
        return _Said()
    name = str(args["Collective name"])
    op = operation(name)
    peer = args.get("Dst Rank") if op == "send" else args.get("Src Rank") if op == "recv" else None
    return _Said(
        op, _count(args.get("In msg nelems")), _count(args.get("Out msg nelems")), args.get("dtype"),
        _text(args.get("Process Group Name")), _ranks_of(args), _count(args.get("Group size")), _count(peer),
        rank_list(args.get("In split size")), rank_list(args.get("Out split size")),
    )  # fmt: skip


def _ranks_of(args: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The group's ranks; of a list that is cut short, by its start, stride and size."""
    ranks, size = rank_list(args.get("Process Group Ranks")), _count(args.get("Group size"))
    if ranks is not None and (size is None or size == len(ranks)):
        return ranks
    start, stride = _count(args.get("Global rank start")), _count(args.get("Global rank stride"))
    if start is None or not stride or not size or size > MAX_RANKS:
        return None
    return _strided(start, stride, size)


@functools.lru_cache(maxsize=16)
def _strided(start: int, stride: int, size: int) -> tuple[int, ...]:
    """One tuple for the many calls of a large group."""
    return tuple(range(start, start + stride * size, stride))


def _from_host(host: _Host) -> _Said:
    """What an event of the host says: by its parameters, or by its name and the sizes of its tensors."""
    if host.name == "record_param_comms":
        return _from_args(host.args)
    op = operation(host.name.split(":")[-1])
    dims, types = host.args.get("Input Dims"), host.args.get("Input type")
    dims, types = dims if isinstance(dims, list) else [], types if isinstance(types, list) else []
    got, gave = _PLACES.get(host.name, (None, 0))
    sent = elements(dims[gave]) if gave is not None and gave < len(dims) else None
    received = elements(dims[got]) if got is not None and got < len(dims) else None
    dtype = next((t for t in types if dtype_bytes(t) is not None), None)
    values = host.args.get("Concrete Inputs")
    values = values if isinstance(values, list) else []
    peer: int | None = None
    splits: tuple[tuple[int, ...] | None, tuple[int, ...] | None] = (None, None)
    if host.name in ("send", "recv_") and len(values) > 2 and str(values[2]).isdigit():
        peer = int(values[2])
    if host.name == "alltoall_base_" and len(values) > 4:
        splits = (rank_list(values[4]), rank_list(values[3]))
    if op == "barrier":
        sent = received = dtype = None
    return _Said(op, sent, received, dtype, peer=peer, in_split=splits[0], out_split=splits[1])


def _first(said: list[_Said]) -> _Said:
    """All that is said, the first to say it counting; what follows an operation's name must be of the same
    operation."""
    found = _Said()
    for more in said:
        if found.op not in (UNKNOWN, more.op) and more.op != UNKNOWN:
            continue
        names = found.__dataclass_fields__
        gained = {n: getattr(more, n) for n in names if getattr(found, n) in (None, UNKNOWN)}
        found = replace(found, **gained)
    return found


def _call(
    rank: int, said: _Said, groups: Mapping[str, tuple[int, ...]], start: float | None, end: float | None,
    stream: str | None, label: str,
) -> Call:  # fmt: skip
    """The call, with its group's one name and its bytes."""
    group, ranks = group_name(said.pg, said.ranks), said.ranks
    if ranks is None and said.pg is not None:
        known = [(n, r) for n, r in groups.items() if r and n.split(" (")[0] == said.pg]
        group, ranks = known[0] if len(known) == 1 else (group, None)
    elif group is None and len(groups) == 1:  # the job has only one
        (group, listed), *_ = groups.items()
        ranks = listed or None
    size = said.size or (len(ranks) if ranks else None)
    if size is None and said.op == "all_gather" and said.sent and said.received and said.received % said.sent == 0:
        size = said.received // said.sent  # its output is the inputs of all ranks
    peer = said.peer
    if peer is not None and said.pg is None:  # the operator's number is one within the group
        peer = ranks[peer] if ranks and peer < len(ranks) else None
    nbytes = bytes_of(said.op, dtype_bytes(said.dtype), said.sent, said.received, size)
    return Call(
        rank, said.op, group, ranks, size, None, start, end, said.sent, said.received, nbytes, said.dtype,
        peer=peer, stream=stream, label=label, in_split=said.in_split, out_split=said.out_split,
    )  # fmt: skip


def _numbered(calls: list[Call]) -> list[Call]:
    """In order of their starts, each with its number within its group."""
    numbers: dict[str | None, int] = defaultdict(int)
    found = []
    for call in sorted(calls, key=lambda c: c.start_us or 0.0):
        found.append(replace(call, seq=numbers[call.group] if call.group is not None else None))
        numbers[call.group] += 1
    return found


def _paired(operators: list[_Host], annotations: list[_Host]) -> list[tuple[_Host | None, _Host | None]]:
    """Each c10d operator with the annotation of the worker that carried it out, and annotations that no operator
    explains."""
    open_notes = sorted(annotations, key=lambda a: a.start)
    found: list[tuple[_Host | None, _Host | None]] = []
    for host in sorted(operators, key=lambda o: o.start):
        said = _from_host(host)
        if said.op == UNKNOWN:
            continue
        names = _MADE_OF.get(said.op, (said.op,))
        for place, note in enumerate(open_notes[:64]):
            told = _from_host(note)
            same_size = None in (told.sent, said.sent) or told.sent == said.sent or said.op in _MADE_OF
            if note.start >= host.start - 1 and told.op in names and same_size:
                found.append((host, open_notes.pop(place)))
                break
        else:
            found.append((host, None))
    return found + [(None, note) for note in open_notes if _from_host(note).op != UNKNOWN]


def _count(value: Any) -> int | None:
    """A number that is not negative, also where it is written as text."""
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)

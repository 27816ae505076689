"""The record of a run: what each rank did, as events, and the trace that holds them.

A schedule, a simulation, the wire and a live world all give a `Trace`. The player, the timelines, the cost comparison
and the grader read traces, and need not know which of these made them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from allranks.base.errors import CourseError

KINDS = ("schedule", "wire", "live", "simulated")
CLOCKS = ("step", "virtual", "wall")
VERSION = 1


class TraceError(CourseError, ValueError):
    """A trace or an event that contradicts itself, or a file that holds no trace."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that one rank did.

    `op` is "send", "recv" (the payload was stored), "reduce" (the payload was combined with what was there), "compute",
    "wait", or the torch.distributed name of a collective. `chunks` are numbers of the trace's chunks; `offset` and
    `nbytes` are bytes. `start` and `end` are seconds on the trace's clock. `line` is the line of the program. `contrib`
    lists the ranks whose contributions the payload holds; a rank that was added twice is there twice. A send and its
    receive have the same `match`; a send whose `match` no receive has was never received. `group` names the process
    group of a collective, and `seq` is its number within that group: the calls of one collective on all ranks have the
    same two, and so has a wait for it. Of a collective `nbytes` is what the rank put in, `received_nbytes` what it got,
    and `blocking` says that the call itself waited.

    >>> Event(0, "send", peer=1, nbytes=400, step=0, match=0).op
    'send'
    """

    rank: int
    op: str
    peer: int | None = None
    chunks: tuple[int, ...] = ()
    offset: int | None = None
    nbytes: int = 0
    step: int | None = None
    start: float | None = None
    end: float | None = None
    line: int | None = None
    match: int | None = None
    contrib: tuple[int, ...] | None = None
    tag: int = 0
    label: str | None = None
    group: str | None = None
    seq: int | None = None
    received_nbytes: int = 0
    blocking: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A send together with its receive; `delivered` is False if there is no receive. Fields as in `Event`.

    >>> sent = Event(0, "send", peer=1, nbytes=400, match=0)
    >>> Trace("wire", ranks=2, events=(sent,)).messages()[0].delivered
    False
    """

    src: int
    dst: int
    chunks: tuple[int, ...]
    nbytes: int
    step: int | None
    start: float | None
    end: float | None
    reduce: bool
    contrib: tuple[int, ...] | None
    line: int | None
    tag: int
    delivered: bool


_NAMES = tuple(f.name for f in fields(Event))
_DEFAULTS = {f.name: f.default for f in fields(Event) if f.name not in ("rank", "op")}


@dataclass(frozen=True)
class Trace:
    """The events of one run, in the order in which they began.

    `kind` is "schedule", "wire", "live" or "simulated". `ranks` is the world size, `chunks` the number of chunks of the
    vector (0: unknown), `nbytes` the bytes of the *full* vector. `clock` says what start and end count: "step" (there
    are no times), "virtual" seconds or "wall" seconds. Raises TraceError if something contradicts itself.

    >>> got = Event(1, "recv", peer=0, nbytes=400, match=0)
    >>> Trace("wire", ranks=2, events=(Event(0, "send", peer=1, nbytes=400, match=0), got))
    <Trace wire: 2 ranks, 1 messages, 400 bytes in all, at most 400 from one rank>
    """

    kind: str
    ranks: int
    events: tuple[Event, ...] = ()
    collective: str | None = None
    algorithm: str | None = None
    chunks: int = 0
    nbytes: int = 0
    dtype: str | None = None
    clock: str = "step"
    root: int | None = None
    source: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise TraceError(f"kind is {self.kind!r}; it must be one of {', '.join(KINDS)}")
        if self.clock not in CLOCKS:
            raise TraceError(f"clock is {self.clock!r}; it must be one of {', '.join(CLOCKS)}")
        if self.ranks < 1:
            raise TraceError(f"ranks is {self.ranks}; a trace needs at least one rank")
        for number, event in enumerate(self.events):
            for name, rank in (("rank", event.rank), ("peer", event.peer)):
                if rank is not None and not 0 <= rank < self.ranks:
                    raise TraceError(f"event {number}: {name} {rank} is not among the {self.ranks} ranks")
            if not all(math.isfinite(at) for at in (event.start, event.end) if at is not None):
                raise TraceError(f"event {number}: it lasts from {event.start} to {event.end} s; both must be finite")
            if event.start is not None and event.end is not None and event.end < event.start:
                raise TraceError(f"event {number}: it ends at {event.end} s, before its start at {event.start} s")

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    @property
    def steps(self) -> int:
        """The number of steps; 0 if no event has a step."""
        return max((e.step for e in self.events if e.step is not None), default=-1) + 1

    @property
    def seconds(self) -> float | None:
        """Seconds from the first start to the last end, or None if no event has times."""
        starts = [e.start for e in self.events if e.start is not None]
        ends = [e.end for e in self.events if e.end is not None]
        return max(ends) - min(starts) if starts and ends else None

    def messages(self) -> list[Message]:
        """Each send together with its receive, in order of the sends."""
        receives = {e.match: e for e in self.events if e.op in ("recv", "reduce") and e.match is not None}
        found = []
        for sent in self.events:
            if sent.op != "send" or sent.peer is None:
                continue
            got = receives.get(sent.match) if sent.match is not None else None
            found.append(
                Message(
                    src=sent.rank,
                    dst=sent.peer,
                    chunks=sent.chunks or (got.chunks if got else ()),
                    nbytes=sent.nbytes,
                    step=sent.step,
                    start=sent.start,
                    end=got.end if got and got.end is not None else sent.end,
                    reduce=bool(got and got.op == "reduce"),
                    contrib=sent.contrib,
                    line=sent.line,
                    tag=sent.tag,
                    delivered=got is not None,
                )
            )
        return found

    def bytes_sent(self) -> list[int]:
        """Bytes that each rank sent, indexed by rank."""
        return self._total("send")

    def bytes_received(self) -> list[int]:
        """Bytes that each rank received, indexed by rank."""
        return self._total("recv", "reduce")

    def _total(self, *ops: str) -> list[int]:
        totals = [0] * self.ranks
        for event in self.events:
            if event.op in ops:
                totals[event.rank] += event.nbytes
        return totals

    def with_events(self, events: Iterable[Event]) -> Trace:
        """The same trace with other events."""
        return replace(self, events=tuple(events))

    def to_dict(self) -> dict[str, Any]:
        """The trace as plain data for JSON. An event has only those fields that differ from their default."""
        header = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "events"}
        rows = []
        for event in self.events:
            row = asdict(event)
            rows.append({k: v for k, v in row.items() if k in ("rank", "op") or v != _DEFAULTS[k]})
        return {"version": VERSION, **header, "events": rows}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trace:
        """The trace that `to_dict` gave. Raises TraceError for another version, unknown fields or missing ones."""
        if data.get("version") != VERSION:
            raise TraceError(f"the trace has version {data.get('version')!r}; this package reads version {VERSION}")
        header = {k: v for k, v in data.items() if k not in ("version", "events")}
        events = []
        for row in data.get("events", ()):
            unknown = set(row) - set(_NAMES)
            if unknown:
                raise TraceError(f"an event has unknown fields: {', '.join(sorted(unknown))}")
            row = dict(row)
            for name in ("chunks", "contrib"):
                if row.get(name) is not None:
                    row[name] = tuple(row[name])
            try:
                events.append(Event(**row))
            except TypeError as error:
                raise TraceError(f"an event does not fit: {error}") from None
        try:
            return cls(events=tuple(events), **header)
        except TypeError as error:
            raise TraceError(f"the trace's header does not fit: {error}") from None

    def save(self, path: str | Path) -> None:
        """Writes the trace to a file, as JSON."""
        Path(path).write_text(json.dumps(self.to_dict()), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """The trace that `save` wrote."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))

    def to_chrome(self, path: str | Path | None = None) -> dict[str, Any]:
        """The trace in the Trace Event Format, which Perfetto and chrome://tracing open; also written to `path` if
        given.

        Each rank is a thread of one process. Where events have no times, a step takes one millisecond.
        """
        rows: list[dict[str, Any]] = [
            {"ph": "M", "pid": 0, "tid": rank, "name": "thread_name", "args": {"name": f"rank {rank}"}}
            for rank in range(self.ranks)
        ]
        for number, event in enumerate(self.events):
            # a schedule has no clock; a millisecond a step shows its order
            start = event.start if event.start is not None else (event.step or 0) * 1e-3
            end = event.end if event.end is not None else start + (1e-3 if event.start is None else 0.0)
            args = {k: v for k, v in asdict(event).items() if v not in (None, ()) and k not in ("rank", "op")}
            name = (
                event.op if event.peer is None else f"{event.op} {'to' if event.op == 'send' else 'from'} {event.peer}"
            )
            rows.append(
                {
                    "ph": "X",
                    "pid": 0,
                    "tid": event.rank,
                    "name": event.label or name,
                    "cat": self.kind,
                    "ts": start * 1e6,
                    "dur": (end - start) * 1e6,
                    "args": args,
                }
            )
            if event.match is not None and event.op in ("send", "recv", "reduce"):
                rows.append(
                    {
                        "ph": "s" if event.op == "send" else "f",
                        "bp": "e",
                        "pid": 0,
                        "tid": event.rank,
                        "id": event.match,
                        "name": "message",
                        "cat": self.kind,
                        "ts": (start if event.op == "send" else end) * 1e6,
                        "args": {"event": number},
                    }
                )
        chrome = {"traceEvents": rows, "displayTimeUnit": "ms"}
        if path is not None:
            Path(path).write_text(json.dumps(chrome), encoding="utf-8")
        return chrome

    def summary(self) -> str:
        """The trace in one line: ranks, messages, bytes, steps and time."""
        sent = self.bytes_sent()
        messages = sum(e.op == "send" for e in self.events)
        name = " ".join(filter(None, (self.algorithm, self.collective))) or self.kind
        words = (
            f"{name}: {self.ranks} ranks, {messages} messages, {sum(sent)} bytes in all, at most {max(sent)} from "
            "one rank"
        )
        if self.steps:
            words += f", in {self.steps} steps"
        if self.seconds is not None:
            words += f", {self.seconds * 1e6:.1f} µs"
        return words

    def __repr__(self) -> str:
        return f"<Trace {self.summary()}>"

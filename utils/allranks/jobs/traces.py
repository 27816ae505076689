"""The course's own traces (`Trace.save`) as records, so that what holds for a real job can be tried on a small one."""

from __future__ import annotations

import json
from pathlib import Path

from allranks.jobs.formats import WORK, Format
from allranks.jobs.job import Call, ProfileError, RankRecord, merged
from allranks.theory.trace import Event, Trace, TraceError

__all__ = ["FORMAT", "read", "records_of"]


def _looks(path: Path, head: bytes) -> bool:
    return head.startswith(b'{"version"') and b'"events"' in head


def read(path: Path) -> list[RankRecord]:
    """A record for each rank of a trace that `Trace.save` wrote. Raises ProfileError if it is none, or has no times.

    >>> read(Path("/nowhere.json"))
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: '/nowhere.json'
    """
    try:
        trace = Trace.load(path)
    except (TraceError, ValueError, TypeError, AttributeError) as error:
        raise ProfileError(
            "the JSON ends in the middle" if isinstance(error, json.JSONDecodeError) else str(error)
        ) from None
    if trace.clock != "wall":
        raise ProfileError(f"the trace counts {trace.clock} time, not that of a real run")
    return records_of(trace, str(path))


FORMAT = Format("trace", _looks, read, {"trace": WORK})


def records_of(trace: Trace, file: str = "") -> list[RankRecord]:
    """What the trace says of each rank: its calls, and when it computed.

    >>> [r.rank for r in records_of(Trace("live", ranks=2, clock="wall"))]
    [0, 1]
    """
    found = []
    for rank in range(trace.ranks):
        events = [e for e in trace if e.rank == rank]
        calls = tuple(_call(e) for e in events if e.op not in ("compute", "wait"))
        times = [(e.start * 1e6, e.end * 1e6, e.op) for e in events if e.start is not None and e.end is not None]
        span = (min(t[0] for t in times), max(t[1] for t in times)) if times else None
        found.append(
            RankRecord(
                rank,
                file,
                "trace",
                trace.ranks,
                calls,
                compute=merged((s, e) for s, e, op in times if op == "compute"),
                communication=merged((s, e) for s, e, op in times if op != "compute"),
                span=span,
                facts={"on_gpu": False},
            )
        )
    return found


def _call(event: Event) -> Call:
    return Call(
        event.rank, {"reduce": "recv"}.get(event.op, event.op), event.group, seq=event.seq,
        start_us=None if event.start is None else event.start * 1e6,
        end_us=None if event.end is None else event.end * 1e6,
        nbytes=event.nbytes, peer=event.peer, label=event.label or "",
    )  # fmt: skip

"""A job as a `Trace`: what the timelines and Perfetto draw."""

from __future__ import annotations

import os
from typing import Any

from allranks.jobs.job import Interval, Job
from allranks.jobs.matching import Matching, match
from allranks.jobs.reading import read
from allranks.theory.trace import Event, Trace

__all__ = ["lanes", "picture", "trace_of_files"]

BARS = 1500  # in one lane of the picture; neighbours closer than this share of the time are drawn as one


def lanes(job: Job, matching: Matching | None = None, waits: bool = False) -> Trace:
    """The calls and the compute of all ranks on the first rank's clock, from the first start on, in seconds.

    A collective has one `group` and `seq` on all its ranks. With `waits`, the time before the last rank came is a
    "wait" of its own.

    >>> from allranks.jobs.job import Call, RankRecord
    >>> call = profiles.Call(0, "barrier", "0", start_us=5e6, end_us=6e6)
    >>> lanes(profiles.Job((profiles.RankRecord(0, "", "kineto", calls=(call,)),))).events[0].end
    1.0
    """
    matching = matching or match(job)
    numbers = {id(c): (m.group, m.seq, max(m.start_us.values())) for m in matching.matches for c in m.calls.values()}
    found: list[tuple[float, float, Event]] = []
    ranks = max([job.world_size or 1, *(r.rank + 1 for r in job.records)])
    for record in job.records:
        at = matching.clocks[record.rank].at if record.rank in matching.clocks else float
        found += [(at(s), at(e), Event(record.rank, "compute")) for s, e in record.compute]
        for call in record.calls:
            if call.start_us is None or call.end_us is None:
                continue
            start, end = at(call.start_us), at(call.end_us)
            # among several ranks, a call that matches none has no number that could be another's
            own = call.seq if len(job.records) == 1 else None
            group, seq, come = numbers.get(id(call), (call.group, own, start))
            come = min(max(come, start), end)
            peer = call.peer if call.peer is not None and call.peer < ranks else None
            if waits and come > start:
                found.append((start, come, Event(record.rank, "wait", group=group, seq=seq)))
                start = come
            event = Event(
                record.rank, call.op, peer=peer, nbytes=call.nbytes or 0, label=call.label or None, group=group, seq=seq
            )
            found.append((start, end, event))
    zero = min((start for start, _, _ in found), default=0.0)
    events = [_at(event, (start - zero) / 1e6, (end - zero) / 1e6) for start, end, event in sorted(found, key=_start)]
    files = [r.file for r in job.records]
    return Trace("live", ranks, tuple(events), clock="wall", source=", ".join(files[:4]), meta={"files": files})


def _start(item: tuple[float, float, Event]) -> float:
    return item[0]


def _at(event: Event, start: float, end: float) -> Event:
    return Event(
        event.rank, event.op, peer=event.peer, nbytes=event.nbytes, start=start, end=max(start, end), label=event.label,
        group=event.group, seq=event.seq,
    )  # fmt: skip


def trace_of_files(*paths: str | os.PathLike[str]) -> Trace:
    """The trace of a real job, from the files that its ranks wrote, or a folder of them: torch's profiles, and our own
    traces.

    The calls of one collective have the same `group` and `seq`; the ranks' clocks are aligned. `allranks explain` says
    what the files mean. Raises ProfileError, a CourseError.

    >>> profiles.trace_of_files("/nowhere")
    Traceback (most recent call last):
    allranks.jobs.job.ProfileError: there is no file /nowhere
    """
    return lanes(read(paths))


def picture(job: Job, matching: Matching) -> Any:
    """The lanes as a chart, those of ranks with a file only; None if no event has a time."""
    from allranks.show import plots

    trace = lanes(job, matching, waits=True)
    if not trace.events:
        return None
    places = {record.rank: place for place, record in enumerate(job.records)}
    drawn = [Event(places[e.rank], e.op, start=e.start, end=e.end) for e in _coarse(trace)]
    chart = plots.timeline(Trace("live", len(places), tuple(drawn), clock="wall"))
    chart.axes[0].set_yticks(range(len(places)), [f"rank {rank}" for rank in places])
    return chart


def _coarse(trace: Trace) -> list[Event]:
    """The events with short ones of one kind drawn together: a lane is a thousand pixels wide."""
    gap = (trace.seconds or 0.0) / BARS
    open_events: dict[tuple[int, str], list[Interval]] = {}
    for event in trace:
        if event.start is None or event.end is None:
            continue
        runs = open_events.setdefault((event.rank, event.op), [])
        if runs and event.start - runs[-1][1] < gap:
            runs[-1] = (runs[-1][0], max(runs[-1][1], event.end))
        else:
            runs.append((event.start, event.end))
    return [Event(rank, op, start=s, end=e) for (rank, op), runs in open_events.items() for s, e in runs]

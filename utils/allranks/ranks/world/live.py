"""Joins the records of all ranks into one trace of the live run."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import pairwise

from allranks.theory.simulator.clock import Enter, NetworkError, Recv, Send, UniformNetwork, Wait, replay
from allranks.theory.trace import Event, Trace


def record(function, args: tuple, kwargs: dict) -> tuple:
    """Calls `recorder.record`. Runs on each rank, so that the notebook need not import torch."""
    from allranks.ranks.world import recorder

    return recorder.record(function, args, kwargs)


def under_fault(fault, function, args: tuple):
    """Calls `function(*args)` under the fault `fault`. Runs on each rank."""
    from allranks.ranks.world import recorder

    with recorder.broken(fault):
        return function(*args)


def join(parts: list[tuple[dict, dict]]) -> Trace:
    """The trace of one run. `parts[r]` is rank r's log and description, as `recorder.record` gives them.

    Times are seconds since the first event. `step` is the round in which a message would start if each message took one
    round. A message's chunk is its place in the sender's vector; there are chunks only if the parts don't overlap.
    """
    records = [log["records"] for log, _ in parts]
    number = _numbers(records)
    start = min((r["posted"] for rows in records for r in rows), default=0.0)
    steps = _steps(parts, records, number)
    cut = _Cut(records)
    sent_chunks = {
        number[rank, i]: cut.chunk(r) for rank, rows in enumerate(records) for i, r in enumerate(rows) if r["kind"] == "send"
    }  # fmt: skip
    both = Counter(number[rank, i] for rank, rows in enumerate(records) for i, r in enumerate(rows) if _p2p(r))
    senders = {
        number[rank, i]: rank for rank, rows in enumerate(records) for i, r in enumerate(rows) if r["kind"] == "send"
    }
    events = []
    for rank, rows in enumerate(records):
        calls: Counter = Counter()  # of each group, so far
        for i, r in enumerate(rows):
            message = number[rank, i]
            calls[r["group"]] += not _p2p(r)
            peer = r["peer"] if r["peer"] is not None or r["kind"] != "recv" else senders.get(message)
            events.append(
                Event(
                    rank=rank,
                    op=r["kind"] if _p2p(r) else r["name"],
                    peer=peer,
                    chunks=sent_chunks.get(message, ()) if _p2p(r) else (),
                    offset=r["offset"],
                    nbytes=r["nbytes"],
                    step=steps.get(message),
                    start=r["posted"] - start,
                    end=None if r["done"] is None else max(r["done"], r["posted"]) - start,
                    line=r["line"],
                    match=message if _p2p(r) and both[message] == 2 else None,
                    tag=r["tag"],
                    group=None if _p2p(r) else ",".join(map(str, r["group"])),
                    seq=None if _p2p(r) else calls[r["group"]],
                )
            )
    events.sort(key=lambda e: (e.start, e.rank))
    dtypes = {r["dtype"] for rows in records for r in rows} - {None}
    about = parts[0][1]
    hosts = sorted({description["host"] for _, description in parts})
    return Trace(
        kind="live",
        ranks=len(parts),
        events=tuple(events),
        collective=_only({r["name"] for rows in records for r in rows if not _p2p(r)} - {"barrier"}),
        chunks=cut.count,
        nbytes=cut.nbytes,
        dtype=_only(dtypes),
        clock="wall",
        source=about["backend"],
        meta={
            "backend": about["backend"],
            "nccl": about["nccl"],
            "torch": about["torch"],
            "devices": [description["device"] for _, description in parts],
            "nodes": len(hosts),
            "clocks": _clocks([description for _, description in parts], hosts),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
        },
    )


def _clocks(descriptions: list[dict], hosts: list[str]) -> str:
    """Whether times of different ranks can be compared, in words."""
    if all(description.get("aligned") for description in descriptions):
        return "aligned by an all_reduce"
    return "one machine's" if len(hosts) == 1 else "not aligned"


def _p2p(record: dict) -> bool:
    return record["kind"] != "collective"


def _only(values: set):
    return values.pop() if len(values) == 1 else None


def _numbers(records: list[list[dict]]) -> dict[tuple[int, int], int]:
    """The number of the message or collective of each record, by (rank, index). A receive has the number of its send.

    Messages between two ranks with the same tag keep their order.
    """
    found: dict[tuple[int, int], int] = {}
    waiting: dict[tuple, list[int]] = defaultdict(list)
    fresh = 0
    for rank, rows in enumerate(records):
        for i, r in enumerate(rows):
            if r["kind"] == "send":
                found[rank, i] = fresh
                waiting[rank, r["peer"], r["tag"], r["group"]].append(fresh)
                fresh += 1
    meetings: dict[tuple, int] = {}
    for rank, rows in enumerate(records):
        order: Counter = Counter()
        for i, r in enumerate(rows):
            if r["kind"] == "recv":
                queue = waiting.get((r["peer"], rank, r["tag"], r["group"]))
                if queue:
                    found[rank, i] = queue.pop(0)
                else:
                    found[rank, i], fresh = fresh, fresh + 1
            elif r["kind"] == "collective":
                key = (r["group"], order[r["group"]])
                order[r["group"]] += 1
                if key not in meetings:
                    meetings[key], fresh = fresh, fresh + 1
                found[rank, i] = meetings[key]
    return found


def _steps(parts: list, records: list[list[dict]], number: dict) -> dict[int, int]:
    """The round of each message. Empty if the rounds are unknown, for example with a receive from any source."""
    programs = []
    for rank, (log, _) in enumerate(parts):
        program: list[Send | Recv | Wait | Enter] = []
        for what, i in log["program"]:
            r, message = records[rank][i], number[rank, i]
            if what == "wait":
                program.append(Wait(message, sent=r["kind"] == "send"))
            elif r["kind"] == "send":
                program.append(Send(message, r["peer"], r["nbytes"]))
            elif r["kind"] == "recv":
                program.append(Recv(message, r["peer"]))
            else:
                program.append(Enter(message, r["name"], tuple(r["group"]), r["nbytes"]))
        programs.append(program)
    try:
        times = replay(programs, UniformNetwork(1, 0), buffered=True)
    except NetworkError:
        return {}
    # a collective counts as one step, however many rounds its algorithm would take
    rounds = {start: step for step, start in enumerate(sorted({span[0] for span in times.spans.values()}))}
    return {message: rounds[span[0]] for message, span in times.spans.items()}


class _Cut:
    """The chunks of the vector: `count` chunks in a vector of `nbytes` bytes. `count` is 0 if messages overlap."""

    def __init__(self, records: list[list[dict]]) -> None:
        sends = [r for rows in records for r in rows if r["kind"] == "send"]
        self.extent = max((r["extent"] for r in sends), default=0)
        parts = sorted({(r["offset"], r["nbytes"]) for r in sends if r["extent"] == self.extent and r["nbytes"]})
        tiles = all(a[0] + a[1] <= b[0] for a, b in pairwise(parts))
        self.index = {part: i for i, part in enumerate(parts)} if tiles else {}
        self.count = len(self.index)
        self.nbytes = self.extent if self.index else 0

    def chunk(self, record: dict) -> tuple[int, ...]:
        if record["extent"] != self.extent:
            return ()
        index = self.index.get((record["offset"], record["nbytes"]))
        return () if index is None else (index,)

"""What NCCL itself writes about a job: the Inspector's records of finished calls, and RAS's picture of a running job.

The Inspector (NCCL's plugins/profiler/inspector, output format 4) writes one JSON object for each finished collective
of each communicator. `ncclras -f json` (NCCL's src/ras) prints the communicators, their ranks with counts of calls, and
the ranks that did not answer; its text (NCCL 2.24 to 2.30, src/ras/client_support.cc) names only ranks that differ.
Both know ranks of communicators only: the largest communicator is taken for the world, in the text of those that
differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from allranks.base.errors import counted
from allranks.jobs.formats import CALLS, Format
from allranks.jobs.job import MAX_RANKS, Call, ProfileError, RankRecord
from allranks.jobs.names import operation
from allranks.jobs.plain import bounded, content

INSPECTOR, RAS = "nccl inspector", "ras"
# of RAS's text: its head, or that of its table where people copy no more; a shell's line may stand before it
_RAS_TEXT = re.compile(rb"(?m)^\s*NCCL version (\S+) compiled with CUDA|^\s*Group +Comms +Nodes +Ranks")
# a row of its table of communicators, the head of what it says of one, an operation, a count, a rank
RAS_GROUP = re.compile(r"^ *(\d+) +\d+ +\d+ +[\d-]+ +(\d+) +\d+ +[A-Z]+ +([A-Z,]+) *$", re.M)
_COMM = re.compile(r"^#(\d+)-\d+ \((\w+)\) (\w+)")
_OPERATION = re.compile(r"ranks have different (\w+) operation counts")
_COUNT = re.compile(r"\d+ ranks have (?:launched up to operation (\d+)|not launched any operations)")
_RANK = re.compile(
    r"^ +Rank (\d{1,7})(?: has launched up to operation (\d+)| has (not) launched any operations)? -- "
    r"(?:GPU .* managed by process (\d+) on node (\S+))?"
)
_MISSING = re.compile(r"^ +The missing ranks?: ([\d, ]+)$")
NO_TIMES = (
    "the Inspector's file says how long each call took, but not when it began (NCCL_INSPECTOR_DUMP_VERBOSE=1 adds that)"
)


def is_nccl_file(head: bytes) -> bool:
    """Whether the first bytes of a file look like the Inspector's or RAS's output.

    >>> is_nccl_file(b'{"header": {"id": "0x7f"}, "metadata": {"inspector_output_format_version": ')
    True
    """
    start = head.lstrip()
    if start.startswith(b"{"):
        return b'"inspector_output_format_version"' in head or (b'"nccl_version"' in head and b'"communicators' in head)
    return _RAS_TEXT.search(head) is not None and b"ProcessGroupNCCL" not in head and b" NCCL INFO " not in head


def read_nccl(name: str, data: bytes) -> list[RankRecord]:
    """The records of one file. Raises ProfileError with one sentence if nothing of it can be told.

    >>> line = '{"header": {"id": "0x1", "rank": 2, "n_ranks": 8}, "metadata": {"hostname": "a", "pid": 7}, '
    >>> line += '"coll_perf": {"coll": "AllReduce", "coll_sn": 3, '
    >>> line += '"coll_msg_size_bytes": 1024, "coll_exec_time_us": 60}}'
    >>> [record] = read_nccl("a.log", line.encode())
    >>> record.rank, record.calls[0].op, record.calls[0].seq, record.facts["exec_us"]["all_reduce"]
    (2, 'all_reduce', 3, 60)
    """
    text = data.decode("utf-8", "replace")
    if ras := _RAS_TEXT.search(data):
        return _ras(name, _of_text(text) | {"nccl_version": (ras[1] or b"").decode() or None})
    objects, whole = [], True
    for value in _objects(text):
        if value is None:
            whole = False
        else:
            bounded(value)
            objects.append(value)
    if objects and isinstance(objects[0].get("communicators"), list):
        return _ras(name, objects[0])
    return _inspected(name, objects, whole)


FORMAT = Format(
    "NCCL Inspector and RAS",
    lambda path, head: is_nccl_file(head),
    lambda path: read_nccl(str(path), content(path)),
    {INSPECTOR: CALLS},
)


def _objects(text: str) -> Iterator[dict[str, Any] | None]:
    """The JSON objects of a text, one after the other; None where it ends in the middle of one."""
    decoder, at = json.JSONDecoder(), 0
    while True:
        at = next((i for i in range(at, len(text)) if not (text[i].isspace() or text[i] == ",")), len(text))
        if at == len(text):
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield None
            return
        if isinstance(value, dict):
            yield value


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _part(of: dict[str, Any], name: str) -> dict[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _inspected(name: str, objects: list[dict[str, Any]], whole: bool) -> list[RankRecord]:
    """A record for each process of the file."""
    by_process: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for entry in objects:
        header, meta = _part(entry, "header"), _part(entry, "metadata")
        if _number(header.get("rank")) is not None and _part(entry, "coll_perf"):
            by_process.setdefault((str(meta.get("hostname")), _number(meta.get("pid"))), []).append(entry)
    if not by_process:
        raise ProfileError("it has no finished collective of NCCL's Inspector")
    return [_process(name, host, pid, entries, whole) for (host, pid), entries in by_process.items()]


def _process(name: str, host: str, pid: int | None, entries: list[dict[str, Any]], whole: bool) -> RankRecord:
    largest = max((_part(e, "header") for e in entries), key=lambda h: _number(h.get("n_ranks")) or 0)
    rank = largest["rank"]
    calls = tuple(_finished(rank, entry) for entry in entries)
    took: dict[str, int] = {}
    for call, entry in zip(calls, entries, strict=True):
        took[call.op] = took.get(call.op, 0) + (_number(_part(entry, "coll_perf").get("coll_exec_time_us")) or 0)
    times = [at for call in calls for at in (call.start_us, call.end_us) if at is not None]
    notes = [] if times else [NO_TIMES]
    if not whole:
        notes.append(f"it ends in the middle: {counted(len(calls), 'call is', 'calls are')} complete")
    return RankRecord(
        rank,
        name,
        INSPECTOR,
        world_size=_number(largest.get("n_ranks")),
        calls=calls,
        span=(min(times), max(times)) if times else None,
        facts={"backend": "nccl", "host": host, "pid": pid, "exec_us": took, "base_ns": 0},
        notes=tuple(notes),
    )


def _finished(rank: int, entry: dict[str, Any]) -> Call:
    header, perf = _part(entry, "header"), _part(entry, "coll_perf")
    stamps = _part(perf, "event_trace_ts")
    kernels = [k for k in stamps.get("kernel_events") or () if isinstance(k, dict)]
    starts = [t for t in (_number(k.get("kernel_start_ts")) for k in kernels) if t]
    ends = [t for t in (_number(k.get("kernel_stop_ts")) for k in kernels) if t]
    said = str(perf.get("coll"))
    return Call(
        rank,
        operation(said),
        group=str(header.get("id")),
        group_size=_number(header.get("n_ranks")),
        seq=_number(perf.get("coll_sn")),
        start_us=min(starts) if starts and ends else None,
        end_us=max(ends) if starts and ends else None,
        nbytes=_number(perf.get("coll_msg_size_bytes")),
        label=said[:40],
    )


def _of_text(text: str) -> dict[str, Any]:
    """What RAS's text says, in the form of its JSON: of the communicators that differ, or of all where none does."""
    sizes = {int(group): int(size) for group, size, _ in RAS_GROUP.findall(text) if 0 < int(size) <= MAX_RANKS}
    if not sizes:
        raise ProfileError("it is the text that ncclras prints, without its table; ncclras -f json says more")
    comms: dict[str, dict[str, Any]] = {}
    told: dict[str, Any] = {}
    kind, op, count = "", "", 0
    for line in text.splitlines():
        if head := _COMM.match(line):
            told = {"size": sizes.get(int(head[1]), 0), "missing_ranks": [], "who": {}, "counts": {}, "others": {}}
            told = comms.setdefault(head[2], told)
            kind, op = head[3], ""
        elif found := _OPERATION.search(line):
            op = found[1]
        elif op and (found := _COUNT.search(line)):
            count = int(found[1] or 0)
            told["others"].setdefault(op, set()).add(count)
        elif told and kind == "INCOMPLETE" and (gone := _MISSING.match(line)):  # NCCL 2.24
            told["missing_ranks"] += [{"rank": int(n)} for n in re.findall(r"\d{1,7}", gone[1])]
        elif told and (rank := _RANK.match(line)):
            number = int(rank[1])
            who = {"rank": number, "pid": int(rank[4] or 0), "host": rank[5]}
            if kind == "INCOMPLETE":
                told["missing_ranks"].append(who)
            elif op:
                count = int(rank[2]) if rank[2] else 0 if rank[3] else count
                told["who"][number] = who
                told["counts"].setdefault(op, {})[number] = count
                told["others"].get(op, set()).discard(count)
    for comm in comms.values():
        # of who is not named, where all these have one count
        others = {op: counts.pop() for op, counts in comm["others"].items() if len(counts) == 1}
        absent = {missing["rank"] for missing in comm["missing_ranks"]}
        comm["ranks"] = [
            comm["who"].get(r, {"rank": r})
            | {"collective_counts": others | {op: n[r] for op, n in comm["counts"].items() if r in n}}
            for r in range(comm["size"])
            if r not in absent
        ]
    if not comms:
        largest = max(sizes.values())
        comms = {"": {"size": largest, "ranks": [{"rank": r} for r in range(largest)]}}
    return {"communicators": list(comms.values())}


def _ras(name: str, said: dict[str, Any]) -> list[RankRecord]:
    """A record for each rank that answered, of the largest communicator; who did not is in each record's facts."""
    comms = [c for c in said["communicators"] if isinstance(c, dict) and _number(c.get("size"))]
    if not comms:
        raise ProfileError("RAS knew no communicator when it was asked")
    world = max(comms, key=lambda c: c["size"])
    absent = {
        m["rank"]: _gone(m)
        for m in world.get("missing_ranks") or ()
        if _number(_part({"m": m}, "m").get("rank")) is not None
    }
    records = []
    for told in world.get("ranks") or ():
        if not isinstance(told, dict) or _number(told.get("rank")) is None:
            continue
        counts = {op: n for op, n in _part(told, "collective_counts").items() if _number(n) is not None}
        facts = {
            "backend": "nccl",
            "host": str(told.get("host")),
            "pid": _number(told.get("pid")),
            "nccl_version": str(said["nccl_version"]) if said.get("nccl_version") else None,
            "counts": counts,
            "status": _part(told, "status"),
            "absent": absent,
        }
        records.append(RankRecord(told["rank"], name, RAS, world_size=world["size"], facts=facts))
    if not records:
        raise ProfileError("RAS got an answer from no rank")
    return records


def _gone(missing: dict[str, Any]) -> str:
    status = _part(missing, "status")
    if status.get("considered_dead") is True:
        return "RAS considers it dead"
    return (
        "it does not answer RAS" if status.get("unresponsive") is True else "RAS got no answer about this communicator"
    )

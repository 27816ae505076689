"""Profiles of devices: Nsight Systems' SQLite and JSON exports, tables of kernels, JAX's and XLA's traces, NCCL's
example profiler, and Ascend's timeline.

Each device gives a record: its kernels, which of them communicate, and what is exposed. Seen: nsys 2021.1 to 2025.6
(`nsys export -t sqlite`, `-t jsonlines`), JAX 0.4 to 0.8 (`plugins/profile/*/*.trace.json.gz`), NCCL 2.23 to 2.30
(plugins/profiler/example), torch_npu 2.1 and CANN 8 (`trace_view.json`), nsys stats and rocprofv3 (CSV).
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.base.errors import counted
from allranks.jobs.formats import CALLS, WORK, Format
from allranks.jobs.job import MAX_RANKS, Call, Interval, ProfileError, RankRecord, is_time, merged
from allranks.jobs.kernels import is_peer_copy, sends
from allranks.jobs.names import operation, short_name
from allranks.jobs.phrases import ms
from allranks.jobs.scan import EventFile, lines_of

if TYPE_CHECKING:
    import sqlite3

__all__ = ["FORMATS", "JAX", "NSIGHT", "PROFILER"]

NSIGHT, JAX, PROFILER, ASCEND, TABLE = "nsight", "jax", "nccl profiler", "ascend", "table of kernels"
_SQLITE = b"SQLite format 3\0"
_GRAPHS = (
    "it has CUDA graphs as wholes, and not the kernels in them, among which the collectives are: record with "
    "nsys profile --cuda-graph-trace=node"
)
_PEER_COPIES = (10,)  # CUpti_ActivityMemcpyKind: peer to peer
# XLA's names of collectives, also those that begin and end apart
_HLO = re.compile(
    r"^(?:async-)?(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute"
    r"|collective-broadcast|collective|send|recv)(?:-fusion)?(-start|-done)?(?:[.\d]*)$"
)
_ASYNC = "Async XLA Ops"  # on a TPU: from the start of an operation to its end, beside what the core does
_DERIVED = (
    _ASYNC,
    "XLA Modules",
    "XLA TraceMe",
    "Steps",
    "Framework",
    "Source",
    "Launch Stats",
    "TensorFlow",
    "XLA Ops",
)


class _Device:
    """The kernels and copies of one device."""

    def __init__(self) -> None:
        self.work: list[Interval] = []
        self.talk: list[Interval] = []
        self.memory: list[Interval] = []
        self.calls: list[tuple[float, float, str, str, str]] = []
        self.both: dict[str, float] = defaultdict(float)

    def kernel(self, name: str, start: float, end: float, stream: str, hlo: str = "") -> None:
        """Files a kernel by its name, and by the operation of XLA that it belongs to."""
        known, by_hlo = sends(name), _HLO.match(hlo)
        if known is None and by_hlo is None:
            self.work.append((start, end))
            return
        op = operation(by_hlo[1].replace("-", "_")) if by_hlo else known.op if known else "unknown"
        if op == "collective":
            op = "unknown"
        if by_hlo and by_hlo[1] == "collective-permute":
            op = "send"
        self.calls.append((start, end, op, stream, short_name(name)))
        self.talk.append((start, end))
        if known is not None and known.computes:
            self.both[short_name(name)] += end - start
            self.work.append((start, end))

    def copy(self, peer: bool, start: float, end: float) -> None:
        """Files a copy: to another device, or not."""
        (self.talk if peer else self.memory).append((start, end))

    def record(
        self, rank: int, name: str, source: str, facts: dict[str, Any], notes: Iterable[str]
    ) -> RankRecord | None:
        """The device's record, or None if nothing ran on it."""
        everything = merged((*self.work, *self.talk, *self.memory))
        if not everything:
            return None
        told = list(notes)
        if self.both:
            told.append(
                f"{ms(sum(self.both.values()))} of kernels both compute and send ({', '.join(sorted(self.both)[:3])}): "
                f"they count as both"
            )
        calls = tuple(
            Call(rank, op, start_us=s, end_us=e, seq=None, stream=stream, label=label)
            for s, e, op, stream, label in sorted(self.calls)
        )
        return RankRecord(
            rank, name, source, None, calls, merged(self.work), merged(self.talk), merged(self.memory),
            (everything[0][0], everything[-1][1]), facts={"on_gpu": True, "host": name, **facts}, notes=tuple(told),
        )  # fmt: skip


def _records(
    devices: dict[int, _Device], path: Path, source: str, names: dict[int, str], notes: list[str]
) -> list[RankRecord]:
    found = []
    for number, device in sorted(devices.items()):
        facts = {"device": names[number]} if number in names else {}
        if (record := device.record(number, str(path), source, facts, notes)) is not None:
            found.append(record)
    if not found:
        raise ProfileError("no kernel of a device is in it")
    return found


# ------------------------------------------------------------------------------------------------------- Nsight Systems


def _read_sqlite(path: Path) -> list[RankRecord]:
    import sqlite3  # here, since a browser's Python has none

    with path.open("rb") as file:
        if not file.read(len(_SQLITE)).startswith(_SQLITE[:15]):
            raise ProfileError(
                "it is a packed SQLite file, which can't be read in place: unpack it (gunzip, xz -d, zstd -d)"
            )
    try:
        with sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True) as base:
            base.text_factory = lambda raw: raw.decode("utf-8", "replace")
            base.execute("PRAGMA query_only = 1")
            base.execute("PRAGMA cell_size_check = 1")
            return _tables(base, path)
    except (sqlite3.Error, OverflowError) as error:
        raise ProfileError(f"it is an SQLite file that can't be read: {str(error)[:80]}") from None


def _taken(base: sqlite3.Connection, kind: str) -> float:
    """The time that a kind of activity took, all of it together."""
    total = base.execute(f"SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_{kind}").fetchone()[0]
    return float(total) if isinstance(total, int | float) else 0.0


def _tables(base: sqlite3.Connection, path: Path) -> list[RankRecord]:
    tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
        raise ProfileError(
            _GRAPHS
            if "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in tables
            else "it is an SQLite file without kernels of Nsight Systems: record with --trace=cuda, export with nsys "
            "export -t sqlite"
        )
    if "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in tables and _taken(base, "GRAPH_TRACE") > _taken(base, "KERNEL"):
        raise ProfileError(_GRAPHS)
    strings: dict[Any, str] = {}
    if "StringIds" in tables:
        strings = {number: str(value) for number, value in base.execute("SELECT id, value FROM StringIds")}
    devices: dict[int, _Device] = defaultdict(_Device)
    columns = {row[1] for row in base.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}
    name = "demangledName" if "demangledName" in columns else "shortName"
    query = f"SELECT start, end, deviceId, streamId, {name} FROM CUPTI_ACTIVITY_KIND_KERNEL"
    for start, end, device, stream, kernel in base.execute(query):
        if _times(start, end) and _is_device(device):
            devices[device].kernel(strings.get(kernel, str(kernel)), start / 1e3, end / 1e3, f"{device}/{stream}")
    for table, is_copy in (("CUPTI_ACTIVITY_KIND_MEMCPY", True), ("CUPTI_ACTIVITY_KIND_MEMSET", False)):
        if table in tables:
            kind = "copyKind" if is_copy else "0"
            for start, end, device, what in base.execute(f"SELECT start, end, deviceId, {kind} FROM {table}"):
                if _times(start, end) and _is_device(device):
                    devices[device].copy(is_copy and what in _PEER_COPIES, start / 1e3, end / 1e3)
    names = {}
    if "TARGET_INFO_GPU" in tables:
        names = {
            number: str(gpu)
            for number, gpu in base.execute("SELECT id, name FROM TARGET_INFO_GPU")
            if _is_device(number)
        }
    return _records(devices, path, NSIGHT, names, [])


def _times(start: Any, end: Any) -> bool:
    return isinstance(start, int) and isinstance(end, int) and end >= start and is_time(start / 1e3, end / 1e3)


def _is_device(number: Any) -> bool:
    return isinstance(number, int) and 0 <= number < MAX_RANKS


def _read_jsonlines(path: Path) -> list[RankRecord]:
    """nsys export -t json or jsonlines: an event a line; names are numbers into lists of strings that may follow."""
    strings: dict[str, str] = {}
    rows: list[tuple[int, str, float, float, str]] = []
    devices: dict[int, _Device] = defaultdict(_Device)
    damaged = 0
    for line in lines_of(path, most=1 << 26):
        text = line.strip().rstrip(",")
        if not text.startswith("{"):
            continue
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            damaged += 1
            continue
        if isinstance(event.get("data"), list):
            strings |= {str(i): str(value) for i, value in enumerate(event["data"])}
        elif "id" in event and "value" in event:
            strings[str(event["id"])] = str(event["value"])
        cuda = event.get("CudaEvent")
        if not isinstance(cuda, dict):
            continue
        try:
            start, end, device = int(cuda["startNs"]) / 1e3, int(cuda["endNs"]) / 1e3, int(cuda.get("deviceId", 0))
        except (KeyError, TypeError, ValueError):
            continue
        if not is_time(start, end) or end < start or not _is_device(device):
            continue
        kernel, memcpy = cuda.get("kernel"), cuda.get("memcpy")
        if isinstance(kernel, dict):
            rows.append(
                (
                    device,
                    str(kernel.get("demangledName") or kernel.get("shortName")),
                    start,
                    end,
                    f"{device}/{cuda.get('streamId')}",
                )
            )
        elif isinstance(memcpy, dict):
            devices[device].copy(memcpy.get("copyKind") in _PEER_COPIES, start, end)
        elif "memset" in cuda:
            devices[device].copy(False, start, end)
    for device, name, start, end, stream in rows:
        devices[device].kernel(strings.get(name, name), start, end, stream)
    return _records(devices, path, NSIGHT, {}, [f"{damaged} lines are not JSON and were left out"] if damaged else [])


# ---------------------------------------------------------------------------------------------------------- JAX and XLA


def _is_jax(path: Path, head: bytes) -> bool:
    return (
        head.lstrip().startswith(b"{")
        and b'"traceEvents"' in head
        and b'"/device:' in head
        and b'"schemaVersion"' not in head
    )


def _read_jax(path: Path) -> list[RankRecord]:
    file = EventFile(path)
    processes: dict[Any, str] = {}
    threads: dict[tuple[Any, Any], str] = {}
    rows: dict[Any, list[tuple[Any, str, float, float, str]]] = defaultdict(list)
    for event in file:
        pid, tid, args = event.get("pid"), event.get("tid"), event.get("args")
        args = args if isinstance(args, dict) else {}
        if event.get("ph") == "M":
            if event.get("name") == "process_name":
                processes[pid] = str(args.get("name"))
            elif event.get("name") == "thread_name":
                threads[pid, tid] = str(args.get("name"))
            continue
        start, length = event.get("ts"), event.get("dur")
        if (
            event.get("ph") == "X"
            and isinstance(start, (int, float))
            and isinstance(length, (int, float))
            and length >= 0
            and is_time(start, length)
        ):
            rows[pid].append((tid, str(event.get("name")), start, start + length, str(args.get("hlo_op") or "")))
    devices: dict[int, _Device] = defaultdict(_Device)
    names = {}
    for pid, events in rows.items():
        found = re.search(r"/device:(\w+):(\d+)", processes.get(pid, ""))
        if found is None:
            continue
        number = int(found[2]) if len(found[2]) < 7 else 0
        # a GPU's kernels lie on streams; a TPU has no streams, and its operations lie in one thread
        on_tpu = found[1].upper() == "TPU"
        names[number] = found[1]
        apart = (
            {tid for (of, tid), name in threads.items() if of == pid and name.startswith(_ASYNC)} if on_tpu else set()
        )
        for tid, name, start, end, hlo in events:
            thread = threads.get((pid, tid), "")
            known = _HLO.match(hlo or name) if apart else None
            if tid in apart and known is None:
                devices[number].copy(False, start, end)
            elif tid not in apart and known is not None and known[2]:
                devices[number].talk.append((start, end))  # the core starts it or waits for it: a part of the call
            elif tid in apart:
                devices[number].kernel(name, start, end, thread, hlo or name)
            elif thread.startswith("XLA Ops") if on_tpu else not thread.startswith(_DERIVED):
                if re.match(r"mem(?:cpy|set)", name, re.I):
                    devices[number].copy(is_peer_copy(name), start, end)
                else:
                    devices[number].kernel(name, start, end, thread[:40], hlo or name)
    notes = [f"{file.fault}; what stands before that was read"] if file.fault else []
    return [record.with_notes() for record in _records(devices, path, JAX, {}, notes)]


# ------------------------------------------------------------------------------------------------------ NCCL's profiler


def _is_profiler(path: Path, head: bytes) -> bool:
    return head.lstrip().startswith((b"[", b"{")) and b'"CommHash"' in head and b'"ph"' in head


def _read_profiler(path: Path) -> list[RankRecord]:
    """NCCL's example profiler: collectives that begin and end apart, of the ranks of one process."""
    file = EventFile(path)
    begun: dict[tuple[Any, ...], tuple[float, dict[str, Any], str]] = {}
    calls: dict[int, list[Call]] = defaultdict(list)
    carried = False  # whether the file sees kernels or the network, until whose end a call lasts then
    for event in file:
        carried |= event.get("cat") in ("GPU", "PROXY", "NET")
        if event.get("cat") not in ("COLL", "P2P"):
            continue
        key = (event.get("cat"), event.get("id"), event.get("pid"))
        at, args = event.get("ts"), event.get("args")
        if not isinstance(at, (int, float)) or not is_time(at):
            continue
        if event.get("ph") == "b" and isinstance(args, dict):
            begun[key] = (at, args, str(event.get("name")))
        elif event.get("ph") == "e" and key in begun:
            start, said, name = begun.pop(key)
            rank, seq = said.get("Rank"), said.get("SeqNum")
            if isinstance(rank, int) and _is_device(rank) and at >= start:
                count = said.get("Count")
                calls[rank].append(
                    Call(
                        rank, operation(name), str(said.get("CommHash")),
                        seq=seq if isinstance(seq, int) else None, start_us=start, end_us=at,
                        in_elements=count if isinstance(count, int) else None,
                        dtype=str(said.get("Datatype", "")).removeprefix("nccl").lower() or None,
                        label=f"{name} {said.get('Algorithm', '')} {said.get('Protocol', '')}".strip()[:60],
                    )
                )  # fmt: skip
    if not calls:
        raise ProfileError(file.fault or "no collective of NCCL's example profiler ends in it")
    found = []
    for rank, mine in sorted(calls.items()):
        span = (min(c.start_us or 0.0 for c in mine), max(c.end_us or 0.0 for c in mine))
        if not carried:
            mine = [replace(call, start_us=None, end_us=None) for call in mine]
        notes = ["NCCL's profiler sees calls only: what the GPU computes meanwhile is not in the file"]
        if not carried:
            notes.append(
                "it has no event of a kernel or the network, so that a call ends in it when the host has enqueued it: "
                "how long calls took is not in the file (NCCL_PROFILE_EVENT_MASK=127, with NCCL 2.26 or newer, adds it)"
            )
        if file.fault:
            notes.append(f"{file.fault}; what stands before that was read")
        if begun:
            notes.append(f"{counted(len(begun), 'call begins and does', 'calls begin and do')} not end in the file")
        found.append(
            RankRecord(
                rank,
                str(path),
                PROFILER,
                calls=tuple(mine),
                span=span if carried else None,
                facts={"backend": "nccl"},
                notes=tuple(notes),
            )
        )
    return found


# --------------------------------------------------------------------------------------------------------------- Ascend


def _is_ascend(path: Path, head: bytes) -> bool:
    named = path.name == "trace_view.json" or b"Overlap Analysis" in head or b"Ascend Hardware" in head
    return named and b'"ph"' in head


def _read_ascend(path: Path) -> list[RankRecord]:
    """torch_npu's trace_view.json and msprof's timeline, by their lane "Overlap Analysis": when the device computes,
    and when it communicates."""
    file = EventFile(path)
    processes: dict[Any, str] = {}
    lanes: dict[Any, list[tuple[str, float, float]]] = defaultdict(list)
    for event in file:
        name, args = str(event.get("name")), event.get("args")
        if event.get("ph") == "M" and name == "process_name" and isinstance(args, dict):
            processes[event.get("pid")] = str(args.get("name"))
        elif event.get("ph") == "X" and (name.startswith("hcom_") or name in ("Computing", "Communication")):
            try:
                start, length = float(event.get("ts", "")), float(event.get("dur", ""))
            except (TypeError, ValueError):
                continue
            if length >= 0 and is_time(start, length):
                lanes[event.get("pid")].append((name, start, start + length))
    device = _Device()
    for pid, events in lanes.items():
        for name, start, end in events:
            if processes.get(pid) == "Overlap Analysis":
                (device.work if name == "Computing" else device.talk).append((start, end))
            elif found := re.match(r"hcom_([A-Za-z]+)", name):
                device.calls.append((start, end, operation(found[1]), "", name[:60]))
    if not device.work and not device.talk:
        raise ProfileError(
            'it is a timeline of Ascend\'s profiler without its lane "Overlap Analysis", which alone is read'
        )
    beside = " ".join(one.name for one in path.resolve().parent.parent.glob("profiler_info_*.json"))
    number = re.search(r"profiler_info_(\d{1,6})\.json$", beside)
    notes = [f"{file.fault}; what stands before that was read"] if file.fault else []
    record = device.record(int(number[1]) if number else 0, str(path), ASCEND, {"backend": "hccl"}, notes)
    return [record if number else replace(record, rank_from="unknown")] if record else []


# ---------------------------------------------------------------------------------------------------- tables of kernels

_KERNEL_TABLE = re.compile(
    rb"(?m)^(?=.*\b(?:Kernel_)?Name\b)(?=.*\bStart(?: \(ns\)|_Timestamp))(?=.*(?:Duration \(ns\)|End_Timestamp)).*,.*$"
)


def _read_kernel_table(path: Path) -> list[RankRecord]:
    """A line for each kernel, as CSV: nsys stats -r cuda_gpu_trace, and rocprofv3 --kernel-trace."""
    devices: dict[int, _Device] = defaultdict(_Device)
    rows = csv.reader(lines_of(path))
    names: list[str] = []
    for cells in rows:
        if not names:
            names = cells if _KERNEL_TABLE.match(",".join(cells).encode()) else []
            continue
        row = dict(zip(names, cells, strict=False))
        name = row.get("Kernel_Name") or row.get("Name") or ""
        try:
            start = int(row.get("Start (ns)") or row["Start_Timestamp"])
            end = start + int(row["Duration (ns)"]) if "Duration (ns)" in row else int(row["End_Timestamp"])
        except (KeyError, ValueError):
            continue
        number = re.search(r"(\d{1,5})\)?$", row.get("Device") or row.get("Agent_Id") or "")
        device = int(number[1]) if number and int(number[1]) < MAX_RANKS else 0
        if not _times(start, end):
            continue
        if re.search(r"mem(?:cpy|set)|rocclr_(?:copy|fill)", name, re.I):
            devices[device].copy(is_peer_copy(name), start / 1e3, end / 1e3)
        else:
            stream = row.get("Strm") or row.get("Queue_Id")
            devices[device].kernel(name, start / 1e3, end / 1e3, f"{device}/{stream}")
    found = _records(devices, path, TABLE, {}, [])
    return found if len(found) > 1 else [replace(found[0], rank_from="unknown")]


FORMATS = (
    Format("Ascend's trace_view.json", _is_ascend, _read_ascend, {ASCEND: WORK}),
    Format(
        "tables of kernels by nsys stats and rocprofv3",
        lambda path, head: _KERNEL_TABLE.search(head) is not None,
        _read_kernel_table,
        {TABLE: WORK},
    ),
    Format("Nsight Systems' SQLite", lambda path, head: head.startswith(_SQLITE[:15]), _read_sqlite, {NSIGHT: WORK}),
    Format(
        "Nsight Systems' JSON",
        lambda path, head: (
            head.lstrip().startswith(b"{")
            and any(w in head for w in (b'"CudaEvent"', b'"TraceProcessEvent"', b'"NvtxEvent"'))
        ),
        _read_jsonlines,
        {NSIGHT: WORK},
    ),
    Format("NCCL's example profiler", _is_profiler, _read_profiler, {PROFILER: CALLS}),
    Format("JAX and XLA", _is_jax, _read_jax, {JAX: WORK}),
)

"""What PyTorch's flight recorder wrote: each rank's last collective calls, read without running anything of the file.

Pickles (`TORCH_FR_DUMP_TEMP_FILE`, `_dump_nccl_trace`, `_dump_fr_trace`), their JSON form (`_dump_fr_trace_json`), and
the pages of torch's debug server that hold the same (`/fr_trace_json`) or each rank's stack (`/stacks`). The fields are
those of versions 2.x of the recorder's format (torch 2.5 to 2.13).
"""

from __future__ import annotations

import ast
import html
import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from allranks.base.errors import counted
from allranks.jobs.formats import STANDS, Format
from allranks.jobs.job import MOST_US, Call, ProfileError, RankRecord, is_time
from allranks.jobs.names import operation, rank_list
from allranks.jobs.plain import bounded, content, unpickle

SOURCE, STACKS = "flight recorder", "stacks"
# c10's names of types: torch's name and the bytes of an element
DTYPES = {
    "Byte": ("uint8", 1),
    "Char": ("int8", 1),
    "Bool": ("bool", 1),
    "Short": ("int16", 2),
    "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2),
    "Int": ("int32", 4),
    "Float": ("float32", 4),
    "Long": ("int64", 8),
    "Double": ("float64", 8),
    "ComplexFloat": ("complex64", 8),
    "ComplexDouble": ("complex128", 16),
    "Float8_e4m3fn": ("float8_e4m3fn", 1),
    "Float8_e5m2": ("float8_e5m2", 1),
    "UInt16": ("uint16", 2),
    "UInt32": ("uint32", 4),
    "UInt64": ("uint64", 8),
}
# parts of the names of files that are not the user's program
NOT_YOURS = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    *(f"/torch/{part}" for part in ("distributed/", "nn/", "autograd/", "optim/", "utils/", "multiprocessing/", "_")),
    *("/allranks/engines/", "/allranks/world/", "/allranks/ranks/", "<frozen", "<string>"),
)


_TUPLE = re.compile(r"""\((["'][^"'()]*["'], ?["'][^"'()]*["'])\)""")  # a group's number and name


def is_dump(head: bytes) -> bool:
    """Whether the first bytes of a file look like one of these formats.

    >>> is_dump(b'{"comm_lib_version": "2.21.5", "entries": [')
    True
    """
    if head[:1] == b"\x80" and head[1:2] in b"\x01\x02\x03\x04\x05":
        return True
    start = head.lstrip()
    if start.startswith(b"{"):
        members = rb"""["'](?:comm_lib_version|nccl_comm_state|pg_config|pg_status)["']"""
        return b'"traceEvents"' not in head and re.search(members, head) is not None
    return b"Torch Distributed Debug Server" in head or bool(re.match(rb"(PARTIAL DATA|=== Rank \d+: )", start))


def read_dump(name: str, data: bytes) -> list[RankRecord]:
    """The records of one file: one for a dump, one for each rank for a page of the debug server.

    Raises ProfileError or RefusedError, each with one sentence, if nothing of the file can be told.

    >>> entry = '{"record_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1, '
    >>> entry += '"profiling_name": "nccl:barrier"}'
    >>> [record] = read_dump("trace_rank3.json", b'{"version": "2.10", "entries": [' + entry.encode() + b"]}")
    >>> record.rank, record.calls[0].op, record.calls[0].seq
    (3, 'barrier', 1)
    """
    if not data:
        raise ProfileError("it is empty")
    if data[:1] == b"\x80":
        return [record(name, *unpickle(data))]
    text = data.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        return [record(name, *from_json(text))]
    return pages(name, text)


FORMAT = Format(
    "flight recorder",
    lambda path, head: is_dump(head),
    lambda path: read_dump(str(path), content(path)),
    {SOURCE: STANDS},
)


def pages(name: str, text: str) -> list[RankRecord]:
    """What the debug server shows of every rank: its recorder as JSON, or its stack."""
    if "=== FR Trace ===" in text:
        raise ProfileError(
            "it is the debug server's table of calls, which leaves out what is needed: save /fr_trace_json"
        )
    parts = re.split(r"(?:<h2>|=== )Rank (\d+): [^\n]*?(?:</h2>| ===)", text)
    found = []
    for number, part in zip(parts[1::2], parts[2::2], strict=True):
        inner = re.search(r"<pre>(.*?)</pre>", part, re.DOTALL)
        body = html.unescape(inner.group(1)) if inner else part
        if body.lstrip().startswith("{"):
            found.append(record(name, *from_json(body), rank=int(number)))
        elif standing(body):
            found.append(RankRecord(int(number), name, STACKS, facts={"stands": standing(body)}))
    if not found:
        raise ProfileError("it is a page of the debug server, and no rank answered with its calls or its stack")
    return found


def standing(stack: str) -> str | None:
    """The line of the user's program in which a rank stands, of Python's traceback of all its threads."""
    frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', stack)
    yours = [frame for frame in frames if not any(part in frame[0] for part in NOT_YOURS)]
    return "{}:{} in {}".format(*yours[0]) if yours else None


def from_json(text: str) -> tuple[Any, bool]:
    """The JSON form of a dump, and whether it is whole: of a truncated one, the entries that are complete."""
    try:
        value, whole = json.loads(text), True
    except RecursionError as deep:
        raise ProfileError("its JSON is nested deeper than any recorder writes it") from deep
    except ValueError:
        value, whole = _printed(text), True
        if not isinstance(value, dict):
            value, whole = {"entries": _complete(text)}, False
    bounded(value)
    return value, whole


def _printed(text: str) -> Any:
    """The dump that Python printed, after it was unpickled, or that has Python's tuples in its JSON; None for another.

    >>> _printed('{"process_group": ("0", "default_pg"), "time": null}')
    {'process_group': ['0', 'default_pg'], 'time': None}
    """
    if not text.rstrip().endswith("}"):
        return None  # it is cut
    text = _TUPLE.sub(r"[\1]", text)
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.literal_eval(text.strip())
    return None


def _complete(text: str) -> list[Any]:
    decoder, entries = json.JSONDecoder(), []
    start = re.search(r'"entries"\s*:\s*\[', text)
    at = start.end() if start else len(text)
    while at < len(text):
        try:
            entry, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        entries.append(entry)
        at += len(text[at : at + 200]) - len(text[at : at + 200].lstrip(" \r\n\t,"))
    return entries


def record(name: str, dump: Any, whole: bool, rank: int | None = None) -> RankRecord:
    """The record of one rank's dump."""
    if dump is None and not whole:
        raise ProfileError("it ends before the first call: the process was ended while it wrote")
    if not isinstance(dump, dict) or not isinstance(dump.get("entries", []), (list, tuple)):
        raise ProfileError("its data are not a flight recorder's: there is no list of entries")
    if whole and "entries" not in dump and "pg_status" not in dump:
        raise ProfileError("its data are not a flight recorder's: there are no entries")
    entries = [e for e in dump.get("entries", ()) if isinstance(e, dict) and isinstance(e.get("profiling_name"), str)]
    if not whole:  # the last one may be half there
        entries = [e for e in entries if {"collective_seq_id", "state", "retired"} <= set(e)]
    if not whole and not entries:
        raise ProfileError("it ends before the first call: the process was ended while it wrote")
    entries.sort(key=lambda e: _int(e.get("record_id")) or 0)
    groups = _groups(dump, entries)
    own, rank_from, notes = _whose(name, entries) if rank is None else (rank, "the file", [])
    backend = entries[0]["profiling_name"].split(":")[0] if entries else None
    entries = _whole_batches(entries)
    calls = tuple(_call(own, entry, groups) for entry in entries)
    notes += _notes(entries, backend, whole)
    default = groups.get("0 default_pg")
    size = len(default) if default else max((c.group_size or 0 for c in calls if _is_world(c)), default=0) or None
    return RankRecord(
        own,
        name,
        SOURCE,
        world_size=size,
        calls=calls,
        groups=groups,
        facts={
            "backend": backend,
            "recorder": str(dump.get("version", "")),
            "nccl_version": str(dump.get("comm_lib_version") or dump.get("nccl_version") or "") or None,
            "first_record": _int(entries[0].get("record_id")) if entries else None,
            "timed_out": any(_timed_out(e) for e in entries),
            "status": _status(dump.get("pg_status")),
        },
        notes=tuple(notes),
        rank_from=rank_from,
    )


def _whole_batches(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls without the entries that only close a batch of messages; its messages get the batch's state.

    torch records each send and receive of a batch when it is made and never again, so that they stay "scheduled"; the
    entry "coalesced" that follows them has the state of all (pytorch/pytorch#137969).
    """
    found: list[dict[str, Any]] = []
    open_batch: dict[Any, list[dict[str, Any]]] = {}
    for entry in entries:
        key = (str(entry.get("process_group")), _int(entry.get("p2p_seq_id")))
        op, _ = _op(entry["profiling_name"])
        if entry["profiling_name"].endswith(":coalesced") and open_batch.get(key):
            for message in open_batch.pop(key):
                message |= {"state": entry.get("state"), "retired": entry.get("retired"), "batch": key[1]}
            continue
        if op in ("send", "recv"):
            entry = dict(entry)
            open_batch.setdefault(key, []).append(entry)
        found.append(entry)
    return found


def _is_world(call: Call) -> bool:
    return call.group is not None and call.group.endswith("default_pg")


def _int(value: Any) -> int | None:
    try:
        return None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _group_name(pair: Any) -> str | None:
    """One name for a group: its number, and its description where it has one."""
    if not isinstance(pair, (list, tuple)) or not pair:
        return None
    said = [str(part) for part in pair[:2] if isinstance(part, (str, int)) and part not in ("", "undefined")]
    return " ".join(said) or None


def _groups(dump: dict[str, Any], entries: Sequence[dict[str, Any]]) -> dict[str, tuple[int, ...]]:
    """The ranks of each group. gloo files all its groups under one empty name: it counts only if there is one group."""
    config = dump.get("pg_config")
    named = {_group_name(e.get("process_group")) for e in entries} - {None}
    found = {}
    for key, told in config.items() if isinstance(config, dict) else ():
        if not isinstance(told, dict):
            continue
        ranks = rank_list(told.get("ranks"))
        group = _group_name((told.get("name") or key, told.get("desc")))
        if group is None and len(named) == 1:
            group = next(iter(named))
        if group and ranks:
            found[group] = ranks
    return found


def _whose(name: str, entries: Sequence[dict[str, Any]]) -> tuple[int, str, list[str]]:
    """Which rank a dump is of: what its sends and receives in the whole world say, else the number in the file's
    name."""
    said = None
    for entry in entries:
        ends = re.search(r":(?:send|recv) (\d+)(?:->|<-)\d+$", entry["profiling_name"])
        if ends and (_group_name(entry.get("process_group")) or "").endswith("default_pg"):
            said = int(ends.group(1))
            break
    stem = re.sub(r"(\.(json|pickle|pkl|bin|pt|dump|gz))+$", "", PurePath(name).name)
    number = re.search(r"rank[_-]?(\d+)", stem) or re.search(r"(\d+)$", stem)
    named = int(number.group(1)) if number else None
    if said is not None:
        wrong = named is not None and named != said
        notes = [f"its name says rank {named}, but its calls are rank {said}'s"] if wrong else []
        return said, "the file", notes
    if named is not None:
        return named, "the file's name", []
    return 0, "unknown", ["neither the file nor its name says which rank it is of"]


def _notes(entries: Sequence[dict[str, Any]], backend: str | None, whole: bool) -> list[str]:
    notes = []
    if not whole:
        notes.append(
            "it ends in the middle: the process was ended while it wrote; "
            f"{counted(len(entries), 'call is', 'calls are')} complete"
        )
    first = _int(entries[0].get("record_id")) if entries else 0
    if first:
        notes.append(f"its first {first} calls are not in the file: the recorder keeps the last {len(entries)} only")
    if backend == "gloo":
        notes.append(
            "gloo's recorder says when a call was made, but not when it ended, and leaves out sends and receives"
        )
    return notes


def _timed_out(entry: dict[str, Any]) -> bool:
    """Whether the watchdog gave up on a call: it is off its list, and not completed. (gloo never says completed.)"""
    gloo = entry["profiling_name"].startswith("gloo:")
    return bool(entry.get("retired")) and entry.get("state") not in ("completed", None) and not gloo


def _status(said: Any) -> dict[str, dict[str, int | None]]:
    """The numbers of the last calls made, started and completed, of each group."""
    if not isinstance(said, dict):
        return {}
    return {
        str(group): {name.split("_")[1]: _int(value) for name, value in told.items() if name.count("_") == 2}
        for group, told in said.items()
        if isinstance(told, dict)
    }


def _elements(sizes: Any) -> int | None:
    """The elements of all tensors of a call, of their shapes."""
    if not isinstance(sizes, (list, tuple)) or not sizes:
        return None
    shapes = [[_int(n) or 0 for n in shape] for shape in sizes if isinstance(shape, (list, tuple))]
    return sum(math.prod(shape[:MOST_DIMENSIONS]) for shape in shapes)


MOST_DIMENSIONS = 64


def _call(rank: int, entry: dict[str, Any], groups: dict[str, tuple[int, ...]]) -> Call:
    op, ends = _op(entry["profiling_name"])
    group = _group_name(entry.get("process_group"))
    ranks = groups.get(group or "")
    peer = ends[1] if ends else None
    inside, outside = _elements(entry.get("input_sizes")), _elements(entry.get("output_sizes"))
    dtype, width = _dtype(entry.get("input_dtypes")) or _dtype(entry.get("output_dtypes")) or (None, None)
    counted = outside if op == "all_gather" else inside
    created, took = _int(entry.get("time_created_ns")), entry.get("duration_ms")
    start = None if created is None or abs(created) > 1000 * MOST_US else created / 1000
    end = None
    if start is not None and isinstance(took, (int, float)) and not isinstance(took, bool) and is_time(took):
        end = start + 1000 * took
    p2p = op in ("send", "recv")
    return Call(
        rank,
        op,
        group=group,
        group_ranks=ranks,
        group_size=len(ranks) if ranks else _size(op, inside, outside),
        seq=_int(entry.get("p2p_seq_id" if p2p else "collective_seq_id")),
        start_us=start,
        end_us=end,
        in_elements=inside,
        out_elements=outside,
        nbytes=None if counted is None or width is None else counted * width,
        dtype=dtype,
        state=_state(entry),
        where=_where(entry.get("frames")),
        peer=ranks[peer] if ranks and peer is not None and peer < len(ranks) else peer,
        label=entry["profiling_name"][:80] + (f" of batch {entry['batch']}" if entry.get("batch") is not None else ""),
    )


def _op(profiling_name: str) -> tuple[str, tuple[int, int] | None]:
    """The operation, and of a send or receive this rank and its peer in the group."""
    name = profiling_name.split(":", 1)[-1].strip()
    ends = re.match(r"(send|recv) (\d+)(?:->|<-)(\d+)$", name)
    if ends:
        return ends.group(1), (int(ends.group(2)), int(ends.group(3)))
    return "barrier" if "barrier" in name else operation(name), None


def _dtype(said: Any) -> tuple[str, int] | None:
    if not isinstance(said, (list, tuple)) or not said or not isinstance(said[0], str):
        return None
    return DTYPES.get(said[0])


def _size(op: str, inside: int | None, outside: int | None) -> int | None:
    """The size of the group, where the sizes of input and output show it."""
    few, many = (inside, outside) if op == "all_gather" else (outside, inside)
    if op not in ("all_gather", "reduce_scatter") or not few or not many or many % few:
        return None
    return many // few


def _state(entry: dict[str, Any]) -> str:
    """gloo never says started or completed: there a retired call is one that ended (a failed one too)."""
    said = entry.get("state")
    if entry["profiling_name"].startswith("gloo:") and said == "scheduled" and entry.get("retired") is True:
        return "completed"
    return said if said in ("completed", "started", "scheduled") else "scheduled"


def _where(frames: Any) -> str | None:
    """The line of the user's program that made a call: the innermost frame that is not torch's."""
    for frame in frames if isinstance(frames, (list, tuple)) else ():
        name = frame.get("filename") if isinstance(frame, dict) else None
        if isinstance(name, str) and not any(part in name for part in NOT_YOURS):
            return f"{name[:300]}:{_int(frame.get('line'))}"
    return None

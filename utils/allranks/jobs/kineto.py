"""PyTorch profiler traces: what one file says of one rank.

The kernels' classes and which of them are counted are those of HolisticTraceAnalysis 0.5.0 (get_temporal_breakdown,
get_comm_comp_overlap), with two differences: no time is rounded, and `kernels` knows more libraries that communicate
than NCCL.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allranks.jobs.formats import WORK, Format
from allranks.jobs.job import MAX_RANKS, Call, Interval, ProfileError, RankRecord, is_time, merged
from allranks.jobs.kernels import is_peer_copy, sends
from allranks.jobs.kineto_calls import NO_GPU, Calls
from allranks.jobs.names import group_name, rank_list, short_name
from allranks.jobs.phrases import ms
from allranks.jobs.scan import EventFile

__all__ = ["FORMAT", "read"]

COMPUTE, COMMUNICATION, MEMORY, BOTH = range(4)
_ON_GPU = ("kernel", "concurrent_kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
_BY_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_ ]?(\d+)", re.I)
# of the host, or of torch's own bookkeeping: they say nothing of what a device does
_NOT_DEVICE = frozenset(
    (
        "python_function", "cpu_instant_event", "overhead", "trace", "fwdbwd", "ac2g", "async_cpu_to_gpu",
        "gpu_user_annotation",
        "cuda_sync", "cuda_event", "collective_comm", "glow_runtime", "cuda_profiler_range", "python", "python_func",
        "__metadata",
    )
)  # fmt: skip
_OF_HOST = re.compile(r"python|\bhost\b|\bcpu\b|\bCANN\b|^\S*/\S+$", re.I)  # names of processes that are no device
_HOST = ("cpu_op", "user_annotation", "operator")
_BY_LETTER = re.compile(r"(?:^|[-_.])r(\d+)(?=[-_.])", re.I)
_BY_AXIS = re.compile(r"(?:^|[-_.])(TP|PP|DP|EP|CP)[-_]?(\d+)(?=[-_.])", re.I)  # SGLang: 1727-TP-2.trace.json.gz


def _looks(path: Path, head: bytes) -> bool:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"["):
        return b'"ph"' in head
    return start.startswith(b"{") and (b'"traceEvents"' in head or b'"schemaVersion"' in head or b'"ph"' in head)


def read(path: Path) -> list[RankRecord]:
    """The record of the rank whose profile this is, or of each device of a process that has several. Raises
    ProfileError if the file holds no event.

    >>> read(Path("/nowhere.json"))
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: '/nowhere.json'
    """
    file = EventFile(path)
    events = _Events()
    for event in file:
        events.take(event)
    if not events.taken:
        raise ProfileError(file.fault or events.foreign())
    records = [events.record(path, file.header, device) for device in events.devices(path, file.header)]
    notes = []
    if file.fault:
        notes.append(f"{file.fault}; what stands before that was read ({events.taken:,} events)")
    if file.damaged:
        notes.append(f"{file.damaged} events are not JSON and were left out")
    return [record.with_notes(*notes) for record in records]


FORMAT = Format("kineto", _looks, read, {"kineto": WORK})


class _Kernels:
    """Starts, ends, correlations and classes of GPU kernels, as flat arrays: a large file has millions."""

    def __init__(self) -> None:
        self.start, self.end = array("d"), array("d")
        self.correlation, self.kind, self.device = array("q"), array("b"), array("i")

    def add(self, start: float, end: float, correlation: int, kind: int, device: int) -> None:
        self.start.append(start)
        self.end.append(end)
        self.correlation.append(correlation)
        self.kind.append(kind)
        self.device.append(device)

    def __len__(self) -> int:
        return len(self.kind)


class _Events:
    """Collects what the analysis needs from the events of one file."""

    def __init__(self) -> None:
        self.taken = self.no_times = self.others = 0
        self.unread: dict[str, int] = {}  # categories of events that nothing here reads
        self.both: dict[str, float] = {}  # kernels that compute and send, and their microseconds
        self.kernels = _Kernels()
        self.calls = Calls()
        # (correlation, start, thread) of what starts kernels
        self.launch_of, self.launched, self.launcher = array("q"), array("d"), array("q")
        self.work_start, self.work_end, self.work_thread = array("d"), array("d"), array("q")
        self.steps: list[tuple[str, float, float, bool]] = []
        self.host: list[float] = [math.inf, -math.inf]
        self._threads: dict[Any, int] = {}
        self.processes: dict[str, str] = {}  # their names
        self.without: dict[str, int] = {}  # events without a category, by process

    def take(self, event: dict[str, Any]) -> None:
        """Files one event."""
        if event.get("ph", "X") != "X":
            self.others += event.get("ph") in ("B", "b", "E", "e")
            if event.get("name") == "process_name" and isinstance(args := event.get("args"), dict):
                self.processes[str(event.get("pid"))] = str(args.get("name"))[:40]
            return
        category, name = event.get("cat"), event.get("name")
        if not isinstance(category, str) or not isinstance(name, str) or category == "Trace":
            if "dur" in event and category != "Trace":
                self.others += 1
                process = str(event.get("pid"))
                self.without[process] = self.without.get(process, 0) + 1
            return
        start, length = event.get("ts"), event.get("dur")
        if type(start) is not float and type(start) is not int:
            start = _number(start)
        if type(length) is not int and type(length) is not float:
            length = _number(length)
        if start is None or length is None or not (length >= 0 and is_time(start, length)):
            self.no_times += 1
            return
        self.taken += 1
        args = event.get("args")
        if not isinstance(args, dict):
            args = {}
        self._file(category.lower(), name, start, start + length, args, event)

    def _file(
        self, category: str, name: str, start: float, end: float, args: dict[str, Any], event: dict[str, Any]
    ) -> None:
        if category == "python_function":
            return
        if category in _ON_GPU:
            self._kernel(category, name, start, end, args, event)
        elif category.endswith(("_runtime", "_driver")) or category == "runtime":
            correlation = args.get("correlation")
            if type(correlation) is int:
                self.launch_of.append(correlation)
                self.launched.append(start)
                self.launcher.append(self._thread(event))
        elif name.startswith("ProfilerStep"):
            self.steps.append((name, start, end, category.startswith("gpu")))
        elif category in _HOST:
            if start < self.host[0]:
                self.host[0] = start
            if end > self.host[1]:
                self.host[1] = end
            thread = self._thread(event)
            if name.startswith("aten::"):
                self.work_start.append(start)
                self.work_end.append(end)
                self.work_thread.append(thread)
            else:
                self.calls.host(name, start, end, thread, args)
        elif category not in _NOT_DEVICE:
            self.unread[category] = self.unread.get(category, 0) + 1

    def foreign(self) -> str:
        """Why no event was taken."""
        if self.no_times:
            return f"its {self.no_times:,} events have no time that can be read"
        if self.others:
            return (
                f"its {self.others:,} events are not those of torch's profiler: they have no category, or begin and "
                f"end apart"
            )
        return "it holds no event with a time"

    def _thread(self, event: dict[str, Any]) -> int:
        key = event.get("tid")
        return (
            key
            if type(key) is int and abs(key) < 1 << 62
            else self._threads.setdefault(str(key), -1 - len(self._threads))
        )

    def _kernel(
        self, category: str, name: str, start: float, end: float, args: dict[str, Any], event: dict[str, Any]
    ) -> None:
        correlation = args.get("correlation")
        if type(correlation) is not int:
            correlation = -1
        device = args.get("device", event.get("pid"))
        known = sends(name) if "mem" not in category else None
        if "mem" in category:
            kind = COMMUNICATION if is_peer_copy(name) else MEMORY
        elif known is not None or "Collective name" in args:
            kind = BOTH if known is not None and known.computes else COMMUNICATION
            if kind == BOTH:
                self.both[name] = self.both.get(name, 0.0) + end - start
            stream = f"{device}/{args.get('stream', event.get('tid'))}"
            self.calls.kernel(name, start, end, correlation, stream, args)
        else:
            kind = COMPUTE
        self.kernels.add(
            start, end, correlation, kind, device if type(device) is int and 0 <= device < MAX_RANKS else 0
        )

    def _cut(self) -> float | None:
        """When the last profiler step began, if there are several: its kernels may still run when the profiler
        stops."""
        if len({name for name, *_ in self.steps}) < 2:
            return None
        return max(start for _, start, _, _ in self.steps)

    def devices(self, path: Path, header: dict[str, Any]) -> list[int | None]:
        """The devices that get a record each: those that communicate, of a process that is no rank; [None] if one."""
        info = header.get("distributedInfo")
        told = _rank_of(path, info if isinstance(info, dict) else {})[1] != "unknown"
        found = {
            d for d, kind in zip(self.kernels.device, self.kernels.kind, strict=True) if kind in (COMMUNICATION, BOTH)
        }
        return [*sorted(found)] if len(found) > 1 and not told else [None]

    def _intervals(self, cut: float | None, only: int | None) -> tuple[list[tuple[Interval, ...]], int]:
        """The merged intervals of compute, communication and memory, and how many kernels were left out."""
        launched = None
        if cut is not None:
            launched = {c for c, at in zip(self.launch_of, self.launched, strict=True) if at < cut}
        kept: list[list[Interval]] = [[], [], []]
        k, left_out = self.kernels, 0
        for start, end, correlation, kind, device in zip(k.start, k.end, k.correlation, k.kind, k.device, strict=True):
            if only not in (None, device):
                continue
            if launched is not None and correlation not in launched:
                left_out += 1
            elif kind == BOTH:
                kept[COMPUTE].append((start, end))
                kept[COMMUNICATION].append((start, end))
            else:
                kept[kind].append((start, end))
        return [merged(intervals) for intervals in kept], left_out

    def record(self, path: Path, header: dict[str, Any], device: int | None) -> RankRecord:
        """What the events say of the rank, or of one of its devices."""
        info = header.get("distributedInfo")
        info = info if isinstance(info, dict) else {}
        rank, rank_from = _rank_of(path, info)
        groups = _groups_of(info)
        if device is not None:
            rank, rank_from = device, "its device"
        on_gpu = len(self.kernels) > 0
        notes: list[str] = []
        for process, count in self.without.items():  # of another program's device, or of its runtime
            if not _OF_HOST.search(name := self.processes.get(process, "")) and name:
                self.unread[name] = count
        if on_gpu:
            launches = self._launches()
            calls = self.calls.of_kernels(rank, launches, groups, notes, device)
            classes, left_out = self._intervals(self._cut(), device)
            if left_out and any(classes):
                notes.append(
                    f"the figures leave out {left_out:,} of {len(self.kernels):,} kernels: those launched in the "
                    f"profiler's "
                    "last step, which may end after the profile, and those whose launch is not in the file"
                )
            elif left_out:
                classes, left_out = self._intervals(None, device)
                notes.append("no launch of a kernel is in the file, so that the figures cover all profiler steps")
        else:
            calls = self.calls.of_host(rank, groups, notes)
            classes = self._host_intervals(calls)
            if self.unread and NO_GPU in notes:
                notes.remove(NO_GPU)
            if calls and info.get("backend") not in (None, "gloo", "mpi"):
                notes.append("compute is the time of torch's operators on the host, which only launch the GPU's work")
        if self.both:
            names = ", ".join(sorted(short_name(name) for name in self.both)[:3])
            notes.append(
                f"{ms(sum(self.both.values()))} of kernels both compute and send ({names}): they count as compute and "
                f"as "
                "communication, so that what they send is not exposed"
            )
        if self.unread:
            what = ", ".join(f"{count:,} of {name}" for name, count in sorted(self.unread.items())[:4])
            notes.append(f"events of a kind that is not read count as neither compute nor communication: {what}")
        if self.no_times:
            notes.append(f"{self.no_times:,} events have no time, or a negative one, and were left out")
        if rank_from == "unknown":
            notes.append("neither the file nor its name says which rank it is")
        return RankRecord(
            rank, str(path), "kineto", _whole(info.get("world_size")), calls,
            classes[COMPUTE], classes[COMMUNICATION], classes[MEMORY], self._span(classes, on_gpu),
            tuple(sorted({(n, s, e) for n, s, e, gpu in self.steps if not gpu}, key=lambda step: step[1])),
            {name: ranks for name, ranks in groups.items() if ranks},
            _facts(header, info, on_gpu, self.unread), tuple(notes), rank_from,
        )  # fmt: skip

    def _launches(self) -> dict[int, tuple[float, int]]:
        """Start and thread of the launch of each communication kernel."""
        wanted = self.calls.correlations()
        return {
            c: (at, thread)
            for c, at, thread in zip(self.launch_of, self.launched, self.launcher, strict=True)
            if c in wanted
        }

    def _host_intervals(self, calls: Sequence[Call]) -> list[tuple[Interval, ...]]:
        """Without a GPU: torch's operators on the threads that do not communicate, and the calls themselves."""
        busy = self.calls.worker_threads
        work = zip(self.work_start, self.work_end, self.work_thread, strict=True)
        compute = merged((start, end) for start, end, thread in work if thread not in busy)
        talk = merged((c.start_us, c.end_us) for c in calls if c.start_us is not None and c.end_us is not None)
        return [compute, talk, ()]

    def _span(self, classes: list[tuple[Interval, ...]], on_gpu: bool) -> Interval | None:
        if on_gpu:
            starts = [c[0][0] for c in classes if c]
            return (min(starts), max(c[-1][1] for c in classes if c)) if starts else None
        return (self.host[0], self.host[1]) if self.host[0] < self.host[1] else None


def _number(value: Any) -> float | None:
    """A time that is written as text, or None."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _rank_of(path: Path, info: dict[str, Any]) -> tuple[int, str]:
    """The rank and where its number is from; 0 where it is unknown."""
    rank = _whole(info.get("rank"))
    if rank is not None:
        return rank, "the file"
    found = _BY_NAME.findall(path.name) or _BY_LETTER.findall(path.name)
    axes = _BY_AXIS.findall(path.name)
    if not found and len({axis.upper() for axis, _ in axes}) == 1:
        found = [axes[-1][1]]  # the only axis along which the ranks lie
    return (int(found[-1]), "the file's name") if found else (0, "unknown")


def _groups_of(info: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The ranks of each group that the header names; () where it does not list them."""
    found: dict[str, tuple[int, ...]] = {}
    config = info.get("pg_config")
    for group in config if isinstance(config, list) else []:
        if isinstance(group, dict) and "pg_name" in group:
            ranks = rank_list(group.get("ranks"))
            size = _whole(group.get("pg_size"))
            complete = ranks is not None and size in (None, len(ranks))
            name = group_name(str(group["pg_name"]), ranks if complete else None)
            found[name or ""] = (ranks or ()) if complete else ()
    return found


def _facts(header: dict[str, Any], info: dict[str, Any], on_gpu: bool, unread: dict[str, int]) -> dict[str, Any]:
    """The job's facts that the header states; `unread` only where a device's events are all of an unknown kind."""
    found = {
        "backend": info.get("backend"),
        "host": header.get("host_name"),
        "base_ns": header.get("baseTimeNanoseconds"),
    }
    devices = header.get("deviceProperties")
    if isinstance(devices, list) and devices and isinstance(devices[0], dict) and on_gpu:
        found["device"] = devices[0].get("name")
        found["devices"] = len(devices)
    found["nccl_version"] = info.get("nccl_version")
    found["on_gpu"] = on_gpu
    found["unread"] = sorted(unread) if unread and not on_gpu else None
    return {name: value for name, value in found.items() if value is not None}

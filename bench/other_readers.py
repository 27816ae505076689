"""Which reader of a profile is closest to the truth: `explain`, HolisticTraceAnalysis or TraceLens.

The truth is computed here from the file's own intervals, in whole nanoseconds and apart from the package: the union of
the times of the kernels launched before the last profiler step began (for TraceLens: of all kernels). A kernel sends if
it carries "Collective name", or its name has one of `NAMES` in it, which a person read from these files.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.common import Result

NAMES = ("nccl", "rccl", "multimem_all_reduce", "cross_device_reduce", "allreduce_fusion")
COPIES = ("gpu_memcpy", "gpu_memset")
HTA = """
import json, logging, sys, warnings
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
row = found.get_temporal_breakdown(visualize=False).iloc[0]
over = found.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
print(json.dumps([float(row["compute_time(us)"]), float(row["idle_time(us)"]), float(over)]))
"""
TRACELENS = """
import contextlib, io, json, logging, sys, warnings
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
with contextlib.redirect_stdout(io.StringIO()):
    from TraceLens.TreePerf.tree_perf import TreePerfAnalyzer
    rows = TreePerfAnalyzer.from_file(sys.argv[1]).get_df_gpu_timeline()
ms = dict(zip(rows["type"], rows["time ms"]))
talk = ms["total_comm_time"]
over = 100 * (1 - ms["exposed_comm_time"] / talk) if talk else 0.0
print(json.dumps([1e3 * float(ms["computation_time"]), 1e3 * float(ms["idle_time"]), float(over)]))
"""
Interval = tuple[int, int]
Figures = tuple[float, float, float]  # compute and idle in microseconds, per cent of communication under compute


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Reads each profile of the folder ALLRANKS_TRACES by each reader that the Python ALLRANKS_HTA_PYTHON has."""
    result = Result(
        "How far from the file's own intervals", ("file", "reader", "compute, us", "idle, us", "overlap, points")
    )
    folder, python = os.environ.get("ALLRANKS_TRACES"), os.environ.get("ALLRANKS_HTA_PYTHON")
    if not folder:
        result.notes.append("ALLRANKS_TRACES names no folder with profiles (.json.gz); nothing was read")
        return result
    for path in sorted(Path(folder).glob("*.json.gz")):
        progress(path.name)
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        counted, everything = truth(events, cut=True), truth(events, cut=False)
        if counted is None or everything is None:
            continue
        result.rows.append((path.name, "truth", *(f"{x:,.3f}" for x in counted)))
        readers: list[tuple[str, Figures, Figures | str]] = [("explain", counted, _ours(path))]
        if python:
            readers.append(("HolisticTraceAnalysis", counted, _other(python, HTA, path)))
            readers.append(("TraceLens", everything, _other(python, TRACELENS, path)))
        for name, right, found in readers:
            if isinstance(found, str):
                result.rows.append(("", name, found, "", ""))
            else:
                result.rows.append(("", name, *(f"{x - y:+,.3f}" for x, y in zip(found, right, strict=True))))
    result.notes.append("A reader's row is what it says less the truth. Files without a kernel are left out.")
    return result


def truth(events: list[dict[str, Any]], cut: bool) -> Figures | None:
    """Compute, idle and overlap by the intervals; None without a kernel. `cut` leaves out the last step's launches."""
    whole = [e for e in events if e.get("ph") == "X" and isinstance(e.get("ts"), (int, float)) and "dur" in e]
    steps = {e["name"]: e["ts"] for e in whole if str(e.get("name")).startswith("ProfilerStep")}
    until = max(steps.values()) if cut and len(steps) > 1 else None
    host = ("cuda_runtime", "cuda_driver", "hip_runtime", "runtime")
    launched = {
        e["args"]["correlation"]
        for e in whole
        if str(e.get("cat")).lower() in host
        and "correlation" in (e.get("args") or {}) and (until is None or e["ts"] < until)
    }  # fmt: skip
    work: list[Interval] = []
    talk: list[Interval] = []
    copies: list[Interval] = []
    for event in whole:
        kind, args = str(event.get("cat")).lower(), event.get("args") or {}
        if kind != "kernel" and kind not in COPIES:
            continue
        if until is not None and args.get("correlation") not in launched:
            continue
        name = event["name"]
        start = round(event["ts"] * 1000)
        one = (start, start + round(event["dur"] * 1000))
        sends = "Collective name" in args or any(part in name.lower() for part in NAMES) or "PtoP" in name
        (copies if kind in COPIES and not sends else talk if sends else work).append(one)
    if not work + talk:
        return None
    busy = _length(_union(work + talk + copies))
    ends = [*work, *talk, *copies]
    span = max(end for _, end in ends) - min(start for start, _ in ends)
    both = _length(_union(work)) + _length(_union(talk)) - _length(_union(work + talk))
    covered = _length(_union(talk))
    return _length(_union(work)) / 1e3, (span - busy) / 1e3, 100 * both / covered if covered else 0.0


def _union(intervals: list[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _length(intervals: list[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def _ours(path: Path) -> Figures:
    from allranks.profiles import explain

    [rank] = explain([path]).to_dict()["ranks"]
    return rank["compute_us"], rank["idle_us"], 100 * (rank["overlap"] or 0.0)


def _other(python: str, code: str, path: Path) -> Figures | str:
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [python, "-c", code, str(path.resolve()), folder], capture_output=True, text=True, check=False
        )
    if ran.returncode:
        return f"fails: {ran.stderr.strip().splitlines()[-1][:60]}"
    compute, idle, overlap = json.loads(ran.stdout.strip().splitlines()[-1])
    return compute, idle, overlap

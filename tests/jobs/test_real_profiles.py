"""Profiles of real jobs, by the files' own intervals and beside HolisticTraceAnalysis 0.5.0: ALLRANKS_TRACES names their folder."""

import gzip
import json
import math
import os
import re
from pathlib import Path

import pytest
from allranks.jobs import explain
from allranks.jobs.analysis import rank_times
from allranks.jobs.reading import read_file

FOLDER = Path(os.environ.get("ALLRANKS_TRACES", "/nonexistent"))
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="ALLRANKS_TRACES names no folder with real profiles")
FILES = sorted(FOLDER.glob("*.json*")) if FOLDER.is_dir() else []


def reference() -> dict[str, list[float]]:
    """Overlap in percent, idle, compute, other and span in microseconds, from the tables of the folder's README."""
    text = (FOLDER / "README.md").read_text() if (FOLDER / "README.md").is_file() else ""
    rows = re.findall(
        r"^\| *(\w+) *\| *([\d.]+) % *\| *([\d,]+) *\| *([\d,]+) *\| *([\d,]+) *\| *([\d,]+) *\|", text, re.M
    )
    return {name: [float(v.replace(",", "")) for v in values] for name, *values in rows}


def union(intervals: list[tuple[float, float]]) -> float:
    """The length of the union, where an interval that ends before it starts counts as HTA counts it: negative."""
    total, last = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(end, last) - max(start, last) if start <= last else end - start
        last = max(last, end)
    return total


def intervals(path: Path) -> tuple[list[tuple[float, float]], list[tuple[float, float]], list[tuple[float, float]]]:
    """Of the kernels launched before the last profiler step: those that compute, those that communicate, and all; written anew."""
    with gzip.open(path, "rt") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X" and "dur" in e]
    steps = {e["name"]: float(e["ts"]) for e in events if str(e.get("name")).startswith("ProfilerStep")}
    cut = max(steps.values()) if len(steps) > 1 else math.inf
    launched = {
        e["args"]["correlation"]: float(e["ts"])
        for e in events
        if str(e.get("cat")).endswith(("_runtime", "_driver")) and "correlation" in e.get("args", {})
    }
    compute, talk, every = [], [], []
    for e in events:
        kind = str(e.get("cat")).lower()
        if kind not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        if cut < math.inf and not launched.get(e.get("args", {}).get("correlation"), math.inf) < cut:
            continue
        one = (float(e["ts"]), float(e["ts"]) + float(e["dur"]))
        every.append(one)
        if kind == "kernel":
            (talk if e["name"].startswith("nccl") or "Collective name" in e.get("args", {}) else compute).append(one)
    return compute, talk, every


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_agrees_with_the_files_own_intervals_and_names_a_cause(path):
    (record,), why = read_file(path)
    times = rank_times(record)
    compute, talk, every = intervals(path)
    span = max(e for _, e in every) - min(s for s, _ in every)
    assert times.compute_us == pytest.approx(union(compute), abs=1e-3)
    assert times.communication_us == pytest.approx(union(talk), abs=1e-3)
    assert times.idle_us == pytest.approx(span - union(every), abs=1e-3)
    both = union(compute) + union(talk) - union(compute + talk)
    assert times.overlap == pytest.approx(both / union(talk), abs=1e-6)
    known = reference().get(path.name.split(".")[0])
    if known is not None:  # HTA rounds inwards; so rounded, the same kernels give its figures
        rounded = [[(math.ceil(s), math.floor(e)) for s, e in part] for part in (compute, every)]
        assert union(rounded[0]) == pytest.approx(known[2], rel=1e-3)
        assert abs(times.compute_us - union(compute)) <= abs(known[2] - union(compute)) + 1e-3
    found = explain([path])
    assert not why and found.causes and found.causes[0].evidence and not found.skipped
    assert not {"straggler", "desync", "imbalance"} & {c.kind for c in found.causes}, "one file can not show it"

"""What every bench shares: alternating measurements, medians and ratios, the repository's other files, and the line
that says where the measurements were made.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import ModuleType

import psutil

ROOT = Path(__file__).resolve().parent.parent
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_ORPHANS_S = 60.0  # for processes that end by themselves when the one that started them has


@dataclass
class Result:
    """One table: its title, columns, rows of printable cells, and remarks below it."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def alternate(
    variants: dict[str, Callable[[], float]], rounds: int, progress: Callable[[str], None]
) -> dict[str, list]:
    """The seconds of each variant, measured in turns, so that other programs disturb all of them alike."""
    times_s: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds):
        for name, measure in variants.items():
            progress(f"round {number + 1} of {rounds}: {name}")
            times_s[name].append(measure())
    return times_s


def median(values: list[float]) -> float:
    """The median."""
    return statistics.median(values)


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median of the ratios within each round: a machine that is slower in some rounds does not change it."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def compared(times_s: dict[str, list[float]]) -> list[tuple[str, ...]]:
    """Rows for what `alternate` returned: name, median, spread, and how many times as long as the first variant."""
    first = next(iter(times_s.values()))
    return [
        (name, f"{median(values):.2f}", spread(values), "" if values is first else f"{ratio(values, first):.1f}")
        for name, values in times_s.items()
    ]


def spread(values: list[float]) -> str:
    """The smallest and the largest value, as text."""
    return f"{min(values):.2f} to {max(values):.2f}"


def clock(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def processor_s(function: Callable[[], object]) -> float:
    """Processor seconds of a call: of this process, and of all processes that it starts and that end before it returns.

    Other programs lengthen these seconds too, by the caches that they take, but far less than a clock's.
    """
    before = _used_s()
    function()
    return _used_s() - before


def with_orphans(function: Callable[[], object]) -> Callable[[], object]:
    """The same call, which then waits for what its processes left behind, so that `processor_s` counts it: Linux only.

    A sandbox ends by the death of the process that made it, so it ends as an orphan.
    """

    def called() -> object:
        ours = psutil.Process()
        before = set(ours.children())
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            made = function()
            deadline = time.monotonic() + _ORPHANS_S
            while time.monotonic() < deadline and (left := set(ours.children()) - before):
                for child in left:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(child.pid, os.WNOHANG)
                time.sleep(0.01)
            return made
        finally:
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    return called


def _used_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def module(path: str) -> ModuleType:
    """A file of the repository that is no module of a package, by its path from the root."""
    spec = importlib.util.spec_from_file_location(f"bench_{Path(path).stem}", ROOT / path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def where() -> str:
    """The machine, the versions and the date, for the head of each page of results."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "ipyparallel", "ipykernel"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cores} cores ({_cpu()}), {platform.system()}, Python {platform.python_version()}, {versions}; "
        f"{datetime.now(UTC):%Y-%m-%d}"
    )


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()

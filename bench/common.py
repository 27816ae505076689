"""What every bench shares: alternating measurements, medians and ratios, the repository's other files, and the line
that says where the measurements were made.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


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

"""The simulator: seconds and memory of large worlds, each in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from bench.common import Result, alternate, median, spread

CASES = {
    "hierarchical all-reduce, 16384 ranks, dgx-h100, by symmetry": ("hierarchical", 16384, None),
    "ring all-reduce, 256 ranks, dgx-h100, message by message": ("ring", 256, "events"),
    "ring all-reduce, 256 ranks, dgx-h100, by symmetry": ("ring", 256, "symmetry"),
}
PROGRAM = """
import json, resource, time
from allranks.theory.simulator.simulation import simulate
from allranks.topology import preset
began, used = time.perf_counter(), time.process_time()
found = simulate("all_reduce", {!r}, {!r}, 1 << 30, preset("dgx-h100"), method={!r})
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([time.perf_counter() - began, time.process_time() - used, peak, found.seconds]))
"""


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Measures in turns; what is counted is the simulation without Python's start."""
    peaks: dict[str, int] = {}
    busy: dict[str, list[float]] = {name: [] for name in CASES}
    answers: dict[str, float] = {}

    def measure(name: str) -> float:
        program = PROGRAM.format(*CASES[name])
        ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        elapsed_s, used, peaks[name], answers[name] = json.loads(ran.stdout)
        busy[name].append(used)
        return elapsed_s

    times_s = alternate({name: lambda name=name: measure(name) for name in CASES}, rounds, progress)
    result = Result(
        "Simulator: 1 GiB all-reduce", ("case", "median s", "spread s", "CPU s", "peak MiB", "simulated ms")
    )
    for name, values in times_s.items():
        times = (f"{median(values):.2f}", spread(values), f"{median(busy[name]):.2f}")
        result.rows.append((name, *times, f"{peaks[name] / 1024:.0f}", f"{1e3 * answers[name]:.4g}"))
    result.notes.append(
        "CPU s: processor time, which other programs do not lengthen. Peak: ru_maxrss of the process that "
        "simulates, on Linux."
    )
    return result

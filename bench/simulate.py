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
from allranks.simulate import simulate
from allranks.topology import preset
began = time.perf_counter()
found = simulate("all_reduce", {!r}, {!r}, 1 << 30, preset("dgx-h100"), method={!r})
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([time.perf_counter() - began, peak, found.seconds]))
"""


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Measures in turns; what is counted is the simulation without Python's start."""
    peaks: dict[str, int] = {}
    answers: dict[str, float] = {}

    def measure(name: str) -> float:
        program = PROGRAM.format(*CASES[name])
        ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        seconds, peaks[name], answers[name] = json.loads(ran.stdout)
        return seconds

    seconds = alternate({name: lambda name=name: measure(name) for name in CASES}, rounds, progress)
    result = Result("Simulator: 1 GiB all-reduce", ("case", "median s", "spread s", "peak MiB", "simulated ms"))
    for name, values in seconds.items():
        row = (name, f"{median(values):.2f}", spread(values), f"{peaks[name] / 1024:.0f}", f"{1e3 * answers[name]:.4g}")
        result.rows.append(row)
    result.notes.append("ru_maxrss of the process that simulates, on Linux.")
    return result

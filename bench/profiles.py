"""How long `allranks explain` reads a profile of 100 MB, and how much memory that takes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.common import Result, median, spread

NBYTES = 100_000_000
# prints seconds, those of the processor, and the process's most memory in MiB
CODE = """
import resource, sys, time
from allranks.profiles import explain
began = time.perf_counter()
explain([sys.argv[1]])
print(time.perf_counter() - began, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Writes a profile with the usual mixture of events, and explains it in a new process each time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.json"
        events = _write(path)
        found = []
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            ran = subprocess.run([sys.executable, "-c", CODE, path], capture_output=True, text=True, check=True)
            found.append([float(word) for word in ran.stdout.split()])
    seconds, cpu_s, memory = ([row[i] for row in found] for i in range(3))
    result = Result(
        "Explaining a profile of 100 MB", ("events", "median s", "spread s", "processor s", "most memory, MiB")
    )
    result.rows.append(
        (f"{events:,}", f"{median(seconds):.1f}", spread(seconds), f"{median(cpu_s):.1f}", f"{max(memory):.0f}")
    )
    result.notes.append(
        f"{rounds} rounds on one core, each in a new process. A third of the events are kernels, one in 300 is "
        "an all_reduce."
    )
    return result


def _write(path: Path) -> int:
    """Operators, launches and kernels in turns, as a training step has them."""
    info = {"backend": "nccl", "rank": 0, "world_size": 8}
    count, now, size = 0, time.time() * 1e6 % 1e9, 0
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"schemaVersion": 1, "distributedInfo": info})[:-1] + ', "traceEvents": [\n')
        while size < NBYTES:
            text = ",\n".join(json.dumps(event) for event in _triple(count, now)) + ",\n"
            size += file.write(text)
            count, now = count + 1, now + 12.5
        file.write(json.dumps(_triple(count, now)[0]) + "]}")
    return 3 * count + 1


def _triple(number: int, now: float) -> list[dict[str, object]]:
    """An operator, its launch and its kernel; each hundredth is a collective."""
    common = {"ph": "X", "pid": 4711, "tid": 4711}
    args: dict[str, object] = {"External id": number, "correlation": number, "device": 0, "context": 1, "stream": 7}
    name, kernel = (
        "aten::addmm",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x5_nn_align8>(Params)",
    )
    shape = {"grid": [64, 2, 1], "block": [256, 1, 1], "registers per thread": 230, "shared memory": 81920}
    if number % 100 == 99:
        said = {"Collective name": "allreduce", "In msg nelems": 6553600, "Out msg nelems": 6553600, "Group size": 8}
        said |= {"dtype": "BFloat16", "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"}
        name, kernel, args = (
            "c10d::allreduce_",
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)",
            args | said,
        )
    dims = {
        "Input Dims": [[1024, 4096], [4096, 4096]],
        "Input type": ["c10::BFloat16", "c10::BFloat16"],
        "Ev Idx": number,
    }
    return [
        common | {"cat": "cpu_op", "name": name, "ts": now, "dur": 9.125, "args": {"External id": number, **dims}},
        common
        | {
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "ts": now + 2,
            "dur": 4.5,
            "args": {"correlation": number, "cbid": 211},
        },
        {
            **common,
            "cat": "kernel",
            "name": kernel,
            "pid": 0,
            "tid": 7,
            "ts": now + 8,
            "dur": 10.25,
            "args": args | shape,
        },
    ]

"""The fourth phase: how fast the collectives are, over sizes, with bus bandwidths and fits, beside nccl-tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from allranks.machine import bench
from allranks.machine.verify.steps import Context, Step, StepFailed, StepSkipped

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
FIRST, FACTOR = 8, 4
LARGEST = {"nccl": 4 << 30, "gloo": 16 << 20}
# what a sweep holds at once, times its size: the input, the output, the right result, and room
COPIES = 8
PROGRAM = "all_reduce_perf"


def largest(context: Context) -> int:
    """The largest size in bytes: by the plan, and by the memory of a GPU that several ranks may share."""
    plan = context.plan
    wanted = plan.max_bytes or LARGEST[plan.backend]
    if plan.backend == "nccl":
        from allranks.ranks.engines.devices import Inventory

        memory = min(gpu.memory_bytes for gpu in Inventory.of_this_machine().gpus)
        on_one = -(-plan.ranks // plan.gpus) if plan.gpus else 1
        wanted = min(wanted, memory // (COPIES * on_one))
    return wanted


def sweep(name: str, context: Context) -> dict[str, Any]:
    """One collective over sizes, from small to large, as far as the time goes."""
    world, last = context.world(), largest(context)
    share_s = context.left_s / 2
    rows: list[bench.Row] = []
    found, spent_s = None, 0.0
    for size in dict.fromkeys([*bench.sizes(FIRST, last, FACTOR), last]):
        # a size takes up to FACTOR times as long as the one before it
        if rows and FACTOR * spent_s > context.left_s - 2:
            break
        began = time.monotonic()
        try:
            found = bench.sweep(
                world, bench.Call(name), [size], iterations=12, passes=1, budget_s=share_s / 12, in_place=True
            )
        except bench.BenchError:  # too small for one element on each rank
            continue
        spent_s = time.monotonic() - began
        rows += found.rows
        context.note(rows=[_row(row) for row in rows], wrong=sum(row.wrong for row in rows))
    if found is None:
        raise StepFailed(f"No size could be measured in {context.plan.minutes:g} minutes.")
    whole = replace(found, rows=tuple(rows))
    context.note(
        largest_bytes=rows[-1].size,
        best_busbw_gb_per_s=round(max(row.busbw_gb_per_s for row in rows), 3),
        **_fitted(whole),
    )
    if whole.wrong:
        raise StepFailed(f"{whole.wrong} elements are wrong.")
    return {} if rows[-1].size * 2 > last else {"stopped_at": f"{rows[-1].size} bytes, for lack of time"}


def _row(row: bench.Row) -> dict[str, Any]:
    """A row with the digits that matter."""
    keep = {key: value for key, value in asdict(row).items() if key in ("size", "wrong", "iterations")}
    if row.in_place is not None:
        keep |= {"in_place_us": float(f"{row.in_place[0]:.4g}"), "in_place_wrong": row.in_place[1]}
    times = {key: float(f"{value:.4g}") for key, value in asdict(row).items() if key.endswith(("_us", "_per_s"))}
    return keep | times


def _fitted(found: bench.Sweep) -> dict[str, Any]:
    """Alpha in microseconds and beta in nanoseconds a byte, with their 95 % intervals; nothing if there is nothing to fit."""
    if len(found.rows) < 3 or found.ranks < 2:
        return {}
    fitted = found.fit()
    alpha, beta = fitted.alpha_s, fitted.beta_s_per_byte
    return {
        "fit": f"as {fitted.algorithm}",
        "alpha_us": [float(f"{1e6 * x:.4g}") for x in (alpha.value, alpha.low, alpha.high)],
        "beta_ns_per_byte": [float(f"{1e9 * x:.4g}") for x in (beta.value, beta.low, beta.high)],
    }


def nccl_tests(context: Context) -> dict[str, Any]:
    """What nccl-tests' own all_reduce_perf measures on the same GPUs, where it is installed."""
    plan = context.plan
    if plan.backend != "nccl":
        raise StepSkipped("nccl-tests needs GPUs, and this run is on the CPU.")
    program = shutil.which(PROGRAM)
    if program is None:
        raise StepSkipped(f"{PROGRAM} of nccl-tests is not on the PATH.")
    if plan.gpus is not None and plan.gpus < plan.ranks:
        raise StepSkipped(f"{PROGRAM} takes one rank a GPU, and here {plan.ranks} ranks share {plan.gpus}.")
    context.stop_world()  # it would hold the GPUs' memory
    command = [program, "-b", str(FIRST), "-e", str(largest(context)), "-f", str(FACTOR), "-g", str(plan.ranks)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=max(1.0, context.left_s - 2), check=False
        )
    except subprocess.TimeoutExpired:
        raise StepFailed(f"{PROGRAM} did not end in {context.left_s:.0f} s.") from None
    rows = nccl_tests_rows(done.stdout)
    context.note(rows=rows, command=" ".join([PROGRAM, *command[1:]]))
    if done.returncode or not rows:
        raise StepFailed(f"{PROGRAM} exited with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    context.note(best_busbw_gb_per_s=max(row["busbw_gb_per_s"] for row in rows))
    if wrong := sum(row["wrong"] for row in rows):
        raise StepFailed(f"{PROGRAM} counts {wrong} wrong elements.")
    return {}


def nccl_tests_rows(text: str) -> list[dict[str, Any]]:
    """The rows of nccl-tests' output: size in bytes, out-of-place time in microseconds, busbw in GB/s, wrong elements."""
    rows = []
    for line in text.splitlines():
        cells = line.split()
        # size, count, type, redop, root, then time, algbw, busbw and #wrong out of place, then in place
        if len(cells) >= 9 and re.fullmatch(r"\d+", cells[0]) and not line.lstrip().startswith("#"):
            wrong = int(cells[8]) if cells[8].isdigit() else 0  # "N/A" without a check
            rows.append(
                {"size": int(cells[0]), "time_us": float(cells[5]), "busbw_gb_per_s": float(cells[7]), "wrong": wrong}
            )
    return rows


STEPS = (
    *(Step("sweeps", name, partial(sweep, name), 24) for name in COLLECTIVES),
    Step("sweeps", "nccl-tests", nccl_tests, 60),
)

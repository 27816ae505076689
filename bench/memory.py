"""A person's memory on the hub, and what thirty people take: with the memory that people share, and without."""

from __future__ import annotations

import os
from collections.abc import Callable

from bench import hub_house
from bench.common import Result, median

PEOPLE = int(os.environ.get("ALLRANKS_BENCH_PEOPLE", "2"))
CLASS = 30


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Starts a hub twice; memory does not vary enough for more rounds."""
    result = Result(
        f"A person's memory on the hub, MB (mean of {PEOPLE} people)",
        ("state", "each alone", "shared, as shipped", f"{CLASS} people alone, GB", f"{CLASS} people shared, GB"),
    )
    found = {}
    for share in ("0", "1"):
        told = hub_house.play("memory", PEOPLE, share, progress=progress)
        if isinstance(told, str):
            result.notes.append(f"Not measured: {told}")
            return result
        found[share] = told
    for number, (state, _) in enumerate(found["1"]["states"]):
        cells: list[str] = []
        totals: list[str] = []
        for share in ("0", "1"):
            base = found[share]["states"][0][1]["anon"]
            total = found[share]["states"][number][1]["anon"]
            each = (total - base) / PEOPLE
            cells.append(f"{each:.0f}" if number else f"{base:.0f} in all")
            totals.append(f"{(base + CLASS * each) / 1000:.1f}" if number else "")
        result.rows.append((state, *cells, *totals))
    files = max(state["file"] for _, state in found["1"]["states"])
    kept = ", ".join(f"{kind} {value:.0f}" for kind, value in found["1"]["processes"])
    result.notes += [
        (
            "Memory that belongs to no file (Pss_Anon of /proc/*/smaps_rollup), for each person (all - nobody's) "
            "/ people; thirty people by calculation. Programs and libraries are in memory once for all people, "
            f"{files:.0f} MB in these processes."
        ),
        f"Of one person's processes, what each keeps for itself with four ranks, MB: {kept}.",
        (
            "From the start of a server to its first answer, one after the other: "
            f"{median(found['0']['up_s']):.1f} s alone, {median(found['1']['up_s']):.1f} s shared."
        ),
        (
            f"A restart of the hub: {found['1']['stop_s']:.1f} s to stop and {found['1']['start_s']:.1f} s until "
            f"it answers; servers {'survive' if found['1']['survived'] else 'DO NOT SURVIVE'} it."
        ),
    ]
    return result

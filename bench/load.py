"""A class at the hub: people log in, one every four seconds, and run chapter 04; meanwhile one grader grades two
submissions each.

`ALLRANKS_BENCH_PEOPLE` says how many people; 30 are thirty logins within two minutes and sixty submissions.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from bench import hub_house
from bench.common import Result, median

PEOPLE = int(os.environ.get("ALLRANKS_BENCH_PEOPLE", "3"))
CLASS = 30


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """One round: a class comes once."""
    result = Result(
        f"{PEOPLE} people log in, one every {hub_house.LOGINS_S:.0f} s, and run chapter 04 while {2 * PEOPLE} "
        "submissions are graded",
        ("what", "median", "worst"),
    )
    told = hub_house.play("load", PEOPLE, 2 * PEOPLE, progress=progress)
    if isinstance(told, str):
        result.notes.append(f"Not measured: {told}")
        return result
    people = told["people"]
    failures = [f"{about['name']}: {reason}" for about in people for reason in about["failures"]]
    for name, words in (
        ("server_s", "login to Lab, s"),
        ("first_cell_s", "login to the end of the chapter's first cell, s"),
        ("chapter_s", "login to the end of chapter 04, s"),
    ):
        values = [about[name] for about in people if name in about]
        if values:
            result.rows.append((words, f"{median(values):.1f}", f"{max(values):.1f}"))
    peak, base_mb = told["peak_mb"], told["base_mb"]
    result.rows += [
        (f"grading {2 * PEOPLE} submissions, s", f"{told['graded_s']:.0f}", ""),
        ("failures", str(len(failures)), ""),
        ("memory before the first login, MB", f"{base_mb:.0f}", ""),
        ("people's memory at most, MB each", f"{peak['people'] / PEOPLE:.0f}", ""),
        ("the grader's memory at most, MB", f"{peak['grader']:.0f}", ""),
        ("memory of all at most, MB", f"{peak['all']:.0f}", ""),
    ]
    if told["grades"] != [13.0] * (2 * PEOPLE):
        failures.append(f"grades are {told['grades']}, and all should be 13")
    result.notes += failures
    total = base_mb + CLASS * peak["people"] / PEOPLE + peak["grader"]
    result.notes.append(
        f"By calculation, not measured: {CLASS} people at once, and the grader, {total / 1000:.1f} GB. Memory "
        "that belongs to no file."
    )
    return result

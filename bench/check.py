"""How soon a student has a verdict: the command on a file, and `check` in a notebook that runs already."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.common import Result, alternate, clock, median, spread

ANSWERS = Path(__file__).resolve().parents[1] / "tests" / "exercises" / "right"
EXERCISES = ("ring_shift", "ring_all_reduce", "distributed_softmax", "moe_dispatch_combine")


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Right answers, for they run every case; the first of each exercise."""
    from allranks.exercises import get
    from allranks.judge.judging import judge
    from allranks.judge.source import read_source
    from allranks.ranks.engines.forkserver.client import ForkServer

    ForkServer.ensure().wait_warm()
    variants: dict[str, Callable[[], float]] = {}
    for name in EXERCISES:
        file = sorted((ANSWERS / name).glob("*.py"))[0]
        command = [sys.executable, "-m", "allranks.cli", "check", name, str(file)]
        exercise, source = get(name), read_source(file, name)
        if not judge(exercise, source).passed:
            raise RuntimeError(f"{file} is not right: what would be measured is another thing")
        variants[f"allranks check {name} FILE"] = lambda c=command: clock(
            lambda: subprocess.run(c, check=True, capture_output=True)
        )
        variants[f"check({name}), in a warm process"] = lambda e=exercise, s=source: clock(lambda: judge(e, s))
    times_s = alternate(variants, rounds, progress)
    result = Result("From an answer to its verdict", ("what", "median s", "spread s"))
    for name in sorted(variants):
        result.rows.append((name, f"{median(times_s[name]):.2f}", spread(times_s[name])))
    result.notes.append(
        f"{rounds} rounds in alternation. The command starts Python and torch, and forks ranks of its own."
    )
    return result

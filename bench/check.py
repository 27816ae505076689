"""How soon a student has a verdict: the command on a file, and `check` in a notebook that runs already. And how much of
the processor the command takes, against `import torch`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil

from bench.common import Result, alternate, clock, median, processor_s, ratio, spread

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
    used_s: dict[str, list[float]] = {}
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}: a shell's first check")
        for name, value in _first_and_next_s().items():
            used_s.setdefault(name, []).append(value)
    for name, values in used_s.items():
        result.rows.append((f"processor time: {name}", f"{median(values):.2f}", spread(values)))
    torch_s, first_s, _ = used_s.values()
    result.notes.append(
        f"{rounds} rounds in alternation. The command starts Python and torch, and forks ranks of its own. "
        f"Its first check in a shell takes {ratio(first_s, torch_s):.2f} times the processor time of `import torch`. "
        f"Load averages: {', '.join(f'{value:.0f}' for value in os.getloadavg())}."
    )
    return result


def _first_and_next_s() -> dict[str, float]:
    """Processor seconds of `import torch`, and of two checks after each other in a shell where nothing runs yet."""
    name = EXERCISES[0]
    command = [sys.executable, "-m", "allranks.cli", "check", name, str(sorted((ANSWERS / name).glob("*.py"))[0])]
    with tempfile.TemporaryDirectory(prefix="check-") as folder:
        environ = os.environ | {"ALLRANKS_RUN_DIR": folder, "ALLRANKS_IDLE_S": "60"}

        def used_s(what: list[str]) -> float:
            """Also of the server that the first check leaves behind: it has waited for the judge, its child."""
            before = sum(_server_s(folder))
            call = processor_s(lambda: subprocess.run(what, env=environ, check=True, capture_output=True))
            return call + sum(_server_s(folder)) - before

        found = {
            "import torch": used_s([sys.executable, "-c", "import torch"]),
            f"the first allranks check {name} FILE": used_s(command),
            "the next one": used_s(command),
        }
        for server in _servers(folder):
            server.kill()
            server.wait()
    return found


def _servers(folder: str) -> list[psutil.Process]:
    lines = ((process, process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    return [process for process, line in lines if any(word.startswith(folder) for word in line)]


def _server_s(folder: str) -> list[float]:
    return [sum(server.cpu_times()[:4]) for server in _servers(folder)]  # its own, and its children's that have ended

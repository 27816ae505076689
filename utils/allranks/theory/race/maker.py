"""Runs an entry's file in a process of its own and reads the schedule that it returns.

The process has limits on time, memory and what it writes. It only makes the schedule: this process proves and times it, so that
the file can't give itself a score.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from allranks.theory.race.entry import FUNCTION, packed, returned, unpacked
from allranks.theory.race.tasks import RaceError, Task, task
from allranks.theory.schedules import Schedule

LIMIT_S = 20
MEMORY_NBYTES = 2 << 30
_MAX_NBYTES = 256 << 20
_MAX_SOURCE_NBYTES = 4 << 20


def make(file: Path | str, for_task: Task, limit_s: int = LIMIT_S, quiet: bool = False) -> Schedule:
    """The schedule that `schedule(task)` of the file returns.

    What the file prints goes to standard error, or nowhere with `quiet`. Raises RaceError: no such file or function, an
    error in it, more than `limit_s` seconds or 2 GiB, or something that is no Schedule.
    """
    path = Path(file)
    if path.suffix != ".py":
        raise RaceError(f"{path.name} is no .py file; give a Python file that defines {FUNCTION}(task)")
    if not path.is_file():
        raise RaceError(f"there is no file {path}")
    if path.stat().st_size > _MAX_SOURCE_NBYTES:
        raise RaceError(f"{path.name} is larger than {_MAX_SOURCE_NBYTES >> 20} MiB; let it compute the messages")
    with tempfile.TemporaryDirectory(prefix="allranks-race-") as folder:
        out = Path(folder, "schedule.json")
        command = [
            sys.executable,
            "-s",
            "-P",
            "-m",
            __name__,
            for_task.name,
            str(path.resolve()),
            str(out),
            str(limit_s),
        ]
        # the same order of sets and dicts of strings each time
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"PYTHONHASHSEED": "0"}
        started = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else 2,
            stderr=subprocess.DEVNULL if quiet else None,
            start_new_session=True,
        )
        try:
            status: int | None = started.wait(timeout=limit_s + 5)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        return _read(path.name, out, status, limit_s)


def _read(name: str, out: Path, status: int | None, limit_s: int) -> Schedule:
    """The schedule that the process wrote; it may hold anything. Raises RaceError."""
    if status is None or (status in (-signal.SIGXCPU, -signal.SIGKILL) and not out.exists()):
        raise RaceError(f"{name}: {FUNCTION}(task) did not return within {limit_s} s; does its loop end?")
    if not out.is_file():
        raise RaceError(f"{name} ended its process before {FUNCTION}(task) returned (exit status {status})")
    try:
        if out.stat().st_size > _MAX_NBYTES:
            raise ValueError
        said = json.loads(out.read_bytes())
        if "fault" in said:
            raise RaceError(f"{name}: {said['fault']}")
        return unpacked(said)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, RaceError):
            raise
        raise RaceError(f"{name} wrote over the schedule that its process hands in") from None


# ------------------------------------------------------------------------------------------------------ in the process


def main(arguments: list[str]) -> None:
    """Runs the file and writes its schedule, or one sentence that says why there is none."""
    name, file, out, limit = arguments
    wanted = task(name)
    wanted.fabric  # noqa: B018  the machine is built before the clock of the file starts
    _limit(int(limit))
    try:
        answer = packed(returned(Path(file), wanted))
    except RaceError as error:
        answer = {"fault": str(error)}
    except MemoryError:
        answer = {
            "fault": f"{FUNCTION}(task) took more than {MEMORY_NBYTES >> 30} GiB of memory; send ranges of chunks"
        }
    Path(out).write_text(json.dumps(answer, separators=(",", ":")), encoding="utf-8")


def _limit(limit_s: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    mapped = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if sys.platform == "linux" else 0
    )
    for which, value in (
        (resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + limit_s),
        (resource.RLIMIT_AS, mapped + MEMORY_NBYTES),
        (resource.RLIMIT_FSIZE, _MAX_NBYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(which)[1]
        resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Runs an entry's file in a process of its own and reads the schedule that it returns.

The process has limits on time, memory and what it writes. It only makes the schedule: this process proves and times it, so that
the file can't give itself a score.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from allranks.race.scoring import MAX_CHUNKS, MAX_MESSAGES, MAX_RUNS
from allranks.race.tasks import RaceError, Task, task
from allranks.schedules import Move, Schedule
from allranks.schedules.proof import runs

FUNCTION = "schedule"
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
        # type(...) calls check nothing here: what a Schedule and its moves may hold is checked by the judge
        moves = tuple(
            Move(step, src, dst, _chunks(flat), bool(reduce)) for step, src, dst, reduce, flat in said["moves"]
        )
        root = said["root"]
        return Schedule(
            str(said["collective"]), str(said["algorithm"]), int(said["ranks"]), int(said["chunks"]), moves,
            root if root is None else int(root),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, RaceError):
            raise
        raise RaceError(f"{name} wrote over the schedule that its process hands in") from None


def _chunks(flat: list[int]) -> tuple[int, ...] | range:
    """Chunks from the first and the end of each run."""
    if len(flat) == 2:
        return range(flat[0], flat[1])
    return tuple(chunk for i in range(0, len(flat), 2) for chunk in range(flat[i], flat[i + 1]))


# ------------------------------------------------------------------------------------------------------ in the process


def main(arguments: list[str]) -> None:
    """Runs the file and writes its schedule, or one sentence that says why there is none."""
    name, file, out, limit = arguments
    wanted = task(name)
    wanted.fabric  # noqa: B018  the machine is built before the clock of the file starts
    _limit(int(limit))
    try:
        answer = _flat(_returned(Path(file), wanted))
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


def _returned(path: Path, wanted: Task) -> Any:
    """What the file's function returns. Raises RaceError for every fault of the file."""
    space: dict[str, Any] = {"__name__": "__entry__", "__file__": str(path)}
    try:
        exec(compile(path.read_text(encoding="utf-8-sig"), str(path), "exec"), space)
    except SyntaxError as error:
        raise RaceError(f"line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError:
        raise RaceError("it is no text in UTF-8") from None
    except MemoryError:
        raise
    except BaseException as error:
        raise RaceError(f"{_said(error, path)} while it was read") from None
    if not callable(space.get(FUNCTION)):
        raise RaceError(f"it defines no function {FUNCTION}(task)")
    try:
        return space[FUNCTION](wanted)
    except MemoryError:
        raise
    except BaseException as error:
        raise RaceError(f"{FUNCTION}(task) {_said(error, path)}") from None


def _said(error: BaseException, path: Path) -> str:
    """The exception with the last line of the student's file on its way."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f" in line {lines[-1]}" if lines else ""
    words = " ".join(str(error).split())[:200]
    return f"raised {type(error).__name__}{where}" + (f": {words}" if words else "")


def _flat(found: Any) -> dict[str, Any]:
    """The schedule as plain data. Raises RaceError if it is none, or too large."""
    if not isinstance(found, Schedule):
        raise RaceError(f"{FUNCTION}(task) returned {type(found).__name__}; it must return a Schedule")
    if not isinstance(found.moves, tuple | list):
        raise RaceError(f"the moves of the schedule are {type(found.moves).__name__}; they must be a tuple of Move")
    if len(found.moves) > MAX_MESSAGES:
        raise RaceError(f"the schedule has {len(found.moves)} messages; the race takes at most {MAX_MESSAGES}")
    chunks = _whole("the number of chunks", found.chunks)
    if not 1 <= chunks <= MAX_CHUNKS:
        raise RaceError(f"the schedule has {chunks} chunks; it must have 1 to {MAX_CHUNKS}")
    moves, total = [], 0
    for number, move in enumerate(found.moves):
        if not isinstance(move, Move):
            raise RaceError(f"message {number} of the schedule is {type(move).__name__}; it must be a Move")
        if not isinstance(move.chunks, tuple | list | range):
            raise RaceError(
                f"the chunks of message {number} are {type(move.chunks).__name__}; they must be a tuple or a range"
            )
        if not isinstance(move.chunks, range) and len(move.chunks) > chunks:
            raise RaceError(f"message {number} has {len(move.chunks)} chunks; the vector has {chunks}")
        if (
            isinstance(move.chunks, range)
            and move.chunks
            and not (0 <= move.chunks[0] < chunks and 0 <= move.chunks[-1] < chunks)
        ):
            raise RaceError(f"message {number} has chunks {move.chunks}; the {chunks} chunks are 0 to {chunks - 1}")
        plain = (
            move.chunks
            if isinstance(move.chunks, range)
            else [_whole(f"a chunk of message {number}", c) for c in move.chunks]
        )
        flat = [end for run in runs(plain) for end in run]
        total += len(flat) // 2
        if total > MAX_RUNS:
            raise RaceError(
                f"its messages have more than {MAX_RUNS} runs of neighbouring chunks; send neighbouring chunks together"
            )
        ends = [
            _whole(f"the {what} of message {number}", value)
            for what, value in (("step", move.step), ("sender", move.src), ("receiver", move.dst))
        ]
        moves.append([*ends, bool(move.reduce), flat])
    return {
        "collective": str(found.collective),
        "algorithm": str(found.algorithm)[:80],
        "ranks": _whole("the number of ranks", found.ranks),
        "chunks": chunks,
        "root": None if found.root is None else _whole("the root", found.root),
        "moves": moves,
    }


def _whole(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise RaceError(f"{what} is {value!r:.80}; it must be a whole number") from None


if __name__ == "__main__":
    main(sys.argv[1:])

"""An entry's file: runs it here and gives the schedule that its `schedule(task)` returns, as plain data or as a
Schedule.

`maker` does this in a process of its own; the site's live pages do it in the reader's browser, which has no processes.
"""

from __future__ import annotations

import operator
import traceback
from pathlib import Path
from typing import Any

from allranks.theory.race.scoring import MAX_CHUNKS, MAX_MESSAGES, MAX_RUNS
from allranks.theory.race.tasks import RaceError, Task
from allranks.theory.schedules import Move, Schedule
from allranks.theory.schedules.proof import runs

FUNCTION = "schedule"


def unpacked(said: dict[str, Any]) -> Schedule:
    """The schedule of plain data, as `packed` gives it. Raises ValueError, TypeError or KeyError if it is none."""
    # type(...) calls check nothing here: what a Schedule and its moves may hold is checked by the judge
    moves = tuple(Move(step, src, dst, _chunks(flat), bool(reduce)) for step, src, dst, reduce, flat in said["moves"])
    root = said["root"]
    return Schedule(
        str(said["collective"]), str(said["algorithm"]), int(said["ranks"]), int(said["chunks"]), moves,
        root if root is None else int(root),
    )  # fmt: skip


def _chunks(flat: list[int]) -> tuple[int, ...] | range:
    """Chunks from the first and the end of each run."""
    if len(flat) == 2:
        return range(flat[0], flat[1])
    return tuple(chunk for i in range(0, len(flat), 2) for chunk in range(flat[i], flat[i + 1]))


def returned(path: Path, wanted: Task) -> Any:
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


def packed(found: Any) -> dict[str, Any]:
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
        # sizes first, because what follows walks over the chunks, and a range may claim 10^18 of them
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
        # neighbours as (first, end): a message of a million chunks in a row is two numbers
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

"""The leaderboard: a JSON file of entries, each with its time, that anyone can verify by running it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allranks.base.whole import write_whole
from allranks.theory import cost
from allranks.theory.race.scoring import judge, score_of
from allranks.theory.race.tasks import TASKS, RaceError, task

FORMAT = 1
# the course's own leaderboard, with its entries beside it
COURSE = Path(__file__).with_name("leaderboard.json")
NCCL = "nccl"
_MAX_NBYTES = 16 << 20
_MAX_TEXT = 120
_FIELDS = ("task", "name", "by", "file", "model", "source", "picoseconds", "score")


@dataclass(frozen=True)
class Entry:
    """One entry of a task. `file` is beside the leaderboard; a reference has a `model` instead: a time, and no
    messages.

    `source` says where the algorithm or the figure comes from.
    """

    task: str
    name: str
    by: str
    picoseconds: int
    score: str
    file: str | None = None
    model: str | None = None
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The entry as it stands in the file, without what it lacks."""
        return {field: getattr(self, field) for field in _FIELDS if getattr(self, field) not in (None, "")}


@dataclass(frozen=True)
class Verified:
    """What running an entry again gave: nothing wrong if `fault` is empty."""

    entry: Entry
    fault: str


def load(path: Path | str = COURSE) -> list[Entry]:
    """The entries of a leaderboard, the fastest of each task first. Raises RaceError if the file is none."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_NBYTES + 1)
        if len(data) > _MAX_NBYTES:
            raise RaceError(f"{path} has more than {_MAX_NBYTES >> 20} MiB; it is no leaderboard")
        found = json.loads(data)
    except OSError as error:
        raise RaceError(f"{path} can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, RaceError):
            raise
        raise RaceError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict) or "allranks_race" not in found or not isinstance(found.get("entries"), list):
        raise RaceError(f"{path} is no leaderboard: it needs 'allranks_race': {FORMAT} and a list of 'entries'")
    if found["allranks_race"] != FORMAT:
        raise RaceError(
            f"{path} has format {found['allranks_race']!r}; this version of All Ranks reads format {FORMAT}"
        )
    return _in_order([_entry(path, number, said) for number, said in enumerate(found["entries"])])


def _entry(path: Path, number: int, said: Any) -> Entry:
    """One entry of the file. Raises RaceError, which names the field that is wrong."""
    where = f"{path}, entry {number}"
    if not isinstance(said, dict):
        raise RaceError(f"{where} is {type(said).__name__}; an entry is an object")
    if unknown := [field for field in said if field not in _FIELDS]:
        raise RaceError(f"{where} has a field {unknown[0]!r}; there are {', '.join(_FIELDS)}")
    for field, value in said.items():
        if field == "picoseconds":
            if type(value) is not int or value < 1:
                raise RaceError(f"{where}: its picoseconds are {value!r}; they are a whole number above 0")
        elif not isinstance(value, str) or (len(value) > _MAX_TEXT and field != "source"):
            raise RaceError(f"{where}: its {field} is no text of at most {_MAX_TEXT} characters")
    for field in ("task", "name", "by", "picoseconds", "score"):
        if field not in said:
            raise RaceError(f"{where} has no {field!r}")
    task(said["task"])
    if ("file" in said) == ("model" in said):
        raise RaceError(f"{where} needs a file, or a model that gives its time, not both")
    if "model" in said and said["model"] != NCCL:
        raise RaceError(f"{where}: there is no model {said['model']!r}; there is {NCCL}")
    return Entry(**said)


def save(path: Path | str, entries: list[Entry]) -> None:
    """Writes a leaderboard: another one in its place is kept until the new one is complete. Raises RaceError."""
    path = Path(path)
    text = json.dumps(
        {"allranks_race": FORMAT, "entries": [e.to_dict() for e in _in_order(entries)]}, indent=1, ensure_ascii=False
    )
    try:
        write_whole(path, text + "\n")
    except OSError as error:
        raise RaceError(f"{path} can't be written: {error.strerror or error}") from None


def _in_order(entries: list[Entry]) -> list[Entry]:
    places = {name: place for place, name in enumerate(TASKS)}
    return sorted(entries, key=lambda e: (places[e.task], e.picoseconds, e.name))


def run(entry: Entry, folder: Path) -> Entry:
    """The entry with the time and the score that it has here. `folder` holds the leaderboard. Raises RaceError."""
    from allranks.theory.race.maker import make  # where a browser shows the board, there are no processes for it

    where = task(entry.task)
    if entry.model is not None:
        picoseconds = reference_ps(entry.task)
        return replace(entry, picoseconds=picoseconds, score=score_of(where.bound.picoseconds, picoseconds))
    file = (folder / str(entry.file)).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise RaceError(f"{entry.file} is not in the folder of the leaderboard")
    result = judge(make(file, where, quiet=True), where)
    return replace(entry, picoseconds=result.picoseconds, score=result.score)


def reference_ps(name: str) -> int:
    """NCCL's time for a task by its tuner (cost.nccl_choice, without reduction in switches), to a nanosecond.

    Raises RaceError for a task on a machine that the tuner does not know.
    """
    where = task(name)
    if where.nccl is None:
        raise RaceError(f"NCCL's tuner does not know the machine of {name}")
    machine, nodes = where.nccl
    return round(cost.nccl_choice(where.collective, where.nbytes, machine, nodes=nodes, nvls=False).us * 1000) * 1000


def verify(path: Path | str, workers: int = 2) -> Iterator[Verified]:
    """Runs every entry of a leaderboard again, in its order. Raises RaceError if the file is no leaderboard."""
    path = Path(path)
    entries = load(path)
    if not entries:
        raise RaceError(f"{path} has no entries to verify")

    def again(entry: Entry) -> Verified:
        try:
            now = run(entry, path.parent)
        except RaceError as error:
            return Verified(entry, str(error))
        if now == entry:
            return Verified(entry, "")
        said, is_ = f"{entry.picoseconds} ps and {entry.score}", f"{now.picoseconds} ps and {now.score}"
        return Verified(entry, f"the leaderboard says {said}; it is {is_}")

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(again, entries)


def add(path: Path | str, entry: Entry) -> list[Entry]:
    """Writes the entry into a leaderboard, in the place of the same name's one for this task; makes the file if need
    be.

    Raises RaceError if the file is no leaderboard or can't be written.
    """
    path = Path(path)
    others = [e for e in load(path) if (e.task, e.name) != (entry.task, entry.name)] if path.exists() else []
    entries = _in_order([*others, entry])
    save(path, entries)
    return entries

"""Reads what nccl-tests prints, of any version, and what `allranks bench` prints or writes.

Both print a line for each size. The header names the columns: older versions of nccl-tests have `error` where newer ones
have `#wrong`, and some collectives have no `redop` or `root`. Times are microseconds, out of place and in place; the time
out of place is taken, as the other one is missing for some collectives.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from allranks.theory.cost.terms import CostError
from allranks.theory.schedules import COLLECTIVES

MAX_NBYTES = 64 << 20  # of a file; a sweep has a few kilobytes
# what launchers put before each line: mpirun --tag-output, srun --label
_LABEL = re.compile(r"^(?:\[\d+,\d+\](?:<std(?:out|err)>)?:?\s?|\d+:\s)")
_STARTING = re.compile(r"[Cc]ollective test starting:\s*(\w+?)(?:_perf)?\s*$")
_DEVICE = re.compile(r"#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)")
_OURS = re.compile(r"^# (\w+) \([^)]*\), (\d+) ranks?, \w+")
_OTHER_NAMES = {"alltoall": "all_to_all", "sendrecv": None, "hypercube": None, "scatter": "scatter"}


@dataclass
class Measured:
    """One sweep: the seconds of a collective for each number of bytes, and what was left out of it.

    `nodes` is None where the output does not tell.

    >>> printed = "# all_reduce (gloo's own), 2 ranks, gloo\\n#  size count type redop root time\\n  8 2 float sum -1 10.0\\n"
    >>> found = cost.read_measured(printed)[0]
    >>> found.collective, found.ranks, [nbytes for nbytes, _ in found.points]
    ('all_reduce', 2, [8])
    """

    collective: str
    ranks: int
    nodes: int | None
    points: list[tuple[int, float]] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_measured(
    text: str, *, collective: str | None = None, ranks: int | None = None, nodes: int | None = None
) -> list[Measured]:
    """The sweeps in an output. `collective`, `ranks` and `nodes` are taken where the output does not tell them.

    Sizes with wrong elements are left out and named in `wrong`. Raises CostError where there is no sweep in it, or where
    nothing says which collective ran, or on how many ranks.

    >>> printed = "#  size count type redop root time\\n  8 2 float sum -1 10.0\\n"
    >>> cost.read_measured(printed, collective="all_gather", ranks=4)[0].ranks
    4
    """
    stripped = text.lstrip()
    if stripped.startswith("{"):
        return _of_json(stripped)
    if stripped.startswith("size,"):
        return _of_csv(stripped, collective, ranks, nodes)
    return _Reader(collective, ranks, nodes).read(text)


def read_measured_file(path: Path | str, **known: int | str | None) -> list[Measured]:
    """`read_measured` of a file. Where neither text nor `known` names the collective, the file's name may.

    Raises CostError, also for a file that can't be read.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "all_gather.txt")
    >>> _ = file.write_text("#  size count type redop root time\\n  8 2 float sum -1 10.0\\n")
    >>> cost.read_measured_file(file, ranks=4)[0].collective
    'all_gather'
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_NBYTES + 1)
    except OSError as error:
        raise CostError(f"{path} can't be read: {error.strerror or error}") from None
    if len(data) > MAX_NBYTES:
        raise CostError(f"{path} has more than {MAX_NBYTES >> 20} MiB; it is no output of nccl-tests")
    if b"\0" in data:
        raise CostError(f"{path} is no text; give what nccl-tests or `allranks bench` printed")
    if not known.get("collective"):
        known["collective"] = next((c for c in sorted(COLLECTIVES, key=len, reverse=True) if c in path.name), None)
    try:
        return read_measured(data.decode("utf-8", errors="replace"), **known)  # type: ignore[arg-type]
    except CostError as error:
        raise CostError(f"{path}: {error}") from None


def _name(word: str) -> str | None:
    """Our name of a collective; None for what is none. Raises CostError for a word that nobody knows."""
    word = word.lower().replace("-", "_")
    word = word.removesuffix("_mpi").removesuffix("_perf")  # nccl-tests built with MPI adds _mpi
    if word in _OTHER_NAMES:
        return _OTHER_NAMES[word]
    if word not in COLLECTIVES:
        raise CostError(f"{word!r} is no collective; there are {', '.join(COLLECTIVES)}")
    return word


class _Reader:
    """Reads the printed form line by line; a new header or test begins a new sweep."""

    def __init__(self, collective: str | None, ranks: int | None, nodes: int | None) -> None:
        self.known = (None if collective is None else _name(collective), ranks, nodes)
        self.collective = self.known[0]
        self.devices: dict[int, str] = {}
        self.our_ranks: int | None = None
        self.columns: list[str] = []
        self.sweeps: list[Measured] = []
        self.current: Measured | None = None
        self.skipped = False

    def read(self, text: str) -> list[Measured]:
        cut = bool(text) and not text.endswith("\n")
        lines = text.splitlines()
        for number, raw in enumerate(lines):
            line = _LABEL.sub("", raw).rstrip()
            if line.startswith("#"):
                self._comment(line)
            elif line[:1].isspace() or line[:1].isdigit():
                self._row(line.split(), number + 1, cut and number == len(lines) - 1)
        found = [sweep for sweep in self.sweeps if sweep.points or sweep.wrong]
        if not found:
            what = "only tests that are no collectives" if self.skipped else "no line of sizes and times"
            raise CostError(f"there is {what} in it; give what nccl-tests or `allranks bench` printed")
        for sweep in found:
            if not sweep.points:
                raise CostError(f"every size of {sweep.collective} has wrong elements: such times say nothing")
        return found

    def _comment(self, line: str) -> None:
        if started := _STARTING.search(line):
            self.collective, self.current, self.columns = _name(started[1]), None, []
            self.skipped |= self.collective is None
            if self.collective is None:
                self.collective = ""  # a test that is no collective: its lines are passed over
        elif ours := _OURS.match(line):
            self.collective, self.our_ranks, self.current, self.columns = _name(ours[1]) or "", int(ours[2]), None, []
        elif device := _DEVICE.match(line):
            if self.current is not None:  # the devices of the next run
                self.current, self.columns, self.devices = None, [], {}
            self.devices[int(device[1])] = device[2]
        else:
            words = line.lstrip("# ").split()
            if words[:1] == ["size"] and "time" in words:
                self.columns, self.current = words, None

    def _row(self, cells: list[str], number: int, cut: bool) -> None:
        if not self.columns or self.collective == "" or not cells[0].isdigit():
            return
        place = self.columns.index("time")
        if len(cells) < len(self.columns) or cut:
            if self.current is not None or len(cells) > place:
                self._sweep().notes.append(f"line {number} is cut off, and was left out")
            return
        nbytes = int(cells[0])
        counts = [cells[i] for i, name in enumerate(self.columns) if name == "#wrong" and cells[i] != "N/A"]
        try:
            seconds = 1e-6 * float(cells[place])
            wrong = any(float(count) for count in counts)
        except ValueError:
            self._sweep().notes.append(f"line {number} holds no number where its time is, and was left out")
            return
        sweep = self._sweep()
        if wrong:
            sweep.wrong.append(nbytes)
        elif nbytes > 0 and 0 < seconds < 1e6:
            sweep.points.append((nbytes, seconds))

    def _sweep(self) -> Measured:
        if self.current is None:
            ranks = self.our_ranks or len(self.devices) or self.known[1]
            if not self.collective:
                raise CostError("nothing in it says which collective ran; say it with --collective")
            if not ranks:
                raise CostError("nothing in it says how many ranks ran; say it with --ranks")
            nodes = len(set(self.devices.values())) if self.devices else self.known[2]
            self.current = Measured(self.collective, ranks, nodes)
            self.sweeps.append(self.current)
        return self.current


def _of_json(text: str) -> list[Measured]:
    """What `allranks bench --json` printed."""
    try:
        data = json.loads(text)
        runs = [data] + ([data["also"]] if data.get("also") else [])
        found = []
        for run in runs:
            sweep = Measured(_name(run["collective"]) or "", int(run["ranks"]), None)
            for row in run["rows"]:
                if row["wrong"]:
                    sweep.wrong.append(int(row["size"]))
                elif row["size"] > 0:
                    sweep.points.append((int(row["size"]), 1e-6 * float(row["time_us"])))
            found.append(sweep)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CostError("this JSON is not what `allranks bench --json` prints") from None
    return [_checked(sweep) for sweep in found]


def _of_csv(text: str, collective: str | None, ranks: int | None, nodes: int | None) -> list[Measured]:
    """What `allranks bench --csv` wrote; it names neither the collective nor the ranks."""
    if collective is None or ranks is None:
        raise CostError("a table of `allranks bench --csv` does not say what ran; say it with --collective and --ranks")
    sweep = Measured(_name(collective) or "", ranks, nodes)
    try:
        for row in csv.DictReader(io.StringIO(text)):
            if float(row["#wrong"]):
                sweep.wrong.append(int(row["size"]))
            elif int(row["size"]) > 0:
                sweep.points.append((int(row["size"]), 1e-6 * float(row["time"])))
    except (ValueError, KeyError, TypeError):
        raise CostError("this table is not what `allranks bench --csv` writes") from None
    return [_checked(sweep)]


def _checked(sweep: Measured) -> Measured:
    if not sweep.points:
        raise CostError("there is no time in it that can be used")
    return sweep

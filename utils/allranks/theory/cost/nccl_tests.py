"""Reads what nccl-tests prints, of any version, and what `allranks bench` prints or writes.

Both print a line for each size. The header names the columns: older versions of nccl-tests have `error` where newer ones
have `#wrong`, and some collectives have no `redop` or `root`. Times are microseconds, out of place and in place; the time
out of place is taken, as the other one is missing for some collectives.

A table is known by its columns wherever they stand in a line, so that launchers' labels, indents and a lost "#" do no harm.
The number of ranks is what `busbw / algbw` says, then the highest rank; lists of devices are often pasted in part. Seen: nccl-tests
2.0 to 2.18 (src/common.cu), its JSON of versions 1 and 2 (`-J`, src/util.cu), and RCCL's tests.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allranks.theory.cost.terms import CostError
from allranks.theory.schedules import COLLECTIVES

MAX_NBYTES = 64 << 20  # of a file; a sweep has a few kilobytes
MOST_RANKS = 1 << 17
_STARTING = re.compile(r"[Cc]ollective test starting:\s*(?:\S*/)?(\w+)")
_PROGRAM = re.compile(r"(?:^|[\s/])(\w+?_perf\w*)\s+-")  # a command line: mpirun ... ./all_reduce_perf -b 8
_DEVICE = re.compile(r"\bRank\s+(\d+)\s.*?\bPid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)")
_NRANKS = re.compile(r"NCCL INFO .*\bn[rR]anks (\d+)")
_OURS = re.compile(r"# (\w+) \([^)]*\), (\d+) ranks?, \w+")
_HEADER = re.compile(r"\bsize\s+count\b.*?\btype\b.*")
# size, count, type: where a row begins, whatever stands before it
_ROW = re.compile(
    r"(?<![\w.,/:+-])(\d+)\s+(\d+)\s+((?:u?int(?:8|16|32|64)?|half|float(?:16|32|64|8\w*)?|double|bfloat16|fp8\w*|f8\w*)(?![a-z]).*)"
)
# what nccl-tests prints when a call fails (src/common.h), on each process that sees it
_FAILURE = re.compile(r"\bTest (?:\w+ )?failure\b.*")
_SETTING = re.compile(r"\b(NCCL_(?!DEBUG)[A-Z0-9_]+)\s*[= ]\s*([\w,.:^-]+)")
# IBM's pytorch-communication-benchmarks: megabytes, the mean, least and largest microseconds, and bus bandwidths
_OF_PYTORCH = "size(MB)   tavg(usec)"
_PYTORCH_ROW = re.compile(r"\s*(\d+\.\d+)\s+([1-9][\d.]*)\s+[\d.]+\s+[\d.]+\s+[\d.]+\s+[\d.]+\s+[\d.]+\s*$")
_WIDTH = {"int8": 1, "uint8": 1, "half": 2, "float16": 2, "bfloat16": 2, "int64": 8, "uint64": 8, "double": 8}
_OTHER_NAMES = {"alltoall": "all_to_all", "broadcast": "broadcast"}
_MPI = "build nccl-tests with MPI=1 MPI_HOME=..., so that its processes find each other"


@dataclass
class Measured:
    """One sweep: the seconds of a collective for each number of bytes, and what was left out of it.

    `nodes` is None where the output does not tell. `setting` are the NCCL variables that stand before the table, or "".
    `gpu` is the device's name, or "".

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
    setting: str = ""
    gpu: str = ""


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
    stripped = text.lstrip("\ufeff \t\r\n")
    if stripped.startswith("{"):
        return _of_json(stripped, nodes)
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
    """Our name of a collective; None for a test of another kind, such as alltoallv, sendrecv and hypercube."""
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower().replace("-", "_")
    word = re.sub(r"_perf(_\w+)?$", "", word)
    plain = {known.replace("_", ""): known for known in COLLECTIVES}
    return _OTHER_NAMES.get(word) or plain.get(word.replace("_", ""))


@dataclass
class _Table:
    """What one table says before its sweep is made: its rows as they are printed, and what stood above it."""

    test: str | None  # the name of the test, or None where nothing says it
    our_ranks: int | None
    columns: list[str]
    devices: list[tuple[int, str, int]]  # (rank, host, device)
    nranks: int | None
    setting: str
    gpu: str
    rows: list[tuple[int, list[str]]] = field(default_factory=list)  # (number of the line, cells)
    cut: list[int] = field(default_factory=list)


class _Reader:
    """Reads the printed form line by line; a new header or test begins a new table."""

    def __init__(self, collective: str | None, ranks: int | None, nodes: int | None) -> None:
        self.known = collective, ranks, nodes
        self.test: str | None = None
        self.our_ranks: int | None = None
        self.nranks: int | None = None
        self.settings: dict[str, str] = {}
        self.gpu = ""
        self.devices: list[tuple[int, str, int]] = []
        self.tables: list[_Table] = []
        self.current: _Table | None = None
        self.left_out: list[str] = []
        self.failure = ""

    def read(self, text: str) -> list[Measured]:
        lines = text.splitlines()
        cut = bool(text) and not text.endswith("\n")
        for number, line in enumerate(lines, 1):
            self._line(line, number, cut and number == len(lines))
            if (failed := _FAILURE.search(line)) and not self.failure:
                self.failure = failed[0].strip(" /")
        found, causes = [], []
        for table in self.tables:
            if not table.rows and not table.cut:
                continue
            try:
                if (sweep := self._sweep(table)) is not None:
                    found.append(sweep)
            except CostError as error:
                causes.append(str(error))
        if not found and causes:
            raise CostError(causes[0])
        if not found:
            what = f"only tests that are no collectives of equal parts ({', '.join(dict.fromkeys(self.left_out))})"
            what = what if self.left_out else "no line of sizes and times"
            raise CostError(f"there is {what} in it; give what nccl-tests or `allranks bench` printed")
        whole = [sweep for sweep in found if sweep.points]
        if not whole:
            raise CostError(f"every size of {found[0].collective} has wrong elements: such times say nothing")
        others = [f"{name} was left out: no formula is known for it" for name in dict.fromkeys(self.left_out)]
        if self.failure:
            whole[-1].notes.append(f"the run failed ({self.failure}): larger sizes are missing, or wrong")
        whole[0].notes += others + [f"a table was left out: {cause}" for cause in dict.fromkeys(causes)]
        return whole

    def _line(self, line: str, number: int, cut: bool) -> None:
        if header := _HEADER.search(line):
            self._begin(header[0].split())
        elif _OF_PYTORCH in line:
            self._begin(["size", "algbw", "time", "least", "most", "busbw"])
        elif self.current is not None and "least" in self.current.columns and (row := _PYTORCH_ROW.match(line)):
            nbytes = round(1e6 * float(row[1]))
            self._row([str(nbytes), f"{nbytes / float(row[2]) / 1e3:.2f}", *row[0].split()[1:]], number, cut)
        elif row := _ROW.search(line):
            self._row([row[1], row[2], *row[3].split()], number, cut)
        elif started := _STARTING.search(line) or _PROGRAM.search(line):
            if self.test is not None or self.current is not None:
                self._next_run()
            self.test = started[1]
            self._set(line)
        elif ours := _OURS.search(line):
            self._next_run()
            self.test, self.our_ranks = ours[1], int(ours[2])
        elif device := _DEVICE.search(line):
            if self.current is not None and (self.current.rows or self.current.cut):
                self._next_run()  # the devices of the next run
            self.devices.append((int(device[1]), device[3], int(device[4])))
            self.gpu = self.gpu or re.sub(r"^\s*\[[^\]]*\]\s*", "", line[device.end() :]).strip()
        elif told := _NRANKS.search(line):
            self.nranks = max(self.nranks or 0, int(told[1]))
        elif "NCCL_" in line:
            self._set(line)

    def _set(self, line: str) -> None:
        self.settings |= {name: value for name, value in _SETTING.findall(line) if "NCCL WARN" not in line}

    def _next_run(self) -> None:
        rows = self.current is not None and bool(self.current.rows or self.current.cut)
        self.current, self.test, self.our_ranks = None, None, None
        if rows:
            self.devices, self.settings, self.gpu, self.nranks = [], {}, "", None

    def _begin(self, columns: list[str]) -> _Table:
        if self.current is not None and not self.current.rows and self.current.columns == columns:
            return self.current  # processes that each print a head
        setting = " ".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        self.current = _Table(self.test, self.our_ranks, columns, self.devices, self.nranks, setting, self.gpu)
        self.tables.append(self.current)
        return self.current

    def _row(self, cells: list[str], number: int, cut: bool) -> None:
        table = self.current or self._begin([])  # the head may not have been pasted
        if cut or len(cells) < max(4, len(table.columns)):
            table.cut.append(number)
        else:
            table.rows.append((number, cells))

    def _sweep(self, table: _Table) -> Measured | None:
        """The sweep of a table; None for a test that is no collective. Raises CostError where it can't be used."""
        said, ranks, nodes = self.known
        collective = _name(table.test) if table.test else None
        if table.test and collective is None:
            self.left_out.append(re.sub(r"_perf(_\w+)?$", "", table.test))
            return None
        if collective is None and said is not None:
            collective = _name(said)
            if collective is None:
                raise CostError(f"{said!r} is no collective; there are {', '.join(COLLECTIVES)}")
        columns = table.columns or _columns_of(table.rows)
        if "time" not in columns:
            if "cputime" in columns:
                raise CostError(
                    "its times are those of the CPU (-C 1): how long the host took to launch, not how long the collective took; "
                    "run it again without -C"
                )
            raise CostError("its table has no column with the time")
        rows = [(number, dict(_first(columns, cells)), cells) for number, cells in table.rows]
        collective = collective or _by_columns(table.columns, [cells for _, cells, _ in rows])
        if collective is None:
            raise CostError("nothing in it says which collective ran; say it with --collective")
        counted, why = _ranks(collective, [cells for _, cells, _ in rows], table, ranks)
        on, deduced = _nodes(table.devices, counted, nodes)
        sweep = Measured(collective, counted, on, setting=table.setting, gpu=table.gpu)
        sweep.notes += [note for note in (why, deduced) if note]
        _fill(sweep, rows, columns)
        sweep.notes += [f"line {number} is cut off, and was left out" for number in table.cut]
        return sweep


def _first(columns: list[str], cells: list[str]) -> list[tuple[str, str]]:
    """Names and cells, of a name that stands twice (out of place, in place) the first."""
    found: dict[str, str] = {}
    for name, cell in zip(columns, cells, strict=False):
        found.setdefault(name, cell)
    return list(found.items())


def _fill(sweep: Measured, rows: list[tuple[int, dict[str, str], list[str]]], columns: list[str]) -> None:
    """Puts the rows' times into the sweep, and says of each other row why it was left out."""
    marks = [i for i, name in enumerate(columns) if name in ("#wrong", "wrong")]
    for number, named, cells in rows:
        nbytes = int(named["size"])
        try:
            seconds = 1e-6 * float(named["time"])
            bad = any(float(cells[i]) for i in marks if cells[i] != "N/A")
        except ValueError:
            sweep.notes.append(f"line {number} holds no number where its time is, and was left out")
            continue
        if bad:
            sweep.wrong.append(nbytes)
        elif nbytes > 0 and 0 < seconds < 1e6:
            sweep.points.append((nbytes, seconds))
        elif nbytes > 0:
            sweep.notes.append(f"line {number} has a time of {named['time']} µs, and was left out")


def _columns_of(rows: list[tuple[int, list[str]]]) -> list[str]:
    """The columns of rows whose head was not pasted: the time stands where size / time is the algbw beside it."""
    for place in (5, 4, 3):
        fits = []
        for _, cells in rows:
            near = _close(cells, place)
            if near is not None:
                fits.append(near)
        if fits and sum(fits) > 0.5 * len(fits):
            middle = {5: ["redop", "root"], 4: ["redop"], 3: []}[place]
            if place == 4 and rows[0][1][3].lstrip("-").isdigit():
                middle = ["root"]
            half = ["time", "algbw", "busbw", "#wrong"]
            wide = len(rows[0][1]) - place >= 8
            return ["size", "count", "type", *middle, *half, *(half if wide else [])]
    raise CostError(
        "its table has no head, and its rows do not show which number is the time; paste the line with size, count, type"
    )


def _close(cells: list[str], place: int) -> bool | None:
    """Whether size over the number here is the next number, as precisely as that is printed; None where it is too small to tell."""
    try:
        nbytes, time, algbw = int(cells[0]), float(cells[place]), float(cells[place + 1])
    except (ValueError, IndexError):
        return False
    if algbw < 0.1:
        return None
    return time > 0 and abs(nbytes / time / 1e3 - algbw) <= 0.02 * algbw + 0.01


def _by_columns(columns: list[str], rows: list[dict[str, str]]) -> str | None:
    """The collective that redop, root and count leave no doubt about; None for the others."""
    if not rows or "redop" not in columns or "root" not in columns:
        return None
    last = rows[-1]
    width = _WIDTH.get(last["type"], 4)
    if last["redop"] in ("none", "") or not last["size"].isdigit() or not last["count"].isdigit():
        return None
    if last["root"] != "-1":
        return "reduce"
    return "all_reduce" if int(last["count"]) * width == int(last["size"]) else "reduce_scatter"


def _ranks(collective: str, rows: list[dict[str, str]], table: _Table, known: int | None) -> tuple[int, str]:
    """How many ranks ran, by the table's own evidence, and a note where the sources differ. Raises CostError."""
    listed = [rank for rank, _, _ in table.devices]
    low, high = _by_ratio(collective, rows)
    if high == 1:
        apart = len(listed) > 1 or listed.count(0) > 1
        if apart:
            raise CostError(
                f"busbw is 0 and rank {listed[0]} is listed {listed.count(listed[0])} times: {len(listed)} processes ran alone, "
                f"each with one rank, and sent nothing; {_MPI}"
            )
        raise CostError("busbw is 0: one rank ran alone, which sends nothing; run at least two (-g 2, or with MPI)")
    if len(listed) > 1 and set(listed) == {0}:
        raise CostError(
            f"rank 0 is listed {len(listed)} times: {len(listed)} processes ran alone, each as rank 0; {_MPI}"
        )
    told = max(listed) + 1 if listed else None
    for count in (table.our_ranks, told, known, table.nranks):
        if count and low <= count <= high:
            return count, _why_ranks(count, listed, known, low == high)
    if low == high:
        return low, _why_ranks(low, listed, known, exact=True)
    if high < MOST_RANKS:
        raise CostError(f"its busbw and algbw are those of {low} to {high} ranks; say with --ranks how many")
    raise CostError("nothing in it says how many ranks ran; say it with --ranks")


def _why_ranks(count: int, listed: list[int], known: int | None, exact: bool) -> str:
    by = "busbw / algbw" if exact else "the highest rank"
    if known is not None and known != count:
        return f"{count} ranks by {by}, not {known} as --ranks says"
    if listed and len(set(listed)) != count:
        return f"{count} ranks by {by}; {len(set(listed))} of their device lines are in the file"
    return f"{count} ranks by {by}; the file has no device lines" if not listed and exact and known is None else ""


def _by_ratio(collective: str, rows: list[dict[str, str]]) -> tuple[int, int]:
    """The least and the most ranks that all rows' busbw / algbw allow, as precisely as they are printed."""
    low, high = 1, MOST_RANKS
    of = {"all_reduce": 2.0}.get(collective, 1.0)
    if collective in ("broadcast", "reduce", "barrier"):
        return low, high  # the factor is 1 whatever the number of ranks
    votes: Counter[tuple[int, int]] = Counter()
    for row in rows:
        pair = [_printed(row.get(name, "")) for name in ("algbw", "busbw")]
        if None in pair:
            continue
        (alg, alg_off), (bus, bus_off) = pair  # type: ignore[misc]
        if alg <= 2 * alg_off or (bus <= bus_off and alg < 100 * bus_off):
            continue
        least, most = max(0.0, bus - bus_off) / (alg + alg_off), (bus + bus_off) / (alg - alg_off)
        # the factor is of * (p - 1) / p
        lowest = of / (of - least) if least < of else math.inf
        highest = of / (of - most) if most < of else math.inf
        if lowest > MOST_RANKS or math.floor(min(highest, MOST_RANKS)) < math.ceil(lowest - 1e-9):
            continue
        votes[math.ceil(lowest - 1e-9), math.floor(min(highest, MOST_RANKS) + 1e-9)] += 1
    for (lowest_p, highest_p), _ in sorted(votes.items(), key=lambda item: item[0][1] - item[0][0]):
        if max(low, lowest_p) <= min(high, highest_p):
            low, high = max(low, lowest_p), min(high, highest_p)
    return low, high


def _printed(cell: str) -> tuple[float, float] | None:
    """A printed number and the half of its last digit."""
    if not re.fullmatch(r"\d+(\.\d+)?", cell):
        return None
    return float(cell), 0.5 * 10.0 ** -len(cell.partition(".")[2])


def _nodes(devices: list[tuple[int, str, int]], ranks: int, known: int | None) -> tuple[int | None, str]:
    """On how many nodes the ranks ran: the hosts of all ranks, or what `known` says, or what the listed ranks leave as the only way."""
    hosts = len({host for _, host, _ in devices})
    if len({rank for rank, _, _ in devices}) == ranks:
        return hosts, ""
    if known is not None or not devices:
        return known, ""
    starts = {rank - device for rank, _, device in devices}
    least = max(device for _, _, device in devices) + 1
    of_host = {host: {r - d for r, h, d in devices if h == host} for _, host, _ in devices}
    if min(starts) < 0 or any(len(of) > 1 for of in of_host.values()):
        return None, ""  # each process sees its own device as 0
    whole = math.gcd(ranks, *starts)
    ways = [n for n in range(least, whole + 1) if whole % n == 0]
    if len(ways) == 1 and hosts <= ranks // ways[0]:
        nodes = ranks // ways[0]
        return nodes, f"{nodes} nodes of {ways[0]} ranks by the listed devices" if nodes > 1 else ""
    return None, ""


def _of_json(text: str, nodes: int | None) -> list[Measured]:
    """What `allranks bench --json` printed, or nccl-tests -J wrote."""
    if re.search(r'"results"\s*:', text) and re.search(r'"(?:out_of_place|experiment_name)"', text):
        return _of_nccl_json(text, nodes)
    return _of_our_json(text)


def _of_nccl_json(text: str, nodes: int | None) -> list[Measured]:
    """The file of nccl-tests -J, versions 1 and 2; of a torn one, the results that are whole."""
    whole = True
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data, whole = (
            {"results": _whole_objects(text, "results"), "config": {"ranks": _whole_objects(text, "ranks")}},
            False,
        )
    config = data.get("config") if isinstance(data.get("config"), dict) else {}
    listed = [r for r in config.get("ranks") or () if isinstance(r, dict) and isinstance(r.get("rank"), int)]
    devices = [(r["rank"], str(r.get("hostname")), int(r.get("device") or 0)) for r in listed]
    args = [str(a) for a in data.get("args") or ()]
    env = " ".join(f"{n}={v}" for line in data.get("env") or () for n, v in _SETTING.findall(str(line)))
    tables: dict[str, list[tuple[int, dict[str, str], list[str]]]] = {}
    columns = ["size", "time", "#wrong"]
    for place, row in enumerate(data.get("results") or (), 1):
        out = row.get("out_of_place") if isinstance(row, dict) else None
        if not isinstance(out, dict) or not isinstance(row.get("size"), int):
            continue
        test = str(row.get("experiment_name") or (args[0].rpartition("/")[2] if args else ""))
        wrong = sum(float(half.get("nwrong") or 0) for half in (out, row.get("in_place")) if isinstance(half, dict))
        cells = [str(row["size"]), str(out.get("time")), str(wrong)]
        bandwidths = {"algbw": _decimals(out.get("alg_bw")), "busbw": _decimals(out.get("bus_bw"))}
        tables.setdefault(test, []).append((place, dict(zip(columns, cells, strict=True)) | bandwidths, cells))
    found, left_out = [], []
    gpu = str(listed[0].get("device_info") or "") if listed else ""
    for test, rows in tables.items():
        collective = _name(test)
        if collective is None:
            left_out.append(f"{test} was left out: no formula is known for it")
            continue
        table = _Table(test, None, columns, devices, None, env, gpu)
        ranks, why = _ranks(collective, [named for _, named, _ in rows], table, None)
        on, deduced = _nodes(devices, ranks, nodes)
        sweep = Measured(collective, ranks, on, setting=env, gpu=gpu, notes=[n for n in (why, deduced) if n])
        _fill(sweep, rows, columns)
        if not whole:
            sweep.notes.append(f"the JSON ends in the middle; {len(rows)} results are whole")
        found.append(_checked(sweep))
    if not found:
        raise CostError(
            f"this is the JSON of nccl-tests -J, and it has no result that can be fitted{': ' if left_out else ''}{'; '.join(left_out)}"
        )
    found[0].notes += left_out
    return found


def _decimals(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, (int, float)) else ""


def _whole_objects(text: str, name: str) -> list[Any]:
    """The complete objects of a list in JSON that ends in the middle."""
    decoder, found = json.JSONDecoder(), []
    start = re.search(rf'"{name}"\s*:\s*\[', text)
    at = start.end() if start else len(text)
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found.append(value)
        at += len(re.match(r"[\s,]*", text[at:])[0])  # type: ignore[index]
    return found


def _of_our_json(text: str) -> list[Measured]:
    """What `allranks bench --json` printed."""
    try:
        data = json.loads(text)
        runs = [data] + ([data["also"]] if data.get("also") else [])
        found = []
        for run in runs:
            sweep = Measured(_known(run["collective"]), int(run["ranks"]), None)
            for row in run["rows"]:
                if row["wrong"]:
                    sweep.wrong.append(int(row["size"]))
                elif row["size"] > 0:
                    sweep.points.append((int(row["size"]), 1e-6 * float(row["time_us"])))
            found.append(sweep)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CostError(
            "this JSON is neither what `allranks bench --json` prints nor what nccl-tests -J writes"
        ) from None
    return [_checked(sweep) for sweep in found]


def _of_csv(text: str, collective: str | None, ranks: int | None, nodes: int | None) -> list[Measured]:
    """What `allranks bench --csv` wrote; it names neither the collective nor the ranks."""
    if collective is None or ranks is None:
        raise CostError("a table of `allranks bench --csv` does not say what ran; say it with --collective and --ranks")
    sweep = Measured(_known(collective), ranks, nodes)
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


def _known(word: str) -> str:
    """Our name of a collective. Raises CostError for another word."""
    found = _name(word)
    if found is None:
        raise CostError(f"{word!r} is no collective; there are {', '.join(COLLECTIVES)}")
    return found

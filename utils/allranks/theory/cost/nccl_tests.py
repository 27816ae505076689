"""Reads what nccl-tests prints, of any version, what other tools print that measure collectives, and what `allranks bench` does.

All print a line for each size below a head; `any_table` reads those of other tools, and `sweep_tables` says what they mean. Of
nccl-tests' times the one out of place is taken, as the other one is missing for some collectives.

A table is known by its columns wherever they stand in a line, so that launchers' labels, indents and a lost "#" do no harm.
The number of ranks is what `busbw / algbw` says, then the highest rank; lists of devices are often pasted in part. Seen: nccl-tests
up to 2.20, also from before it printed its version, its JSON of versions 1 and 2 (`-J`, src/util.cu), RCCL's and MSCCL++'s tests,
AWS Neuron's nccom-test, and the tools of `sweep_tables`. Tables of all others are found by `any_table`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from allranks.base.errors import counted, size_in_words
from allranks.base.unpacked import PackedError, Unpacked, plain_text
from allranks.theory.cost.any_table import (
    Found,
    Row,
    as_rows,
    contradicted,
    of_sizes,
    several,
    spoken,
    tables,
    unread_head,
)
from allranks.theory.cost.bandwidth import bus_factor
from allranks.theory.cost.nccl_evidence import (
    Cells,
    Device,
    by_columns,
    by_world,
    columns_of,
    count_of_nodes,
    count_of_ranks,
    named,
    ran_alone,
    ranks_allowed,
)
from allranks.theory.cost.pair_tables import PAIR_TESTS, Messages, PairTables, holds_pairs, read_pairs
from allranks.theory.cost.sweep_tables import (
    FORMS,
    NCCL_TESTS,
    PARTS,
    TYPED,
    UNKNOWN,
    UNTYPED,
    Form,
    collective_of,
    launched,
    launched_nodes,
    started,
)
from allranks.theory.cost.terms import CostError
from allranks.theory.schedules import COLLECTIVES

MAX_NBYTES = 64 << 20  # of a file; a sweep has a few kilobytes
_DEVICE = re.compile(r"\bRank\s+(\d+)\s(?:.*?\bPid\s+(\d+)\s+)?on\s+(\S+)\s+device\s+(\d+)")
_NRANKS = re.compile(r"NCCL INFO .*\bn[rR]anks (\d+)")
_OURS = re.compile(r"# (\w+) \([^)]*\), (\d+) ranks?, \w+")
_PROCESSES = re.compile(r"# #processes = (\d+)")  # Intel MPI Benchmarks
_CONCLUDED = re.compile(r"[Cc]ollective test concluded:\s*(?:\S*/)?(\w+)")
_LABEL = re.compile(r"\[\d+(?:,\d+)?\](?:<std\w+>:?)?")  # of a launcher that writes it before each piece of a line
_NUMBER = re.compile(r"\d[\d.]*")
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values : [1-9]\d* FAILED")
_NCCL_JSON = re.compile(r'(?s)\A(?=.*"results"\s*:).*"(?:out_of_place|experiment_name)"')  # nccl-tests -J
# words that say messages go between two ranks
_PAIR = re.compile(
    r"\b(?:p2p|point[- ]to[- ]point|ping[- ]?pong|send[/_ -]?recv|ib_\w+_(?:bw|lat)|fi_\w+|RDMA (?:write|read)|pt2pt|osu_(?:bw|bibw|latency|mbw_mr))\b|\[(?:client|server)\]",
    re.I,
)
# what nccl-tests prints when a call fails (src/common.h), on each process that sees it
_FAILURE = re.compile(r"\b(?:Test (?:\w+ )?|NCCL |CUDA )failure\b.*")
_SETTING = re.compile(r"\b(NCCL_(?!DEBUG)[A-Z0-9_]+)\s*[= ]\s*([\w,.:^-]+)")
# on a command line, the variables of other libraries too
_GIVEN = re.compile(r"\b((?:UCC|UCX|OMPI_MCA|MV2|I_MPI|HCCL|NVSHMEM|RCCL|MSCCL\w*)_[A-Za-z0-9_]+)=([\w,.:^-]+)")


@dataclass
class Measured:
    """One sweep: the seconds of a collective for each number of bytes, and what was left out of it.

    `nodes` is None where the output does not tell. `setting` are the NCCL variables that stand before the table, or "".
    `gpu` is the device's name, or "". `failed` is what the tool says of wrong elements without naming their sizes, or "".

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
    failed: str = ""


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
    return _sweeps_of(text, (collective, ranks, nodes), [])


# the collective, the ranks and the nodes, where the output does not tell
Known = tuple[str | None, int | None, int | None]


def _sweeps_of(text: str, known: Known, sent: list[Messages]) -> list[Measured]:
    """The sweeps of a text; what it has of sendrecv goes into `sent`. Raises CostError where it has no sweep."""
    stripped = text.lstrip("\ufeff \t\r\n")
    if "\\n" in stripped and NCCL_TESTS.head.search(logged := _logged(stripped)):
        text = logged
    elif stripped.startswith("{") and _NCCL_JSON.search(stripped):
        sent += _sent_in_json(text)
        return _of_nccl_json(stripped, known[2])
    reader = _Reader(*known)
    try:
        return reader.read(text)
    except CostError:
        if reader.sent or (whole := _unwrapped(text)) is None:
            raise
        reader = _Reader(*known)
        with suppress(CostError):
            return reader.read(whole)
        raise
    finally:
        sent += reader.sent


def _unwrapped(text: str) -> str | None:
    """The text with the lines joined that a terminal has cut at its width; None where no line looks so."""
    lines = text.split("\n")
    width = max(map(len, lines))
    cut = [len(line) == width for line in lines]
    if not 60 <= width <= 250 or not 3 <= sum(cut) < 0.8 * len(lines):
        return None
    return "".join(line if whole else f"{line}\n" for line, whole in zip(lines, cut, strict=True))


def read_measured_file(path: Path | str, **known: Any) -> list[Measured]:
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
    found, _, error = read_all(path, text_of(path), **known)
    if error is not None:
        raise error
    return found


def read_all(
    path: Path, text: str, collective: str | None = None, ranks: int | None = None, nodes: int | None = None
) -> tuple[list[Measured], PairTables, CostError | None]:
    """The sweeps of a file with this text, what it says of pairs, and why it has no sweep; the text is parsed once.

    >>> printed = "#  size count type redop root time\\n  8 2 float sum -1 10.0\\n"
    >>> found, pairs, error = read_all(Path("all_gather.txt"), printed, ranks=4)
    >>> found[0].collective, bool(pairs), error
    ('all_gather', False, None)
    """
    pairs = read_pairs(text)
    try:
        found = _sweeps_of(text, (collective or _in_name(path.name), ranks, nodes), pairs.messages)
    except CostError as error:
        return [], pairs, CostError(f"{path}: {error}")
    for sweep in found:
        told = {other.nodes for other in found if other.ranks == sweep.ranks and other.nodes}
        if sweep.nodes is None and len(told) == 1:
            sweep.nodes = told.pop()
            sweep.notes.append(
                f"taken as on {counted(sweep.nodes, 'node')}, as the other runs of {sweep.ranks} ranks in this file"
            )
    return found, pairs, None


def text_of(path: Path) -> str:
    """The text of a file, unpacked. Raises CostError."""
    try:
        with path.open("rb") as file:
            data = Unpacked(file).first(MAX_NBYTES + 1)
    except OSError as error:
        raise CostError(f"{path} can't be read: {error.strerror or error}") from None
    except PackedError as error:
        raise CostError(f"{path}: {error}") from None
    if len(data) > MAX_NBYTES:
        raise CostError(f"{path} has more than {MAX_NBYTES >> 20} MiB; it is no output of nccl-tests")
    if b"\0" in data:
        raise CostError(f"{path} is no text; give what nccl-tests or `allranks bench` printed")
    return plain_text(data.decode("utf-8", errors="replace"))


def _in_name(file: str) -> str | None:
    """The collective that a file's name has in it, in any spelling: alltoall_perf.txt, nccl-AllGather.log, all-reduce-16.txt."""
    plain = re.sub(r"[^a-z]", "", file.lower())
    return next((c for c in sorted(COLLECTIVES, key=len, reverse=True) if c.replace("_", "") in plain), None)


@dataclass(frozen=True)
class Said:
    """What the text above a table says of its run, in words; it counts where the table shows nothing else."""

    which: str = ""
    ranks: int = 0
    nodes: int = 0
    pair: str = ""  # the words that say messages go between two ranks


@dataclass
class _Table:
    """What one table says before its sweep is made: its rows as they are printed, and what stood above it."""

    test: str | None  # the name of the test, or None where nothing says it
    our_ranks: int | None
    columns: list[str]
    devices: list[tuple[int, str, int]]  # (rank, host, device)
    nranks: int | None
    launched: int | None
    on_nodes: int | None  # by the launcher's command line
    setting: str
    gpu: str
    form: Form = NCCL_TESTS
    said: Said = Said()
    found: Found | None = None  # by `any_table`
    rows: list[tuple[int, list[str]]] = field(default_factory=list)  # (number of the line, cells)
    cut: list[int] = field(default_factory=list)

    @property
    def filled(self) -> bool:
        """Whether it has a row."""
        return bool(self.rows or self.cut) or self.found is not None


class _Reader:
    """Reads the printed form line by line; a new header or test begins a new table."""

    def __init__(self, collective: str | None, ranks: int | None, nodes: int | None) -> None:
        self.known = collective, ranks, nodes
        self.test: str | None = None
        self.our_ranks: int | None = None
        self.nranks: int | None = None
        self.launched: int | None = None
        self.on_nodes: int | None = None
        self.settings: dict[str, str] = {}
        self.gpu = ""
        self.devices: list[tuple[int, str, int]] = []
        self.tables: list[_Table] = []
        self.current: _Table | None = None
        self.left_out: list[str] = []
        self.sent: list[Messages] = []  # of sendrecv, which is no collective
        self.failure = ""
        self.wrong = ""  # what the tool says at its end of wrong elements
        self.said = Said()
        self.told: tuple[set[int], set[int]] = (
            set(),
            set(),
        )  # numbers of ranks and of nodes that stand anywhere in the text
        self.others: dict[int, Found] = {}  # what `any_table` found, by the line of the head
        self.theirs: set[int] = set()  # the lines of their rows

    def read(self, text: str) -> list[Measured]:
        lines = text.splitlines()
        cut = bool(text) and not text.endswith("\n")
        for one in tables(
            text, lambda head: holds_pairs(head) or any(form.head.search(head) for form in FORMS if not form.general)
        ):
            self.others[one.first or -len(self.others)] = one
            self.theirs |= {number for number, _ in one.cells} if one.first else set()
        for number, line in enumerate(lines, 1):
            self._line(line, number, cut and number == len(lines))
            if (failed := _FAILURE.search(line)) and not self.failure:
                self.failure = failed[0].strip(" /")
        for key, one in self.others.items():
            if not one.first:
                self._begin([f"records {key}"]).found = one
        found, causes = [], []
        ranks, nodes = (counts.copy().pop() if len(counts) == 1 else 0 for counts in self.told)
        for table in self.tables:
            if not table.filled:
                continue
            table.said = replace(table.said, ranks=table.said.ranks or ranks, nodes=table.said.nodes or nodes)
            try:
                found += self._sweeps(table) if table.found is None else self._of_any(table, table.found)
            except CostError as error:
                causes.append(str(error))
        if not found and causes:
            raise CostError("; ".join(list(dict.fromkeys(causes))[:3]))
        if not found and self.failure and not self.left_out:
            raise CostError(
                f"the run failed before its first size ({self.failure}): run it with NCCL_DEBUG=INFO, and allranks explain "
                "on what that prints"
            )
        if not found and not self.left_out and (alone := ran_alone(self.devices)):
            raise CostError(f"no size was measured, and {alone}")
        if not found and not self.left_out and (head := unread_head(lines)):
            raise CostError(
                f"its table has the head {_cut(head)}: no column there is known as one of times or bandwidths, and no unit stands in "
                "the cells or in the text"
                if of_sizes(head)
                else f"its table has the head {_cut(head)}: no column there is known as one of sizes"
            )
        if not found:
            what = f"only tests that are no collectives of equal parts ({', '.join(dict.fromkeys(self.left_out))})"
            what = what if self.left_out else "no table of sizes and times that is known"
            raise CostError(f"it holds {what}; give what nccl-tests or `allranks bench` printed")
        whole = [sweep for sweep in found if sweep.points]
        if not whole:
            if any(sweep.wrong for sweep in found):
                raise CostError(f"every size of {found[0].collective} has wrong elements: such times say nothing")
            notes = dict.fromkeys(note for sweep in found for note in sweep.notes if "left out" in note)
            raise CostError(f"no line of {found[0].collective} is whole ({'; '.join(notes) or 'its sizes are 0'})")
        whole[0].notes += [
            f"{sweep.collective} on {counted(sweep.ranks, 'rank')} has wrong elements at every size, and was left out: such times "
            "say nothing"
            for sweep in found
            if sweep.wrong and not sweep.points
        ]
        names = [name for name in dict.fromkeys(self.left_out) if not PAIR_TESTS.search(name)]
        others = [f"{name} was left out: no formula is known for it" for name in names]
        if self.failure:
            whole[-1].notes.append(f"the run failed ({self.failure}): larger sizes are missing, or wrong")
        if self.wrong and not any(sweep.wrong for sweep in found):
            whole[0].failed = self.wrong
        whole[0].notes += others + [f"a table was left out: {cause}" for cause in dict.fromkeys(causes)]
        return whole

    def _line(self, line: str, number: int, cut: bool) -> None:
        if number in self.others:
            self._begin([f"table {number}"]).found = self.others[number]
        if number in self.theirs and cut and line.rstrip()[-1] != "|" and (last := self.tables[-1]).found is not None:
            last.cut.append(last.found.cells.pop()[0])  # its last number may lack digits
        if number in self.theirs or number in self.others:
            return
        for form in FORMS if "ize" in line or "ytes" in line else ():  # most lines of a log name no size
            if not form.general and (head := form.head.search(line)):
                self._begin(form.columns_in(head), form)
                return
        if row := self._row_in(line):
            self._row(row, number, cut)
        elif test := started(line):
            if self.test is not None or self.current is not None:
                self._next_run()
            self.test = test
            self.launched = launched(line, test) or self.launched
            self.on_nodes = launched_nodes(line, test) or self.on_nodes
            self.settings |= dict(_GIVEN.findall(line))
            self._set(line)
            if collective_of(test) is None:
                self.left_out.append(re.sub(r"_perf(_\w+)?$", "", test))
        elif ours := _OURS.search(line):
            self._next_run()
            self.test, self.our_ranks = ours[1], int(ours[2])
        elif processes := _PROCESSES.search(line):
            self.our_ranks = int(processes[1])
        elif concluded := _CONCLUDED.search(line):
            if self.current is not None and self.current.test is None:
                self.current.test = concluded[1]
        elif device := _DEVICE.search(line):
            self._device(line, device)
        elif told := _NRANKS.search(line):
            self.nranks = max(self.nranks or 0, int(told[1]))
        else:
            if "NCCL_" in line:
                self._set(line)
            self._spoken(line)

    def _spoken(self, line: str) -> None:
        """Keeps what a line of text says of the run that follows."""
        told, pair, bad = spoken(line), _PAIR.search(line), _OUT_OF_BOUNDS.search(line)
        for counts, count in zip(self.told, (told.ranks, told.nodes), strict=True):
            counts |= {count} - {0}
        if bad:
            self.wrong = self.wrong or bad[0]
        if told.which or pair:
            self.said = Said(
                told.which, told.ranks or self.said.ranks, told.nodes or self.said.nodes, pair[0] if pair else ""
            )
        elif told.ranks or told.nodes:
            self.said = replace(self.said, ranks=told.ranks or self.said.ranks, nodes=told.nodes or self.said.nodes)

    def _row_in(self, line: str) -> list[str] | None:
        """The cells of the row that a line holds, whatever labels stand in it."""
        plain = _LABEL.sub(" ", line)
        untyped = self.current is not None and "size" in self.current.columns and "type" not in self.current.columns
        row = (UNTYPED if untyped else TYPED).search(plain)
        return [row[1], row[2], *row[3].split()] if row else None

    def _device(self, line: str, device: re.Match[str]) -> None:
        if self.current is not None and self.current.filled:
            self._next_run()  # the devices of the next run
        self.devices.append((int(device[1]), device[3], int(device[4])))
        self.gpu = self.gpu or re.sub(r"^\s*\[[^\]]*\]\s*", "", line[device.end() :]).strip()

    def _set(self, line: str) -> None:
        self.settings |= {name: value for name, value in _SETTING.findall(line) if "NCCL WARN" not in line}

    def _next_run(self) -> None:
        rows = self.current is not None and self.current.filled
        self.current, self.test, self.our_ranks = None, None, None
        if rows:
            self.devices, self.settings, self.gpu = [], {}, ""
            self.nranks, self.launched, self.on_nodes = None, None, None

    def _begin(self, columns: list[str], form: Form = NCCL_TESTS) -> _Table:
        if self.current is not None and not self.current.rows and self.current.columns == columns:
            return self.current  # processes that each print a head
        setting = " ".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        self.current = _Table(
            self.test,
            self.our_ranks,
            columns,
            self.devices,
            self.nranks,
            self.launched,
            self.on_nodes,
            setting,
            self.gpu,
            form,
            self.said,
        )
        self.tables.append(self.current)
        return self.current

    def _row(self, cells: list[str], number: int, cut: bool) -> None:
        table = self.current
        if table is None or table.found is not None:
            table = self._begin([])  # the head may not have been pasted
        columns = table.columns
        if "redop" in columns and len(cells) == len(columns) - 1 and _NUMBER.fullmatch(cells[columns.index("redop")]):
            cells.insert(columns.index("redop"), "")  # which old versions leave blank for an alltoall
        halves = columns.count("time")
        # a whole row of one half only: the other was not run, as in MSCCL++'s tests
        half = len(columns) - 4 if halves == 2 else None
        short = len(cells) < max(4, len(columns)) and len(cells) != half
        if cut or short:
            table.cut.append(number)
        else:
            table.rows.append((number, cells))

    def _sweeps(self, table: _Table) -> list[Measured]:
        """The sweeps of a table, none for a test that is no collective. Raises CostError where it can't be used."""
        said, ranks, _ = self.known
        collective = collective_of(table.test) if table.test else None
        if table.test and collective is None:
            if "sendrecv" in table.test:
                self._sends(table)
            return []
        if collective is None and said is not None:
            collective = _known(said)
        columns = table.columns or columns_of(table.rows)
        if "time" not in columns:
            if "cputime" in columns:
                raise CostError(
                    "its times are those of the CPU (-C 1): how long the host took to launch, not how long the collective took; "
                    "run it again without -C"
                )
            raise CostError("its table has no column with the time")
        rows = [(number, named(columns, cells), cells) for number, cells in table.rows]
        collective = collective or by_columns(columns, [cells for _, _, cells in rows])
        if collective == "sendrecv":
            self._sends(table)
            return []
        if collective is None and table.said.which in COLLECTIVES:
            collective = table.said.which
        if collective is None:
            raise CostError("nothing in it says which collective ran; say it with --collective")
        found = []
        worlds = by_world(collective, [cells for _, cells, _ in rows])
        for places in worlds:
            part = [rows[place] for place in places]
            listed = table.devices if len(worlds) == 1 else []  # those of several runs do not say which is whose
            sweep = self._run(table, collective, [cells for _, cells, _ in part], listed, table.launched, ranks)
            _fill(sweep, part, columns, table.form)
            found.append(sweep)
        found[-1].notes += [f"line {number} is cut off, and was left out" for number in table.cut]
        left = len(rows) - sum(map(len, worlds))
        if left:
            found[-1].notes.append(
                f"{counted(left, 'row')} of a table of several runs, which does not show its ranks, was left out"
            )
        return found

    def _run(
        self,
        table: _Table,
        collective: str,
        cells: list[Cells],
        devices: Sequence[Device],
        told: int | None,
        known: int | None,
    ) -> Measured:
        """A sweep without its points: on how many ranks and nodes it ran. Raises CostError where nothing says it."""
        world, why = count_of_ranks(collective, cells, devices, (table.our_ranks, table.nranks, told), known)
        if why.endswith("the command line") and not table.launched:
            why = f"{world} ranks by the text"
        on, deduced = count_of_nodes(devices, world, self.known[2])
        if on is None and table.on_nodes and table.launched == world:
            on, deduced = table.on_nodes, f"{counted(table.on_nodes, 'node')} by the command line"
        if table.said.ranks and table.said.ranks != world and "busbw" in why:
            deduced = f"the text says {table.said.ranks} ranks, and a busbw / algbw like this is that of {world}"
        elif on is None and table.said.nodes and world % table.said.nodes == 0:
            on, deduced = table.said.nodes, f"{counted(table.said.nodes, 'node')} by the text"
        notes = [note for note in (why, deduced) if note]
        return Measured(collective, world, on, setting=table.setting, gpu=table.gpu, notes=notes)

    def _of_any(self, table: _Table, of: Found) -> list[Measured]:
        """The sweeps of a table that `any_table` found. Raises CostError where it can't be used."""
        table.form = next((form for form in FORMS if form.head.search(of.head)), UNKNOWN)
        of.columns = [table.form.means.get(column.kind, column) for column in of.columns]
        sweeps: list[Measured] = []
        causes: list[str] = []
        told = len(self.sent)
        programs = several(of)
        for apart in programs:
            rows = as_rows(of, apart)
            apart = apart or ("the columns without a name" if len(programs) > 1 else "")
            by = ["which", "ranks", *table.form.apart]
            if "label" not in by and len({(row.nbytes, *(row.words.get(name) for name in by)) for row in rows}) < len(
                rows
            ):
                by.append("label")
            groups: dict[tuple[str, ...], list[Row]] = {}
            for row in rows:
                groups.setdefault(tuple(row.words.get(name, "") for name in by), []).append(row)
            for (which, ranks, *more), same in groups.items():
                label = [w if name == "label" else f"{name}={w}" for name, w in zip(by[2:], more, strict=True)]
                try:
                    sweep = self._of_rows(
                        table,
                        collective_of(which) or spoken(which).which or spoken(apart).which,
                        int(ranks) if ranks.isdigit() else 0,
                        same,
                    )
                except CostError as error:
                    causes.append(f"{_shown(same, ' '.join([which, apart, *label]))}{error}")
                    continue
                if sweep is not None:
                    sweep.setting = " ".join(filter(None, (sweep.setting, apart, *label)))
                    sweeps.append(sweep)
        if not sweeps and causes and len(self.sent) == told:
            head = f"its table has the head {_cut(of.head)}: " if of.head else ""
            raise CostError(head + "; ".join(causes[:4]))
        if sweeps:
            sweeps[-1].notes += [f"line {number} is cut off, and was left out" for number in table.cut]
            sweeps[0].notes += [f"a part of the table was left out: {cause}" for cause in causes]
        return sweeps

    def _of_rows(self, table: _Table, which: str, ranks: int, rows: list[Row]) -> Measured | None:
        said, known, _ = self.known
        if table.test and collective_of(table.test) is None and not PAIR_TESTS.search(table.test):
            return None
        if why := contradicted(rows):
            raise CostError(f"its figures contradict each other: {why}")
        named = (which if which in COLLECTIVES else None) or (collective_of(table.test) if table.test else None) or said
        cells = [_as_cells(row) for row in rows]
        proved = by_columns(list(cells[0]), [list(row.values()) for row in cells]) if named is None else None
        collective = named or proved or (table.said.which if table.said.which in COLLECTIVES else None)
        if (table.test and collective_of(table.test) is None) or (collective is None and table.said.pair):
            self._told(table, rows)
            return None
        if collective is None:
            if not any(row.rates.keys() & {"algbw", "busbw"} for row in rows) and any(
                "bw" in row.rates for row in rows
            ):
                self._told(table, rows)
                return None
            raise CostError("nothing in it says which collective ran; say it with --collective")
        if collective in table.form.unsure:
            raise CostError(f"{collective} of {table.form.tool} can't be read: {table.form.why}")
        if not any(row.seconds or row.rates.keys() & {"algbw", "busbw"} for row in rows):
            raise CostError("nothing in it says whether that is size / time or the bus bandwidth")
        told = table.launched or ranks or table.said.ranks or known
        rows = _megabytes(rows, collective, told)
        cells = [_as_cells(row) for row in rows]
        times = _times_counted(rows)
        if collective in PARTS and (moved := _moved(rows)):
            known, times = known or moved + 1, moved + 1.0  # its bandwidth is what each rank sends to all others
        if times > 1 and (collective == "all_reduce" or known):  # a throughput that counts all that is moved
            for row, cell in ((row, cell) for row, cell in zip(rows, cells, strict=True) if row.seconds):
                cell["algbw"] = (
                    f"{row.nbytes / row.seconds / 1e9}±{row.nbytes / row.seconds / 1e9 * (row.half / row.seconds + 1e-6)}"
                )
        sweep = self._run(table, collective, cells, table.devices, told, known)
        if not all(row.seconds and row.rates for row in rows) and any(row.other for row in rows):
            power = 1024 if rows[-1].nbytes > rows[-1].other else 1000
            sweep.notes.append(f"nothing says whether a KB is 1000 or 1024 bytes: taken as {power}")
        if named is None and proved is None:
            sweep.notes.append("that this is what ran is said by the text above the table only")
        if times > 1:
            sweep.notes.append(f"its throughput is {times:.3g} times size / time: size and time are taken")
        world = sweep.ranks
        by_figures = collective in PARTS and times > 1 and abs(times / world - 1) < 0.05
        parts = world if by_figures or collective in table.form.of_parts else 1
        factor = float(bus_factor(collective, world))
        for row in rows:
            nbytes, bad = round(row.nbytes * parts), row.words.get("wrong", "").lower()
            algbw, busbw = (row.rates.get(kind, (0.0, 0.0))[0] for kind in ("algbw", "busbw"))
            seconds = row.seconds or (nbytes * factor / busbw if busbw else nbytes / algbw if algbw else 0.0)
            if any(map(_is_wrong, bad.split())):
                sweep.wrong.append(nbytes)
            elif nbytes > 0 and 0 < seconds < 1e6:
                sweep.points.append((nbytes, seconds))
            elif nbytes > 0 and seconds:
                sweep.notes.append(f"line {row.number} has a time of {1e6 * seconds:.4g} µs, and was left out")
        return sweep

    def _told(self, table: _Table, rows: Sequence[Row]) -> None:
        """Files a table of messages between two ranks."""
        name = table.test or table.said.pair.strip("[]") or "a table whose test the text does not name"
        sweep = Messages(name, "", who="" if table.test or table.said.pair else "between whom, the text does not say")
        for row in rows:
            rate = next((row.rates[kind][0] for kind in ("bw", "algbw", "busbw") if row.rates.get(kind, (0,))[0]), None)
            if row.nbytes > 0 and (rate or row.seconds):
                sweep.rows.append((round(row.nbytes), rate / 1e9 if rate else None, 1e6 * row.seconds or None))
        if sweep.rows:
            self.sent.append(sweep)

    def _sends(self, table: _Table) -> None:
        """Files a sweep of sendrecv: each rank sends to the next one and receives from the one before, at the same time."""
        columns = table.columns or columns_of(table.rows)
        listed = max((rank for rank, _, _ in table.devices), default=-1) + 1 or table.launched or table.nranks
        hosts = {host for _, host, _ in table.devices} if listed == len(table.devices) else ()
        sweep = _sendrecv(listed or 0, len(hosts))
        for _, cells in table.rows:
            row = named(columns, cells)
            with suppress(ValueError, KeyError):
                _add_message(sweep, int(row["size"]), 1e6 * table.form.seconds * float(row["time"]))
        if sweep.rows:
            self.sent.append(sweep)


def _as_cells(row: Row) -> dict[str, str]:
    """A row as `nccl_evidence` looks at it: figures with the half of their last digit."""
    if row.seconds and "busbw" in row.rates and "algbw" not in row.rates:
        algbw = row.nbytes / row.seconds
        row = replace(row, rates=row.rates | {"algbw": (algbw, algbw * row.half / row.seconds)})
    shown = {kind: f"{figure / 1e9}±{half / 1e9}" for kind, (figure, half) in row.rates.items() if kind != "bw"}
    time = {"time": f"{1e6 * row.seconds}±{1e6 * row.half}"} if row.seconds else {}
    words = {name: row.words[name] for name in ("type", "redop", "root") if name in row.words}
    return (
        {"size": str(round(row.nbytes)), "count": str(row.count or "")}
        | words
        | time
        | {"algbw": "", "busbw": ""}
        | shown
    )


def _megabytes(rows: list[Row], collective: str, told: int | None) -> list[Row]:
    """The rows, with MB of 1000 or of 1024 where only the bus bandwidth and the number of ranks say which. Raises CostError where
    nothing does, and it matters."""
    if not all(row.other and row.seconds and row.rates.get("busbw") for row in rows):
        return rows
    ways = [rows, [replace(row, nbytes=row.other) for row in rows]]
    if collective in ("broadcast", "reduce"):
        return min(ways, key=lambda way: median(abs(r.nbytes / r.seconds / r.rates["busbw"][0] - 1) for r in way))
    allowed = [ranks_allowed(collective, [_as_cells(row) for row in way]) for way in ways]
    fits = [place for place, (low, high) in enumerate(allowed) if not told or low <= told <= high] or [0]
    exact = {allowed[place][0] for place in fits if allowed[place][0] == allowed[place][1]}
    if len(exact) > 1:
        raise CostError(
            f"its sizes are of 1000 or of 1024, and its busbw then that of {' or '.join(map(str, sorted(exact)))} ranks; say with "
            "--ranks how many"
        )
    return ways[min(fits, key=lambda place: allowed[place][1] - allowed[place][0])]


def _cut(head: str) -> str:
    """A head, as far as a sentence takes it."""
    return head if len(head) <= 100 else f"{head[:100].rsplit(' ', 1)[0]} ..."


def _shown(rows: Sequence[Row], whose: str) -> str:
    """What a table shows by itself, whoever measured it."""
    rates = [
        (row.rates[kind][0], row.nbytes, kind)
        for row in rows
        for kind in ("busbw", "algbw", "bw")
        if row.rates.get(kind, (0,))[0]
    ]
    kinds = [kind for kind in ("busbw", "algbw", "bw") if any(kind == one[2] for one in rates)]
    best = [max(one for one in rates if one[2] == kind) for kind in kinds[:1]]
    least = min(((row.seconds, row.nbytes) for row in rows if row.seconds and row.nbytes), default=None)
    words = [
        f"{rate / 1e9:.4g} GB/s of {kind.replace('bw', 'bandwidth') if kind == 'bw' else kind} at {size_in_words(n)}, the most"
        for rate, n, kind in best
    ]
    words += [f"{1e6 * least[0]:.4g} µs at {size_in_words(least[1])}, the least"] if least else []
    return f"{' '.join(whose.split()) or 'it'} shows {' and '.join(words)}, but " if words else ""


def _moved(rows: Sequence[Row]) -> int:
    """How often a size is sent by each rank, where a bandwidth says that it is the same whole number for all rows; else 0."""
    found = [
        rate[0] * row.seconds / row.nbytes
        for row in rows
        if row.seconds and (rate := row.rates.get("bw")) and rate[0] > 50 * rate[1]
    ]
    whole = {round(one) for one in found if abs(one - round(one)) < 0.03 * one}
    return whole.pop() if len(whole) == 1 and len(found) > 1 and min(found) > 1.5 else 0


def _times_counted(rows: Sequence[Row]) -> float:
    """What a throughput is a multiple of size / time by: 1, or more where a tool counts all that is moved."""
    found = [
        rate[0] * row.seconds / row.nbytes
        for row in rows
        if row.seconds and row.nbytes and (rate := row.rates.get("algbw")) and rate[0] > 20 * rate[1]
    ]
    middle = median(found) if found else 1.0
    return middle if middle > 1.5 else 1.0


OLD_ERROR = 0.1  # old tests print the largest difference to what is right; halves round by less


def _is_wrong(mark: str) -> bool:
    """Whether what a tool prints of its check says that elements are wrong."""
    try:
        return float(mark) > OLD_ERROR
    except ValueError:
        return mark in ("fail", "failed", "failure", "wrong", "false", "error", "no")


def _fill(
    sweep: Measured, rows: list[tuple[int, dict[str, str], list[str]]], columns: list[str], form: Form = NCCL_TESTS
) -> None:
    """Puts the rows' times into the sweep, and says of each other row why it was left out."""
    marks = [i for i, name in enumerate(columns) if name in ("#wrong", "wrong", "error", "res")]
    for number, row, cells in rows:
        nbytes = int(row["size"])
        try:
            seconds = form.seconds * float(row["time"])
            bad = any(float(cells[i]) > OLD_ERROR for i in marks if i < len(cells) and cells[i] != "N/A")
        except ValueError:
            sweep.notes.append(f"line {number} holds no number where its time is, and was left out")
            continue
        if bad or cells[-1].lower() in ("fail", "failed"):
            sweep.wrong.append(nbytes)
        elif nbytes > 0 and 0 < seconds < 1e6:
            sweep.points.append((nbytes, seconds))
        elif nbytes > 0:
            sweep.notes.append(f"line {number} has a time of {row['time']} {form.unit}, and was left out")


def _logged(text: str) -> str:
    """A program's output out of the JSON lines of a structured logger, which writes it into one string."""
    return text.replace("\\r", "").replace("\\n", "\n").replace("\\t", " ")


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
        collective = collective_of(test)
        if collective is None:
            left_out.append(f"{test} was left out: no formula is known for it")
            continue
        ranks, why = count_of_ranks(collective, [cells for _, cells, _ in rows], devices, (None, None, None), None)
        on, deduced = count_of_nodes(devices, ranks, nodes)
        sweep = Measured(collective, ranks, on, setting=env, gpu=gpu, notes=[n for n in (why, deduced) if n])
        _fill(sweep, rows, columns)
        if not whole:
            sweep.notes.append(f"the JSON ends in the middle; {counted(len(rows), 'result is', 'results are')} whole")
        found.append(_checked(sweep))
    if not found:
        raise CostError(
            f"this is the JSON of nccl-tests -J, and it has no result that can be fitted{': ' if left_out else ''}{'; '.join(left_out)}"
        )
    found[0].notes += left_out
    return found


def _sendrecv(ranks: int, hosts: int) -> Messages:
    """An empty sweep of sendrecv; 0 where the file does not say how many."""
    who = f"each of {ranks} ranks to the next one" if ranks else "each rank to the next one"
    who += f", on {counted(hosts, 'node')}" if hosts else ""
    return Messages("sendrecv", "nccl-tests", who=f"{who}, all at once")


def _add_message(sweep: Messages, nbytes: int, us: float) -> None:
    if nbytes > 0 and 0 < us < 1e12:
        sweep.rows.append((nbytes, nbytes / us / 1e3, us))


def _sent_in_json(text: str) -> list[Messages]:
    """The sweep of sendrecv in nccl-tests' -J."""
    try:
        data = json.loads(text)
        results, args = data.get("results"), data.get("args") or [""]
        ranks = len(data["config"]["ranks"]) if isinstance(data.get("config"), dict) else 0
        hosts = len({str(rank.get("hostname")) for rank in data["config"]["ranks"]}) if ranks else 0
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []
    sweep = _sendrecv(ranks, hosts)
    for row in results if isinstance(results, list) else ():
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            if "sendrecv" in str(row.get("experiment_name") or args[0]):
                _add_message(sweep, int(row["size"]), float(row["out_of_place"]["time"]))
    return [sweep] if sweep.rows else []


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


def _checked(sweep: Measured) -> Measured:
    if not sweep.points:
        raise CostError("there is no time in it that can be used")
    return sweep


def _known(word: str) -> str:
    """Our name of a collective. Raises CostError for another word."""
    found = collective_of(word)
    if found is None:
        raise CostError(f"{word!r} is no collective; there are {', '.join(COLLECTIVES)}")
    return found

"""Reads what tools print that measure pairs: a matrix of copies between GPUs, or a sweep of messages between two ranks.

These are no collectives: no formula of a collective is fitted to them. Sources: CUDA's p2pBandwidthLatencyTest
(cuda-samples, 5_Domain_Specific), nvbandwidth 0.2 to 0.10 (its text and `--json`, json_output.cpp), rocm-bandwidth-test 2.3 to 2.6,
TransferBench p2p, OSU Micro-Benchmarks 3.7 to 7.5 (c/mpi/pt2pt, one-sided, c/xccl/pt2pt), Intel MPI Benchmarks (PingPong),
perftest (ib_write_bw and the like, perftest_resources.c), ucx_perftest (src/tools/perf). nccl-tests' sendrecv is read by
`nccl_tests`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from allranks.theory.cost.any_table import may_be_head

__all__ = ["PAIR_TESTS", "Matrix", "Messages", "PairTables", "holds_pairs", "read_pairs"]

MOST_DEVICES = 1024
Pair = tuple[int, int]


@dataclass
class Matrix:
    """GB/s (or microseconds of `latency`) between each two devices, by (row, column). `peer` says whether direct access was on.

    `of_host` matrices have CPUs as rows.

    >>> Matrix("nvbandwidth", "copies", {(0, 1): 26.3}).gpus
    1
    """

    tool: str
    what: str
    cells: dict[Pair, float]
    both_ways: bool = False
    latency: bool = False
    peer: bool | None = None
    of_host: bool = False
    gpu: str = ""
    ways: str = ""  # from where to where, of copies between the host and a GPU

    @property
    def gpus(self) -> int:
        """How many devices have a row."""
        return len({row for row, _ in self.cells})


@dataclass
class Messages:
    """Messages between two ranks: (bytes, GB/s, microseconds), either of the last two None where it is not printed.

    `who` says between whom, where that is not one pair or several.

    >>> Messages("osu_bw", "OSU Micro-Benchmarks", [(1 << 20, 12.1, None)]).rows[0][1]
    12.1
    """

    test: str
    tool: str
    rows: list[tuple[int, float | None, float | None]] = field(default_factory=list)
    both_ways: bool = False
    buffers: str = ""
    pairs: int = 1
    who: str = ""


@dataclass
class _Head:
    """The head of a sweep of messages: which cells of a row are the size, the bandwidth and the latency.

    Of Intel's, whose bandwidth is in MB or in MiB by the version, the time alone is taken: one way of a PingPong, and both
    ways, or four, of the tests in `ways`.
    """

    tool: str
    pattern: re.Pattern[str]
    bandwidth: int | None = None
    latency: int | None = None
    unit: float = 1e-3  # GB/s in one of its bandwidths
    cells: int = 2
    ways: tuple[tuple[str, int], ...] = ()


_HEADS = (
    _Head("OSU Micro-Benchmarks", re.compile(r"#\s*Size\s+Bandwidth \(MB/s\)"), bandwidth=1),
    _Head("OSU Micro-Benchmarks", re.compile(r"#\s*Size\s+MB/s\s+Messages/s"), bandwidth=1),
    _Head("OSU Micro-Benchmarks", re.compile(r"#\s*Size\s+Latency \(us\)"), latency=1),
    _Head("Intel MPI Benchmarks", re.compile(r"#bytes\s+#repetitions\s+t\[usec\]\s+Mbytes/sec"), None, 2, cells=4,
          ways=(("Ping", 1),)),
    _Head("Intel MPI Benchmarks",
          re.compile(r"#bytes\s+#repetitions\s+t_min\[usec\]\s+t_max\[usec\]\s+t_avg\[usec\]\s+Mbytes/sec"), None, 3,
          cells=6, ways=(("Sendrecv", 2), ("Exchange", 4))),
    _Head("perftest", re.compile(r"#bytes\s+#?iterations\s+BW peak\[Gb/sec\]\s+BW average\[Gb/sec\]"), 3, None, 0.125, 4),
    _Head("perftest", re.compile(r"#bytes\s+#?iterations\s+BW peak\[Mi?B/sec\]\s+BW average\[Mi?B/sec\]"), 3, None,
          2**20 / 1e9, 4),
    _Head("perftest", re.compile(r"#bytes\s+#?iterations\s+t_min\[usec\]\s+t_max\[usec\]\s+t_typical\[usec\]"), None, 4, cells=5),
)  # fmt: skip
_TITLES = (
    re.compile(r"# (OSU (?:MPI|NCCL|RCCL|UPC\w*|OpenSHMEM)\S* .+? Test)\b"),
    re.compile(r"# Benchmarking (\w+)"),
    re.compile(r"^\s+((?:RDMA_\w+|Send|Write|Read|Atomic\w*) (?:Bidirectional )?(?:BW|Latency|Post List BW) Test)\s*$"),
    re.compile(r"(?:^|[\s/])(osu_\w+|ib_\w+_(?:bw|lat))(?=\s|$)"),
)
# the names of these tests, as far as other readers meet them
PAIR_TESTS = re.compile(
    r"sendrecv|osu_(?:xccl_)?(?:bw|bibw|latency|mbw_mr|multi_lat|put_\w+|get_\w+)$"
    r"|^OSU \S+ (?:MPI_\w+ )?(?:Bi-Directional |Multi(?:ple)? )?(?:Bandwidth|Latency)\b|^PingPong$|_(?:bw|lat)$"
)
_BUFFERS = re.compile(r"# Send Buffer on (\w+).*? Receive Buffer on (\w+)")
_PAIRS = re.compile(r"#.*\[ pairs: (\d{1,6}) \]")
_LABEL = re.compile(
    r"^\s*(?:\[[\w, ]{1,40}\](?:<std\w+>:?)?|\d{1,7}:(?= )"
    r"|(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?(?= ))"
)  # of a launcher, or of what keeps a log with times
_UCX = re.compile(r"\|\s*(overhead|latency) \(usec\)\s*\|\s*bandwidth \(MB/s\)\s*\|")
_UCX_TEST = re.compile(r"^=+ (\w+) =+$|\| Test:\s+(\w[\w ]*\w)\s*\||\bucx_perftest\b.*\s-t (\w+)")
_UCX_SIZE = re.compile(r"\| Message size:\s+(\d{1,13})\b|\bucx_perftest\b.*\s-s (\d{1,13})\b")
_UCX_ROW = re.compile(r"^(Final:)?\s+\d+((?:\s+\d+(?:\.\d+)?){5})(?:\s+\d+){2}\s*$")
_NUMBERS = re.compile(r"^\s*(\d{1,13}(?:\s+\d+(?:\.\d+)?)+)\s*(?:Pass|Fail)?\s*$")

# what stands above a matrix
_LOCAL = re.compile(r"memcpy local GPU\(column\) bandwidth \(GB/s\)")
_WRONG = re.compile(r"Invalid value when checking the pattern")
_P2P = re.compile(r"(Uni|Bi)directional P2P=(Enabled|Disabled) Bandwidth (?:\(P2P (Writes|Reads)\) )?Matrix \(GB/s\)")
_P2P_LATENCY = re.compile(r"P2P=(Enabled|Disabled) Latency (?:\(P2P \w+\) )?Matrix \(us\)")
_NVB = re.compile(r"memcpy (CE|SM) ([CG]PU)\(row\) (<->|->|<-) GPU\(column\)(?: (\w+))? bandwidth \(GB/s\)")
_COPY = re.compile(r"\b(Uni|Bi|B)directional copy peak bandwidth GB/s")
_COLUMNS = re.compile(r"^\s*(?:(?:D\\D|D/D|GPU|SRC\+EXE\\DST)\s)?\s*((?:(?:[CG]PU )?\d{1,4}(?:\s+|$))+)$")
_ROW = re.compile(r"^\s*(?:([CG]PU) )?(\d{1,4})\s+(?:->\s+)?((?:(?:N/A|\d+(?:\.\d+)?)(?:\s+|$))+)$")
_DEVICE = re.compile(r"^\s*Device:? ?(\d{1,4})[,:]\s+([^,(]*[^,(\s])")
_ACCESS = re.compile(r"Device=(\d{1,4}) CAN(NOT)? Access Peer Device=(\d{1,4})")
_WAIVED = re.compile(r"^Waiving (\w+)\.?")
_TEST = re.compile(r"^Running (\w+)\.?")
_CPU = re.compile(r"\b(?:Processor|CPU|EPYC|Xeon)\b")
_ANY = re.compile(
    "|".join(
        f"(?:{pattern.pattern.removeprefix('^')})"
        for pattern in (*(head.pattern for head in _HEADS), _P2P, _P2P_LATENCY, _NVB, _COPY, _UCX, _LOCAL, _WRONG)
    )
    + r"|^Waiving \w+_memcpy|\"bandwidth_matrix\"",
    re.M,
)


@dataclass
class PairTables:
    """All that a file says of pairs."""

    matrices: list[Matrix] = field(default_factory=list)
    messages: list[Messages] = field(default_factory=list)
    waived: list[str] = field(default_factory=list)
    without_access: set[Pair] = field(default_factory=set)
    corrupt: str = ""  # the test in which a copy brought other bytes than were sent
    with_access: set[Pair] = field(default_factory=set)
    devices: dict[int, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.matrices or self.messages or self.waived or self.corrupt)


def holds_pairs(text: str) -> bool:
    """Whether the text has a head of such a table.

    >>> holds_pairs("# Size      Bandwidth (MB/s)"), holds_pairs("# Size   Avg Latency(us)")
    (True, False)
    """
    return _ANY.search(text) is not None


def read_pairs(text: str) -> PairTables:
    """What a text says of pairs; nothing where it has no such table.

    >>> read_pairs("# OSU MPI Bandwidth Test v7.2\\n# Size      Bandwidth (MB/s)\\n1024   500.0\\n").messages[0].rows
    [(1024, 0.5, None)]
    """
    if not holds_pairs(text):
        return PairTables()
    start = text.find("{")
    if '"bandwidth_matrix"' in text and start >= 0:
        return _of_json(text[start:])
    reader = _Reader()
    for line in text.splitlines():
        reader.take(_LABEL.sub("", line))
    found = reader.found
    for matrix in found.matrices:
        names = {name for number, name in found.devices.items() if number not in reader.hosts}
        matrix.gpu = names.pop() if len(names) == 1 else ""
        if not matrix.of_host:
            matrix.cells = {p: x for p, x in matrix.cells.items() if not set(p) & reader.hosts}
    found.matrices = [matrix for matrix in found.matrices if any(row != column for row, column in matrix.cells)]
    found.messages = [sweep for sweep in found.messages if sweep.rows]
    return found


class _Reader:
    """Reads the printed forms line by line."""

    def __init__(self) -> None:
        self.found = PairTables()
        self.hosts: set[int] = set()
        self.title = ""
        self.buffers = ""
        self.pairs = 1
        self.ucx_size = 0
        self.ucx_table = False  # whether one has begun, whose last row holds until it says what is final
        self.ucx: Messages | None = None
        self.test = ""  # of nvbandwidth
        self.head: _Head | None = None
        self.sweep: Messages | None = None
        self.matrix: Matrix | None = None
        self.columns: list[tuple[str, int]] = []

    def take(self, line: str) -> None:
        """Files one line."""
        if (matrix := _matrix_in(line)) is not None:
            self.matrix, self.columns, self.head = matrix, [], None
            self.found.matrices.append(matrix)
        elif self.matrix is not None and self._cell(self.matrix, line):
            return
        elif head := next((head for head in _HEADS if head.pattern.search(line)), None):
            self.head, self.matrix = head, None
            both = any(word in self.title for word in ("i-Di", "Bidirectional", "Sendrecv", "Exchange"))
            self.sweep = Messages(self.title, head.tool, [], both, self.buffers, self.pairs)
            self.found.messages.append(self.sweep)
        elif self.head is not None and self.sweep is not None and (row := _NUMBERS.match(line)):
            self._row(row[1].split())
        else:
            if self.ucx_table or any(
                word in line for word in ("Test:", "size", "ucx_perftest", "Final:", "====", "(usec)")
            ):
                self._ucx(line)
            if self.head is not None and may_be_head(line):
                self.head = None  # of a table of another kind
            self._other(line)

    def _ucx(self, line: str) -> None:
        """Files what ucx_perftest says of its test and of a message's size, and its last figures, in MiB/s."""
        begins = _UCX.search(line) is not None
        self.ucx_table |= begins
        if begins:
            self.head = None
        if test := _UCX_TEST.search(line):
            self.title, self.ucx_size, begins = next(filter(None, test.groups())), 0, True
        if size := _UCX_SIZE.search(line):
            self.ucx_size, begins = int(size[1] or size[2]), True
        if begins:
            self.ucx = None
        if (row := _UCX_ROW.match(line)) and (row[1] or self.ucx_table):
            _, _, us, _, rate = map(float, row[2].split())
            if rate <= 0:
                return
            if self.ucx is None:
                self.ucx = Messages(f"ucx_perftest {self.title}".strip(), "ucx_perftest")
                self.found.messages.append(self.ucx)
            self.ucx.rows = [(self.ucx_size, rate * 2**20 / 1e9, us if "lat" in self.title else None)]
            self.ucx = None if row[1] else self.ucx

    def _other(self, line: str) -> None:
        """Files a line that is of no table: what the next table is of, and what the tool says of the devices."""
        if title := next((found[1] for pattern in _TITLES if (found := pattern.search(line))), ""):
            self.title, self.buffers, self.pairs, self.head = title, "", 1, None
        elif buffers := _BUFFERS.search(line):
            self.buffers = f"from {buffers[1].lower()} to {buffers[2].lower()}"
            if self.sweep is not None and not self.sweep.rows:
                self.sweep.buffers = self.buffers
        elif pairs := _PAIRS.search(line):
            self.pairs = int(pairs[1])
        elif device := _DEVICE.match(line):
            self.found.devices[int(device[1])] = device[2]
            if _CPU.search(device[2]):
                self.hosts.add(int(device[1]))
        elif access := _ACCESS.search(line):
            which = self.found.without_access if access[2] else self.found.with_access
            which.add((int(access[1]), int(access[3])))
        elif waived := _WAIVED.match(line.strip()):
            self.found.waived.append(waived[1])
        elif test := _TEST.match(line.strip()):
            self.test = test[1]
        elif _WRONG.search(line):
            self.found.corrupt = self.test or "a test"

    def _row(self, cells: list[str]) -> None:
        """Files a row of a sweep, if it is whole."""
        head, sweep = self.head, self.sweep
        if head is None or sweep is None or len(cells) < head.cells:
            return
        numbers = [float(cell) for cell in cells]
        bandwidth = None if head.bandwidth is None else numbers[head.bandwidth] * head.unit
        latency = None if head.latency is None else numbers[head.latency]
        ways = next((n for name, n in head.ways if name in sweep.test), 0)
        if head.ways and latency:
            bandwidth = ways * numbers[0] / latency / 1e3 if ways else None
            latency = latency if ways == 1 else None
        if int(cells[0]) > 0 and all(x is None or 0 < x < 1e9 for x in (bandwidth, latency)):
            sweep.rows.append((int(cells[0]), bandwidth, latency))

    def _cell(self, matrix: Matrix, line: str) -> bool:
        """Files a row of a matrix or the numbers of its columns; False where the matrix has ended."""
        if not line.strip():
            return True
        if not self.columns:
            if found := _COLUMNS.match(line):
                columns = [(kind or "GPU", int(n)) for kind, n in re.findall(r"(?:([CG]PU) )?(\d+)", found[1])]
                self.columns = columns if len(columns) <= MOST_DEVICES else []
                return True
            return line.lstrip().startswith("SRC")
        row = _ROW.match(line)
        values = row[3].split() if row else []
        if row is None or len(values) != len(self.columns):
            self.matrix, self.columns = None, []
            return False
        for (kind, column), value in zip(self.columns, values, strict=True):
            if value != "N/A" and float(value) > 0 and kind == (row[1] or "GPU") == "GPU":
                matrix.cells[int(row[2]), column] = float(value)
        return True


def _matrix_in(line: str) -> Matrix | None:
    """The matrix that a line begins, still empty."""
    if found := _P2P.search(line):
        kind = f", by {found[3].lower()}" if found[3] else ""
        return Matrix("p2pBandwidthLatencyTest", f"copies{kind}", {}, found[1] == "Bi", False, found[2] == "Enabled")
    if found := _P2P_LATENCY.search(line):
        return Matrix("p2pBandwidthLatencyTest", "latency", {}, False, True, found[1] == "Enabled")
    if found := _NVB.search(line):
        by = "copy engines" if found[1] == "CE" else "kernels"
        part = f", {found[4]}" if found[4] else ""
        both = found[3] == "<->"
        host = found[2] == "CPU"
        ways = {"->": "from the host to a GPU", "<-": "from a GPU to the host"}.get(found[3], "") if host else ""
        return Matrix("nvbandwidth", f"copies by {by}{part}", {}, both, of_host=host, ways=ways)
    if _LOCAL.search(line):
        return Matrix("nvbandwidth", "copies", {}, of_host=True, ways="inside a GPU, each byte read and written")
    if found := _COPY.search(line):
        tool = "TransferBench" if "Local read" in line or "Executor" in line else "rocm-bandwidth-test"
        return Matrix(tool, "copies", {}, found[1] != "Uni")
    return None


def _of_json(text: str) -> PairTables:
    """nvbandwidth --json; of a torn file nothing, as its names stand at the end."""
    found = PairTables()
    try:
        data = json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return found
    for case in _cases(data):
        name = str(case.get("name"))
        if case.get("status") == "Waived":
            found.waived.append(name)
        described = _NVB.search(str(case.get("bandwidth_description")))
        rows = case.get("bandwidth_matrix")
        if not isinstance(rows, list) or not rows:
            continue
        matrix = Matrix(
            "nvbandwidth",
            f"copies, {name}",
            dict(_values(rows)),
            "bidirectional" in name,
            of_host=described[2] == "CPU" if described else "host" in name,
        )
        if matrix.cells and "local" not in name:
            found.matrices.append(matrix)
    return found


def _cases(data: Any) -> Iterable[dict[str, Any]]:
    cases = data.get("nvbandwidth", {}) if isinstance(data, dict) else {}
    cases = cases.get("testcases") if isinstance(cases, dict) else None
    return [case for case in cases if isinstance(case, dict)] if isinstance(cases, list) else []


def _values(rows: list[Any]) -> Iterator[tuple[Pair, float]]:
    for i, row in enumerate(rows[:MOST_DEVICES]):
        for j, value in enumerate(row[:MOST_DEVICES] if isinstance(row, list) else ()):
            try:
                number = float(value)
            except (TypeError, ValueError):
                continue
            if 0 < number < 1e9:
                yield (i, j), number

"""Finds tables of sizes with times or bandwidths in any text, by the names and units of their columns, whatever tool printed them.

A table is a head and rows: aligned by blanks, in Markdown, CSV, records in JSON, or lines of `name: value`. A unit stands in the head, below
it, or in a cell. What the head leaves open (which megabytes, which unit of time, whether a throughput counts both ways) the figures
decide, by size / time; where they contradict each other the table is refused.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import median
from typing import Any

from allranks.theory.schedules import COLLECTIVES

__all__ = [
    "Column",
    "Found",
    "Row",
    "Spoken",
    "as_rows",
    "collective_named",
    "column_of",
    "contradicted",
    "may_be_head",
    "several",
    "spoken",
    "tables",
]

TIMES = {"s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "milliseconds": 1e-3, "us": 1e-6,
         "usec": 1e-6, "usecs": 1e-6, "µs": 1e-6, "μs": 1e-6, "microseconds": 1e-6, "ns": 1e-9, "nsec": 1e-9}  # fmt: skip
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE_UNIT = re.compile(r"([kmgt]?)(i?)(?:b|bytes?)?$", re.I)
_RATE_UNIT = re.compile(r"([kmgt]?)(i?)(b|bits?|bytes?)(?:/s(?:ec(?:ond)?)?|ps)$", re.I)
_NUMBER = r"[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?"
_GROUPED = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")  # thousands, apart by a thin blank
_BLANKS = re.compile(r"(?<![\d.])\d{1,3}(?: \d{3})+(?=\.|\D*$)")
_WITH_COMMA, _WITH_POINT = re.compile(r"\d+,(?:\d{1,2}|\d{4,})|0,\d+"), re.compile(r"\d+\.(?:\d{1,2}|\d{4,})|0\.\d+")
_VALUE = re.compile(rf"~?({_NUMBER})\s*([A-Za-zµμ/]*)")
_UNIT_IN_NAME = re.compile(r"\s*[\[(]\s*(?:in )?([^\])]*)[\])]|,\s*(?:in )?([A-Za-zµμ/]+)$")
_SIZE = re.compile(
    r"(?:(?:message|msg|data|buffer|payload|tensor|transfer|chunk|total|input)[ _-]?)*(?:size|bytes|nbytes|payload|message|msg|length)(?: (?:in )?(?:bytes|b|[kmg]i?b))?"
)
_COUNT = re.compile(r"n?counts?|(?:(?:input|output|num|number of|total) ){0,2}n?elem(?:ent)?s?|numel|nelem\w*|n")
_WIDTH = re.compile(r"(?:d ?type|type|elem(?:ent)?) (?:bytes|size)|item ?size")
_RANKS = re.compile(r"n? ?ranks|n? ?gpus?|num gpus|world ?size|np(?: size)?|n?procs?|processes|devices|npes")
# timeUs, busBandwidth
_CAMEL = re.compile(r"(?<=[a-z]{2})(?=(?:[UMN]s|Sec|Bw|BW|Bandwidth|Time|Latency|Gpus|Ranks|Bytes|Size|Per)(?![a-z]))")
_EACH = re.compile(r"n?(?:gpus|ranks|threads) ?per ?(?:rank|process|thread)")
_WRONG = re.compile(r"wrong|errors?|check(?: result)?|res|validation|valid")
_WHICH = re.compile(r"(?:collective|coll|op|comm op)(?: type| name)?|operation|primitive|test|benchmark|name")
_PLAIN = ("type", "dtype", "redop", "root")
# the less, the better a statistic stands for all calls
_STATISTICS = {"avg": 0, "aveg": 0, "average": 0, "mean": 0, "typical": 1, "p50": 1, "50": 1, "median": 1, "": 2, "min": 3, "minimum": 3, "best": 3,
               "max": 4, "maximum": 4, "peak": 4, "total": 5}  # fmt: skip
_NOISE = re.compile(
    r"p?\d\d(?:\d|\.\d+)?(?: ?%(?:ile)?)?|std\w*|stdev|var\w*|jitter|tail|cv|\S*%\S*|samples|runs|iter\w*|diff\w*|delta|speedup|overhead|msgrate"
)
# words of a name that do not tell one program from another
_WORDS = frozenset(
    "time latency lat duration elapsed bw bwidth bandwidth algbw busbw bus alg algo algorithm throughput tput t us usec per xfer call the of comm "
    "in out place oop op collective rate kernel overall effective and size iteration wall bytes mb gb gbs mbs".split()
)  # fmt: skip
_LABEL = re.compile(
    r"\s*(?:>+(?=\s)|#+(?!\w)|//|\*(?=\s)|\[[^\]]{1,90}\](?:<\w+>)?:?|(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d[\d.,]*Z?(?=[\s|\[])|\d{4}-\d\d-\d\dT[\d:.]+Z?(?=\s)|\([\w.-]+,? (?:\w+=\d+,? ?)+\)|[A-Za-z][\w.-]*:(?=\s)|\d+:(?=\s))"
)
_RULE = re.compile(r"^[\s|+=:_\u2500-\u257f-]*$")
ABROAD = (("消息大小", "size"), ("数据量", "size"), ("大小", "size"), ("大きさ", "size"), ("耗时", "time"), ("时延", "latency"),
          ("延迟", "latency"), ("时间", "time"), ("带宽", "bandwidth"), ("帯域", "bandwidth"))  # fmt: skip
AMOUNTS = frozenset(("size", "count"))
FIGURES = frozenset(("time", "algbw", "busbw", "bw"))
MOST_ROWS = MOST_RECORDS = 200_000
MOST_TRIES = 50  # at JSON over several lines that is none
LONGEST_RECORD = 1 << 18  # characters of one that Python printed
WIDEST = 2000  # characters of a line
ABOVE = 60  # lines in which a sentence may say a table's unit
AHEAD = 6  # lines between a head and its first row


@dataclass(frozen=True)
class Column:
    """What a column holds: `kind` is size, count, width (of an element), ranks, each (ranks of a process), time, algbw, busbw, bw,
    wrong, which, type, redop, root, inplace or "".

    `unit` is what 1 of it is, in bytes, seconds or bytes a second; 0 where nothing says. `apart` are the words that tell it from
    another column of this kind.

    >>> column_of("Avg Latency(us)").kind, column_of("BW average[Gb/sec]").unit, column_of("CustomAR(ms)").apart
    ('time', 125000000.0, 'customar')
    """

    kind: str = ""
    unit: float = 0.0
    apart: str = ""
    rank: int = 2
    binary: bool = True  # whether a unit of a size may stand for powers of 1024


def unit_of(word: str) -> tuple[str, float, bool]:
    """The kind that a unit shows, what 1 of it is, and whether it may be a power of 1024, too; ("", 0, False) for another word.

    >>> unit_of("Gbps"), unit_of("MB/s")[0], unit_of("KiB"), unit_of("usec")
    (('rate', 125000000.0, False), 'rate', ('size', 1024, False), ('time', 1e-06, False))
    """
    plain = word.strip().replace(" ", "")
    if plain.lower() in TIMES:
        return "time", TIMES[plain.lower()], False
    if rate := _RATE_UNIT.fullmatch(plain):
        power, bits = _POWERS[rate[1].lower()], rate[3] == "b" or rate[3].lower().startswith("bit")
        if rate[3] == "b" and plain.islower() and rate[1]:
            return "rate", 0.0, False  # gbps: of bits or of bytes
        return "rate", (1024 if rate[2] else 1000) ** power / (8 if bits else 1), False
    if plain and (size := _SIZE_UNIT.fullmatch(plain)):
        power = _POWERS[size[1].lower()]
        return "size", (1024 if size[2] else 1000) ** power if power else 1, bool(power and not size[2])
    return "", 0.0, False


@lru_cache(maxsize=4096)
def column_of(name: str) -> Column:
    """What a column of this name holds."""
    text = name.strip(" #*`_:~\"'").replace("\\", "")
    for word, english in ABROAD:
        text = text.replace(word, english)
    shown = [unit_of(found[1] or found[2]) for found in _UNIT_IN_NAME.finditer(text)]
    of, unit, loose = next((one for one in shown if one[0]), ("", 0.0, False))
    text = _CAMEL.sub(" ", text)
    plain = re.sub(r"[\W_]+", " ", _UNIT_IN_NAME.sub(" ", text).replace("%", " % ")).strip().lower()
    if not of:
        for word in (text, text.partition("/xfer")[0], *re.split(r"[\s_]+", text)[:0:-1]):
            if word and word.lower() not in ("b", "m", "s", "g", "k", "t", "bytes") and (found := unit_of(word))[0]:
                of, unit, loose = found
                break
    if not of and re.search(r"(?:time|duration|elapsed|latency) s$", plain):
        of, unit = "time", 1.0
    joined = plain.replace(" ", "")
    if plain.startswith(("ip ", "in place ", "inplace ")):
        return Column()
    if joined in ("inplace",):
        return Column("inplace")
    plain = re.sub(r"^(?:oop|op|out of place) (?!type|name)(?=\w)", "", plain)
    words = [re.sub(r"^t(?=avg|min|max|typical)", "", w) for w in plain.split()]
    if any(_NOISE.fullmatch(w) and w not in _STATISTICS for w in words) or "/xfers" in text or "xfers/" in text.lower():
        return Column()
    rank = max((_STATISTICS[w] for w in words if w in _STATISTICS), default=2)
    apart = " ".join(w for w in words if w not in _WORDS and w not in _STATISTICS and not unit_of(w)[0])
    bandwidth = re.search(r"bw\b|bwidth|bandwidth|throughput|\btput", plain)
    if of == "rate" or (bandwidth and of in ("", "rate")):
        kind = (
            "busbw" if re.search(r"\bbus", plain) else "algbw" if re.search(r"\balg|\btput|throughput", plain) else "bw"
        )
        return Column(kind, unit, re.sub(r"\b(?:bus|alg|algo)\w*", "", apart).strip(), rank)
    if of == "time" or (not of and re.fullmatch(r"(?:\w+ ){0,3}(?:time|latency|lat|duration|elapsed)(?: \w+)?", plain)):
        return Column("time", unit, apart, rank)
    if _SIZE.fullmatch(plain) or (of == "size" and (not plain or _SIZE.search(plain))):
        return Column("size", unit, "", 5 if plain.startswith("total") else 2, loose)
    for kind, pattern in (
        ("count", _COUNT),
        ("width", _WIDTH),
        ("ranks", _RANKS),
        ("each", _EACH),
        ("wrong", _WRONG),
        ("which", _WHICH),
    ):
        if pattern.fullmatch(plain):
            return Column(kind)
    if joined in ("avg", "average", "mean", "median", "min", "max", "typical"):
        return Column("statistic", 0.0, "", rank)
    return Column("type" if plain == "dtype" else plain) if plain in _PLAIN else Column()


@dataclass
class Row:
    """One line of figures: bytes, elements, seconds, bytes a second with the half of the last printed digit, and words.

    `rates` are by kind: algbw, busbw, bw. `other` is the bytes if its MB are the others, of 1000 or of 1024, where nothing in the
    row says which; else 0.
    """

    number: int
    nbytes: float = 0.0
    other: float = 0.0
    count: int = 0
    seconds: float = 0.0
    half: float = 0.0  # of the seconds
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


@dataclass
class Found:
    """A table: the numbers of its head's line and of its last one, its head, its columns, and what each of its lines holds in them."""

    first: int
    head: str
    columns: list[Column]
    cells: list[tuple[int, list[str]]] = field(default_factory=list)
    group: str = ""  # the name that stood alone in a line above the next row

    @property
    def kinds(self) -> set[str]:
        """What its columns hold."""
        return {column.kind for column in self.columns}


@dataclass(frozen=True)
class Spoken:
    """What a line of text says of the run: the collective ("" for none, "?" for several), how many ranks, on how many nodes."""

    which: str = ""
    ranks: int = 0
    nodes: int = 0


_COLLECTIVES = re.compile(
    r"(?-i:(?<=[a-z])(AllReduce|AllGather|ReduceScatter|AllToAll))|(?<![A-Za-z])(all[-_ ]?reduce|all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?to[-_ ]?all|all2all|broadcast|bcast"
    r"|(?<=of )(?:reduce|gather|scatter)(?= on\b)|(?<=Collective: )(?:reduce|gather|scatter)\b)(?!v\b)", re.I
)  # fmt: skip
_OTHER_NAMES = {
    "bcast": "broadcast",
    "reduction": "all_reduce",
    "fcollect": "all_gather",
    "reducescatterblock": "reduce_scatter",
    "psum": "all_reduce",
}
_OUR_NAMES = {name.replace("_", ""): name for name in COLLECTIVES} | _OTHER_NAMES
_SPOKEN_RANKS = re.compile(
    r"(?<![\w.])(?:world[_ ]?size|n?ranks|num_gpus|gpus|n_?gpus|processes|procs|np|devices)\s*[=:]\s*(\d{1,6})\b"
    r"|(?<![\w.x-])(?<!each with )(\d{1,6})[ -](?:ranks|processes|workers|PEs)\b(?!\s*(?:per|/\s*[^\s\d]|each|a ))"
    r"|(?<![\w.x-])(?<!each with )(?<!with )(\d{1,6})[ -](?:[A-Z]{1,3}\d{2,4}\w? )?(?:gpus|devices|chips|npus)\b(?!\s*(?:per|/\s*[^\s\d]|each|a ))"
    r"|\s-(?:np?|g)\s(\d{1,6})\b"
    r"|(?<![\w.,×-])(\d{1,3}) ?[x×] ?(?:NVIDIA |AMD |Intel |Tesla |Instinct )?(?-i:[A-Z]{1,3}\d{2,4}[A-Z]{0,2})\b(?!\s*(?:per|/|each))", re.I
)  # fmt: skip
_SPOKEN_NODES = re.compile(
    r"(?<![\w.])(\d{1,5})(?: (?:(?!per\b|each\b)\w+ )?(?:nodes|hosts|servers|machines)|-nodes?)\b|\b(?:nnodes|num_nodes|nodes)\s*[=:]\s*(\d{1,5})\b",
    re.I,
)


def collective_named(word: str) -> str | None:
    """Our name of a collective, however a tool writes it; None for another word.

    >>> collective_named("Reduce-Scatter"), collective_named("bcast"), collective_named("sendrecv")
    ('reduce_scatter', 'broadcast', None)
    """
    return _OUR_NAMES.get(re.sub(r"[\W_]", "", word).lower())


def spoken(line: str) -> Spoken:
    """What a line says of the run.

    >>> spoken("---- Performance of all_reduce on 8 devices ----"), spoken("all-gather and all-reduce on 2 nodes").which
    (Spoken(which='all_reduce', ranks=8, nodes=0), '?')
    """
    if len(line) > WIDEST or "NCCL INFO" in line:
        return Spoken()
    names = {collective_named((found[1] or found[2]).replace("2", "to")) for found in _COLLECTIVES.finditer(line)}
    counts = [
        {int(next(filter(None, found.groups()))) for found in pattern.finditer(line)}
        for pattern in (_SPOKEN_RANKS, _SPOKEN_NODES)
    ]
    ranks, nodes = (found.pop() if len(found) == 1 else 0 for found in counts)
    return Spoken((names.pop() or "") if len(names) == 1 else "?" if names else "", ranks, nodes)


def tables(text: str, known: Callable[[str], bool] = lambda head: False) -> list[Found]:
    """The tables in a text, in their order, without those whose head is `known` to another reader.

    >>> found = tables("| size | busbw (Gbps) |\\n|---|---|\\n| 1 MiB | 2.9 |\\n| 4 MiB | 9.2 |\\n")
    >>> [(table.first, len(table.cells)) for table in found], as_rows(found[0])[0].nbytes
    ([(1, 2)], 1048576.0)
    """
    lines = _pointed(_GROUPED.sub("", text).splitlines())
    found: list[Found] = []
    table: Found | None = None
    others = True  # whether the text has no table of another reader
    for number, line in enumerate(lines, 1):
        if len(line) > WIDEST:
            continue
        head = _head_in(lines, number) if may_be_head(line) else None
        if head is not None and known(line):
            table, others = None, False
        elif head is not None:
            table = head
            found.append(table)
        elif table is not None and len(table.cells) < MOST_ROWS:
            _take(table, number, line)
    whole = [_aligned(one) for one in found if one.cells]
    return whole or (_records(text, lines) or _without_head(lines) if others else [])


def _aligned(table: Found) -> Found:
    """The table, with a column more where each row has one that the head does not name: there, the figures agree."""
    wanted = len(table.columns)
    if any(len(cells) != wanted + 1 for _, cells in table.cells):
        return table
    ways = [table] + [
        replace(table, columns=[*table.columns[:place], Column(), *table.columns[place:]]) for place in range(wanted)
    ]
    return next((way for way in ways if _agrees(way)), table)


def _agrees(table: Found) -> bool:
    """Whether size / time is the bandwidth beside it, and names stand where names belong."""
    which = next((place for place, column in enumerate(table.columns) if column.kind == "which"), None)
    rows = as_rows(table, several(table)[0])
    named = which is None or all(re.match("[A-Za-z]", cells[which]) for _, cells in table.cells)
    return named and any(row.seconds and row.rates for row in rows) and _how_far(rows) < CLOSE


def _pointed(lines: list[str]) -> list[str]:
    """The lines with decimal points, where all of them have decimal commas."""
    with_comma = [line.strip() for line in lines if "," in line and len(line) <= WIDEST]
    words = [word for line in with_comma if len(row := re.split(r"[;|\s]+", line)) > 1 for word in row]
    cells = [cell.split()[0] for line in with_comma if line.count(";") > 1 for cell in line.split(";") if cell.strip()]
    sure = sum(_WITH_COMMA.fullmatch(word) is not None for word in words)
    likely = any(re.fullmatch(r"\d+,\d+", cell) for cell in cells)  # beside semicolons, a comma parts no thousands
    thousands = any(re.fullmatch(r"\d{1,3}(?:,\d{3}){2,}", word) for word in words)
    if (
        (sure < 2 and not likely)
        or thousands
        or any(
            _WITH_POINT.fullmatch(word) for line in lines if len(line) <= WIDEST for word in re.split(r"[;|,\s]+", line)
        )
    ):
        return lines
    return [re.sub(r"(?<=\d),(?=\d)", ".", re.sub(r"(?<=\d)\.(?=\d{3}(?!\d))", "", line)) for line in lines]


def unread_head(lines: Sequence[str]) -> str:
    """The first head that lines of numbers follow, where they are no rows of it that can be read; else ""."""
    for place, line in enumerate(lines):
        both = (
            f"{line} {lines[place + 1]}" if place + 1 < len(lines) and not re.search(r"\d", lines[place + 1]) else line
        )
        if (may_be_head(line) or may_be_head(both)) and re.search(r"\S(?:\s{2,}|\s*\|\s*)\S", _unlabelled(line)):
            below = (re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", row) for row in lines[place + 1 : place + 5])
            if any(len(numbers) > 1 for numbers in below):
                return " ".join(_unlabelled(line).split())
    return ""


def of_sizes(head: str) -> bool:
    """Whether a head has a column of sizes or of elements."""
    return any(AMOUNTS & {column_of(name).kind for name in way} for way in _ways(head))


def may_be_head(line: str) -> bool:
    """Whether a line may be a head: some names of columns, one of them of a size, and no number that stands alone."""
    return (
        _OF_SIZES.search(line) is not None
        and "NCCL INFO" not in line
        and ("|" in line or _OF_FIGURES.search(line) is not None or _FIRST_SIZE.match(_unlabelled(line)) is not None)
        and not re.search(r"(?<![\w.\[(#@-])\d[\d.]*(?![\w%.)])", _unlabelled(line))
    )


_OF_SIZES = re.compile(r"size|byte|count|elem|payload|message|msg|length|大|数据", re.I)
_FIRST_SIZE = re.compile(r"(?:\w+ )?(?:size|bytes|elements|numel)s?(?:\t|;| {2,}| +[A-Z])", re.I)
_OF_FIGURES = re.compile(r"time|lat|dura|bw|band|thr|tput|avg|/s|usec|\((?:us|ms|µs)\)|[µu]s\b", re.I)


def _head_in(lines: list[str], number: int) -> Found | None:
    """The table whose head is this line, if the next ones have a row of it."""
    line = lines[number - 1]
    ways = list(_ways(line))
    if all(word.startswith("(") for word in _unlabelled(line).split()):
        return None  # the units of a head
    units: list[str] = []
    for place in range(number, min(number + AHEAD, len(lines))):
        below = lines[place]
        if _RULE.match(below) or not below.strip(" \t#"):
            continue
        bare = _unlabelled(below)
        if len(below) > WIDEST or (may_be_head(below) and not re.search(r"\d", bare)):
            return None
        words = bare.replace("|", " ").split()
        if all(re.fullmatch(r"\(?[A-Za-zµμ/%]+(?:\(\w+\))?\)?", word) for word in words):
            units = words
            continue
        for more in (0, 1):  # a row may have a cell more than the head has names
            for way in ways:
                columns = _with_units([column_of(name) for name in way], units)
                kinds = {column.kind for column in columns}
                if not AMOUNTS & kinds or not FIGURES & kinds:
                    columns = _by_cells(columns, way, below, _said_unit(lines[max(0, number - ABOVE) : number]))
                    kinds = {column.kind for column in columns}
                if not AMOUNTS & kinds or not FIGURES & kinds:
                    continue
                table = Found(number, " ".join(_unlabelled(line).split()), columns)
                _take(table, place + 1, below)
                if not table.cells and more and columns[0].kind == "which" and place + 1 < len(lines):
                    _take(table, place + 2, lines[place + 1])
                if table.cells and len(table.cells[0][1]) in (len(columns), len(columns) + more):
                    return replace(table, cells=[])
    return None


_COMPARED = re.compile(r"speed ?-?up|ratio|gain|improve|diff|vs\b|%|std|var", re.I)  # columns of no measurement
_SAID_UNIT = re.compile(
    r"\b(?:times?|latenc(?:y|ies)|durations?|bandwidths?|throughputs?|results|numbers|figures|values)\b(?: \w+){0,4}? (?:in|as) ([A-Za-zµμ/]+)\b",
    re.I,
)


def _said_unit(lines: Sequence[str]) -> tuple[str, float]:
    """The kind and the unit of figures that a sentence above a table says: `all times are in milliseconds`."""
    for line in reversed(lines):
        for word in _SAID_UNIT.findall(line) if len(line) <= WIDEST else ():
            of, unit, _ = unit_of(word)
            if of in ("time", "rate"):
                return {"rate": "bw"}.get(of, of), unit
    return "", 0.0


def _by_cells(columns: list[Column], names: list[str], row: str, said: tuple[str, float]) -> list[Column]:
    """The columns; those whose names tell nothing are figures of the programs that they name, by a unit in the cells or the text."""
    for cells in _cells_in(row, _unlabelled(row)):
        found = list(columns)
        for place, (column, cell) in enumerate(zip(columns, cells, strict=False)):
            value = _value(cell) if not column.kind and not _COMPARED.search(names[place]) else None
            of = (
                {"time": "time", "rate": "bw", "size": "size"}.get(unit_of(value[2])[0], "")
                if value and value[2]
                else ""
            )
            if of == "size":
                found[place] = Column(of)
            elif of or (value and not value[2] and said[0] and "." in cell):
                found[place] = Column(of or said[0], 0.0 if of else said[1], names[place].strip(" *`#").lower())
        if len(cells) == len(columns) and found != columns:
            return found
    return columns


def _ways(line: str) -> Iterator[list[str]]:
    """How a head may be split into names."""
    if "|" in line:
        yield _split(line)
        return
    bare = _unlabelled(line).strip()
    if "," in bare and (names := next(csv.reader([bare]), [])) and len(names) > 1:
        yield names
    if "\t" in bare or ";" in bare:
        yield re.split("[\t;]", bare)
    wide = re.split(r"\s{2,}|\t", bare)
    if len(wide) > 1:
        yield wide
    words = re.sub(r"\s+(?=[\[(])", "", re.sub(r"(?<=[\[(])\s+|\s+(?=[\])])", "", bare)).split()
    yield words
    joined: list[str] = []
    for word in words:
        if joined and re.fullmatch(
            r"(?:avg|average|mean|min|max|total|bw|message|msg|peak|bus|alg|comm\.?|data)", joined[-1], re.I
        ):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    yield joined


def _with_units(columns: list[Column], below: list[str]) -> list[Column]:
    """The columns with the units of the line below the head, or with its statistics: avg, min, max of each."""
    if not below:
        return columns
    shown = [column_of(word) for word in below]
    if all(one.kind == "statistic" for one in shown):
        plain = [c for c in columns if c.kind not in FIGURES]
        grouped = [c for c in columns if c not in plain]
        if grouped and len(shown) % len(grouped) == 0:
            each = len(shown) // len(grouped)
            return plain + [replace(grouped[i // each], rank=one.rank) for i, one in enumerate(shown)]
        return columns
    found, units = list(columns), [unit_of(word.strip("()")) for word in below if word.startswith("(")]
    of = {"size": "size", "time": "time", "algbw": "rate", "busbw": "rate", "bw": "rate"}
    for place, column in enumerate(found):
        if column.kind in of and not column.unit:
            fits = next((i for i, one in enumerate(units) if one[0] == of[column.kind]), None)
            if fits is not None:
                found[place] = replace(column, unit=units.pop(fits)[1])
    return found


def _unlabelled(line: str) -> str:
    """The line without what launchers, quotes and comments put before it."""
    while (found := _LABEL.match(line)) and not column_of(found[0]).kind:
        line = line[found.end() :]
    return line


def _split(line: str) -> list[str]:
    cells = [cell.strip(" *`~") for cell in re.split(r"[|\u2502]", _unlabelled(line))]
    if cells and not cells[0]:
        cells = cells[1:]
    return cells[:-1] if cells and not cells[-1] else cells


def _take(table: Found, number: int, line: str) -> None:
    """Puts a line into the table, if it is one of its rows."""
    if not re.search(r"\d", line):
        table.group = line.strip() if len(line.split()) == 1 else table.group
        return
    wanted = len(table.columns)
    bare = _unlabelled(line)
    for cells in (
        [next(csv.reader([bare]), [])]
        if re.search(r",(?! )", table.head) and "|" not in table.head
        else _cells_in(line, bare)
    ):
        if len(cells) in (wanted, wanted + 1) and _is_row(table.columns, cells):
            table.cells.append((number, cells))
            return
        if len(cells) == wanted - 1 and table.columns[0].kind == "which" and _is_row(table.columns[1:], cells):
            table.cells.append((number, [table.group, *cells]))  # the name stands in a line of its own
            return
        if (
            wanted + 1 < len(cells)
            and "|" not in line
            and _is_row(table.columns, cells)
            and re.match(r"<|-{2,}|#", cells[wanted])
        ):
            table.cells.append((number, cells[:wanted]))  # a remark behind the row
            return


def _cells_in(line: str, bare: str) -> Iterator[list[str]]:
    if "|" in line:
        yield _split(line)
        return
    if "\t" in bare or ";" in bare:
        yield re.split("[\t;]", bare)
    tokens = bare.split()
    joined: list[str] = []
    for token in tokens:
        if joined and unit_of(token)[0] and re.fullmatch(_NUMBER, joined[-1]):
            joined[-1] += f" {token}"
        else:
            joined.append(token)
    yield joined
    if len(joined) != len(tokens):
        yield tokens


def _is_row(columns: Sequence[Column], cells: Sequence[str]) -> bool:
    """Whether the sizes and all figures of a line are numbers, as far as the table has any."""
    figures = [(c, cell) for c, cell in zip(columns, cells, strict=False) if c.kind in FIGURES]
    sizes = [cell for c, cell in zip(columns, cells, strict=False) if c.kind in AMOUNTS]
    return all(_value(cell) for cell in sizes) and any(_value(cell) for _, cell in figures)


def _value(cell: str) -> tuple[float, float, str] | None:
    """A printed number, the half of its last digit, and the unit behind it."""
    found = _VALUE.fullmatch(_BLANKS.sub(lambda digits: digits[0].replace(" ", ""), cell.strip(" *`~")))
    if found is None or (found[2] and not unit_of(found[2])[0]):
        return None
    digits, _, power = found[1].replace(",", "").lower().partition("e")
    half = 0.5 * 10.0 ** -len(digits.partition(".")[2]) * 10.0 ** int(power or 0)
    return float(found[1].replace(",", "")), half, found[2]


def _without_head(lines: Sequence[str]) -> list[Found]:
    """A table whose cells have their units: at least three lines of a size and figures."""
    table = Found(0, "", [])
    for number, line in enumerate(lines, 1):
        parts = (
            re.findall(rf"(?<![\w.,])({_NUMBER})\s*([A-Za-zµμ][A-Za-zµμ/]*)(?![\w/])", _unlabelled(line))
            if len(line) <= 300
            else []
        )
        shown = [(f"{value} {unit}", unit_of(unit)[0]) for value, unit in parts]
        kinds = [kind for _, kind in shown]
        if len(shown) < 2 or kinds[0] != "size" or not set(kinds[1:]) <= {"time", "rate"}:
            continue
        columns = [Column({"rate": "bw"}.get(kind, kind), 0.0) for kind in kinds]
        if not table.columns:
            table.first, table.columns = number, columns
        if len(columns) == len(table.columns):
            table.cells.append((number, [cell for cell, _ in shown]))
    return [table] if len(table.cells) > 2 else []


_NAMED = re.compile(
    r"([A-Za-z#_][\w #./-]{0,40}?(?:\s?\([^()]{1,12}\))?)\s*[:=]\s*([^|,;=]*?)(?=\s*[|,;]|\s+[A-Za-z_][\w ]{0,30}(?:\s?\([^()]{1,12}\))?\s*[:=]|\s+\(|\s*$)"
)
_OF_SIZE = re.compile(rf"({_NUMBER})\s?([KMGT]i?B|bytes)\b(?=\s+(?:payload|data|message|buffer|tensor|msg))", re.I)


def _records(text: str, lines: Sequence[str]) -> list[Found]:
    """Records that name their figures: JSON, `name: value | name: value`, and a few lines with one name each."""
    found: dict[tuple[str, ...], Found] = {}

    def add(number: int, record: dict[str, str]) -> bool:
        columns = {name: column_of(name) for name in record}
        kinds = {c.kind for c in columns.values()}
        cells = list(record.values())
        if not AMOUNTS & kinds or not FIGURES & kinds or not _is_row(list(columns.values()), cells):
            return False
        told = [name for name, column in columns.items() if column.kind or re.search("[A-Za-z]", record[name])]
        table = found.setdefault(tuple(told), Found(number, " ".join(told), [columns[name] for name in told]))
        if len(table.cells) < MOST_ROWS:
            table.cells.append((number, [record[name] for name in told]))
        return True

    for record in _json_records(text):
        add(0, record)
    if found:
        return list(found.values())
    kept: dict[str, str] = {}
    last = 0
    for number, line in enumerate(lines, 1):
        if len(line) > WIDEST or not re.search(r"\d", line) or "NCCL INFO" in line:
            continue
        parts = _NAMED.findall(_unlabelled(line) if "|" not in line else line)
        named = {_last_name(name): value.strip() for name, value in parts}
        if "|" in line and add(number, named):
            continue
        which = {"collective": told} if (told := spoken(line).which) not in ("", "?") else {}
        useful = {
            name: value
            for name, value in named.items()
            if column_of(name).kind in ("size", "time", "algbw", "busbw", "bw") and _value(value)
        }
        if size := _OF_SIZE.search(line):
            kept, useful = {}, useful | {"size": f"{size[1]} {size[2]}"}
        elif any(column_of(name).kind == "size" for name in useful):
            kept = {}
        if number - last > 3:
            kept = {}
        if useful:
            kept, last = kept | useful | which, number
            if "size" in {column_of(name).kind for name in kept} and number_of_rates(kept) and not _more(lines, number):
                add(number, kept)
                kept = {}
    return list(found.values())


def _last_name(words: str) -> str:
    """The name before a colon or an equals sign, without other words of its sentence."""
    words = words.strip()
    return words.rsplit(" ", 1)[1] if not column_of(words).kind and spoken(words).which and " " in words else words


def number_of_rates(record: dict[str, str]) -> int:
    """How many times and bandwidths a record has."""
    return sum(column_of(name).kind in FIGURES for name in record)


def _more(lines: Sequence[str], number: int) -> bool:
    """Whether the next line names another figure of this record, and no size of its own."""
    below = _unlabelled(lines[number]) if number < len(lines) else ""
    kinds = {column_of(_last_name(name)).kind for name, value in _NAMED.findall(below) if _value(value)}
    return bool(kinds & {"time", "algbw", "busbw"}) and "size" not in kinds and not _OF_SIZE.search(below)


def _json_records(text: str) -> Iterator[dict[str, str]]:
    """The records of JSON, of Python's lists and dicts as it prints them, or of lines of either, among other text."""
    decoder, at, tries = json.JSONDecoder(), 0, MOST_TRIES
    starts = re.compile(r"^[^\S\n]*(?=[{\[])", re.M)
    for _ in range(MOST_RECORDS):
        found = starts.search(text, at)
        if found is None:
            return
        at = found.end()
        end = text.find("\n", at)
        line = text[at : end if end >= 0 else len(text)].rstrip(" \r")
        value: Any = None
        if len(line) == 1 and not tries:
            at += 1
            continue
        try:  # of the line alone, as an error looks at all that stands before it
            value, used = decoder.raw_decode(line)
            at += used
        except (ValueError, RecursionError):
            if line[-1:] in "{[," and tries:
                try:
                    value, used = decoder.raw_decode(text[at:])
                    at += used
                except (ValueError, RecursionError):
                    tries -= 1
            elif len(line) <= LONGEST_RECORD and re.match(r"[\[{]\s*[\[{'\"(]", line) and "'" in line:
                with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                    value = ast.literal_eval(line.rstrip(","))
            if value is None or at == found.end():
                at += max(1, len(line))
        yield from _of_json(value, {}, 0)


_OF_A_RUN = ("config", "args", "parameters", "settings", "meta", "metadata")


def _of_json(value: Any, around: dict[str, str], depth: int) -> Iterator[dict[str, str]]:
    if depth > 8:
        return
    if isinstance(value, list):
        for one in value:
            yield from _of_json(one, around, depth + 1)
    elif isinstance(value, dict):
        here = _scalars(value)
        for name, one in value.items():
            if isinstance(one, dict) and (statistics := _scalars(one)) and column_of(str(name)).kind in FIGURES:
                here |= {f"{name} {word}": figure for word, figure in statistics.items()}  # {"time": {"avg": 1}}
            elif isinstance(one, dict) and str(name).lower() in _OF_A_RUN:
                around = around | _of_run(_scalars(one))
        told = around | _of_run(here)
        if number_of_rates(here):
            yield told | here
        for name, one in value.items():
            if isinstance(one, (dict, list)) and not re.fullmatch(r"in[_ -]?place", str(name), re.I):
                which = spoken(str(name)).which
                by_name = {"size": str(name)} if str(name).isdigit() else {"collective": which} if which else {}
                yield from _of_json(one, told | by_name, depth + 1)


def _scalars(of: dict[Any, Any]) -> dict[str, str]:
    return {str(k): str(v) for k, v in of.items() if isinstance(v, (str, int, float)) and len(str(v)) < 80}


def _of_run(record: dict[str, str]) -> dict[str, str]:
    """What of a record holds for the records in it and beside it, too."""
    return {
        k: v for k, v in record.items() if column_of(k).kind in ("ranks", "which", "size", "type", "redop", "count")
    }


def as_rows(table: Found, apart: str = "") -> list[Row]:
    """The figures of a table in bytes, seconds and bytes a second.

    `apart` is which of several programs' columns is meant.
    """
    chosen: dict[str, int] = {}
    lone = len(several(table)) == 1
    for place, column in enumerate(table.columns):
        if (
            not column.kind
            and "label" not in chosen
            and all(place < len(cells) and re.search("[A-Za-z]", cells[place]) for _, cells in table.cells)
        ):
            chosen["label"] = place
        elif column.kind and (lone or column.apart in ("", apart)):
            before = chosen.get(column.kind)
            if before is None or _better(column, table.columns[before], apart):
                chosen[column.kind] = place
    if (
        "time" in chosen and table.columns[chosen["time"]].rank > 2
    ):  # the least or the most: no time of the bandwidth beside it
        if any(kind in chosen and table.columns[chosen[kind]].rank < 3 for kind in ("algbw", "busbw", "bw")):
            del chosen["time"]
    rows = [row for number, cells in table.cells if (row := _row(table.columns, chosen, number, cells)) is not None]
    return _settled(table, chosen, rows)


def _better(column: Column, before: Column, apart: str) -> bool:
    return (column.apart == apart, -column.rank, bool(column.unit)) > (
        before.apart == apart,
        -before.rank,
        bool(before.unit),
    )


def several(table: Found) -> list[str]:
    """The words that tell several programs' columns of one kind apart; [""] for a table of one.

    >>> several(tables("Size  CustomAR(ms)  TorchSymmMem(ms)\\n32K  0.049  0.090\\n")[0])
    ['customar', 'torchsymmmem']
    """
    for kind in ("time", "busbw", "algbw", "bw"):
        names = list(dict.fromkeys(c.apart for c in table.columns if c.kind == kind))
        if len(names) > 1:
            return names
    return [next((c.apart for c in table.columns if c.kind in ("time", "busbw", "algbw", "bw") and c.apart), "")]


def _row(columns: Sequence[Column], chosen: dict[str, int], number: int, cells: Sequence[str]) -> Row | None:
    row = Row(number)
    for kind, place in chosen.items():
        if place >= len(cells):
            continue
        cell, column = cells[place], columns[place]
        value = _value(cell)
        if kind == "wrong":  # of results out of place and in place
            row.words[kind] = " ".join(w for c, w in zip(columns, cells, strict=False) if c.kind == kind)
            continue
        if kind in ("which", "type", "redop", "root", "ranks", "inplace", "label", "width", "each"):
            row.words[kind] = cell.strip()
            continue
        if value is None:
            continue
        figure, half, unit = value
        scale = unit_of(unit)[1] if unit else column.unit
        if kind == "size":
            row.nbytes = figure * (scale or 1)
            row.words["unit"] = unit
        elif kind == "count":
            row.count = int(figure)
        elif kind == "time":
            row.seconds, row.half = figure * (scale or 1), half * (scale or 1)
            row.words["time"] = "" if scale else "?"
        else:
            row.rates[kind] = figure * (scale or 1), half * (scale or 1)
            row.words[kind] = "" if scale else "?"
    if row.words.get("each", "").isdigit() and row.words.get("ranks", "").isdigit():
        row.words["ranks"] = str(int(row.words["ranks"]) * max(1, int(row.words["each"])))
    return None if row.words.get("inplace", "0").lower() in ("1", "true") else row


WIDTHS = (("8", 1), ("16", 2), ("half", 2), ("64", 8), ("double", 8))
CLOSE = 0.04  # on that scale: 3 %, more than rounding, less than from MB to MiB
MOST_PEERS = 8  # farther on, whole multiples of a size in MB and in MiB can't be told apart


def _settled(table: Found, chosen: dict[str, int], rows: list[Row]) -> list[Row]:
    """Decides by the figures what the head leaves open."""
    place = chosen.get("size")
    widths = [1]
    if place is None:
        widths = [1] if any(row.words.keys() & {"type", "width"} for row in rows) else [4, 2, 8, 1]
        for row in rows:
            kind, width = row.words.get("type", "").lower(), row.words.get("width", "")
            each = int(width) if width.isdigit() else next((n for part, n in WIDTHS if part in kind), 4)
            row.nbytes = row.count * (1 if len(widths) > 1 else each)
    loose = place is not None and (
        (table.columns[place].binary and table.columns[place].unit > 1)
        or any(unit_of(r.words.get("unit", ""))[2] for r in rows)
    )
    timed = [row for row in rows if row.seconds and (row.rates.get("algbw") or row.rates.get("bw"))]
    if loose:
        grown = [replace(row, nbytes=_binary(row, table.columns[place or 0])) for row in rows]
        near, far = sorted((grown, rows), key=_how_far)
        by_figures = timed and _how_far(near) < CLOSE < 2.5 * (_how_far(far) - _how_far(near))
        taken = near if by_figures or _doubling(grown) != (near is rows) else far
        left = [0.0 if by_figures else row.nbytes for row in (rows if taken is grown else grown)]
        rows = [replace(row, other=nbytes) for row, nbytes in zip(taken, left, strict=True)]
    open_kinds = [kind for kind in ("algbw", "busbw", "bw") if any(row.words.get(kind) == "?" for row in rows)]
    times = (1e-6, 1e-3, 1.0) if any(row.words.get("time") == "?" for row in rows) else (1.0,)
    rates = (1e9, 1.25e8, 1e6) if open_kinds else (1.0,)
    ways = [
        [_scaled(replace(row, nbytes=row.nbytes * width), time, open_kinds, rate) for row in rows]
        for width in widths
        for time in times
        for rate in rates
    ]
    best = min(ways, key=_how_far)
    if len(widths) > 1 and _how_far(best) < CLOSE:
        return best
    return best if _how_far(best) < _how_far(ways[0]) - 2 else ways[0]  # nccl-tests' units, unless they are far off


def _scaled(row: Row, time: float, kinds: Sequence[str], unit: float) -> Row:
    """The row with its open units as these."""
    rates = {kind: (a * unit, b * unit) if kind in kinds else (a, b) for kind, (a, b) in row.rates.items()}
    return replace(row, seconds=row.seconds * time, half=row.half * time, rates=rates)


def _binary(row: Row, column: Column) -> float:
    """The bytes, if the unit is a power of 1024."""
    of, scale, loose = (
        unit_of(row.words.get("unit", "")) if row.words.get("unit") else ("size", column.unit, column.binary)
    )
    power = round(math.log(scale, 1000)) if of == "size" and loose and scale > 1 else 0
    return round(row.nbytes * 1.024**power, 3)


def _doubling(rows: Sequence[Row]) -> bool:
    """Whether the sizes are powers of two of bytes, or of thousands of them in steps of two."""
    sizes = [row.nbytes for row in rows]
    return all(size == int(size) and int(size) % 512 == 0 for size in sizes if size >= 1024)


def _how_far(rows: Sequence[Row]) -> float:
    """How far, in the median, size / time lies from a bandwidth that is printed, or a small whole multiple, on a logarithmic scale."""
    far = []
    for row in rows:
        rate = row.rates.get("algbw") or row.rates.get("bw")
        if rate and rate[0] > 4 * rate[1] and row.seconds and row.nbytes:
            ratio = rate[0] * row.seconds / row.nbytes
            whole = min(max(round(ratio), 1), MOST_PEERS)
            far.append(abs(math.log2(ratio / whole)) + 0.01 * (whole > 1))
    return median(far) if far else 0.0


def contradicted(rows: Iterable[Row]) -> str:
    """In words, what of the figures can't be: size / time, and a bandwidth that is not a whole multiple of it everywhere; or ""."""
    ratios = []
    for row in rows:
        rate = row.rates.get("algbw")
        if rate and rate[0] > 20 * rate[1] and row.seconds > 20 * row.half and row.nbytes:
            ratios.append((rate[0] * row.seconds / row.nbytes, row))
    if len(ratios) < 2:
        return ""
    low, high = min(ratios, key=lambda r: r[0]), max(ratios, key=lambda r: r[0])
    if high[0] < 1.15 * low[0]:
        return ""
    worst = max(ratios, key=lambda r: abs(math.log(r[0])))
    return (
        f"{worst[1].nbytes:.0f} bytes in {1e6 * worst[1].seconds:.4g} µs are {worst[1].nbytes / worst[1].seconds / 1e9:.4g} GB/s, and the "
        f"table says {worst[1].rates['algbw'][0] / 1e9:.4g}"
    )

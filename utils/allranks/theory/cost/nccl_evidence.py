"""What a table of nccl-tests proves by itself: its columns, the collective, how many ranks ran, and on how many nodes.

The printed figures are rounded; each is taken as the range that it may stand for. Formulas: nccl-tests' doc/PERFORMANCE.md.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from allranks.base.errors import counted
from allranks.theory.cost.terms import CostError

__all__ = [
    "by_columns",
    "by_world",
    "columns_of",
    "count_of_nodes",
    "count_of_ranks",
    "named",
    "ran_alone",
    "ranks_allowed",
]

MOST_RANKS = 1 << 17
_WIDTH = {"int8": 1, "uint8": 1, "half": 2, "float16": 2, "bfloat16": 2, "int64": 8, "uint64": 8, "double": 8}
_RATIO, _COMMAND = "busbw / algbw", "the command line"  # what says how many ranks ran
_MPI = "build nccl-tests with MPI=1 MPI_HOME=..., so that its processes find each other"
Cells = dict[str, str]
Device = tuple[int, str, int]  # the rank, its host, and the device's number there


def named(columns: Sequence[str], cells: Sequence[str]) -> Cells:
    """Names and cells, of a name that stands twice (out of place, in place) the first.

    >>> named(["size", "time", "time"], ["8", "1.5", "2.5"])
    {'size': '8', 'time': '1.5'}
    """
    found: Cells = {}
    for name, cell in zip(columns, cells, strict=False):
        found.setdefault(name, cell)
    return found


def columns_of(rows: list[tuple[int, list[str]]]) -> list[str]:
    """The columns of rows whose head was not pasted: the time stands where size / time is the algbw beside it.

    Raises CostError where no place fits.

    >>> columns_of([(1, "65536 16384 float sum -1 18.95 3.46 6.05 0".split())])[5:8]
    ['time', 'algbw', 'busbw']
    """
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


def by_columns(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """The collective that the columns and figures leave no doubt about; None for the others.

    A busbw above the algbw is that of an all_reduce, whose factor alone, 2(p-1)/p, is more than 1. Only alltoall and sendrecv
    check no result in place; an alltoall has a part of the count for each rank, and no operation.

    >>> by_columns(["size", "algbw", "busbw"], [["1048576", "37.78", "66.11"]])
    'all_reduce'
    """
    cells = [named(columns, row) for row in rows]
    if not cells:
        return None
    above = [found for row in cells if (found := _compared(row)) is not None]
    if sum(above) > 0.5 * len(above) > 0:
        return "all_reduce"
    last = cells[-1]
    size, count, width = last.get("size", ""), last.get("count", ""), _WIDTH.get(last.get("type", ""), 4)
    root = last.get("root", "-1")  # old versions print it for tests that have one only
    if "redop" not in last or not size.isdigit() or not count.isdigit():
        return None
    if last["redop"] in ("none", ""):
        return "all_to_all" if root == "-1" and _is_alltoall(columns, rows, cells) else None
    if root != "-1":
        return "reduce"
    if _checked_apart(columns, rows):
        return "sendrecv"
    return "all_reduce" if int(count) * width == int(size) else "reduce_scatter"


def _compared(row: Cells) -> bool | None:
    """Whether a row's busbw is above its algbw; None where they are not printed precisely enough to be compared."""
    alg, bus = _printed(row.get("algbw", "")), _printed(row.get("busbw", ""))
    if alg is None or bus is None or alg[0] <= 20 * alg[1]:
        return None
    return bus[0] - bus[1] > alg[0] + alg[1]


def _is_alltoall(columns: Sequence[str], rows: Sequence[Sequence[str]], cells: Sequence[Cells]) -> bool:
    low, high = ranks_allowed("all_to_all", cells)
    parts = [int(c["count"]) * _WIDTH.get(c["type"], 4) * low == int(c["size"]) for c in cells if c["count"].isdigit()]
    return low == high and _checked_apart(columns, rows) and all(parts)


def _checked_apart(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether results out of place were checked, and those in place were not."""
    marks = [i for i, name in enumerate(columns) if name in ("#wrong", "wrong", "error")]
    if len(marks) != 2:
        return False
    checked = [(row[marks[0]], row[marks[1]]) for row in rows if len(row) > marks[1]]
    return bool(checked) and all(a != "N/A" and b == "N/A" for a, b in checked)


def count_of_ranks(
    collective: str, rows: list[Cells], devices: Sequence[Device], said: Sequence[int | None], known: int | None
) -> tuple[int, str]:
    """How many ranks ran, by the table's own evidence, and a note where the sources differ. Raises CostError.

    `devices` are the lines of devices; `said` is what the tool's own line, NCCL's log and the launcher's command line say,
    `known` what the reader of the table does.

    >>> count_of_ranks("all_reduce", [{"algbw": "171.72", "busbw": "300.51"}], [], (None, None, None), None)[0]
    8
    """
    low, high = ranks_allowed(collective, rows)
    alone, listed = ran_alone(devices), [rank for rank, _, _ in devices]
    if high == 1:
        if alone:
            raise CostError(f"busbw is 0 and {alone}")
        raise CostError("busbw is 0: one rank ran alone, which sends nothing; run at least two (-g 2, or with MPI)")
    if alone:
        raise CostError(alone)
    told = max(listed) + 1 if listed else None
    sources = (
        (said[0], "its own line"),
        (told, "the highest rank"),
        (known, "--ranks"),
        (said[1], "NCCL's log"),
        (said[2], _COMMAND),
    )
    for count, by in sources:
        if count and low <= count <= high:
            return count, _why_ranks(count, listed, known, _RATIO if low == high else by)
    if low == high:
        return low, _why_ranks(low, listed, known, _RATIO)
    parts = _by_parts(collective, rows)
    if parts and low <= parts <= high:
        return parts, f"{parts} ranks by size / count: a count is one rank's part"
    if high < MOST_RANKS:
        raise CostError(f"its busbw and algbw are those of {low} to {high} ranks; say with --ranks how many")
    raise CostError("nothing in it says how many ranks ran; say it with --ranks")


def ran_alone(devices: Sequence[Device]) -> str:
    """What lines of devices show that have one rank on two hosts, or rank 0 alone several times: processes that know nothing
    of each other; else "". A run that was begun anew lists each rank again, on its own host.

    >>> ran_alone([(0, "a", 0), (1, "a", 1), (0, "b", 0)])[:48]
    'rank 0 is listed 2 times: 2 processes ran alone,'
    >>> ran_alone([(0, "a", 0), (1, "b", 0), (0, "a", 0), (1, "b", 0)])
    ''
    """
    listed, hosts = [rank for rank, _, _ in devices], {(rank, host) for rank, host, _ in devices}
    rank, times = max(Counter(listed).items(), key=lambda item: item[1], default=(0, 1))
    if times < 2 or (set(listed) != {0} and len(hosts) == len(set(listed))):
        return ""
    return f"rank {rank} is listed {times} times: {times} processes ran alone, and sent each other nothing; {_MPI}"


def by_world(collective: str, rows: Sequence[Cells]) -> list[list[int]]:
    """The places of the rows of each number of ranks, where one table has several; else all places together.

    A table that was put together of several runs has a size more than once, with a busbw / algbw that differs. Rows that do
    not show their number are left out then.

    >>> row = {"size": "8192", "algbw": "131.87", "busbw": "230.77"}
    >>> by_world("all_reduce", [row, row | {"algbw": "30.49", "busbw": "57.17"}, row])
    [[0, 2], [1]]
    """
    whole = [list(range(len(rows)))]
    if len({row.get("size") for row in rows}) == len(rows):
        return whole
    ranges = [ranks_allowed(collective, [row]) for row in rows]
    exact = {place: low for place, (low, high) in enumerate(ranges) if 1 < low == high}
    worlds = sorted(set(exact.values()))
    sizes = {world: {rows[p].get("size") for p, of in exact.items() if of == world} for world in worlds}
    twice = any(sizes[a] & sizes[b] for a in worlds for b in worlds if a < b)
    return [[p for p, of in exact.items() if of == world] for world in worlds] if twice else whole


def _by_parts(collective: str, rows: list[Cells]) -> int | None:
    """How many parts a size has, of a collective whose count is that of one part; None where rows differ."""
    if collective not in ("all_gather", "reduce_scatter", "all_to_all"):
        return None
    found = set()
    for row in rows:
        size, count = row.get("size", ""), row.get("count", "")
        if not size.isdigit() or not count.isdigit() or not int(count):
            return None
        found.add(divmod(int(size), int(count) * _WIDTH.get(row.get("type", ""), 4)))
    parts, rest = found.pop() if len(found) == 1 else (0, 0)
    return parts if parts > 1 and not rest else None


def _why_ranks(count: int, listed: Sequence[int], known: int | None, by: str) -> str:
    if known is not None and known != count:
        return f"{count} ranks by {by}, not {known} as --ranks says"
    if listed and (here := len(set(listed))) != count:
        return f"{count} ranks by {by}; {counted(here, 'of their device lines is', 'of their device lines are')} in the file"
    if by == _COMMAND:
        return f"{count} ranks by {by}"
    if by == _RATIO and known is None and not listed:
        return f"{count} ranks by {by}; the file has no device lines"
    return ""


def ranks_allowed(collective: str, rows: Sequence[Cells]) -> tuple[int, int]:
    """The least and the most ranks that all rows' busbw / algbw allow, as precisely as they are printed.

    >>> ranks_allowed("all_reduce", [{"algbw": "171.72", "busbw": "300.51"}])
    (8, 8)
    """
    low, high = 1, MOST_RANKS
    of = {"all_reduce": 2.0}.get(collective, 1.0)
    if collective in ("broadcast", "reduce", "barrier"):
        return low, high  # the factor is 1 whatever the number of ranks
    pairs = [pair for row in rows if (pair := _bandwidths(row)) is not None]
    # old tests print the bus bandwidth twice; a rack of a thousand ranks has a busbw that is lower
    same = of == 1.0 and all(row.get("algbw") == row.get("busbw") for row in rows)
    twice = same and bool(pairs) and (len(pairs) > 1 or not any(map(_is_size_over_time, rows)))
    votes = Counter[tuple[int, int]]() if twice else _votes(of, pairs)
    if not votes:
        votes = _votes(of, [pair for row in rows if (pair := _by_time(row)) is not None])
    for (lowest_p, highest_p), _ in sorted(votes.items(), key=lambda item: item[0][1] - item[0][0]):
        if max(low, lowest_p) <= min(high, highest_p):
            low, high = max(low, lowest_p), min(high, highest_p)
    return low, high


def _votes(of: float, pairs: Sequence[tuple[float, float, float, float]]) -> Counter[tuple[int, int]]:
    """How often each range of ranks is what a row's least and most algbw and busbw allow; the factor is of * (p - 1) / p."""
    votes: Counter[tuple[int, int]] = Counter()
    for low_alg, high_alg, low_bus, high_bus in pairs:
        least, most = max(0.0, low_bus) / high_alg, high_bus / low_alg
        lowest = of / (of - least) if least < of else math.inf
        highest = of / (of - most) if most < of else math.inf
        if lowest > MOST_RANKS or math.floor(min(highest, MOST_RANKS)) < math.ceil(lowest - 1e-9):
            continue
        votes[math.ceil(lowest - 1e-9), math.floor(min(highest, MOST_RANKS) + 1e-9)] += 1
    return votes


def _bandwidths(row: Cells) -> tuple[float, float, float, float] | None:
    """The least and most algbw and busbw that the printed figures stand for; None where they are too small to tell."""
    alg, bus = _printed(row.get("algbw", "")), _printed(row.get("busbw", ""))
    if alg is None or bus is None or alg[0] <= 2 * alg[1] or (bus[0] <= bus[1] and alg[0] < 100 * bus[1]):
        return None
    return alg[0] - alg[1], alg[0] + alg[1], bus[0] - bus[1], bus[0] + bus[1]


def _by_time(row: Cells) -> tuple[float, float, float, float] | None:
    """As `_bandwidths`, with size over time in place of the algbw."""
    time, bus = _printed(row.get("time", "")), _printed(row.get("busbw", ""))
    if time is None or bus is None or not row.get("size", "").isdigit() or time[0] <= time[1] or bus[0] < 20 * bus[1]:
        return None
    nbytes = int(row["size"]) / 1e3
    return nbytes / (time[0] + time[1]), nbytes / (time[0] - time[1]), bus[0] - bus[1], bus[0] + bus[1]


def _is_size_over_time(row: Cells) -> bool:
    """Whether the algbw is what it is by its definition, as far as one can tell."""
    return _close([row.get(name, "") for name in ("size", "time", "algbw")], 1) is not False


def _printed(cell: str) -> tuple[float, float] | None:
    """A printed number and the half of its last digit, which stands behind a ± where it is another one."""
    figure, _, half = cell.partition("±")
    if half:
        return float(figure), float(half)
    if not re.fullmatch(r"\d+(\.\d+)?", cell):
        return None
    return float(cell), 0.5 * 10.0 ** -len(cell.partition(".")[2])


def count_of_nodes(devices: Sequence[Device], ranks: int, known: int | None) -> tuple[int | None, str]:
    """On how many nodes the ranks ran: the hosts of all ranks, or what `known` says, or what the listed ranks leave as the only way.

    `devices` are (rank, host, device). None where nothing tells.

    >>> count_of_nodes([(0, "a", 0), (1, "b", 0)], 2, None)
    (2, '')
    """
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

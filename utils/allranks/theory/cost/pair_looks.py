"""What a measurement of pairs shows: how fast GPUs reach each other, which pairs or hosts' links are slow, and where messages fall off.

The figures that a link can have: PCIe after its encoding (PCI-SIG), NVLinks as NCCL counts them (`nccl_tables`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from allranks.base.errors import counted, listed, size_in_words
from allranks.theory.cost.nccl_tables import NVLINK_GB_PER_S
from allranks.theory.cost.normal import Shape, chip_of
from allranks.theory.cost.pair_tables import Matrix, Messages, Pair, PairTables

__all__ = ["PairReport", "looks_of"]

# the PCIe of a GPU whose name is known, in GB/s of 16 lanes: what is faster went another way
PCIE_OF = (
    (r"\b(?:V100|P100|P40|T4|GTX|RTX 20\d\d|Quadro|TITAN|MI[56]0)\b", 15.75),
    (
        r"\b(?:A\d\dG?|A100|A800|A\d000|RTX (?:30|40)\d\d|L4|L40S?|L20|RTX \d000 Ada|MI100|MI2\d\dX?|RX [67]\d{3})\b",
        31.5,
    ),
    (r"\b(?:H100|H200|H800|H20|B200|B300|GB\d00|RTX 50\d\d|RTX PRO \d000|MI3\d\d\w?|RX 9\d{3})\b", 63.0),
)
PCIE = (("PCIe 3.0 x8", 7.88), ("PCIe 3.0 x16", 15.75), ("PCIe 4.0 x16", 31.5), ("PCIe 5.0 x16", 63.0))
LIKE_PCIE = (0.75, 0.95)  # of the figure: what copies of large blocks reach
AMD_TOOLS = ("rocm-bandwidth-test", "TransferBench")
ALIKE = 0.93  # of the fastest pair: pairs that have one kind of way
SLOW = 0.8
MOST_NAMED = 8
ACS = Shape(
    "with direct access (P2P), copies are slower than through the host's memory",
    "ACS or an IOMMU sends what GPUs exchange up to the CPU and back, or the CPU forwards it slowly",
    "lspci -vvv | grep ACSCtl (a + behind SrcValid or ReqRedir: ACS is on); iommu=pt; all_reduce_perf with and without "
    "NCCL_P2P_DISABLE=1: NCCL uses P2P unless that is set",
)
NO_P2P = Shape(
    "direct access gives no more than copies through the host's memory",
    "no peer access: GeForce and some workstation cards have none over PCIe, and virtual machines and ACS may forbid it",
    "nvidia-smi topo -p2p rw; NCCL_DEBUG=INFO, whose connections say P2P or SHM",
)
CORRUPT = Shape(
    "copies between these devices bring wrong data",
    "an IOMMU or ACS that remaps what GPUs exchange, as in a virtual machine, or a faulty link or memory",
    "iommu=off or iommu=pt; NCCL_P2P_DISABLE=1 until it is found; dmesg for Xid; another pair of GPUs, dcgmi diag",
)
NARROW = Shape(
    "direct access (P2P) gives hardly more than copies through the host's memory",
    "the GPUs' own links are narrow or of an old generation (a slot with 4 or 8 lanes, a riser), so that both ways end there",
    "nvidia-smi --query-gpu=pcie.link.width.current,pcie.link.gen.current --format=csv under load; lspci -vv | grep LnkSta",
)


@dataclass(frozen=True)
class PairReport:
    """What one tool's tables say: a title, figures in sentences, and what stands out, with usual reasons and a test.

    >>> PairReport("osu_bw", ("12 GB/s",), ()).to_dict()["title"]
    'osu_bw'
    """

    title: str
    lines: tuple[str, ...]
    shapes: tuple[Shape, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)


def looks_of(tables: PairTables) -> list[PairReport]:
    """A report for each tool's matrices and for each sweep of messages.

    >>> from allranks.theory.cost.pair_tables import read_pairs
    >>> looks_of(read_pairs("# OSU MPI Latency Test v7.2\\n# Size   Latency (us)\\n8  1.5\\n"))[0].lines
    ('1.5 µs at 8 B',)
    """
    found = []
    for tool in dict.fromkeys(matrix.tool for matrix in tables.matrices):
        found.append(_of_matrices(tool, [m for m in tables.matrices if m.tool == tool], tables))
    if tables.corrupt:
        words = f"what a copy brought was not what was sent, in {tables.corrupt}"
        found.append(PairReport("nvbandwidth", (words,), (CORRUPT,)))
    if tables.waived:
        words = f"waived, so that nothing is measured of it: {listed(dict.fromkeys(tables.waived))}"
        apart = any("device_to_device" in test for test in tables.waived)
        shape = Shape("no two GPUs were found that reach each other directly", NO_P2P.usual, NO_P2P.test)
        found.append(PairReport("nvbandwidth", (words,), (shape,) if apart else ()))
    return [*found, *map(_of_messages, tables.messages)]


def _of_matrices(tool: str, matrices: Sequence[Matrix], tables: PairTables) -> PairReport:
    lines: list[str] = []
    shapes: list[Shape] = []
    if tables.without_access:
        lines.append(f"{counted(len(tables.without_access), 'pair has', 'pairs have')} no peer access, by direction")
    for matrix in matrices:
        lines.append(_line(matrix))
    one_way = any(not m.both_ways and not m.latency and not m.of_host and m.peer is not False for m in matrices)
    for matrix in matrices:
        again = matrix.both_ways and not matrix.of_host and one_way  # the same pairs would be named twice
        if not matrix.latency and matrix.peer is not False and not again:
            shapes += [] if "inside" in matrix.ways else _of_host(matrix) if matrix.of_host else _between(matrix, lines)
    by = {(m.both_ways, m.peer): m for m in reversed(matrices) if not m.latency and m.peer is not None}
    with_p2p, without = by.get((False, True)), by.get((False, False))
    if with_p2p is not None and without is not None:
        reached = {pair for pair in with_p2p.cells if pair in tables.with_access and pair in without.cells}
        direct, staged = _median(with_p2p, reached), _median(without, reached)
        if reached and tables.without_access:
            lines.append(f"of the pairs with access: {direct:.4g} GB/s with P2P, {staged:.4g} without")
        without_p2p = NARROW if tables.with_access else NO_P2P
        shape = ACS if direct < 0.9 * staged else without_p2p if direct < 1.1 * staged else None
        if shape:
            words = f"{shape.looks} ({direct:.3g} against {staged:.3g} GB/s)"
            shapes.insert(0, Shape(words, shape.usual, shape.test))
    gpu = next((m.gpu for m in matrices if m.gpu), "")
    count = max((m.gpus for m in matrices if not m.of_host), default=0)
    named = f"{count} {gpu}" if gpu else counted(count, "GPU")
    return PairReport(f"{tool}, {named}" if count else tool, tuple(lines), tuple(dict.fromkeys(shapes)))


def _line(matrix: Matrix) -> str:
    """The figures of a matrix in a clause."""
    values = _apart(matrix)
    unit = "µs" if matrix.latency else "GB/s"
    middle = f"{median(values):.4g} {unit}"
    spread = f" ({min(values):.4g} to {max(values):.4g})" if max(values) > min(values) else ""
    where = matrix.ways or ("between the host and a GPU" if matrix.of_host else "between two GPUs")
    ways = "" if matrix.latency else ", both ways together" if matrix.both_ways else ", one way"
    peer = "" if matrix.peer is None else ", with P2P" if matrix.peer else ", without P2P"
    return f"{matrix.what} {where}{ways}{peer}: {middle}{spread}"


def _apart(matrix: Matrix) -> list[float]:
    """The figures of pairs; a GPU's copies within its own memory are none."""
    return [x for (row, column), x in matrix.cells.items() if matrix.of_host or row != column]


def _median(matrix: Matrix, pairs: Collection[Pair] = ()) -> float:
    """The middle figure, of these pairs where some are given."""
    return median([matrix.cells[pair] for pair in pairs] or _apart(matrix))


def _between(matrix: Matrix, lines: list[str]) -> list[Shape]:
    """What stands out of copies between GPUs; adds to the lines which links their figures are like."""
    pairs = {pair: x for pair, x in matrix.cells.items() if pair[0] != pair[1]}
    best = max(pairs.values())
    shapes = []
    if not matrix.both_ways:
        carried = NVLINK_GB_PER_S.get(chip_of(matrix.gpu))
        pcie = next((f"{name} ({x:g} GB/s)" for name, x in PCIE if LIKE_PCIE[0] * x <= best <= LIKE_PCIE[1] * x), "")
        most = next((x for pattern, x in PCIE_OF if re.search(pattern, matrix.gpu)), None)
        pcie = pcie if best <= (most or PCIE[1][1]) else ""  # a name that is not known may have NVLinks or xGMI
        if carried and best > 0.8 * carried:
            share = f"{best / carried:.0%} of what NCCL counts for this GPU's NVLinks ({carried:g} GB/s)"
            lines.append(f"the fastest pair, {best:.4g} GB/s, has {share}")
        elif most and best > most:
            links = "xGMI" if matrix.tool in AMD_TOOLS else "NVLink"
            lines.append(
                f"the fastest pair, {best:.4g} GB/s, is faster than this GPU's PCIe ({most:g} GB/s): over {links}"
            )
        elif pcie:
            lines.append(f"the fastest pair, {best:.4g} GB/s, has what {pcie} gives")
            if carried:
                shapes.append(
                    Shape(
                        f"no pair is faster than PCIe, and this GPU's NVLinks carry {carried:g} GB/s",
                        "NVLinks are down or not joined, or the fabric manager does not run",
                        "nvidia-smi nvlink -s; nvidia-smi topo -m; systemctl status nvidia-fabricmanager",
                    )
                )
    islands = _islands(pairs, ALIKE * best)
    if len(islands) > 1 and min(map(len, islands)) > 1:
        inside = [x for (a, b), x in pairs.items() if any({a, b} <= island for island in islands)]
        across = [x for (a, b), x in pairs.items() if not any({a, b} <= island for island in islands)]
        sets = listed("{" + ", ".join(map(str, sorted(island))) + "}" for island in islands)
        shapes.append(
            Shape(
                f"GPUs lie in {len(islands)} sets, {sets}: {median(inside):.4g} GB/s within them and "
                f"{median(across):.4g} across",
                "each set has a CPU socket or a switch of its own, and the way between them is slower",
                f"{_topology(matrix)}: what it shows between these sets; a ring has to cross there twice",
            )
        )
    else:
        middle = median(pairs.values())
        usual = median(x for x in pairs.values() if x >= middle)
        slow = {pair: x for pair, x in pairs.items() if x < SLOW * usual}
        if slow:
            shapes.append(_slow_pairs(slow, usual, {row for row, _ in pairs}, _topology(matrix)))
    return shapes


def _topology(matrix: Matrix) -> str:
    """The command that shows how GPUs are joined."""
    return "rocm-smi --showtopo" if matrix.tool in AMD_TOOLS else "nvidia-smi topo -m"


def _slow_pairs(slow: dict[Pair, float], usual: float, gpus: set[int], topology: str) -> Shape:
    """Pairs that are slower than the others; where they are all those of one GPU, the GPU."""
    lone = sorted(g for g in gpus if sum(g in pair for pair in slow) >= 2 * len(gpus) - 3 > 1)
    if lone:
        words = f"GPU {listed(lone)} is slower to all others: {median(slow.values()):.4g} GB/s, others {usual:.4g}"
        why = "its link has fewer lanes or an older generation, or some of its NVLinks are down"
        test = f"{topology}; the width and generation of its PCIe link under load (lspci -vv | grep LnkSta)"
        return Shape(words, why, test)
    named = ", ".join(f"{a} to {b} at {x:.4g}" for (a, b), x in sorted(slow.items())[:MOST_NAMED])
    more = f", and {len(slow) - MOST_NAMED} more" if len(slow) > MOST_NAMED else ""
    return Shape(
        f"{counted(len(slow), 'direction is', 'directions are')} below {SLOW:.0%} of the others' {usual:.4g} GB/s: {named}{more}",
        "these have another way: across sockets, another switch, or fewer NVLinks",
        f"{topology}: what stands between these GPUs",
    )


def _islands(pairs: dict[Pair, float], least: float) -> list[set[int]]:
    """The sets of GPUs that pairs of at least this bandwidth join."""
    found: list[set[int]] = []
    for gpu in sorted({row for row, _ in pairs} | {column for _, column in pairs}):
        joined = {gpu} | {b for (a, b), x in pairs.items() if a == gpu and x >= least}
        joined |= {a for (a, b), x in pairs.items() if b == gpu and x >= least}
        touching = [island for island in found if island & joined]
        found = [island for island in found if island not in touching] + [joined.union(*touching)]
    return sorted(found, key=min)


def _of_host(matrix: Matrix) -> list[Shape]:
    """GPUs whose link to the host is slower than the others'."""
    usual = _median(matrix)
    slow = {column: x for (_, column), x in matrix.cells.items() if x < SLOW * usual}
    if not slow:
        return []
    named = ", ".join(f"GPU {gpu} at {x:.4g}" for gpu, x in sorted(slow.items())[:MOST_NAMED])
    return [
        Shape(
            f"the host's link is slower for {named} GB/s, others {usual:.4g}",
            "fewer lanes or an older generation of PCIe, another socket's memory, or GPUs that share one link at that moment",
            "nvidia-smi --query-gpu=pcie.link.width.current,pcie.link.gen.current --format=csv under load; numactl",
        )
    ]


def _of_messages(sweep: Messages) -> PairReport:
    who = "two ranks" if sweep.pairs == 1 else f"{sweep.pairs} pairs of ranks"
    ways = "both ways together" if sweep.both_ways else "one way"
    title = ", ".join(filter(None, (sweep.test or sweep.tool, sweep.who or f"{ways} between {who}", sweep.buffers)))
    lines: list[str] = []
    timed = [(nbytes, us) for nbytes, _, us in sweep.rows if us is not None]
    rates = [(nbytes, rate) for nbytes, rate, _ in sweep.rows if rate is not None]
    if timed:
        small, least = timed[0], min(timed, key=lambda row: row[1])
        first = f", and {small[1]:.4g} at {size_in_words(small[0])}, the first" if small[1] > 2 * least[1] else ""
        small = least if first else small
        lines.append(f"{small[1]:.4g} µs at {size_in_words(small[0])}{first}")
        if not rates and timed[-1][0] >= 1 << 16:  # a large message's latency is its way through the link
            rates = [(nbytes, nbytes / us / 1e3) for nbytes, us in timed]
    if rates and not rates[-1][0]:
        rate = rates[-1][1]
        lines.append(f"{_rate(rate)} ({8 * rate:.4g} Gb/s), of messages whose size the text does not say")
    if not rates or not rates[-1][0] or (timed and rates[-1][0] < 1 << 12):
        return PairReport(title, tuple(lines), ())
    at, best = max(rates, key=lambda row: row[1])
    half = next(nbytes for nbytes, rate in rates if rate >= best / 2)
    most = f", the most; half of it first at {size_in_words(half)}" if len(rates) > 1 else ""
    lines.append(f"{_rate(best)} ({8 * best:.4g} Gb/s) at {size_in_words(at)}{most}")
    return PairReport(title, tuple(lines), tuple(_shapes(rates, at, best)))


def _rate(gb_per_s: float) -> str:
    return f"{gb_per_s:.4g} GB/s"


def _shapes(rates: Sequence[tuple[int, float]], at: int, best: float) -> Iterable[Shape]:
    """Where a sweep's bandwidth falls, jumps, or no longer grows."""
    last, rate = rates[-1]
    if last > at and rate < SLOW * best:
        yield Shape(
            f"it falls from {_rate(best)} at {size_in_words(at)} to {_rate(rate)} at {size_in_words(last)} ({rate / best:.0%})",
            "large messages take another way: a rendezvous in pieces through the host's memory, or buffers that no longer fit a cache",
            "UCX_RNDV_SCHEME=get_zcopy, UCX_RNDV_FRAG_SIZE and UCX_RNDV_THRESH in turn (UCX_PROTO_INFO=y says what was chosen); "
            "GPUDirect RDMA on",
        )
    dents = [(a, b) for a, b in pairwise(rates) if b[1] < 0.9 * a[1] and 1 << 10 <= b[0] <= at]
    if dents:
        (before, high), (after, low) = min(dents, key=lambda step: step[1][1] / step[0][1])
        yield Shape(
            f"from {size_in_words(before)} to {size_in_words(after)} it falls from {_rate(high)} to {_rate(low)}, and grows again",
            "the protocol changes there, in MPI from eager to rendezvous",
            "another size of that change (UCX_RNDV_THRESH, the MPI's eager limit, NCCL_PROTO)",
        )
    jumps = [(a, b) for a, b in pairwise(rates) if a[0] >= 256 and b[1] / a[1] > 2.0 * b[0] / a[0]]
    if jumps:
        (before, low), (after, high) = max(jumps, key=lambda step: step[1][1] / step[0][1])
        yield Shape(
            f"from {size_in_words(before)} to {size_in_words(after)} it jumps from {_rate(low)} to {_rate(high)}",
            "the protocol changes there; of GPUs' buffers, smaller messages are copied through the host's memory",
            "with gdrcopy, and with UCX_RNDV_THRESH below this size",
        )
    roof = next(nbytes for nbytes, rate in rates if rate >= 0.95 * best)
    if roof <= 64 << 10 and last >= 16 * roof and best < 20:
        yield Shape(
            f"from {size_in_words(roof)} on it no longer grows, at {8 * best:.3g} Gb/s",
            "a roof that does not depend on the size: the card's rate, or a way through the host's memory or through sockets",
            "the card's rate (ibstat, ethtool) beside this figure; another transport (UCX_TLS, -mca pml), and buffers on the host (H H)",
        )

"""Is my busbw normal? A sweep beside what others published for the same machine, and beside what NCCL's tuner foretells.

The published measurements are those of `PUBLISHED`; docs/measured/README.md says what its columns hold. Where fewer than `SITES_FOR_A_PERCENTILE`
sites are known, no percentile is given. The reasons are the usual ones for a shape; each comes with the test that would tell.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from allranks.base.errors import size_in_words
from allranks.theory.cost.bandwidth import bus_factor
from allranks.theory.cost.nccl_bounds import ABOVE_SEARCH, links_of, machine_bound_s
from allranks.theory.cost.nccl_machines import MACHINES, NcclMachine, machine
from allranks.theory.cost.nccl_price import nccl_price
from allranks.theory.cost.nccl_tests import Measured
from allranks.theory.cost.own_cluster import between
from allranks.theory.cost.terms import CostError

__all__ = ["Normal", "Shape", "chip_of", "normal", "published"]

PUBLISHED = Path(__file__).with_name("static") / "nccl_tests.csv"
SITES_FOR_A_PERCENTILE = 5
SMALL, LARGE = 64 << 10, 64 << 20
RACKS, RACK_GPUS = ("GB200", "GB300"), 72
LOW = 0.85  # of the reference: below, a size is lower than normal
_CHIP = re.compile(r"\b(GB300|GB200|GH200|B300|B200|H200|H100|H800|A100|A800|V100|MI3\d\dX)\b", re.I)
NVLS, NVLS_TREE = "the switch adds (NVLS)", "the switches add in each node (NVLSTree)"
Curve = list[tuple[int, float]]  # (bytes, busbw in GB/s) by size


@dataclass(frozen=True)
class Shape:
    """Where a curve falls off: what it looks like, the usual reasons, and the test that would tell.

    >>> Shape("late at small sizes", "a busy host", "numactl ...").usual
    'a busy host'
    """

    looks: str
    usual: str
    test: str


@dataclass(frozen=True)
class Normal:
    """A sweep beside its references. `rows` are (bytes, own busbw, the published median or None, NCCL's model or None) in GB/s.

    `nodes` are the hosts; `domains` are NCCL's nodes, fewer where a rack of hosts shares one NVLink domain.
    `sites` are the published runs on the same machine, by site; `machine` is NCCL's model of it, or "". `roofs` are (what, GB/s).
    `top` is the own busbw at the largest size, `of_reference` its share of the published median there (else of the model).
    `below` is how many of the sites that have this size are faster; `percentile` is None with fewer than five of them.
    `falls_off` is the size from which on all sizes lie below 0.85 of the reference, or None.

    >>> run = Measured("all_reduce", 8, 1, [(2**k, 2**k * 1.75 / 300e9 + 20e-6) for k in range(10, 34)], gpu="NVIDIA H100 80GB HBM3")
    >>> found = normal(run)
    >>> found.machine, round(found.top), found.falls_off is not None
    ('dgx-h100', 300, True)
    """

    collective: str
    ranks: int
    nodes: int
    domains: int
    gpu: str
    machine: str
    rows: tuple[tuple[int, float, float | None, float | None], ...]
    sites: tuple[str, ...]
    roofs: tuple[tuple[str, float], ...]
    top: float
    of_reference: float | None
    below: int | None
    percentile: float | None
    falls_off: int | None
    shapes: tuple[Shape, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)


def chip_of(gpu: str) -> str:
    """The chip in the name of a device, or "".

    >>> chip_of("NVIDIA H100 80GB HBM3"), chip_of("A100-SXM4-40GB"), chip_of("NVIDIA Graphics Device")
    ('H100', 'A100', '')
    """
    found = _CHIP.search(gpu)
    return found[1].upper() if found and "PCIE" not in gpu.upper() else ""


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def published(collective: str, ranks: int, nodes: int, chip: str) -> dict[str, Curve]:
    """The published curves of a collective on as many of these GPUs and nodes, by site; empty where nobody published.

    >>> sorted(name.split(",")[0] for name in published("all_reduce", 8, 1, "H100"))
    ['Azure/AI-benchmarking-guide', 'xxrjun/nccl-tests-cluster']
    """
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in _rows():
        hardware = row["hardware"].replace(" ", "-").split("-")[0]
        if (row["collective"], row["gpus"], row["nodes"], hardware) != (collective, str(ranks), str(nodes), chip):
            continue
        nbytes = int(row["bytes"])
        busbw = float(row["busbw_GBps"] or 0)
        if row["time_us"]:
            busbw = nbytes * float(bus_factor(collective, ranks)) / float(row["time_us"]) / 1e3
        note = f", {row['note']}" if row["note"] else ""
        if busbw > 0:
            found[f"{row['source'].split(' ')[0]}{note}"][nbytes] = busbw
    return {site: sorted(points.items()) for site, points in found.items()}


def normal(sweep: Measured, machine: str | None = None, nodes: int | None = None) -> Normal:
    """Sets a sweep beside its references. `machine` names NCCL's model where the devices' names don't tell, `nodes` is how many
    there are where the sweep does not tell (default: 1). Raises CostError.

    A sweep of GPUs that nobody published, and of which NCCL's model is not known, has no reference: then only its own shape is judged.
    """
    factor = float(bus_factor(sweep.collective, sweep.ranks))
    times: dict[int, list[float]] = defaultdict(list)
    for nbytes, seconds in sweep.points:
        times[nbytes].append(seconds)
    own = [(nbytes, nbytes * factor / median(times[nbytes]) / 1e9) for nbytes in sorted(times)]
    if not own:
        raise CostError("there is no size to compare")
    hosts = nodes = sweep.nodes or nodes or 1
    if chip_of(sweep.gpu) in RACKS and sweep.ranks <= RACK_GPUS:
        nodes = 1  # the hosts of a rack share one NVLink domain, and NCCL takes them for one node
    where = _machine(sweep, nodes, machine)
    chip = chip_of(sweep.gpu) or (where.gpu if where is not None else "")
    others = published(sweep.collective, sweep.ranks, nodes, chip) if chip else {}
    rows = []
    for nbytes, busbw in own:
        there = [at for curve in others.values() if (at := _at(curve, nbytes)) is not None]
        rows.append((nbytes, busbw, median(there) if there else None, _model(sweep, nbytes, nodes, where, factor)))
    last, top = own[-1]
    at_last = [at for curve in others.values() if (at := _at(curve, last)) is not None]
    below = sum(at > top for at in at_last) if at_last else None
    share = None if below is None or len(at_last) < SITES_FOR_A_PERCENTILE else 1 - below / len(at_last)
    reference = rows[-1][2] or rows[-1][3]
    roofs = _roofs(sweep, nodes, where)
    best = max((busbw for curve in others.values() for _, busbw in curve), default=0.0)
    if max((busbw for _, busbw in roofs), default=0.0) * ABOVE_SEARCH < best:
        roofs = ()  # NCCL's search counts less than these links carry, as on 8 B200
    falls = _falls_off(rows)
    return Normal(
        sweep.collective, sweep.ranks, hosts, nodes, chip, where.name if where is not None else "", tuple(rows), tuple(others), roofs, top,
        top / reference if reference else None, below, share, falls,
        _shapes(sweep, rows, roofs, falls, nodes, _rails(sweep, nodes, where)),
    )  # fmt: skip


def _machine(sweep: Measured, nodes: int, name: str | None) -> NcclMachine | None:
    """NCCL's model of the machine: by name, or the first one with these GPUs on these nodes."""
    if name is not None:
        return machine(name)
    chip = chip_of(sweep.gpu)
    for where in MACHINES.values():
        if where.gpu == chip and sweep.ranks % nodes == 0:
            try:
                where.graphs(sweep.ranks // nodes, nodes)
            except CostError:
                continue
            return where
    return None


def _model(sweep: Measured, nbytes: int, nodes: int, where: NcclMachine | None, factor: float) -> float | None:
    if where is None:
        return None
    try:
        price = nccl_price(sweep.collective, nbytes, where, nodes=nodes, ranks=sweep.ranks)
        return nbytes * factor / price.seconds / 1e9
    except CostError:
        return None


def _roofs(sweep: Measured, nodes: int, where: NcclMachine | None) -> tuple[tuple[str, float], ...]:
    """What the links carry by NCCL's graphs of the machine, as a busbw."""
    if where is None:
        return ()
    try:
        graphs = where.graphs(sweep.ranks // nodes, nodes)
        links = links_of(where, nodes, sweep.ranks)
    except CostError:
        return ()
    ring, factor = graphs.ring, float(bus_factor(sweep.collective, sweep.ranks))
    what = "the links" if nodes == 1 else "the network's cards"
    if sweep.collective == "all_to_all":  # what its GPUs send to other nodes shares the cards of a node
        most = 1 << 40
        bound = machine_bound_s(sweep.collective, sweep.ranks, most, links)
        return ((f"{what}, by an all_to_all", most * factor / bound / 1e9),)
    found = [(f"{what}, by a ring", ring.channels * (ring.inside if nodes == 1 else ring.between))]
    if graphs.nvls and sweep.collective == "all_reduce":
        if nodes == 1:
            found.append((NVLS, graphs.nvls.channels * graphs.nvls.between))
        elif (tree := factor * _nvls_tree(sweep.ranks // nodes, nodes, where)) > found[0][1]:
            found.append((NVLS_TREE, tree))
    elif nodes == 2 and sweep.collective == "all_reduce":
        # each node sends its sum once; inner nodes of more would send twice
        found.append((f"{what}, by a tree", factor * ring.channels * ring.between))
    return tuple(found)


def _nvls_tree(here: int, nodes: int, where: NcclMachine) -> float:
    """The algbw of NVLSTree: in each node what NVLS does on one; between nodes a tree, whose inner nodes send twice."""
    ring = where.graphs(here, nodes).ring
    between = ring.channels * ring.between / (1 if nodes == 2 else 2)
    try:
        nvls = where.graphs(here, 1).nvls
    except CostError:
        nvls = None
    return min(between, nvls.channels * nvls.between / float(bus_factor("all_reduce", here))) if nvls else 0.0


def _rails(sweep: Measured, nodes: int, where: NcclMachine | None) -> int:
    """At most so many network cards has a node."""
    try:
        ring = where.graphs(sweep.ranks // nodes, nodes).ring if where is not None else None
    except CostError:
        ring = None
    return max(where.gpus_per_node if where is not None else 8, ring.channels if ring else 0)


def _at(curve: Curve, nbytes: float) -> float | None:
    """The curve at a size; None beyond its ends."""
    return between(curve, nbytes) if curve and curve[0][0] <= nbytes <= curve[-1][0] else None


Row = tuple[int, float, float | None, float | None]


def _share(row: Row) -> float | None:
    reference = row[2] or row[3]
    return row[1] / reference if reference else None


def _falls_off(rows: Sequence[Row]) -> int | None:
    """The size from which on every size is lower than normal."""
    start = None
    for row in reversed(rows):
        share = _share(row)
        if share is None or share >= LOW:
            break
        start = row[0]
    return start


def _shapes(
    sweep: Measured, rows: Sequence[Row], roofs: Sequence[tuple[str, float]], falls: int | None, nodes: int, rails: int
) -> tuple[Shape, ...]:
    """The usual reasons for what the curve looks like, the largest loss first."""
    program = f"{sweep.collective.replace('all_to_all', 'alltoall')}_perf"
    found = []
    large = [s for row in rows if row[0] >= LARGE and (s := _share(row)) is not None]
    small = [s for row in rows if row[0] <= SMALL and (s := _share(row)) is not None]
    top, roof = rows[-1][1], dict(roofs)
    ring, nvls = roof.get("the links, by a ring"), roof.get(NVLS)
    card_ring = roof.get("the network's cards, by a ring")
    low = large and large[-1] < LOW and rows[-1][0] >= LARGE
    if low and ring and nvls and nvls > 1.1 * ring and 0.8 * ring <= top <= 1.03 * ring:
        found.append(Shape(
            "the large sizes end at the roof of a ring", "the switch does not add: NVLS is off, and a ring does the work",
            f"NCCL_DEBUG=INFO {program} ... | grep -i nvls; nothing printed: look at the fabric manager, NCCL_NVLS_ENABLE and NCCL_ALGO",
        ))  # fmt: skip
    elif low and card_ring and sweep.collective == "all_reduce" and 0.9 * card_ring <= top <= 1.03 * card_ring:
        tree = NVLS_TREE in roof
        found.append(Shape(
            "the large sizes end at the line rate of a ring",
            "NVLSTree is off, and a ring does the work" if tree else "a ring does the work, where a tree between two nodes can be faster",
            f"NCCL_DEBUG=INFO {program} ... | grep -i nvls; then once with NCCL_ALGO={'NVLSTree' if tree else 'Tree'}: it should be faster",
        ))  # fmt: skip
    elif low and large[-1] <= 0.3:
        reasons = ["sockets in place of InfiniBand", "GPUDirect off"]
        if large[-1] * rails > 0.8:  # one rail alone carries that much
            reasons.insert(0, "one rail of several")
        found.append(Shape(
            f"a {_part(large[-1])} of what is normal at large sizes",
            ", ".join(reasons) if nodes > 1 else "PCIe or the host's memory in place of NVLink",
            f"NCCL_DEBUG=INFO {program} ... | grep -E 'Using network|via': SHM, Socket, or no GDRDMA is the reason; nvidia-smi topo -m shows the links",
        ))  # fmt: skip
    elif low and 0.4 <= large[-1] <= 0.62:
        found.append(Shape(
            "half of what is normal at large sizes",
            "half of the rails, ACS that sends peer traffic through the CPU, or a card at half width" if nodes > 1
            else "half of the links (a switch or a fabric manager that failed), or ACS on PCIe",
            "lspci -vvv | grep -E 'LnkSta|ACSCtl': a width below LnkCap, or SrcValid+, is the reason; nvidia-smi nvlink -s counts the links; "
            "NCCL_IB_HCA with one card after the other finds the slow one",
        ))  # fmt: skip
    elif low:
        found.append(Shape(
            f"{large[-1]:.0%} of what is normal at large sizes",
            "fewer channels than the links need, other traffic on the network, or an older NCCL" if nodes > 1 else "fewer channels than the links need, or power or clock limits",
            f"NCCL_DEBUG=INFO {program} ... | grep -i channel, then NCCL_MIN_NCHANNELS=32; nvidia-smi -q -d CLOCK,POWER while it runs",
        ))  # fmt: skip
    if small and median(small) < 1 / 1.5:
        found.append(Shape(
            f"small sizes take {1 / median(small):.1f} times as long as is normal",
            "launching takes long: processes on the wrong CPUs, a busy or slowed host, debug output" + (", or latency of the network" if nodes > 1 else ""),
            f"numactl --cpunodebind=N --membind=N {program} ..., and once with -G 10 (CUDA graphs): what gets shorter was the host's",
        ))  # fmt: skip
    dent, fall = _dent(rows), _fall(rows)
    if fall is not None and fall[1][1] < DEEP * fall[0][1] and fall[1][0] > SMALL:
        before, here = fall
        back = next((row[0] for row in rows if row[0] > here[0] and row[1] >= 0.8 * before[1]), None)
        found.append(Shape(
            _falls(before, here) + (f", and is back at {size_in_words(back)}" if back else ", and does not come back"),
            "packets that are lost and sent again (RoCE without PFC or ECN, many senders to one card), buffers that the host copies, or other traffic" if nodes > 1
            else "bytes that go through the host's memory from there on, or a buffer that is too small",
            "the counters of the cards before and after one such size (rdma statistic, ethtool -S: out_of_sequence, retransmits, pause, ECN marks); "
            "then several sizes between the two, two times: a place that moves is other traffic",
        ))  # fmt: skip
        dent = here[0]
    elif dent is not None:
        found.append(Shape(
            f"a dent at {size_in_words(dent)}", "NCCL changes protocol, algorithm or the number of channels there",
            f"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING {program} -b {dent} -e {dent}, and again with NCCL_PROTO=Simple: the faster one shows which",
        ))  # fmt: skip
    if fall is not None and fall[1][0] != dent:
        before, here = fall
        found.append(Shape(
            _falls(before, here),
            "another protocol or another way of the bytes begins there (rendezvous, registered memory, copies through the host), or other traffic",
            "measure several sizes between the two, two times: a place that moves is other traffic, one that stays is a setting",
        ))  # fmt: skip
    if falls is None and not found and large and small and (middle := _middle(rows)) is not None:
        found.append(Shape(
            f"middle sizes are low (at {size_in_words(middle)}), small and large ones normal", "few channels, small buffers, or LL128 that is off",
            f"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING {program} ...: see the protocol at that size; try NCCL_MIN_NCHANNELS and NCCL_BUFFSIZE",
        ))  # fmt: skip
    return tuple(found)


def _falls(before: Row, here: Row) -> str:
    return f"from {size_in_words(before[0])} to {size_in_words(here[0])} the busbw falls to 1/{before[1] / here[1]:.3g}"


DEEP = 0.25  # a fall to less is more than a change of protocol costs


def _part(share: float) -> str:
    return {2: "half", 3: "third", 4: "quarter", 8: "eighth"}.get(round(1 / share), f"{round(1 / share)}th part")


def _dent(rows: Sequence[Row]) -> int | None:
    """The size at which the busbw falls below that of the size before, and rises again."""
    for before, here, after in zip(rows, rows[1:], rows[2:], strict=False):
        if here[0] > SMALL and here[1] < LOW * before[1] and after[1] > here[1]:
            return here[0]
    return None


def _fall(rows: Sequence[Row]) -> tuple[Row, Row] | None:
    """The two sizes between which the busbw falls most, where it is more than to a half."""
    deepest = min(pairwise(rows), key=lambda pair: pair[1][1] / pair[0][1], default=None)
    return deepest if deepest and deepest[1][1] < 0.5 * deepest[0][1] else None


def _middle(rows: Sequence[Row]) -> int | None:
    low = [row for row in rows if SMALL < row[0] < LARGE and (s := _share(row)) is not None and s < 0.6]
    return low[0][0] if len(low) >= 2 else None

"""A cluster as you measured it: overhead, alpha, bandwidth and efficiency of each collective, from nccl-tests' output.

    time(n) = (overhead + messages * alpha + n * bus factor / bandwidth) / efficiency(n)

`bandwidth` is the largest bus bandwidth of the sweep; `efficiency` is what is left between this line and the measurement,
at each measured size, and between two sizes on a logarithmic scale. So the prediction goes through the measurements, and
`held_out` says how far a fit on every other size is off at the sizes between.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from allranks.theory.cost.bandwidth import bus_factor
from allranks.theory.cost.fits import TEXTBOOK
from allranks.theory.cost.formulas import terms
from allranks.theory.cost.nccl_tests import Measured, read_measured_file
from allranks.theory.cost.terms import CostError, check_collective, check_size
from allranks.theory.topology import Link, Topology, load_topology
from allranks.theory.topology.files import FORMAT, read_topology_file

SMALL_NBYTES = 4096  # up to here a call's time is its latency
_SOURCE = "fitted by `allranks fit`"


@dataclass(frozen=True)
class FittedSweep:
    """One collective on one world size, fitted. `efficiency` has (bytes, share) by size; `held_out` are the relative errors
    of a fit on every other size at the sizes between (empty below 5 sizes). `setting` tells runs of one collective apart that
    must not be mixed: NCCL's variables, or "run 2".

    >>> sweep = cost.fit_sweep("broadcast", 2, [(2**k, 1e-5 + 2**k / 1e9) for k in range(10, 28)])
    >>> round(1e6 * sweep.latency_s, 1), round(sweep.bytes_per_s / 1e9, 2), max(sweep.held_out) < 0.05
    (12.0, 1.0, True)
    """

    collective: str
    ranks: int
    nodes: int
    overhead_s: float
    alpha_s: float
    bytes_per_s: float
    efficiency: tuple[tuple[int, float], ...]
    held_out: tuple[float, ...] = ()
    setting: str = ""

    @property
    def latency_s(self) -> float:
        """Seconds of the smallest call: overhead + messages * alpha."""
        return self.overhead_s + _messages(self.collective, self.ranks) * self.alpha_s

    def seconds(self, nbytes: float, ranks: int | None = None) -> float:
        """Seconds for `nbytes`, on as many ranks as measured or on others."""
        ranks = ranks or self.ranks
        line = self.overhead_s + _messages(self.collective, ranks) * self.alpha_s
        line += nbytes * float(bus_factor(self.collective, ranks)) / self.bytes_per_s
        return line / between(self.efficiency, nbytes)

    def measured(self, nbytes: float) -> bool:
        """Whether the size lies inside what was measured."""
        return self.efficiency[0][0] <= nbytes <= self.efficiency[-1][0]


@dataclass(frozen=True)
class OwnPrice:
    """A prediction of an own cluster. `beyond` says in words what of it was not measured; it is empty if all was.

    >>> sweep = cost.fit_sweep("all_reduce", 8, [(2**k, 1e-5 + 2**k / 1e9) for k in range(10, 28)])
    >>> cost.OwnPrice(sweep.seconds(2**20), sweep, beyond=()).error < 0.05
    True
    """

    seconds: float
    sweep: FittedSweep
    beyond: tuple[str, ...]

    @property
    def error(self) -> float | None:
        """The median relative error at sizes that the fit had not seen; None if too few sizes were measured."""
        return median(self.sweep.held_out) if self.sweep.held_out else None


@dataclass(frozen=True)
class OwnCluster:
    """A machine and its fitted sweeps.

    >>> sweep = cost.fit_sweep("all_reduce", 8, [(2**k, 1e-5 + 2**k / 1e9) for k in range(10, 28)])
    >>> cluster = cost.OwnCluster.of("mine", [sweep])
    >>> cluster.price("all_reduce", 2**20).beyond
    ()
    """

    topology: Topology
    sweeps: tuple[FittedSweep, ...]

    @classmethod
    def of(cls, name: str, sweeps: Sequence[FittedSweep], nics_per_node: int | None = None) -> OwnCluster:
        """A cluster of these sweeps. Its links are those of the all_reduce, or else of the first collective.

        Raises CostError where the sweeps are of nodes of different sizes.
        """
        if not sweeps:
            raise CostError("there is no sweep to fit")
        sweeps = _split_latency(sweeps)
        per_node = {s.ranks // s.nodes for s in sweeps if s.nodes > 1} or {max(s.ranks for s in sweeps)}
        if len(per_node) > 1 or any(s.ranks > max(per_node) for s in sweeps if s.nodes == 1):
            sizes = sorted({s.ranks // s.nodes for s in sweeps})
            raise CostError(
                f"the sweeps are of nodes with {' and '.join(str(n) for n in sizes)} ranks; fit one kind of node at a time"
            )
        node = per_node.pop()
        cards = node if nics_per_node is None else nics_per_node
        inside, outside = (
            _speaks_for([s for s in sweeps if (s.nodes > 1) == several and s.ranks > 1]) for several in (False, True)
        )
        nic = None
        if outside is not None:
            nic = Link("the network", outside.alpha_s, outside.bytes_per_s / cards, _SOURCE)
        fastest = inside or outside
        if fastest is None:
            raise CostError("every sweep is of one rank, which sends nothing; measure at least two")
        link = Link("links inside a node", fastest.alpha_s, fastest.bytes_per_s, _SOURCE)
        return cls(Topology(name, node, link, nic, cards, source=_SOURCE), tuple(sweeps))

    @classmethod
    def load(cls, path: Path | str) -> OwnCluster:
        """The cluster of a topology file; without sweeps, if it holds none. Raises TopologyError or CostError."""
        data = read_topology_file(path)
        found = data.get("measured", [])
        if not isinstance(found, list):
            raise CostError(f"{path}: 'measured' must be a list of sweeps")
        return cls(load_topology(path), tuple(_sweep_of(path, number, item) for number, item in enumerate(found)))

    def to_dict(self) -> dict[str, Any]:
        """What the topology file says."""
        machine = self.topology
        links = {
            name: None if link is None else {"name": link.name, "alpha_s": link.alpha_s,
                                             "bytes_per_s": link.bytes_per_s, "source": link.source}
            for name, link in (("inside", machine.inside), ("nic", machine.nic))
        }  # fmt: skip
        return {
            "allranks_topology": FORMAT,
            "name": machine.name,
            "ranks_per_node": machine.ranks_per_node,
            "nics_per_node": machine.nics_per_node,
            **links,
            "measured": [
                {
                    "collective": s.collective, "ranks": s.ranks, "nodes": s.nodes, "overhead_s": s.overhead_s,
                    "alpha_s": s.alpha_s, "bytes_per_s": s.bytes_per_s,
                    "efficiency": [[nbytes, share] for nbytes, share in s.efficiency], "held_out": list(s.held_out),
                    **({"setting": s.setting} if s.setting else {}),
                }
                for s in self.sweeps
            ],
        }  # fmt: skip

    def price(self, collective: str, nbytes: float, ranks: int | None = None) -> OwnPrice:
        """The seconds of a collective: of the sweep with as many ranks, or of the nearest one on one or on several nodes.

        Raises CostError for a collective that was not measured, or not on one node (or on several).
        """
        check_collective(collective)
        there = [s for s in self.sweeps if s.collective == collective]
        if not there:
            known = ", ".join(dict.fromkeys(s.collective for s in self.sweeps)) or "nothing"
            raise CostError(f"{collective} was not measured on {self.topology.name}; measured: {known}")
        ranks = max(s.ranks for s in there) if ranks is None else ranks
        check_size(ranks, nbytes)
        several = ranks > self.topology.ranks_per_node
        alike = [s for s in there if (s.nodes > 1) == several]
        if not alike:
            raise CostError(
                f"{ranks} ranks are {'several nodes' if several else 'one node'} of {self.topology.name}, and {collective} was "
                f"measured on {'one node' if several else 'several nodes'} only; measure there too, and give both files to `allranks fit`"
            )
        sweep = min(alike, key=lambda s: (abs(math.log(s.ranks / ranks)), -s.bytes_per_s))  # of two settings the faster
        beyond = []
        if sweep.ranks != ranks:
            beyond.append(f"{ranks} ranks, where {sweep.ranks} were measured")
        if not sweep.measured(nbytes):
            first, last = sweep.efficiency[0][0], sweep.efficiency[-1][0]
            beyond.append(f"{int(nbytes)} bytes, where {first} to {last} were measured")
        return OwnPrice(sweep.seconds(nbytes, ranks), sweep, tuple(beyond))


def fit_sweep(
    collective: str, ranks: int, points: Iterable[tuple[int, float]], nodes: int = 1, held_out: bool = True
) -> FittedSweep:
    """Fits (bytes, seconds) of a collective; several times of one size count as their median. Raises CostError below 2 sizes.

    Where no small size was measured, the latency is what the line through the others leaves at the smallest one.

    >>> sweep = cost.fit_sweep("all_gather", 4, [(2**k, 1e-5 + 2**k / 1e9) for k in range(10, 28)], nodes=2)
    >>> sweep.measured(2**20), sweep.measured(2**30)
    (True, False)
    """
    check_collective(collective)
    check_size(ranks, 0)
    if nodes < 1 or ranks % nodes:
        raise CostError(f"{ranks} ranks do not fill {nodes} nodes evenly")
    if ranks < 2:
        raise CostError("one rank sends nothing; there is nothing to fit")
    by_size: dict[int, list[float]] = defaultdict(list)
    for nbytes, seconds in points:
        if nbytes > 0 and 0 < seconds < math.inf:
            by_size[int(nbytes)].append(seconds)
    times = [(nbytes, median(by_size[nbytes])) for nbytes in sorted(by_size)]
    if len(times) < 2:
        raise CostError(f"a fit of {collective} needs at least 2 sizes; here is {len(times)}")
    factor = float(bus_factor(collective, ranks))
    bandwidth = max(nbytes * factor / seconds for nbytes, seconds in times)
    smallest, first = times[0]
    rest = max(first - smallest * factor / bandwidth, 1e-9)
    latency = median([seconds for nbytes, seconds in times if nbytes <= SMALL_NBYTES] or [rest])
    share = tuple((nbytes, (latency + nbytes * factor / bandwidth) / seconds) for nbytes, seconds in times)
    errors: tuple[float, ...] = ()
    if held_out and len(times) >= 5:
        half = fit_sweep(collective, ranks, times[::2], nodes, held_out=False)
        inner = times[1::2] if len(times) % 2 else times[1:-1:2]  # a size between two that were seen
        errors = tuple(abs(half.seconds(nbytes) / seconds - 1) for nbytes, seconds in inner)
    return FittedSweep(collective, ranks, nodes, 0.0, latency / _messages(collective, ranks), bandwidth, share, errors)


def fit_measured(measured: Iterable[Measured], nodes: int | None = None) -> tuple[list[FittedSweep], list[str]]:
    """A fit for each collective and world size, and notes in words on what was left out or taken together.

    `nodes` is taken where an output does not tell; else one node.

    >>> points = [(2**k, 1e-5 + 2**k / 1e9) for k in range(10, 28)]
    >>> sweeps, notes = cost.fit_measured([cost.Measured("all_reduce", 8, 1, points, wrong=[2**28])])
    >>> len(sweeps), notes[0][:46]
    (1, 'all_reduce has wrong elements at 268435456 byt')
    """
    groups: dict[tuple[str, int, int], list[Measured]] = defaultdict(list)
    notes: list[str] = []
    for sweep in measured:
        if sweep.nodes is None and nodes is None:
            notes.append(f"nothing says on how many nodes {sweep.collective} ran; taken as one (say it with --nodes)")
        groups[sweep.collective, sweep.ranks, sweep.nodes or nodes or 1].append(sweep)
        if sweep.wrong:
            sizes = ", ".join(str(n) for n in sweep.wrong[:5]) + (", ..." if len(sweep.wrong) > 5 else "")
            notes.append(
                f"{sweep.collective} has wrong elements at {sizes} bytes: left out; find out why before you trust the rest"
            )
        notes += [f"{sweep.collective}: {note}" for note in sweep.notes]
    fitted = []
    for (collective, ranks, on), sweeps in groups.items():
        if collective == "barrier":
            notes.append("barrier moves no bytes; left out")
            continue
        apart = _settings(sweeps)
        what = f"{collective} on {ranks} ranks"
        for setting, same in apart.items():
            if len(same) > 1:
                notes.append(f"{what} was run {len(same)} times; a size counts with its median")
            one = fit_sweep(collective, ranks, [p for s in same for p in s.points], on)
            fitted.append(replace(one, setting=setting if len(apart) > 1 else ""))
            first, last = one.efficiency[0][0], one.efficiency[-1][0]
            if last >= 8 * first and one.seconds(last) < 2 * one.seconds(first):
                notes.append(
                    f"{what}: the largest size takes less than twice as long as the smallest, so that the bandwidth is larger "
                    "than what is told; measure larger sizes"
                )
            elif len(one.efficiency) > 2 and (gain := _last_gain(one)) > STILL_GAINS:
                notes.append(
                    f"{what}: the largest size is {gain - 1:.0%} faster than the one before, so that the bandwidth may be larger "
                    "than what is told; measure larger sizes"
                )
        if len(apart) > 1:
            speeds = sorted(fitted[-len(apart) :], key=lambda f: -f.bytes_per_s)
            words = "; ".join(f"{f.setting}: {f.bytes_per_s / 1e9:.4g} GB/s" for f in speeds)
            notes.append(
                f"{what} was run with {len(apart)} settings, which are fitted apart ({words}); predictions take the faster"
            )
    return fitted, list(dict.fromkeys(notes))


STILL_GAINS = 1.25  # of the largest size's bandwidth over that of the one before


def _last_gain(sweep: FittedSweep) -> float:
    """The bandwidth at the largest size over that at the size before."""
    before, last = sweep.efficiency[-2][0], sweep.efficiency[-1][0]
    return last / before * sweep.seconds(before) / sweep.seconds(last)


ALIKE = 1.25  # runs whose times differ more, in the median over common sizes, were not run alike


def _settings(sweeps: Sequence[Measured]) -> dict[str, list[Measured]]:
    """The runs that may be taken together, by their setting: equal variables of NCCL, and times that do not contradict each other."""
    found: list[list[Measured]] = []
    for sweep in sweeps:
        for same in found:
            if same[0].setting == sweep.setting and all(_alike(sweep, other) for other in same):
                same.append(sweep)
                break
        else:
            found.append([sweep])
    names = [same[0].setting or "no NCCL variable" for same in found]
    again = [name if names.count(name) == 1 else f"{name}, run {i}" for i, name in enumerate(names, 1)]
    return {name.removeprefix("no NCCL variable, "): same for name, same in zip(again, found, strict=True)}


def _alike(one: Measured, other: Measured) -> bool:
    here, there = dict(one.points), dict(other.points)
    ratios = [here[n] / there[n] for n in here.keys() & there.keys()]
    return not ratios or 1 / ALIKE <= median(ratios) <= ALIKE


def _messages(collective: str, ranks: int) -> float:
    return max(1.0, float(terms(collective, TEXTBOOK[collective], ranks, 1).messages)) if ranks > 1 else 0.0


def between(points: Sequence[tuple[int, float]], nbytes: float) -> float:
    """The value at `nbytes`, on logarithmic scales between two sizes; beyond the ends, that of the end.

    >>> from allranks.theory.cost.own_cluster import between
    >>> between([(16, 1.0), (256, 4.0)], 64), between([(16, 1.0), (256, 4.0)], 1024)
    (2.0, 4.0)
    """
    place = bisect_left(points, nbytes, key=lambda point: point[0])
    if place == len(points):
        return points[-1][1]
    if place == 0 or points[place][0] == nbytes:
        return points[place][1]
    (low, a), (high, b) = points[place - 1], points[place]
    t = math.log(nbytes / low) / math.log(high / low)
    return math.exp((1 - t) * math.log(a) + t * math.log(b))


def _split_latency(sweeps: Sequence[FittedSweep]) -> list[FittedSweep]:
    """Tells overhead and alpha apart where a collective was measured on several world sizes of one kind."""
    found = []
    groups: dict[tuple[str, bool, str], list[FittedSweep]] = defaultdict(list)
    for sweep in sweeps:
        groups[sweep.collective, sweep.nodes > 1, sweep.setting].append(sweep)
    for same in groups.values():
        counts = [_messages(s.collective, s.ranks) for s in same]
        mean_count, mean_latency = sum(counts) / len(same), sum(s.latency_s for s in same) / len(same)
        spread = sum((c - mean_count) ** 2 for c in counts)
        slope = (
            sum((c - mean_count) * (s.latency_s - mean_latency) for c, s in zip(counts, same, strict=True)) / spread
            if spread
            else None
        )
        for count, sweep in zip(counts, same, strict=True):
            if slope is None:
                found.append(sweep)
                continue
            alpha = min(max(slope, 0.0), sweep.latency_s / count)  # no overhead below 0
            found.append(replace(sweep, alpha_s=alpha, overhead_s=sweep.latency_s - count * alpha))
    return sorted(found, key=lambda s: (s.collective, s.ranks, s.nodes))


def _speaks_for(sweeps: Sequence[FittedSweep]) -> FittedSweep | None:
    """The sweep that stands for the links: the all_reduce on most ranks, or else the widest of the others."""
    return max(sweeps, key=lambda s: (s.collective == "all_reduce", s.ranks, s.bytes_per_s), default=None)


def _sweep_of(path: Path | str, number: int, item: Any) -> FittedSweep:
    where = f"{path}: sweep {number} of 'measured'"
    if not isinstance(item, dict):
        raise CostError(f"{where} must be an object")
    try:
        efficiency = tuple((int(nbytes), float(share)) for nbytes, share in item["efficiency"])
        found = FittedSweep(
            check_collective(item["collective"]), int(item["ranks"]), int(item["nodes"]), float(item["overhead_s"]),
            float(item["alpha_s"]), float(item["bytes_per_s"]), efficiency,
            tuple(float(error) for error in item.get("held_out", ())), str(item.get("setting", "")),
        )  # fmt: skip
    except KeyError as error:
        raise CostError(f"{where} has no {error}") from None
    except (TypeError, ValueError) as error:
        raise CostError(f"{where} has a wrong field: {error}") from None
    sizes = [nbytes for nbytes, _ in efficiency]
    if len(sizes) < 2 or sizes != sorted(set(sizes)) or sizes[0] < 1:
        raise CostError(f"{where} needs at least two sizes of 'efficiency', from small to large")
    numbers = (found.bytes_per_s, *(share for _, share in efficiency))
    if found.ranks < 2 or found.nodes < 1 or not all(0 < x < math.inf for x in numbers):
        raise CostError(f"{where} has a bandwidth, a share or a number of ranks that can't be")
    if not (0 <= found.overhead_s < math.inf and 0 <= found.alpha_s < math.inf):
        raise CostError(f"{where} has an overhead or alpha below 0")
    return found


def own_measurements(path: Path | str) -> list[Measured]:
    """One's own measurements, from nccl-tests' output or from a topology file of `fit_measured`. Raises CostError or TopologyError.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "mine.txt")
    >>> head = "# all_reduce (gloo's own), 2 ranks, gloo\\n#  size count type redop root time\\n"
    >>> _ = file.write_text(head + "  8 2 float sum -1 10.0\\n")
    >>> from allranks.theory.cost.own_cluster import own_measurements
    >>> [nbytes for nbytes, _ in own_measurements(file)[0].points]
    [8]
    """
    if Path(path).suffix.lower() == ".json" and "measured" in read_topology_file(path):
        return [
            Measured(s.collective, s.ranks, s.nodes, [(nbytes, s.seconds(nbytes)) for nbytes, _ in s.efficiency])
            for s in OwnCluster.load(path).sweeps
        ]
    return read_measured_file(path)

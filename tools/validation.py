"""Holds prices against published measurements: writes docs/validation.md, its figures, and what prices are calibrated with.

    python tools/validation.py [--check]

With --check it writes nothing, and ends with 1 if a file is not what it would write. Every figure on that page is measured by this
command: a site that a price is held against is left out of what the price was learned from. nccl_tests_kept.csv has the sites
that nothing is learned from.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import median

import validation_figures as figures
import validation_serving as serving
import validation_steps as steps
from allranks.theory.cost import bus_factor
from allranks.theory.cost.calibrated import COVERAGE, NORMAL, Foretold, Process, possible
from allranks.theory.cost.calibrated import Point as Asked
from allranks.theory.cost.nccl import call
from allranks.theory.cost.nccl_price import kind_of, least_s, tuned
from allranks.theory.cost.normal import PUBLISHED
from allranks.theory.simulator.channels import USUAL
from allranks.theory.simulator.simulation import simulate
from allranks.theory.topology import PRESETS

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "measured" / "nccl_tests_kept.csv"
PAGE = ROOT / "docs" / "validation.md"
FIGURE = ROOT / "docs" / "measured" / "validation.svg"
COST = ROOT / "utils" / "allranks" / "theory" / "cost"
LEARNED, BANDS = COST / "nccl_sites.py", COST / "nccl_bands.py"
FULL = 10
KINDS = [
    f"{where}, {size}"
    for where in ("one node", "several nodes")
    for size in ("up to 64 KiB", "between", "from 256 MiB")
]
# the hardware's name in the measurements, and the machine in NCCL's tables
MACHINE = {
    "A100-8": "dgx-a100", "A100-8 8xHDR": "dgx-a100", "A100-8 16x100G RoCE": "dgx-a100", "A100-8 4x100G EFA": "p4d",
    "A100-4 2x200G Slingshot": "a100-4", "H100-8": "dgx-h100", "H100-8 8x400G RoCE": "dgx-h100",
    "H100-8 8x400G IB": "dgx-h100", "H100-8 32x100G EFA": "p5", "H100-8 8x200G TCPX": "a3-mega", "H200-8": "dgx-h200",
    "H200-8 16x200G EFA": "p5en", "H20-8 8x400G IB": "h20-8", "H100-4": "h100-4", "H100-4 4x200G IB": "h100-4",
    "GH200-4": "gh200-4", "GH200-4 4x200G Slingshot": "gh200-4", "B200-8": "dgx-b200", "B200-8 8x400G EFA": "p6-b200",
    "B200-8 8x400G IB": "dgx-b200", "GB200 NVL72": "gb200-nvl72", "GB200 NVL72 racks": "gb200-nvl72",
    "GB300 NVL72": "gb200-nvl72", "GB300 NVL72 racks of 64": "gb200-nvl72", "PCIe4 8x3090": "pcie-8",
    "MI300X-8": "mi300x-8", "MI300X-8 8x400G RoCE": "mi300x-8", "MI350X-8": "mi350x-8",
    "MI355X-8 8x400G RoCE": "mi350x-8", "DGX Spark 1x200G": "dgx-spark",
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One measurement, the tuner's time for it, and what to ask of the other sites."""

    hardware: str
    source: str
    site: str
    ranks: int
    measured_s: float
    tuner_s: float
    asked: Asked
    least_s: float = 0.0  # no interval reaches below it

    @property
    def nodes(self) -> int:
        return self.asked.nodes

    @property
    def nbytes(self) -> int:
        return int(self.asked.nbytes)

    @property
    def collective(self) -> str:
        return self.asked.collective

    @property
    def kind(self) -> str:
        return kind_of(self.asked.nodes, self.asked.nbytes)


@dataclass(frozen=True)
class Held:
    """A point against what the other sites say of it: the factor measured / median, and its distance in deviations."""

    point: Point
    foretold: Foretold
    most: float = math.inf  # of the half width on the scale of logarithms: own measurements never widen an interval

    @property
    def ratio(self) -> float:
        """Foretold over measured."""
        return math.exp(self.foretold.log_median - self.point.asked.y)

    @property
    def away(self) -> float:
        """How many times the half of an 80 % interval of a normal distribution the point lies away from the median."""
        return abs(self.point.asked.y - self.foretold.log_median) / (NORMAL * self.foretold.deviation)

    def half(self, scale: float) -> float:
        """Half of the interval, as a logarithm."""
        return min(self.most, NORMAL * scale * self.foretold.deviation)

    def ends(self, scale: float) -> tuple[float, float]:
        """Low and high of log(time / tuner's), above what is possible."""
        least = math.log(self.point.least_s / self.point.tuner_s) if self.point.least_s else -math.inf
        low, _, high = possible(self.foretold.log_median, self.half(scale), least)
        return low, high

    def width(self, scale: float) -> float:
        """High over low."""
        low, high = self.ends(scale)
        return math.exp(high - low)

    def inside(self, scale: float) -> bool:
        low, high = self.ends(scale)
        return low <= self.point.asked.y <= high


def points(path: Path = PUBLISHED) -> tuple[list[Point], dict[str, int]]:
    """The measurements that can be priced; and how many rows of each kind can't."""
    found, left_out = [], defaultdict(int)
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        collective, ranks, nbytes = row["collective"], int(row["gpus"]), int(row["bytes"])
        if collective == "sendrecv":
            left_out["sendrecv, which is no collective"] += 1
            continue
        if row["time_us"]:
            seconds = 1e-6 * float(row["time_us"])
        elif float(row["busbw_GBps"]) > 0:
            seconds = nbytes * float(bus_factor(collective, ranks)) / (1e9 * float(row["busbw_GBps"]))
        else:
            left_out["a busbw printed as 0.00"] += 1
            continue
        where, one_process = MACHINE[row["hardware"]], row["launch"] == "one process"
        priced = call(collective, nbytes, where, int(row["nodes"]), ranks, one_process=one_process)
        us, option, asked = tuned(priced)
        least = least_s(option, priced)
        asked = replace(asked, site=row["site"], y=math.log(1e6 * seconds / us))
        found.append(Point(row["hardware"], row["source"], row["site"], ranks, seconds, 1e-6 * us, asked, least))
    return found, dict(left_out)


def thinned(found: Sequence[Point]) -> list[Asked]:
    """One size of each power of four of each sweep: neighbours say nearly the same, and the matrix stays small."""
    chosen: dict[tuple[object, ...], Asked] = {}
    for point in found:
        a = point.asked
        sweep = (a.site, a.machine, a.nodes, point.ranks, a.collective, a.launch)
        chosen.setdefault((*sweep, round(math.log2(a.nbytes) / 2)), a)
    return list(chosen.values())


def robust(asked: Sequence[Asked]) -> list[Asked]:
    """The points with extra variance where the other sites do not foretell them within two deviations: a broken site must not pull."""
    for _ in range(2):
        process, found = Process(asked), {}
        for site in {a.site for a in asked}:
            mine = [a for a in asked if a.site == site]
            for a, told in zip(mine, process.without(site).foretell(mine), strict=True):
                variance = told.deviation**2
                found[id(a)] = max(0.0, ((a.y - told.log_median) ** 2 / variance / 4 - 1) * variance)
        asked = [replace(a, extra=round(found[id(a)], 2)) for a in asked]
    return list(asked)


def held(found: Sequence[Point], process: Process) -> list[Held]:
    """Each point against what all other sites say of it."""
    by_site: dict[str, list[Point]] = defaultdict(list)
    for point in found:
        by_site[point.site].append(point)
    result = []
    for site, mine in by_site.items():
        told = process.without(site).foretell([replace(p.asked, site="") for p in mine])
        result += [Held(p, t) for p, t in zip(mine, told, strict=True)]
    return result


def calibrated_with_two(
    found: Sequence[Point], process: Process, before: Sequence[Held]
) -> tuple[list[Held], list[Held]]:
    """The same after one small and one large measurement of the site: the ends of its longest sweep with a launch and a number of
    nodes. First for the rest of that collective, then for the others."""
    groups: dict[tuple[str, int, str], list[Point]] = defaultdict(list)
    for point in found:
        groups[point.site, point.nodes, point.asked.launch].append(point)
    stretch = scales(before)
    most = {id(h.point): h.half(stretch[h.point.kind]) for h in before}
    same: list[Held] = []
    others: list[Held] = []
    for (site, *_), mine in groups.items():
        sweeps: dict[tuple[object, ...], list[Point]] = defaultdict(list)
        for p in mine:
            sweeps[p.hardware, p.ranks, p.collective].append(p)
        longest = sorted(max(sweeps.values(), key=len), key=lambda p: p.nbytes)
        ends = [longest[0], longest[-1]]
        rest = [p for p in mine if p not in ends]
        if longest[-1].nbytes < 2**24 or not rest:
            continue
        known = process.without(site).also([replace(p.asked, site="", extra=0.0) for p in ends])
        told = known.foretell([replace(p.asked, site="") for p in rest])
        for p, t in zip(rest, told, strict=True):
            (same if p.collective == longest[0].collective else others).append(Held(p, t, most[id(p)]))
    return same, others


def scale_of(held_points: Iterable[Held]) -> float:
    """By what a width must be stretched to hold 80 %. Sites count alike from FULL points on, and less with fewer.

    For the next one of n sites the quantile is 0.8 (n + 1) / n (conformal): the fewer are known, the wider.
    """
    by_site: dict[str, list[float]] = defaultdict(list)
    for h in held_points:
        by_site[h.point.site].append(h.away)
    weighted = sorted((away, min(1.0, len(v) / FULL) / len(v)) for v in by_site.values() for away in v)
    whole, so_far = sum(weight for _, weight in weighted), 0.0
    for away, weight in weighted:
        so_far += weight
        if so_far >= COVERAGE * whole * (len(by_site) + 1) / len(by_site):
            return away
    return weighted[-1][0] if weighted else 1.0


def by_kind(held_points: Iterable[Held]) -> dict[str, list[Held]]:
    found: dict[str, list[Held]] = {kind: [] for kind in KINDS}
    for h in held_points:
        found[h.point.kind].append(h)
    return found


def scales(held_points: Iterable[Held]) -> dict[str, float]:
    return {kind: round(scale_of(mine), 2) for kind, mine in by_kind(held_points).items()}


def covered(mine: Sequence[Held], fixed: float | None = None) -> list[tuple[Held, float]]:
    """Each point with the scale that the *other* sites of its kind give (or a fixed one)."""
    if fixed is not None:
        return [(h, fixed) for h in mine]
    of_site = {site: scale_of(h for h in mine if h.point.site != site) for site in {h.point.site for h in mine}}
    return [(h, of_site[h.point.site]) for h in mine]


def share_inside(scaled: Sequence[tuple[Held, float]]) -> float:
    return sum(h.inside(scale) for h, scale in scaled) / len(scaled)


def typical_factor(values: Iterable[float]) -> float:
    """Half of the predictions are wrong by less than this factor."""
    return math.exp(median(abs(math.log(value)) for value in values))


def coverage_table(held_points: Sequence[Held], fixed: dict[str, float] | None = None) -> list[str]:
    """The table of one way to foretell, in Markdown."""
    rows = [
        "| kind | points | sites | held of 80 % | width (high / low) | typical factor |",
        "|---|---|---|---|---|---|",
    ]
    for kind, mine in by_kind(held_points).items():
        if not mine:
            continue
        scaled = covered(mine, None if fixed is None else fixed[kind])
        sites = len({h.point.site for h in mine})
        width = median(h.width(scale) for h, scale in scaled)
        typical = typical_factor(h.ratio for h in mine)
        rows.append(
            f"| {kind} | {len(mine)} | {sites} | {100 * share_inside(scaled):.0f} % | x {width:.1f} | {typical:.2f} |"
        )
    for size in ("up to 64 KiB", "between", "from 256 MiB"):
        mine = [h for h in held_points if h.point.kind.endswith(size)]
        if mine:
            sites, typical = len({h.point.site for h in mine}), typical_factor(h.ratio for h in mine)
            rows.append(f"| all, {size} | {len(mine)} | {sites} | | | {typical:.2f} |")
    return rows


@dataclass(frozen=True)
class Learned:
    """What is learned from the fitted sites, and each point against the others."""

    found: list[Point]
    asked: list[Asked]
    process: Process
    held: list[Held]
    same: list[Held]
    others: list[Held]

    @classmethod
    def of(cls, found: list[Point]) -> Learned:
        asked = robust(thinned(found))
        process = Process(asked)
        against_others = held(found, process)
        return cls(found, asked, process, against_others, *calibrated_with_two(found, process, against_others))

    @property
    def scales(self) -> dict[str, float]:
        return scales(self.held)

    def of_kept(self, kept: Sequence[Point]) -> list[Held]:
        """The sites that nothing was learned from."""
        told = self.process.foretell([replace(p.asked, site="") for p in kept])
        return [Held(p, t) for p, t in zip(kept, told, strict=True)]


def links_alone(found: Iterable[Point]) -> dict[str, list[tuple[str, float]]]:
    """`simulate` over every card, on the presets whose nodes were filled: (site, measured over predicted) by kind."""
    result: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for point in found:
        preset = PRESETS.get(MACHINE[point.hardware])
        if preset is None or point.ranks != point.nodes * preset.ranks_per_node:
            continue
        seconds = simulate(point.collective, USUAL[point.collective], point.ranks, point.nbytes, preset).seconds
        result[point.kind].append((point.site, point.measured_s / seconds))
    return result


def link_band(mine: Sequence[tuple[str, float]]) -> tuple[float, float, float]:
    """Median, low and high of measured over predicted: 80 % with all sites alike, stretched as `scale_of` stretches."""
    by_site: dict[str, list[float]] = defaultdict(list)
    for site, ratio in mine:
        by_site[site].append(math.log(ratio))
    weighted = sorted((value, 1 / len(v)) for v in by_site.values() for value in v)
    whole = float(len(by_site))
    share = min(1.0, COVERAGE * (whole + 1) / whole)

    def quantile(wanted: float) -> float:
        so_far = 0.0
        for value, weight in weighted:
            so_far += weight
            if so_far >= wanted * whole - 1e-9:
                return math.exp(value)
        return math.exp(weighted[-1][0])

    return quantile(0.5), quantile((1 - share) / 2), quantile((1 + share) / 2)


def link_rows(alone: dict[str, list[tuple[str, float]]]) -> list[str]:
    rows = ["| kind | points | sites | held of 80 % | low to high | most likely |", "|---|---|---|---|---|---|"]
    for kind in KINDS:
        mine = alone[kind]
        inside = 0
        for left in {site for site, _ in mine}:
            _, low, high = link_band([m for m in mine if m[0] != left])
            inside += sum(low <= ratio <= high for site, ratio in mine if site == left)
        middle, low, high = link_band(mine)
        sites = len({site for site, _ in mine})
        rows.append(
            f"| {kind} | {len(mine)} | {sites} | {100 * inside / len(mine):.0f} % | {low:.2f} to {high:.2f} | {middle:.2f} |"
        )
    return rows


def bands(alone: dict[str, list[tuple[str, float]]]) -> str:
    """nccl_bands.py."""
    lines = []
    for kind in KINDS:
        numbers = ", ".join(f"{value:.3f}" for value in link_band(alone[kind]))
        lines.append(f'    "{kind}": ({numbers}, {len({site for site, _ in alone[kind]})}),\n')
    head = BANDS.read_text(encoding="utf-8").split("# kind:")[0]
    what = "# kind: measured over predicted (median, and the ends that hold 8 of 10 sites), number of sites\n"
    return f"{head}{what}LINK_BANDS: dict[str, tuple[float, float, float, int]] = {{\n{''.join(lines)}}}\n"


def learned_file(learned: Learned) -> str:
    """nccl_sites.py."""
    head = LEARNED.read_text(encoding="utf-8").split("SITES:")[0]
    start, rest = head.split("SCALES:")
    comment = rest[rest.index("Measured = ") :]
    both = {"published": learned.scales, "same": scales(learned.same), "others": scales(learned.others)}
    lines = [f'    "{name}": ({", ".join(f"{found[kind]:.2f}" for kind in KINDS)}),\n' for name, found in both.items()]
    parts = [start, "SCALES: dict[str, tuple[float, ...]] = {\n", *lines, "}\n", comment]
    parts.append("SITES: tuple[tuple[str, str, str, int, str, str, tuple[Measured, ...]], ...] = (\n")
    for key, sweep in groupby(learned.asked, lambda a: (a.site, a.machine, a.network, a.nodes, a.collective, a.launch)):
        rows = ", ".join(f'({a.nbytes:.0f}, "{a.algorithm}", {a.hops}, {a.y:.3f}, {a.extra:.2f})' for a in sweep)
        named = ", ".join(f'"{part}"' if isinstance(part, str) else str(part) for part in key)
        parts.append(f"    ({named}, ({rows},)),\n")
    return "".join([*parts, ")  # fmt: skip\n"])


def launches(found: Sequence[Point]) -> str:
    """The microseconds of 1 KiB with one process, and with a process for each GPU, where a site published both."""
    us: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for p in found:
        if p.nodes == 1 and p.nbytes == 2**10 and p.collective == "all_reduce":
            us[p.site, p.hardware][p.asked.launch] = 1e6 * p.measured_s
    both = [(hardware, times) for (_, hardware), times in us.items() if len(times) > 1]
    return ", ".join(f"{hardware} {times['one']:.0f} and {times['']:.0f} µs" for hardware, times in both)


def ten_nodes(found: Sequence[Point]) -> float:
    """Measured over the tuner's time of 32 MiB on 10 nodes, in the median over collectives that the tuner sees."""
    return math.exp(
        median(p.asked.y for p in found if p.nodes == 10 and p.nbytes < 2**26 and p.asked.algorithm != "exchange")
    )


def page(learned: Learned, kept: list[Point], left_out: dict[str, int], of_steps: list[str]) -> str:
    """docs/validation.md."""
    of_kept = learned.of_kept(kept)
    machines: dict[str, list[Held]] = defaultdict(list)
    for h in learned.held:
        machines[f"{h.point.hardware}, {'one node' if h.point.nodes == 1 else 'several nodes'}"].append(h)
    by_machine = [
        f"| {name} | {len(mine)} | {len({h.point.site for h in mine})} | {median(h.ratio for h in mine):.2f} | {typical_factor(h.ratio for h in mine):.2f} |"
        for name, mine in sorted(machines.items())
    ]
    bare = [
        f"| {kind} | {median(math.exp(-h.point.asked.y) for h in mine):.2f} |"
        for kind, mine in by_kind(learned.held).items()
    ]
    faster = [p.least_s / p.measured_s for p in learned.found if p.measured_s < p.least_s]
    roofless, beyond = len(faster), max(faster, default=1.0)
    sites = sorted({p.site for p in learned.found})
    sources = sorted({p.source for p in (*learned.found, *kept)})
    parts = [
        "# How true the prices are",
        "",
        "`python tools/validation.py` writes this page from [published measurements](measured/README.md), and measures every figure on it. Each",
        "measurement is held against what `cost.nccl_price` (`allranks simulate --algorithm nccl`) says of that machine *without the site that it",
        "comes from*: all of a site's points are left out at a time, never single points. Ratios are foretold over measured.",
        "",
        "![Does the 80 % interval hold? Foretold over measured for each point](measured/validation.svg)",
        "",
        "## Does the 80 % interval hold? Sites left out, one at a time",
        "",
        f"{len(learned.found)} points of {len(sites)} sites. 70 to 90 % should lie inside. Widths are medians. The typical factor is what half of the medians are wrong by less than.",
        "",
        *coverage_table(learned.held),
        "",
        "The stretch of a width, too, comes from the other sites alone. No interval reaches below the lower bound, nor below the roof of the algorithm that the",
        f"tuner chooses; {roofless} points do, by up to {100 * (beyond - 1):.0f} %: where the tuner takes a ring, a faster site cannot have run one (a tree or NVLSTree on two nodes can), or NCCL counts 96 GB/s for a",
        "card that carries 98.",
        "",
        "## Sites that nothing is learned from",
        "",
        f"{len(kept)} points of {len({p.site for p in kept})} sites ({', '.join(sorted({p.site for p in kept}))}), in `nccl_tests_kept.csv`: a third of the sites that were found last,",
        "drawn at random before anything was fitted. Neither the prices nor the widths are learned from them. They were not blind: their table had been seen",
        "while the spreads of `calibrated.py` were chosen, by hand, on the sites above, so both tables flatter a little.",
        "",
        *coverage_table(of_kept, learned.scales),
        "",
        "## After one small and one large measurement of one's own",
        "",
        "`--calibrate FILE`: the ends of the left-out site's longest sweep are given. The rest of that collective's points:",
        "",
        *coverage_table(learned.same),
        "",
        "The other collectives of that site:",
        "",
        *coverage_table(learned.others),
        "",
        "## Why sites differ",
        "",
        "- **The launch.** nccl-tests with `-g 8` has one process that drives all GPUs of a node, one after another. The same node with one process, and with a",
        f"  process for each GPU, for 1 KiB: {launches(learned.found)}. `torchrun` starts a process for each GPU, so that is what a price means; `--one-process` asks",
        "  for the other.",
        "- **Slingshot from 16 KiB to 4 MiB.** Polaris' published rows are of a run with `FI_CXI_RX_MATCH_MODE=software` and `FI_CXI_RDZV_PROTO=alt_read`",
        "  (argonne-lcf/alcf-nccl-tests, its fifth run); its third run, with the plugin's defaults, took less than half of the time at 1 MiB on the same nodes: each chunk",
        "  of a hop waits for a rendezvous, which NCCL's tuner does not know. Alps ran with software matching too. The hop's latency is therefore learned by",
        "  network and size, and its band is wide there.",
        f"- **Ten nodes at 32 MiB** take {ten_nodes(learned.found):.1f} times what the tuner says, on InfiniBand too: each of a ring's 2(p-1) steps then has 400 KB, for which the network's",
        "  latency is not hidden. The band has it: the latency of a hop grows with the number of hops.",
        "",
        "## NCCL's tuner alone",
        "",
        "Its own time over the measured one, in the median:",
        "",
        "| kind | tuner / measured |",
        "|---|---|",
        *bare,
        "",
        "## The links alone",
        "",
        "`simulate` over every card at once (what `plan` and `price` say too), on the presets whose nodes were filled; measured over predicted. It knows",
        "neither NVLS, protocols nor a call's floor, and its α are teaching values: it is for large messages. The ends hold 8 of 10 sites.",
        "",
        *link_rows(links_alone(learned.found)),
        "",
        "## By machine, its site left out",
        "",
        "| machine | points | sites | median | typical factor |",
        "|---|---|---|---|---|",
        *by_machine,
        "",
        *of_steps,
        "## Which collectives were left out",
        "",
        *(f"- {count} rows: {why}." for why, count in sorted(left_out.items())),
        "",
        "## Where the numbers come from",
        "",
        *(f"- {source}" for source in sources),
        "",
    ]
    return "\n".join(parts)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true")
    check = options.parse_args().check
    found, left_out = points()
    learned, (kept, _) = Learned.of(found), points(KEPT)
    (trained, steps_left_out), served = steps.rows(), serving.rows()
    changed = []
    for path, text in (
        (LEARNED, learned_file(learned)),
        (BANDS, bands(links_alone(found))),
        (PAGE, page(learned, kept, left_out, [*steps.section(trained, steps_left_out), *serving.section(served)])),
        (FIGURE, figure(learned)),
        (steps.BAND, steps.band(trained)),
        (steps.FIGURE, steps.figure(trained)),
        (serving.BAND, serving.band(served)),
    ):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            changed.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(text, encoding="utf-8")
    print(f"{'differs' if check else 'written'}: {', '.join(changed) or 'nothing'}")
    return int(check and bool(changed))


def figure(learned: Learned) -> str:
    """The interval's coverage by kind, and all points: as SVG."""
    rows = []
    for kind, mine in by_kind(learned.held).items():
        scaled = covered(mine)
        rows.append((kind, share_inside(scaled), median(h.width(scale) for h, scale in scaled)))
    inside = [(h, scale) for mine in by_kind(learned.held).values() for h, scale in covered(mine)]
    dots = [(h.point.nbytes, h.ratio, h.point.nodes > 1, h.inside(scale)) for h, scale in inside]
    return figures.coverage_and_points(rows, dots)


if __name__ == "__main__":
    sys.exit(main())

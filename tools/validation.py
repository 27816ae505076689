"""Holds prices against published measurements: writes docs/validation.md, its figures, and the bands that prices quote.

    python tools/validation.py [--check]

With --check it writes nothing, and ends with 1 if a file is not what it would write.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import validation_steps as steps
from allranks.theory.cost import bus_factor
from allranks.theory.cost.nccl_price import SMALL_NBYTES, NcclPrice, kind_of, nccl_price
from allranks.theory.simulator import simulate
from allranks.theory.simulator.channels import USUAL
from allranks.theory.topology import PRESETS

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "docs" / "measured" / "nccl_tests.csv"
PAGE = ROOT / "docs" / "validation.md"
FIGURE = ROOT / "docs" / "measured" / "validation.svg"
BANDS = ROOT / "utils" / "allranks" / "theory" / "cost" / "nccl_bands.py"
NEAR = (0.8, 1.25)
# the hardware's name in the measurements, and the machine in NCCL's tables
MACHINE = {
    "A100-8": "dgx-a100", "A100-8 8xHDR": "dgx-a100", "A100-8 4x100G EFA": "p4d", "A100-4 2x200G Slingshot": "a100-4",
    "H100-8": "dgx-h100", "H100-8 8x400G RoCE": "dgx-h100", "H100-8 32x100G EFA": "p5", "H200-8": "dgx-h200",
    "H200-8 16x200G EFA": "p5en", "H100-4": "h100-4", "H100-4 4x200G IB": "h100-4", "GH200-4": "gh200-4",
    "GH200-4 4x200G Slingshot": "gh200-4", "B200-8": "dgx-b200", "B200-8 8x400G EFA": "p6-b200",
    "GB300 NVL72": "gb200-nvl72", "GB300 NVL72 racks of 64": "gb200-nvl72", "PCIe4 8x3090": "pcie-8",
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One measurement and its price."""

    hardware: str
    source: str
    nodes: int
    ranks: int
    collective: str
    nbytes: int
    measured_s: float
    price: NcclPrice

    @property
    def kind(self) -> str:
        return kind_of(self.nodes, self.nbytes)

    @property
    def site(self) -> tuple[str, str, int]:
        return self.source, self.hardware, self.nodes


def points(path: Path = MEASURED) -> tuple[list[Point], dict[str, int]]:
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
        nodes = int(row["nodes"])
        price = nccl_price(collective, nbytes, MACHINE[row["hardware"]], nodes=nodes, ranks=ranks)
        found.append(Point(row["hardware"], row["source"], nodes, ranks, collective, nbytes, seconds, price))
    return found, dict(left_out)


def fitted(found: list[Point]) -> dict[tuple[str, str, int], float]:
    """For each site the one overhead in seconds by which its small messages are right in the median; 0 where it has none."""
    late = defaultdict(list)
    for point in found:
        if point.nbytes <= SMALL_NBYTES:
            late[point.site].append(point.measured_s - point.price.seconds)
    return {site: median(values) for site, values in late.items()}


def ratios(found: Iterable[Point], seconds: Callable[[Point], float]) -> dict[str, list[float]]:
    """Predicted over measured, by kind."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for point in found:
        by_kind[point.kind].append(seconds(point) / point.measured_s)
    return by_kind


def links_alone(found: Iterable[Point]) -> dict[str, list[float]]:
    """`simulate` over every card, on the presets whose nodes were filled."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for point in found:
        machine = PRESETS.get(MACHINE[point.hardware])
        if machine is None or point.ranks != point.nodes * machine.ranks_per_node:
            continue
        seconds = simulate(point.collective, USUAL[point.collective], point.ranks, point.nbytes, machine).seconds
        by_kind[point.kind].append(seconds / point.measured_s)
    return by_kind


def near(values: list[float]) -> float:
    """The share that lies within 25 %."""
    return sum(NEAR[0] <= value <= NEAR[1] for value in values) / len(values)


def typical_factor(values: Iterable[float]) -> float:
    """Half of the predictions are wrong by less than this factor."""
    return math.exp(median(abs(math.log(value)) for value in values))


def table(by_kind: dict[str, list[float]]) -> list[str]:
    """The table of one way to predict, in Markdown."""
    rows = ["| kind | points | median | middle half | within 25 % |", "|---|---|---|---|---|"]
    for kind in sorted(by_kind, key=_order):
        values = by_kind[kind]
        low, _, high = quantiles(values, n=4)
        rows.append(
            f"| {kind} | {len(values)} | {median(values):.2f} | {low:.2f} to {high:.2f} | {100 * near(values):.0f} % |"
        )
    every = [value for values in by_kind.values() for value in values]
    rows.append(f"| all | {len(every)} | {median(every):.2f} | | {100 * near(every):.0f} % |")
    return [*rows, "", f"Typical factor: {typical_factor(every):.2f} (half of the predictions are wrong by less)."]


def _order(kind: str) -> tuple[bool, int]:
    return kind.startswith("several"), ["up", "between", "from"].index(kind.split(", ")[1].split()[0])


def page(found: list[Point], left_out: dict[str, int], of_steps: list[str]) -> str:
    """docs/validation.md."""
    overhead = fitted(found)
    none = ratios(found, lambda point: point.price.seconds)
    one = ratios(found, lambda point: max(point.price.seconds + overhead.get(point.site, 0.0), 1e-9))
    bare = ratios([p for p in found if p.price.option], lambda p: 1e-6 * p.price.option.us if p.price.option else 0.0)
    by_machine: dict[str, list[float]] = defaultdict(list)
    for point in found:
        by_machine[f"{point.hardware}, {'one node' if point.nodes == 1 else 'several nodes'}"].append(
            point.price.seconds / point.measured_s
        )
    machines = [
        f"| {name} | {len(values)} | {median(values):.2f} | {100 * near(values):.0f} % |"
        for name, values in sorted(by_machine.items())
    ]
    sources = sorted({point.source for point in found})
    parts = [
        "# How true the prices are",
        "",
        "`python tools/validation.py` writes this page from [published measurements](measured/README.md). Each is held against what",
        "`cost.nccl_price` (and `allranks simulate --algorithm nccl`) says for the closest machine. Ratios are predicted over measured.",
        "",
        "![Predicted over measured for each measurement](measured/validation.svg)",
        "",
        "## As a reader gets it: no number fitted to the site",
        "",
        *table(none),
        "",
        "The floor and the two latencies of a hop of each machine are medians of measurements; where this page has one site of a kind,",
        "that site's own numbers are among them. So these rows say how well one set of numbers fits a machine at all sizes, not how well",
        "it foretells a machine that nobody measured.",
        "",
        "## With one overhead for each site, fitted to its messages up to 64 KiB",
        "",
        *table(one),
        "",
        "## NCCL's tuner alone",
        "",
        "Without floor and network, all_to_all left out (the tuner does not see it):",
        "",
        *table(bare),
        "",
        "## The links alone",
        "",
        "`simulate` over every card at once (what `plan` and `price` say too), on the presets whose nodes were filled. It knows neither NVLS,",
        "protocols nor a call's floor, and its α are teaching values: it is for large messages.",
        "",
        *table(links_alone(found)),
        "",
        "## By machine, no number fitted to the site",
        "",
        "| machine | points | median | within 25 % |",
        "|---|---|---|---|",
        *machines,
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


def bands(found: list[Point]) -> str:
    """nccl_bands.py."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for point in found:
        by_kind[point.kind].append(point.measured_s / point.price.seconds)
    head = BANDS.read_text(encoding="utf-8").split("# kind:")[0]
    parts = [head, "# kind: (quartiles of measured / predicted, number of measurements)\n", _rows("BANDS", by_kind)]
    alone = {kind: [1 / value for value in values] for kind, values in links_alone(found).items()}
    parts += ["# the same for the links alone: `simulate` over every card of a preset\n", _rows("LINK_BANDS", alone)]
    return "".join(parts)


def _rows(name: str, by_kind: dict[str, list[float]]) -> str:
    lines = []
    for kind in sorted(by_kind, key=_order):
        low, _, high = quantiles(by_kind[kind], n=4)
        lines.append(f'    "{kind}": ({low:.3f}, {high:.3f}, {len(by_kind[kind])}),\n')
    return f"{name}: dict[str, tuple[float, float, int]] = {{\n{''.join(lines)}}}\n"


def figure(found: list[Point]) -> str:
    """Predicted over measured against bytes, as SVG; one colour for one node, one for several."""
    width, height, left, bottom = 720, 320, 56, 40
    top_ratio = 8.0

    def x(nbytes: float) -> float:
        return left + (width - left - 16) * math.log2(max(nbytes, 4) / 4) / 33

    def y(ratio: float) -> float:
        share = math.log(max(1 / top_ratio, min(top_ratio, ratio))) / math.log(top_ratio)
        return (height - bottom) / 2 + 8 - share * ((height - bottom) / 2 - 8)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<rect x="{left}" y="{y(NEAR[1]):.1f}" width="{width - left - 16}" height="{y(NEAR[0]) - y(NEAR[1]):.1f}" fill="#e8eef4"/>',
    ]
    for ratio, label in ((0.125, "1/8"), (0.25, "1/4"), (0.5, "1/2"), (1, "1"), (2, "2"), (4, "4"), (8, "8")):
        parts.append(f'<line x1="{left}" x2="{width - 16}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" stroke="#c8ccd0"/>')
        parts.append(f'<text x="{left - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end" fill="#444">{label}</text>')
    for power, label in ((10, "1 KiB"), (16, "64 KiB"), (20, "1 MiB"), (28, "256 MiB"), (33, "8 GiB")):
        parts.append(f'<text x="{x(2**power):.1f}" y="{height - 20}" text-anchor="middle" fill="#444">{label}</text>')
    for point in found:
        colour = "#0072b2" if point.nodes == 1 else "#d55e00"
        ratio = point.price.seconds / point.measured_s
        parts.append(
            f'<circle cx="{x(point.nbytes):.1f}" cy="{y(ratio):.1f}" r="2.2" fill="{colour}" fill-opacity="0.6"/>'
        )
    parts.append(
        f'<text x="{left}" y="{height - 4}" fill="#444">predicted / measured; blue: one node, orange: several; grey: within 25 %</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true")
    check = options.parse_args().check
    found, left_out = points()
    trained, steps_left_out = steps.rows()
    changed = []
    for path, text in (
        (BANDS, bands(found)),
        (PAGE, page(found, left_out, steps.section(trained, steps_left_out))),
        (FIGURE, figure(found)),
        (steps.BAND, steps.band(trained)),
        (steps.FIGURE, steps.figure(trained)),
    ):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            changed.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(text, encoding="utf-8")
    print(f"{'differs' if check else 'written'}: {', '.join(changed) or 'nothing'}")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())

"""The figures of docs/cost_model.md, drawn from the formulas that they show.

    python tools/cost_figures.py [--check]

With --check it writes nothing, and ends with 1 if a file is not what it would write.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from allranks.theory.cost import price
from allranks.theory.cost.calibrated import foretell
from allranks.theory.cost.nccl import call
from allranks.theory.cost.nccl_price import tuned

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
INK, GREY, LINE, BAND = "#1b1f24", "#57606a", "#c8ccd0", "#e8ebeb"
COLOURS = ("#0072b2", "#d55e00", "#009e73")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 230, 64, 150, 16, 40
Curve = tuple[str, Sequence[tuple[float, float]]]


class Axes:
    """Two scales of powers; `ticks` are (value, label)."""

    def __init__(self, xs: Sequence[tuple[float, str]], ys: Sequence[tuple[float, str]]) -> None:
        self.xs, self.ys = xs, ys

    def x(self, value: float) -> float:
        low, high = math.log(self.xs[0][0]), math.log(self.xs[-1][0])
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log(value) - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = math.log(self.ys[0][0]), math.log(self.ys[-1][0])
        share = (math.log(value) - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(1.0, max(0.0, share))

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)


def chart(axes: Axes, curves: Sequence[Curve], words: str, band: Sequence[tuple[float, float, float]] = ()) -> str:
    """A chart as SVG: lines with their names at the right, over a band of (x, low, high)."""
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            'font-size="12">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    if band:
        outline = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
        parts.append(f'<polygon points="{axes.path(outline)}" fill="{BAND}"/>')
    for value, label in axes.ys:
        y = axes.y(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{GREY}">{label}</text>')
    for value, label in axes.xs:
        parts.append(
            f'<text x="{axes.x(value):.1f}" y="{HEIGHT - 24}" text-anchor="middle" fill="{GREY}">{label}</text>'
        )
    for (name, points), colour in zip(curves, COLOURS, strict=False):
        parts.append(f'<polyline points="{axes.path(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        end = axes.y(points[-1][1])
        parts.append(f'<text x="{WIDTH - RIGHT + 6}" y="{end + 4:.1f}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}" fill="{GREY}">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


SIZES = [(2.0**10, "1 KiB"), (2.0**16, "64 KiB"), (2.0**20, "1 MiB"), (2.0**24, "16 MiB"), (2.0**30, "1 GiB")]
TIMES = [(1e-6, "1 µs"), (1e-5, "10 µs"), (1e-4, "100 µs"), (1e-3, "1 ms"), (1e-2, "10 ms")]
STEPS = [2.0 ** (10 + k / 2) for k in range(41)]


def message() -> str:
    """alpha + n beta, and its two ends."""
    alpha, beta = 2e-6, 1 / 371e9
    curves = [
        ("α + n β", [(n, alpha + n * beta) for n in STEPS]),
        ("n β", [(n, n * beta) for n in STEPS if n * beta >= 1e-6]),
        ("", [(n, alpha) for n in STEPS]),
    ]
    return chart(Axes(SIZES, TIMES), curves, "one message over NVLink of an H100 (371 GB/s), α = 2 µs")


def algorithms() -> str:
    """Which algorithm is best depends on the size."""
    alpha, beta = 2e-6, 1 / 371e9
    ways = {"ring": "ring", "doubling": "recursive doubling", "halving": "rabenseifner"}
    curves = [
        (name, [(n, float(price("all_reduce", way, 64, n, alpha, beta))) for n in STEPS]) for name, way in ways.items()
    ]
    return chart(Axes(SIZES, [*TIMES, (1e-1, "100 ms")]), curves, "all_reduce of 64 ranks; α = 2 µs, 371 GB/s")


def hidden() -> str:
    """What of a collective no computing hides, by the number of buckets."""
    sent, computed = 0.15, 0.4
    buckets = [2.0 ** (k / 4) for k in range(41)]
    curves = [("exposed", [(k, max(sent - computed * (1 - 1 / k), sent / k)) for k in buckets])]
    xs = [(1.0, "1"), (4.0, "4"), (32.0, "32"), (256.0, "256"), (1024.0, "1024")]
    ys = [(1e-4, "0.1 ms"), (1e-3, "1 ms"), (1e-2, "10 ms"), (1e-1, "100 ms"), (2e-1, "200 ms")]
    return chart(Axes(xs, ys), curves, "seconds exposed by number of buckets; 150 ms to send, 400 ms of backward pass")


def waits() -> str:
    """The share of a pipeline's slots in which a stage waits."""
    many = [2.0 ** (k / 4) for k in range(33)]
    curves = [(f"{p} stages", [(m, (p - 1) / (m + p - 1)) for m in many]) for p in (2, 4, 8)]
    xs = [(1.0, "1"), (4.0, "4"), (16.0, "16"), (64.0, "64"), (256.0, "256")]
    ys = [(0.003, "0.3 %"), (0.01, "1 %"), (0.1, "10 %"), (1.0, "100 %")]
    return chart(Axes(xs, ys), curves, "share of the time in which a stage waits, by microbatches")


def interval() -> str:
    """The tuner's time, and what 8 of 10 sites take."""
    median, band, alone = [], [], []
    for n in STEPS:
        us, _, asked = tuned(call("all_reduce", n, "dgx-h100", 2))
        middle, low, high, _ = foretell(asked)
        alone.append((n, 1e-6 * us))
        median.append((n, 1e-6 * us * middle))
        band.append((n, 1e-6 * us * low, 1e-6 * us * high))
    curves = [("most likely", median), ("NCCL's tuner", alone)]
    return chart(Axes(SIZES, TIMES), curves, "all_reduce on two nodes of 8 H100s; grey: 8 of 10 sites", band)


FIGURES = {
    "cost_message": message,
    "cost_algorithms": algorithms,
    "cost_hidden": hidden,
    "cost_waits": waits,
    "cost_interval": interval,
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true")
    check = options.parse_args().check
    changed = []
    for name, draw in FIGURES.items():
        path, text = FOLDER / f"{name}.svg", draw()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            changed.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
    print(f"{'differs' if check else 'written'}: {', '.join(changed) or 'nothing'}")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())

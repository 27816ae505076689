"""Figures: time over size, bandwidth beside the link's limit, alpha-beta fits and timelines.

Each function returns a matplotlib figure, which a notebook shows by itself and `savefig` writes to a file. The functions
only draw: the seconds come from `Schedule.price`, a simulation or a measurement.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from allranks.errors import CourseError
from allranks.schedules import Schedule
from allranks.trace import Trace

__all__ = [
    "Chart",
    "PlotError",
    "bandwidth",
    "fit",
    "scaling",
    "timeline",
]

# Okabe and Ito's colours; each has a marker of its own, so that a print without colours can be read too
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = "osD^vPX"
OPS = {"send": "#6b7785", "recv": "#0072b2", "reduce": "#c25400", "compute": "#00795a", "wait": "#c8c8c8"}

Points = Sequence[tuple[float, float]]


class PlotError(CourseError, ValueError):
    """Data that can't be drawn."""


class Chart(Figure):
    """A figure that a notebook shows without pyplot.

    >>> plots.fit([(1000, 2e-6)], alpha=1e-6, beta=1e-9)
    <Chart size 640x400 with 1 Axes>
    """

    def _repr_svg_(self) -> str:
        text = io.StringIO()
        self.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
        return text.getvalue()


def scaling(schedules: Sequence[Schedule], sizes: Sequence[int], alpha: float, beta: float, gamma: float = 0) -> Chart:
    """Seconds of each schedule over the bytes of the full vector; both axes are logarithmic.

    `alpha` is seconds a message, `beta` and `gamma` are seconds a byte, as in `Schedule.price`. Raises PlotError if there
    is nothing to draw.

    >>> from allranks.schedules import ring_all_reduce
    >>> plots.scaling([ring_all_reduce(4)], sizes=[1000, 1_000_000], alpha=5e-6, beta=1e-9).axes[0].get_xlabel()
    'bytes of the full vector'
    """
    _require(schedules, "a scaling plot needs at least one schedule")
    _require(sizes and all(n > 0 for n in sizes), "sizes must be one or more positive numbers of bytes")
    figure, axes = _chart("bytes of the full vector", "seconds")
    for number, schedule in enumerate(schedules):
        seconds = [float(schedule.price(n, alpha, beta, gamma)) for n in sizes]
        axes.loglog(
            sizes,
            seconds,
            label=f"{schedule.algorithm} {schedule.collective}, {schedule.ranks} ranks",
            **_line_style(number),
        )
    axes.set_title(f"alpha {alpha * 1e6:.3g} µs, 1/beta {_rate(beta)}", fontsize=10)
    axes.legend(frameon=False)
    return figure


def bandwidth(measured: Mapping[str, Points], factor: float, roof_bytes_per_s: float | None = None) -> Chart:
    """algbw (dashed) and busbw (solid) in GB/s over the bytes, for each named series of (nbytes, seconds).

    `factor` is busbw over algbw, for all_reduce 2(p-1)/p; `roof_bytes_per_s` is the link's bandwidth. Raises PlotError if
    there is nothing to draw, or a figure is not above 0.

    >>> chart = plots.bandwidth({"ring": [(1e9, 0.5), (2e9, 0.5)]}, factor=1.5)
    >>> chart.axes[0].get_legend_handles_labels()[1]
    ['ring, busbw', 'ring, algbw']
    """
    _require(measured, "a bandwidth plot needs at least one series")
    figure, axes = _chart("bytes", "GB/s")
    axes.set_xscale("log")
    for number, (name, points) in enumerate(measured.items()):
        _positive(name, points)
        sizes = [n for n, _ in points]
        algbw = [n / seconds / 1e9 for n, seconds in points]
        style = _line_style(number)
        axes.plot(sizes, [factor * value for value in algbw], label=f"{name}, busbw", **style)
        axes.plot(sizes, algbw, label=f"{name}, algbw", **{**style, "linestyle": "--", "markerfacecolor": "none"})
    if roof_bytes_per_s is not None:
        axes.axhline(roof_bytes_per_s / 1e9, color="#444", linewidth=1)
        note = f"roof {roof_bytes_per_s / 1e9:.3g} GB/s"
        axes.annotate(note, (0.01, roof_bytes_per_s / 1e9), xycoords=("axes fraction", "data"), va="bottom", fontsize=9)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


def fit(points: Points, alpha: float, beta: float) -> Chart:
    """Measured (nbytes, seconds), and the line alpha + beta n; the legend says how far the worst point is from the line.

    Raises PlotError if there is nothing to draw, or a figure is not above 0.

    >>> chart = plots.fit([(1000, 2e-6), (3000, 5e-6)], alpha=1e-6, beta=1e-9)
    >>> chart.axes[0].get_legend_handles_labels()[1]
    ['measured', '1 µs + n / (1 GB/s), worst 20% off']
    """
    _positive("the points", points)
    figure, axes = _chart("bytes n", "seconds")
    sizes = sorted(n for n, _ in points)
    worst = max(abs(alpha + beta * n - seconds) / seconds for n, seconds in points)
    axes.loglog([n for n, _ in points], [s for _, s in points], "o", color=COLOURS[0], label="measured")
    label = f"{alpha * 1e6:.3g} µs + n / ({_rate(beta)}), worst {worst:.0%} off"
    axes.loglog(sizes, [alpha + beta * n for n in sizes], color=COLOURS[1], label=label)
    axes.legend(frameon=False)
    return figure


def timeline(trace: Trace) -> Chart:
    """The trace as a picture: a row for each rank, with times from left to right (or steps, if there are no times).

    In a row, sends are above and receives below. Where ranks compute, computing is above and all messages are below. Raises
    PlotError for a trace with neither times nor steps.

    >>> from allranks.schedules import ring_all_reduce
    >>> len(plots.timeline(ring_all_reduce(3).trace()).axes[0].collections)
    24
    """
    # (event, start, length): in seconds, or in steps of nearly 1
    if trace.clock == "step":
        shown = [(e, float(e.step), 0.95) for e in trace if e.step is not None]
    else:
        shown = [(e, e.start, e.end - e.start) for e in trace if e.start is not None and e.end is not None]
    _require(shown, "this trace has no times and no steps, so there is nothing to lay out")
    computing = trace.clock != "step" and any(e.op == "compute" for e, _, _ in shown)
    end = max(start + length for _, start, length in shown)
    unit, scale = ("s", 1.0) if end >= 1 else ("ms", 1e3) if end >= 0.01 else ("µs", 1e6)
    if trace.clock == "step":
        unit, scale = "step", 1.0
    figure, axes = _chart(unit, "", size=(8, 1 + 0.35 * trace.ranks))
    for event, start, length in shown:
        half = {"send": (-0.4, 0.4), "recv": (0, 0.4), "reduce": (0, 0.4)}.get(event.op, (-0.4, 0.8))
        if computing:
            half = (-0.4, 0.4) if event.op == "compute" else (0, 0.4)
        style: dict[str, Any] = {"linewidth": 0.8 if computing else 0}
        if event.op == "wait":
            style = {"hatch": "///", "linewidth": 0}
        colour, edge = OPS.get(event.op, "#0072b2"), "white" if computing else OPS.get(event.op, "#0072b2")
        order = 1 if computing and event.op == "wait" else 2
        place = (event.rank + half[0], half[1])
        axes.broken_barh(
            [(start * scale, length * scale)], place, facecolor=colour, edgecolor=edge, zorder=order, **style
        )
    axes.set_yticks(range(trace.ranks), [f"rank {r}" for r in range(trace.ranks)])
    axes.invert_yaxis()
    drawn = {event.op for event, _, _ in shown}
    there = [op for op in OPS if op in drawn]
    if computing:
        there += sorted(drawn - set(OPS))
    if there:
        handles = [Line2D([], [], color=OPS.get(op, "#0072b2"), linewidth=6, label=op) for op in there]
        axes.legend(handles=handles, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _chart(across: str, up: str, size: tuple[float, float] = (6.4, 4)) -> tuple[Chart, Axes]:
    figure = Chart(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _line_style(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 4}


def _rate(beta: float) -> str:
    return f"{1e-9 / beta:.3g} GB/s" if beta > 0 else "∞ GB/s"


def _require(good: object, sentence: str) -> None:
    if not good:
        raise PlotError(sentence)


def _positive(name: str, points: Points) -> None:
    _require(points and all(n > 0 and s > 0 for n, s in points), f"{name} must be pairs (nbytes, seconds), all above 0")

"""Figures: time over size, bandwidth beside the link's limit, alpha-beta fits, timelines, a number for each pair, and a
chart for your own curves.

Each function returns a matplotlib figure, which a notebook shows by itself and `savefig` writes to a file. In a
notebook its colours follow the theme, also when that changes. The functions only draw: the seconds come from
`Schedule.price`, a simulation or a measurement.
"""

from __future__ import annotations

import io
import re
import secrets
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from allranks.base.errors import CourseError
from allranks.base.theme import DARK, LIGHT, UNNAMED
from allranks.theory.schedules import Schedule
from allranks.theory.trace import Trace

__all__ = [
    "Chart",
    "PlotError",
    "bandwidth",
    "chart",
    "fit",
    "matrix",
    "scaling",
    "timeline",
]

# the colours of the widgets: (light, dark)
THEME = {name: (LIGHT[name], DARK[name]) for name in LIGHT}
INK, SOFT, LINE, HAIR, WIRE, WORK, LOST = (
    THEME[name][0] for name in ("ink", "soft", "line", "hair", "wire", "work", "lost")
)
# ink and dashes tell curves apart: hue says whose numbers they are
DASHES = ("-", "--", ":", "-.", (0, (8, 2)), (0, (2, 1)))
MARKERS = "osD^vP"
OPS = {"send": WIRE, "recv": SOFT, "reduce": WORK, "compute": WORK, "wait": LOST}

Points = Sequence[tuple[float, float]]


class PlotError(CourseError, ValueError):
    """Data that can't be drawn."""


class Chart(Figure):
    """A figure that a notebook shows without pyplot.

    >>> plots.fit([(1000, 2e-6)], alpha=1e-6, beta=1e-9)
    <Chart size 640x360 with 1 Axes>
    """

    def points_text(self) -> str:
        """The points of every curve as lines of text: for those who read instead of looking, and for tests."""
        lines, number = [], 0
        for axes in self.axes:
            lines.append(f"{axes.get_ylabel() or 'rows'} over {self.axes[-1].get_xlabel()}")
            for line in axes.lines:
                number += 1
                label = str(line.get_label())
                name = f"curve {number}" if label.startswith("_") else label
                drawn: Any = line.get_xydata()
                lines.append(f"{name}: " + ", ".join(f"{x:.10g} {y:.6g}" for x, y in drawn))
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.points_text())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The page's picture and the plain one from one drawing: matplotlib's takes most of the time."""
        svg = self._repr_svg_()
        return {"text/html": self._html(svg), "image/svg+xml": svg}

    def _repr_svg_(self) -> str:
        text = io.StringIO()
        plain = 4  # 2 and 60 on a logarithmic axis, not 2 x 10^0 and 6 x 10^1
        with matplotlib.rc_context(
            {"svg.fonttype": "none", "svg.hashsalt": "allranks", "axes.formatter.min_exponent": plain}
        ):
            self.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
        return text.getvalue()

    def _repr_html_(self) -> str:
        return self._html(self._repr_svg_())

    def _html(self, svg: str) -> str:
        """The picture in the page itself, so that its colours are those of the page's theme."""
        named = [line.split(": ")[0] for line in self.points_text().split("\n")]
        label = escape("Chart: " + "; ".join(named), quote=True)
        picture = _themed(svg)
        return f'<div class="ar-figure" role="img" aria-label="{label}"><style>{_style()}</style>{picture}</div>'


def chart(across: str, up: str, size: tuple[float, float] = (6.4, 3.6), rows: int = 1) -> tuple[Chart, Any]:
    """An empty chart and its axes, for your own curves in the course's style: `axes.plot(...)`, then `figure` to show
    it.

    `across` and `up` name the axes, `size` is in inches. With more `rows` there is an array of axes, one above the
    other, which share the lowest axis.

    >>> figure, axes = plots.chart("ranks", "steps")
    >>> axes.get_xlabel(), figure
    ('ranks', <Chart size 640x360 with 1 Axes>)
    """
    figure = Chart(figsize=size, layout="constrained")
    panes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for axes in panes:
        _dress(axes)
        axes.set_ylabel(up)
    panes[-1].set_xlabel(across)
    return figure, panes[0] if rows == 1 else panes


def matrix(rows: Sequence[Sequence[float]], across: str, up: str, digits: int = 3) -> Chart:
    """A number for each pair, such as GB/s from rank to rank: the higher, the more ink its square has.

    A pair of one with itself stays empty. `digits` counts those of a number that are shown. Raises PlotError if the
    rows are not as long as there are rows.

    >>> plots.matrix([[0, 2.5], [1.25, 0]], "to rank", "from rank").axes[0].texts[0].get_text()
    '2.5'
    """
    count = len(rows)
    _require(
        count and all(len(row) == count for row in rows), "a matrix needs as many numbers in each row as it has rows"
    )
    side = 0.56 if count <= 8 else 0.44
    figure, axes = chart(across, up, size=(side * count + 0.7, side * count + 0.6))
    most = max((x for a, row in enumerate(rows) for b, x in enumerate(row) if a != b), default=0) or 1
    for a, row in enumerate(rows):
        for b, x in enumerate(row):
            if a == b:
                continue
            shade = 0.4 * max(0.0, x / most)
            axes.add_patch(Rectangle((b - 0.48, a - 0.48), 0.96, 0.96, facecolor=INK, alpha=shade, linewidth=0))
            axes.text(b, a, f"{x:.{digits}g}", ha="center", va="center", fontsize=9.5, color=INK)
        # for those who read: the row in the figure's text
        axes.plot(range(count), row, visible=False, label=f"{up} {a}")
    ticks = range(count)
    axes.set(xticks=ticks, yticks=ticks, xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5), aspect="equal")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def _dress(axes: Axes) -> None:
    """The course's style: hair lines, soft ticks, curves in ink that differ by their dashes."""
    axes.grid(color=HAIR, linewidth=1)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE)
    axes.tick_params(which="both", color=LINE, labelcolor=SOFT, labelsize=9.5)
    looks = {
        "color": [INK, *[SOFT] * (len(DASHES) - 1)],
        "linestyle": DASHES,
        "linewidth": [2.6, *[1.5] * (len(DASHES) - 1)],
    }
    # with more curves than dashes, the later ones have markers, too
    again = {name: [*values, *values] for name, values in looks.items()}
    axes.set_prop_cycle(**again, marker=[*["None"] * len(DASHES), *MARKERS], markersize=[4] * 2 * len(DASHES))


def _style() -> str:
    """The theme's variables for a figure, and its letters."""
    light, dark = (";".join(f"--ar-{name}:{pair[i]}" for name, pair in THEME.items()) for i in (0, 1))
    dark_of = ",".join(
        f"{body} .ar-figure"
        for body in ('body[data-jp-theme-light="false"]', 'body[data-theme="dark"]', ".vscode-dark")
    )
    return (
        f".ar-figure{{{light};overflow-x:auto}}{dark_of}{{{dark}}}"
        # as in theme.css; such a page may be white, so the figure brings its paper
        f"@media(prefers-color-scheme:dark){{{UNNAMED} .ar-figure{{{dark};background:var(--ar-paper)}}}}"
        ".ar-figure svg{display:block;height:auto;max-width:100%;fill:var(--ar-ink)}"
        ".ar-figure svg *{stroke-linejoin:round}"
        ".ar-figure text{font-family:var(--jp-ui-font-family,system-ui,sans-serif)!important}"
    )


def _themed(picture: str) -> str:
    """A picture of matplotlib's with variables for colours, without what would reach the rest of the page."""
    text = picture[picture.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", text, flags=re.S)
    names = {pair[0]: name for name, pair in THEME.items()} | {"#000000": "ink", "#cccccc": "line", "#b0b0b0": "line"}
    text = re.sub(r'\b(fill|stroke)="(#[0-9a-f]{6})"', r'style="\1: \2"', text)
    text = re.sub("#[0-9a-f]{6}", lambda found: f"var(--ar-{names[found[0]]})" if found[0] in names else found[0], text)
    # the sheet behind the axes is the page
    sheet = r'((?:<g id="axes_\d+">\s*<g id="patch_\d+">|<g id="patch_1">)\s*<path[^>]*style=")fill: var\(--ar-paper\)'
    text = re.sub(sheet, r"\1fill: none", text)
    # a figure may stand in a page twice, and a pattern of one that is scrolled out of view draws nothing
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>u{secrets.token_hex(4)}-", text)
    # a narrow page scrolls before letters become too small
    width = float(re.search(r'width="([\d.]+)pt"', text)[1])  # type: ignore[index]
    return text.replace("<svg", f'<svg style="min-width:{width * 4 / 3 * 0.9:.0f}px"', 1)


def scaling(schedules: Sequence[Schedule], sizes: Sequence[int], alpha: float, beta: float, gamma: float = 0) -> Chart:
    """Seconds of each schedule over the bytes of the full vector; both axes are logarithmic.

    `alpha` is seconds a message, `beta` and `gamma` are seconds a byte, as in `Schedule.price`. Raises PlotError if
    there is nothing to draw.

    >>> from allranks.schedules import ring_all_reduce
    >>> plots.scaling([ring_all_reduce(4)], sizes=[1000, 1_000_000], alpha=5e-6, beta=1e-9).axes[0].get_xlabel()
    'bytes of the full vector'
    """
    _require(schedules, "a scaling plot needs at least one schedule")
    _require(sizes and all(n > 0 for n in sizes), "sizes must be one or more positive numbers of bytes")
    figure, axes = chart("bytes of the full vector", "seconds")
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

    `factor` is busbw over algbw, for all_reduce 2(p-1)/p; `roof_bytes_per_s` is the link's bandwidth. Raises PlotError
    if there is nothing to draw, or a figure is not above 0.

    >>> chart = plots.bandwidth({"ring": [(1e9, 0.5), (2e9, 0.5)]}, factor=1.5)
    >>> chart.axes[0].get_legend_handles_labels()[1]
    ['ring, busbw', 'ring, algbw']
    """
    _require(measured, "a bandwidth plot needs at least one series")
    figure, axes = chart("bytes", "GB/s")
    axes.set_xscale("log")
    for number, (name, points) in enumerate(measured.items()):
        _positive(name, points)
        sizes = [n for n, _ in points]
        algbw = [n / seconds / 1e9 for n, seconds in points]
        style = _line_style(number)
        axes.plot(sizes, [factor * value for value in algbw], label=f"{name}, busbw", **style)
        axes.plot(sizes, algbw, label=f"{name}, algbw", **{**style, "linestyle": "--", "markerfacecolor": "none"})
    if roof_bytes_per_s is not None:
        axes.axhline(roof_bytes_per_s / 1e9, color=SOFT, linewidth=1)
        note = f"roof {roof_bytes_per_s / 1e9:.3g} GB/s"
        axes.annotate(note, (0.01, roof_bytes_per_s / 1e9), xycoords=("axes fraction", "data"), va="bottom", fontsize=9)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


def fit(points: Points, alpha: float, beta: float) -> Chart:
    """Measured (nbytes, seconds), and the line alpha + beta n; the legend says how far the worst point is from the
    line.

    Raises PlotError if there is nothing to draw, or a figure is not above 0.

    >>> chart = plots.fit([(1000, 2e-6), (3000, 5e-6)], alpha=1e-6, beta=1e-9)
    >>> chart.axes[0].get_legend_handles_labels()[1]
    ['measured', '1 µs + n / (1 GB/s), worst 20% off']
    """
    _positive("the points", points)
    figure, axes = chart("bytes n", "seconds")
    sizes = sorted(n for n, _ in points)
    worst = max(abs(alpha + beta * n - seconds) / seconds for n, seconds in points)
    axes.loglog([n for n, _ in points], [s for _, s in points], "o", color=INK, label="measured")
    label = f"{alpha * 1e6:.3g} µs + n / ({_rate(beta)}), worst {worst:.0%} off"
    axes.loglog(sizes, [alpha + beta * n for n in sizes], color=SOFT, linestyle="-", label=label)
    axes.legend(frameon=False)
    return figure


def timeline(trace: Trace) -> Chart:
    """The trace as a picture: a row for each rank, with times from left to right (or steps, if there are no times).

    In a row, sends are above and receives below. Where ranks compute, computing is above and all messages are below; on
    a virtual clock a rank that waits does not compute, so that is above, too.
    Raises PlotError for a trace with neither times nor steps.

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
    figure, axes = chart(unit, "", size=(8, 1 + 0.35 * trace.ranks))
    axes.grid(visible=False, axis="y")
    for event, start, length in shown:
        half = {"send": (-0.4, 0.4), "recv": (0, 0.4), "reduce": (0, 0.4)}.get(event.op, (-0.4, 0.8))
        if computing:
            above = {"compute", "wait"} if trace.clock == "virtual" else {"compute"}
            below = {"send": (0, 0.2), "recv": (0.2, 0.2)}.get(event.op, (0, 0.4))
            half = (-0.4, 0.4) if event.op in above else below
        style: dict[str, Any] = {"linewidth": 0.8 if computing else 0}
        if event.op == "wait":
            style = {"hatch": "////", "linewidth": 0}
        colour = OPS.get(event.op, WIRE)
        edge = "white" if computing else colour
        if event.op == "wait":
            colour, edge = "none", LOST
        order = 1 if event.op == "wait" else 2
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
        handles: list[Any] = [Line2D([], [], color=OPS.get(op, WIRE), linewidth=6, label=op) for op in there]
        if "wait" in there:
            hatched: dict[str, Any] = {"facecolor": "none", "edgecolor": LOST, "hatch": "////", "linewidth": 0}
            handles[there.index("wait")] = Rectangle((0, 0), 1, 1, label="wait", **hatched)
        axes.legend(handles=handles, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _line_style(number: int) -> dict[str, Any]:
    dash = DASHES[number % len(DASHES)]
    marker = MARKERS[number % len(MARKERS)]
    return {"color": SOFT if number else INK, "linestyle": dash, "marker": marker, "markersize": 4}


def _rate(beta: float) -> str:
    return f"{1e-9 / beta:.3g} GB/s" if beta > 0 else "∞ GB/s"


def _require(good: object, sentence: str) -> None:
    if not good:
        raise PlotError(sentence)


def _positive(name: str, points: Points) -> None:
    _require(points and all(n > 0 and s > 0 for n, s in points), f"{name} must be pairs (nbytes, seconds), all above 0")

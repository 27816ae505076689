"""The figures hold the numbers that they were given, in the units that their axes name."""

from __future__ import annotations

import re

import pytest
from allranks.show.plots import Chart, PlotError, bandwidth, chart, fit, matrix, scaling, timeline
from allranks.theory.schedules import ring_all_reduce, tree_all_reduce
from allranks.theory.trace import Event, Trace
from IPython.core.formatters import DisplayFormatter


def lines(figure) -> dict[str, tuple[list, list]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in figure.axes[0].lines}


def test_scaling_draws_the_price_of_each_schedule():
    found = lines(scaling([ring_all_reduce(4), tree_all_reduce(4)], [4000, 4_000_000], alpha=1e-6, beta=1e-9))
    # ring: 6 alpha + 6/4 n beta; tree: 4 (alpha + n beta)
    assert found["ring all_reduce, 4 ranks"] == ([4000, 4_000_000], pytest.approx([12e-6, 6006e-6]))
    assert found["tree all_reduce, 4 ranks"] == ([4000, 4_000_000], pytest.approx([20e-6, 16004e-6]))


def test_no_two_of_twelve_curves_look_the_same():
    _, axes = chart("bytes", "seconds")
    for _ in range(12):
        axes.plot([1, 2], [1, 2])
    looks = {
        (line.get_color(), line.get_linestyle(), *line._unscaled_dash_pattern[1:], line.get_marker())
        for line in axes.lines
    }
    assert len({str(look) for look in looks}) == 12


def test_bandwidth_in_gb_per_s_with_its_roof():
    figure = bandwidth({"ring": [(1e9, 0.5), (2e9, 0.5)]}, factor=1.5, roof_bytes_per_s=8e9)
    found = lines(figure)
    assert found["ring, algbw"] == ([1e9, 2e9], [2.0, 4.0])
    assert found["ring, busbw"] == ([1e9, 2e9], [3.0, 6.0])
    assert [line.get_ydata()[0] for line in figure.axes[0].lines if len(set(line.get_ydata())) == 1] == [8.0]
    assert figure.axes[0].texts[0].get_text() == "roof 8 GB/s"


def test_a_fit_says_how_far_off_its_worst_point_is():
    found = lines(fit([(1000, 2e-6), (3000, 5e-6)], alpha=1e-6, beta=1e-9))
    assert found["measured"] == ([1000, 3000], [2e-6, 5e-6])
    assert found["1 µs + n / (1 GB/s), worst 20% off"] == ([1000, 3000], pytest.approx([2e-6, 4e-6]))


def test_a_timeline_has_a_lane_for_each_rank_and_a_bar_for_each_event():
    trace = ring_all_reduce(3).trace()
    axes = timeline(trace).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["rank 0", "rank 1", "rank 2"]
    assert len(axes.collections) == len(trace)


def test_what_a_rank_computes_lies_above_what_travels_meanwhile():
    events = (
        Event(0, "compute", start=0.0, end=4.0),
        Event(0, "all_reduce", start=2.0, end=5.0),
        Event(0, "wait", start=4.0, end=5.0),
    )
    axes = timeline(Trace("wire", 1, events, clock="virtual")).axes[0]
    boxes = [bars.get_paths()[0].get_extents() for bars in axes.collections]
    assert [(box.x0, box.x1) for box in boxes] == [(0, 4), (2, 5), (4, 5)]  # in seconds
    assert boxes[0].y1 <= boxes[1].y0 and boxes[2].y0 == boxes[0].y0  # who waits does not compute
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"compute", "wait", "all_reduce"}


def test_no_message_covers_another_one_below_the_computing():
    times = {"start": 0.0, "end": 1.0}
    events = [Event(0, op, peer=1, **times) for op in ("send", "recv")] + [Event(0, "compute", **times)]
    axes = timeline(Trace("wire", 2, tuple(events), clock="virtual")).axes[0]
    send, recv, compute = (bars.get_paths()[0].get_extents() for bars in axes.collections)
    assert compute.y1 <= send.y0 < send.y1 <= recv.y0


def test_a_matrix_has_the_number_of_each_pair_and_no_colour_of_its_own():
    shown = matrix([[0, 12.34], [0.5, 0]], "to rank", "from rank")
    assert [text.get_text() for text in shown.axes[0].texts] == ["12.3", "0.5"]
    assert "from rank 0: 0 0, 1 12.34" in shown.points_text()
    page = shown._repr_html_()
    picture = page[page.index("</style>") :]
    assert ">12.3<" in picture and not re.findall("#[0-9a-f]{6}", picture), "a colour that no theme changes"


def test_it_shows_itself_in_a_notebook():
    assert "<svg" in fit([(1000, 2e-6)], 1e-6, 1e-9)._repr_svg_()


def test_a_cell_draws_its_figure_once(monkeypatch):
    """Matplotlib takes most of the time of a short cell, and a notebook asks for two pictures."""
    drawn = []
    draw = Chart._repr_svg_
    monkeypatch.setattr(Chart, "_repr_svg_", lambda figure: drawn.append(figure) or draw(figure))
    shown, _ = DisplayFormatter().format(fit([(1000, 2e-6)], 1e-6, 1e-9))
    assert {"text/html", "image/svg+xml", "text/plain"} <= set(shown) and len(drawn) == 1
    assert shown["text/plain"].startswith("seconds over bytes n")


@pytest.mark.parametrize(
    "call",
    [
        lambda: scaling([], [1], 1e-6, 1e-9),
        lambda: scaling([ring_all_reduce(2)], [0], 1e-6, 1e-9),
        lambda: bandwidth({"x": []}, 1.0),
        lambda: fit([(0, 1.0)], 1e-6, 1e-9),
        lambda: timeline(Trace("live", 2)),
        lambda: matrix([[1, 2]], "to", "from"),
    ],
)
def test_what_can_not_be_drawn_is_said(call):
    with pytest.raises(PlotError) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("seconds", "unit", "wide"), [(0.7, "ms", 700), (3.0, "s", 3), (0.0007, "µs", 700)])
def test_a_timelines_times_are_in_a_unit_that_can_be_read(seconds, unit, wide):
    axes = timeline(Trace("live", 1, (Event(0, "all_reduce", start=0.0, end=seconds),), clock="wall")).axes[0]
    assert axes.get_xlabel() == unit
    assert axes.collections[0].get_paths()[0].get_extents().x1 == pytest.approx(wide)


def test_a_page_shows_it_in_the_themes_colours_and_keeps_its_own_style():
    figure, axes = chart("ranks", "steps")
    axes.plot([2, 4], [2, 6], marker="o", label="ring")
    axes.legend()
    page = figure._repr_html_()
    picture = page[page.index("</style>") :]
    assert re.findall("#[0-9a-f]{6}", picture) == [], "a colour that no theme changes"
    assert "var(--ar-ink)" in picture and "<style" not in picture and "<metadata" not in picture
    assert not re.search(r"[{,;}]\s*\*\s*\{", page), "a rule for the whole page"
    assert 'role="img"' in page and 'aria-label="Chart: steps over ranks; ring"' in page
    assert figure.points_text() == "steps over ranks\nring: 2 2, 4 6"


def test_a_figure_shown_twice_in_a_page_refers_only_to_its_own_patterns():
    """A pattern in a hidden cell fills nothing: chapter 48's second timeline had no waits in JupyterLab."""
    waits = Trace(
        "live", 1, (Event(0, "wait", start=0.0, end=1.0), Event(0, "compute", start=1.0, end=2.0)), clock="wall"
    )
    figure = timeline(waits)
    pages = figure._repr_html_(), figure._repr_html_()
    own, other = (set(re.findall(r'\bid="([^"]+)"', page)) for page in pages)
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', pages[0]))
    assert used and {first or second for first, second in used} <= own and not own & other


def test_a_box_keeps_its_ground_on_a_chart_without_axes():
    figure, axes = chart("", "")
    axes.plot([0, 1], [0, 1])
    axes.axis("off")
    axes.text(0.5, 0.5, "GPU0", bbox={"fc": "w"})
    picture = figure._repr_html_()
    box = picture[: picture.index(">GPU0<")].rpartition("<path")[2]
    assert "fill: var(--ar-paper)" in box, "the line must not be seen through it"

"""The explorables on a page without a kernel: keys move them, a live region says the number, both themes, both
widths.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise, product

import pytest
from allranks import cost, explore, my_model, plan, plots, schedules, topology, workload
from allranks.show.player.page import page_without_kernel
from allranks.theory.cost.step import training_step
from allranks.theory.cost.workload import Cluster
from jupyter_lab import heard

pytestmark = pytest.mark.browser
WIDGETS = {
    "crossover": explore.crossover,
    "overlap": explore.overlap,
    "my_model": lambda: my_model("pipelines"),
    "my_model_all": lambda: my_model(model="LLaMA 65B", ranks=64, tokens=1 << 22),
    "flows": explore.flows,
    "placement": explore.placement,
    "skew": explore.skew,
}
# with which chapters begin: their arguments have the names of the values
FIRST = {
    "writes": explore.writes,
    "uneven": lambda p=16, share=0.25: explore.uneven(int(p), max(share, 1 / int(p))),
    "late": lambda delay=60, network=20, shown="all ranks": explore.late(delay, network, shown),
    "protocols": explore.protocols,
    "data_parallel": explore.data_parallel,
    "flag": lambda p=4, steps=8, library="NCCL": explore.flag(p, steps, library),
    "path": explore.path,
    "search": lambda steps=5, rounds=11, nbytes=3 << 20: explore.search(int(steps), int(rounds), int(nbytes)),
    "bits": explore.bits,
    "compress": explore.compress,
    "interval": lambda minutes=5, cost=60: explore.interval(minutes, int(cost)),
    "fsdp": explore.fsdp,
    "recompute": explore.recompute,
    "recover": lambda hours=3.09, **minutes: explore.recover(**minutes, hours=float(hours)),
    "attention": explore.attention,
    "pipeline": lambda p=4, m=8, order="1f1b": explore.pipeline(p, m, order),
    "router": explore.router,
    "sharded": lambda billions=5, p=8, stage=0: explore.sharded(billions, p, int(stage)),
    "tensor": explore.tensor,
    "splits": lambda model="LLaMA 65B", p=64, stage=0: explore.splits(model, p, int(stage)),
}
WIDGETS |= FIRST
SMALL_TEXT = """() => [...document.querySelectorAll(".ar-explore *")].filter((e) => {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  return own && e.getClientRects().length && parseFloat(getComputedStyle(e).fontSize) < 12;
}).map((e) => e.outerHTML)"""
SMALL_TARGETS = """(least) => [
  ...document.querySelectorAll(".ar-explore :is(button, input, select, summary, [role=slider])")]
  .filter((e) => e.getClientRects().length && e.getBoundingClientRect().height < least).map((e) => e.outerHTML)"""
CUT = """() => [...document.querySelectorAll(".ar-explore svg text")].filter((text) => {
  const [a, b] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
  return a.left < b.left - 2 || a.right > b.right + 2 || a.bottom > b.bottom + 2;
}).map((e) => e.textContent)"""


@pytest.fixture
def explored(new_page, tmp_path):
    """A function that shows an explorable on a page of its own, without a kernel and without a network."""

    def start(widget, width: int = 1280, theme: str = "light"):
        page = new_page(viewport={"width": width, "height": 900}, offline=True)
        shown = widget._repr_mimebundle_()[0]["text/html"]
        path = tmp_path / "page.html"
        head = f'<!doctype html><html lang=en><meta charset=utf-8><body data-theme="{theme}" style="margin:0">'
        path.write_text(f"{head}{shown}</body></html>", encoding="utf-8")
        page.goto(path.as_uri())
        page.wait_for_selector(".ar-explore[data-ready]")
        return page

    return start


STYLES = """() => [...document.querySelectorAll(".ar-explore *:not(style)")].map((e) => {
  const style = getComputedStyle(e);
  const names = ["display", "position", "padding", "min-height", "gap", "grid-column", "line-height",
    "background-color", "overflow", "fill", "stroke", "stroke-width", "stroke-dasharray"];
  const values = names.map((name) => style.getPropertyValue(name).replace(/ar-explore-[-\\d]+/, ""));
  return [e.getAttribute("class"), Math.round(e.getBoundingClientRect().height * 10) / 10, ...values].join(" | ");
})"""


LEGEND = """() => [...document.querySelectorAll(".ar-explore .ar-legend i")]
  .filter((mark) => mark.getClientRects().length).map((mark) => {
    const style = getComputedStyle(mark), names = ["background", "border", "outline", "height", "border-radius"];
    return names.map((name) => style.getPropertyValue(name)).join(" | ");
  })"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", sorted(WIDGETS))
def test_no_two_marks_of_a_legend_look_alike(explored, name, theme):
    looks = explored(WIDGETS[name](), theme=theme).evaluate(LEGEND)
    assert len(set(looks)) == len(looks), looks


@pytest.mark.parametrize("name", ["overlap", "placement", "pipeline", "attention"])
def test_a_player_on_the_same_page_changes_no_explorable(new_page, tmp_path, name):
    """Both have elements of the same classes, and each brings a style sheet."""
    explorable = WIDGETS[name]()._repr_mimebundle_()[0]["text/html"]
    player = page_without_kernel(schedules.ring_all_reduce(4))
    found = []
    for number, (shown, ready) in enumerate(((explorable, ""), (player + explorable, ".ar-player[data-ready]"))):
        page = new_page(viewport={"width": 1280, "height": 900}, offline=True)
        path = tmp_path / f"{number}.html"
        path.write_text(f"<!doctype html><html lang=en><meta charset=utf-8><body>{shown}</body></html>", "utf-8")
        page.goto(path.as_uri())
        for root in filter(None, (ready, ".ar-explore[data-ready]")):
            page.wait_for_selector(root)
        found.append(page.evaluate(STYLES))
    alone, beside = found
    assert len(alone) > 50 and [pair for pair in zip(alone, beside, strict=True) if pair[0] != pair[1]] == []


def said(page) -> str:
    """What the live region says, once the reader has paused."""
    page.wait_for_function(
        "() => { const root = document.querySelector('.ar-explore');"
        " return root.querySelector('[aria-live]').textContent === root.dataset.sentence; }"
    )
    return page.locator(".ar-explore [aria-live]").text_content()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", WIDGETS)
def test_it_can_be_read_and_pressed(explored, kind, width, theme):
    page = explored(WIDGETS[kind](), width, theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(SMALL_TEXT) == []
    assert page.evaluate(CUT) == []
    assert page.evaluate(SMALL_TARGETS, 44 if width == 390 else 30) == []
    paper = page.evaluate("getComputedStyle(document.querySelector('.ar-explore')).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 29)"}[theme]
    assert page.locator(".ar-explore svg[role=img]:not([aria-label])").count() == 0


@pytest.mark.parametrize("width", [1000, 820, 390])
@pytest.mark.parametrize("kind", WIDGETS)
def test_no_picture_shrinks_below_its_handles(explored, kind, width):
    page = explored(WIDGETS[kind](), width)
    drawn = page.locator(".ar-stage > svg")
    sizes = drawn.evaluate_all("all => all.map((svg) => [svg.getBoundingClientRect().width, svg.width.baseVal.value])")
    assert [(shown, own) for shown, own in sizes if shown < own - 1] == []


def test_a_theme_change_recolours_what_is_drawn(explored):
    page = explored(explore.crossover())
    colour = "getComputedStyle(document.querySelector('.ar-best')).stroke"
    before = page.evaluate(colour)
    page.evaluate("document.body.dataset.theme = 'dark'")
    assert (before, page.evaluate(colour)) == ("rgb(27, 31, 36)", "rgb(232, 234, 237)")


def test_keys_alone_move_the_crossover_and_the_figures_are_the_models(explored):
    page = explored(explore.crossover(ranks=24, nbytes=2e6))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.key") == "p"
    page.keyboard.press("End")
    assert page.locator("[data-key=p]").get_attribute("aria-valuetext") == "1024"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Home")
    ring = float(cost.price("all_reduce", "ring", 1024, 100, 5e-6, 1 / 50e9))
    assert f"{1e3 * ring:.1f} ms" == "10.2 ms" == page.locator(".ar-row[data-algorithm=ring] b").text_content()
    assert said(page).startswith("At 100 B on 1024 ranks recursive doubling is the fastest: 50 µs; then ")
    winners = page.locator(".ar-crossover rect[data-winner]").evaluate_all("all => all.map((e) => e.dataset.winner)")
    assert winners == ["recursive doubling", "rabenseifner"], "for a power of two the ring never wins"


def test_a_drag_along_the_plot_moves_the_size(explored):
    page = explored(explore.crossover())
    box = page.locator(".ar-plot").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 60, box["y"] + 200, steps=4)
    page.mouse.up()
    size = page.locator(".ar-slider:has([data-key=n]) output").text_content()
    assert re.fullmatch(r"(\d\d\d MB|1\.\d GB)", size) and said(page).startswith(f"At {size} on 24 ranks")


def test_the_overlap_says_what_workload_says(explored):
    page = explored(explore.overlap())
    first = workload.ddp(7e9, Cluster(32, 200e9, 5e-6), bucket_nbytes=1e9, backward_s=0.12).exposed_s
    assert page.locator(".ar-big").text_content() == f"{1e3 * first:.1f} ms"
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    whole = workload.ddp(7e9, Cluster(32, 200e9, 5e-6), bucket_nbytes=None, backward_s=0.12)
    assert (
        said(page) == f"Of {1e3 * whole.seconds:.0f} ms of communication in one call the step waits "
        f"{1e3 * whole.exposed_s:.0f} ms."
    )
    page.keyboard.press("Home")
    assert "14,000 buckets" in page.locator(".ar-lanes").text_content()


def test_my_model_by_keys_and_a_split_that_is_impossible(explored):
    page = explored(my_model(model="LLaMA 65B", ranks=64, tokens=1 << 22, bucket=25 << 20, zero_stage=1, tp=4, pp=2))
    found = training_step(plan("LLaMA 65B", "dgx-h100", dp=8, tp=4, pp=2, zero_stage=1, batch=2048))
    assert page.locator(".ar-big").text_content() == f"{100 * found.mfu:.0f} % MFU"
    held = page.locator("[data-part=activations]").get_attribute("data-bytes")
    assert float(held) == pytest.approx(found.memory["activations"])
    page.locator("button[data-key=tp][data-value='1']").focus()
    page.keyboard.press("Enter")
    assert said(page).startswith("A GPU needs 192 GB, and H100 has 80 GB: 112 GB too much.")
    assert page.locator("h3").text_content() == "LLaMA 65B does not fit: 112 GB too much"
    assert page.locator("button[data-key=tp][data-value='1']").get_attribute("aria-pressed") == "true"
    assert page.locator(".ar-over").count() == 1 and page.locator(".ar-big").text_content() == "no room"
    page.locator("summary").press("Enter")
    page.locator("select[data-key=ranks]").select_option("1")
    assert "not enough GPUs" in said(page)
    assert page.locator("button[data-key=pp][data-value='8']").get_attribute("aria-disabled") == "true"


@pytest.mark.parametrize(("tokens", "words"), [(8 * 4096, "32,768 tokens"), (1 << 19, "0.5 million tokens")])
def test_my_model_says_how_many_tokens_a_step_has(explored, tokens, words):
    page = explored(my_model("tensor_parallel", ranks=8, tokens=tokens, zero_stage=1, tp=1))
    assert any(text.endswith(f"for {words}") for text in page.locator("svg .ar-soft").all_text_contents())


def test_my_model_shows_the_axes_that_are_open_and_names_the_chapter_that_opens_the_next(explored):
    page = explored(my_model("sharded_training"))
    states = page.locator(".ar-axis").evaluate_all("all => all.map((e) => e.dataset.state)")
    assert states == ["open"] * 3 + ["next"] + ["locked"] * 3
    assert page.locator(".ar-axis[data-state=locked] button:visible").count() == 0
    assert re.fullmatch(r"chapter \d+ opens it", page.locator(".ar-axis[data-state=next] .ar-small").text_content())
    assert page.locator("h3").text_content() == "My model fits, and the GPUs compute 99 % of the time"
    # each choice says what it would give, computed by the cost model
    for stage in range(4):
        step = my_model("sharded_training", zero_stage=stage).step
        note = page.locator(f".ar-option:has([data-key=zero_stage][data-value='{stage}']) .ar-note")
        assert note.text_content() == f"{step.nbytes / 1e9:.0f} GB"
        assert ("ar-bad" in note.get_attribute("class")) == (not step.fits)
    whole = my_model("sharded_training", bucket=0).step.seconds
    off = page.locator(".ar-option:has([data-key=bucket][data-value='0']) .ar-note").text_content()
    assert off == f"{whole:.2f} s"
    assert "256 sequences" in page.locator(".ar-hint").text_content(), "what the next axis is for"


def test_a_page_without_a_kernel_keeps_what_was_opened_and_chosen(explored):
    page = explored(my_model("sharded_training"))
    page.locator("button[data-key=zero_stage][data-value='3']").press("Enter")
    said(page)
    page.reload()
    page.wait_for_selector("button[data-key=zero_stage][data-value='3'][aria-pressed=true]")
    before = json.loads(page.evaluate("localStorage.getItem('allranks_my_model')"))
    assert before["opened"] == 3 and before["chosen"]["sharded_training"]["zero_stage"] == 3
    page.evaluate("localStorage.setItem('allranks_my_model', JSON.stringify({opened: 6, chosen: {}}))")
    page.reload()
    page.wait_for_selector(".ar-explore[data-ready]")
    states = page.locator(".ar-axis").evaluate_all("all => all.map((e) => e.dataset.state)")
    assert states == ["open"] * 6 + ["next"]


def test_a_placement_that_shares_cards_costs_time(explored):
    page = explored(explore.placement())
    page.locator("button[data-value=cloud-ethernet]").press("Enter")
    before = float(page.locator(".ar-big").text_content().split()[0])
    page.locator("button[data-value='round robin']").press("Enter")
    placed = explore.placement().data["machines"]["cloud-ethernet"]["placements"]
    good, bad = (placed[name]["runs"]["ring"]["seconds"] for name in ("in order", "round robin"))
    assert before == round(1e3 * good) and bad == pytest.approx(8 * good, rel=0.01)
    assert said(page).startswith(f"{bad:.1f} s: The busiest link is the card of node 0")
    assert page.locator(".ar-seat[data-rank='1']").count() == 1


def test_flows_that_share_an_uplink_are_slow_and_the_picture_says_how_many(explored):
    page = explored(explore.flows(ranks=8, seed=1))
    loads = topology.spine_loads(8, 8, 1, 1)
    assert page.locator(".ar-big").text_content() == f"× {max(loads):.1f}"
    assert page.locator(".ar-busiest").count() == 2 * loads.count(max(loads))  # below both leaf switches
    page.locator("input[data-key=seed]").press("ArrowRight")
    worst = max(topology.spine_loads(8, 8, 1, 2))
    assert said(page).startswith(f"The slowest flow takes {worst:.1f} times as long")
    page.locator("button[data-value=adaptive]").press("Enter")
    assert said(page).startswith("Every uplink carries as much") and page.locator(".ar-busiest").count() == 0


def test_a_capacity_bounds_the_exchange_and_says_what_it_drops(explored):
    page = explored(explore.skew())
    assert page.locator(".ar-big").text_content() == "× 3.4"
    page.locator("button[data-key=capacity][data-value='2']").press("Enter")
    even, now = (cost.skewed_exchange_s(8, 560 * 7168 * 2, s, 5e-6, 1 / 50e9, c) for s, c in ((1 / 8, None), (0.5, 2)))
    assert said(page).startswith(f"{now / even:.1f} times as long") and "25 % of the tokens are dropped" in said(page)


def chosen(page, **given):
    """What the handles and the buttons of a first picture say, by the names of the values."""
    marks = page.locator(".ar-handle").evaluate_all("all => all.map((e) => [e.dataset.key, Number(e.ariaValueNow)])")
    pressed = "all => all.map((e) => [e.dataset.key, e.dataset.value])"
    return given | dict(marks) | dict(page.locator("button[aria-pressed=true]").evaluate_all(pressed))


@pytest.mark.parametrize("kind", FIRST)
def test_a_first_picture_answers_to_keys_and_to_a_drag_as_python_does(explored, kind):
    page = explored(FIRST[kind]())
    for handle in page.locator(".ar-handle:visible").all():
        key = handle.get_attribute("data-key")
        before = chosen(page)
        handle.focus()
        page.keyboard.press("Home")
        least = chosen(page)[key]
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        after = chosen(page)
        assert least < after[key] and said(page) == FIRST[kind](**after).text()
        box, stage = handle.bounding_box(), page.locator(".ar-stage", has=handle).bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        at = (x - stage["x"]) / stage["width"]
        sideways = (0.6 if 0.3 < at < 0.4 else 0.35) - at
        along = (sideways * stage["width"], 0) if "ar-handle-x" in handle.get_attribute("class") else (0, 60)
        page.mouse.move(x + along[0], y + along[1], steps=6)
        page.mouse.up()
        dragged = chosen(page)
        assert dragged[key] != after[key] and said(page) == FIRST[kind](**dragged).text()
        assert {k: v for k, v in dragged.items() if k != key} == {k: v for k, v in before.items() if k != key}


@pytest.mark.parametrize("kind", FIRST)
def test_each_button_of_a_first_picture_says_what_python_says(explored, kind):
    page = explored(FIRST[kind]())
    # those last that are chosen now
    for button in sorted(page.locator("button[data-key]").all(), key=lambda b: b.get_attribute("aria-pressed")):
        button.press("Enter")
        assert button.get_attribute("aria-pressed") == "true" and said(page) == FIRST[kind](**chosen(page)).text()


def test_the_words_of_a_small_sum_do_not_lie_on_each_other(explored):
    for p in (2, 64, 128, 192):
        page = explored(explore.bits(p))
        boxes = page.locator(".ar-sums text.ar-strong").evaluate_all(
            "all => all.map((e) => e.getBoundingClientRect()).map((b) => [b.top, b.bottom])"
        )
        boxes.sort()
        assert len(boxes) == 3 and all(above[1] <= below[0] + 4 for above, below in pairwise(boxes)), boxes


OVERLAPS = """() => {
  const of = (all, less) => [...document.querySelectorAll(all)].map((e) => [e.textContent || e.dataset.key,
    e.getBoundingClientRect(), less]);
  const boxes = [...of(".ar-stage text", 0), ...of(".ar-stage .ar-handle", 5)], found = [];
  const shared = (a, b, low, high, less) => Math.min(a[high], b[high]) - Math.max(a[low], b[low]) - less;
  boxes.forEach(([a, one, p], i) => boxes.slice(i + 1).forEach(([b, other, q]) => {
    if (shared(one, other, "left", "right", p + q) > 2 && shared(one, other, "top", "bottom", p + q) > 4)
      found.push([a, b]);
  }));
  return found;
}"""


def overlaps(page) -> list[list[str]]:
    """What lies on what, with each button and each handle at either end."""
    ends = [[(handle, key) for key in ("Home", "End")] for handle in page.locator(".ar-handle").all()]
    found = []
    for button in page.locator("button[data-key]").all():
        button.press("Enter")
        for presses in product(*ends):
            for handle, key in presses:
                handle.press(key)
            found += page.evaluate(OVERLAPS)
    return found


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", ["data_parallel", "flag", "sharded", "splits", "tensor"])
def test_no_words_or_handles_of_a_plan_lie_on_each_other(explored, kind, width):
    assert overlaps(explored(FIRST[kind](), width)) == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", ["pipeline", "recover"])
def test_no_words_lie_under_a_handle(explored, kind, width):
    """A row's numbers are two texts digit by digit, whose boxes lie on each other."""
    page = explored(FIRST[kind](), width)
    keys = page.locator(".ar-handle").evaluate_all("all => all.map((e) => e.dataset.key)")
    assert [pair for pair in overlaps(page) if not set(pair).isdisjoint(keys)] == []


@pytest.mark.parametrize("kind", FIRST)
def test_the_figures_of_a_first_picture_stand_on_one_line(explored, kind):
    """Also where they have no room beside the choices: in a notebook on a window of 1400 px."""
    tops = "all => new Set(all.map((e) => e.getBoundingClientRect()).map((b) => b.top + b.height / 2)).size"
    assert explored(FIRST[kind](), 1040).locator(".ar-figure-big").evaluate_all(tops) == 1


def test_a_pipeline_takes_only_as_many_pieces_as_the_order_allows(explored):
    page = explored(explore.pipeline(4, 9, "gpipe"))
    page.locator("button[data-value=interleaved]").press("Enter")
    assert said(page) == explore.pipeline(4, 8, "interleaved").text()
    page.locator(".ar-handle[data-key=m]").press("ArrowRight")
    assert said(page) == explore.pipeline(4, 10, "interleaved").text()


def test_a_pipeline_offers_only_the_orders_that_are_named(explored):
    page = explored(explore.pipeline(4, 8, "gpipe", ["gpipe"]))
    assert page.locator("button[data-key=order]").count() == 0
    assert "order" not in page.locator(".ar-sub").text_content(), "nothing is asked that can't be chosen"
    page = explored(explore.pipeline(4, 8, "gpipe", ["gpipe", "zb-h1"]))
    assert page.locator("button[data-key=order]").all_text_contents() == ["all forward first", "zero bubble"]


def test_what_was_not_chosen_is_not_told(explored):
    page = explored(explore.attention())
    words = page.locator(".ar-time")
    assert "guess, then choose it above" in words.text_content()
    page.locator("button[data-value=zigzag]").press("Enter")
    assert "guess" not in words.text_content() and "2.0" in words.text_content() and "3.5" in words.text_content()


def test_the_kernel_learns_what_was_chosen_and_keeps_it_for_the_next_notebook(lab, new_page):
    page = new_page(viewport={"width": 1400, "height": 900})
    code = "from allranks import my_model\n\nshown = my_model('pipelines')\nshown"
    lab.open(page, lab.write(code, "print(shown.plan.tp, shown.set(tp=2).plan.tp)"))
    lab.run_all(page)
    page.wait_for_selector("button[data-key=tp][data-value='2'][aria-pressed=true]")
    page.locator("button[data-key=pp][data-value='8']").click()
    assert heard(page, "print(shown.plan.pp, shown.has_reader)", "8 True") == "8 True"
    lab.close_sessions()
    other = new_page(viewport={"width": 1400, "height": 900})
    lab.open(other, lab.write(code.replace("pipelines", "data_parallel"), code))
    lab.run_all(other)
    other.wait_for_selector("button[data-key=pp][data-value='8'][aria-pressed=true]")
    first = other.locator(".ar-explore").first.locator(".ar-axis")
    first.nth(4).and_(other.locator("[data-state=open]")).wait_for()
    lab.close_sessions()
    (lab.root / ".allranks_my_model.json").unlink()


def test_in_jupyterlab_the_next_chapter_is_one_click_away(lab, new_page):
    folder = lab.root / "chapters" / "3_one_model"
    folder.mkdir(parents=True)
    here = lab.write("from allranks import my_model\n\nmy_model('tensor_parallel')")
    (lab.root / here).rename(folder / here)
    (lab.root / lab.write("1 + 1")).rename(folder / "25_pipelines.ipynb")
    page = new_page(viewport={"width": 1400, "height": 900})
    lab.open(page, f"chapters/3_one_model/{here}")
    lab.run_all(page)
    page.locator(".ar-axis[data-state=next] a").click()
    next_one = "chapters/3_one_model/25_pipelines.ipynb"
    page.wait_for_function(f"() => window.jupyterapp.shell.currentWidget.context?.path === '{next_one}'")
    lab.close_sessions()


def test_a_figure_has_no_white_box_and_follows_the_theme(new_page):
    figure = plots.fit([(1000, 2e-6), (3000, 5e-6)], alpha=1e-6, beta=1e-9)
    page = new_page(viewport={"width": 390, "height": 800})
    page.set_content(f'<body data-theme="dark" style="background:#16191d">{figure._repr_html_()}</body>')
    sheet = "getComputedStyle(document.querySelector('[id$=patch_1] path')).fill"
    letters = "getComputedStyle(document.querySelector('.ar-figure svg')).fill"
    assert (page.evaluate(sheet), page.evaluate(letters)) == ("none", "rgb(232, 234, 237)")
    page.evaluate("document.body.dataset.theme = 'light'")
    assert page.evaluate(letters) == "rgb(27, 31, 36)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    smallest = """Math.min(...[...document.querySelectorAll(".ar-figure text")].filter((e) => !e.children.length).map(
      (e) => parseFloat(getComputedStyle(e).fontSize) * Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b)))"""
    assert page.evaluate(smallest) >= 11


@pytest.mark.parametrize(
    ("scheme", "colours"),
    [("light", ("rgba(0, 0, 0, 0)", "rgb(27, 31, 36)")), ("dark", ("rgb(22, 25, 29)", "rgb(232, 234, 237)"))],
)
def test_a_figure_follows_the_system_where_the_page_names_no_theme(new_page, scheme, colours):
    figure = plots.fit([(1000, 2e-6), (3000, 5e-6)], alpha=1e-6, beta=1e-9)
    page = new_page(color_scheme=scheme)
    page.set_content(figure._repr_html_())
    paper = "getComputedStyle(document.querySelector('.ar-figure')).backgroundColor"
    letters = "getComputedStyle(document.querySelector('.ar-figure svg')).fill"
    assert (page.evaluate(paper), page.evaluate(letters)) == colours
    page.evaluate("document.body.dataset.theme = 'light'")
    assert page.evaluate(letters) == "rgb(27, 31, 36)"


def test_guides_look_unlike_the_line_of_equal_speed(explored):
    """Three lines of one look were three lines to read."""
    page = explored(explore.search())
    dashes = """() => [".ar-mark", ".ar-rail"].map((look) =>
      getComputedStyle(document.querySelector(`.ar-picture ${look}`)).strokeDasharray)"""
    line, guide = page.evaluate(dashes)
    assert line == "none" != guide

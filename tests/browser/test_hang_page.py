"""The pictures of a call that does not return, as a browser lays them out."""

from __future__ import annotations

import pytest
from allranks import schedules
from allranks.ranks.world.outputs import Grid
from allranks.ranks.world.panels import Panel, live, report
from allranks.ranks.world.rank_status import RankStatus
from allranks.show.player.page import page_without_kernel

pytestmark = pytest.mark.browser
LINE = 'team = dist.new_group(list(range(world_size)), backend="gloo"); dist.all_reduce(torch.zeros(4096))'
# names of the program that stand in two lines, a part in each
BROKEN = r"""() => [...document.querySelectorAll(".ar-panel code")].flatMap((code) => {
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), broken = [];
  while (walker.nextNode()) {
    for (const { 0: name, index } of walker.currentNode.data.matchAll(/\w+/g)) {
      const range = document.createRange();
      range.setStart(walker.currentNode, index);
      range.setEnd(walker.currentNode, index + name.length);
      if (range.getClientRects().length > 1) broken.push(name);
    }
  }
  return broken;
})"""


def panels(ranks: int) -> list[Panel]:
    return [
        Panel((rank,), RankStatus(rank, op="recv", peer=(rank + 1) % ranks, line=6, text=LINE), None, 1.4)
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("width", [390, 860, 1280])
@pytest.mark.parametrize("shown", ["live", "report"])
def test_no_name_of_the_program_is_broken(new_page, width, shown):
    page = new_page(viewport={"width": width, "height": 900})
    four = panels(4)
    waits = {rank: ((rank + 1) % 4,) for rank in range(4)}
    page.set_content(live(four, waits, 1, 3) if shown == "live" else report("Stuck.", "", four, {}, LINE, None, 1))
    assert page.locator(".ar-panel").count() == 4
    assert page.evaluate(BROKEN) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_two_ranks_that_wait_for_each_other_share_the_width(new_page):
    page = new_page()
    page.set_content(report("They wait for each other in a circle.", "", panels(2), {}, LINE, None, 1))
    boxes = [box.bounding_box() for box in page.locator(".ar-panel").all()]
    whole = page.locator(".ar-sides").bounding_box()["width"]
    assert all(box["width"] > 0.45 * whole for box in boxes)


@pytest.mark.parametrize("width", [800, 1280])
def test_an_arrow_goes_from_a_rank_to_the_one_that_it_waits_for(new_page, width):
    page = new_page(viewport={"width": width, "height": 900})
    page.set_content(live(panels(4), {0: (3,)}, 1, 3))
    arrow = page.locator(".ar-hang > svg path").first.bounding_box()
    centres = [b["x"] + b["width"] / 2 for b in (p.bounding_box() for p in page.locator(".ar-panel").all())]
    assert abs(arrow["x"] - centres[0]) < 60
    assert abs(arrow["x"] + arrow["width"] - centres[3]) < 60


STYLES = """(root) => [...document.querySelectorAll(`${root}, ${root} *`)].map((element) => {
  const style = getComputedStyle(element), { width, height } = element.getBoundingClientRect();
  const names = ["display", "position", "padding", "margin", "border", "background", "color", "fill", "font"];
  const values = names.map((name) => style.getPropertyValue(name).replace(/allranks-player-[-\\w]+/, ""));
  return [element.getAttribute("class"), Math.round(width), Math.round(height), ...values].join(" | ");
})"""


def test_a_player_and_a_hang_on_one_page_change_nothing_of_each_other(new_page, tmp_path):
    """Each brings a style sheet: one that hides the other's bars was seen in chapters that have both."""
    player = page_without_kernel(schedules.ring_all_reduce(8), step=3)
    grid = Grid(2)
    grid.ranks[0].stdout, grid.note = "here", "the ranks took 1 s"
    grid.below = report("Stuck.", "", panels(4), {0: 2, 1: 2}, f"{LINE}\n", None, 1)
    hang = f"<section id=hang>{live(panels(4), {0: (1,)}, 1, 3)}{grid.as_html()}</section>"
    roots = {".ar-player": player, "#hang": hang}
    found = []
    for number, shown in enumerate((player, hang, player + hang)):
        path = tmp_path / f"{number}.html"
        path.write_text(f"<!doctype html><html lang=en><meta charset=utf-8><body>{shown}</body></html>", "utf-8")
        page = new_page()
        page.goto(path.as_uri())
        if player in shown:
            page.wait_for_selector(".ar-player[data-ready]")
        found.append({root: page.evaluate(STYLES, root) for root, part in roots.items() if part in shown})
    alone, both = found[0] | found[1], found[2]
    for root, styles in alone.items():
        assert len(styles) > 20
        assert [pair for pair in zip(styles, both[root], strict=True) if pair[0] != pair[1]] == []

"""The pictures of a call that does not return, as a browser lays them out."""

from __future__ import annotations

import pytest
from allranks.ranks.world.panels import Panel, live, report
from allranks.ranks.world.rank_status import RankStatus

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

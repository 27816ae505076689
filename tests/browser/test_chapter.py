"""The first chapter in a real JupyterLab: run to the end on live ranks, and its player played."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from allranks.ranks.world.outputs import Grid

pytestmark = pytest.mark.browser

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters/1_first_hours"


def test_the_first_chapter_runs_to_its_end_and_its_player_plays(lab, new_page):
    name = "00_start_here.ipynb"
    shutil.copy(CHAPTERS / name, lab.root / name)
    page = new_page(viewport={"width": 1180, "height": 900})
    lab.open(page, name)
    cells = lab.run_all(page)
    assert any("".join(o.get("text", "")) or "data" in o for c in cells for o in c["outputs"])
    # four columns, one a rank, in the output of the first %%ranks cell that prints
    page.wait_for_selector(".ar-ranks .ar-rank:nth-child(4)", state="attached")
    player = page.locator(".ar-player[data-ready]").first
    player.scroll_into_view_if_needed()
    player.locator('[data-do="play"]').click()
    page.wait_for_function(
        "() => { const p = document.querySelector('.ar-player'); return p.dataset.playing === 'false' && +p.dataset.step > 0 }",
        timeout=60_000,
    )
    held = page.evaluate(
        "() => [...document.querySelector('.ar-player').querySelectorAll('.ar-cell')].map((c) => c.dataset.contrib)"
    )
    assert held == ["0,1,2,3"] * len(held) and len(held) == 16
    lab.close_sessions()


TOUR = (
    "from allranks import World\n\nworld = World(ranks=4)\nworld",
    "%%ranks\nx = torch.full((2,), float(rank), device=device)\ndist.all_reduce(x)\nprint(x)",
    "from allranks.show.player import Player\nfrom allranks.schedules import ring_all_reduce\n\nPlayer(ring_all_reduce(ranks=4))",
)


def test_three_cells_start_ranks_add_and_play(lab, new_page):
    page = new_page(viewport={"width": 1100, "height": 1340})
    name = lab.write(*TOUR)
    (lab.root / name).rename(lab.root / "tour.ipynb")
    lab.open(page, "tour.ipynb")
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    lab.run_all(page)
    player = page.locator(".ar-player[data-ready]")
    player.wait_for()
    assert page.locator(".ar-ranks .ar-rank pre").all_inner_texts() == ["tensor([6., 6.])"] * 4
    assert page.locator("table tbody tr").count() == 4
    for step in (1, 2):
        player.locator('[data-do="next"]').click()
        page.wait_for_selector(f'.ar-player[data-step="{step}"][data-playing="false"]')
    lab.close_sessions()


def test_a_list_of_a_rank_is_not_broken_where_a_line_has_room(new_page):
    grid = Grid(4)
    for output in grid.ranks:
        output.stdout = "set_epoch(1) [15, 2, 0, 3, 11, 7, 12]\n"
    page = new_page(viewport={"width": 900, "height": 600})
    page.set_content(grid.as_html())
    lines = "() => [...document.querySelectorAll('.ar-rank pre')].map((e) => e.clientHeight < 32)"
    assert page.evaluate(lines) == [True] * 4
    page.set_viewport_size({"width": 240, "height": 600})
    wide = "() => [...document.querySelectorAll('.ar-rank')].map((e) => e.getBoundingClientRect().right <= innerWidth)"
    assert page.evaluate(wide) == [True] * 4

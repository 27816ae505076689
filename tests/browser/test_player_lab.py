"""The player in a real JupyterLab: a notebook cell is run, and the chunks must move and end where they should."""

from __future__ import annotations

import pytest
from jupyter_lab import ask, heard
from waiting import until

pytestmark = pytest.mark.browser

RING = """
from allranks.show.player import Player
from allranks.schedules import ring_all_reduce
player = Player(ring_all_reduce(4), nbytes=4096, speed=4)
player
"""


@pytest.fixture(scope="module")
def page(lab, chromium):
    """A notebook that has run one cell with a ring of four; `page.name` is its file, `page.sent` what went to the
    kernel.
    """
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.sent = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda data: page.sent.append(data)))
    page.name = lab.write(RING)
    lab.open(page, page.name)
    lab.run_all(page)
    page.wait_for_selector(".ar-player[data-ready]")
    yield page
    context.close()
    lab.close_sessions()


def contribs(page) -> list[str]:
    """What the picture says that each cell holds, rank by rank."""
    return page.evaluate("() => [...document.querySelectorAll('.ar-cell')].map((c) => c.dataset.contrib)")


def done(page, step: int) -> None:
    page.wait_for_selector(f'.ar-player[data-step="{step}"][data-playing="false"]')


@pytest.mark.core
def test_the_chunks_move_and_the_kernel_hears_nothing_of_it(page):
    assert contribs(page) == [str(rank) for rank in range(4) for _ in range(4)]
    ask(page, "player.speed = 0.5")  # a busy machine draws few frames in a second
    until(lambda: page.get_by_label("Speed").input_value() == "0.5")
    page.sent.clear()
    places = page.evaluate(
        """() => new Promise((finished) => {
          const seen = new Set(), root = document.querySelector(".ar-player");
          root.querySelector('[data-do="play"]').click();
          const look = () => {
            const packet = root.querySelector(".ar-packet");
            if (packet) seen.add(packet.getAttribute("transform"));
            if (root.dataset.playing === "true") requestAnimationFrame(look); else finished(seen.size);
          };
          look();
        })"""
    )
    assert places >= 10, f"the packets were seen in {places} places only"
    assert contribs(page) == ["0,1,2,3"] * 16
    assert page.locator('[data-meter="bytes"]').inner_text() == "6.14 kB"
    # one update when it started, one when it stopped, and nothing for any frame
    assert len([f for f in page.sent if "comm_msg" in str(f)]) <= 2
    assert heard(page, "print(player.step, player.playing)", "6 False") == "6 False"
    ask(page, "player.speed = 4.0")


def test_keys_reach_the_player_and_not_the_notebook(page):
    cells = "() => window.jupyterapp.shell.currentWidget.content.widgets.length"
    before = page.evaluate(cells)
    root = page.locator(".ar-player")
    root.press("Home")
    done(page, 0)
    root.press("b")
    root.press("ArrowRight")
    done(page, 1)
    root.press("End")
    root.press("ArrowLeft")
    done(page, 5)
    assert page.evaluate(cells) == before, "b in the player inserts no cell"
    assert (
        page.locator(".ar-live")
        .text_content()
        .startswith("step 5 of 6: rank 0 sends chunk 0 to rank 1, which stores it")
    )
    assert heard(page, "print(player.step)", "5") == "5"


def test_the_kernel_moves_the_player(page):
    ask(page, "player.step = 2; player.arrangement = 'line'")
    done(page, 2)
    page.wait_for_selector('.ar-stage[data-layout="line"]')
    assert contribs(page)[2 * 4] == "0,1,2"
    ask(page, "player.arrangement = 'auto'")
    page.wait_for_selector('.ar-stage[data-layout="ring"]')
    page.locator(".ar-player").press("ArrowRight")
    done(page, 3)
    page.get_by_role("slider", name="Step").press("ArrowRight")
    done(page, 4)
    assert heard(page, "print(player.step)", "4") == "4"
    ask(page, "player.playing = True")
    done(page, 6)
    assert heard(page, "print(player.step, player.playing)", "6 False") == "6 False"


def test_two_views_play_and_stop_together_and_with_the_kernel(lab, new_page):
    page = new_page()
    page.set_default_timeout(60_000)
    lab.open(page, lab.write(RING.replace("\nplayer\n", "\nplayer.playing = True\nplayer\n"), "player"))
    lab.run_all(page)
    views = page.locator(".ar-player[data-ready]")
    at = lambda step: page.wait_for_function(  # noqa: E731
        """(step) => { const views = [...document.querySelectorAll(".ar-player")];
          return views.length === 2
            && views.every((v) => v.dataset.step === step && v.dataset.playing === "false"); }""",
        arg=str(step),
    )
    both = "() => document.querySelectorAll('.ar-player[data-playing=\"%s\"]').length === 2"
    at(6)
    assert heard(page, "print(player.step, player.playing)", "6 False") == "6 False"
    ask(page, "player.step = 0; player.speed = 0.25")
    at(0)
    views.first.get_by_label("Play", exact=True).click()
    page.wait_for_function(both % "true")
    assert heard(page, "print(player.playing)", "True") == "True"
    ask(page, "player.playing = False")
    page.wait_for_function(both % "false")
    views.last.get_by_label("Play", exact=True).click()
    page.wait_for_function(both % "true")
    ask(page, "player.step = 3")
    at(3)
    assert heard(page, "print(player.step, player.playing)", "3 False") == "3 False"
    ask(page, "player.speed = 4.0\nwith player.hold_sync():\n    player.step = 1; player.playing = True")
    at(6)
    assert heard(page, "print(player.step, player.playing)", "6 False") == "6 False"


def test_a_player_that_was_just_run_comes_into_view_once(lab, new_page):
    page = new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    name = lab.write("x = 1\n" * 30, RING, *["y = 2\n" * 12] * 4)
    lab.open(page, name)
    page.evaluate(
        """async () => { const cells = window.jupyterapp.shell.currentWidget.content; cells.activeCellIndex = 1;
          cells.deselectAll(); await cells.scrollToItem(1);
          await window.jupyterapp.commands.execute("notebook:run-cell-and-select-next"); }"""
    )
    page.wait_for_selector(".ar-player[data-ready]", state="attached")
    in_view = """() => { const box = document.querySelector(".ar-player").getBoundingClientRect();
      const panel = document.querySelector(".jp-WindowedPanel-outer").getBoundingClientRect();
      return box.height > 400 && box.top >= panel.top && box.bottom <= panel.bottom; }"""
    page.wait_for_function(in_view)


def test_it_follows_the_theme(page):
    paper = "() => getComputedStyle(document.querySelector('.ar-player')).backgroundColor"
    theme = "(name) => window.jupyterapp.commands.execute('apputils:change-theme', { theme: name })"
    light = page.evaluate(paper)
    page.evaluate(theme, "JupyterLab Dark")
    page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
    page.wait_for_function(f"(light) => ({paper})() !== light", arg=light)
    assert light == "rgb(255, 255, 255)"
    assert sum(int(part) for part in page.evaluate(paper)[4:-1].split(",")) < 150
    page.evaluate(theme, "JupyterLab Light")
    page.wait_for_selector('body[data-jp-theme-light="true"]', state="attached")


def test_saved_and_opened_again_it_plays_without_its_kernel(page, lab, new_page):
    page.locator(".ar-player").press("Home")
    page.locator(".ar-player").press("ArrowRight")
    done(page, 1)
    assert heard(page, "print(player.step)", "1") == "1"
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    lab.close_sessions()
    again = new_page()
    again.set_default_timeout(60_000)
    lab.open(again, page.name)
    again.wait_for_selector('.ar-player[data-ready][data-step="1"]')
    again.locator(".ar-player").press("End")
    done(again, 6)
    assert contribs(again) == ["0,1,2,3"] * 16

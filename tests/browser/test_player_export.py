"""A notebook with a player, turned into a page by nbconvert: it plays without a server, a kernel or a network."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest

pytestmark = pytest.mark.browser

CELL = """
from allranks.show.player import Player
from allranks.schedules import ring_all_reduce
Player(ring_all_reduce(3))
"""


def test_an_exported_page_plays_offline(new_page, tmp_path):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbformat.write(book, tmp_path / "page.ipynb")
    command = [
        *(sys.executable, "-m", "nbconvert", "--to", "html", "--execute"),
        *("--ExecutePreprocessor.store_widget_state=False", "page.ipynb"),
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    page = new_page(offline=True)
    page.route("http*://**", lambda route: route.abort())
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector(".ar-player[data-ready]")
    assert page.locator("img[alt^='ring all_reduce']").count() == 0, "the still picture made way"
    page.locator(".ar-player").press("ArrowRight")
    page.wait_for_selector('.ar-player[data-step="1"][data-playing="false"]')
    cells = "() => [...document.querySelectorAll('.ar-cell')].map((c) => c.dataset.contrib)"
    assert page.evaluate(cells) == ["0", "0", "0,2", "0,1", "1", "1", "2", "1,2", "2"]


def test_where_scripts_are_taken_out_the_picture_and_its_words_stay(new_page, tmp_path):
    from allranks.show.player import Player
    from allranks.theory.schedules import ring_all_reduce

    (tmp_path / "bare.html").write_text(Player(ring_all_reduce(3)).page())
    page = new_page(java_script_enabled=False)
    page.goto((tmp_path / "bare.html").as_uri())
    picture = page.locator("img")
    assert picture.bounding_box()["width"] > 300, "the picture was decoded and laid out"
    assert "step 1 of 4: rank 0 sends chunk 0 to rank 1, which adds it" in picture.get_attribute("alt")

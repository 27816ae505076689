"""One JupyterLab for all browser tests, gone afterwards; the Chromium is that of all tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import live_pages
import pytest
from jupyter_lab import Lab, running_lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """A running JupyterLab."""
    with running_lab(tmp_path_factory.mktemp("lab")) as found:
        yield found


@pytest.fixture(scope="session")
def live_site(tmp_path_factory) -> Path:
    """The live pages, built once."""
    tool = live_pages.tool()
    if why := tool.missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("site")
    pages = tool.build(folder / "live")
    assert [page.stem for page in pages] == list(tool.PAGES)
    return folder


@pytest.fixture(scope="session")
def live_server(live_site) -> Iterator[ThreadingHTTPServer]:
    """A server of the pages."""
    found = live_pages.served(live_site)
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture(scope="module")
def plain_page(chromium) -> Iterator:
    """A page that is used again and again."""
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    context.close()


@pytest.fixture
def show(plain_page, tmp_path) -> Iterator:
    """A function that shows a player on a page of its own, without a server or a kernel; returns the page."""
    errors = []

    def note(error) -> None:
        errors.append(str(error))

    def start(player, scheme: str = "light", motion: str = "no-preference"):
        path = tmp_path / f"{uuid.uuid4().hex}.html"
        # Jupyter's pages give such outputs a body that follows the theme; here the page does
        style = "<style>html{background:Canvas;color:CanvasText;color-scheme:light dark}</style>"
        head = f"<!doctype html><html lang=en><meta charset=utf-8><title>Player</title>{style}"
        path.write_text(f"{head}<main><h1>Player</h1>{player.page()}</main>", encoding="utf-8")
        plain_page.emulate_media(color_scheme=scheme, reduced_motion=motion)
        plain_page.goto(path.as_uri())
        plain_page.wait_for_selector(".ar-player[data-ready]")
        # what is drawn to a size is drawn once the page has a layout, in its first frame
        plain_page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return plain_page

    plain_page.on("pageerror", note)
    yield start
    plain_page.remove_listener("pageerror", note)
    assert not errors, f"scripts threw: {errors}"

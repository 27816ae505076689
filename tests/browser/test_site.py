"""`make site`: two chapters are executed, the pages built, opened in Chromium without a network, and every link followed."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

pytest.importorskip("myst_nb", reason="the extra `site` is not installed: pip install -c constraints.txt -e '.[site]'")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.notebooks,
    pytest.mark.live,
    # myst-parser's, about what Sphinx 11 will remove
    pytest.mark.filterwarnings("ignore:.*Check CHANGES for Sphinx API modifications"),
]

ROOT = Path(__file__).resolve().parents[2]
RUN = ("00_start_here", "92_which_collective")


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("allranks_site", ROOT / "tools" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tool, tmp_path_factory) -> Path:
    """The built pages; two chapters have outputs, the others none."""
    folder = tmp_path_factory.mktemp("site")
    chapters = [ROOT / "chapters" / f"{name}.ipynb" for name in RUN]
    assert tool.build(ROOT, chapters, folder / "pages", folder / "work") == []
    assert sorted(path.name for path in folder.iterdir()) == ["pages", "work"], "something was left beside the pages"
    return folder / "pages"


@pytest.mark.timeout(500)
def test_no_link_is_broken(site):
    pages, broken, links = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}, [], 0
    ids = {path: {unquote(i) for i in re.findall(r'\b(?:id|name)="([^"]+)"', text)} for path, text in pages.items()}
    for path, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            if re.match(r"[a-z][a-z0-9+.-]*:|//", link, flags=re.I):
                assert not link.startswith(("http", "//")) or f'src="{link}"' not in text, f"{path} loads {link}"
                continue
            links += 1
            name, _, anchor = link.partition("#")
            target = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path
            if not target.exists() or (anchor and target in ids and unquote(anchor) not in ids[target]):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    assert links > 1000
    for name in (path.stem for path in (ROOT / "chapters").glob("*.ipynb")):
        assert f'href="chapters/{name}.html"' in pages[site / "index.html"]


def test_a_chapter_reads_without_kernel_and_network(site, new_page):
    page, failed = new_page(offline=True), []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.get_by_role("link", name="00 Start here").first.click()
    page.wait_for_selector(".ar-player[data-ready]")
    assert page.locator(".ar-ranks").first.locator(".ar-rank").count() == 4
    assert page.get_by_text("○ they wait for ever").count() == 2, "the choices of the radio buttons"
    page.locator(".ar-player").press("ArrowRight")
    page.wait_for_selector('.ar-player[data-step="1"][data-playing="false"]')
    if folder := os.environ.get("ALLRANKS_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / "site.png"))
    assert failed == []


def test_formulas_are_set_without_a_network(site, new_page):
    page = new_page(offline=True)
    page.goto((site / "chapters" / "07_all_reduce.html").as_uri())
    page.wait_for_selector("mjx-container")


def test_the_drill_folds_its_answers(site, new_page):
    page = new_page(offline=True, java_script_enabled=False)
    page.goto((site / "chapters" / "92_which_collective.html").as_uri())
    question = page.locator(".ar-drill-page details").first
    assert not question.locator("li").first.is_visible()
    question.locator("summary").click()
    assert question.locator("li", has_text="✓ broadcast.").is_visible()


def test_without_scripts_the_players_picture_stays(site, new_page):
    page = new_page(java_script_enabled=False)
    page.goto((site / "chapters" / "00_start_here.html").as_uri())
    assert page.locator("img[alt*='ring all_reduce']").bounding_box()["width"] > 300


def test_a_chapter_is_run_again_only_when_something_changed(tool, tmp_path):
    """A chapter that fails is named; one that has run is read from where it was kept."""
    root, kept = tmp_path / "course", tmp_path / "kept"
    (root / "chapters").mkdir(parents=True)
    path = root / "chapters" / "01_count.ipynb"
    cell = nbformat.v4.new_code_cell(
        "import pathlib\nlog = pathlib.Path('log')\nlog.open('a').write('x')\nlen(log.read_text())"
    )
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)

    def answer() -> str:
        return tool.executed(path, kept, root).cells[0].outputs[-1].data["text/plain"]

    assert [answer(), answer()] == ["1", "1"]
    (root / "utils" / "allranks").mkdir(parents=True)
    (root / "utils" / "allranks" / "new.py").write_text("x = 1\n")
    assert answer() == "2"
    assert len(list(kept.iterdir())) == 1
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    with pytest.raises(tool.SiteError, match=r"01_count.ipynb does not run to its end: ZeroDivisionError"):
        tool.executed(path, kept, root)


def test_links_to_what_the_site_lacks_become_words(tool, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n")
    (tmp_path / "tool.py").write_text("x\n")
    text = "[a](a.md#top) [tool](../tool.py) [gone](gone.md) [folder](../docs) [web](https://example.org) [up](../../etc/passwd)"
    page = Path("docs/b.md")
    found = tool.relinked(text, page, [page, Path("docs/a.md")], tmp_path, tmp_path / "source")
    assert found == "[a](a.md#top) [tool](../tool.py) gone folder [web](https://example.org) up"
    assert (tmp_path / "source" / "tool.py").read_text() == "x\n"


@pytest.mark.parametrize("width", [480, 800, 1100, 1440])
def test_no_page_is_wider_than_its_window(site, new_page, width):
    """Long lines of code and wide tables scroll in a box of their own."""
    page = new_page(offline=True)
    page.set_viewport_size({"width": width, "height": 900})
    for name in ("chapters/00_start_here", "chapters/18_libraries", "docs/cost_model"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name

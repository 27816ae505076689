"""The drill in a real JupyterLab: answered with the keyboard, read by machines that look for what readers can't use."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from jupyter_lab import ask

pytestmark = pytest.mark.browser

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"


def test_the_drill_is_answered_with_the_keyboard(lab, new_page):
    name = "92_which_collective.ipynb"
    shutil.copy(CHAPTERS / name, lab.root / name)
    page = new_page(viewport={"width": 1180, "height": 900})
    lab.open(page, name)
    lab.run_all(page)
    drill = page.locator(".ar-drill").first
    first = drill.locator("input[type=radio]").first
    first.scroll_into_view_if_needed()
    assert drill.locator("[role=alert]").count() == 0

    first.focus()
    page.keyboard.press("Space")
    drill.locator("[role=alert]", has_text="✗ Not: all_reduce.").wait_for()
    page.keyboard.press("ArrowDown")
    drill.locator("[role=alert]", has_text="✓ Right: broadcast.").wait_for()
    assert "right at the first try: 0 of 1" in drill.inner_text()

    violations = Axe().run(page, context=".ar-drill").response["violations"]
    assert not violations, [(v["id"], v["nodes"][0]["html"]) for v in violations]
    if folder := os.environ.get("ALLRANKS_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / "drill.png"))

    drill.get_by_role("button", name="Next").press("Enter")
    drill.get_by_text("Question 2 of 20").wait_for()
    assert drill.locator("input[type=radio]:checked").count() == 0
    assert drill.locator("[role=alert]").count() == 0
    drill.get_by_label("all_reduce", exact=True).check()
    drill.locator("[role=alert]", has_text="✓ Right: all_reduce.").wait_for()
    assert "right at the first try: 1 of 2" in drill.inner_text()
    assert ask(page, "print(drill.right_at_once, drill.wrong)") == "1 [0]"

    drill.get_by_role("button", name="Again, the wrong ones").click()
    drill.get_by_text("Question 1 of 1").wait_for()
    # the keys were the widget's own: Lab has no cell more or less
    cells = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells.length")
    assert cells == len(json.loads((CHAPTERS / name).read_text())["cells"])
    lab.close_sessions()


PREDICTION = """\
from allranks import ask

guess = ask("rank 0 raises an error, and all of the others wait for it until somebody ends the job by hand", "no", "yes")
guess
"""


def test_a_long_option_of_a_prediction_wraps_beside_its_button(lab, new_page):
    page = new_page(viewport={"width": 520, "height": 700})
    lab.open(page, lab.write(PREDICTION))
    lab.run_all(page)
    labels, buttons = page.locator(".ar-ask .widget-radio-box label"), page.locator(".ar-ask input[type=radio]")
    labels.nth(2).wait_for()
    assert page.locator(".ar-ask input:checked").count() == 0
    long, no, yes = (labels.nth(number).bounding_box() for number in range(3))
    assert long["height"] > 2 * no["height"] == 2 * yes["height"], "the long option takes several lines"
    assert long["y"] + long["height"] <= no["y"] and no["y"] + no["height"] <= yes["y"], "no option runs over the next"
    output = page.locator(".jp-OutputArea-output").first.bounding_box()
    assert long["x"] + long["width"] <= output["x"] + output["width"], "none is cut off"
    assert labels.nth(0).evaluate("label => label.scrollWidth <= label.clientWidth")
    assert buttons.nth(0).bounding_box()["y"] < long["y"] + no["height"], "the button stands at the first line"
    labels.nth(0).click()
    assert ask(page, "print(guess.value == guess.options[0])") == "True"
    violations = Axe().run(page, context=".ar-ask").response["violations"]
    assert not violations, [(v["id"], v["nodes"][0]["html"]) for v in violations]
    lab.close_sessions()

"""Predictions in a real JupyterLab: the answer is kept in the notebook's metadata and survives its kernel."""

from __future__ import annotations

import json

import pytest
from jupyter_lab import heard

pytestmark = pytest.mark.browser

CELLS = (
    "from allranks import predict, predictions\n"
    "guess = predict('How many GB?', low=1, high=1000, unit='GB', log=True, title='GB', name='gigabytes')\nguess",
    "guess.reveal(27.125, 'Sums are made on the way.')",
    "predictions()",
)
COUNTS = """() => window.jupyterapp.shell.currentWidget.content.widgets.map((cell) => cell.model.executionCount)"""
SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"
# how often a cell has been run by this kernel
COUNTED = """(least) => window.jupyterapp.shell.currentWidget.content.widgets
  .some((cell) => (cell.model.executionCount ?? 0) >= least)"""
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"


def card(page, view: str):
    return page.locator(f"[data-predict={view}]").last


def test_an_answer_outlives_the_kernel_and_the_page(lab, new_page):
    page = new_page(viewport={"width": 1400, "height": 900})
    name = lab.write(*CELLS)
    lab.open(page, name)
    lab.run_all(page)
    assert "Show me" in card(page, "reveal").inner_text()
    field = card(page, "question").get_by_role("textbox")
    field.scroll_into_view_if_needed()
    field.fill("434")
    card(page, "question").get_by_role("button", name="Lock in").click()
    card(page, "reveal").get_by_text("you said 434 GB").wait_for()
    assert "now run the cell below" in card(page, "question").inner_text()
    assert heard(page, "print(guess.value)", "434") == "434"
    page.keyboard.press("Shift+Enter")  # runs the cell below, not the question again, and does not press "change"
    page.wait_for_function(COUNTED, arg=4)
    asked, below, last = page.evaluate(COUNTS)
    assert (asked, last) == (1, 3) and below > 3
    assert card(page, "question").get_attribute("data-state") == "locked"
    assert heard(page, "print(guess.value)", "434") == "434"
    page.evaluate(SAVE)
    saved = json.loads((lab.root / name).read_text())
    assert saved["metadata"]["allranks_predictions"] == {"gigabytes": {"value": 434}}

    page.evaluate(RESTART)
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"
    )
    lab.run_all(page)
    card(page, "reveal").get_by_text("you said 434 GB").wait_for()
    assert heard(page, "print(guess.value)", "434") == "434", "the new kernel is told"
    lab.close_sessions()

    again = new_page(viewport={"width": 1400, "height": 900})  # another browser context has no storage of the first
    lab.open(again, name)
    lab.run_all(again)
    card(again, "reveal").get_by_text("you said 434 GB").wait_for()
    card(again, "list").get_by_text("27.1 GB").wait_for()
    card(again, "list").get_by_role("button", name="take all answers back").click()
    card(again, "reveal").get_by_text("you didn't say").wait_for()
    assert heard(again, "print(guess.value)", "None") == "None"
    again.evaluate(SAVE)
    assert "allranks_predictions" not in json.loads((lab.root / name).read_text())["metadata"]
    lab.close_sessions()


def test_keys_of_an_answer_stay_in_its_card(lab, new_page):
    page = new_page(viewport={"width": 1400, "height": 900})
    lab.open(page, lab.write(CELLS[0], "1 + 1"))
    lab.run_all(page)
    slider = card(page, "question").get_by_role("slider")
    slider.focus()
    for key in ("ArrowRight", "ArrowRight", "b", "ArrowUp"):
        page.keyboard.press(key)
    assert slider.get_attribute("aria-valuetext") != "nothing chosen yet"
    assert page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length") == 2
    assert page.evaluate("() => document.activeElement.getAttribute('role')") == "slider"
    lab.close_sessions()

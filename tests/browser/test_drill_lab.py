"""The drill in a real JupyterLab: answered with the keyboard, read by machines that look for what readers can't use."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from jupyter_lab import ask, heard

pytestmark = pytest.mark.browser

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters/1_first_hours"


def test_the_drill_is_answered_with_the_keyboard(lab, new_page):
    name = "01_nine_pictures.ipynb"
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
    drill.locator("[role=alert]", has_text="✗ Not quite. all_reduce:").wait_for()
    page.keyboard.press("ArrowDown")
    drill.locator("[role=alert]", has_text="✓ Right. broadcast:").wait_for()
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
    drill.locator("[role=alert]", has_text="✓ Right. all_reduce:").wait_for()
    assert "right at the first try: 1 of 2" in drill.inner_text()
    assert ask(page, "print(drill.right_at_once, drill.wrong)") == "1 [0]"

    drill.get_by_role("button", name="Again, the wrong ones").click()
    drill.get_by_text("Question 1 of 1").wait_for()
    # the keys were the widget's own: Lab has no cell more or less
    cells = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells.length")
    assert cells == len(json.loads((CHAPTERS / name).read_text())["cells"])
    lab.close_sessions()


LONG = "rank 0 raises an error, and all of the others wait for it until somebody ends the job by hand"
WRAPPED = {
    "Quiz": "guess = Quiz('Which?', {LONG: LONG, 'no': 'No.', 'yes': 'Yes.'}, 'yes'); buttons = guess.choice",
    "Drill": (
        "guess = Drill([Question('Which?', {LONG: LONG, 'no': 'No.', 'yes': 'Yes.'}, 'yes')]); buttons = "
        "guess.quiz.choice"
    ),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_long_option_wraps_beside_its_button(lab, new_page, kind):
    page = new_page(viewport={"width": 520, "height": 700})
    lab.open(page, lab.write(f"from allranks.show.widgets import *\nLONG = {LONG!r}\n{WRAPPED[kind]}\nguess"))
    lab.run_all(page)
    labels, buttons = page.locator(".ar-options .widget-radio-box label"), page.locator(".ar-options input[type=radio]")
    page.locator(".ar-options [role=radiogroup]").wait_for()
    assert page.locator(".ar-options input:checked").count() == 0
    long, no, yes = (labels.nth(number).bounding_box() for number in range(3))
    assert long["height"] > 2 * no["height"] == 2 * yes["height"], "the long option takes several lines"
    assert long["y"] + long["height"] <= no["y"] and no["y"] + no["height"] <= yes["y"], "no option runs over the next"
    output = page.locator(".jp-OutputArea-output").first.bounding_box()
    assert long["x"] + long["width"] <= output["x"] + output["width"], "none is cut off"
    assert labels.nth(0).evaluate("label => label.scrollWidth <= label.clientWidth")
    button = buttons.nth(0).bounding_box()
    assert button["y"] < long["y"] + no["height"], "the button stands at the first line"
    words = labels.nth(0).evaluate("""(label) => { const range = document.createRange();
      range.selectNodeContents(label.firstChild);
      return [...range.getClientRects()].map((line) => line.x); }""")
    assert len(words) > 2 and min(words) >= button["x"] + button["width"], "every line stands beside the button"
    labels.nth(0).click()
    assert heard(page, "print(buttons.value == buttons.options[0])", "True") == "True"
    violations = Axe().run(page, context=".jp-OutputArea-output").response["violations"]
    assert not violations, [(v["id"], v["nodes"][0]["html"]) for v in violations]
    lab.close_sessions()


QUIZZES = """\
from allranks import Quiz

reasons = {"1": "No.", "2": "No.", "4": "Yes."}
first, second = Quiz("At once?", {"yes": "Yes.", "no": "No."}, "yes"), Quiz("How many?", reasons, "4")
display(first, second, first)
"""
FOCUSED = """() => { const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
  const group = document.activeElement.closest("[role=radiogroup]");
  return { outline: `${outlineStyle} ${outlineWidth}`, option: document.activeElement.closest("label")?.textContent,
    group: [...document.querySelectorAll("[role=radiogroup]")].indexOf(group) }; }"""


def hears(page, code: str, said: str) -> None:
    """Waits until the kernel prints this: ipywidgets sends a second choice only after the first has been taken."""
    assert heard(page, code, said) == said


def test_each_quiz_is_one_group_for_the_keyboard(lab, new_page):
    page = new_page(viewport={"width": 1180, "height": 900})
    lab.open(page, lab.write(QUIZZES, "late = Quiz('Which?', {'a': 'Yes.', 'b': 'No.'}, 'a')\nlate"))
    lab.run_all(page)
    groups = page.locator(".ar-options [role=radiogroup]")
    groups.nth(2).wait_for()
    assert [groups.nth(number).get_attribute("aria-label") for number in range(2)] == ["At once?", "How many?"]

    groups.nth(0).locator("input").nth(0).focus()
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == {"group": 1, "option": "1", "outline": "solid 2px"}
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED) == {"group": 1, "option": "4", "outline": "solid 2px"}
    hears(page, "print(first.choice.value, second.choice.value)", "None 4")
    page.keyboard.press("ArrowDown")
    hears(page, "print(first.choice.value, second.choice.value)", "None 1")  # from the last to the first
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    focused = page.evaluate(FOCUSED)  # browsers differ in which option of an unanswered group they enter backwards
    assert (focused["group"], focused["outline"]) == (0, "solid 2px")
    hears(page, "print(first.choice.value, second.choice.value)", f"{focused['option']} 1")
    # shown twice, chosen once: the other view follows, and the group between them is left alone
    groups.nth(2).get_by_label(focused["option"]).and_(page.locator(":checked")).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == {"group": 1, "option": "1", "outline": "solid 2px"}, "Tab enters at what is chosen"
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED)["group"] == 2

    late = groups.filter(has_text="b").last
    late.get_by_label("a", exact=True).focus()
    page.keyboard.press("ArrowDown")
    hears(page, "print(late.choice.value)", "b")
    # the keys were the buttons' own: Lab still stands where it stood, with no cell more or less
    assert page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets.length") == 2
    lab.close_sessions()

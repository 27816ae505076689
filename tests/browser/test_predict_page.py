"""Predictions on a page without a kernel: the truth is covered until the question is answered, also by keyboard
alone.
"""

from __future__ import annotations

import pytest
from allranks.show.player.offline import live_page
from allranks.show.widgets.prediction import Prediction, Predictions, predict

pytestmark = pytest.mark.browser

WHY = "because both point to one memory"


def questions() -> dict[str, tuple]:
    """Of each kind: the question and its reveal. A name of their own each time, because the browser keeps answers."""
    choice = predict("What does it print?", choices=["`1, 1`", "`10, 1`", "`10, 10`"], title="It prints")
    number = predict("How many GB?", low=1, high=1000, unit="GB", log=True, title="GB sent")
    curve = predict("Sketch it.", sketch={"x": [2, 4, 8, 16], "low": 0, "high": 8, "unit": "n"}, title="Curve")
    return {
        "choice": (choice, choice.reveal("`10, 10`", WHY)),
        "number": (number, number.reveal(27.125, WHY)),
        "sketch": (curve, curve.reveal(lambda p: 2 * (p - 1) / p, WHY, it="it levels off", label="2 (p-1)/p")),
    }


@pytest.fixture
def open_page(new_page, tmp_path):
    """A function that writes cells as nbconvert does, each a list of outputs, and opens the page."""

    def start(*cells: list, cards: int | None = None, **options):
        def output(shown) -> str:
            page = shown if isinstance(shown, str) else shown._repr_mimebundle_()["text/html"]
            return f'<div class="jp-OutputArea-child"><div class="jp-OutputArea-output">{page}</div></div>'

        body = "".join(
            '<div class="jp-Cell"><div class="jp-Cell-inputWrapper">the source</div><div '
            f'class="jp-OutputArea">{"".join(map(output, cell))}</div></div>'
            for cell in cells
        )
        path = tmp_path / "page.html"
        head = "<!doctype html><html lang=en><meta charset=utf-8><title>Chapter</title>"
        path.write_text(f"{head}<body data-theme=light><main>{body}</main>", encoding="utf-8")
        page = new_page(**options)
        page.goto(path.as_uri())
        wanted = cards or sum(not isinstance(shown, str) for cell in cells for shown in cell)
        page.wait_for_function(f"document.querySelectorAll('[data-predict]').length === {wanted}")
        return page

    return start


def card(page, view: str, number: int = 0):
    return page.locator(f"[data-predict={view}]").nth(number)


def test_the_truth_and_what_gives_it_away_is_covered_until_the_answer_is_locked_in(open_page):
    question, reveal = questions()["choice"]
    page = open_page(
        ["<pre>before</pre>"],
        [question],
        ["<pre>rank 0: 10</pre>"],
        ["<pre>10, 10</pre>", reveal],
        ["<pre>after</pre>"],
    )
    assert [page.get_by_text(text, exact=True).is_visible() for text in ("before", "rank 0: 10", "after")] == [
        True, False, True,
    ]  # fmt: skip
    shown = card(page, "reveal")
    assert "you didn't say" in shown.inner_text() and WHY not in shown.inner_text()
    assert not page.get_by_text("it was").is_visible() and not page.locator("pre", has_text="10, 10").is_visible()
    assert page.get_by_text("covered until you answer").count() == 3, "the source of the reveal is covered too"
    assert [page.get_by_text("the source").nth(cell).is_visible() for cell in range(5)] == [
        True,
        True,
        True,
        False,
        True,
    ]

    lock = card(page, "question").get_by_role("button", name="Lock in")
    assert lock.is_disabled()
    card(page, "question").locator("label", has_text="10, 1").first.click()
    assert lock.is_enabled() and WHY not in shown.inner_text(), "chosen is not locked in"
    lock.click()
    text = shown.inner_text()
    assert "you said 10, 1" in text and "it was: 10, 10" in text and WHY in text
    assert shown.locator(".ar-predict-verdict").inner_text() == "Not quite."
    assert (
        page.locator("pre", has_text="rank 0: 10").is_visible() and page.locator("pre", has_text="10, 10").is_visible()
    )
    assert page.get_by_text("covered until you answer").count() == 0

    page.reload()
    card(page, "reveal").get_by_text("you said 10, 1").wait_for()
    assert card(page, "question").get_attribute("data-state") == "locked"


@pytest.mark.parametrize("where", ["question", "reveal"])
def test_a_reader_may_decline_in_both_cards_and_is_not_said_to_have_said_anything(open_page, where):
    question, reveal = questions()["number"]
    page = open_page([question], ["<pre>27.1</pre>"], [reveal])
    card(page, where).get_by_role("button", name="show me").click()
    text = card(page, "reveal").inner_text()
    assert "you didn't say" in text and "it was 27.1 GB" in text and WHY in text and "you said" not in text
    assert page.locator("pre").is_visible()
    card(page, "question").get_by_role("button", name="answer").click()
    assert card(page, "question").get_attribute("data-state") == "open"
    assert "it was" not in card(page, "reveal").inner_text()


def test_a_right_answer_is_called_right_and_no_answer_gets_no_verdict(open_page):
    for kind, act, verdict in (
        ("choice", lambda asked: asked.locator("label", has_text="10, 10").click(), "Right."),
        ("number", lambda asked: asked.get_by_role("textbox").fill("30"), "Right."),
        ("number", lambda asked: asked.get_by_role("textbox").fill("50"), "Not quite."),
    ):
        question, reveal = questions()[kind]
        page = open_page([question], [reveal])
        act(card(page, "question"))
        card(page, "question").get_by_role("button", name="Lock in").click()
        assert card(page, "reveal").locator(".ar-predict-verdict").inner_text() == verdict
        card(page, "question").get_by_role("button", name="change").click()
        card(page, "question").get_by_role("button", name="show me").click()
        assert card(page, "reveal").locator(".ar-predict-verdict").count() == 0


KEYS = {
    "choice": (["Space", "ArrowDown"], "you said 10, 1"),
    "number": (["ArrowRight", "PageUp", "PageUp"], "you said 126 GB"),
    "sketch": (
        ["ArrowUp", "ArrowRight", "PageUp", "ArrowRight", "PageUp", "ArrowRight", "PageUp"],
        "you said it grows",
    ),
}


@pytest.mark.parametrize("kind", KEYS)
def test_the_keyboard_alone_answers_each_kind(open_page, kind):
    question, reveal = questions()[kind]
    page = open_page([question], [reveal])
    page.evaluate("addEventListener('keydown', (event) => { window.lost = event.key; })")
    page.keyboard.press("Tab")
    keys, said = KEYS[kind]
    for key in keys:
        page.keyboard.press(key)
    page.keyboard.press("Tab")
    if kind == "number":  # the field to type lies between
        assert page.evaluate("document.activeElement.value") == "126"
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Lock in"
    page.keyboard.press("Enter")
    assert said in card(page, "reveal").inner_text()
    assert "Locked in" in card(page, "question").locator("[aria-live]").inner_text()
    assert page.evaluate("window.lost") in (None, "Tab"), "no key of the answer reaches Jupyter"


def test_a_number_can_be_typed_beyond_the_slider(open_page):
    question, reveal = questions()["number"]
    page = open_page([question], [reveal])
    slider = card(page, "question").get_by_role("slider")
    assert slider.get_attribute("aria-valuetext") == "nothing chosen yet"
    card(page, "question").get_by_role("textbox").fill("12,000")
    assert slider.get_attribute("aria-valuetext") == "12,000 GB"
    card(page, "question").get_by_role("textbox").fill("many")
    assert card(page, "question").get_by_role("button", name="Lock in").is_disabled()
    card(page, "question").get_by_role("textbox").fill("0")
    card(page, "question").get_by_role("button", name="Lock in").click()
    assert "you said 0 GB" in card(page, "reveal").inner_text(), "zero is an answer"


def test_the_list_shows_what_was_said_and_takes_it_back(open_page):
    asked: list[Prediction] = []
    for question, _ in questions().values():
        asked.append(question)
    page = open_page(*([question] for question in asked), [Predictions(asked)])
    knew = card(page, "list")
    assert "27.1" not in knew.inner_text() and knew.inner_text().count("you didn't say") == 3
    card(page, "question", 1).get_by_role("textbox").fill("434")
    card(page, "question", 1).get_by_role("button", name="Lock in").click()
    assert "434 GB" in knew.inner_text() and "27.1 GB" in knew.inner_text()
    knew.get_by_role("button", name="take all answers back").click()
    assert knew.inner_text().count("you didn't say") == 3
    assert card(page, "question", 1).get_attribute("data-state") == "open"


@pytest.mark.parametrize("wide", [390, 1400])
def test_nothing_is_cut_or_small_or_hard_to_hit(open_page, wide):
    cells = [[card] for pair in questions().values() for card in pair]
    page = open_page(*cells, viewport={"width": wide, "height": 900})
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    small = page.evaluate(
        """() => [...document.querySelectorAll("[data-predict] *")].filter((element) =>
             element.childNodes.length && parseFloat(getComputedStyle(element).fontSize) < 12).length"""
    )
    assert small == 0
    least = 44 if wide == 390 else 30
    boxes = page.locator("[data-predict] :is(button, label, input[type=text])").evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect().height)"
    )
    assert len(boxes) > 8 and all(height >= least for height in boxes if height), boxes


def test_what_the_class_said_is_shown_with_the_reveal_and_the_readers_own_bar(open_page):
    """A workshop's board tells the kernel; here its answer stands in the page's state."""
    question, reveal = questions()["number"]
    said = {"answers": 4, "bars": [["3", 1], ["<b>7", 2], ["434", 1]]}
    state = {"view": "reveal", "asked": reveal.asked, "said": {}, "truth": reveal.truth, "rows": [], "class_said": said}
    page = open_page([question], [live_page(state, {"code": reveal.code}, "")], cards=2)
    shown = card(page, "reveal")
    assert shown.locator(".ar-predict-class").count() == 0, "not before an answer"
    card(page, "question").get_by_role("textbox").fill("434")
    card(page, "question").get_by_role("button", name="Lock in").click()
    shown.get_by_text("you said 434 GB").wait_for()
    assert "The class said (4 answers):" in shown.inner_text()
    rows = shown.locator(".ar-predict-class li")
    assert [row.split() for row in rows.all_inner_texts()] == [["3", "1"], ["<b>7", "2"], ["434", "1"]]
    assert rows.nth(2).get_attribute("class") == "ar-you" and not rows.nth(1).get_attribute("class")
    widths = [rows.nth(n).locator("i").evaluate("bar => bar.getBoundingClientRect().width") for n in range(3)]
    assert widths[1] > 1.5 * widths[0] > 0

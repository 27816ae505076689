"""Predictions: what can be asked and answered, what the reveal says, and what stands there without a kernel."""

import json
import re

import allranks
import numpy
import pytest
import torch
from allranks.show.widgets import prediction as module
from allranks.show.widgets.prediction import PredictionError, predict, predictions
from allranks.show.widgets.prediction_words import is_right, shape, written

HEIGHTS = {"x": [2, 4, 8, 16, 32], "low": 0, "high": 8, "unit": "n"}


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch):
    monkeypatch.setattr(module, "_ASKED", {})


def a_choice(**options):
    return predict("Who holds the `sum`?", choices=["rank 0", "`every` rank"], title="Holder", **options)


def test_each_kind_begins_without_an_answer_and_keeps_the_one_that_is_given():
    choice, number = a_choice(), predict("How many?", low=0, high=20, unit="GB")
    curve = predict("Sketch it.", sketch=HEIGHTS)
    assert [guess.value for guess in (choice, number, curve)] == [None] * 3
    choice.lock_in("rank 0")
    number.lock_in(0)
    curve.lock_in((1, 2, 3, 4, 5))
    assert (choice.value, number.value, curve.value) == ("rank 0", 0, [1, 2, 3, 4, 5])


def test_the_reveal_follows_the_answer_and_never_makes_one_up():
    guess = predict("How many GB does each GPU send?", low=1, high=1000, unit="GB", log=True)
    shown = guess.reveal(27.125, "Sums are made on the way.", marks={"n": 14})
    assert shown.text().splitlines() == ["you didn't say; it was 27.1 GB", "Sums are made on the way."]
    guess.lock_in(434)
    assert repr(shown) == "<Reveal: Not quite. You said 434 GB; it was 27.1 GB>"
    guess.lock_in(28)
    assert shown.text().splitlines() == ["Right. You said 28 GB; it was 27.1 GB", "Sums are made on the way."]
    guess.said = {"declined": True}
    assert shown.text().startswith("you didn't say;")


@pytest.mark.parametrize(
    ("right", "said", "is_so"),
    [  # the same answers are in js/test/predict/words.test.js
        ("`every` rank", "every rank", True),
        ("`every` rank", "rank 0", False),
        ([6, 6], 6, True),
        ([6, 6], 5, False),
        ([21.7, 33.9], 33, True),
        ([21.7, 33.9], 434, False),
        ([[0, 2], [1, 3]], [1, 3], True),
        ([[0, 2], [1, 3]], [1, 4], False),
    ],
)
def test_whether_an_answer_is_right(right, said, is_so):
    assert is_right({"right": right}, said) is is_so


@pytest.mark.parametrize(
    ("slider", "truth", "within", "right", "wrong"),
    [
        ({"low": 0, "high": 20}, 6, None, [6], [5, 7]),  # a count
        ({"low": 0, "high": 100}, 37.4, None, [33, 42], [32, 43]),  # a measured number on a slider of whole ones
        ({"low": 0.0, "high": 10.0}, 3.0, None, [2.6, 3.4], [2.4, 3.6]),
        ({"low": 0.0, "high": 10.0}, 3.0, 0.1, [2.95, 3.05], [2.8, 3.2]),
        ({"low": 1, "high": 1000, "log": True}, 40, None, [33, 49], [31, 51]),
        ({"low": 1, "high": 1024, "log": True}, 10, 0, [10], [9, 11]),
    ],
)
def test_how_near_a_number_must_be_depends_on_its_slider(slider, truth, within, right, wrong):
    guess = predict("How many?", **slider)
    shown = guess.reveal(truth, within=within)
    for number, verdict in [(n, "Right.") for n in right] + [(n, "Not quite.") for n in wrong]:
        guess.lock_in(number)
        assert shown.text().startswith(verdict), number


def test_a_curve_is_said_in_words_and_its_truth_may_be_a_function():
    guess = predict("Sketch it.", sketch=HEIGHTS)
    guess.lock_in([1, 2, 3, 4, 5])
    shown = guess.reveal(lambda p: 2 * (p - 1) / p, it="it levels off, below 2 n", label="2 (p-1)/p n")
    assert shown.truth["truth"][:2] == [1.0, 1.5]
    assert repr(shown) == "<Reveal: Not quite. You said it grows; it levels off, below 2 n>"
    guess.lock_in([1, 1.2, 1.9, 2.5, 2.9])
    assert repr(shown).startswith("<Reveal: Right.")


def test_numbers_of_torch_and_numpy_are_numbers_for_the_browser_too():
    guess = predict("How many?", low=0, high=20)
    for truth in (torch.tensor(6.0), numpy.float32(6), numpy.int64(6), torch.tensor([6.0])[0]):
        assert json.dumps(guess.reveal(truth).truth["truth"]) in ("6", "6.0")


@pytest.mark.parametrize(
    ("words", "curve"),
    [  # the same curves are in js/test/predict/words.test.js
        ("it grows", [1, 2, 3, 4, 5]),
        ("it grows, then levels off", [1, 4, 6, 6.2, 6.3]),
        ("it stays level", [3, 3.1, 3, 3, 3.2]),
        ("it falls", [6, 5, 4, 3, 1]),
        ("it falls, then levels off", [8, 3, 1, 1, 0.9]),
        ("it rises, then falls", [1, 4, 7, 4, 2]),
        ("it falls, then rises", [6, 3, 1, 3, 5]),
    ],
)
def test_a_curve_in_words(words, curve):
    assert shape(curve, 8) == words


def test_numbers_are_written_as_the_browser_writes_them():
    assert [written(x) for x in (27.125, 434, 1024, 0.5)] == ["27.1", "434", "1,024", "0.5"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give either choices, or low and high, or sketch"),
        ({"choices": ["a", "b"], "low": 0, "high": 1}, "give either choices"),
        ({"choices": "ab"}, "choices is the text 'ab'; give a list of texts"),
        ({"choices": ["yes"]}, "at least two options; there are 1"),
        ({"choices": ["yes", "no", "yes"]}, "the option 'yes' is there twice"),
        ({"choices": ["yes", " "]}, "' ' can't be offered"),
        ({"low": 3, "high": 3}, "low is 3 and high is 3; a slider needs two ends"),
        ({"low": 0}, "low is 0 and high is None"),
        ({"low": 0, "high": 5, "log": True}, "a logarithmic slider begins above 0"),
        ({"sketch": {"x": [1], "high": 2}}, "x has 1 points; a curve needs at least two"),
        ({"sketch": {"x": [1, 2]}}, "a sketch needs two heights"),
        ({"sketch": {"x": [1, 2], "high": 2, "colour": "red"}}, "sketch has no 'colour'; it takes high, low"),
    ],
)
def test_a_question_that_nobody_could_answer_is_refused(arguments, said):
    with pytest.raises(PredictionError, match=re.escape(said)):
        predict("Which?", **arguments)
    with pytest.raises(PredictionError, match="the question is ''"):
        predict("", low=0, high=1)


def test_an_answer_or_a_truth_that_does_not_fit_is_refused():
    curve = predict("Sketch it.", sketch=HEIGHTS)
    for act, said in (
        (lambda: a_choice().lock_in("rank 1"), "'rank 1' is not an option; there are rank 0"),
        (lambda: predict("How many?", low=0, high=9).lock_in("six"), "'six' is not a number"),
        (lambda: predict("How many?", low=0, high=9).reveal(float("nan")), "nan is not a number"),
        (lambda: curve.lock_in([1, 2]), "the curve needs a height for each x; x has 5 points"),
        (lambda: curve.reveal([1, 2, 3, 4, 5]), "a curve needs its truth in words too"),
        (lambda: a_choice().reveal(3), "the truth is 3; give it as text"),
    ):
        with pytest.raises(PredictionError, match=re.escape(said)):
            act()


def test_where_nothing_was_asked_the_list_is_a_sentence_and_no_error():
    module._ASKED.clear()
    shown = predictions()._repr_mimebundle_()
    assert shown == {"text/plain": predictions().text()} and shown["text/plain"].startswith("No question was asked")


def test_the_list_has_each_question_once_with_what_was_said_and_what_it_was():
    a_choice()
    guess = a_choice()  # its cell ran again
    predict("How many?", low=0, high=9)
    guess.lock_in("rank 0")
    guess.reveal("`every` rank")
    assert predictions().text().splitlines() == [
        "Holder: you said rank 0; it was: every rank",
        "How many?: you didn't say; it was not shown yet",
    ]


def test_what_a_page_without_scripts_shows_keeps_the_truth_folded():
    guess = a_choice()
    asked = guess._repr_mimebundle_()
    assert asked["text/plain"] == "Who holds the sum?\n( ) rank 0\n( ) every rank"
    still = asked["text/html"].split("<script")[0]
    assert "Who holds the sum?" in still and "every rank" in still
    still = guess.reveal("`every` rank", "it is <all>.")._repr_mimebundle_()["text/html"].split("<script")[0]
    before, folded = still.split("<details>")
    assert "every rank" not in before and "it was: every rank" in folded and "it is &lt;all&gt;." in folded
    a_list = predictions()._repr_mimebundle_()["text/html"].split("<script")[0]
    assert "Holder" in a_list and "every rank" not in a_list


def test_a_page_holds_no_answer_and_nothing_that_ends_its_script():
    guess = predict("Does </script> end it?", choices=["yes", "no"])
    guess.lock_in("yes")
    page = guess._repr_mimebundle_()["text/html"]
    assert page.count("</script>") == 1, "only its own end"
    assert '"said": {}' in page


def test_the_package_hands_out_predict_and_predictions():
    assert allranks.predict is predict and allranks.predictions is predictions
    assert {"predict", "predictions", "Prediction", "PredictionError"} <= set(allranks.__all__)
    assert issubclass(PredictionError, allranks.CourseError)

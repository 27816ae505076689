"""Quizzes and drills: what they say to each answer, what they count, and what they show where no kernel is."""

import re

import pytest
from allranks.base.chapters import chapters
from allranks.show.widgets import SITUATIONS, Drill, DrillError, Question, Quiz
from allranks.show.widgets.buttons import Keys, Options
from allranks.theory.schedules import COLLECTIVES

REASONS = {"rank 0": "No: that is `reduce`.", "all <ranks>": "Yes.", "nobody": "No."}


def test_every_choice_gets_its_reason_and_a_second_one_is_allowed():
    quiz = Quiz("Who holds the sum?", REASONS, right="all <ranks>")
    assert quiz.choice.value is None and quiz.said.value == ""
    quiz.choice.value = "rank 0"
    assert "✗ Not quite. rank 0:" in quiz.said.value and "<code>reduce</code>" in quiz.said.value
    assert not quiz.solved
    quiz.choice.value = "all <ranks>"
    assert "✓ Right. all &lt;ranks&gt;:" in quiz.said.value and 'role="alert"' in quiz.said.value
    assert quiz.solved and quiz.tries == ("rank 0", "all <ranks>")


def test_several_options_may_be_right():
    question = Question("Which?", {"a": "Yes.", "b": "Yes too.", "c": "No."}, ("a", "b"))
    assert [question.judge(option)[0] for option in "abc"] == [True, True, False]
    with pytest.raises(DrillError, match="'d' is not an option; there are a, b, c"):
        question.judge("d")


@pytest.mark.parametrize(
    ("reasons", "right", "said"),
    [
        ({"a": "Yes."}, "a", "at least two options"),
        ({"a": "Yes.", "b": "No."}, "c", "must be among a, b"),
        ({"a": "Yes.", "b": "No."}, (), "must be among a, b"),
        ({"a": "Yes.", "b": " "}, "a", "the option 'b' has no reason"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(reasons, right, said):
    with pytest.raises(DrillError, match=said):
        Quiz("Which?", reasons, right)


def test_only_the_first_try_counts_and_the_wrong_ones_come_again():
    drill = Drill(SITUATIONS[:3])
    right = [question.right[0] for question in drill.questions]
    wrong = [next(o for o in question.options if o not in question.right) for question in drill.questions]
    for place, option in enumerate((right[0], wrong[1], right[2])):
        drill.quiz.choice.value = option
        if place == 1:
            drill.quiz.choice.value = right[1]
        drill.next.click()
    assert (drill.right_at_once, drill.wrong) == (2, [1])
    assert "right at the first try: 2 of 3" in drill.count.value
    assert drill.next.disabled and drill.place == 2
    drill.again.click()
    assert drill.quiz.question == SITUATIONS[1] and "Question 1 of 1" in drill.count.value
    assert drill.quiz.choice.value is None
    drill.quiz.choice.value = right[1]
    assert (drill.right_at_once, drill.wrong) == (3, [])


def test_going_back_shows_the_question_unanswered():
    drill = Drill(SITUATIONS)
    assert drill.back.disabled and drill.again.disabled
    drill.quiz.choice.value = SITUATIONS[0].options[0]
    drill.next.click()
    drill.back.click()
    assert drill.place == 0 and drill.quiz.choice.value is None and drill.quiz.said.value == ""


def test_a_drill_needs_a_question():
    with pytest.raises(DrillError, match="at least one question"):
        Drill([])


def test_without_a_kernel_questions_stand_there_with_folded_answers():
    drill = Drill(SITUATIONS)
    data = drill._repr_mimebundle_()
    assert data["text/html"].count("<details>") == 20
    assert "application/vnd.jupyter.widget-view+json" in data
    assert SITUATIONS[4].text in data["text/plain"]
    assert not any(reason in data["text/plain"] for q in SITUATIONS for reason in q.reasons.values())
    page = Quiz("A <b>?", REASONS, "nobody").page()
    assert "A &lt;b&gt;?" in page and "✓ nobody" in page


def test_twenty_situations_ask_for_every_collective():
    assert len(SITUATIONS) == 20
    asked = {q.right[0].replace("send and recv", "send").split()[0] for q in SITUATIONS}
    assert asked == {*COLLECTIVES, "send", "no"}
    reasons = [reason for q in SITUATIONS for reason in q.reasons.values()]
    assert len(set(reasons)) == len(reasons)
    assert all(len(q.options) == 4 for q in SITUATIONS)


def test_the_right_one_is_not_always_in_the_same_place():
    places = [q.options.index(q.right[0]) for q in SITUATIONS]
    assert all(3 <= places.count(place) <= 8 for place in range(4)), places


def test_chapters_that_reasons_name_are_chapters_of_the_course():
    reasons = "".join(r for q in SITUATIONS for r in q.reasons.values())
    named = {n for places in re.findall(r"\(chapters? ([^)]*)\)", reasons) for n in re.findall(r"\d+", places)}
    assert named and named <= {chapter.number for chapter in chapters()}


@pytest.mark.parametrize(
    "options",
    [Quiz("Yes?", {"yes": "Yes.", "no": "No."}, "yes").choice, Drill(SITUATIONS).quiz.choice],
)
def test_quizzes_and_drills_have_the_same_buttons_and_one_style(options):
    assert isinstance(options, Options) and "ar-options" in options._dom_classes and options.value is None
    assert ".ar-options " in Keys._css and ".ar-drill " in Keys._css


def test_screen_readers_hear_what_the_buttons_are_about():
    assert Quiz("Does `send` wait?", {"yes": "Yes.", "no": "No."}, "yes").choice.tooltip == "Does send wait?"

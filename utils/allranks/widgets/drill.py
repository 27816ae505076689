"""Questions with an immediate reason for every answer: a quiz of one question, and a drill of many."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import ipywidgets
import traitlets

from allranks.errors import CourseError
from allranks.widgets.buttons import Keys, Options


class DrillError(CourseError, ValueError):
    """A question that can't be asked: no options, no right one, an option without a reason."""


@dataclass(frozen=True)
class Question:
    """A situation, and for each option the reason why it is right or wrong.

    `right` names the option, or the options where several will do. Raises DrillError where that can't be asked.
    """

    text: str
    reasons: Mapping[str, str]
    right: str | tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "reasons", dict(self.reasons))
        object.__setattr__(self, "right", (self.right,) if isinstance(self.right, str) else tuple(self.right))
        if len(self.reasons) < 2:
            raise DrillError(f"the question {self.text!r} needs at least two options")
        if not self.right or set(self.right) - set(self.reasons):
            raise DrillError(f"the question {self.text!r}: {self.right!r} must be among {', '.join(self.reasons)}")
        for option, reason in self.reasons.items():
            if not reason.strip():
                raise DrillError(f"the question {self.text!r}: the option {option!r} has no reason")

    @property
    def options(self) -> tuple[str, ...]:
        """What can be chosen, in order."""
        return tuple(self.reasons)

    def judge(self, option: str) -> tuple[bool, str]:
        """(whether it is right, the reason). Raises DrillError for an option that there is not."""
        if option not in self.reasons:
            raise DrillError(f"{option!r} is not an option; there are {', '.join(self.reasons)}")
        return option in self.right, self.reasons[option]


class Quiz(ipywidgets.VBox):
    """One question as radio buttons; whatever is chosen, its reason follows at once. Choosing again is allowed.

        Quiz("Who holds the sum?", {"rank 0": "No: that is reduce.", "all": "Yes."}, right="all")

    `tries` lists what was chosen, in order; `solved` turns True with a right choice. Arrow keys move between options, as
    in every group of radio buttons; screen readers hear the reason. Without a kernel it shows question and answers as text.
    """

    solved = traitlets.Bool(False)
    tries = traitlets.Tuple()

    def __init__(self, question: str | Question, reasons: Mapping[str, str] | None = None, right=(), **box_options):
        if not isinstance(question, Question):
            question = Question(question, reasons or {}, right)
        self.question = question
        self._text, self.said, self._keys = ipywidgets.HTML(), ipywidgets.HTML(), Keys()
        super().__init__(**box_options)
        self.add_class("ar-drill")
        self.ask(question)

    def ask(self, question: Question) -> None:
        """Shows another question in the same place, unanswered."""
        self.question, self.tries, self.solved = question, (), False
        self._text.value = f"<b>{_prose(question.text)}</b>"
        self.said.value = _said("", "")
        # a new group of buttons: giving an old one new options would choose the first of them
        old = getattr(self, "choice", None)
        self.choice = Options(question.options, tooltip=question.text.replace("`", ""))
        self.choice.observe(self._chosen, "value")
        self.children = [self._text, self.choice, self.said, self._keys]
        if old is not None:
            old.close()

    def _chosen(self, change) -> None:
        option = change["new"]
        if option is None:
            return
        right, reason = self.question.judge(option)
        self.tries = (*self.tries, option)
        self.said.value = _said("right" if right else "wrong", reason, option)
        self.solved = self.solved or right

    def text(self) -> str:
        """The question and its options in words, without the answers."""
        return "\n".join([self.question.text, *(f"( ) {option}" for option in self.question.options)])

    def page(self) -> str:
        """HTML that needs no kernel: the question, and every answer with its reason, folded."""
        return _page([self.question])

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, **kwargs) -> dict:
        found = super()._repr_mimebundle_(**kwargs)
        data = found[0] if isinstance(found, tuple) else found
        return {**(data or {}), "text/plain": self.text(), "text/html": self.page()}


class Drill(ipywidgets.VBox):
    """Questions one after another, with a count of those that were right at the first try.

    `place` is the question shown, from 0; `first_tries` what was first chosen for each question answered. "Again" goes
    through those that were wrong at first.
    """

    place = traitlets.Int(0)

    def __init__(self, questions: Sequence[Question], **box_options) -> None:
        self.questions = tuple(questions)
        if not self.questions:
            raise DrillError("a drill needs at least one question")
        self.first_tries: dict[int, str] = {}
        self._order = list(range(len(self.questions)))
        self.quiz = Quiz(self.questions[0])
        self.quiz.remove_class("ar-drill")
        self.back = _button("Back", "the question before", lambda: self.go(self.place - 1))
        self.next = _button("Next", "the next question", lambda: self.go(self.place + 1))
        self.again = _button("Again, the wrong ones", "go through those that were wrong at the first try", self.repeat)
        self.count = ipywidgets.HTML()
        buttons = ipywidgets.HBox([self.back, self.next, self.again], layout=ipywidgets.Layout(flex_flow="row wrap"))
        super().__init__([self.count, self.quiz, buttons], **box_options)
        self.add_class("ar-drill")
        self.quiz.observe(self._answered, "tries")
        self._tell()

    @property
    def right_at_once(self) -> int:
        """How many were right at the first try."""
        return sum(option in self.questions[number].right for number, option in self.first_tries.items())

    @property
    def wrong(self) -> list[int]:
        """The numbers of the questions that were wrong at the first try."""
        return [number for number, option in self.first_tries.items() if option not in self.questions[number].right]

    def go(self, place: int) -> None:
        """Shows the question at this place; places that there are not are ignored."""
        if 0 <= place < len(self._order):
            self.place = place
            self.quiz.ask(self.questions[self._order[place]])
            self._tell()

    def repeat(self) -> None:
        """Starts again with the questions that were wrong at the first try; with all where none was."""
        wrong = self.wrong
        self._order = wrong or list(range(len(self.questions)))
        self.first_tries = {n: o for n, o in self.first_tries.items() if wrong and n not in wrong}
        self.go(0)

    def _answered(self, change) -> None:
        if change["new"]:
            self.first_tries.setdefault(self._order[self.place], change["new"][0])
            self._tell()

    def _tell(self) -> None:
        self.back.disabled = self.place == 0
        self.next.disabled = self.place == len(self._order) - 1
        self.again.disabled = not self.first_tries
        self.count.value = (
            f"<span>Question {self.place + 1} of {len(self._order)} · right at the first try: "
            f"{self.right_at_once} of {len(self.first_tries)}</span>"
        )

    def text(self) -> str:
        """All questions in words, without the answers."""
        return "\n\n".join(f"{n}. {Quiz(q).text()}" for n, q in enumerate(self.questions, 1))

    def page(self) -> str:
        """HTML that needs no kernel: every question, with its answers folded."""
        return _page(self.questions)

    def __repr__(self) -> str:
        return f"<Drill of {len(self.questions)} questions>"

    def _repr_mimebundle_(self, **kwargs) -> dict:
        found = super()._repr_mimebundle_(**kwargs)
        data = found[0] if isinstance(found, tuple) else found
        return {**(data or {}), "text/plain": self.text(), "text/html": self.page()}


def _button(text: str, tooltip: str, does: Callable[[], None]) -> ipywidgets.Button:
    button = ipywidgets.Button(description=text, tooltip=tooltip, layout=ipywidgets.Layout(width="auto"))
    button.on_click(lambda _: does())
    return button


def _prose(text: str) -> str:
    """Escaped, with `code` as code."""
    parts = html.escape(text, quote=False).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))


def _said(kind: str, reason: str, option: str = "") -> str:
    if not kind:
        return ""
    word = {"right": "✓ Right", "wrong": "✗ Not"}[kind]
    # an alert is read aloud when it appears; a polite region would have to be there, empty, before
    return f'<div role="alert" class="ar-drill-said ar-drill-{kind}"><b>{word}: {_prose(option)}.</b> {_prose(reason)}</div>'


def _page(questions: Sequence[Question]) -> str:
    parts = []
    for number, question in enumerate(questions, 1):
        reasons = "".join(
            f"<li><b>{'✓' if option in question.right else '✗'} {_prose(option)}.</b> {_prose(reason)}</li>"
            for option, reason in question.reasons.items()
        )
        options = " · ".join(map(_prose, question.options))
        parts.append(
            f"<details><summary>{f'{number}. ' if len(questions) > 1 else ''}<b>{_prose(question.text)}</b> "
            f"<br>{options}</summary><ul>{reasons}</ul></details>"
        )
    return f'<div class="ar-drill-page">{"".join(parts)}</div>'

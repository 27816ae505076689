"""Questions that give a reason for every answer at once: a quiz of one question, and a drill of many."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
import traitlets

from allranks.base import record
from allranks.base.errors import CourseError
from allranks.base.record import Did
from allranks.show.widgets.buttons import Keys, Options
from allranks.show.widgets.fallback import with_fallback


class DrillError(CourseError, ValueError):
    """A question that can't be asked: too few options, no right option, an option without a reason."""


@dataclass(frozen=True)
class Question:
    """A question for `Quiz` and `Drill`: its text, and for each option the reason why it is right or wrong.

    `reasons` maps option -> reason; words in backticks are shown as code. `right` is the right option, or a tuple of
    right options. Raises DrillError for fewer than two options, an option without a reason, and a right option that is
    no option.

    Example:
        >>> reasons = {"rank 0": "No: that is reduce.", "all ranks": "Yes."}
        >>> question = Question("Who holds the sum?", reasons, "all ranks")
        >>> question.judge("rank 0")
        (False, 'No: that is reduce.')
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
        """The options, in order."""
        return tuple(self.reasons)

    def judge(self, option: str) -> tuple[bool, str]:
        """(whether this option is right, the reason). Raises DrillError for an option that is not the question's."""
        if option not in self.reasons:
            raise DrillError(f"{option!r} is not an option; there are {', '.join(self.reasons)}")
        return option in self.right, self.reasons[option]


class Quiz(ipywidgets.VBox):
    """A widget: one question as radio buttons. It shows the reason for an option as soon as the reader chooses it.

    The reader may choose again. `tries` lists what was chosen, in order; `solved` becomes True with a right choice.
    Without a kernel the question is shown with its answers folded. Arguments: a `Question`, or a question's text,
    reasons and right option. Raises DrillError as `Question` does.

    Example:
        >>> quiz = Quiz("Who holds the sum?", {"rank 0": "No: that is reduce.", "all ranks": "Yes."}, right="all ranks")
        >>> quiz.solved, quiz.tries
        (False, ())
    """

    solved = traitlets.Bool(False)
    tries = traitlets.Tuple()

    def __init__(
        self,
        question: str | Question,
        reasons: Mapping[str, str] | None = None,
        right: str | tuple[str, ...] = (),
        **box_options: Any,
    ) -> None:
        if not isinstance(question, Question):
            question = Question(question, reasons or {}, right)
        self.question = question
        self._text, self.said, self._keys = ipywidgets.HTML(), ipywidgets.HTML(), Keys()
        super().__init__(**box_options)
        self.add_class("ar-drill")
        self.ask(question)

    def ask(self, question: Question) -> None:
        """Replaces the question by another one, without an answer yet."""
        self.question, self.tries, self.solved = question, (), False
        self._text.value = f"<b>{_prose(question.text)}</b>"
        self.said.value = ""
        # new buttons each time: an old group that gets new options chooses the first of them
        old = getattr(self, "choice", None)
        self.choice = Options(question.options, tooltip=question.text.replace("`", ""))
        self.choice.observe(self._chosen, "value")
        self.children = [self._text, self.choice, self.said, self._keys]
        if old is not None:
            old.close()

    def _chosen(self, change: dict[str, Any]) -> None:
        option = change["new"]
        if option is None:
            return
        right, reason = self.question.judge(option)
        self.tries = (*self.tries, option)
        record.note(Did.ANSWERED, record.name_of(self.question.text))
        self.said.value = _verdict(right, option, reason)
        self.solved = self.solved or right

    def text(self) -> str:
        """The question and its options as plain text, without the answers."""
        return "\n".join([self.question.text, *(f"( ) {option}" for option in self.question.options)])

    def page(self) -> str:
        """HTML that needs no kernel: the question with every answer and its reason, folded."""
        return _page([self.question])

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        return with_fallback(super()._repr_mimebundle_(**kwargs), self.text(), self.page())


class Drill(ipywidgets.VBox):
    """A widget: questions one after another, and a count of those that were right at the first try.

    `place` is the place of the question that is shown, from 0. `first_tries` maps a question's number to the option
    that was chosen first. The button "Again" repeats the questions that were wrong at the first try. Under `name` the
    reader's record keeps that all were answered. Raises DrillError without questions.

    Example:
        >>> drill = Drill(SITUATIONS)
        >>> drill.go(1)
        >>> drill.place, drill.right_at_once
        (1, 0)
    """

    place = traitlets.Int(0)

    def __init__(self, questions: Sequence[Question], name: str = "", **box_options: Any) -> None:
        self.name, self.questions = name, tuple(questions)
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
        self._update_buttons()

    @property
    def right_at_once(self) -> int:
        """How many questions were right at the first try."""
        return sum(option in self.questions[number].right for number, option in self.first_tries.items())

    @property
    def wrong(self) -> list[int]:
        """The numbers of the questions that were wrong at the first try."""
        return [number for number, option in self.first_tries.items() if option not in self.questions[number].right]

    def go(self, place: int) -> None:
        """Shows the question at this place, from 0. Does nothing for a place without a question."""
        if 0 <= place < len(self._order):
            self.place = place
            self.quiz.ask(self.questions[self._order[place]])
            self._update_buttons()

    def repeat(self) -> None:
        """Starts again with the questions that were wrong at the first try, or with all if none was wrong."""
        wrong = self.wrong
        self._order = wrong or list(range(len(self.questions)))
        self.first_tries = {n: o for n, o in self.first_tries.items() if wrong and n not in wrong}
        self.go(0)

    def _answered(self, change: dict[str, Any]) -> None:
        if change["new"]:
            self.first_tries.setdefault(self._order[self.place], change["new"][0])
            if self.name and len(self.first_tries) == len(self.questions):
                record.note(Did.ANSWERED, self.name)
            self._update_buttons()

    def _update_buttons(self) -> None:
        """Enables the buttons that make sense now, and shows the count."""
        self.back.disabled = self.place == 0
        self.next.disabled = self.place == len(self._order) - 1
        self.again.disabled = not self.first_tries
        self.count.value = (
            f"<span>Question {self.place + 1} of {len(self._order)} · right at the first try: "
            f"{self.right_at_once} of {len(self.first_tries)}</span>"
        )

    def text(self) -> str:
        """All questions as plain text, without the answers."""
        return "\n\n".join(f"{n}. {Quiz(q).text()}" for n, q in enumerate(self.questions, 1))

    def page(self) -> str:
        """HTML that needs no kernel: every question with its answers and reasons, folded."""
        return _page(self.questions)

    def __repr__(self) -> str:
        return f"<Drill of {len(self.questions)} questions>"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        return with_fallback(super()._repr_mimebundle_(**kwargs), self.text(), self.page())


def _button(text: str, tooltip: str, action: Callable[[], None]) -> ipywidgets.Button:
    """A button that calls `action` without arguments."""
    button = ipywidgets.Button(description=text, tooltip=tooltip, layout=ipywidgets.Layout(width="auto"))
    button.on_click(lambda _: action())
    return button


def _prose(text: str) -> str:
    """The text as HTML, with what stands in backticks as code."""
    parts = html.escape(text, quote=False).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))


def _verdict(right: bool, option: str, reason: str) -> str:
    """HTML: whether the option is right, and why."""
    kind, word = ("right", "✓ Right") if right else ("wrong", "✗ Not quite")
    # role="alert": screen readers read it aloud when it appears; other roles need an empty element there before
    return (
        f'<div role="alert" class="ar-drill-said ar-drill-{kind}"><b>{word}. {_prose(option)}:</b> '
        f"{_prose(reason)}</div>"
    )


def _page(questions: Sequence[Question]) -> str:
    """HTML: each question with its options; a click unfolds the reasons."""
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

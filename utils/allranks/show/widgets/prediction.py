"""Predict, then see: a question before a cell runs, and the card with which a later cell reveals the answer.

The browser keeps what the reader said: in the notebook's metadata in JupyterLab and Notebook 7, else in its own
storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anywidget
import traitlets

from allranks.base import board, record
from allranks.base.errors import CourseError
from allranks.base.record import Did
from allranks.show.player.offline import LOADER, live_page, packed
from allranks.show.widgets.fallback import with_fallback
from allranks.show.widgets.prediction_words import (
    Value,
    accepted,
    amount,
    is_right,
    it_was,
    options_in_words,
    plain,
    said_in_words,
)

# the questions that this kernel has asked, by name, in the order of the chapter: `predictions` lists them
_ASKED: dict[str, Prediction] = {}
_SKETCH = {"x", "low", "high", "unit", "x_label"}


class PredictionError(CourseError, ValueError):
    """A question that can't be asked, an answer that does not fit it, or a truth of another kind."""


NOTHING_ASKED = "No question was asked in this notebook yet. Run the cells above, and answer what they ask."


class _Card(anywidget.AnyWidget):
    """What the question, its reveal and the list share: one bundle, and the page for readers without a kernel."""

    _esm = LOADER
    code = traitlets.Bytes(packed("allranks.show.widgets", "predict")).tag(sync=True)
    view = traitlets.Unicode().tag(sync=True)
    asked = traitlets.Dict().tag(sync=True)
    said = traitlets.Dict().tag(sync=True)
    truth = traitlets.Dict().tag(sync=True)
    rows: traitlets.List = traitlets.List().tag(sync=True)
    class_said = traitlets.Dict().tag(sync=True)

    def text(self) -> str:
        """The card as plain text."""
        raise NotImplementedError

    def _folded(self) -> str:
        """The card as HTML for places where scripts are removed."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        # a page begins without an answer: this reader's own is in the browser
        state = {"view": self.view, "asked": self.asked, "said": {}, "truth": self.truth, "rows": self.rows}
        page = live_page(state, {"code": self.code}, self._folded())
        return with_fallback(super()._repr_mimebundle_(**kwargs), self.text(), page)


class Prediction(_Card):
    """A question that `predict` made. `value` is what the reader said; `reveal` shows it beside the truth."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__(view="question", asked=asked)
        self.it = ""
        record.note(Did.ASKED, asked["name"])
        _ASKED[asked["name"]] = self

    @traitlets.observe("said")
    def _note(self, change: Any) -> None:
        """The reader's own record, beside the notebooks, has that the question is answered; not what was said."""
        record.note(Did.TOOK_BACK if self.value is None else Did.ANSWERED, self.asked["name"])

    @traitlets.observe("said")
    def _tell_board(self, change: Any) -> None:
        """A workshop board that the reader joined is told the choice."""
        if self.value is not None:
            asked = self.asked
            unit = f" ({asked['unit']})" if asked["kind"] == "number" and asked["unit"] else ""
            choice = self.value if asked["kind"] == "number" else said_in_words(asked, self.value)
            board.tell_choice(asked["name"], plain(asked["title"]) + unit, choice)  # type: ignore[arg-type]  # a number's value is one

    def __repr__(self) -> str:
        return f"<Prediction {self.asked['name']}: {self.value!r}>"

    @property
    def value(self) -> Value | None:
        """The option, the number or the heights that the reader locked in; None: no answer so far."""
        return self.said.get("value")

    def lock_in(self, value: Value) -> None:
        """Answers as the reader would, in a cell: for a page on which widgets don't work, and for tests.

        Raises PredictionError for an option, a number or a curve that this question can't take.

        Example:
            >>> guess = predict("How many messages?", low=0, high=20)
            >>> guess.lock_in(6)
            >>> guess.value
            6
        """
        self.said = {"value": _fitting(self.asked, value)}

    def reveal(
        self,
        truth: Value | Callable[[Any], float],
        why: str = "",
        *,
        within: float | None = None,
        it: str = "",
        label: str = "",
        marks: Mapping[str, float] | None = None,
        picture: str = "",
    ) -> Reveal:
        """The card "Right. You said X; it was Y", or "Not quite.", with a picture. It stays folded until there is an
        answer.

        `truth` is the option, the number, or for a sketch its heights (or a function of x). `why` is one plain sentence
        that is true whatever the reader said. `within` is how far off a right answer may be: a part of the truth on a
        logarithmic slider, else in the number's or the curve's own unit. Without it an option and a count must be
        exact, a logarithmic slider allows a quarter, others a twentieth of their length, and a sketch an eighth of its
        height. `it` says the truth in words (a sketch needs it), `label` names the true curve, `marks` are other places
        on the slider, and `picture` is an SVG document to show instead of the options. Raises PredictionError for a
        truth of another kind than the question.

        Example:
            >>> guess = predict("How many messages does each of four ranks send?", low=0, high=20)
            >>> shown = guess.reveal(6, "Three rounds add; three more hand the sums out.")
            >>> shown
            <Reveal: you didn't say; it was 6>
            >>> guess.lock_in(3)
            >>> shown
            <Reveal: Not quite. You said 3; it was 6>
        """
        asked = self.asked
        if asked["kind"] == "sketch" and callable(truth):
            truth = [float(truth(x)) for x in asked["x"]]
        if asked["kind"] == "choice":  # on another machine the truth may be none of the options
            if not isinstance(truth, str):
                raise PredictionError(f"the truth is {truth!r}; give it as text, as the options are")
        else:
            truth = _fitting(asked, truth)
        if asked["kind"] == "sketch" and not it:
            raise PredictionError('a curve needs its truth in words too, for example it="it levels off, below 2 n"')
        self.it = it or (truth if isinstance(truth, str) else said_in_words(asked, truth))
        shown = {"truth": truth, "it": self.it, "why": why, "label": label, "picture": picture}
        return Reveal(self, shown | {"right": accepted(asked, truth, within), "marks": dict(marks or {})})

    def text(self) -> str:
        """The question and what can be answered, as plain text."""
        return "\n".join([plain(self.asked["question"]), options_in_words(self.asked)])

    def _folded(self) -> str:
        return f"<p><b>{_escaped(self.asked['question'])}</b><br>{_escaped(options_in_words(self.asked))}</p>"


class Reveal(_Card):
    """What `Prediction.reveal` shows: whether the reader was right, what they said, what it was, and why."""

    def __init__(self, question: Prediction, truth: dict[str, Any]) -> None:
        super().__init__(view="reveal", asked=question.asked, said=question.said, truth=truth)
        traitlets.dlink((question, "said"), (self, "said"))
        self._ask_class()
        self.observe(self._ask_class, "said")

    def _ask_class(self, change: Any = None) -> None:
        """Asks the board that the reader joined what the class said, once the reader has answered; does not wait."""
        said = self.said
        if not said:
            return

        def hear(found: dict[str, Any]) -> bool:
            if self.said is said:
                self.class_said = found
            return self.said is said

        board.ask_class(self.asked["name"], hear)

    def __repr__(self) -> str:
        return f"<Reveal: {self._reply()}>"

    def _reply(self) -> str:
        value = self.said.get("value")
        if value is None:
            return f"you didn't say; {self._it()}"
        verdict = "Right." if is_right(self.truth, value) else "Not quite."
        return f"{verdict} You said {said_in_words(self.asked, value)}; {self._it()}"

    def _it(self) -> str:
        return it_was(self.asked, self.truth["it"])

    def text(self) -> str:
        """Whether it was right, what was said, what it was and why, as plain text; then the class, if on a board."""
        return "\n".join(filter(None, [self._reply(), plain(self.truth["why"]), self._class()]))

    def _class(self) -> str:
        bars = self.class_said.get("bars", ())
        return f"the class said: {', '.join(f'{words} ({count})' for words, count in bars)}" if bars else ""

    def _folded(self) -> str:
        """The truth under a line to open, so that it is covered even where no script runs."""
        title, it, why = map(_escaped, (self.asked["title"], self._it(), self.truth["why"]))
        return f"<p><b>{title}</b></p><details><summary>show me</summary><p>{it}</p><p>{why}</p></details>"


class Predictions(_Card):
    """The questions of a chapter with what was said and what it was."""

    def __init__(self, asked: Sequence[Prediction]) -> None:
        self.asked_before = tuple(asked)
        super().__init__(view="list", rows=[{"asked": question.asked, "it": question.it} for question in asked])

    def text(self) -> str:
        """A line for each question, as plain text."""
        if not self.asked_before:
            return NOTHING_ASKED
        lines = []
        for question in self.asked_before:
            value = question.value
            said = "you didn't say" if value is None else f"you said {said_in_words(question.asked, value)}"
            it = it_was(question.asked, question.it) if question.it else "it was not shown yet"
            lines.append(f"{plain(question.asked['title'])}: {said}; {it}")
        return "\n".join(lines)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return super()._repr_mimebundle_(**kwargs) if self.asked_before else {"text/plain": self.text()}

    def _folded(self) -> str:
        titles = "".join(f"<li>{_escaped(question.asked['title'])}</li>" for question in self.asked_before)
        return f"<p><b>What you knew before</b></p><ul>{titles}</ul>"


def predict(
    question: str,
    *,
    choices: Sequence[str] | None = None,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    log: bool = False,
    sketch: Mapping[str, Any] | None = None,
    title: str = "",
    name: str = "",
) -> Prediction:
    """A question to answer before a cell runs: a choice, a number on a slider, or the sketch of a curve. Nothing is
    graded.

    Give `choices` for a choice. Give `low` and `high`, the ends of the slider, for a number; `log=True` makes the
    slider logarithmic, and a number beyond its ends can be typed. Give `sketch` for a curve: a dict with `x` (the
    points), `low` and `high` (the heights), and where they help `unit` and `x_label`. Code stands between backticks.
    `title` is a short form of the question for the card that reveals and for `predictions`. The answer is kept under
    `name`; without one, under the question's own words. Raises PredictionError for a question that nobody could answer.

    Example:
        >>> guess = predict("Who holds the sum afterwards?", choices=["rank 0", "every rank"])
        >>> gigabytes = predict("How many GB does each GPU send?", low=1, high=1000, unit="GB", log=True)
        >>> paper = {"x": [2, 4, 8, 16], "low": 0, "high": 8, "unit": "n"}
        >>> curve = predict("Sketch the bytes from 2 to 16 ranks.", sketch=paper)
        >>> guess.value is None
        True
    """
    if not isinstance(question, str) or not question.strip():
        raise PredictionError(f"the question is {question!r}; give it as text")
    ways = [choices is not None, low is not None or high is not None, sketch is not None]
    if sum(ways) != 1:
        raise PredictionError("give either choices, or low and high, or sketch: a question is answered in one way")
    asked: dict[str, Any] = {"question": question, "title": title or question, "unit": unit}
    asked["name"] = name or record.name_of(question)
    if choices is not None:
        return Prediction(asked | {"kind": "choice", "choices": _options(choices)})
    if sketch is not None:
        return Prediction(asked | {"kind": "sketch"} | _curve(sketch))
    return Prediction(asked | {"kind": "number"} | _slider(low, high, log))


def predictions() -> Predictions:
    """A small card that ends a chapter: each question asked in this notebook so far, what you said, and what it was.

    Where nothing was asked yet it says so.

    Example:
        >>> guess = predict("Who holds the sum?", choices=["rank 0", "every rank"], name="who")
        >>> predictions().text().splitlines()[-1]
        "Who holds the sum?: you didn't say; it was not shown yet"
    """
    return Predictions(list(_ASKED.values()))


def _options(choices: Sequence[str]) -> list[str]:
    if isinstance(choices, str):
        raise PredictionError(f"choices is the text {choices!r}; give a list of texts")
    for option in choices:
        if not isinstance(option, str) or not option.strip():
            raise PredictionError(f"{option!r} can't be offered as an answer; give each option as a text of its own")
    if len(choices) < 2:
        raise PredictionError(f"a choice needs at least two options; there are {len(choices)}")
    if twice := [option for number, option in enumerate(choices) if option in choices[:number]]:
        raise PredictionError(f"the option {twice[0]!r} is there twice; nobody could tell which was meant")
    return list(choices)


def _slider(low: float | None, high: float | None, log: bool) -> dict[str, Any]:
    if low is None or high is None or not low < high:
        raise PredictionError(f"low is {low} and high is {high}; a slider needs two ends, the lower one first")
    if log and low <= 0:
        raise PredictionError(f"low is {low}; a logarithmic slider begins above 0")
    return {"low": low, "high": high, "log": log, "whole": isinstance(low, int) and isinstance(high, int) and not log}


def _curve(sketch: Mapping[str, Any]) -> dict[str, Any]:
    if strange := set(sketch) - _SKETCH:
        raise PredictionError(f"sketch has no {min(strange)!r}; it takes {', '.join(sorted(_SKETCH))}")
    x, low, high = list(sketch.get("x", ())), sketch.get("low", 0), sketch.get("high")
    if len(x) < 2:
        raise PredictionError(f"x has {len(x)} points; a curve needs at least two")
    if high is None or not low < high:
        raise PredictionError(f"low is {low} and high is {high}; a sketch needs two heights, the lower one first")
    names = {"unit": sketch.get("unit", ""), "x_label": sketch.get("x_label", "")}
    return {"x": x, "low": low, "high": high, **names}


def _fitting(asked: dict[str, Any], value: Any) -> Value:
    """The value, if it can answer the question. Raises PredictionError."""
    if asked["kind"] == "choice":
        if value not in asked["choices"]:
            raise PredictionError(f"{value!r} is not an option; there are {', '.join(asked['choices'])}")
        return value
    if asked["kind"] == "number":
        number = amount(value)
        if number is None:
            raise PredictionError(f"{value!r} is not a number")
        return number
    heights = [amount(y) for y in value] if isinstance(value, (list, tuple)) else []
    if None in heights or len(heights) != len(asked["x"]):
        raise PredictionError(f"the curve needs a height for each x; x has {len(asked['x'])} points")
    return [y for y in heights if y is not None]


def _escaped(text: str) -> str:
    from html import escape

    return escape(plain(text)).replace("\n", "<br>")

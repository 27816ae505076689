"""What predictions say in plain text: answers, numbers with their units. The browser's are in js/src/predict/."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context
from typing import Any

Value = str | float | list[float]
_THREE_DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)


def plain(text: str) -> str:
    """The text without the signs for code and bold."""
    return re.sub(r"`([^`]+)`|\*\*([^*]+)\*\*", r"\1\2", text)


def amount(value: Any) -> float | None:
    """A finite number as Python's own (of NumPy and torch too); None where it is none."""
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        return None
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None


def said_in_words(asked: dict[str, Any], value: Value) -> str:
    """An answer to a question in words."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return shape(value, asked["high"] - asked["low"])
    return " ".join(filter(None, [written(value), asked["unit"]]))


def it_was(asked: dict[str, Any], it: str) -> str:
    """The truth in words: an option may be a sentence of its own ("they wait for ever"), a curve's words are one."""
    return plain(it) if asked["kind"] == "sketch" else f"it was{':' if asked['kind'] == 'choice' else ''} {plain(it)}"


def accepted(asked: dict[str, Any], truth: Value, within: float | None) -> Any:
    """What counts as right: the option; the least and the most of a number; these two for each point of a curve.

    `within` is how far off an answer may be (see `Prediction.reveal`). One rule, made here: the browser only compares.
    """
    if isinstance(truth, str):
        return truth
    if isinstance(truth, list):
        far = (asked["high"] - asked["low"]) / 8 if within is None else within
        return [[y - far, y + far] for y in truth]
    if asked["log"]:
        part = 0.25 if within is None else within
        return [truth / (1 + part), truth * (1 + part)]
    if within is None:
        exact = asked["whole"] and truth == round(truth)
        within = 0 if exact else (asked["high"] - asked["low"]) / 20
    return [truth - within, truth + within]


def is_right(truth: dict[str, Any], value: Value) -> bool:
    """Whether an answer lies in what is accepted. The same in js/src/predict/words.js."""
    right = truth["right"]
    if isinstance(value, str):
        return plain(value) == plain(right)
    if isinstance(value, list):
        return all(least <= y <= most for y, (least, most) in zip(value, right, strict=True))
    return right[0] <= value <= right[1]


def written(value: float) -> str:
    """Three digits, with commas: 1,024 and 27.1. Rounded as in the browser, whose scale shows the same number.

    >>> written(1024), written(27.14), written(12.25)
    ('1,024', '27.1', '12.3')
    """
    if abs(value) < 1000:
        value = float(_THREE_DIGITS.create_decimal_from_float(float(value)))
    if abs(value) >= 1000:
        return f"{math.floor(value + 0.5):,}"  # as the browser rounds
    return f"{value:.3g}"


def shape(ys: Sequence[float], whole: float) -> str:
    """A curve in words; `whole` is the height of its picture. The same in js/src/predict/words.js."""
    first, last, middle = ys[0], ys[-1], ys[(len(ys) - 1) // 2]
    rise = last - first
    if max(ys) - max(first, last) > 0.2 * whole:
        return "it rises, then falls"
    if min(first, last) - min(ys) > 0.2 * whole:
        return "it falls, then rises"
    if abs(rise) < 0.08 * whole:
        return "it stays level"
    levels = ", then levels off" if abs(last - middle) < 0.2 * abs(rise) else ""
    return f"it {'grows' if rise > 0 else 'falls'}{levels}"


def options_in_words(asked: dict[str, Any]) -> str:
    """What can be answered, for a place where nothing can be pressed."""
    if asked["kind"] == "choice":
        return "\n".join(f"( ) {plain(option)}" for option in asked["choices"])
    if asked["kind"] == "number":
        return f"a number{' of ' if asked['unit'] else ''}{asked['unit']}: ______"
    return f"a curve from {asked['x'][0]} to {asked['x'][-1]}"

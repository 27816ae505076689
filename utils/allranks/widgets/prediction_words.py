"""What predictions say in plain text: answers in words, numbers with their units. The browser's are in js/src/predict/."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

Value = str | float | list[float]


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


def written(value: float) -> str:
    """Three digits, with commas: 1,024 and 27.1."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
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

"""The exercises: one file each, found by the function's name, and `check`, the instant verdict.

    from allranks import check
    check(ring_all_reduce)

Imports without torch; an exercise is loaded when it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import os
import pkgutil
import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from allranks import board
from allranks.errors import CourseError

if TYPE_CHECKING:
    from allranks.checking.exercise import Exercise
    from allranks.checking.verdict import Verdict


class ExerciseError(CourseError):
    """There is no such exercise, or what was given is not a function."""


GROUP = "allranks.exercises"  # of entry points, by which other packages offer exercises


def names() -> list[str]:
    """The names of all exercises, those of other packages too."""
    return sorted({*_own(), *(point.name for point in elsewhere())})


def _own() -> list[str]:
    return [m.name for m in pkgutil.iter_modules(__path__) if not m.ispkg]


def elsewhere() -> list[importlib.metadata.EntryPoint]:
    """What other packages offer; the course's own exercises can't be replaced."""
    own = set(_own())
    return [point for point in importlib.metadata.entry_points(group=GROUP) if point.name not in own]


def get(name: str) -> Exercise:
    """The exercise of that name. Raises ExerciseError if there is none; its message has the nearest name."""
    if name in _own():  # before the packages are asked, which takes 30 ms
        return importlib.import_module(f"{__name__}.{name}").EXERCISE
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
        raise ExerciseError(f"There is no exercise {name!r}. {hint}")
    point = next(point for point in elsewhere() if point.name == name)
    try:
        found = point.load()
    except Exception as error:  # another package's code
        raise ExerciseError(
            f"The exercise {name} of {point.value} can't be loaded ({type(error).__name__}: {error})."
        ) from None
    if getattr(found, "name", None) != name:
        raise ExerciseError(
            f"{point.value} is no exercise of the name {name}: its entry point must lead to the EXERCISE."
        )
    return found


def check(function: Callable, exercise: str | None = None, **options: Any) -> Verdict:
    """The verdict on a function: which cases pass, and the cause if one does not.

    The exercise is found by the function's name unless `exercise` names it. The function runs in forked ranks, never in
    this process. With `rules="nccl"` it is the verdict under NCCL's rules: would this run on GPUs? `options` are those of
    `allranks.checking.judging.judge`. Raises ExerciseError if there is no such exercise, RulesError if there are no such rules.

    The Verdict has `passed`, `score` (0 to 1) and `text()`; a notebook shows it as a card.

    Example (needs ranks):
        >>> def ring_shift(tensor):
        ...     return tensor
        >>> check(ring_shift).passed
        False
    """
    if not callable(function):
        raise ExerciseError(
            f"check takes the function itself, such as check(ring_all_reduce); this is a {type(function).__name__}."
        )
    name = exercise or getattr(function, "__name__", "")
    if not exercise and name not in names() and not difflib.get_close_matches(name, names(), n=1):
        what = "A lambda" if name == "<lambda>" else f"An object of type {type(function).__name__}"
        why = f"{what} has no name" if name in ("", "<lambda>") else f"There is no exercise {name!r}"
        raise ExerciseError(f'{why}: name the exercise, check(fn, exercise="ring_all_reduce").')
    from allranks.checking.judging import judge

    verdict = judge(get(name), function, **options)
    if os.environ.get("NBGRADER_VALIDATING") == "1" and not verdict.passed:
        # `nbgrader validate` shows what a graded cell writes here, in place of "Partial credit", and cuts longer lines
        lines = (textwrap.fill(line, _VALIDATE_WIDTH, subsequent_indent="  ") for line in verdict.text().splitlines())
        print("\n".join(lines), file=sys.stderr)
    board.tell(verdict.exercise, verdict.passed, verdict.mistake)
    return _noted(verdict)


_VALIDATE_WIDTH = 82
_LAST = 3
_checks: dict[str, deque[tuple[str, Verdict]]] = {}  # what this process has said of each exercise, and when


def _noted(verdict: Verdict) -> Verdict:
    """The verdict with the last ones on the same exercise, of this notebook."""
    history = _checks.setdefault(verdict.exercise, deque(maxlen=_LAST))
    history.append((time.strftime("%H:%M"), replace(verdict, trace=None, expected=None)))  # without what is large
    # the cause of this one is folded on the card: an equal one before it must not tell
    told = tuple((at, one.brief(cause=one.code != verdict.code)) for at, one in history)
    return replace(verdict, history=told)

"""The exercises: one file each, found by the function's name, and `check`, the instant verdict.

    from allranks import check
    check(ring_all_reduce)

Imports without torch; an exercise is loaded when it is asked for.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.base import record, variants
from allranks.base.errors import CourseError
from allranks.base.record import Did
from allranks.base.variants import VariantError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from allranks.judge.exercise import Exercise
    from allranks.judge.verdict import Verdict


class ExerciseError(CourseError):
    """There is no such exercise, or what was given is not a function."""


GROUP = "allranks.exercises"  # of entry points, by which other packages offer exercises


def names() -> list[str]:
    """The names of all exercises, those of other packages too."""
    return sorted({*_own(), *(point.name for point in elsewhere())})


def exists(name: str) -> bool:
    """Whether there is an exercise of that name."""
    return name in _own() or name in names()  # to look through all packages takes time


def _own() -> list[str]:
    return [m.name for m in pkgutil.iter_modules(__path__) if not m.ispkg]


def elsewhere() -> list[EntryPoint]:
    """What other packages offer; the course's own exercises can't be replaced."""
    from importlib.metadata import entry_points  # takes time to import, and is not needed for the course's own

    own = set(_own())
    return [point for point in entry_points(group=GROUP) if point.name not in own]


def _nearest(name: str, known: list[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def get(name: str) -> Exercise:
    """The exercise of that name. Raises ExerciseError if there is none; its message has the nearest name."""
    if name in _own():
        return importlib.import_module(f"{__name__}.{name}").EXERCISE
    known = names()
    if name not in known:
        near = _nearest(name, known)
        hint = f"Did you mean {near}?" if near else f"There are: {', '.join(known)}."
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
    `allranks.judge.judging.judge`. In a course that gives each student a variant it is the verdict on that (see `as_student`).
    Raises ExerciseError if there is no such exercise, RulesError if there are no such rules, VariantError if the student is unknown.

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
    if not exercise and name not in names() and not _nearest(name, names()):
        what = "A lambda" if name == "<lambda>" else f"An object of type {type(function).__name__}"
        why = f"{what} has no name" if name in ("", "<lambda>") else f"There is no exercise {name!r}"
        raise ExerciseError(f'{why}: name the exercise, check(fn, exercise="ring_all_reduce").')
    from allranks.judge.judging import judge

    verdict = judge(theirs(get(name)), function, **options)
    if os.environ.get("NBGRADER_VALIDATING") == "1" and not verdict.passed:
        # `nbgrader validate` shows what a graded cell writes here, in place of "Partial credit", and cuts longer lines
        lines = (textwrap.fill(line, _VALIDATE_WIDTH, subsequent_indent="  ") for line in verdict.text().splitlines())
        print("\n".join(lines), file=sys.stderr)
    from allranks.base import board

    board.tell(verdict.exercise, verdict.passed, verdict.mistake)
    properties = {name: all(case.passed for case in cases) for name, cases in verdict.groups.items()}
    record.note(Did.CHECKED, verdict.exercise, passed=verdict.passed, properties=properties)
    return _noted(verdict)


def as_student(name: str = "") -> str:
    """Says whose variants `check` judges in this notebook, and returns what they are, in sentences.

    Only a course that gives variants needs it: there `variants.json` lies beside the notebook. `name` is the one by which the course
    knows the student. Without it: the environment variable `ALLRANKS_STUDENT`, or the account on a JupyterHub, which `check` finds
    by itself. Raises VariantError for no name.

    Example:
        >>> as_student("ada")
        'This course has no variants here: everybody has the same exercises.'
    """
    if name:
        _student["name"] = variants.name_of(name)
    who = _whose()
    key = variants.key_of(Path.cwd())
    if key is None:
        return "This course has no variants here: everybody has the same exercises."
    if who is None:
        raise VariantError(_UNKNOWN)
    from allranks.judge.variants import of_student

    found = [of_student(get(one), key, who) for one in _asked_for(Path.cwd())]
    told = [f"{e.name}: {e.variant.words}" for e in found if e.variant is not None]
    return "\n".join([f"You are {who}.", *told])


def theirs(exercise: Exercise, folder: Path | None = None, student: str | None = None) -> Exercise:
    """The exercise as the student has it who works in `folder` (the current one): with a variant, where the course gives variants.

    Raises VariantError if there are variants and the student is unknown.
    """
    if exercise.variants is None:
        return exercise
    key = variants.key_of(folder or Path.cwd())
    if key is None:
        return exercise
    who = student or _whose()
    if who is None:
        raise VariantError(_UNKNOWN)
    from allranks.judge.variants import of_student

    return of_student(exercise, key, who)


def _whose() -> str | None:
    return _student.get("name") or variants.account()


def _asked_for(folder: Path) -> list[str]:
    """The exercises with variants that the notebooks in a folder name."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.ipynb"))]
    own = [name for name in names() if any(f"def {name}(" in text for text in texts)]
    return [name for name in own if get(name).variants is not None]


_student: dict[str, str] = {}  # whom `as_student` named, in this process
_UNKNOWN = (
    "This course gives each student a variant of this exercise: say who you are first, "
    'from allranks import as_student; as_student("YOUR NAME IN THE COURSE").'
)
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

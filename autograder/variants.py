"""Variants of a lab, for a course: switched on and off, and what the other commands must know of them.

`allranks course variants LAB` is the command. What is drawn is in `allranks.judge.variants`; here are the course's secret and files.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from allranks import exercises
from allranks.base import variants
from allranks.base.errors import CourseError
from allranks.judge.exercise import YOUR_VARIANT
from allranks.judge.variants import of_student

from autograder.classroom import NoClass, overview_of
from autograder.folder import config_of, directory_of
from autograder.judge import JudgeError
from autograder.trusted import TrustedStep, exercises_in, variants_key


class NoVariants(CourseError):
    """The lab can't have variants; the message is one sentence."""


def switch_on(course: Path, lab: str) -> list[str]:
    """Gives each student a variant of the lab from now on; returns the exercises that have one. Raises NoVariants."""
    names = [name for name in asked_for(course, lab) if exercises.get(name).variants is not None]
    if not names:
        known = [name for name in exercises.names() if exercises.get(name).variants is not None]
        raise NoVariants(f"No exercise of {lab} has variants; these have: {', '.join(known)}.")
    config = config_of(course)
    try:
        secret = TrustedStep(config=config).secret(course)
        variants.write(course, lab, secret)
    except JudgeError as error:
        raise NoVariants(str(error)) from None
    except OSError as error:
        raise NoVariants(f"{error.filename} can't be written ({error.strerror}).") from None
    return names


def asked_for(course: Path, lab: str) -> list[str]:
    """The exercises of a lab, in its order."""
    found = []
    for path in sorted((course / "solutions" / lab).glob("*.ipynb")):
        found += [about["exercise"] for about in exercises_in(nbformat.read(path, as_version=4)).values()]
    return found


def of_students(course: Path, lab: str, students: list[str]) -> dict[str, dict[str, str]]:
    """What was drawn for each student: exercise -> a few words; {} for a lab without variants."""
    key = variants_key(directory_of(course), lab)
    if key is None:
        return {}
    drawn: dict[str, dict[str, str]] = {student: {} for student in students}
    for name in asked_for(course, lab):
        for student in students:
            if (variant := of_student(exercises.get(name), key, student).variant) is not None:
                drawn[student][name] = variant.brief
    return drawn


def beside(course: Path, lab: str, students: list[str]) -> dict[str, str]:
    """For each student, in words, what was drawn and which of it the graded answer does not do; {} for a lab without variants."""
    drawn = of_students(course, lab, students)
    try:
        found = overview_of(directory_of(course), lab) if drawn else None
    except NoClass:
        found = None
    told = {}
    for student, theirs in drawn.items():
        row = next((row for row in found.rows if row.student == student), None) if found is not None else None
        words = []
        for name, brief in theirs.items():
            part = next((part for part in found.parts if part.name == name), None) if found is not None else None
            mark = row.marks.get(part.cell) if row is not None and part is not None else None
            broken = mark is not None and any(group.startswith(YOUR_VARIANT) for group, _ in mark.failed)
            words.append(f"{name}: {brief}{', and the answer does not do that' if broken else ''}")
        told[student] = "; ".join(words)
    return told

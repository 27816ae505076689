"""The class on the story's map, over all labs: which idea who has not proved yet, since when, and by which cause.

An idea is a chapter of the course; the exercises that prove it are those that the map counts for it (`allranks.course.contents`). What a
student proved or missed is read from the gradebook and the graded notebooks, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from allranks.base import course_files as files
from allranks.base.chapters import parts
from allranks.course.contents import contents
from nbgrader.api import Gradebook

from autograder.classroom import NoClass, Overview, overview_of
from autograder.folder import directory_of, has_gradebook
from autograder.pages import page
from autograder.rows import printable
from autograder.sections import only


@dataclass(frozen=True)
class Gap:
    """A student who did not get all points of an exercise: the cause, and when the work came; `since` is "" where nobody knows."""

    student: str
    exercise: str
    lab: str
    cause: str
    since: str


@dataclass(frozen=True)
class Idea:
    """One chapter of the story, or a lab that belongs to none. `proved` students of those who `tried` have all points of its exercises."""

    number: str
    title: str
    part: str
    core: bool
    exercises: tuple[str, ...]
    tried: tuple[str, ...]
    proved: tuple[str, ...]
    gaps: tuple[Gap, ...]

    @property
    def share(self) -> float:
        """The share of those who tried that proved it."""
        return len(self.proved) / len(self.tried) if self.tried else 0.0

    @property
    def causes(self) -> list[tuple[str, tuple[Gap, ...]]]:
        """The gaps by exercise and cause, the commonest first."""
        found: dict[str, list[Gap]] = {}
        for gap in self.gaps:
            found.setdefault(f"{gap.exercise}: {gap.cause}", []).append(gap)
        return sorted(((name, tuple(gaps)) for name, gaps in found.items()), key=lambda one: -len(one[1]))


@dataclass(frozen=True)
class Habit:
    """A cause that one student has in more than one exercise."""

    student: str
    cause: str
    exercises: tuple[str, ...]
    since: str


@dataclass(frozen=True)
class Mastery:
    """A class over all graded labs: the ideas in the order of the story, and mistakes that come again."""

    labs: tuple[str, ...]
    students: int
    ideas: tuple[Idea, ...]
    habits: tuple[Habit, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON that `allranks class --json` prints."""
        return {
            "labs": list(self.labs),
            "students": self.students,
            "ideas": [asdict(idea) for idea in self.ideas],
            "habits": [asdict(habit) for habit in self.habits],
        }


def mastery(course: Path, students: frozenset[str] | None = None) -> Mastery:
    """The map of a course's class, or of these of its students. Raises NoClass if no lab is graded yet."""
    about = directory_of(course)
    labs: list[str] = []
    if has_gradebook(about):
        with Gradebook(about.db_url, about.course_id) as gradebook:
            labs = sorted(lab.name for lab in gradebook.assignments if lab.notebooks)
    seen = [found for lab in labs if (found := only(overview_of(about, lab), students)).graded]
    if not seen:
        raise NoClass("No lab is graded yet: type `allranks grade LAB` first.")
    gaps, tried = _gaps(seen)
    there = {row.student for found in seen for row in found.rows}
    return Mastery(tuple(o.lab for o in seen), len(there), tuple(_ideas(seen, gaps, tried)), tuple(_habits(seen)))


def _gaps(seen: Iterable[Overview]) -> tuple[list[Gap], dict[str, set[str]]]:
    """Who misses what, the oldest first; and by exercise, who tried it."""
    gaps: list[Gap] = []
    tried: dict[str, set[str]] = {}
    for found in seen:
        for row in found.graded:
            for part in found.parts:
                mark = row.marks.get(part.cell)
                if part.in_words or mark is None or mark.score is None:
                    continue
                tried.setdefault(part.name, set()).add(row.student)
                if mark.score < part.points:
                    gaps.append(
                        Gap(row.student, part.name, found.lab, mark.mistake or "no cause was kept", row.handed_in or "")
                    )
    return sorted(gaps, key=lambda gap: (gap.since or "9", gap.lab, gap.student)), tried


def _ideas(seen: list[Overview], gaps: list[Gap], tried: dict[str, set[str]]) -> Iterable[Idea]:
    """The ideas that somebody tried, in the order of the story; then labs with exercises that no chapter has."""
    root = files.given()
    held = contents(root) if root is not None else {}
    left = {part.name for found in seen for part in found.parts if not part.in_words}
    for part in parts():
        for chapter in part.chapters:
            names = tuple(item.name for item in held[chapter.number].checks if item.name in left) if held else ()
            left -= set(names)
            if any(tried.get(name) for name in names):
                yield _idea((chapter.number, chapter.title, part.title, chapter.core), names, gaps, tried)
    for found in seen:
        if names := tuple(one.name for one in found.parts if one.name in left and tried.get(one.name)):
            yield _idea(("", found.lab, "Labs of this course", False), names, gaps, tried)


def _idea(
    about: tuple[str, str, str, bool], names: tuple[str, ...], gaps: list[Gap], tried: dict[str, set[str]]
) -> Idea:
    theirs = tuple(gap for gap in gaps if gap.exercise in names)
    everybody = set().union(*(tried.get(name, set()) for name in names))
    missing = {gap.student for gap in theirs}
    return Idea(*about, names, tuple(sorted(everybody)), tuple(sorted(everybody - missing)), theirs)


def _habits(seen: list[Overview]) -> list[Habit]:
    """The causes that a student has in more than one exercise, those with most exercises first."""
    made: dict[tuple[str, tuple[str, ...]], list[tuple[str, str, str]]] = {}
    for found in seen:
        for row in found.graded:
            for part in found.parts:
                mark = row.marks.get(part.cell)
                if mark is not None and mark.mistake and mark.code:
                    made.setdefault((row.student, mark.code), []).append((row.handed_in or "", part.name, mark.mistake))
    habits = []
    for (student, _), times in made.items():
        names = tuple(dict.fromkeys(name for _, name, _ in sorted(times)))
        if len(names) > 1:
            habits.append(Habit(student, times[0][2], names, min(times)[0]))
    return sorted(habits, key=lambda habit: (-len(habit.exercises), habit.cause, habit.student))


# ------------------------------------------------------------------------------------------------------------ shown


def day(since: str) -> str:
    """A day, or that nobody knows.

    >>> day("2026-11-02T12:00:00+00:00"), day("")
    ('2026-11-02', 'a time that was not kept')
    """
    return since[:10] or "a time that was not kept"


def as_text(found: Mastery) -> str:
    """The map for a terminal: a line for each idea, and below it who misses it, why, since when."""
    lines = [f"{len(found.labs)} labs, {found.students} students."]
    part = ""
    for idea in found.ideas:
        if idea.part != part:
            part = idea.part
            lines += ["", part]
        lines.append(f"{len(idea.proved):>4} of {len(idea.tried)} proved  {idea.number} {idea.title}".rstrip())
        for name, gaps in idea.causes:
            who = ", ".join(f"{gap.student} (since {day(gap.since)})" for gap in gaps)
            lines.append(f"        {name}: {printable(who)}")
    if found.habits:
        lines += ["", "The same mistake again"]
        lines += [
            printable(f"  {h.student}: {h.cause} ({', '.join(h.exercises)}), since {day(h.since)}")
            for h in found.habits
        ]
    return "\n".join(lines)


def as_html(found: Mastery) -> str:
    """The map as one page that loads nothing: the parts of the story, a tile for each idea, and in it who and why."""
    by_part: dict[str, list[Idea]] = {}
    for idea in found.ideas:
        by_part.setdefault(idea.part, []).append(idea)
    return page("mastery.html.j2", filters={"day": day}, found=found, by_part=by_part)

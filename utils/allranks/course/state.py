"""Where a reader stands in the course: what is proved, where the reader is, what comes next, how long it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from allranks.base import course_files as files
from allranks.base import record
from allranks.base.chapters import Chapter, after, chapters, core
from allranks.base.record import Checked, Did, Record
from allranks.course.contents import Contents, Item, contents

ROUND = 5  # minutes: what is left of a chapter is no more exact than that


@dataclass(frozen=True)
class Progress:
    """One chapter and what the reader did in it. `reached` is how far into it, from 0 to 1; `seen` whether anything was done in it."""

    chapter: Chapter
    contents: Contents
    answered: frozenset[str] = frozenset()
    checked: Mapping[str, Checked] = field(default_factory=dict)
    ended: bool = False
    reached: float = 0.0
    seen: bool = False

    @property
    def proved(self) -> int:
        """How many of its checks passed."""
        return sum(self.passed(item) for item in self.contents.checks)

    @property
    def predicted(self) -> int:
        """How many of its predictions and quizzes were answered."""
        return sum(item.name in self.answered for item in self.contents.questions)

    @property
    def minutes_left(self) -> int:
        """What is left to read and do, rounded up to five minutes; 0 once the chapter was ended."""
        if self.ended:
            return 0
        left = self.contents.minutes * (1 - self.reached)
        return min(self.contents.minutes, -int(-left // ROUND) * ROUND)

    def passed(self, item: Item) -> bool:
        """Whether this check passed."""
        found = self.checked.get(item.name)
        return found is not None and found.passed

    def missing(self, item: Item) -> tuple[str, ...]:
        """The properties of a check that did not hold at the last try; empty before the first try and after it passed."""
        found = self.checked.get(item.name)
        return (
            () if found is None or found.passed else tuple(name for name, held in found.properties.items() if not held)
        )


@dataclass(frozen=True)
class State:
    """Where a reader stands. `here` is the chapter of the last deed, None for a reader who did nothing yet.

    `furthest` is the place in the core (0: Start here) up to which the reader came.
    """

    chapters: tuple[Progress, ...]
    here: Chapter | None = None
    furthest: int = 0

    def __getitem__(self, number: str) -> Progress:
        """The progress in a chapter, by its number. Raises KeyError."""
        for progress in self.chapters:
            if progress.chapter.number == number:
                return progress
        raise KeyError(number)

    @property
    def core(self) -> tuple[Progress, ...]:
        """The chapters of the core, in order."""
        return tuple(progress for progress in self.chapters if progress.chapter.core)

    @property
    def go_on(self) -> Chapter | None:
        """Where the reader goes on: the chapter begun last, or what follows it if it was ended; None when the core is done."""
        at: Chapter | None = self.here or core()[0]
        while at is not None and self[at.number].ended:
            at = after(at)
        return at

    @property
    def next(self) -> Chapter | None:
        """The chapter that comes after the one in which the reader goes on; None if there is none."""
        return None if self.go_on is None else after(self.go_on)

    @property
    def minutes_left(self) -> int:
        """What is left of the core: what lies ahead, and what was skipped."""
        ahead = enumerate(self.core)
        return sum(p.minutes_left for place, p in ahead if place >= self.furthest or not p.seen)

    @property
    def minutes(self) -> int:
        """What the whole core takes."""
        return sum(progress.contents.minutes for progress in self.core)


def state(folder: Path | None) -> State:
    """The state of the reader whose notebooks are in `folder`; without one, that of a reader who did nothing yet.

    What chapters hold is read off the course's own notebooks, since those of `folder` may be older or changed.
    """
    source = files.given() or folder
    if source is None:
        raise FileNotFoundError("this installation of allranks has no notebooks")
    about = contents(source)
    if folder is None:
        return _state(about, Record(), {})
    saved = {chapter.number: record.saved_answers(folder / chapter.path) for chapter in chapters()}
    return _state(about, record.read(folder), saved)


def _state(about: Mapping[str, Contents], did: Record, saved: Mapping[str, Collection[str]]) -> State:
    found = []
    asked = {name for what, name in did.order if what is Did.ASKED}
    everywhere = Counter(name for holds in about.values() for name, _ in holds.places)
    for chapter in chapters():
        holds = about[chapter.number]
        answered = ((set(saved.get(chapter.number, ())) - did.taken_back) | did.answered) & {
            q.name for q in holds.questions
        }
        checked = {item.name: did.checks[item.name] for item in holds.checks if item.name in did.checks}
        ended = chapter.number in did.ended
        # an exercise that another chapter checks too does not say that the reader was here
        here = answered | {
            name for name, _ in holds.places if name in asked or (name in checked and everywhere[name] == 1)
        }
        reached = max((place for name, place in holds.places if here and name in here | set(checked)), default=0.0)
        seen = ended or bool(here)
        found.append(Progress(chapter, holds, frozenset(answered), checked, ended, 1.0 if ended else reached, seen))
    walked = [place for place, progress in enumerate(p for p in found if p.chapter.core) if progress.seen]
    return State(tuple(found), _here(found, did), max(walked, default=0))


def _here(found: list[Progress], did: Record) -> Chapter | None:
    """The chapter of the last deed; a check that several chapters have belongs to the one in which the reader is already."""
    here: Chapter | None = None
    for what, name in did.order:
        if what is Did.ENDED:
            here = next((p.chapter for p in found if p.chapter.number == name), here)
            continue
        of = [p.chapter for p in found if name in {item.name for item in (*p.contents.checks, *p.contents.questions)}]
        if of and here not in of:
            here = of[0]
    if here is None:  # answers of a time without a record
        here = next((p.chapter for p in reversed(found) if p.answered), None)
    return here

"""Where a reader stands in the course: what is proved, where the reader is, what comes next, how long it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from allranks.base import course_files as files
from allranks.base import record
from allranks.base.chapters import Chapter, after, chapters, core
from allranks.base.record import Checked, Did, Record
from allranks.course.contents import Contents, Item, contents

ROUND = 5  # minutes: what is left of a chapter is no more exact than that


@dataclass(frozen=True)
class Progress:
    """One chapter and what the reader did in it. `read` is the share of it, from 0 to 1, that is read and done; `seen` whether anything was."""

    chapter: Chapter
    contents: Contents
    answered: frozenset[str] = frozenset()
    checked: Mapping[str, Checked] = field(default_factory=dict)
    ended: bool = False
    read: float = 0.0
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
    def walked(self) -> bool:
        """Whether something of it is proved: a check passed, or where it has none, a question answered. To open it is not enough,
        and neither is a check that passed in another chapter."""
        if not self.seen:
            return False
        if self.contents.checks:
            return self.proved > 0
        return self.predicted > 0 if self.contents.questions else self.ended

    @property
    def finished(self) -> bool:
        """Whether its end was reached and all its checks passed."""
        return self.ended and self.walked and self.proved == len(self.contents.checks)

    @property
    def minutes_left(self) -> int:
        """What is left to read and do, rounded up to five minutes."""
        left = round(self.contents.minutes * (1 - self.read), 6)
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
    """Where a reader stands. `here` is the chapter of the last deed, None for a reader who did nothing yet."""

    chapters: tuple[Progress, ...]
    here: Chapter | None = None

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
        """Where the reader goes on: the chapter begun last, or if it was ended what follows it, without what is ended and walked.

        After the last chapter that is the first one of the core that was not ended; None when the core is done.
        """
        at = self.here or core()[0]
        found = self._onward(at) if self[at.number].ended else at
        return found or next((p.chapter for p in self.core if not p.ended), None)

    def _onward(self, chapter: Chapter) -> Chapter | None:
        """What follows a chapter on the core; of what follows, chapters that were ended are left out only if something of them is proved."""
        at = after(chapter)
        while at is not None and self[at.number].ended and self[at.number].walked:
            at = after(at)
        return at

    @property
    def next(self) -> Chapter | None:
        """What comes next on the map: where the reader goes on, or if the reader is there already, what follows; None if nothing does."""
        at = self.go_on
        return after(at) if at is not None and at == (self.here or core()[0]) else at

    @property
    def walked(self) -> tuple[bool, ...]:
        """Of each piece of the line, from one chapter of the core to the following, whether the reader walked it: proved something, and went on."""
        return tuple(a.walked and (a.ended or b.seen) for a, b in pairwise(self.core))

    @property
    def minutes_left(self) -> int:
        """What is left of the core: the sum over its chapters."""
        return sum(progress.minutes_left for progress in self.core)

    @property
    def minutes(self) -> int:
        """What the whole core takes: the sum of what its notebooks say."""
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
        passed = {name for name, verdict in checked.items() if verdict.passed}
        read = _read(holds, (asked | answered | passed) if here else set(), ended)
        found.append(Progress(chapter, holds, frozenset(answered), checked, ended, read, ended or bool(here)))
    return State(tuple(found), _here(found, did))


def _read(holds: Contents, done: Collection[str], ended: bool) -> float:
    """The share of a chapter that is read: the text that leads to each question that was asked and each check that passed.

    The text after the last of them is read where the chapter was ended. To end a chapter does not read what was skipped.
    """
    share = before = 0.0
    for name, place in holds.places:
        share += place - before if name in done else 0.0
        before = place
    return share + (1 - before if ended else 0.0)


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

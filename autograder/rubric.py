"""Rubric items of the answers in words, and who gave which mark: two tables of ours in nbgrader's gradebook.

An item has a name, points and a comment. A mark is the points that a person gave, plus those of its items, at least 0 and at most the
question's. nbgrader's own tables hold the sum and the words, so formgrader, feedback and exports know nothing of items. Each mark is a
new row here: the last one of a student holds, and those before it are its history. Where nbgrader's tables say something else, the mark
was given elsewhere since, as in formgrader: that one holds, and it has no items.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from allranks.base.errors import CourseError
from nbgrader.api import Gradebook, MissingEntry
from sqlalchemy import (
    Column,
    Float,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    delete,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateTable

MAX_NAME_CHARACTERS = 80
MAX_COMMENT_CHARACTERS = 5000

_ours = MetaData()
_PLACE = ("lab", "notebook", "cell")
_ITEMS = Table(
    "allranks_item",
    _ours,
    Column("number", Integer, primary_key=True),
    *(Column(name, Text, nullable=False) for name in (*_PLACE, "name")),
    Column("points", Float, nullable=False),
    Column("comment", Text, nullable=False),
    UniqueConstraint(*_PLACE, "name"),
    sqlite_autoincrement=True,  # the history names items that are gone: no number is used twice
)
_MARKS = Table(
    "allranks_mark",
    _ours,
    Column("number", Integer, primary_key=True),
    *(
        Column(name, Text, nullable=False)
        for name in (*_PLACE, "student", "who", "at", "why", "items", "comment", "said")
    ),
    Column("points", Float),
    Column("score", Float),
)


class RubricError(CourseError):
    """Nothing was changed; the message is one sentence that says why."""


@dataclass(frozen=True)
class Place:
    """A question of a lab: its cell, and its points."""

    lab: str
    notebook: str
    cell: str
    most: float

    @property
    def key(self) -> dict[str, str]:
        """What names it in the tables."""
        return {"lab": self.lab, "notebook": self.notebook, "cell": self.cell}


@dataclass(frozen=True)
class Item:
    """One remark and its points, which may be below 0. `told` is what a student reads of it."""

    number: int
    name: str
    points: float
    comment: str = ""

    @property
    def told(self) -> str:
        """The comment, or the name if there is none, with the points.

        >>> Item(1, "unit", -0.5, "The unit is missing.").told
        'The unit is missing. (-0.5)'
        """
        return f"{self.comment or self.name}{f' ({self.points:+g})' if self.points else ''}"


@dataclass(frozen=True)
class Given:
    """What one student has for one answer. `points` and `comment` are what a person gave beside the `items`; `score` is None while it waits.

    `who` gave it is "" where that is not known. `seen` names this state: another state of the mark has another one.
    """

    points: float | None
    items: tuple[int, ...]
    comment: str
    score: float | None
    who: str
    seen: str


@dataclass(frozen=True)
class Change:
    """One student's points for one answer, before and after."""

    student: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class Changed:
    """What a change of an item did: the item then (None if it was removed), whose mark it changed, and who was left out.

    `changes` has everybody whose mark was made with it, also who has the same points after. `left` were marked elsewhere since.
    """

    item: Item | None
    changes: tuple[Change, ...] = ()
    left: tuple[str, ...] = ()


def score_of(points: float | None, items: Iterable[Item], most: float) -> float | None:
    """The points of a mark; None if nothing was given.

    >>> score_of(2, [Item(1, "unit", -0.5)], most=2), score_of(None, [], most=2)
    (1.5, None)
    """
    items = tuple(items)
    if points is None and not items:
        return None
    return round(min(most, max(0.0, (points or 0.0) + sum(item.points for item in items))), 4)


def words_of(items: Iterable[Item], comment: str) -> str:
    """What the student reads: each item's words, then the comment, as paragraphs of Markdown."""
    return "\n\n".join(filter(None, (*(item.told for item in items), comment)))


# ------------------------------------------------------------------------------------------------------------- reading


class Rubric:
    """The items of a lab and the last mark of everybody, as an open gradebook has them now. It reads, and makes no table."""

    def __init__(self, gradebook: Gradebook, lab: str) -> None:
        self._gradebook = gradebook
        self.items: dict[tuple[str, str], list[Item]] = {}
        self._last: dict[tuple[str, str, str], dict] = {}
        if not _there(gradebook):
            return
        for row in gradebook.db.execute(select(_ITEMS).where(_ITEMS.c.lab == lab).order_by(_ITEMS.c.number)).mappings():
            item = Item(row["number"], row["name"], row["points"], row["comment"])
            self.items.setdefault((row["notebook"], row["cell"]), []).append(item)
        for row in gradebook.db.execute(select(_MARKS).where(_MARKS.c.lab == lab).order_by(_MARKS.c.number)).mappings():
            self._last[row["notebook"], row["cell"], row["student"]] = dict(row)

    def of(self, place: Place) -> list[Item]:
        """The items of a question, in the order in which they were made."""
        return self.items.get((place.notebook, place.cell), [])

    def chosen(self, place: Place, numbers: Sequence[int]) -> list[Item]:
        """The items of these numbers, in the order of the rubric. Raises RubricError if one is gone, or named twice."""
        found = [item for item in self.of(place) if item.number in numbers]
        if len(found) != len(numbers):
            raise RubricError("One of these items is not there any more: load the page again.")
        return found

    def has(self, place: Place, student: str) -> bool:
        """Whether the student was ever given a mark for the answer here."""
        return (place.notebook, place.cell, student) in self._last

    def given(self, place: Place, student: str) -> Given | None:
        """What a student has for the answer; None if there is no graded answer."""
        try:
            grade = self._gradebook.find_grade(place.cell, place.notebook, place.lab, student)
            said = self._gradebook.find_comment(place.cell, place.notebook, place.lab, student)
        except MissingEntry:
            return None
        waits = bool(grade.needs_manual_grade)  # with points too: of another text, which was handed in since
        seen = _digest(grade.manual_score, waits, said.manual_comment)
        score = None if waits else float(grade.score)
        last = self._last.get((place.notebook, place.cell, student))
        items = () if last is None else tuple(json.loads(last["items"]))
        if (
            last is None
            or (last["score"], last["said"]) != (grade.manual_score, said.manual_comment or "")
            # an item was removed while another mark held: that this one is equal again is chance
            or not {item.number for item in self.of(place)}.issuperset(items)
        ):
            return Given(score, (), said.comment or "", score, "", seen)
        return Given(last["points"], items, last["comment"], score, last["who"], seen)

    def students(self, place: Place, number: int) -> list[str]:
        """Whose last mark here was made with an item, by name."""
        named = [
            key[2]
            for key, row in self._last.items()
            if key[:2] == (place.notebook, place.cell) and number in json.loads(row["items"])
        ]
        return sorted(named, key=str.casefold)

    def used(self, place: Place) -> Counter[int]:
        """In how many marks each item is, by its number."""
        everybody = [key[2] for key in self._last if key[:2] == (place.notebook, place.cell)]
        holds = [self.given(place, student) for student in everybody]
        return Counter(number for given in holds if given is not None for number in given.items)


def _digest(*state: object) -> str:
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


def _there(gradebook: Gradebook) -> bool:
    return inspect(gradebook.engine).has_table(_MARKS.name)


def history(gradebook: Gradebook, student: str) -> list[dict]:
    """Every mark that the student was given for an answer in words: who, when, the points, the items and the words."""
    if not _there(gradebook):
        return []
    return [
        dict(row)
        for row in gradebook.db.execute(
            select(_MARKS).where(_MARKS.c.student == student).order_by(_MARKS.c.number)
        ).mappings()
    ]


def forget(gradebook: Gradebook, student: str) -> None:
    """Removes every such row of a student."""
    if _there(gradebook):
        gradebook.db.execute(delete(_MARKS).where(_MARKS.c.student == student))
        gradebook.db.commit()


# ------------------------------------------------------------------------------------------------------------- writing


@contextmanager
def writing(gradebook: Gradebook, dry_run: bool = False) -> Iterator[None]:
    """A transaction that nobody else writes into from its beginning; an error, and a dry run, undo it. Raises RubricError if the gradebook is busy."""
    try:
        if not _there(gradebook):
            for table in (_ITEMS, _MARKS):
                gradebook.db.execute(CreateTable(table, if_not_exists=True))
        # changes nothing, and takes SQLite's lock: what is read from here on stays so until the end
        gradebook.db.execute(update(_ITEMS).where(_ITEMS.c.number < 0).values(points=0.0))
        yield
        if dry_run:
            gradebook.db.rollback()
        else:
            gradebook.db.commit()
    except SQLAlchemyError as error:
        gradebook.db.rollback()
        raise RubricError(f"The gradebook can't be written now ({type(error).__name__}): try again.") from None
    except BaseException:
        gradebook.db.rollback()
        raise


def give(
    gradebook: Gradebook,
    place: Place,
    student: str,
    given: tuple[float | None, Sequence[Item], str],
    who: str,
    why: str = "",
) -> float | None:
    """Writes a mark, (points, items, comment), into nbgrader's tables and ours; the score. The caller has found the grade and is `writing`."""
    points, items, comment = given
    score, said = score_of(points, items, place.most), words_of(items, comment)
    grade = gradebook.find_grade(place.cell, place.notebook, place.lab, student)
    grade.manual_score, grade.needs_manual_grade = score, score is None
    gradebook.find_comment(place.cell, place.notebook, place.lab, student).manual_comment = said or None
    row: dict[str, Any] = {
        "student": student,
        "who": who,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "why": why,
    }
    row |= {"points": points, "items": json.dumps([item.number for item in items]), "comment": comment}
    gradebook.db.execute(insert(_MARKS).values(**place.key, **row, score=score, said=said))
    return score


def change(
    gradebook: Gradebook,
    place: Place,
    who: str,
    name: str,
    points: float | None = None,
    comment: str | None = None,
    renamed: str | None = None,
    remove: bool = False,
    dry_run: bool = False,
) -> Changed:
    """Makes an item, or changes or removes it with every mark that was made with it. What a dry run says is what would be done.

    None leaves a part as it is. Raises RubricError.
    """
    name = name.strip()
    if dry_run and not _there(gradebook):  # a first item: not even the tables are made
        return Changed(_new_item(place, (), name, points, comment, remove or bool(renamed)))
    with writing(gradebook, dry_run):
        rubric = Rubric(gradebook, place.lab)
        old = next((item for item in rubric.of(place) if item.name == name), None)
        if old is None:
            new = _new_item(place, rubric.of(place), name, points, comment, remove or bool(renamed))
            done = gradebook.db.execute(
                insert(_ITEMS).values(**place.key, name=new.name, points=new.points, comment=new.comment)
            )
            return Changed(Item(done.inserted_primary_key[0], new.name, new.points, new.comment))
        if remove:
            new = None
            gradebook.db.execute(delete(_ITEMS).where(_ITEMS.c.number == old.number))
        else:
            new = Item(
                old.number,
                old.name if renamed is None else renamed.strip(),
                old.points if points is None else points,
                old.comment if comment is None else comment.strip(),
            )
            _checked(place, new)
            if any(item.name == new.name and item.number != new.number for item in rubric.of(place)):
                raise RubricError(f"{place.cell} has an item {new.name!r} already.")
            values = {"name": new.name, "points": new.points, "comment": new.comment}
            gradebook.db.execute(update(_ITEMS).where(_ITEMS.c.number == old.number).values(**values))
        changes, left = [], []
        for student in rubric.students(place, old.number):
            before = rubric.given(place, student)
            if before is None or old.number not in before.items:
                left.append(student)
                continue
            now = [new if item is old else item for item in rubric.chosen(place, before.items)]
            items = [item for item in now if item is not None]
            why = f"{old.name}: {old.points:g} -> {'removed' if new is None else f'{new.points:g}'}"
            after = give(gradebook, place, student, (before.points, items, before.comment), who, why)
            changes.append(Change(student, before.score, after))
        return Changed(new, tuple(changes), tuple(left))


def _new_item(
    place: Place, there: Sequence[Item], name: str, points: float | None, comment: str | None, meant_old: bool
) -> Item:
    """A new item, without a number. Raises RubricError if it can't be one, or if one that is `there` was meant."""
    if meant_old:
        names = ", ".join(item.name for item in there) or "none"
        raise RubricError(f"{place.cell} has no item {name!r}. There are: {names}.")
    return _checked(place, Item(0, name, points or 0.0, (comment or "").strip()))


def _checked(place: Place, item: Item) -> Item:
    """The item. Raises RubricError if it can't be one."""
    if not item.name or len(item.name) > MAX_NAME_CHARACTERS or not item.name.isprintable():
        raise RubricError(f"An item's name has 1 to {MAX_NAME_CHARACTERS} characters in one line.")
    if not (math.isfinite(item.points) and abs(item.points) <= place.most):
        raise RubricError(f"An item's points must be between -{place.most:g} and {place.most:g}.")
    if len(item.comment) > MAX_COMMENT_CHARACTERS:
        raise RubricError(f"A comment has at most {MAX_COMMENT_CHARACTERS} characters.")
    return item

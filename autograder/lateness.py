"""Due dates and rules for late work, by command; and the penalties that follow from them, without marking anything again.

A rule is in `autograder/late.json`, by lab: so many per cent of the points for each day that was begun, after a grace, up to a most.
A lab without a rule has nbgrader's own policy, or the course's plugin.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from allranks.base.errors import CourseError
from allranks.base.whole import write_whole
from nbgrader.api import Assignment, Gradebook, MissingEntry
from nbgrader.plugins import BasePlugin, LateSubmissionPlugin
from nbgrader.preprocessors import AssignLatePenalties
from nbgrader.utils import parse_utc

from autograder.folder import config_of, directory_of, has_gradebook
from autograder.trusted import coursedir_of

FILE = "late.json"
DAY_S = 86400


class LatenessError(CourseError):
    """Nothing was changed; the message is one sentence that says why."""


@dataclass(frozen=True)
class Rule:
    """`per_day` per cent of the points are lost for each day begun, once `grace_minutes` are over; never more than `most` per cent."""

    per_day: float
    grace_minutes: float = 0.0
    most: float = 100.0

    def penalty(self, points: float, late_s: float) -> float:
        """The points that work of `points` loses, handed in `late_s` seconds late.

        >>> Rule(10, grace_minutes=15).penalty(20.0, 2 * DAY_S)
        4.0
        >>> Rule(10, grace_minutes=15).penalty(20.0, 600)
        0.0
        """
        days = math.ceil((late_s - 60 * self.grace_minutes) / DAY_S)
        return round(points * min(self.most, self.per_day * days) / 100, 4) if days > 0 else 0.0

    def __str__(self) -> str:
        grace = f" after {self.grace_minutes:g} minutes" if self.grace_minutes else ""
        most = f", at most {self.most:g} %" if self.most < 100 else ""
        return f"{self.per_day:g} % for each day begun{grace}{most}"


class LateRule(LateSubmissionPlugin):
    """nbgrader's plugin: the rule of the lab in late.json, else nbgrader's own method. `rules` are some to try in place of the file's."""

    rules: dict[str, Rule] | None = None

    def late_submission_penalty(self, student_id: str, score: float, total_seconds_late: float) -> float | None:
        """The points that are taken off a notebook; None for nothing."""
        rules = rules_of(Path(coursedir_of(self.parent).root)) if self.rules is None else self.rules
        rule = rules.get(self.parent.assignment_id)
        if rule is None:
            return super().late_submission_penalty(student_id, score, total_seconds_late)
        return rule.penalty(score, total_seconds_late)


@dataclass(frozen=True)
class Penalty:
    """What one student loses for being late, before and after; in points."""

    student: str
    before: float
    after: float


def rules_of(course: Path) -> dict[str, Rule]:
    """The rules by lab. Raises LatenessError if the file says something else."""
    path = course / "autograder" / FILE
    try:
        return {lab: Rule(**about) for lab, about in json.loads(path.read_text(encoding="utf-8")).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError):
        raise LatenessError(
            f"{path} holds no rules: delete it, and give them again by `allranks course late`."
        ) from None


def set_rule(course: Path, lab: str, rule: Rule | None, dry_run: bool = False) -> list[Penalty]:
    """Gives the lab a rule, or takes it away, and settles the penalties; returns those that change.

    Raises LatenessError if the course has a plugin of its own, which reads no rule.
    """
    plugin = _plugin(course, lab)
    if rule is not None and not isinstance(plugin, LateRule):
        name = f"{type(plugin).__module__}.{type(plugin).__name__}"
        raise LatenessError(
            f"{name} decides on late work in this course, and reads no rule: for rules write "
            'c.AssignLatePenalties.plugin_class = "autograder.lateness.LateRule" at the end of autograder/nbgrader_config.py.'
        )
    proposed = {name: one for name, one in rules_of(course).items() if name != lab} | ({lab: rule} if rule else {})
    if not dry_run:
        text = json.dumps({name: asdict(one) for name, one in sorted(proposed.items())}, indent=1)
        write_whole(course / "autograder" / FILE, text + "\n")
    return settle(course, lab, dry_run, rules=proposed)


def due_of(course: Path, lab: str) -> datetime | None:
    """The due date of the lab, in UTC."""
    with _gradebook(course, lab) as gradebook:
        due = _assignment(gradebook, lab).duedate
    return None if due is None else due.replace(tzinfo=UTC)


def set_due(course: Path, lab: str, due: datetime | None, dry_run: bool = False) -> list[Penalty]:
    """Sets the due date, which without a zone is UTC, and settles the penalties; returns those that change."""

    def change(assignment: Assignment) -> None:
        assignment.duedate = due if due is None or due.tzinfo is None else due.astimezone(UTC).replace(tzinfo=None)

    return settle(course, lab, dry_run, change)


def time_of(text: str) -> datetime:
    """A time as a teacher types it, in UTC unless it names a zone. Raises LatenessError.

    >>> time_of("2026-12-01 23:59").isoformat()
    '2026-12-01T23:59:00'
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        if not any(mark in text for mark in "/\\"):  # dateutil reads the file that a time zone names
            found: datetime = parse_utc(text)
            return found
    except (ValueError, OverflowError, TypeError):
        pass
    raise LatenessError(
        f"{text!r} is no time: write for example '2026-12-01 23:59' (UTC), or '2026-12-01 23:59+01:00'."
    )


def settle(
    course: Path,
    lab: str,
    dry_run: bool = False,
    change: Callable[[Assignment], None] | None = None,
    rules: dict[str, Rule] | None = None,
) -> list[Penalty]:
    """Computes every penalty of the lab anew, from the points that stand in the gradebook now, also those given by hand.

    `change` is done to the assignment first. `rules` are some to try in place of the course's. With `dry_run` nothing is written.
    Returns the penalties that change.
    """
    plugin = _plugin(course, lab)
    if isinstance(plugin, LateRule):
        plugin.rules = rules
    found = []
    with _gradebook(course, lab) as gradebook:
        assignment = _assignment(gradebook, lab)
        if change is not None:
            change(assignment)
        for submission in gradebook.assignment_submissions(lab):
            before = after = 0.0
            for notebook in submission.notebooks:
                old, late = float(notebook.late_submission_penalty or 0.0), float(submission.total_seconds_late)
                if late > 0:
                    taken = plugin.late_submission_penalty(submission.student_id, float(notebook.score), late) or 0.0
                else:
                    taken = 0.0
                new = float(plugin.parent._check_late_penalty(notebook, taken))
                before, after = before + old, after + new
                if not dry_run and new != old:
                    notebook.late_submission_penalty = new
            if round(before, 4) != round(after, 4):
                found.append(Penalty(submission.student_id, before, after))
        if dry_run:
            gradebook.db.rollback()
        else:
            gradebook.db.commit()
    return sorted(found, key=lambda one: one.student)


def _plugin(course: Path, lab: str) -> BasePlugin:
    """What decides on late work, as the course's configuration says, in nbgrader's step for this lab."""
    step = AssignLatePenalties(config=config_of(course))
    step.assignment_id = lab
    step.init_plugin()
    return step.plugin_inst


def _gradebook(course: Path, lab: str) -> Gradebook:
    about = directory_of(course)
    if not has_gradebook(about):
        raise _unknown(lab)
    return Gradebook(about.db_url, about.course_id)


def _assignment(gradebook: Gradebook, lab: str) -> Assignment:
    try:
        return gradebook.find_assignment(lab)
    except MissingEntry:
        raise _unknown(lab) from None


def _unknown(lab: str) -> LatenessError:
    how = f"type `nbgrader generate_assignment {lab}` or `allranks grade {lab}` first."
    return LatenessError(f"{lab} is not in the gradebook yet: {how}")

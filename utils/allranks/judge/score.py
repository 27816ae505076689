"""From what was found of an answer to its points: no run is started here, and no cause is looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from allranks.judge import reasons
from allranks.judge.card import BLOCKING
from allranks.judge.causes import Code, cause
from allranks.judge.compare import Comparison
from allranks.judge.diagnose import Diagnosis, RuleFound
from allranks.judge.exercise import Exercise
from allranks.judge.verdict import Case, Reason

NOT_JUDGED = reasons.plain(cause(Code.NOT_JUDGED))
MOST_WITHOUT = 0.6  # of the points, for right results by messages that break a rule: how is what an exercise teaches


@dataclass(frozen=True)
class Score:
    """The points, from 0 to 1, and the cases and rules as the verdict lists them."""

    points: float
    passed: bool
    cases: tuple[Case, ...]


def score(exercise: Exercise, found: Diagnosis) -> Score:
    """What the answer has earned: by results, and as far as these are right by the rules."""
    total = earned = 0.0
    for group in exercise.groups:
        of_group = [c for c in found.cases if c.group == group.name]
        if of_group:  # NCCL may have none of its cases
            total += group.weight
            earned += group.weight * credit(of_group)
    share = earned / total if total else 0.0  # the rules count as far as the results are right
    cases = [_case(c.name, c.reason, c.group) for c in found.cases]
    for one in found.rules:
        total += one.rule.weight
        earned += one.rule.weight * share * _kept(one)
        reason = None if one.breach is None else reasons.labelled(one.breach.run, one.breach.reason)
        cases.append(_case(one.rule.name, reason if one.judged else NOT_JUDGED))
    if exercise.blocking_weight:
        total += exercise.blocking_weight
        is_right = bool(found.right) and found.blocked is None
        earned += exercise.blocking_weight * share * is_right
        cases.append(_case(BLOCKING, found.blocked if is_right or found.blocked else NOT_JUDGED))
    passed = all(c.passed for c in cases)
    if any(one.breach is not None and one.rule.essential for one in found.rules):
        earned = 0.0
    points = 1.0 if passed else min(round(earned / total, 4), round(_most(exercise, found), 4), 0.99)
    return Score(points, passed, tuple(cases))


def _kept(one: RuleFound) -> float:
    """How much of a rule's share the answer earns."""
    if one.breach is not None:
        return one.rule.part(one.breach.run)
    return float(one.judged)


def _most(exercise: Exercise, found: Diagnosis) -> float:
    """The most that right results are worth which came by messages that break a rule."""
    parts = [_kept(one) for one in found.rules if one.breach is not None]
    most = min((MOST_WITHOUT + (1 - MOST_WITHOUT) * part for part in parts), default=1.0)
    return min(most, MOST_WITHOUT) if found.blocked is not None and exercise.blocking_weight else most


def _case(name: str, reason: Reason | None, group: str | None = None) -> Case:
    group = name if group is None else group
    if reason is None:
        return Case(name, True, "", group)
    return Case(name, False, reason.sentence, group, reason.finding, judged=reason is not NOT_JUDGED)


def credit(cases: Sequence[Comparison]) -> float:
    """What a group earns: all if every case passed, else half the share of those that did, since it shows one property.

    One rank or no elements earn nothing: doing nothing is right there.
    """
    counted = [c for c in cases if c.setup.earns_credit or not c.passed]
    share = sum(c.passed for c in counted) / len(counted) if counted else 0.0
    return share if share == 1 else share / 2

"""Finds out why an answer's cases failed. This step alone may ask for more runs: to tell two causes apart, or to confirm one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from allranks.base.errors import capital
from allranks.judge import (
    evidence,
    factor,
    failed_run,
    known,
    origin,
    patterns,
    pieces,
    provenance,
    puts,
    reasons,
    shared,
    speed,
    wrong_result,
)
from allranks.judge.cases import Setup
from allranks.judge.causes import Cause, Code, cause, clause
from allranks.judge.compare import Comparison, result_faults
from allranks.judge.exercise import About, FaultKind, Rule, Run
from allranks.judge.fault import text_of
from allranks.judge.run import ENDS_THE_CHECK, CaseRunner
from allranks.judge.verdict import Reason
from allranks.ranks.wire import Failure, FailureKind
from allranks.ranks.wire.failures import DeadlockCause

_ROOM_S = 5  # an extra run only if so much time is left
_MORE = ((3, 6), (3, 7), (6, 12), (12, 24), (2, 5), (4, 8))  # ranks and elements: they tell a pattern from luck
_HIDDEN = "If sends do not wait, all cases pass. But a send may wait: write as if every send waited."
_WORTH = 3  # a case with a cause counts as much as so many without one


@dataclass(frozen=True)
class Finding(Comparison):
    """A case with its reason (None: it passed). `fits` are the causes that fit its results, and `cause` is the one that was chosen.

    `against` are the patterns that its results speak against.
    """

    fits: tuple[Cause, ...] = ()
    against: frozenset[Code] = frozenset()
    factor: factor.Factor | None = None
    cause: Cause | None = None
    reason: Reason | None = None


@dataclass(frozen=True)
class Breach:
    """A run that breaks a rule, and how."""

    run: Run
    reason: Reason


@dataclass(frozen=True)
class RuleFound:
    """A rule, whether any right run can show that it is kept, and the simplest run that breaks it."""

    rule: Rule
    judged: bool
    breach: Breach | None


@dataclass(frozen=True)
class Diagnosis:
    """What was found of an answer: its cases, the rules, whether its sends wait in a circle, and the one reason to show first.

    `right` are the runs that show whether rules are kept. `shown` is the run that shows the reason, or of a right answer the demo case.
    """

    cases: tuple[Finding, ...]
    rules: tuple[RuleFound, ...]
    right: tuple[Run, ...]
    blocked: Reason | None
    headline: Reason | None
    failed: Run | None
    demo: Run | None

    @property
    def shown(self) -> Run | None:
        return self.failed or self.demo


def diagnose(runner: CaseRunner, cases: Sequence[Finding]) -> Diagnosis:
    """Why the answer's cases failed, and which rules the right ones break."""
    chosen = tuple(choose(cases))
    demo = _demo(runner, chosen)  # its values tell where each element came from
    passed = [c.run for c in chosen if c.passed and c.run is not None]
    right = [run for run in passed if run.setup.earns_credit] + ([] if demo is None else [demo])
    right += [run for run in passed if run.ranks == 1]  # few rules are for one rank
    found = tuple(_rule(rule, right) for rule in runner.exercise.rules)
    blocked = runner.blocked
    told = None if blocked is None else reasons.labelled(blocked, _of_failure(runner, blocked))
    headline, failed = _headline(runner, chosen, [r.breach for r in found if r.breach is not None], told)
    return Diagnosis(chosen, found, tuple(right), told, headline, failed, demo)


def _of_failure(runner: CaseRunner, run: Run) -> Reason:
    return failed_run.told(run, withhold=runner.withholds(run))


# --------------------------------------------------------------------------------------------------------- one case


def opened(runner: CaseRunner, run: Run) -> Run:
    """The run; of the first deadlock the same case with sends that return at once, if that says more. Then all others have such sends."""
    if runner.blocked is None and run.failure is not None and run.failure.kind is FailureKind.DEADLOCK:
        # try sends that return at once: if the result is right, this is the only mistake; use them in the other cases too
        again = runner.run(run.setup, delivery="buffered")
        if again.failure is not None and again.failure.kind is FailureKind.UNMATCHED:
            return again  # the circle would open, but a receive is missing: that is the cause
        if _names_another_cause(run.failure, again.failure):
            return again  # a circle of sends, but one of them goes to a rank that does not receive it
        if again.failure is not None and failed_run.meets_an_empty_message(again.failure):
            return again  # the circle would open, but a message without elements would be taken for another one
        if again.failure is None and not result_faults(again):
            runner.blocked, runner.delivery = run, "buffered"
            return again
    return run


def _names_another_cause(waiting: Failure, at_once: Failure | None) -> bool:
    """Whether ranks that wait in sends are still stuck with sends that return at once, and the log says who names the wrong rank."""
    if waiting.cause not in failed_run.SENDS_FIRST or at_once is None:
        return False
    return at_once.kind is FailureKind.LEFT_EARLY or at_once.cause is DeadlockCause.CROSSED


def first_look(runner: CaseRunner, case: Comparison) -> Finding:
    """The case with all causes that fit it: which of them it is, the other cases tell."""
    found, run = Finding(**vars(case)), case.run
    if run is None or case.passed:
        return found
    if run.failure is not None or run.outcome.files:
        found = replace(found, reason=reasons.of_files(run) or _of_failure(runner, run))
    elif raced := puts.cause(run):
        found = replace(found, cause=cause(Code.SHARED_MEMORY, told=raced, **clause(raced)._asdict()))
    else:
        multiple = factor.factor(run, case.faults) if run.setup.earns_credit else None
        alike, against = patterns.fitting(run, case.faults)
        fits = (*known.fitting_mistakes(run, case.faults), *alike)
        found = replace(found, fits=fits, against=frozenset(against), factor=multiple)
    # the results of a failed run are not needed any more where they are tensors, and may be large
    lost = tuple((None,) * run.ranks for _ in run.results)
    return replace(found, run=replace(run, results=lost, later=()) if run.exercise.allow else run)


# ------------------------------------------------------------------------------------------- which cause of those that fit


def choose(cases: Sequence[Finding]) -> list[Finding]:
    """Of several causes that fit a case, as they do with one element, takes the one that fits most cases.

    One wrong number can fit a mistake by chance. So if other cases have several wrong numbers, a mistake must fit
    one of those cases too.
    """
    cases = _without_messages(cases)
    clear = [c for c in cases if len({index for f in c.faults for index in f.wrong}) > 1]
    if clear:
        confirmed = {one for c in clear for one in c.fits}
        chance = {one for c in cases for one in c.fits if one.code in (*_OWN, *patterns.CODES)}
        cases = _without(cases, chance - confirmed)
    for unlikely in (_contradicted, _against_pattern, _lost_digits, _other_shape):
        cases = _without(cases, unlikely(cases))
    votes = Counter(one for c in cases for one in c.fits)
    where = {one: [c.name for c in cases if one in c.fits] for one in votes}
    chosen = _with_factors([replace(c, cause=_best(c, votes, where)) if c.fits else c for c in cases])
    return [replace(c, reason=reasons.of_faults(c.run, c.faults, c.cause)) if c.faults and c.run else c for c in chosen]


def _without_messages(cases: Sequence[Finding]) -> Sequence[Finding]:
    """In an exercise without messages a mistake that would have shown in a right run was not made."""
    right = [c.run for c in cases if c.passed and c.run is not None and not c.run.exercise.allow]
    if not right:
        return cases
    return [
        replace(c, fits=tuple(known.fitting_mistakes(c.run, c.faults, right))) if c.fits and c.run is not None else c
        for c in cases
    ]


def _without(cases: Sequence[Finding], dropped: Iterable[Cause]) -> list[Finding]:
    gone = set(dropped)
    return [replace(c, fits=tuple(one for one in c.fits if one not in gone)) for c in cases]


def _best(case: Finding, votes: Counter[Cause], where: dict[Cause, list[str]]) -> Cause:
    """The cause with most votes. Where the results can't tell two apart, both are said, but what fits every rank says more than what fits
    some."""
    best = max(case.fits, key=lambda one: (votes[one], one.code is not Code.OWN_ON_SOME))
    if best.code not in _OWN:
        return best
    first, *others = [one for one in case.fits if one.code is best.code and where[one] == where[best]]
    return cause(Code.EITHER, sure=False, first=first, second=others[0]) if others else best


_OWN = (Code.OWN, Code.OWN_ON_SOME)


def _own(case: Finding) -> set[Cause]:
    """The exercise's own causes among those that fit, and not those that look the same in every exercise."""
    return {one for one in case.fits if one.code in _OWN}


def _contradicted(cases: Sequence[Finding]) -> set[Cause]:
    """The mistakes that fit some cases by chance: a like case is wrong in another way.

    With fewer ranks than where it fits, it must be a case that no mistake fits, and that this one would have made wrong.
    """
    plain = _plain(cases)
    own = {one for c in plain for one in _own(c)}
    contradicted = set()
    for mistake in {m for c in plain for m in c.fits} & own:
        least = min(c.setup.ranks for c in plain if mistake in c.fits)
        others = [c for c in plain if mistake not in c.fits and _is_whole(c)]
        if any(c.setup.ranks > least or (not c.fits and _would_show(c, mistake)) for c in others):
            contradicted.add(mistake)
    # what fits special cases only, though it would show in more of the others, fits by chance
    failed = [c for c in cases if c.faults and c.setup.earns_credit and _is_whole(c)]
    for mistake in {m for c in cases if c.faults for m in _own(c)} - own:
        fits = sum(mistake in c.fits for c in cases)
        others = [c for c in failed if not c.fits and _would_show(c, mistake)]
        if any(c in plain for c in others) or len(others) > fits:
            contradicted.add(mistake)
    return contradicted


def _against_pattern(cases: Sequence[Finding]) -> set[Cause]:
    """The patterns that a like case speaks against."""
    against = {code for c in _plain(cases) for code in c.against}
    return {one for c in cases for one in c.fits if one.code in against}


def _plain(cases: Sequence[Finding]) -> list[Finding]:
    """The wrong cases that are like others: they speak against a cause that fits those."""
    return [c for c in cases if c.faults and c.setup.earns_credit and not c.run.exercise.simplest_first(c.setup)[1]]


def _would_show(case: Finding, mistake: Cause) -> bool:
    return case.run is not None and known.would_show(case.run, mistake.field("number"))


def _lost_digits(cases: Sequence[Finding]) -> set[Cause]:
    """The causes that digits were lost, if a like case is wrong by more than that."""
    whole = [c for c in cases if c.faults and c.setup.dtype in ("float32", "float64")]
    lost = {one for c in cases for one in c.fits if one.code in wrong_result.NARROWER}
    return lost if any(not c.fits for c in whole) else set()


def _other_shape(cases: Sequence[Finding]) -> set[Cause]:
    """The cause that only the shape is wrong, if other cases have another number of elements too."""
    only_shape = cause(Code.OTHER_SHAPE)
    of_shape = [c for c in cases if c.faults and c.faults[0].kind is FaultKind.SHAPE]
    return {only_shape} if any(only_shape not in c.fits for c in of_shape) else set()


def _is_whole(case: Finding) -> bool:
    """Whether a mistake shows as it does elsewhere: each rank has an element at least, or two where the size is that of a rank.

    With fewer, other ranks than usual are wrong, or in another way.
    """
    each = case.run is not None and case.run.exercise.counts_each_rank
    return case.setup.size >= (2 if each else case.setup.ranks) and not case.setup.root


def _with_factors(cases: Sequence[Finding]) -> list[Finding]:
    """For cases that no mistake fits: what the results are a multiple of."""
    otherwise = any(c.factor is None and not c.fits and _is_whole(c) for c in _plain(cases))
    cases = [
        # what was there before counts more than once by chance if a like case is wrong in another way
        replace(c, factor=None) if otherwise and c.factor is not None and c.factor.of is factor.Of.OLD else c
        for c in cases
    ]
    unnamed = [(c.setup, c.factor) for c in cases if c.factor is not None and c.cause is None]
    common = factor.in_common(unnamed)
    return [
        replace(c, cause=common or factor.of_one(c.setup, c.factor)) if c.factor is not None and c.cause is None else c
        for c in cases
    ]


# --------------------------------------------------------------------------------------------- the rules, and what to show first


def _rule(rule: Rule, right: Sequence[Run]) -> RuleFound:
    """Whether the rule is kept; where it is not, the simplest run that breaks it."""
    fitting = [run for run in right if rule.applies(run.setup)]
    for run in sorted(fitting, key=lambda run: run.exercise.simplest_first(run.setup)):
        broken = rule.breach(run)
        if broken is not None:
            return RuleFound(rule, True, Breach(run, reasons.of_rule(rule, run, broken)))
    return RuleFound(rule, bool(fitting), None)


def _headline(
    runner: CaseRunner, cases: Sequence[Finding], breaches: Sequence[Breach], blocked: Reason | None
) -> tuple[Reason | None, Run | None]:
    """The one reason to show first, and the run that shows it."""
    failed = [c for c in cases if not c.passed]
    for c in failed:
        if c.run is not None and c.run.failure is not None and c.run.failure.kind in ENDS_THE_CHECK:
            return c.reason, c.run
    if blocked is not None and not failed:
        return replace(blocked, more=f"{blocked.more} {_HIDDEN}".strip()), runner.blocked
    tried = [c for c in failed if c.run is not None]
    if tried:
        case = _clearest(tried)
        if blocked is not None and case.setup.ranks == 1 and not case.faults:
            # the ranks wait for each other in a circle: that says more than an error of a rank that is alone
            return blocked, runner.blocked
        return _failed_case(runner, cases, case)
    if failed:
        return failed[0].reason, None
    if breaches:
        return reasons.labelled(breaches[0].run, breaches[0].reason), breaches[0].run
    return None, None


def _failed_case(runner: CaseRunner, cases: Sequence[Finding], case: Finding) -> tuple[Reason | None, Run | None]:
    """The reason of this case, after a sentence on what all failed cases have in common.

    If the case fits no known mistake, values that show where they came from may explain it.
    """
    exercise, reason, run = runner.exercise, case.reason, case.run
    if reason is None or run is None:
        return reason, run
    if run.failure is not None and pieces.lacks_item(run.failure):
        failed, others = (
            [c.setup for c in cases if c.run is not None and pieces.lacks_item(c.run.failure) is is_one]
            for is_one in (True, False)
        )
        reason = pieces.with_cause(
            reason, run.failure, case.setup, failed, others, text_of(runner.answer), exercise.unit
        )
    if case.faults:
        reason, run = _by_values(runner, case, reason, run)
    # without messages the cases differ in their inputs only
    found = [(c.setup, c.passed) for c in cases if c.run is not None] if exercise.allow else []
    common = _confirmed_property(runner, found)
    told = "" if common is None else f"{capital(common.sentence)} "
    return replace(reasons.behind(f"{told}{exercise.label(case.setup)}: ", reason), shared=common), run


def _by_values(runner: CaseRunner, case: Finding, reason: Reason, run: Run) -> tuple[Reason, Run]:
    """The reason with what more runs of the case say of where the wrong values came from, and the run that shows it."""
    traced = _run_with_provenance(runner, run)
    distinct = _run_with_distinct(runner, run) if case.cause is None else None
    told = _not_added(distinct) if distinct is not None else None
    if told:
        return reasons.of_origin(run, reason, told), traced or run
    if traced is not None and case.cause is None and runner.exercise.explain is not None:
        explained = runner.exercise.explain(traced, result_faults(traced)[0])
        if explained:
            return reasons.of_provenance(reason, explained), traced
    if distinct is not None and (told := origin.explain(distinct, result_faults(distinct))):
        reason = reasons.of_origin(traced or run, reason, told)
    return reason, traced or run


def _run_with_distinct(runner: CaseRunner, run: Run) -> Run | None:
    """The same case with inputs that are all different; None if it can't have them, or is right with them."""
    if not runner.exercise.allow or runner.left_s < _ROOM_S:
        return None
    for dtype in (
        "float64",
        "float32",
    ):  # where sizes count bytes, as of a bucket, it may be right with longer elements
        again = runner.run(replace(run.setup, dtype=dtype, values="random"), delivery=run.delivery)
        if again.failure is not None:
            return None
        if result_faults(again):
            return again
    return None


def _not_added(run: Run) -> str | None:
    """What the log says of a sum that was not made."""
    if not _adds(run):
        return _other_reduction(run)
    return (
        evidence.sends_unfilled(run)
        or origin.adds_another_buffer(run)
        or origin.passed_on_as_received(run)
        or origin.ends_as_received(run, result_faults(run)[0])
    )


def _adds(run: Run) -> bool:
    """Whether the ranks' values are added on the way, by messages between two ranks."""
    return run.exercise.collective in ("all_reduce", "reduce", "reduce_scatter") and not run.collectives


def _other_reduction(run: Run) -> str | None:
    """A collective that reduces with something else than a sum, in an exercise that needs sums only."""
    if not run.exercise.only_sums:
        return None
    for entry in run.collectives:
        name = str(entry.reduce_op or "SUM").rpartition(".")[2].upper()
        if name not in ("SUM", "AVG"):
            return About(
                f"rank {entry.rank} calls {entry.called} with {name}{run.at(entry.line)}, but the ranks' values must be added",
                entry,
                kind=f"reduces with {name} instead of a sum",
            )
    return None


def _confirmed_property(runner: CaseRunner, found: list[tuple[Setup, bool]]) -> Cause | None:
    """What the failing cases have in common; a sentence about the number of ranks only if more cases, tried now, agree."""
    plain = [s for s, _ in found if not runner.exercise.simplest_first(s)[1] and s.earns_credit]
    tried = list(found)
    for one, fails in shared.properties(found, runner.exercise.unit):
        if fails is None or all(_agrees(runner, plain, tried, fails, *case) for case in _MORE):
            return one
    return None


def _agrees(
    runner: CaseRunner,
    plain: list[Setup],
    tried: list[tuple[Setup, bool]],
    fails: shared.Holds,
    ranks: int,
    size: int,
) -> bool:
    """Whether a case of these ranks and elements passes or fails as the property says. What can't be tried refutes nothing."""
    sized = [s for s in plain if s.size and not s.option("ranks_per_node")]
    if not sized or ranks > runner.pool.size or runner.left_s < _ROOM_S:
        return True
    like = min(sized, key=lambda s: abs(s.ranks - ranks))
    has_shapes = like.option("_shapes") is not None
    setup = replace(like, ranks=ranks, size=like.size if has_shapes else size)
    setup = replace(setup, root=None if like.root is None else min(like.root, ranks - 1))
    passed = next((passed for known, passed in tried if known == setup), None)
    if passed is None:
        run = runner.run(setup)
        passed = run.failure is None and not result_faults(run)
        tried.append((setup, passed))
    return passed is not fails(setup)


def _clearest(failed: list[Finding]) -> Finding:
    """The failed case to show: the simplest one with the most frequent mistake."""
    ordered = sorted(failed, key=lambda r: r.run.exercise.simplest_first(r.setup))
    wrong = [r for r in ordered if r.faults]
    if not wrong or any(not r.faults and r.setup.earns_credit for r in ordered[: len(ordered) // 2]):
        return ordered[0]  # many runs failed before they had a result: show such a failure, not a wrong result
    votes = Counter(r.cause for r in wrong)
    # a case that is explained helps more than a few that are not; against many it may be chance
    best = max(votes, key=lambda m: (votes[m] * (1 if m is None else _WORTH), m is not None))
    if best is not None:
        return next(r for r in wrong if r.cause == best)
    # with fewer elements than ranks some chunks are empty, so a picture of them shows little
    whole = [r for r in wrong if r.cause is None and r.setup.ranks >= 3 and r.setup.size >= r.setup.ranks]
    return whole[0] if whole else ordered[0]


def _run_with_provenance(runner: CaseRunner, run: Run) -> Run | None:
    """The same case with values that show where they came from; None if it can't have them, or is right with them."""
    exercise = runner.exercise
    if (exercise.chunking == "none" and exercise.explain is None) or run.ranks > provenance.MOST_RANKS:
        return None
    setup = replace(run.setup, dtype="float64", values="provenance")
    again = runner.run(setup, delivery=run.delivery)
    return again if again.failure is None and result_faults(again) else None


def _demo(runner: CaseRunner, cases: Sequence[Finding]) -> Run | None:
    """The case whose messages the student is shown when all others are right; None if they are not, or if it is wrong itself."""
    if runner.blocked is not None or not all(c.passed for c in cases):
        return None
    run = runner.run(runner.exercise.demo_setup)
    return None if run.failure is not None or result_faults(run) else run


def on_machine(runner: CaseRunner, machine: speed.Machine) -> Run:
    """One more run, on this machine."""
    return runner.run(speed.setup_on(runner.exercise, machine, runner.pool.size))

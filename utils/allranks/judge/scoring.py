"""From the cases that were run to the verdict: the score, the rules, and the one reason to show first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from allranks.judge import causes, computed, evidence, origin, pieces, provenance, speed
from allranks.judge.cases import Setup
from allranks.judge.exercise import About, Exercise, ResultFault, Rule, Run, kind_of
from allranks.judge.fault import blame_of, code_of, fault_of, text_of
from allranks.judge.running import ENDS_THE_CHECK, CaseResult, CaseRunner, result_faults
from allranks.judge.verdict import Case, Reason, Verdict
from allranks.theory.trace import Trace

NOT_JUDGED = Reason("not judged: a case with several ranks must pass first", ("not judged",))
_ROOM_S = 5  # an extra run only if so much time is left
_MORE = ((3, 6), (3, 7), (6, 12), (12, 24), (2, 5))  # ranks and elements: they tell a pattern from luck
_WORTH = 3  # a case with a cause counts as much as so many without one
BLOCKING = "sends that wait for their receiver"
MOST_WITHOUT = 0.6  # of the points, for right results by messages that break a rule: how is what an exercise teaches


@dataclass(frozen=True)
class _Breach:
    """A run that breaks a rule, and how."""

    run: Run
    rule: Rule
    reason: Reason


def score(runner: CaseRunner, results: list[CaseResult]) -> Verdict:
    """The verdict on an answer whose cases were run."""
    exercise = runner.exercise
    cases = [_case(r.name, r.reason, r.group) for r in results]
    total = earned = 0.0
    for group in exercise.groups:
        if not any(r.group == group.name for r in results):
            continue  # NCCL can't have any of its cases
        total += group.weight
        earned += group.weight * _credit([r for r in results if r.group == group.name])
    right = [r.run for r in results if r.passed and r.run is not None and r.setup.earns_credit]
    share = earned / total if total else 0.0  # the rules count as far as the results are right
    demo = _demo(runner, results)
    if demo is not None:  # its values tell where each element came from
        right.append(demo)
    # few rules are for one rank
    right += [r.run for r in results if r.passed and r.run is not None and r.setup.ranks == 1]
    breaches: list[_Breach] = []
    for rule in exercise.rules:
        total += rule.weight
        breach = _first_breach(rule, right)
        if breach is not None:
            breaches.append(breach)
            earned += rule.weight * share * rule.part(breach.run)
            cases.append(_case(rule.name, _with_label(exercise, breach.run, breach.reason)))
        elif any(rule.applies(run.setup) for run in right):
            earned += rule.weight * share
            cases.append(_case(rule.name, None))
        else:
            cases.append(_case(rule.name, NOT_JUDGED))
    if exercise.blocking_weight:
        total += exercise.blocking_weight
        if runner.blocked is not None:
            reason = _with_label(exercise, runner.blocked, runner.explain_failure(runner.blocked))
            cases.append(_case(BLOCKING, reason))
        elif right:
            earned += exercise.blocking_weight * share
            cases.append(_case(BLOCKING, None))
        else:
            cases.append(_case(BLOCKING, NOT_JUDGED))
    most = min((MOST_WITHOUT + (1 - MOST_WITHOUT) * b.rule.part(b.run) for b in breaches), default=1.0)
    if runner.blocked is not None and exercise.blocking_weight:
        most = min(most, MOST_WITHOUT)
    if any(b.rule.essential for b in breaches):
        earned = 0.0
    passed = all(c.passed for c in cases)
    headline, shown = _headline(runner, results, breaches) if not passed else (None, None)
    trace, label = _trace(runner, shown or demo)
    slow = headline is not None and headline.code[:2] in {
        ("rule", r.name) for r in exercise.rules if isinstance(r, speed.FastRule)
    }
    timed = None if slow else speed.of(shown or demo)  # of a slow run the reason says it all
    deadlock = shown.outcome.deadlock if shown is not None else None
    return Verdict(
        exercise.name,
        passed,
        1.0 if passed else min(round(earned / total, 4), round(most, 4), 0.99),
        tuple(cases),
        headline.sentence if headline else "",
        trace,
        deadlock.svg() if deadlock is not None else None,
        label,
        headline.code if headline else (),
        "nccl" if runner.nccl else None,
        tuple(runner.skipped),
        seen=headline.seen if headline else "",
        question=headline.question if headline else "",
        cause=headline.cause if headline else "",
        more=headline.more if headline else "",
        rows=headline.rows if headline else (),
        expected=exercise.schedule(shown.setup) if shown is not None and trace is not None else None,
        fault=fault_of(headline.blame, shown, trace, runner.answer) if headline else None,
        shared=headline.shared if headline else "",
        speed=() if timed is None else timed.sentences,
        variant=exercise.variant,
        won=exercise.won or exercise.promise,
    )


def _case(name: str, reason: Reason | None, group: str | None = None) -> Case:
    group = name if group is None else group
    if reason is None:
        return Case(name, True, "", group)
    return Case(name, False, reason.sentence, group, reason.code, judged=reason is not NOT_JUDGED)


def _with_label(exercise: Exercise, run: Run, reason: Reason) -> Reason:
    """The reason with the case in front of it."""
    return _behind(f"{exercise.label(run.setup)}: ", reason)


def _behind(words: str, reason: Reason) -> Reason:
    """The reason with these words in front of it, and of what was seen."""
    return replace(reason, sentence=words + reason.sentence, seen=words + reason.seen if reason.seen else "")


def _credit(results: list[CaseResult]) -> float:
    """What a group earns: all if every case passed, else half the share of those that did, since it shows one property.

    One rank or no elements earn nothing: doing nothing is right there.
    """
    counted = [r for r in results if r.setup.earns_credit or not r.passed]
    share = sum(r.passed for r in counted) / len(counted) if counted else 0.0
    return share if share == 1 else share / 2


def _first_breach(rule: Rule, right: list[Run]) -> _Breach | None:
    """The simplest run that breaks the rule."""
    for run in sorted(right, key=lambda run: causes.simplest_first(run.setup)):
        if rule.applies(run.setup):
            breach = rule.breach(run)
            if breach is not None:
                reason = Reason(breach, ("rule", rule.name, kind_of(breach)), blame=blame_of(breach))
                if isinstance(rule, speed.FastRule):  # how slow it is first, and below it why
                    head, asked, more = breach.partition(f"{rule.asked}. ")
                    reason = replace(reason, seen=head + asked.rstrip(), more=more)
                return _Breach(run, rule, reason)
    return None


def _headline(
    runner: CaseRunner, results: list[CaseResult], breaches: list[_Breach]
) -> tuple[Reason | None, Run | None]:
    """The one reason to show first, and the run that shows it."""
    exercise = runner.exercise
    failed = [r for r in results if not r.passed]
    for r in failed:
        if r.run is not None and r.run.failure is not None and r.run.failure.kind in ENDS_THE_CHECK:
            return r.reason, r.run
    if runner.blocked is not None and not failed:
        return _with_label(exercise, runner.blocked, runner.explain_failure(runner.blocked)), runner.blocked
    tried = [r for r in failed if r.run is not None]
    if tried:
        case = _clearest(tried)
        if runner.blocked is not None and case.setup.ranks == 1 and not case.faults:
            # the ranks wait for each other in a circle: that says more than an error of a rank that is alone
            return _with_label(exercise, runner.blocked, runner.explain_failure(runner.blocked)), runner.blocked
        return _failed_case(runner, results, case)
    if failed:
        return failed[0].reason, None
    if breaches:
        return _with_label(exercise, breaches[0].run, breaches[0].reason), breaches[0].run
    return None, None


def _failed_case(runner: CaseRunner, results: list[CaseResult], case: CaseResult) -> tuple[Reason | None, Run | None]:
    """The reason of this case, after a sentence on what all failed cases have in common.

    If the case fits no known mistake, values that show where they came from may explain it.
    """
    exercise, reason, run = runner.exercise, case.reason, case.run
    if reason is None or run is None:
        return reason, run
    if run.failure is not None and pieces.lacks_item(run.failure):
        failed, others = (
            [r.setup for r in results if r.run is not None and _lacks_item(r) is is_one] for is_one in (True, False)
        )
        reason = pieces.with_cause(
            reason, run.failure, case.setup, failed, others, text_of(runner.answer), exercise.unit
        )
    if case.faults:
        traced = _run_with_provenance(runner, run)
        distinct = _run_with_distinct(runner, run) if case.mistake is None else None
        told = _not_added(distinct, result_faults(distinct)) if distinct is not None else None
        if told:
            reason = _as_origin(run, reason, told)
        if traced is not None:
            run = traced
            if case.mistake is None and told is None and exercise.explain is not None:
                explained = exercise.explain(traced, result_faults(traced)[0])
                if explained:
                    said, cause = f"{explained}.", f"{explained[:1].upper()}{explained[1:]}."
                    blame = blame_of(explained)
                    reason = replace(
                        reason, sentence=said, code=("provenance", kind_of(explained)), cause=cause, blame=blame
                    )
        if distinct is not None and reason is case.reason:
            told = origin.explain(distinct, result_faults(distinct))
            reason = _as_origin(run, reason, told) if told else reason
    # without messages the cases differ in their inputs only
    found = [(r.setup, r.passed) for r in results if r.run is not None] if exercise.allow else []
    shared = _confirmed_property(runner, found)
    told_first = _behind(f"{shared}{exercise.label(case.setup)}: ", reason)
    return replace(told_first, shared=shared.strip()), run


def _lacks_item(case: CaseResult) -> bool:
    return case.run is not None and pieces.lacks_item(case.run.failure)


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


def _not_added(run: Run, faults: list[ResultFault]) -> str | None:
    """What the log says of a sum that was not made."""
    if not _adds(run):
        return _other_reduction(run)
    return (
        evidence.sends_unfilled(run)
        or origin.adds_another_buffer(run)
        or origin.passed_on_as_received(run)
        or origin.ends_as_received(run, faults[0])
    )


def _adds(run: Run) -> bool:
    """Whether the ranks' values are added on the way, by messages between two ranks."""
    return run.exercise.collective in ("all_reduce", "reduce", "reduce_scatter") and not run.collectives


def _as_origin(run: Run, reason: Reason, told: str) -> Reason:
    """The reason with where the wrong values came from."""
    sentence = f"{causes.begun(run, told)}."
    return replace(
        reason, sentence=sentence, code=("origin", kind_of(told)), seen=sentence, cause="", blame=blame_of(told)
    )


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


def _confirmed_property(runner: CaseRunner, found: list[tuple[Setup, bool]]) -> str:
    """What the failing cases have in common; a sentence about the number of ranks only if more cases, tried now, agree."""
    plain = [s for s, _ in found if not causes.simplest_first(s)[1] and s.earns_credit]
    tried = list(found)
    for sentence, fails in causes.common_properties(found, runner.exercise.unit):
        if fails is None or all(_agrees(runner, plain, tried, fails, *case) for case in _MORE):
            return sentence
    return ""


def _agrees(
    runner: CaseRunner,
    plain: list[Setup],
    tried: list[tuple[Setup, bool]],
    fails: Callable[[Setup], bool],
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


def _clearest(failed: list[CaseResult]) -> CaseResult:
    """The failed case to show: the simplest one with the most frequent mistake."""
    ordered = sorted(failed, key=lambda r: causes.simplest_first(r.setup))
    wrong = [r for r in ordered if r.faults]
    if not wrong or any(not r.faults and r.setup.earns_credit for r in ordered[: len(ordered) // 2]):
        return ordered[0]  # many runs failed before they had a result: show such a failure, not a wrong result
    votes = Counter(r.mistake for r in wrong)
    # a case that is explained helps more than a few that are not; against many it may be chance
    mistake = max(votes, key=lambda m: (votes[m] * (1 if m is None else _WORTH), m is not None))
    if mistake is not None:
        return next(r for r in wrong if r.mistake == mistake)
    # with fewer elements than ranks some chunks are empty, so a picture of them shows little
    whole = [r for r in wrong if r.mistake is None and r.setup.ranks >= 3 and r.setup.size >= r.setup.ranks]
    return whole[0] if whole else ordered[0]


def _run_with_provenance(runner: CaseRunner, run: Run) -> Run | None:
    """The same case with values that show where they came from; None if it can't have them, or is right with them."""
    exercise = runner.exercise
    if (exercise.chunking == "none" and exercise.explain is None) or run.ranks > provenance.MOST_RANKS:
        return None
    setup = replace(run.setup, dtype="float64", values="provenance")
    again = runner.run(setup, delivery=run.delivery)
    return again if again.failure is None and result_faults(again) else None


def _demo(runner: CaseRunner, results: list[CaseResult]) -> Run | None:
    """The case whose messages the student is shown when all others are right; None if they are not, or if it is wrong itself."""
    if runner.blocked is not None or not all(r.passed for r in results):
        return None
    run = runner.run(runner.exercise.demo_setup)
    return None if run.failure is not None or result_faults(run) else run


def _trace(runner: CaseRunner, shown: Run | None) -> tuple[Trace | None, str]:
    """The student's own messages and the case that they are from: the one that shows the cause, else the demo case."""
    if shown is None:
        return None, ""
    values = replace(shown.setup, values="small", dtype="float32")
    trace, code = provenance.trace_with_chunks(shown), code_of(runner.answer)
    trace = trace.with_events(computed.with_blocks(trace.events, shown))
    if code is not None:
        trace = replace(trace, meta=trace.meta | {"code": code})
    if speed.machine_of(shown.setup) is not None:
        trace = shown.outcome.critical_path.marked(trace, shown.where)
    return trace, runner.exercise.label(values)


def on_machine(runner: CaseRunner, verdict: Verdict, machine: speed.Machine) -> Verdict:
    """The verdict with the time and the critical path of one more run, on this machine; a wrong result there tells nothing."""
    setup = speed.setup_on(runner.exercise, machine, runner.pool.size)
    run = runner.run(setup)
    if run.failure is not None or result_faults(run):
        why = "its time is told when its results are right there"
        return replace(verdict, speed=(f"On {machine.name} with {setup.ranks} ranks the answer fails: {why}.",))
    timed, (trace, label) = speed.of(run), _trace(runner, run)
    sentences = timed.sentences if timed is not None else ()
    if not verdict.passed:
        return replace(verdict, speed=sentences)
    return replace(verdict, speed=sentences, trace=trace, shown=label, expected=runner.exercise.schedule(setup))

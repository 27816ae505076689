"""From a cause to the reason that a verdict tells: what was seen, a question, the cause in words, the line to look at."""

from __future__ import annotations

import re
from dataclasses import replace

from allranks.base.errors import capital, name_ranks
from allranks.judge import compare, rules, speed
from allranks.judge.causes import Cause, Code, cause
from allranks.judge.exercise import FaultKind, ResultFault, Rule, Run, kind_of
from allranks.judge.fault import blame_of
from allranks.judge.verdict import Reason

_QUESTIONS_OF_RESULTS = {
    FaultKind.VALUES: "Which of your lines computes these values, and did the messages bring what it needs?",
    FaultKind.SHAPE: "How many elements does each rank need, and how many does your function put together?",
    FaultKind.DTYPE: "Which of your lines makes a tensor of another dtype?",
    FaultKind.RETURNED: "What does your function return, on every path and on every rank?",
    FaultKind.INPUT_CHANGED: "Which of your lines writes into memory that is the caller's?",
    FaultKind.LIST_CHANGED: "Which of your lines puts something into a list that is the caller's, or takes something out?",
    FaultKind.OTHER_MEMORY: "Which of your lines writes into the caller's memory?",
    FaultKind.COMPUTED: "What is in this tensor when the block computes?",
    FaultKind.WROTE_BESIDE: "Which of your lines writes into more than the tensor itself?",
}


def plain(finding: Cause) -> Reason:
    """The reason that is the cause's sentence, and nothing more."""
    return Reason(finding.sentence, finding)


def of_faults(run: Run, faults: tuple[ResultFault, ...], mistake: Cause | None) -> Reason:
    """The mistake, if it is known, what differs on the first rank that is wrong, and which ranks are right."""
    first = faults[0]
    again = " in the second call, though the first was right" if first.call else ""
    # what was not compared may be wrong
    whole = first.kind is not FaultKind.COMPUTED and all(
        compare.is_compared(e.returns) for e in run.expected[first.call]
    )
    right = sorted(set(range(run.ranks)) - {f.rank for f in faults}) if whole else []
    others = f" ({name_ranks(right)} {'is' if len(right) == 1 else 'are'} right)" if right else ""
    seen = f"{first.sentence}{again}{others}."
    # another part that is wrong is not the same reason
    finding = (mistake or cause(Code.RESULT, part=first.part)).with_fields(seen=first.kind, later=first.call > 0)
    told = mistake.sentence if mistake else ""
    # a question about messages is for exercises that have some
    asked = first.kind is not FaultKind.VALUES or bool(run.exercise.allow)
    return Reason(
        f"{told}: {seen}" if told else begun(run, seen),
        finding,
        seen=begun(run, seen),
        question=_QUESTIONS_OF_RESULTS.get(first.kind, "") if asked else "",
        cause=f"{begun(run, told).rstrip('.')}." if told else "",
        blame=blame_of((mistake.field("told") if mistake else None) or first.sentence),
    )


def of_origin(run: Run, reason: Reason, told: str) -> Reason:
    """The reason with where the wrong values came from."""
    sentence = f"{begun(run, told)}."
    finding = cause(Code.ORIGIN, kind=kind_of(told))
    return replace(reason, sentence=sentence, finding=finding, seen=sentence, cause="", blame=blame_of(told))


def of_provenance(reason: Reason, told: str) -> Reason:
    """The reason with what the exercise's own walk through the messages has found."""
    finding = cause(Code.ORIGIN, kind=kind_of(told))
    return replace(reason, sentence=f"{told}.", finding=finding, cause=f"{capital(told)}.", blame=blame_of(told))


def of_rule(rule: Rule, run: Run, breach: str) -> Reason:
    """How a rule is broken."""
    reason = Reason(breach, cause(Code.RULE, rule=rule.name, kind=kind_of(breach)), blame=blame_of(breach))
    told = rule.told(run) if isinstance(rule, speed.FastRule) else None
    return reason if told is None else replace(reason, seen=told[0], more=told[1])


def of_files(run: Run) -> Reason | None:
    """That a rank wrote files, if one did."""
    written = rules.writes_files(run)
    return Reason(f"{written}.", cause(Code.WRITES_FILES), blame=blame_of(written)) if written else None


def behind(words: str, reason: Reason) -> Reason:
    """The reason with these words in front of it, and of what was seen."""
    return replace(reason, sentence=words + reason.sentence, seen=words + reason.seen if reason.seen else "")


def labelled(run: Run, reason: Reason) -> Reason:
    """The reason with the case in front of it."""
    return behind(f"{run.exercise.label(run.setup)}: ", reason)


def begun(run: Run, words: str) -> str:
    """The words as the beginning of a sentence: a capital letter, but not in the name of an argument."""
    return words if re.split(r"\W", words, maxsplit=1)[0] in run.exercise.arguments else capital(words)

"""What a verdict says, once."""

import pytest
from allranks.exercises import get, names
from allranks.judge.card import BLOCKING, card
from allranks.judge.causes import Code, cause, clause
from allranks.judge.exercise import FaultKind
from allranks.judge.judging import judge
from allranks.judge.source import from_text
from allranks.judge.verdict import Case, Verdict, already_said
from allranks.ranks.wire import FailureKind

WAITS = "deadlock: a cycle, {}; rank 0 waits in send to rank 1 (line 5)."


SENDS_FIRST = """
import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    if k % p == 0:
        return tensor.clone()
    arriving = torch.empty_like(tensor.contiguous())
    dist.send(tensor.contiguous(), (rank + k) % p)
    dist.recv(arriving, (rank - k) % p)
    return arriving
"""
WAIT = cause(Code.FAILURE, failed=FailureKind.DEADLOCK)
WRONG, NOTHING = (cause(Code.RESULT, seen=kind) for kind in (FaultKind.VALUES, FaultKind.RETURNED))


def test_a_cause_is_told_once_whatever_the_ranks():
    causes = [WAIT, WAIT, WRONG, WAIT, WRONG]
    cases = [Case(name, False, "why", "", code) for name, code in zip("abcde", causes, strict=True)]
    top = "as at the top"
    assert already_said(WAIT, cases) == [top, top, "", top, 'as for "c"']
    assert already_said(NOTHING, cases) == ["", 'as for "a"', "", 'as for "a"', 'as for "c"']
    assert already_said(None, [Case("a", False, "why"), Case("b", False, "why")]) == ["", ""]
    assert already_said(None, []) == []


def test_a_group_that_says_nothing_new_says_so():
    cases = (
        Case("sum: 2 ranks", False, WAITS.format("0 → 1 → 0"), "sum", WAIT),
        Case("sum: 3 ranks", False, WAITS.format("0 → 1 → 2 → 0"), "sum", WAIT),
        Case("size: 1 rank", True, "", "size"),
        Case("size: 3 ranks", False, "It returned nothing.", "size", NOTHING),
        Case("dtype: int64", False, "It returned nothing.", "dtype", NOTHING),
    )
    verdict = Verdict("ring", False, 0.2, cases, f"2 ranks: {cases[0].reason}", finding=WAIT)
    text = verdict.text()
    assert text.splitlines()[4:] == [
        "  ✗ sum 0/2, as above",
        "  ✗ size 1/2",
        "      3 ranks: It returned nothing.",
        "  ✗ dtype, as above",
    ]
    shown = verdict.html()
    assert shown.count("as at the top") == 2
    assert shown.count("It returned nothing.") == 1 and "as for &quot;3 ranks&quot;" in shown


def test_the_words_of_a_last_check_are_whole():
    """They were cut at the first bracket or comma, or in the middle of a sentence."""
    for name in names():
        for rule in get(name).rules:
            assert cause(Code.RULE, rule=rule.name, kind="").brief(told=True).endswith(rule.name)
        for words in get(name).mistakes:
            own = cause(Code.OWN, seen=FaultKind.VALUES, **clause(words)._asdict())
            for told in (own, cause(Code.EITHER, sure=False, first=own, second=own, seen=FaultKind.VALUES)):
                brief = told.brief(told=True)
                assert told.sentence.startswith(brief), "the beginning of the cause"
                assert brief == told.sentence or told.sentence[len(brief) :].startswith(
                    (":", ";", " (", ", which ", ".")
                )
                assert brief.count("(") == brief.count(")")
    kinds = [cause(Code.RESULT, seen=kind) for kind in FaultKind] + [cause(Code.FAILURE, failed=k) for k in FailureKind]
    said = {one: one.brief(told=False) for one in kinds}
    assert all(" " in words or words == "deadlock" for words in said.values()), said


def a_card(**changes) -> str:
    cases = [
        {"name": "sum: 2 ranks", "passed": True, "reason": ""},
        *({"name": name, "passed": True, "reason": ""} for name in ("few bytes", "few rounds")),
    ]
    whole = {"exercise": "ring", "passed": True, "score": 1.0, "cases": cases, "reason": "", "judged": [True] * 3}
    return card({**whole, "groups": ["sum", "few bytes", "few rounds"], **changes})


def test_only_a_passed_verdict_says_what_was_reached():
    assert "Right: your ring sends the least there is." in a_card(won="sends the least there is")
    assert "Right:" not in a_card(won="sends the least there is", passed=False, score=0.9)
    assert "Right:" not in a_card(), "nobody said what"


def test_rules_that_were_not_judged_are_not_counted_as_broken():
    assert "2 of 2 rules kept" in a_card()
    assert "1 of 1 rule kept; 1 not judged yet" in a_card(passed=False, judged=[True, True, False])
    assert "Judged once the results are right" in a_card(passed=False, judged=[True, False, False])


def test_cases_that_pass_only_if_sends_do_not_wait_are_headed_so():
    """A card said "deadlock" and below it "All cases pass"."""
    rules = ["few bytes", BLOCKING]
    cases = [{"name": name, "passed": name != BLOCKING, "reason": ""} for name in ("sum: 2 ranks", *rules)]
    waits = {"cases": cases, "passed": False, "score": 0.6, "groups": ["sum", *rules]}
    assert "All 1 cases pass, if sends do not wait<" in a_card(**waits)
    assert "All 1 cases pass<" in a_card(**waits, judged=[True, True, False])
    verdict = judge(get("ring_shift"), from_text(SENDS_FIRST, "ring_shift", "answer.py"))
    assert "deadlock" in verdict.seen and verdict.more.startswith("If sends do not wait, all cases pass.")


@pytest.mark.parametrize("name", names())
def test_every_exercise_says_what_a_right_answer_does(name):
    """It follows "your ring_shift", so it begins with a verb, and the card ends it."""
    exercise = get(name)
    won = exercise.won or exercise.promise
    assert won.split()[0].endswith("s") and not won.endswith(".")

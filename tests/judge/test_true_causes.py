"""Causes that the log does not contradict: origins, factors, patterns that were tried, and how a verdict lays them out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch
from allranks import pipelines
from allranks.exercises import get
from allranks.exercises.families import orders
from allranks.judge import diagnose, factor, failed_run, shared
from allranks.judge.cases import Setup
from allranks.judge.causes import Code, cause
from allranks.judge.in_rank import arguments
from allranks.judge.judging import judge_text
from allranks.judge.verdict import Case, Verdict
from allranks.ranks.wire.ending import clean
from allranks.ranks.wire.failures import Misuse
from allranks.ranks.wire.messages import OpKind
from allranks.ranks.wire.requests import read_place
from allranks.ranks.wire.wait import InnerLine, Unmet, line_number, named, rows_of

EXERCISES = Path(__file__).parents[1] / "exercises"
HEAD = "import torch\nimport torch.distributed as dist\n\n"
SHIFT = """def ring_shift(tensor, k):
    p, r = dist.get_world_size(), dist.get_rank()
    if k % p == 0:
        return tensor.clone()
    out = torch.empty_like(tensor).contiguous()
"""


def verdict_on(exercise, text, pool, **options):
    return judge_text(get(exercise), HEAD + text, pool=pool, **options)


def test_a_line_in_a_helper_comes_behind_its_callers():
    assert read_place({"where": ["a.py", [5, 12]]}) == ("a.py", 5)
    assert named(read_place({"where": ["a.py", [5, 12]]})[1], line_number) == "line 12, which leads to line 5"
    assert named(InnerLine(5, 12), lambda n: f"cell 1, line {n}") == "cell 1, line 12, which leads to cell 1, line 5"
    for said in ([5], [5, "x"], ["5", 12], [5, 12, 1]):
        assert read_place({"where": ["a.py", said]}) == ("a.py", None)


def test_no_addresses_in_what_ranks_say():
    assert clean("<__main__.Thing object at 0x7f3a10>") == "<Thing object>"


def test_the_table_is_cut_after_eight_rows():
    unmet = tuple(Unmet(r, "isend", OpKind.SEND, (r + 1,), 4, r % 2, "line 3") for r in range(10))
    rows = rows_of(unmet)
    assert rows[0] == ("rank 0", "sends to rank 1", "4 bytes", "isend, line 3")
    assert rows[1][2] == "4 bytes, tag 1"
    assert len(rows) == 9 and rows[-1][0] == "and 2 more"
    assert Unmet(1, "recv", OpKind.RECV, (), 4, 0, "").row()[1] == "receives from any rank"


def test_a_stall_shows_what_found_no_partner(pool):
    text = SHIFT + "    dist.recv(out, (r - k) % p)\n    dist.send(tensor.contiguous(), (r + k) % p)\n    return out\n"
    verdict = verdict_on("ring_shift", text, pool)
    assert ("rank 0", "receives from rank 1", "12 bytes", "recv, line 9") in verdict.rows
    assert "Without a partner:" in verdict.text() and "receives from rank 1" in verdict.text()
    assert '<table class="unmet">' in verdict.html() and verdict.html().count("receives from rank 1") >= 1
    assert set(verdict.to_dict()) == {"exercise", "passed", "score", "cases", "reason"}


def test_a_missing_receive_is_no_deadlock_of_order(pool):
    text = """def halo_exchange(edge):
    p, r = dist.get_world_size(), dist.get_rank()
    e = edge.contiguous()
    if p == 1:
        return e.clone(), e.clone()
    left, right = torch.empty_like(e), torch.empty_like(e)
    first, second = dist.isend(e, (r + 1) % p), dist.isend(e, (r - 1) % p)
    dist.recv(left, (r - 1) % p)
    first.wait()
    second.wait()
    return left, right
"""
    verdict = verdict_on("halo_exchange", text, pool)
    assert "nobody received it" in verdict.reason
    assert any(row[1].startswith("sends to") for row in verdict.rows)


def test_first_what_was_seen_and_a_question_then_the_cause(pool):
    text = "def distributed_mean(tensor):\n    t = tensor.clone().contiguous()\n    dist.all_reduce(t)\n    return t\n"
    verdict = verdict_on("distributed_mean", text, pool)
    assert verdict.question.endswith("?") and "sum instead" not in verdict.seen
    assert verdict.cause.startswith("The sum instead of the mean")
    lines = verdict.text().splitlines()
    assert lines[2:5] == [f"  {verdict.seen}", f"  {verdict.question}", f"  Cause: {verdict.cause}"]
    card = verdict.html()
    assert (
        card.index(verdict.question) < card.index("<summary>Show the cause</summary>") < card.index("The sum instead")
    )
    assert "the sum instead of the mean" in verdict.reason and ".." not in verdict.reason


def test_rules_that_were_not_judged_are_neither_right_nor_wrong(pool):
    verdict = verdict_on("ring_shift", "def ring_shift(tensor, k):\n    return 1\n", pool)
    rule = next(c for c in verdict.cases if c.name == "carried by messages")
    assert not rule.judged and not rule.passed and rule.reason.startswith("not judged")
    assert "  – carried by messages: not judged" in verdict.text()
    assert verdict.html().count('aria-label="not judged"') == 3
    judged = sum(c.judged for c in verdict.cases)
    assert judged < len(verdict.cases) and f"of {judged} cases)" in verdict.text()
    assert Verdict("x", False, 0.0, (Case("a", False, "why"),)).text().startswith("x: not yet, 0% (0 of 1 cases)")


def test_the_result_of_an_even_number_is_not_called_a_power_of_two(pool):
    text = """def mirror(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    out = torch.empty_like(tensor).contiguous()
    h = dist.isend(tensor.contiguous(), p - 1 - r)
    dist.recv(out, p - 1 - r)
    h.wait()
    return out
"""
    verdict = verdict_on("mirror", text, pool)
    assert "Results are only right if the number of ranks is even" in verdict.reason
    assert "middle rank is its own mirror image" in verdict.reason
    # with a secret the text of exceptions is withheld, and the exercise's advice is not
    hidden = verdict_on("mirror", text, pool, secret=7)
    assert "middle rank is its own mirror image" in hidden.reason and "isend to rank" not in hidden.reason


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("forward_only_shard", "compute got another number of weights than the block has"),
        ("backward_in_forward_order", "compute was called for another block than the one that is next"),
        ("float32_weights", "compute got weights of another dtype than the block's shards"),
    ],
)
def test_grading_says_what_compute_refused_and_no_number_of_the_case(answer, words, pool):
    text = (EXERCISES / "wrong" / "fsdp_step" / f"{answer}.py").read_text()
    shown, hidden = (verdict_on("fsdp_step", text, pool, secret=secret) for secret in (0, 7))
    assert words in hidden.reason and words not in shown.reason, hidden.reason
    said = hidden.reason.partition(words)[2]
    assert not re.search(r"\d", said.partition(".")[0]), said


def test_all_that_a_rank_says_to_a_wrong_call_can_be_said_without_numbers():
    module = ast.parse(Path(arguments.__file__).read_text())
    built = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == "build"]
    nodes = [node for function in built for node in ast.walk(function)]
    raised = [node.exc for node in nodes if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    assert {ast.unparse(call.func) for call in raised} == {"MisuseError"}
    assert {Misuse[call.args[0].attr] for call in raised} == set(failed_run.WITHOUT_NUMBERS)


def test_waiting_that_no_order_can_avoid_is_nobodys_mistake():
    """Rank 0 waits for I0 in each order; what all W at the end leave empty is the time before I3."""
    lists = []
    for rank in range(2):
        warm = 1 - rank
        order = [f"F{i}" for i in range(warm)]
        for i in range(4 - warm):
            order += [f"F{warm + i}", f"I{i}"]
        order += [f"I{i}" for i in range(4 - warm, 4)]
        lists.append(order + [f"W{i}" for i in range(4)])
    line = pipelines.timeline(pipelines.read(lists, 4))
    assert [span.action.short for span in line.spans[0]].index("I0") == 2 and line.spans[0][2].start == 3
    assert orders.longest_wait(line) == "rank 0 is idle from 8 to 9, before I3: W0 could run in that time"


def test_each_pattern_about_ranks_must_be_tried():
    found = [(Setup(p, 12), passed) for p, passed in ((2, True), (4, True), (8, True), (3, False), (5, False))]
    told = dict(shared.properties(found))
    assert told[cause(Code.POWER_OF_TWO)](Setup(6))
    assert not told[cause(Code.EVEN)](Setup(6))
    assert all(ranks > 1 and size > 0 for ranks, size in diagnose._MORE)


def test_what_ranks_divide_is_said_of_elements_only():
    found = [(Setup(2, 4), True), (Setup(3, 6), True), (Setup(2, 5), False), (Setup(3, 7), False)]
    assert cause(Code.DIVIDES_SIZE) in dict(shared.properties(found))
    assert cause(Code.DIVIDES_SIZE) not in dict(shared.properties(found, "parameter"))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({2: 2.0, 3: 3.0}, "p times"),
        ({2: 2.0, 3: 1.5, 5: 1.25}, "p/(p-1) times"),
        ({3: 2.0, 5: 2.0}, "2 times"),
        ({2: 0.5, 4: 0.25}, "1/p times"),
        ({2: 4.0, 3: 9.0}, "p^2 times"),
        ({3: 3.0}, None),  # by one number of ranks nothing is told apart
        ({2: 2.0, 3: 5.0}, None),
    ],
)
def test_a_factor_gets_a_name_only_if_several_numbers_of_ranks_agree(values, words):
    told = factor.in_common([(Setup(p), factor.Factor(value, factor.Of.WHOLE)) for p, value in values.items()])
    assert told is None if words is None else words in told.sentence


def test_a_factor_is_no_chance():
    right = torch.tensor([3.0, -1.0, 4.0])
    assert factor._constant([(2 * right, right)]) == 2
    assert factor._constant([(2 * right[:1], right[:1])]) is None  # any number is a multiple of another
    assert factor._constant([(right + 1, right)]) is None
    assert factor._constant([(right, right)]) is None


def test_an_origin_names_ranks_and_no_values(pool):
    text = SHIFT + (
        "    h = dist.isend(tensor.contiguous(), (r + 2 * k) % p) if 2 * k % p else None\n"
        "    if h is None:\n        return tensor.clone()\n"
        "    dist.recv(out, (r - 2 * k) % p)\n    h.wait()\n    return out\n"
    )
    verdict = verdict_on("ring_shift", text, pool, secret=5)
    assert "holds rank" in verdict.reason and "but must hold rank" in verdict.reason, verdict.reason


@pytest.mark.parametrize(
    ("answer", "false"),
    (
        ("distributed_cross_entropy/sums_reduced_with_max", "the target's probability came back"),
        ("distributed_cross_entropy/owner_by_modulo", "as if each rank's columns began at 0"),
        ("ring_attention/softmax_over_the_queries", "the blocks' outputs were added"),
        ("distributed_mean/mean_of_all_elements", "reshape"),
        ("clip_gradients/own_norm", "the data came another way"),
    ),
)
def test_what_fits_special_cases_by_chance_is_not_said(answer, false, pool):
    exercise = answer.partition("/")[0]
    text = (EXERCISES / "wrong" / f"{answer}.py").read_text()
    assert false not in judge_text(get(exercise), text, pool=pool).text()


def test_only_four_is_said_after_another_case_of_four_ranks(pool):
    """Where the inputs are drawn, a few cases that show nothing may all have 4 ranks."""
    text = """def moe_dispatch_combine(tokens, experts, expert_fn):
    rank, p = dist.get_rank(), dist.get_world_size()
    order, counts = torch.argsort(experts, stable=True), torch.bincount(experts, minlength=p)
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    send, receive = counts.tolist(), theirs.tolist()
    arrived = tokens.new_empty((sum(receive), tokens.shape[1]))
    dist.all_to_all_single(arrived, tokens[order].contiguous(), receive, send)
    made, back = expert_fn(arrived), torch.empty_like(tokens, memory_format=torch.contiguous_format)
    dist.all_to_all_single(back, made.contiguous(), send, receive)
    result = torch.empty_like(back)
    result[order] = back
    return torch.where((experts == rank)[:, None], tokens, result)  # its own tokens stay as they were
"""
    verdict = verdict_on("moe_dispatch_combine", text, pool, secret=11)
    assert not verdict.passed and "p = 4" not in verdict.reason

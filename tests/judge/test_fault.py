"""The line at fault and its message, as data: named by the judge, never read off a sentence, and drawn on the card."""

from __future__ import annotations

import json

import pytest
from allranks.exercises import get
from allranks.judge.card import card
from allranks.judge.exercise import About, in_place_of
from allranks.judge.fault import blame_of, code_around, code_of
from allranks.judge.judging import judge, judge_text
from allranks.judge.message_picture import in_words, message_svg
from allranks.judge.source import from_text, read_source
from allranks.theory.trace import Event

OFF_BY_ONE = """import torch
import torch.distributed as dist


def swap(send, into, rank, p):
    ops = [dist.P2POp(dist.isend, send, (rank + 1) % p), dist.P2POp(dist.irecv, into, (rank - 1) % p)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = list(tensor.contiguous().flatten().tensor_split(p))
    for step in range(p - 1):
        into = torch.empty_like(chunks[(rank - step - 1) % p])
        swap(chunks[(rank - step) % p], into, rank, p)
        chunks[(rank - step - 1) % p] += into
    for step in range(p - 1):
        into = torch.empty_like(chunks[(rank - step - 1) % p])
        swap(chunks[(rank - step) % p], into, rank, p)
        chunks[(rank - step - 1) % p].copy_(into)
    tensor.copy_(torch.cat(chunks).view_as(tensor))
"""
SHIFT = """import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    p, r = dist.get_world_size(), dist.get_rank()
    if k % p == 0:
        return tensor.clone()
    out = torch.empty({size})
    work = dist.isend(tensor.contiguous(), (r + k) % p)
    dist.recv(out, (r - k) % p)
    work.wait()
    return out.view_as(tensor)
"""


def test_the_callers_line_and_the_incomplete_chunk_are_shown(pool):
    verdict = judge_text(get("ring_all_reduce"), OFF_BY_ONE, pool=pool)
    code, message = verdict.fault["code"], verdict.fault["message"]
    assert code["place"] == "line 20", "the line in the loop, not the one in the helper"
    assert [number for number, _ in code["lines"]] == [18, 19, 20, 21, 22]
    assert dict(code["lines"])[20].strip() == "swap(chunks[(rank - step) % p], into, rank, p)"
    assert (message["src"], message["dst"], message["step"], message["steps"]) == (0, 1, 3, 4)
    assert message["carried"] == [0] and message["sent"] == "holds rank 0 only"
    assert message["src_cells"] == [[0], [0, 1, 2], [0, 2]]
    assert json.loads(json.dumps(verdict.card()))["fault"] == verdict.fault, "another process can send it"
    shown = verdict.html()
    assert "Your line 20" in shown and "The message, step 3 of 4" in shown and "holds rank 0 only" in shown
    assert shown.count('aria-label="the line at fault"') == 1
    assert verdict.trace.meta["code"]["first"] == 11 and verdict.trace.meta["code"]["lines"][9].startswith(
        "        swap("
    )
    assert {e.line for e in verdict.trace if e.op == "send"} == {16, 20}, "the trace has the callers' lines"


def test_two_sizes_that_differ_are_drawn_between_their_ranks(pool):
    verdict = judge_text(get("ring_shift"), SHIFT.format(size="2 * tensor.numel()"), pool=pool)
    message = verdict.fault["message"]
    assert message["sent"] == "3 float32 elements" and message["expected"] == "6 float32 elements"
    assert abs(message["src"] - message["dst"]) == 1 and verdict.fault["code"]["marked"] == 11
    assert "expected: 6 float32 elements" in verdict.html()


def test_a_right_answer_has_no_fault_and_a_notebooks_lines_are_its_cells(pool):
    right = SHIFT.format(size="tensor.shape, dtype=tensor.dtype")
    assert judge_text(get("ring_shift"), right, pool=pool).fault is None
    wrong = SHIFT.format(size="tensor.shape, dtype=tensor.dtype").replace("(r + k) % p)", "(r - k) % p)")
    cells = [{"cell_type": "code", "source": text} for text in ("import torch", wrong)]
    verdict = judge(get("ring_shift"), read_source({"cells": cells, "nbformat": 4}, "ring_shift"), pool=pool)
    assert verdict.fault["code"]["place"].startswith("cell 2, line ")
    assert verdict.fault["code"]["lines"][0][0] >= 1


def test_words_keep_what_they_are_about():
    entry = Event(2, "wait", start=0.0, end=1.0, line=7)
    words = About("rank 2 waits", entry, "nothing", "something")
    longer = in_place_of(words, f"{words} too long")
    assert longer == "rank 2 waits too long" and longer.entry is entry and longer.expected == "something"
    assert (blame_of(longer).rank, blame_of(longer).line) == (2, 7)
    assert blame_of("rank 2 waits") is None and in_place_of("a", "b") == "b"


def test_a_line_of_another_file_is_not_shown():
    source = from_text(SHIFT.format(size="3"), "ring_shift", "answer.py")
    assert code_around(source, 10, "work = dist.isend(tensor.contiguous(), (r + k) % p)")["marked"] == 10
    assert code_around(source, 10, "something else") is None
    assert code_around(source, 999) is None and code_around(source, None) is None
    assert code_of(source)["first"] == 5 and code_of(print) is None


def test_what_a_submission_wrote_is_escaped():
    code = {"place": "line 1", "marked": 1, "lines": [[1, "<script>alert(1)</script>"]]}
    message = {"src": 0, "dst": 1, "ranks": 2, "sent": "<b>", "expected": "<i>"}
    shown = card(
        {"exercise": "x", "passed": False, "score": 0, "cases": [], "reason": "r"}
        | {"fault": {"code": code, "message": message}}
    )
    assert "<script>" not in shown and "<b>" not in shown and "&lt;b&gt;" in shown


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_message_without_known_contents_is_drawn_too(ranks):
    message = {"src": 0, "dst": ranks - 1, "ranks": ranks, "delivered": False}
    assert in_words(message) == f"rank 0 sends a message to rank {ranks - 1}: never received"
    assert f"rank {ranks - 1}" in message_svg(message)


def test_a_rank_that_is_added_twice_sticks_out():
    cells = {"src_cells": [[0, 0, 1]], "dst_cells": [[1]], "carried": [0, 0, 1], "chunks": [0]}
    shown = message_svg({"src": 0, "dst": 1, "ranks": 2, **cells})
    assert "0×2" in shown and shown.count("stroke-width:3") == 2

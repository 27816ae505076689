"""The rules' arithmetic and words, on logs written by hand; on real ranks they are tried by every answer of test_answers.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from allranks.judge import rules
from allranks.judge.cases import Setup, View
from allranks.judge.exercise import Run
from allranks.ranks.wire.messages import OpKind


def send(rank: int, peer: int, nbytes: int = 4, line: int | None = 7, dtype: str = "float32", **more):
    return SimpleNamespace(
        kind=OpKind.SEND, rank=rank, peer=peer, nbytes=nbytes, numel=nbytes // 4, dtype=dtype, line=line, **more
    )


def collective(rank: int, line: int | None = 7, received_nbytes: int = 0, call: int = 0):
    return SimpleNamespace(
        kind=OpKind.COLLECTIVE,
        rank=rank,
        nbytes=4,
        numel=1,
        dtype="float32",
        line=line,
        call=call,
        received_nbytes=received_nbytes,
    )


def run(
    log: list, ranks: int = 4, shape: tuple = (10,), times: int = 1, seconds: float = 0.0, needed: tuple = ()
) -> Run:
    view = View.of(torch.zeros(shape))
    return Run(
        exercise=SimpleNamespace(rules=needed),
        setup=Setup(ranks, view.tensor().numel(), times=times),
        args=(((view,),) * ranks,) * times,
        expected=(),
        results=(),
        outcome=SimpleNamespace(log=log, seconds=seconds),
        delivery="rendezvous",
    )


def round_the_ring(nbytes: int, ranks: int = 4) -> list:
    """A log in which each rank sends so many bytes to its right neighbour."""
    return [send(r, (r + 1) % ranks, nbytes) for r in range(ranks)]


def test_a_result_without_a_message_breaks_the_rules():
    said = "the result is right, but no rank sent a message; the data came another way"
    assert rules.no_messages(run([])) == said
    assert rules.no_messages(run([], ranks=2)) == said
    assert rules.no_messages(run([send(0, 1)])) is None
    assert rules.no_messages(run([collective(0)])) is None
    assert rules.no_messages(run([], ranks=1)) is None
    assert rules.no_messages(run([], shape=(0,))) is None
    assert rules.no_messages(run([], needed=(rules.carried(),))) == said
    assert rules.no_messages(run([], needed=(rules.carried(rules.nothing, rules.nothing),))) is None
    for rule in (
        lambda r: rules.chunk_bytes(r, 2, "x"),
        lambda r: rules.rounds(r, 9, "x"),
        lambda r: rules.calls(r, "all_reduce", "x", most=1),
        lambda r: rules.received_at_most(r, 9, "x"),
    ):
        assert rule(run([])) == said


@pytest.mark.parametrize(
    ("shape", "times", "low", "high"),
    [
        ((10,), 1, 56, 72),  # chunks of 3, 3, 2, 2: 2 * (10 - 3) to 2 * 3 * 3 elements
        ((8,), 1, 48, 48),
        ((10,), 3, 168, 216),
        ((5, 2), 1, 48, 96),  # whole rows: chunks of 2, 1, 1, 1 rows of two elements
        ((3, 4), 1, 64, 96),
    ],
)
def test_a_rank_sends_its_share_up_to_the_rounding_of_chunks(shape, times, low, high):
    def said(nbytes):
        return rules.chunk_bytes(run(round_the_ring(nbytes), shape=shape, times=times), 2, "2(p-1)/p of the bytes")

    assert said(low) is None and said(high) is None
    wanted = f"2(p-1)/p of the bytes are {low}" + (f" to {high}" if high > low else "")
    assert said(low - 4) == f"rank 0 sends {low - 4} bytes, too few: {wanted}"
    assert said(high + 4) == f"rank 0 sends {high + 4} bytes, too many: {wanted}"


def test_whole_vectors_are_called_by_their_name():
    whole = [send(r, (r + 1) % 4, 40, line=step + 5) for step in range(3) for r in range(4)]
    assert rules.chunk_bytes(run(whole), 2, "2(p-1)/p") == (
        "rank 0 sends whole vectors (line 5): 120 bytes in all, but 2(p-1)/p (72 bytes) are enough. "
        "Cut the tensor into p chunks and send one chunk in each step"
    )
    assert "too many" in rules.chunk_bytes(run(round_the_ring(116)), 2, "2(p-1)/p")
    assert "whole vectors" in rules.chunk_bytes(run([*whole, *whole], times=2), 2, "2(p-1)/p")
    assert "too many" in rules.chunk_bytes(run(round_the_ring(236), times=2), 2, "2(p-1)/p")
    # with two ranks the whole vector is what a ring sends
    assert rules.chunk_bytes(run(round_the_ring(40, 2), ranks=2), 2, "2(p-1)/p") is None
    halves = [send(r, 1 - r, 20) for _ in range(2) for r in range(2)]
    assert rules.chunk_bytes(run(halves, ranks=2), 1, "(p-1)/p") == "rank 0 sends 40 bytes, too many: (p-1)/p are 20"


def test_a_message_keeps_its_dtype():
    assert rules.wrong_dtype(run(round_the_ring(8))) is None
    assert rules.wrong_dtype(run([send(0, 1), send(2, 3, 8, line=9, dtype="float64")])) == (
        "rank 2 sends float64, but the tensor is float32 (line 9), and float64 has twice the bytes: send the tensor's own dtype"
    )
    assert rules.wrong_dtype(run([send(2, 3, 8, line=9, dtype="bfloat16")])) == (
        "rank 2 sends bfloat16, but the tensor is float32 (line 9): send the tensor's own dtype"
    )
    assert rules.wrong_dtype(run([send(0, 1, 0, dtype="float64")])) is None  # nothing was sent


def test_values_go_in_their_dtype_or_as_bytes_and_counts_in_an_integer_dtype():
    for kind in ("float32", "uint8", "int8"):
        assert rules.other_dtype(run([send(0, 1, dtype=kind)]), 0) is None
    assert "send the tensor's own dtype" in rules.other_dtype(run([send(0, 1, dtype="int64")]), 0)
    assert rules.other_dtype(run([send(0, 1, dtype="int64")]), 0, whole=True) is None
    assert rules.other_dtype(run([send(0, 1, dtype="float64")]), 0, whole=True) == (
        "rank 0 sends float64, but the tensor is float32 (line 7), and float64 has twice the bytes: send values in the tensor's own "
        "dtype, and indices and counts in an integer dtype"
    )
    assert rules.other_dtype(run([send(0, 1, dtype="int32")])) is None
    assert rules.other_dtype(run([send(0, 1)])) == (
        "rank 0 sends float32 (line 7): counts are whole numbers, so send them in an integer dtype"
    )


def test_ring_neighbours():
    assert rules.ring_neighbours(run(round_the_ring(8))) is None
    assert rules.ring_neighbours(run([send(r, (r - 1) % 4) for r in range(4)])) is None
    assert rules.ring_neighbours(run([send(0, 1), send(1, 3), send(2, 3)])) == (
        "rank 1 sends to rank 3 (line 7), which is not its neighbour on the ring: only ranks 0 and 2 are"
    )
    assert rules.ring_neighbours(run([send(3, 1), send(0, 1, line=None)])).startswith(
        "every message goes through rank 1 (rank 3 sends to rank 1 (line 7)): that rank carries p-1 vectors each way."
    )


def test_rounds():
    one = round_the_ring(8)
    assert rules.rounds(run(one, seconds=2.0), 2, "lg p") is None
    assert rules.rounds(run(one, seconds=3.0), 2, "lg p") == (
        "3 rounds of messages one after the other, but lg p = 2 are enough"
    )
    centre = [send(0, 1), send(0, 2), send(0, 3)]
    assert rules.rounds(run(centre, seconds=3.0), 2, "lg p") == (
        "3 rounds of messages one after the other, all of them through rank 0, but lg p = 2 are enough"
    )


def test_calls_are_counted_rank_by_rank():
    def said(counts: list[int], times: int = 1, least: int = 0, most: int = 1):
        log = [collective(r, line=10 + i) for r, n in enumerate(counts) for i in range(n)]
        return rules.calls(
            run(log, ranks=len(counts), times=times), "all_reduce", "one is enough", least=least, most=most
        )

    assert said([1, 1, 0]) is None
    assert said([1, 2, 1]) == "rank 1 calls all_reduce 2 times (line 11): one is enough"
    assert said([2, 2, 2], times=2) is None
    assert said([2, 3, 2], times=2) == "rank 1 calls all_reduce 3 times (line 12): one is enough"
    assert said([1, 1, 1], least=1) is None
    assert said([1, 0, 1], least=1) == "rank 1 never calls all_reduce, but every rank must call it once"
    assert said([2, 1, 2], times=2, least=1) == "rank 1 calls all_reduce once, but every rank must call it 2 times"
    assert said([5, 4, 5], least=5, most=5) == "rank 1 calls all_reduce 4 times, but every rank must call it 5 times"
    assert said([15, 14, 15], times=3, least=5, most=5) == (
        "rank 1 calls all_reduce 14 times, but every rank must call it 15 times"
    )


def test_what_a_rank_receives_in_one_call():
    log = [
        collective(0, received_nbytes=8),
        collective(1, 20, 8),
        collective(1, 21, 9, call=1),
        collective(1, 22, 3, call=1),
    ]
    assert rules.received_at_most(run(log, ranks=2, times=2), 12, "16 bytes") is None
    assert rules.received_at_most(run(log, ranks=2, times=2), 11, "a pair") == (
        "rank 1 receives 12 bytes (line 21), but a pair = 11 are enough"
    )
    assert rules.received_at_most(run(log, ranks=2, times=2), 7, "a pair") == (
        "rank 0 receives 8 bytes (line 7), but a pair = 7 are enough"
    )

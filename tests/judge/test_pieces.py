"""An IndexError is put down to pieces that are too few only if just those sizes fail that make too few."""

import pytest
import torch
from allranks.judge import pieces
from allranks.judge.cases import Setup
from allranks.judge.verdict import Reason
from allranks.ranks.wire import Failure, FailureKind

TOO_FEW = (Setup(2, 1), Setup(4, 9), Setup(5, 12))
ENOUGH = (Setup(2, 5), Setup(3, 7), Setup(4, 10))
FAILURE = Failure(FailureKind.EXCEPTION, "", error="IndexError")
SEEN = Reason("Rank 1 raised IndexError.", (), "Rank 1 raised IndexError.")


def _cause(failed, others, text="flat.chunk(p)", unit="element"):
    return pieces.with_cause(SEEN, FAILURE, failed[0], failed, others, text, unit).cause


@pytest.mark.parametrize("setup", TOO_FEW)
def test_torch_makes_as_many_pieces(setup):
    assert len(torch.zeros(setup.size).chunk(setup.ranks)) == pieces.pieces_of(setup.size, setup.ranks) < setup.ranks


def test_just_these_sizes_fail():
    assert "1 element gives 1 piece, but p is 2" in _cause(TOO_FEW, ENOUGH)
    assert "9 elements give 3 pieces, but p is 4" in _cause(TOO_FEW[1:], ENOUGH)


def test_an_answer_that_calls_neither_chunk_nor_split_probably_cut_so():
    assert _cause(TOO_FEW, ENOUGH).startswith("Pieces of")
    assert _cause(TOO_FEW, ENOUGH, "flat.tensor_split(p)").startswith("Probably pieces of")


def test_fewer_elements_than_ranks():
    cause = _cause((Setup(2, 1), Setup(4, 3)), (*ENOUGH, Setup(4, 9)))
    assert cause.startswith("1 element gives at most 1 piece that is not empty, but p is 2")


def test_the_sizes_contradict_it():
    assert not _cause((*TOO_FEW, Setup(4, 10)), ENOUGH[:2])  # a size fails that makes enough pieces
    assert not _cause(TOO_FEW[:2], (*ENOUGH, Setup(5, 12)))  # a size that makes too few has another result
    assert not _cause(TOO_FEW, ())  # nothing else was run
    assert not _cause(TOO_FEW, ENOUGH, unit="token a rank")


def test_pieces_of_pieces_are_only_asked_about():
    reason = pieces.with_cause(
        SEEN, FAILURE, TOO_FEW[0], (*TOO_FEW, Setup(4, 10)), ENOUGH[:2], "flat.chunk(p)", "element"
    )
    assert (reason.sentence, reason.cause) == (SEEN.sentence, "")
    assert reason.question.startswith("How many pieces")


@pytest.mark.parametrize(("text", "cause"), (("first, second = flat.chunk(2)", "Pieces of"), ("raise ValueError", "")))
def test_a_value_error_needs_chunk_or_split_too(text, cause):
    failure = Failure(FailureKind.EXCEPTION, "", error="ValueError")
    told = pieces.with_cause(SEEN, failure, TOO_FEW[0], TOO_FEW, ENOUGH, text, "element")
    assert told.cause[:9] == cause
    assert bool(told.question) is bool(cause)

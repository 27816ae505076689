"""Draws: the same numbers on every machine, a stream for each rank, and scores that don't depend on the secret."""

from pathlib import Path

import pytest
import torch
from allranks.exercises import get
from allranks.judge.cases import Setup, different_values
from allranks.judge.drawing import Draws
from allranks.judge.judging import judge
from allranks.judge.source import read_source

WRONG = Path(__file__).parents[1] / "exercises" / "wrong"


def test_the_numbers_are_these_on_every_machine():
    draws = Draws("inputs", 1)
    assert draws.integers(0, 1000, 4).tolist() == [17, 827, 129, 113]
    assert draws.of_rank(0).integers(0, 1000, 4).tolist() == [510, 805, 594, 836]


def test_each_rank_has_a_stream_of_its_own_which_goes_on():
    draws = Draws("inputs", 1)
    first, more = draws.of_rank(2).integers(0, 1 << 60, 3), draws.of_rank(2).integers(0, 1 << 60, 3)
    assert not torch.equal(first, more)
    assert torch.equal(first, Draws("inputs", 1).of_rank(2).integers(0, 1 << 60, 3))
    assert not torch.equal(first, Draws("inputs", 1).of_rank(1).integers(0, 1 << 60, 3))
    assert not torch.equal(first, Draws("inputs", 2).of_rank(2).integers(0, 1 << 60, 3))


def test_the_distributions_are_what_their_names_say():
    draws = Draws("distributions")
    numbers = draws.integers(-3, 4, 7000)
    assert [abs(int((numbers == n).sum()) - 1000) < 150 for n in range(-3, 4)] == [True] * 7
    uniform, normal = draws.uniform(10_000), draws.normal(10_000)
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05
    assert sorted(draws.permutation(9)) == list(range(9)) and draws.integers(0, 5).shape == ()
    assert len(set(draws.distinct(50))) == 50
    assert draws.integers(0, 9, 0, 3).shape == (0, 3)


def test_the_order_of_messages_tells_nothing_of_the_inputs():
    setup = Setup(3, 8)
    assert setup.order_seed(5) != setup.order_seed(6) and setup.order_seed(5).bit_length() > 100
    assert setup.draws(5).words[0] != "order"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_no_two_elements_are_alike_by_luck(dtype):
    for secret in range(50):
        values = torch.cat(different_values(Setup(3, 6, dtype), [6, 6, 6], Draws(secret)))
        assert len(values.unique()) == 18


@pytest.mark.parametrize(
    "name",
    [
        *("distributed_top_k/torch_topk", "distributed_top_k/late_ties", "distributed_argmax/ignores_nan"),
        *("distributed_argmax/last_tie", "embedding_lookup/order_of_owners", "moe_dispatch_combine/sorted_by_expert"),
        *(
            "distributed_argmax/magnitude",
            "distributed_argmax/joined_index",
            "distributed_mean/int_div",
            "ring_all_reduce/chunks_of_torch_chunk",
        ),
        *("ring_shift/without_the_sign", "tree_broadcast/root_zero", "moe_dispatch_combine/idle_rank_leaves"),
        *(
            "mean_loss/own_count",
            "mean_of_samples/own_count_times_p",
            "reshard/own_first",
            "top_k_all_reduce/added_once",
        ),
        *("ulysses_attention/heads_interleaved", "shift_through_slots/only_whole_slots", "ring_attention/no_maximum"),
    ],
)
def test_a_wrong_answer_gets_the_same_score_with_every_secret(name, pool):
    path = WRONG / f"{name}.py"
    source = read_source(path, path.parent.name)
    scores = {judge(get(path.parent.name), source, pool=pool, secret=secret).score for secret in range(1, 6)}
    assert len(scores) == 1

"""Splits ranked by the seconds of a step: those that fit, the fastest first, and one sentence where none does."""

import pytest
from allranks.theory.cost.ranking import in_words, ranked_plans
from allranks.theory.cost.step import training_step
from allranks.theory.cost.workload import WorkloadError


def test_the_fastest_that_fits_comes_first():
    found = ranked_plans("LLaMA 65B", "dgx-h100", ranks=64, batch=2048)
    assert [step.seconds for step in found] == sorted(step.seconds for step in found)
    assert all(step.nbytes <= 80e9 and step.fits and step.plan.ranks == 64 for step in found)
    again = training_step(found[0].plan, recompute=found[0].recompute)
    assert again.seconds == found[0].seconds and again.memory == found[0].memory
    assert len({in_words(step) for step in found}) == len(found) > 100


def test_a_smaller_gpu_refuses_what_a_larger_one_takes():
    small, large = (ranked_plans("7B", machine, ranks=8) for machine in ("p4d", "dgx-a100"))
    shapes = [{in_words(step) for step in found} for found in (small, large)]
    assert shapes[0] < shapes[1] and max(step.nbytes for step in small) <= 40e9
    assert "dp 8, no ZeRO, microbatches of 1" not in shapes[1]  # 16 bytes a parameter are 112 GB


def test_what_is_given_is_kept():
    found = ranked_plans("GPT-3 175B", "dgx-a100", 512, 1536, recompute="full", tp=8, pp=8, chunks=3, microbatch=1)
    assert {(s.plan.tp, s.plan.pp, s.plan.chunks, s.plan.microbatch, s.recompute) for s in found} == {
        (8, 8, 3, 1, "full")
    }
    assert {step.plan.zero_stage for step in found} == {0, 1, 2, 3}
    hidden = ranked_plans("GPT-3 175B", "dgx-a100", 512, 1536, tensor_overlap=True, tp=8, pp=8, chunks=3, microbatch=1)
    assert hidden[0].seconds < found[0].seconds
    assert {step.plan.ep for step in ranked_plans("Mixtral 8x7B", "dgx-h200", 32, tp=1, pp=1)} > {1, 8}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("GPT-3 175B", "p4d", 8), "splits fits: dp 1 x tp 8, .* needs the least, .* GB a GPU, and A100 has 40 GB"),
        (("7B", "dgx-h100", 0), "ranks is 0"),
        (("7B", "dgx-h100", 8, 3), "batch is 3, which dp x microbatch"),
        (("7B", "pcie-8", 16), "one node of 8 ranks, not 16"),
    ],
)
def test_nothing_that_fits_is_one_sentence(call, words):
    with pytest.raises(WorkloadError, match=words) as caught:
        ranked_plans(*call, **({"tp": 1, "pp": 1} if len(call) > 3 else {}))
    assert "\n" not in str(caught.value)


def test_a_split_that_does_not_divide_or_is_unknown():
    with pytest.raises(WorkloadError, match="tp x pp x cp is 3, which does not divide 64 ranks"):
        ranked_plans("7B", "dgx-h100", 64, tp=3)
    with pytest.raises(WorkloadError, match="tp x pp x cp is 0"):
        ranked_plans("7B", "dgx-h100", 64, cp=0)
    with pytest.raises(WorkloadError, match="there is no 'dp' in a split"):
        ranked_plans("7B", "dgx-h100", 64, dp=3)

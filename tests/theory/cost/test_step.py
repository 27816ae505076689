"""A step of training: its memory and seconds, by hand; context parallelism; and the exchange with a favourite."""

from __future__ import annotations

from dataclasses import replace

import pytest
from allranks import cost, plan, topology
from allranks.theory.cost import kernels, workload
from allranks.theory.cost.kernels import Gpu
from allranks.theory.cost.plan import MODELS, Model, Plan, custom_model
from allranks.theory.cost.step import activation_nbytes, training_step
from allranks.theory.cost.workload import WorkloadError


def test_a_step_by_hand():
    split = plan("LLaMA 65B", "dgx-h100", dp=8, tp=4, pp=2, zero_stage=1, batch=2048)
    found = training_step(split, flop_per_s=1e15, kernels=0.5)
    useful = (6 * 65.2e9 + 12 * 80 * 8192 * 2048) * 2048 * 2048 / (64 * 1e15)
    assert found.spent["useful"] == pytest.approx(useful)
    assert found.spent["kernels"] == pytest.approx(useful)
    assert found.spent["tensor"] == split.prices["tensor"].seconds
    assert found.spent["waits"] == pytest.approx((2 * useful + found.spent["tensor"]) / 256)
    # 256 microbatches: the gradients have the computing of one of them, 40 layers, nearly nothing to hide behind
    data, one = split.prices["data"].seconds, 2 * useful / 256
    assert found.spent["data"] == pytest.approx(max(data - one * 39 / 40, data / 40))
    assert found.mfu == pytest.approx(useful / sum(found.spent.values()))
    assert found.lost_s == pytest.approx(found.seconds - 2 * useful)


def test_memory_is_that_of_the_plan_and_what_activations_take():
    split = plan("LLaMA 65B", "dgx-h100", dp=8, tp=4, pp=2, zero_stage=1, batch=2048)
    found = training_step(split, other_nbytes=0)
    assert found.nbytes - found.memory["activations"] == split.state_nbytes == sum(split.state_parts)
    assert activation_nbytes(split) == 34 * 2048 * 8192 * 80 / 4  # the first stage holds two microbatches of 40 layers
    cut = plan("LLaMA 65B", "dgx-h100", dp=4, tp=4, pp=2, cp=2, zero_stage=1, batch=2048)
    assert activation_nbytes(cut) == activation_nbytes(split) / 2


def test_zero_3_hides_behind_all_of_the_computing():
    split = plan("LLaMA 65B", "dgx-h100", dp=64, zero_stage=3, batch=2048)
    found = training_step(split)
    data, compute = split.prices["data"].seconds, found.spent["useful"] + found.spent["kernels"]
    assert found.spent["data"] == pytest.approx(max(data - compute * (1 - 1 / 2560), data / 2560))


def test_one_rank_loses_nothing():
    assert training_step(plan("7B", "dgx-h100")).lost_s == pytest.approx(0)


def test_a_token_uses_the_experts_that_it_goes_to():
    model = plan("Mixtral 8x7B", "dgx-h100", dp=32, batch=512)
    active = model.model.parameters - model.model.expert_parameters * 6 / 8
    assert training_step(model, flop_per_s=1.0).spent["useful"] == pytest.approx(
        (6 * active + 12 * 32 * 4096 * 4096) * 512 * 4096 / 32
    )


def test_context_parallel_ranks_share_sequences_and_gradients():
    split = plan("LLaMA 65B", "dgx-h100", dp=2, cp=4, zero_stage=1)
    alone = plan("LLaMA 65B", "dgx-h100", dp=8, zero_stage=1)
    assert split.ranks == alone.ranks and split.state_nbytes == alone.state_nbytes
    assert split.prices["data"] == alone.prices["data"]
    # three times K and V of 512 tokens, forward, backward, and their gradients: 80 layers, 128 microbatches
    sent = 3 * 3 * 2 * 512 * 8192 * 2 * 80 * 128
    assert split.prices["context"].bytes_sent == sent
    assert workload.context_parallel(80, 1, 2048, 8192, split.group(1, 4)).times(128).bytes_sent == sent


@pytest.mark.parametrize(
    ("model", "split", "words"),
    [("7B", {"cp": 3}, "sequence is 2048"), ("Mixtral 8x7B", {"cp": 2, "ep": 2, "dp": 2}, "both are not priced")],
)
def test_what_context_parallelism_can_not_do(model, split, words):
    with pytest.raises(WorkloadError, match=words):
        plan(model, "dgx-h100", **split)


@pytest.mark.parametrize("hottest", [1 / 8, 0.5, 0.9])
def test_the_skewed_exchange_is_what_the_wires_clock_counts(hottest):
    import torch
    import torch.distributed as dist
    from allranks import wire

    def exchange():
        rank, p = dist.get_rank(), dist.get_world_size()
        share = [round(5600 * part) for part in [hottest] + [(1 - hottest) / 7] * 7]
        out = [torch.zeros(n, dtype=torch.uint8) for n in share]
        for turn in range(1, p):
            up, down = (rank + turn) % p, (rank - turn) % p
            arriving = torch.empty_like(out[rank])
            pair = [dist.P2POp(dist.isend, out[up], up), dist.P2POp(dist.irecv, arriving, down)]
            for work in dist.batch_isend_irecv(pair):
                work.wait()

    found = wire.run(exchange, ranks=8, alpha=5e-6, beta=1e-8).seconds
    assert found == pytest.approx(cost.skewed_exchange_s(8, 5600, hottest, 5e-6, 1e-8), rel=1e-3)


def test_a_capacity_bounds_the_time_and_drops_the_rest():
    assert cost.skewed_exchange_s(8, 800, 0.5, 1, 1, capacity=2) == 7 * (1 + 200)
    assert cost.dropped_share(8, 0.5, capacity=2) == 0.25
    for bad in ({"hottest": 0.1}, {"hottest": 1.1}, {"hottest": 0.5, "capacity": 0.5}):
        with pytest.raises(cost.CostError):
            cost.skewed_exchange_s(8, 800, alpha=1, beta=1, **bad)


def test_tensor_parallel_sending_hides_behind_the_multiplications_it_is_cut_with():
    split = plan("LLaMA 65B", "dgx-h100", dp=8, tp=8, zero_stage=1, batch=2048)
    bare, hidden = training_step(split), training_step(split, tensor_overlap=True)
    whole = bare.spent["tensor"]
    compute = bare.spent["useful"] + bare.spent["kernels"]
    assert hidden.spent["tensor"] == pytest.approx(max(whole / 8, whole - compute * 7 / 8))
    assert hidden.seconds < bare.seconds
    nothing = plan("7B", "dgx-h100", dp=8)
    assert training_step(nothing, tensor_overlap=True).spent == training_step(nothing).spent


def test_recomputing_all_keeps_the_input_of_each_layer_and_costs_a_forward_pass():
    split = plan("LLaMA 65B", "dgx-h100", dp=8, tp=4, pp=2, zero_stage=1, batch=2048)
    less, bare = training_step(split, recompute="full"), training_step(split)
    assert less.memory["activations"] == pytest.approx(bare.memory["activations"] * 2 / 34)
    assert less.spent["recomputed"] == pytest.approx(bare.spent["useful"] / 3)
    again, once = (
        step.spent["kernels"] + step.spent["useful"] + step.spent.get("recomputed", 0) for step in (less, bare)
    )
    assert 1.25 < again / once < 4 / 3  # all but the logits, and attention backward takes longer than forward
    # six all-reduces a layer instead of four, as `allranks price tensor --recompute` counts them
    group = split.group(1, 4)
    six = workload.tensor_parallel(40, 1, 2048, 8192, group, recompute=True).times(256).seconds
    assert less.spent["tensor"] == pytest.approx(six) and less.spent["tensor"] > bare.spent["tensor"]
    assert less.mfu < bare.mfu
    parts = less.spent["useful"] + less.spent["kernels"] + less.spent["recomputed"]
    assert less.lost_s == pytest.approx(less.seconds - parts)


def test_the_scores_of_attention_need_heads_and_take_memory_and_time():
    own = replace(MODELS["7B"], heads=0)
    for way in ({"recompute": "none"}, {"flash": False}):
        with pytest.raises(WorkloadError, match=r"the model \(7B\) has no heads"):
            training_step(Plan(own, topology.preset("dgx-h100"), dp=8), **way)
    with pytest.raises(WorkloadError, match="has no heads"):
        activation_nbytes(Plan(own, topology.preset("dgx-h100"), dp=8), "none")
    split = plan("7B", "dgx-h100", dp=8)
    kept, flash = training_step(split, recompute="none"), training_step(split)
    # 5as/h bytes more for each token and element of hidden
    scores = kept.memory["activations"] / flash.memory["activations"]
    assert scores == pytest.approx((34 + 5 * 32 * 2048 / 4096) / 34)
    again = training_step(split, flash=False)
    assert again.memory["activations"] == flash.memory["activations"]
    assert flash.seconds < kept.seconds < again.seconds


def test_a_layer_s_computing_by_hand():
    gpu = Gpu("own", 80e9, 1e15, 1e12, 0.8, "made up")
    split = Plan(Model("own", 1e10, 10, 1000, 2000), topology.preset("dgx-h100"), dp=2, batch=2)
    found = kernels.computing(split, gpu, 1e10, "selective", flash=True)
    products = 2 * 2000 * 1e9 / 0.8e15  # each of the four has 10^12 operations: as fast as it can be
    attention = 2 * 2000 * 2000 * 1000 / 0.5e15
    other = 50 * 2000 * 1000 / 0.85e12
    assert found.forward_s == pytest.approx(products + attention + other)
    assert found.backward_s == pytest.approx(2 * products + 2.5 * attention + 2 * other)
    assert found.again_s == found.logits_s == 0
    assert kernels.computing(split, gpu, 1e10, "full", flash=True).again_s == found.forward_s


def test_smaller_products_are_slower():
    shares = [kernels.product_share(1e9 * size) for size in (0, 0.5, 1, 8, 16, 128, 10_000)]
    assert shares == sorted(shares) and shares[0] == pytest.approx(0.1 / 0.95) and shares[-2:] == [1, 1]
    small, large = (training_step(plan("7B", "dgx-h100", dp=8, tp=tp, batch=64)) for tp in (8, 1))
    assert small.spent["kernels"] / small.spent["useful"] > large.spent["kernels"] / large.spent["useful"]


def test_interleaved_stages_wait_less_and_keep_more():
    shape = {"dp": 2, "tp": 8, "pp": 8, "zero_stage": 1, "batch": 64}
    plain, cut = (training_step(plan("GPT-3 175B", "dgx-a100", chunks=v, **shape)) for v in (1, 3))
    assert cut.plan.bubble == pytest.approx(7 / (3 * 32 + 7)) and plain.plan.bubble == pytest.approx(7 / 39)
    assert cut.spent["waits"] < plain.spent["waits"] and cut.spent["sends"] == pytest.approx(3 * plain.spent["sends"])
    assert cut.memory["activations"] == pytest.approx(plain.memory["activations"] * (1 + 7 / 24))
    for split, words in (({"chunks": 5}, "pp x chunks = 40"), ({"chunks": 3, "batch": 20}, "microbatches is 10")):
        with pytest.raises(WorkloadError, match=words):
            plan("GPT-3 175B", "dgx-a100", **shape | split)


def test_a_vocabulary_larger_than_the_model_is_one_sentence():
    with pytest.raises(WorkloadError, match="give it more parameters, or vocabulary=0"):
        plan(custom_model(MODELS["7B"], parameters=1e8), "dgx-h100", dp=8)
    with pytest.raises(WorkloadError, match="heads is -1"):
        plan(custom_model(MODELS["7B"], heads=-1), "dgx-h100", dp=8)


def test_one_bucket_hides_nothing_and_few_hide_less():
    """With one call all gradients are sent when backward has ended; with fewer buckets than layers a piece is a bucket."""
    whole, few, many = (plan("my model", "dgx-h100", dp=64, batch=256, bucket_nbytes=n) for n in (None, 7e9, 250 << 20))
    data = whole.prices["data"].seconds
    assert training_step(whole).spent["data"] == data == whole.prices["data"].parts[0].seconds
    compute = sum(training_step(few).spent[part] for part in ("useful", "kernels")) / 4
    sent = few.prices["data"].seconds
    assert training_step(few).spent["data"] == pytest.approx(max(sent - compute / 2, sent / 2))
    assert training_step(many).spent["data"] == pytest.approx(many.prices["data"].seconds / 32)

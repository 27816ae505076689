"""Activation memory, MFU, HFU and the bounds of communication, held against published figures."""

from __future__ import annotations

import pytest
from allranks import pipelines, rooflines, workload
from allranks.theory.cost import CostError

GPT3 = {"tokens": 2048, "hidden": 12288, "heads": 96, "sequence": 2048}
A100, H100 = 312e12, 989e12


@pytest.mark.parametrize(
    ("split", "megabytes"),
    [
        ({}, 2869),
        ({"tp": 8}, 579),
        ({"tp": 8, "sequence_parallel": True}, 359),
        ({"tp": 8, "recompute": "selective"}, 327),
        ({"tp": 8, "sequence_parallel": True, "recompute": "selective"}, 107),
        ({"tp": 8, "recompute": "full"}, 50),
    ],
)
def test_a_layer_of_gpt_3_keeps_what_korthikantis_table_2_gives(split, megabytes):
    assert rooflines.layer_activation_nbytes(**GPT3, **split) / 1e6 == pytest.approx(megabytes, abs=0.5)


@pytest.mark.parametrize("heads", [16, 96])
@pytest.mark.parametrize("t", [1, 2, 8])
def test_the_formulas_as_they_are_printed(heads, t):
    s, b, h = 1024, 3, 4096
    given = {"tokens": s * b, "hidden": h, "heads": heads, "sequence": s, "tp": t}
    keeps = rooflines.layer_activation_nbytes
    assert keeps(**given) == pytest.approx(s * b * h * (10 + 24 / t + 5 * heads * s / (h * t)))
    assert keeps(**given, sequence_parallel=True) == pytest.approx(s * b * h / t * (34 + 5 * heads * s / h))
    assert keeps(**given, sequence_parallel=True, recompute="selective") == pytest.approx(34 * s * b * h / t)
    assert keeps(**given, recompute="full") == 2 * s * b * h
    assert keeps(**given, sequence_parallel=True, recompute="full") == pytest.approx(2 * s * b * h / t)


def test_elements_of_four_bytes_double_what_is_no_mask():
    two, four = (rooflines.layer_activation_nbytes(**GPT3, element_nbytes=e) for e in (2, 4))
    masks = GPT3["tokens"] * GPT3["hidden"] * (2 + 96 * 2048 / 12288)
    assert four == pytest.approx(2 * two - masks)


@pytest.mark.parametrize(
    ("split", "gibibytes"),
    [({"recompute": "none"}, 66.84), ({"sequence_parallel": True, "recompute": "selective"}, 12.35)],
)
def test_gpt_3_on_8_stages_of_3_chunks_keeps_what_calculons_figure_1_shows(split, gibibytes):
    layer = rooflines.layer_activation_nbytes(**GPT3, tp=8, **split)
    assert rooflines.activation_nbytes(layer, 96, stages=8, chunks=3) / 2**30 == pytest.approx(gibibytes, abs=0.005)


@pytest.mark.parametrize(
    ("name", "stages", "chunks", "microbatches"),
    [
        ("1f1b", 4, 1, 8),
        ("1f1b", 8, 1, 3),
        ("interleaved", 4, 2, 8),
        ("interleaved", 4, 3, 4),
        ("interleaved", 2, 2, 6),
    ],
)
def test_layers_kept_are_those_that_a_pipeline_in_virtual_time_keeps(name, stages, chunks, microbatches):
    several = {"stages_per_rank": chunks} if chunks > 1 else {}
    ran = pipelines.timeline(pipelines.orders(name, stages, microbatches, **several))
    layers = 6 * stages * chunks
    counted = [rooflines.layers_kept(layers, stages, chunks, r, microbatches) for r in range(stages)]
    assert counted == pytest.approx([kept * layers / stages for kept in ran.peaks()])


def test_layers_kept_at_the_edges():
    assert rooflines.layers_kept(96) == rooflines.layers_kept(96, chunks=4) == 96
    assert rooflines.layers_kept(96, stages=8) == 96
    assert rooflines.layers_kept(96, stages=8, stage=7) == 12
    assert rooflines.layers_kept(96, stages=8, microbatches=2) == 24
    assert rooflines.layers_kept(32, stages=4, chunks=2) == 11 * 4  # facts of interleaved 1F1B: 5.5 of 8 layers
    assert rooflines.layers_kept(96, stages=8, chunks=3, microbatches=1) == 12


@pytest.mark.parametrize(
    ("layers", "hidden", "batch", "gpus", "seconds", "mfu"),
    [(96, 12288, 64, 64, 13.75, 0.514), (105, 20480, 280, 280, 37.83, 0.560), (128, 25600, 512, 512, 71.49, 0.563)],
)
def test_the_mfu_that_korthikantis_table_5_prints(layers, hidden, batch, gpus, seconds, mfu):
    tokens = batch * 2048
    flop = rooflines.model_flop(rooflines.gpt_parameters(layers, hidden, 51200), tokens, layers, hidden, 2048)
    printed = 72 * batch * layers * 2048 * hidden**2 * (1 + 2048 / (6 * hidden) + 51200 / (12 * hidden * layers))
    assert flop == pytest.approx(printed)
    assert rooflines.utilization(flop, seconds, gpus, A100) == pytest.approx(mfu, abs=6e-4)


def test_narayanans_52_percent_counts_the_recomputation():
    layers, hidden, vocabulary, batch = 128, 25600, 51200, 3072
    tokens = batch * 2048
    model = rooflines.model_flop(rooflines.gpt_parameters(layers, hidden, vocabulary), tokens, layers, hidden, 2048)
    again = rooflines.recomputed_flop("full", rooflines.gpt_parameters(layers, hidden), tokens, layers, hidden, 2048)
    words = 1 + 2048 / (6 * hidden) + vocabulary / (16 * layers * hidden)
    assert model + again == pytest.approx(96 * batch * layers * 2048 * hidden**2 * words)
    hfu = 163e12 / A100  # 163 TFLOP/s a GPU, by the formula with 96: arXiv:2104.04473, table 1
    assert hfu == pytest.approx(0.52, abs=0.005)
    assert hfu * model / (model + again) == pytest.approx(0.392, abs=0.001)


@pytest.mark.parametrize(("tokens_per_s", "mfu"), [(5762, 0.337), (6667, 0.390)])
def test_torchtitans_33_to_39_percent(tokens_per_s, mfu):
    without_embedding = 8.03e9 - 128256 * 4096
    flop = rooflines.model_flop(without_embedding, tokens_per_s, 32, 4096, 8192)
    assert rooflines.utilization(flop, 1, 1, H100) == pytest.approx(mfu, abs=1e-3)


def test_selective_recomputation_adds_one_forward_pass_of_attention():
    given = {"layer_parameters": 1e9, "tokens": 100, "layers": 4, "hidden": 8, "sequence": 16}
    assert rooflines.recomputed_flop("selective", **given) == 4 * 4 * 8 * 16 * 100
    assert rooflines.recomputed_flop("none", **given) == 0
    assert rooflines.recomputed_flop("full", **given) == (2e9 + 4 * 4 * 8 * 16) * 100


def test_bounds_of_the_scaling_book():
    assert rooflines.data_parallel_tokens(H100, 450e9) == pytest.approx(2198, abs=1)
    assert rooflines.data_parallel_tokens(H100, 400e9) == pytest.approx(2472, abs=1)
    assert rooflines.data_parallel_tokens(2250e12, 400e9) == 5625
    assert rooflines.data_parallel_tokens(H100, 450e9, experts=256, top_k=8) == pytest.approx(32 * 2198, rel=1e-3)
    assert rooflines.tensor_parallel_ranks(28672, H100, 450e9) == pytest.approx(13.05, abs=0.01)
    assert rooflines.expert_parallel_width(H100, 400e9 / 8) == pytest.approx(8 * H100 / 400e9)
    assert rooflines.expert_parallel_width(H100, 50e9, matrices=3) == pytest.approx(2 / 3 * H100 / 50e9)


def test_at_the_bound_communication_takes_as_long_as_computing():
    """The bounds against the prices of `workload`, by many ranks, for which (p-1)/p is nearly 1."""
    peak, rate, parameters, ranks = 1e15, 1e11, 1e9, 4096
    tokens = rooflines.data_parallel_tokens(peak, rate)
    gathers = workload.zero(3, parameters, workload.Cluster(ranks, rate)).parts[0].seconds
    assert gathers == pytest.approx(2 * parameters * tokens / peak, rel=1e-3)
    backward = workload.ddp(parameters, workload.Cluster(ranks, rate)).seconds
    assert backward == pytest.approx(4 * parameters * tokens / peak, rel=1e-3)
    width, hidden, batch = 65536, 4096, 1000
    t = rooflines.tensor_parallel_ranks(width, 1e15, 1e12)
    assert 4 * batch * hidden * width / (t * 1e15) == pytest.approx(2 * 2 * batch * hidden / 1e12)


def test_the_roofline_bends_where_the_machine_balances():
    assert rooflines.attainable_flop_per_s(1, H100, 3.35e12) == 3.35e12
    assert rooflines.attainable_flop_per_s(1e6, H100, 3.35e12) == H100
    bend = rooflines.flop_per_byte(H100, 3.35e12)
    assert rooflines.attainable_flop_per_s(bend, H100, 3.35e12) == pytest.approx(H100)
    assert rooflines.matmul_intensity(1, 10**6, 10**6) == pytest.approx(1, rel=1e-3)  # one token: a number is used once


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rooflines.layer_activation_nbytes(1, 1), "heads is 0"),
        (lambda: rooflines.layer_activation_nbytes(1, 1, recompute="some"), "there is no recomputation 'some'"),
        (lambda: rooflines.layer_activation_nbytes(1, 1, tp=0, recompute="full"), "tp is 0"),
        (lambda: rooflines.layers_kept(4, 2, stage=2), "stage is 2; it is a whole number from 0 to 1"),
        (lambda: rooflines.layers_kept(4, 2, microbatches=0), "microbatches is 0"),
        (lambda: rooflines.model_flop(1, 1, layers=2), "hidden is 0"),
        (lambda: rooflines.recomputed_flop("all", 1, 1), "there is no recomputation 'all'"),
        (lambda: rooflines.utilization(1, 0, 1, 1), "seconds is 0"),
        (lambda: rooflines.data_parallel_tokens(1, 1, experts=2, top_k=3), "top_k is 3"),
        (lambda: rooflines.flop_per_byte(1, float("inf")), "bytes_per_s is inf"),
        (lambda: rooflines.gpt_parameters(1, 1, -1), "vocabulary is -1"),
    ],
)
def test_impossible_figures_are_errors(call, words):
    with pytest.raises(CostError, match=words.replace("(", r"\(")):
        call()

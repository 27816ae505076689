"""A plan of a training run: its figures are workload's, its groups pass the links that they must, its memory is ZeRO's."""

from dataclasses import replace

import pytest
from allranks.theory.cost import workload
from allranks.theory.cost.plan import MODELS, Model, Plan, custom_model, plan
from allranks.theory.cost.workload import Cluster, WorkloadError
from allranks.theory.simulator.clock import Recv, Send, Wait, replay
from allranks.theory.simulator.simulation import TopologyNetwork, simulate
from allranks.theory.topology import PRESETS, Topology, preset, uniform

EQUAL = uniform(0.0, 200e9)
H100 = preset("dgx-h100")


def test_the_7b_example_is_135_6_ms():
    price = plan("7B", EQUAL, dp=32, bucket_nbytes=None).prices["data"]
    assert price.seconds == pytest.approx(0.1356, rel=1e-3)
    assert price.parts == workload.ddp(7e9, Cluster(32, 200e9), bucket_nbytes=None).parts


def test_the_memory_is_that_of_figure_1_of_the_zero_paper():
    """7.5 billion parameters on 64 GPUs: 120, 31.4, 16.6 and 1.9 GB."""
    model = Model("figure 1", 7.5e9, 32, 4096, 2048)
    found = [Plan(model, H100, dp=64, zero_stage=stage).state_nbytes / 1e9 for stage in range(4)]
    assert found == pytest.approx([120, 31.4, 16.6, 1.9], rel=2e-2)


def test_each_kind_is_what_workload_says_for_its_group():
    split = plan("LLaMA 65B", "dgx-h100", dp=4, tp=8, pp=4, zero_stage=1, batch=256, microbatch=2)
    assert (split.ranks, split.microbatches) == (128, 32)
    share = 65.2e9 / 32
    across = Cluster(4, 50e9, 5e-6)  # one of eight cards, for eight groups pass each node
    assert split.prices["data"].parts == workload.zero(1, share, across).parts
    tensor = workload.tensor_parallel(20, 2, 2048, 8192, Cluster(8, 371e9, 2e-6))
    assert split.prices["tensor"].seconds == pytest.approx(32 * tensor.seconds)
    assert split.prices["tensor"].calls == 32 * tensor.calls == 32 * 80
    assert split.prices["pipeline"] == workload.pipeline_parallel(32, 2, 2048, 8192, across)
    assert split.bubble == pytest.approx(3 / 35)
    for figure in ("calls", "bytes_sent", "seconds"):
        assert getattr(split, figure) == sum(getattr(price, figure) for price in split.prices.values())


def test_experts_are_shared_by_ep_and_their_gradients_by_fewer():
    split = plan("Mixtral 8x7B", "dgx-h100", dp=32, ep=8, batch=64)
    expert = MODELS["Mixtral 8x7B"].expert_parameters
    dense, theirs = split.prices["data"].parts
    assert dense.calls * dense.nbytes == pytest.approx(2 * (46.7e9 - expert))
    assert theirs.calls * theirs.nbytes == pytest.approx(2 * expert / 8) and theirs.what == "experts' gradients"
    one = workload.expert_parallel(4096, 2, 4096, Cluster(8, 371e9, 2e-6), layers=32)
    assert split.prices["expert"].seconds == pytest.approx(2 * one.seconds)
    assert split.state_nbytes == pytest.approx(16 * (46.7e9 - expert + expert / 8))
    whole = plan("Mixtral 8x7B", "dgx-h100", dp=32, batch=64)
    assert set(whole.prices) == {"data"} and len(whole.prices["data"].parts) == 1


def test_what_is_sharded_moves_once_a_microbatch():
    def calls(stage, microbatch):
        split = plan("7B", EQUAL, dp=8, zero_stage=stage, batch=64, microbatch=microbatch)
        return {part.what: part.calls for part in split.prices["data"].parts}

    assert calls(1, 1) == calls(1, 8) == {"gradients": 535, "parameters": 535}  # DDP's buckets
    assert calls(2, 1) == {"gradients": 8 * 32, "parameters": 32}  # layers
    each = 4 * 32
    assert calls(3, 2) == {"parameters for forward": each, "parameters for backward": each, "gradients": each}


def test_stage_1_takes_as_long_as_ddp_and_deepspeed_s_way_half_as_long_again():
    ways = ({"zero_stage": 0}, {"zero_stage": 1}, {"zero_stage": 1, "all_reduce_gradients": True})
    plain, sharded, deepspeed = (plan("7B", "dgx-h100", dp=16, **way).prices["data"] for way in ways)
    assert sharded.seconds == pytest.approx(plain.seconds)
    assert deepspeed.bytes_sent == pytest.approx(1.5 * plain.bytes_sent)
    with pytest.raises(WorkloadError, match="stages 1 and 2"):
        plan("7B", "dgx-h100", dp=16, zero_stage=3, all_reduce_gradients=True)
    with pytest.raises(WorkloadError, match="stages 1 and 2"):
        workload.zero(3, 7e9, Cluster(8, 25e9), all_reduce_gradients=True)


@pytest.mark.parametrize(
    "machine, stride, size, to_all, gb_per_s, alpha_us",
    [
        ("dgx-h100", 1, 8, False, 371, 2),  # within a node
        ("dgx-h100", 1, 16, False, 371, 5),  # eight cards make 400
        ("dgx-a100", 1, 16, False, 200, 5),  # eight cards of 25
        ("dgx-h100", 2, 16, False, 200, 5),  # two groups share them
        ("dgx-h100", 8, 4, False, 50, 5),  # a card each
        ("dgx-h100", 32, 4, False, 50, 5),
        ("dgx-h100", 1, 16, True, 50 * 15 / 8, 5),  # of 15 parts 8 take a rank's card; the others stay inside meanwhile
        ("dgx-h100", 8, 4, True, 50, 5),  # nobody of the group is in the node
        ("dgx-h100", 1, 8, True, 371, 2),
        ("cloud-ethernet", 1, 8, True, 31.5 / 4 * 7 / 4, 5),  # 4 of 7 parts cross the bridge that 4 ranks share
        ("cloud-ethernet", 1, 16, True, 12.5 / 8 * 15 / 8, 50),
        ("dgx-h100", 3, 2, False, 400 / 3, 5),  # 6 ranks do not fill nodes of 8: some group crosses
        ("cloud-ethernet", 1, 4, False, 31.5, 4),  # below one bridge
        ("cloud-ethernet", 1, 8, False, 31.5, 5),
        ("cloud-ethernet", 2, 4, False, 15.75, 5),  # two groups pass each bridge
        ("cloud-ethernet", 1, 16, False, 12.5, 50),
        ("cloud-ethernet", 8, 4, False, 12.5 / 8, 50),  # eight groups, one card
        ("gb200-nvl72", 8, 9, False, 722, 2),
    ],
)
def test_a_group_gets_the_slowest_link_on_its_way_and_its_share_of_it(
    machine, stride, size, to_all, gb_per_s, alpha_us
):
    split = replace(plan("7B", machine), dp=1024, batch=1024)
    found = split.group(stride, size, to_all)
    assert found.ranks == size
    assert found.bytes_per_s == pytest.approx(1e9 * gb_per_s)
    assert found.alpha_s == pytest.approx(1e-6 * alpha_us)


def test_a_world_that_fits_one_node_never_pays_for_the_network():
    own = custom_model(MODELS["7B"], hidden=4095)
    assert Plan(own, H100, dp=2, tp=3, batch=2).group(3, 2).bytes_per_s == 371e9


@pytest.mark.parametrize("machine", ["dgx-a100", "dgx-h100", "gb200-nvl72"])
def test_inside_a_node_the_simulator_agrees(machine):
    """Where one switch joins all, the plan's equal links are the simulator's."""
    price = plan("7B", machine, dp=8, bucket_nbytes=None).prices["data"]
    found = simulate("all_reduce", "ring", 8, 14_000_000_000, preset(machine))
    assert price.seconds == pytest.approx(found.seconds, rel=1e-6)


def test_one_rank_sends_nothing():
    alone = plan("7B", "dgx-h100")
    assert alone.prices == {} and alone.calls == 0 and alone.seconds == 0 and alone.bubble == 0
    assert alone.state_nbytes == 16 * 7e9


@pytest.mark.parametrize(
    "split, words",
    [
        ({"dp": 0}, "dp is 0; it is a whole number above 0"),
        ({"tp": 2.0}, "tp is 2.0"),
        ({"pp": True}, "pp is True"),
        ({"pp": 5}, "layers is 32, which pp = 5 does not divide"),
        ({"tp": 3}, "hidden is 4096, which tp = 3 does not divide"),
        ({"dp": 8, "batch": 4}, "batch is 4, which dp x microbatch = 8 does not divide"),
        ({"microbatch": 3}, "dp x microbatch = 3"),
        ({"ep": 2, "dp": 2}, "the model 7B has no experts"),
        ({"zero_stage": 4}, "no ZeRO stage 4"),
        ({"dtype": "int3"}, "no dtype 'int3'"),
        ({"dp": 1 << 17, "batch": 1 << 17}, "it must be at most 65536"),
        ({"dp": 2, "bucket_nbytes": 0}, "bucket_nbytes is 0"),
    ],
)
def test_what_does_not_add_up_is_one_sentence(split, words):
    with pytest.raises(WorkloadError, match=words) as caught:
        plan("7B", "dgx-h100", **split).prices  # noqa: B018
    assert "\n" not in str(caught.value)


def test_experts_and_machines_that_do_not_fit():
    with pytest.raises(WorkloadError, match="experts is 8, which ep = 3"):
        plan("Mixtral 8x7B", "dgx-h100", dp=3, ep=3, batch=3)
    with pytest.raises(WorkloadError, match="dp is 4, which ep = 8"):
        plan("Mixtral 8x7B", "dgx-h100", dp=4, ep=8)
    with pytest.raises(WorkloadError, match="there is no model 'GPT-9'; there are 7B"):
        plan("GPT-9", "dgx-h100")
    with pytest.raises(WorkloadError, match="there is no topology 'abacus'"):
        plan("7B", "abacus")
    with pytest.raises(WorkloadError, match="one node of 8 ranks, not 16"):
        plan("7B", Topology("lonely", 8, H100.inside), dp=16)
    with pytest.raises(WorkloadError, match="count is 0"):
        workload.ddp(7e9, Cluster(2, 1e9)).times(0)


def test_the_presets_are_models_that_can_be_priced():
    for name, model in MODELS.items():
        assert model.source, name
        for machine in PRESETS:
            assert plan(name, machine, dp=8, zero_stage=3).seconds > 0


def test_stages_on_other_leaf_switches_share_the_uplinks():
    """All 128 ranks of a leaf send to the next one at once, 4:1; against every message of that moment, replayed."""
    cloud = preset("cloud-ethernet")
    part = plan("7B", cloud, dp=16, tp=8, pp=2, batch=16).prices["pipeline"].parts[0]
    sends = [[Send(rank, rank + 128, int(part.nbytes)), Wait(rank, sent=True)] for rank in range(128)]
    takes = [[Recv(rank, rank), Wait(rank, sent=False)] for rank in range(128)]
    assert part.seconds / part.calls == pytest.approx(replay(sends + takes, TopologyNetwork(cloud)).seconds, rel=0.05)


def test_weights_in_float32_are_their_own_master_copy():
    assert plan("7B", "dgx-h100", dtype="float32").state_nbytes == 16 * 7e9  # 4 + 4 + 8
    assert plan("7B", "dgx-h100").state_nbytes == 16 * 7e9  # 2 + 2 + 12

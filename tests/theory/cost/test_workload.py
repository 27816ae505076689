"""The worked examples: what DDP, ZeRO, tensor, pipeline and expert parallelism send in a step."""

import json

import pytest
from allranks.cli import main
from allranks.theory.cost import workload
from allranks.theory.cost.nccl_bands import LINK_BANDS
from allranks.theory.cost.nccl_bounds import machine_bound_s
from allranks.theory.cost.nccl_price import kind_of
from allranks.theory.cost.workload import Cluster, WorkloadError
from allranks.theory.simulator.channels import USUAL
from allranks.theory.simulator.simulation import simulate
from allranks.theory.topology import PRESETS
from click.testing import CliRunner

CLUSTER = Cluster(32, 200e9)


def milliseconds(*arguments, **options):
    return workload.ddp(7e9, *arguments, **options).seconds * 1e3


def test_ddp_of_7_billion_parameters_in_every_reading_of_200_gb_per_s():
    assert milliseconds(CLUSTER, bucket_nbytes=None) == pytest.approx(135.6, rel=1e-3)
    assert milliseconds(Cluster(32, 200e9 / 8), bucket_nbytes=None) == pytest.approx(1085, rel=1e-3)
    assert milliseconds(CLUSTER, "float32", bucket_nbytes=None) == pytest.approx(271, rel=2e-3)
    assert milliseconds(Cluster(1 << 14, 200e9), bucket_nbytes=None) == pytest.approx(140.0, rel=1e-3)


def test_ddp_with_buckets():
    """535 calls, each 254 us of bandwidth; a ring at 5 us adds 310 us a call, 166 ms in all."""
    plain, slow = workload.ddp(7e9, CLUSTER), workload.ddp(7e9, Cluster(32, 200e9, 5e-6))
    assert plain.calls == 535
    assert plain.seconds / plain.calls == pytest.approx(254e-6, rel=5e-3)
    assert slow.seconds - plain.seconds == pytest.approx(0.166, rel=2e-3)


def test_ddp_hides_what_backward_has_room_for_but_never_the_last_bucket():
    price = workload.ddp(7e9, CLUSTER, backward_s=0.1, compute_s=0.15)
    last = price.seconds / 535
    assert price.exposed_s == pytest.approx(price.seconds - 0.1 + 0.1 / 535)
    assert price.efficiency == pytest.approx(0.15 / (0.15 + price.exposed_s))
    assert workload.ddp(7e9, CLUSTER, backward_s=1.0).exposed_s == pytest.approx(last)
    assert workload.ddp(7e9, CLUSTER, backward_s=0.0).exposed_s == pytest.approx(price.seconds)


@pytest.mark.parametrize(("bucket", "backward_s"), [(3.4e9, 0.03), (8e9, 0.03), (25e6, 0.1), (25e6, 0.6)])
def test_exposed_is_what_buckets_that_come_evenly_leave_over(bucket, backward_s):
    price = workload.ddp(7e9, Cluster(32, 200e9, 5e-6), bucket_nbytes=bucket, backward_s=backward_s)
    end = 0.0
    for number in range(1, price.calls + 1):
        end = max(end, backward_s * number / price.calls) + price.seconds / price.calls
    assert price.exposed_s == pytest.approx(end - backward_s)


def test_with_two_stages_each_sends_one_way():
    price = workload.pipeline_parallel(8, 1, 2048, 4096, Cluster(2, 200e9))
    assert price.calls == 8
    assert price.bytes_sent == 8 * 2048 * 4096 * 2
    assert price.efficiency == pytest.approx(8 / 9)


@pytest.mark.parametrize(
    ("field", "value"), [("backward_s", float("inf")), ("compute_s", -1.0), ("compute_s", float("nan"))]
)
def test_times_that_no_step_takes_are_refused(field, value):
    with pytest.raises(WorkloadError, match="must be 0 or more, and finite"):
        workload.ddp(7e9, CLUSTER, **{"backward_s": 0.1, "compute_s": 0.2, field: value})


def test_zero_sends_two_or_three_times_the_parameters():
    share = 14e9 * 31 / 32
    assert workload.zero(1, 7e9, CLUSTER).bytes_sent == pytest.approx(2 * share)
    assert workload.zero(2, 7e9, CLUSTER).bytes_sent == pytest.approx(2 * share)
    assert workload.zero(3, 7e9, CLUSTER).bytes_sent == pytest.approx(3 * share)
    assert workload.zero(3, 7e9, CLUSTER, reshard_after_forward=False).bytes_sent == pytest.approx(2 * share)
    assert workload.ddp(7e9, CLUSTER).bytes_sent == pytest.approx(2 * share)
    assert workload.zero(2, 7e9, CLUSTER, gradient_dtype="float32").bytes_sent == pytest.approx(3 * share)


def test_tensor_parallel_sends_8_b_s_h_a_layer():
    eight = Cluster(8, 371e9)
    wanted = 8 * 2 * 4096 * 8192 * 7 / 8 * 2
    plain = workload.tensor_parallel(1, 2, 4096, 8192, eight)
    assert plain.calls == 4 and plain.bytes_sent == pytest.approx(wanted)
    assert workload.tensor_parallel(1, 2, 4096, 8192, eight, recompute=True).bytes_sent == pytest.approx(1.5 * wanted)
    split = workload.tensor_parallel(1, 2, 4096, 8192, eight, sequence_parallel=True)
    assert split.calls == 8 and split.bytes_sent == pytest.approx(wanted)


def test_expert_parallel_of_deepeps_shape():
    """T=4096, h=7168, k=8: FP8 dispatch 235 MB and BF16 combine 470 MB a rank before the locality discount."""
    price = workload.expert_parallel(4096, 8, 7168, Cluster(64, 50e9), dispatch_dtype="float8")
    dispatch, combine = price.parts[:2]
    assert dispatch.nbytes == pytest.approx(235e6, rel=2e-3) and combine.nbytes == pytest.approx(470e6, rel=2e-3)
    assert dispatch.bytes_sent == pytest.approx(dispatch.nbytes * 63 / 64)
    assert price.calls == 4
    padded = workload.expert_parallel(4096, 8, 7168, Cluster(64, 50e9), capacity=1.25, training=False)
    assert padded.parts[0].nbytes == pytest.approx(1.25 * 470e6, rel=2e-3) and padded.calls == 2


def test_pipeline_parallel_sends_little_and_waits():
    price = workload.pipeline_parallel(12, 1, 4096, 8192, Cluster(4, 50e9, 1e-5))
    assert price.calls == 24
    assert price.bytes_sent == 24 * 4096 * 8192 * 2
    assert price.efficiency == pytest.approx(12 / 15)


def test_one_rank_sends_nothing():
    alone = Cluster(1, 200e9, 1e-5)
    for price in (workload.ddp(7e9, alone), workload.zero(3, 7e9, alone), workload.tensor_parallel(2, 1, 8, 8, alone),
                  workload.expert_parallel(8, 1, 8, alone), workload.pipeline_parallel(4, 1, 8, 8, alone)):  # fmt: skip
        assert price.bytes_sent == price.seconds == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Cluster(0, 1e9), "ranks is 0"),
        (lambda: Cluster(2, 0), "the bandwidth is 0 bytes/s"),
        (lambda: Cluster(2, 1, -1), "alpha is -1 s"),
        (lambda: workload.ddp(-7e9, CLUSTER), "parameters is -7000000000.0"),
        (lambda: workload.ddp(7e9, CLUSTER, "int4"), "no dtype 'int4' here; there are float32"),
        (lambda: workload.ddp(7e9, CLUSTER, backward_s=-1), "takes -1 s"),
        (lambda: workload.zero(4, 7e9, CLUSTER), "no ZeRO stage 4"),
    ],
)
def test_what_has_no_price_is_refused_in_one_sentence(make, words):
    with pytest.raises(WorkloadError, match=words):
        make()


def test_the_command():
    ran = CliRunner().invoke(main, ["price", "ddp", "--bucket", "0", "--json"])
    assert json.loads(ran.stdout)["seconds"] == pytest.approx(0.1356, rel=1e-3)
    assert "in all, for one rank" in CliRunner().invoke(main, ["price", "zero"]).stdout
    for arguments in (
        ("tensor", "--layers", "32", "--sequence", "4096", "--hidden", "4096"),
        ("pipeline", "--microbatches", "8", "--sequence", "4096", "--hidden", "4096"),
        ("expert", "--tokens", "4096", "--top-k", "8", "--hidden", "7168"),
    ):
        assert json.loads(CliRunner().invoke(main, ["price", *arguments, "--json"]).stdout)["seconds"] > 0
    deepep = "expert --tokens 128 --top-k 8 --hidden 7168 --ranks 64 --dispatch-dtype float8 --forward-only --json"
    found = json.loads(CliRunner().invoke(main, ["price", *deepep.split()]).stdout)
    assert [part["nbytes"] for part in found["parts"]] == [128 * 8 * 7168, 2 * 128 * 8 * 7168]
    wrong = CliRunner().invoke(main, ["price", "ddp", "--ranks", "0"])
    assert (wrong.exit_code, wrong.stdout, wrong.stderr) == (
        2,
        "",
        "ranks is 0; it is a whole number above 0.\n".replace("r", "R", 1),
    )


def price_of(*arguments):
    ran = CliRunner().invoke(main, ["price", *map(str, arguments)])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def bound_of(part, ranks):
    """The lower bound of a part of the JSON, on DGX H100s."""
    return part["calls"] * machine_bound_s(part["collective"], ranks, part["nbytes"], PRESETS["dgx-h100"])


@pytest.mark.parametrize(
    ("ranks", "bucket", "kind"), [(8, 0, "one node, from 256 MiB"), (32, 2**20, "several nodes, between")]
)
def test_a_preset_has_the_band_of_its_measurements(ranks, bucket, kind):
    arguments = ("zero", "--topology", "dgx-h100", "--ranks", ranks, "--bucket", bucket)
    found = json.loads(price_of(*arguments, "--json"))
    median, low, high, sites = LINK_BANDS[kind]
    assert (found["kind"], found["sites"], found["coverage"]) == (kind, sites, 0.8)
    assert found["median"] == pytest.approx(median * found["seconds"])
    assert (found["low"], found["high"]) == (found["low_seconds"], found["high_seconds"])
    bounds = [bound_of(part, ranks) for part in found["parts"]]
    assert found["low_seconds"] == pytest.approx(
        sum(max(low * part["seconds"], bound) for part, bound in zip(found["parts"], bounds, strict=True))
    )
    assert sum(bounds) <= found["low_seconds"]
    assert found["high_seconds"] == pytest.approx(high * found["seconds"])
    likely = format(float(format(1e3 * found["median"], ".2g")), "g")
    assert f"(8 of 10 sites), most likely {likely}: {sites} sites ({kind})" in price_of(*arguments)


def test_parts_of_several_sizes_have_the_sum_of_their_bands():
    found = json.loads(
        price_of(
            "zero",
            "--gradient-dtype",
            "float32",
            "--topology",
            "dgx-h100",
            "--ranks",
            16,
            "--parameters",
            1e8,
            "--bucket",
            0,
            "--json",
        )
    )
    assert found["kind"] == "several nodes, between; several nodes, from 256 MiB"
    sums = [
        sum(max(LINK_BANDS[kind_of(2, p["nbytes"])][end] * p["seconds"], bound_of(p, 16)) for p in found["parts"])
        for end in (1, 2)
    ]
    assert [found["low_seconds"], found["high_seconds"]] == pytest.approx(sums)


def test_the_bands_are_of_what_price_says():
    """They were measured against `simulate` over every card: the same seconds, on every preset's whole nodes."""
    for name, machine in PRESETS.items():
        for nodes in (1, 2) if machine.nic else (1,):
            ranks = nodes * machine.ranks_per_node
            priced = json.loads(
                price_of("ddp", "--topology", name, "--ranks", ranks, "--parameters", 1e8, "--bucket", 0, "--json")
            )
            simulated = simulate(
                "all_reduce", USUAL["all_reduce"], ranks, int(priced["parts"][0]["nbytes"]), machine
            ).seconds
            assert priced["seconds"] == pytest.approx(simulated, rel=0.03), (name, nodes)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ddp",),
        ("ddp", "--bandwidth", 1e9),
        ("ddp", "--topology", "dgx-h100", "--ranks", 12),
        ("pipeline", "--microbatches", 8, "--sequence", 4096, "--hidden", 4096, "--topology", "dgx-h100", "--ranks", 8),
    ],
)
def test_without_measurements_there_is_no_band(arguments):
    assert not {"low_seconds", "high_seconds", "kind", "sites", "median"} & set(
        json.loads(price_of(*arguments, "--json"))
    )
    assert "most likely" not in price_of(*arguments)

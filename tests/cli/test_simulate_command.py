"""`allranks simulate` as a reader types it: the JSON's fields, files, and one sentence for each mistake."""

import json
import math

import pytest
from allranks.cli import main
from allranks.theory.cost import MACHINES
from allranks.theory.trace import Trace
from click.testing import CliRunner


def run(*arguments):
    return CliRunner().invoke(main, ["simulate", *arguments])


def test_the_json_is_one_object_with_the_promised_fields():
    ran = run("--collective", "all_reduce", "--algorithm", "ring", "--ranks", "4", "--bytes", "1000000",
              "--bandwidth", "1e9", "--alpha", "1e-6", "--json")  # fmt: skip
    assert ran.exit_code == 0 and ran.stdout.count("\n") == 1
    found = json.loads(ran.stdout)
    assert found["seconds"] == pytest.approx(6 * 1e-6 + 1.5e-3)
    assert found["steps"] == 6
    assert found["bytes_per_rank"] == 1_500_000
    assert found["lower_bound_seconds"] == pytest.approx(2e-6 + 1.5e-3)


def test_the_lower_bound_counts_what_is_reduced():
    """Each of 4 ranks reduces 3/4 of the bytes, which takes longer than sending them."""
    asked = ("--ranks", "4", "--bytes", "1000000", "--bandwidth", "1e9", "--gamma", "1e-8")
    found = json.loads(run(*asked, "--json").stdout)
    assert found["lower_bound_seconds"] == pytest.approx(7.5e-3) and found["seconds"] >= 7.5e-3
    assert "lower bound  7.5 ms" in run(*asked).stdout


@pytest.mark.parametrize("preset", ["dgx-a100", "dgx-h100", "gb200-nvl72", "cloud-ethernet"])
def test_presets(preset):
    found = json.loads(run("--topology", preset, "--ranks", "16", "--algorithm", "hierarchical", "--json").stdout)
    assert found["topology"] == preset
    assert 0 < found["lower_bound_seconds"] <= found["seconds"]


def test_sizes_are_read_with_their_units():
    for text, nbytes in (("1MiB", 1 << 20), ("25MB", 25_000_000), ("4k", 4000), ("1.5GiB", 3 << 29), ("0", 0)):
        assert json.loads(run("--bytes", text, "--json").stdout)["bytes"] == nbytes


def test_algorithms_may_be_written_with_hyphens_and_have_a_default():
    assert json.loads(run("--algorithm", "recursive-doubling", "--json").stdout)["steps"] == 3
    assert json.loads(run("--collective", "broadcast", "--json").stdout)["algorithm"] == "binomial"


def test_disturbances_slow_it_down():
    base = ("--ranks", "16", "--bytes", "64MiB", "--algorithm", "hierarchical", "--json")
    usual = json.loads(run(*base).stdout)["seconds"]
    for extra in (("--straggler", "3=2"), ("--background", "nic=0.5"), ("--fail", "nic:0:7")):
        assert json.loads(run(*base, *extra).stdout)["seconds"] > usual


def test_the_trace_is_written_for_the_player_and_for_perfetto(tmp_path):
    ran = run("--ranks", "4", "--trace", str(tmp_path / "t.json"), "--chrome", str(tmp_path / "c.json"))
    assert ran.exit_code == 0
    assert Trace.load(tmp_path / "t.json").ranks == 4
    assert json.loads((tmp_path / "c.json").read_text())["traceEvents"]


def test_words_for_people():
    ran = run("--ranks", "8", "--bytes", "1GiB")
    assert "ring all_reduce, 8 ranks, 1073741824 bytes, on dgx-h100" in ran.stdout
    assert "busbw 368.96 GB/s" in ran.stdout


def test_the_list_names_algorithms_and_presets():
    found = json.loads(run("--list", "--json").stdout)
    assert {"collective": "barrier", "algorithm": "dissemination"}.items() <= found["algorithms"][-1].items()
    assert [t["topology"] for t in found["topologies"]][:2] == ["dgx-a100", "dgx-h100"]
    assert "double-binary-tree" in run("--list").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ranks", "0"), "The ranks are 0; they are a whole number from 1 to 1048576."),
        (("--ranks", "-3"), "The ranks are -3;"),
        (("--bytes", "-5"), "The bytes are -5; they can't be negative."),
        (("--bytes", "many"), "'many' is not a number of bytes;"),
        (("--bytes", "0.5"), "'0.5' is not a whole number of bytes."),
        (
            ("--topology", "dgx"),
            "There is no topology 'dgx'; there are dgx-a100, dgx-h100, dgx-h200, dgx-b200, gb200-nvl72, "
            "gh200-4, p4d, p5, pcie-8, cloud-ethernet, ethernet-2x100g, and files that end with .json.",
        ),
        (("--algorithm", "bogus"), "There is no algorithm 'bogus' for all_reduce; there are ring, flat,"),
        (("--collective", "allreduce"), "There is no collective 'allreduce'; there are broadcast,"),
        (("--bandwidth", "0"), "The bandwidth of the link is 0.0 bytes/s; it must be above 0"),
        (("--bandwidth", "1e9", "--alpha", "-1"), "Alpha of the link is -1.0 s;"),
        (("--bandwidth", "1e9", "--topology", "gb200-nvl72"), "Give --topology or --bandwidth, not both."),
        (("--alpha", "1e-6"), "--alpha goes with --bandwidth;"),
        (("--straggler", "3"), "--straggler '3' can't be read; write RANK=FACTOR"),
        (("--straggler", "30=2"), "The straggler is rank 30; it must be one of the ranks 0 to 7."),
        (("--fail", "nic:0"), "--fail 'nic:0' can't be read;"),
        (("--algorithm", "hierarchical", "--ranks", "10", "--ranks-per-node", "4"), "ranks_per_node is 4;"),
        (("--collective", "broadcast", "--root", "8"), "The root is 8; it must be one of the ranks 0 to 7."),
        (("--trace", "/nowhere/at/all.json"), "The trace can't be written: No such file or directory"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_mistake_gets_one_sentence_and_status_2(arguments, words, form):
    ran = run(*arguments, *form)
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith(words), ran.stderr
    assert ran.stderr.count("\n") == 1 and "Traceback" not in ran.stderr


@pytest.mark.parametrize("extra", [("--oversubscription", "8"), ("--rails",)])
def test_what_is_about_leaf_switches_needs_some(extra):
    ran = run("--ranks", "64", *extra)
    assert ran.exit_code == 2
    assert "dgx-h100 has none; give --nodes-per-leaf too." in ran.stderr


def test_decimals_are_exact():
    for text, nbytes in (("2.01k", 2010), ("1.001kB", 1001), ("8.581GB", 8_581_000_000)):
        assert json.loads(run("--bytes", text, "--json").stdout)["bytes"] == nbytes


@pytest.mark.parametrize(
    "arguments",
    [
        ("--bytes", "1e400"),
        ("--bytes", "4", "--gamma", "1e400"),
        ("--bandwidth", "1e9", "--bytes", "0", "--straggler", "0=inf"),
        ("--topology", "cloud-ethernet", "--ranks", "256", "--oversubscription", "inf"),
    ],
)
def test_infinity_is_one_sentence(arguments):
    ran = run(*arguments)
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)


def test_as_nccl_would():
    found = json.loads(
        run("--algorithm", "nccl", "--nodes", "2", "--topology", "p5", "--bytes", "1MiB", "--json").stdout
    )
    assert (found["algorithm"], found["protocol"], found["channels"]) == ("tree", "LL128", 64)
    assert (found["ranks"], found["nodes"]) == (16, 2)
    assert found["tuner_seconds"] == pytest.approx(60.9e-6, rel=2e-3) and found["median"] == found["seconds"]
    assert found["low"] < found["median"] < found["high"] and found["coverage"] == 0.8
    assert (found["low"], found["high"]) == (found["low_seconds"], found["high_seconds"])
    assert found["lower_bound_seconds"] < found["seconds"] and found["sites"] > 10
    assert set(found["parts"]) == {"floor", "hop", "bandwidth", "algorithm"} and found["parts"]["hop"] > 1.1
    half = math.sqrt(sum(math.log(factor) ** 2 for factor in found["parts"].values()))  # they add up in squares
    assert math.exp(2 * half) == pytest.approx(found["width"], rel=1e-6)


def test_as_nccl_would_with_an_overhead_of_ones_own():
    usual = json.loads(run("--algorithm", "nccl", "--bytes", "8", "--json").stdout)
    own = json.loads(run("--algorithm", "nccl", "--bytes", "8", "--floor", "1e-5", "--json").stdout)
    assert own["seconds"] == pytest.approx(usual["tuner_seconds"] + 1e-5, rel=0.1) and own["own_measurements"] == 1
    assert own["width"] < own["width_before"] == pytest.approx(usual["width"])


MINE = """# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824
# Collective test starting: all_reduce_perf
# Using devices
""" + "".join(f"#  Rank  {r} Group  0 Pid  {r} on node{r // 8} device  "
              f"{r % 8} [0x07] NVIDIA H100 80GB HBM3\n" for r in range(16)) + """#
#       size         count      type   redop    root     time   algbw   busbw #wrong
           8             2     float     sum      -1    30.10    0.00    0.00      0
       65536         16384     float     sum      -1    37.85    0.00    0.00      0
  1073741824     268435456     float     sum      -1    4512.0    0.00    0.00      0
"""  # fmt: skip


def test_ones_own_measurements_narrow_the_interval(tmp_path):
    """Of a printed sweep, or of the file that `allranks fit` makes of it."""
    printed, fitted = tmp_path / "mine.txt", tmp_path / "mine.json"
    printed.write_text(MINE, encoding="utf-8")
    assert CliRunner().invoke(main, ["fit", str(printed), "-o", str(fitted)]).exit_code == 0
    call = ("--algorithm", "nccl", "--bytes", "8KiB", "--nodes", "2", "--json")
    usual = json.loads(run(*call).stdout)
    for file in (printed, fitted):
        own = json.loads(run(*call, "--calibrate", str(file)).stdout)
        assert own["own_measurements"] == 2 and own["width"] < 0.9 * usual["width"] == 0.9 * own["width_before"]
        assert own["low"] < 37e-6 < own["high"]
    assert "2 measurements of your own" in run(*call[:-1], "--calibrate", str(printed)).stdout
    for wrong in ("nowhere.txt", str(tmp_path)):
        ran = run(*call, "--calibrate", wrong)
        assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)


def test_one_process_for_a_node_takes_longer_to_launch():
    apart, together = (
        json.loads(run("--algorithm", "nccl", "--bytes", "8", *extra, "--json").stdout)
        for extra in ((), ("--one-process",))
    )
    assert together["median"] > 1.3 * apart["median"] and together["tuner_seconds"] == apart["tuner_seconds"]


@pytest.mark.parametrize("name", [name for name, machine in MACHINES.items() if machine.one])
def test_every_machine_has_an_interval_and_says_where_its_numbers_are_from(name):
    found = json.loads(run("--algorithm", "nccl", "--topology", name, "--bytes", "1MiB", "--json").stdout)
    assert 0 < found["low"] < found["median"] < found["high"] and found["machine_source"]
    if "not known" in found["machine_source"]:
        assert "not known" in run("--algorithm", "nccl", "--topology", name).stdout


def test_as_nccl_would_an_exchange_that_the_tuner_does_not_see():
    found = json.loads(run("--algorithm", "nccl", "--collective", "all-to-all", "--bytes", "1GiB", "--json").stdout)
    assert found["algorithm"] == "sends and receives" and found["protocol"] is None
    assert found["seconds"] == pytest.approx(2830e-6, rel=0.1)  # measured on 8 H100s: theory/cost/static/nccl_tests.csv


def test_as_nccl_would_in_words():
    said = run("--algorithm", "nccl", "--nodes", "4", "--bytes", "1GiB").stdout
    assert "32 ranks, 1073741824 bytes, on 4 nodes of dgx-h100" in said
    assert "(8 of 10 sites), most likely" in said and "latency of a hop x" in said


def test_nodes_of_a_preset():
    assert json.loads(run("--nodes", "3", "--algorithm", "hierarchical", "--json").stdout)["ranks"] == 24


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--algorithm", "nccl", "--topology", "nowhere"), "no machine 'nowhere'; there are dgx-a100"),
        (("--algorithm", "nccl", "--straggler", "1=2"), "NCCL's tuner sees no single message"),
        (("--algorithm", "nccl", "--ranks", "12"), "12 ranks do not fill nodes of 8 GPUs evenly"),
        (("--algorithm", "nccl", "--nodes", "2", "--ranks", "6"), "for 3 GPUs on each of 2 nodes is not known"),
        (("--algorithm", "nccl", "--collective", "scatter"), "decides on all_reduce"),
        (("--floor", "1"), "--floor goes with --algorithm nccl"),
        (("--nodes", "2", "--bandwidth", "1e9"), "equal links have no nodes"),
        (("--nodes", "2", "--ranks", "8"), "2 nodes of dgx-h100 have 16 ranks, not 8"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(arguments, said):
    ran = run(*arguments)
    assert ran.exit_code == 2 and said in ran.output and "Traceback" not in ran.output


def test_switches_that_add_can_be_turned_on_and_off():
    def algorithm(*extra):
        ran = run("--algorithm", "nccl", "--nodes", "8", "--bytes", "1GiB", "--json", *extra)
        return json.loads(ran.stdout)["algorithm"]

    assert [algorithm(), algorithm("--no-nvls"), algorithm("--sharp")] == ["nvls_tree", "ring", "nvls"]
    ran = run("--sharp")
    assert ran.exit_code == 2 and "--sharp goes with --algorithm nccl." in ran.stderr


def test_every_card_at_once_is_the_default_on_several_nodes():
    for call, way in (("all_to_all", "pairwise channels"), ("broadcast", "ring channels")):
        found = json.loads(run("--collective", call, "--nodes", "2", "--bytes", "1GiB", "--json").stdout)
        assert found["algorithm"] == way and found["method"] == "closed form"
    assert json.loads(run("--collective", "all_to_all", "--json").stdout)["algorithm"] == "pairwise"
    told = json.loads(run("--nodes", "2", "--bytes", "1GiB", "--json").stdout)
    assert told["low_seconds"] < told["seconds"] < told["high_seconds"] and told["sites"] > 5
    assert "(8 of 10 sites), most likely" in run("--nodes", "2", "--bytes", "1GiB").stdout
    slowed = json.loads(run("--nodes", "2", "--bytes", "1GiB", "--background", "nic=0.5", "--json").stdout)
    assert "low_seconds" not in slowed  # nobody measured that
    for way in ("ring", "tree-channels", "hierarchical-channels"):
        assert json.loads(run("--nodes", "2", "--algorithm", way, "--json").stdout)["seconds"] > 0
    listed = run("--list").stdout
    assert "pairwise-channels (all_to_all)" in listed and "ethernet-2x100g" in listed


def test_pat_s_chunks_in_flight():
    steps = [
        json.loads(run("--collective", "all_gather", "--algorithm", "pat", "--ranks", "256", *extra, "--json").stdout)[
            "steps"
        ]
        for extra in ((), ("--in-flight", "8"))
    ]
    assert steps == [8, 34]
    ran = run("--collective", "all_gather", "--algorithm", "pat", "--in-flight", "0")
    assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1) and "in_flight is 0" in ran.stderr.lower()


@pytest.mark.parametrize("floor", ["nan", "-1", "inf"])
def test_a_floor_that_is_no_time_is_one_sentence(floor):
    ran = run("--algorithm", "nccl", "--floor", floor)
    assert (ran.exit_code, ran.stdout) == (2, "") and ran.stderr.startswith(
        f"The floor is {float(floor):g} s; it must be"
    )


def test_what_a_slow_link_or_a_lost_card_costs_at_a_thousand_nodes():
    for option, value in (("--slow-link", "500:3=2"), ("--lost-card", "500:3")):
        found = json.loads(run("--nodes", "1000", "--bytes", "1GiB", option, value, "--json").stdout)
        assert found["seconds"] > found["healthy_seconds"] and found["times_as_long"] == pytest.approx(
            found["seconds"] / found["healthy_seconds"]
        )
        assert "of the same machine in health" in run("--nodes", "1000", "--bytes", "1GiB", option, value).stdout
        for wrong in ("x", "0:99=2" if option == "--slow-link" else "0:99"):
            ran = run("--nodes", "2", option, wrong)
            assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)


def test_the_version_of_nccl_is_said_and_can_be_chosen():
    assert json.loads(run("--algorithm", "nccl", "--nccl", "2.27", "--json").stdout)["nccl_version"] == "2.27.7"
    assert "as NCCL 2.30.7 would" in run("--algorithm", "nccl").stdout
    for arguments, words in (
        (("--algorithm", "nccl", "--nccl", "2.32"), "NCCL 2.32 is not known"),
        (("--nccl", "2.27"), "--nccl goes with"),
    ):
        ran = run(*arguments)
        assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1) and words in ran.stderr

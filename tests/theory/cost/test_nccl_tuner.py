"""NCCL's tuner: latencies and bandwidths as NCCL 2.30.7 itself gives them for descriptions of these machines, and what it takes."""

from __future__ import annotations

import pytest
from allranks import cost
from allranks.theory.cost.nccl_machines import MACHINES, machine
from allranks.theory.cost.terms import CostError

MIB = 2**20


def found(collective, on, nodes=1, ranks=None):
    """(latency in us, GB/s) of each option, at a size where no correction applies."""
    options = cost.nccl_options(collective, 2**40, on, nodes=nodes, ranks=ranks)
    return {(o.algorithm, o.protocol): (round(o.latency_us, 1), round(o.gb_per_s, 1)) for o in options}


# printed by NCCL 2.30.7 (NCCL_DEBUG_SUBSYS=TUNING); the ring's plateau is in the latency at large sizes
@pytest.mark.parametrize(
    ("on", "nodes", "tree", "ring", "switch"),
    [
        ("dgx-h100", 1, ((15.2, 43.6), (31.5, 128.8), (64.4, 165.6)), ((15.0, 80.6), (40.6, 189.3), (56.0, 205.7)), (25.0, 272.0)),
        ("dgx-h100", 2, ((25.2, 16.6), (48.5, 124.8), (92.4, 140.8)), ((40.0, 20.8), (75.2, 156.6), (184.2, 204.8)), (66.8, 246.2)),
        ("dgx-a100", 2, ((25.2, 11.2), (48.5, 80.0), (92.4, 94.4)), ((68.0, 12.0), (78.0, 85.3), (286.2, 102.4)), None),
    ],
)  # fmt: skip
def test_latency_and_bandwidth_of_an_all_reduce_are_nccls_own(on, nodes, tree, ring, switch):
    options = found("all_reduce", on, nodes)
    for at, protocol in enumerate(("LL", "LL128", "Simple")):
        for algorithm, wanted in (("tree", tree[at]), ("ring", ring[at])):
            assert options[algorithm, protocol] == pytest.approx(wanted, abs=0.11), (algorithm, protocol)
    assert options.get(("nvls" if nodes == 1 else "nvls_tree", "Simple")) == switch


def test_one_rank_a_node_has_the_trees_hop_and_pat():
    options = found("all_gather", "dgx-h100", 64, 64)
    assert options == {
        ("ring", "LL"): (321.6, 20.7),
        ("ring", "LL128"): (549.5, 44.9),
        ("ring", "Simple"): (890.4, 48.8),
        ("pat", "Simple"): (211.2, 36.0),
    }


@pytest.mark.parametrize(
    ("on", "nodes", "collective", "nbytes", "wanted", "us"),
    [
        ("dgx-a100", 1, "all_reduce", 1024, ("ring", "LL"), 15.0),
        ("dgx-a100", 1, "all_reduce", MIB, ("ring", "LL"), 35.9),
        ("dgx-a100", 1, "all_reduce", 16 * MIB, ("ring", "LL128"), 173.6),
        ("dgx-a100", 1, "all_reduce", 1024 * MIB, ("ring", "Simple"), 7885),
        ("dgx-h100", 1, "all_reduce", 16 * MIB, ("nvls", "Simple"), 86.7),
        ("dgx-h100", 1, "all_gather", 1024 * MIB, ("ring", "Simple"), 2642),
        ("dgx-b200", 1, "all_reduce", 16 * MIB, ("nvls", "Simple"), 65.8),
        ("dgx-a100", 2, "all_reduce", 1024, ("tree", "LL"), 25.3),
        ("dgx-a100", 2, "all_reduce", MIB, ("tree", "LL128"), 70.3),
        ("dgx-a100", 2, "all_reduce", 1024 * MIB, ("ring", "Simple"), 10772),
        ("p5", 2, "all_reduce", MIB, ("tree", "LL128"), 60.9),
        ("dgx-b200", 4, "all_reduce", 16 * MIB, ("nvls_tree", "Simple"), 229.5),
        ("gh200-4", 1, "all_reduce", 1024, ("ring", "LL"), 10.2),
        ("h100-4", 2, "all_reduce", 1024 * MIB, ("tree", "Simple"), 13028),
        ("dgx-h100", 32, "all_reduce", 2048 * MIB, ("nvls_tree", "Simple"), 11987),
        ("dgx-h100", 32, "all_gather", 2048 * MIB, ("ring", "Simple"), 6775),
    ],
)
def test_the_choice_and_its_time(on, nodes, collective, nbytes, wanted, us):
    chosen = cost.nccl_choice(collective, nbytes, on, nodes=nodes)
    assert (chosen.algorithm, chosen.protocol) == wanted
    assert chosen.us == pytest.approx(us, rel=5e-3)


def test_a_rack_and_two_racks_of_64():
    assert cost.nccl_choice("all_reduce", 2**33, "gb200-nvl72", ranks=64).us == pytest.approx(18455, rel=1e-3)
    two = cost.nccl_choice("all_reduce", 2**33, "gb200-nvl72", nodes=2, ranks=128)
    assert (two.algorithm, two.us) == ("nvls_tree", pytest.approx(18643, rel=1e-3))


@pytest.mark.parametrize(
    ("on", "nodes", "wanted"),
    [
        ("dgx-a100", 1, [("ring", "LL", 0), ("ring", "LL128", 2.1e6), ("ring", "Simple", 25e6)]),
        ("dgx-h100", 1, [("ring", "LL", 0), ("nvls", "Simple", 1.2e6)]),
        ("dgx-b200", 1, [("ring", "LL", 0), ("nvls", "Simple", 2.7e6)]),
        ("dgx-h100", 8, [("tree", "LL", 0), ("tree", "LL128", 0.18e6), ("nvls_tree", "Simple", 11.6e6), ("ring", "Simple", 2.4e9)]),
    ],
)  # fmt: skip
def test_where_it_changes_over(on, nodes, wanted):
    seen, nbytes = [], 1024.0
    while nbytes < 2**34:
        chosen = cost.nccl_choice("all_reduce", nbytes, on, nodes=nodes)
        if [(chosen.algorithm, chosen.protocol)] != [at[:2] for at in seen[-1:]]:
            seen.append((chosen.algorithm, chosen.protocol, nbytes))
        nbytes *= 1.01
    assert [at[:2] for at in seen] == [at[:2] for at in wanted]
    for (*_, nbytes), (*_, about) in zip(seen[1:], wanted[1:], strict=True):
        assert nbytes == pytest.approx(about, rel=0.05)


def test_little_to_do_takes_few_channels():
    assert [cost.nccl_choice("all_reduce", n, "dgx-h100").channels for n in (8, MIB, 2**30)] == [1, 24, 16]


def test_a_broadcast_behind_one_switch_is_cheap():
    one = found("broadcast", "dgx-h100")["ring", "LL"][0]
    several = found("broadcast", "dgx-h100", 2)["ring", "LL"][0]
    assert one == 7.2 and several == pytest.approx(6.6 + 16 * 2.7, abs=0.1)


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_gets_slower_with_bytes_and_has_a_choice(name):
    where = machine(name)
    for sizes, nodes in ((where.one, 1), (where.several, 4)):
        for gpus in sizes:
            if gpus * nodes > 1:
                us = [
                    cost.nccl_choice("all_reduce", n, where, nodes=nodes, ranks=gpus * nodes).us
                    for n in (8, MIB, 2**30)
                ]
                assert us == sorted(us) and us[0] > 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cost.nccl_choice("all_to_all", 8), "decides on all_reduce, all_gather"),
        (lambda: cost.nccl_choice("all_reduce", 8, "dgx-x"), "no machine 'dgx-x'; there are dgx-a100"),
        (lambda: cost.nccl_choice("all_reduce", 8, ranks=9, nodes=2), "9 ranks do not fill 2 nodes"),
        (lambda: cost.nccl_choice("all_reduce", 8, ranks=16), "16 ranks do not fill 1 node"),
        (lambda: cost.nccl_choice("all_reduce", 8, ranks=6, nodes=2), "for 3 GPUs on each of 2 nodes is not known; known are 1, 8"),
        (lambda: cost.nccl_choice("all_reduce", -1), "nbytes is -1"),
        (lambda: cost.nccl_choice("all_reduce", 8, ranks=1), "nothing to communicate"),
        (lambda: cost.NcclMachine("x", "X", "Pascal", 8, "Intel"), "no Pascal"),
    ],
)  # fmt: skip
def test_what_the_tuner_does_not_know_is_one_sentence(call, words):
    with pytest.raises(CostError, match=words):
        call()


def test_without_nvls_the_tuner_takes_a_ring_or_a_tree():
    for nodes in (1, 2, 8):
        options = cost.nccl_options("all_reduce", 2**30, "dgx-h100", nodes=nodes, nvls=False)
        assert {option.algorithm for option in options} == {"ring", "tree"}
    off = cost.nccl_price("all_reduce", 2**30, "dgx-h100", nvls=False)
    assert off.option.algorithm == "ring" and off.seconds > cost.nccl_price("all_reduce", 2**30, "dgx-h100").seconds


def test_with_sharp_the_switches_of_the_network_add():
    """By the formulas of tuning.cc: NVLS up the cards' bandwidth, and CollNet's two, at half of the bus bandwidth."""
    found = {o.algorithm: o for o in cost.nccl_options("all_reduce", 2**30, "dgx-h100", nodes=8, sharp=True)}
    assert set(found) == {"ring", "tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain"}
    assert found["nvls"].gb_per_s == pytest.approx(8 * 48 * 64 / 126) and found["nvls"].latency_us == 25 + 18
    assert found["collnet_chain"].gb_per_s == pytest.approx(8 * 48 / 2)
    assert found["collnet_chain"].latency_us == pytest.approx(2 * 7 * 2.8 + 30)
    assert found["collnet_direct"].gb_per_s == pytest.approx(
        8 * 48 / 2 * 0.85
    )  # as many channels as ranks: a factor of 1
    assert found["collnet_direct"].latency_us == pytest.approx(2 * (3.7 + 0.4 * 7) + 31)
    gathered = {o.algorithm: o for o in cost.nccl_options("all_gather", 2**30, "dgx-h100", nodes=8, sharp=True)}
    assert gathered["collnet_direct"].gb_per_s == pytest.approx(8 * 0.9 * 48)
    quick, usual = (cost.nccl_price("all_reduce", 2**30, "dgx-h100", nodes=8, sharp=on) for on in (True, False))
    assert quick.option.algorithm == "nvls" and quick.seconds < usual.seconds


def test_sharp_needs_a_network_and_is_off_by_default():
    assert cost.nccl_options("all_reduce", 2**20, sharp=True) == cost.nccl_options("all_reduce", 2**20)
    usual = {o.algorithm for o in cost.nccl_options("all_reduce", 2**20, "dgx-h100", nodes=2)}
    assert not usual & {"nvls", "collnet_direct", "collnet_chain"}


def test_an_older_version_of_nccl_has_its_own_tables():
    """2.27.7 and 2.30.7 differ in Blackwell's caps and in a hop of NVLSTree; on other machines without NVLSTree they agree."""
    for nodes in (1, 2, 8):
        for name, same in (("dgx-a100", True), ("dgx-b200", False)):
            old, new = (cost.nccl_options("all_reduce", 2**26, name, nodes=nodes, version=v) for v in ("2.27", "2.30"))
            assert (old == new) == same, (name, nodes)
    old, new = (
        {(o.algorithm, o.protocol): o for o in cost.nccl_options("all_reduce", 2**26, "dgx-h100", nodes=4, version=v)}
        for v in ("2.27", "2.30")
    )
    assert new["nvls_tree", "Simple"].latency_us - old["nvls_tree", "Simple"].latency_us == pytest.approx(4 * 6.9)
    with pytest.raises(CostError, match=r"NCCL 2\.32 is not known"):
        cost.nccl_options("all_reduce", 8, version="2.32")
    assert (
        cost.nccl_price("all_reduce", 2**26, "dgx-b200", nodes=2, version="2.27").seconds
        != cost.nccl_price("all_reduce", 2**26, "dgx-b200", nodes=2).seconds
    )

"""No price lies below what the links carry, and both ways to simulate say the same lower bound."""

import itertools
import json

import pytest
from allranks.cli import main
from allranks.theory.cost import CostError, bus_factor, lower_bound_seconds, nccl_price
from allranks.theory.cost.calibrated import possible
from allranks.theory.cost.nccl import call
from allranks.theory.cost.nccl_bounds import links_of, machine_bound_s, roof_s
from allranks.theory.cost.nccl_machines import MACHINES
from allranks.theory.topology import PRESETS, uniform
from click.testing import CliRunner

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all")
SIZES = (8, 1 << 16, 1 << 20, 14 * 10**9, 1 << 33)
HARDLY = 1 + 1e-9


def simulated(*arguments):
    ran = CliRunner().invoke(main, ["simulate", *map(str, arguments), "--json"])
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


def fits(where, nodes):
    try:
        where.graphs(where.gpus_per_node, nodes)
    except CostError:
        return False
    return True


@pytest.mark.parametrize(("name", "collective"), [(n, c) for n in MACHINES if n in PRESETS for c in COLLECTIVES])
def test_both_commands_say_one_bound_and_no_interval_reaches_below_it(name, collective):
    where = MACHINES[name]
    for nodes, nbytes in itertools.product((1, 2, 4, 64), SIZES):
        if not fits(where, nodes) or (nodes > 1 and PRESETS[name].nic is None):
            continue
        asked = ("--topology", name, "--nodes", nodes, "--collective", collective, "--bytes", nbytes)
        plain, nccl = simulated(*asked), simulated(*asked, "--algorithm", "nccl")
        assert plain["lower_bound_seconds"] == nccl["lower_bound_seconds"] > 0
        assert plain["lower_bound_seconds"] <= plain["seconds"] * HARDLY
        for found in (plain, nccl):
            if "low" in found:
                assert found["lower_bound_seconds"] <= found["low"] * HARDLY
                assert found["low"] <= found["median"] <= found["high"]


@pytest.mark.parametrize("name", MACHINES)
def test_no_interval_reaches_below_the_roof_of_the_algorithm(name):
    where = MACHINES[name]
    for nodes, collective, nbytes in itertools.product((1, 2, 3, 16), COLLECTIVES, (1 << 10, 1 << 28, 1 << 33)):
        if not fits(where, nodes) or nodes * where.gpus_per_node == 1:
            continue
        ranks = nodes * where.gpus_per_node
        price = nccl_price(collective, nbytes, where, nodes=nodes)
        algorithm = price.option.algorithm if price.option else "exchange"
        assert roof_s(algorithm, call(collective, nbytes, where, nodes)) <= price.low_s * HARDLY
        assert machine_bound_s(collective, ranks, nbytes, links_of(where, nodes, ranks)) <= price.low_s * HARDLY
        assert price.low_s <= price.seconds <= price.high_s
        if algorithm == "ring" and nodes > 1:
            ring = where.graphs(where.gpus_per_node, nodes).ring
            busbw = nbytes * float(bus_factor(collective, ranks)) / price.low_s / 1e9
            assert busbw <= ring.channels * ring.between * HARDLY


def test_two_nodes_are_no_faster_than_one():
    """NVLSTree does in each node what NVLS does on one."""
    for name in ("dgx-h100", "dgx-b200", "p5en"):
        one, two = (nccl_price("all_reduce", 14e9, name, nodes=nodes) for nodes in (1, 2))
        assert two.low_s >= one.low_s and two.seconds >= one.seconds


def test_all_to_all_is_bound_by_the_cards_of_its_node():
    """Each of 16 ranks sends 15/16; half of all goes over a card of its own."""
    n = 1 << 33
    found = machine_bound_s("all_to_all", 16, n, PRESETS["dgx-h200"])
    assert found == pytest.approx(n * 8 / 16 / 50e9, rel=1e-3)


def test_switches_that_add_let_a_rank_send_each_byte_once():
    machine = uniform(0.0, 1e9)
    plain, added = (lower_bound_seconds("all_reduce", 8, 10**9, machine, switches=on) for on in (False, True))
    assert (plain, added) == (pytest.approx(1.75), pytest.approx(1.0))
    others = [lower_bound_seconds(c, 8, 10**9, machine, switches=True) for c in ("all_gather", "reduce")]
    assert others == [pytest.approx(0.875), pytest.approx(1.0)]
    assert lower_bound_seconds("all_reduce", 1, 10**9, machine, switches=True) == 0
    h100 = PRESETS["dgx-h100"]
    assert machine_bound_s("all_reduce", 8, 2**33, h100) < machine_bound_s("all_reduce", 8, 2**33, h100, nvls=False)


@pytest.mark.parametrize("least", [-50.0, -1.0, -0.5, 0.0, 0.3, 1.0, 5.0, 40.0])
def test_what_is_possible_is_ordered_and_lies_above_the_least(least):
    low, median, high = possible(0.0, 0.5, least)
    assert least <= low <= median <= high
    assert low < median < high
    if least <= -0.5:
        assert (low, median, high) == (-0.5, 0.0, 0.5)

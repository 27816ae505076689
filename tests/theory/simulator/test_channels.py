"""Every card of a node at once: the simulation, a plan, `price` and the wire's clock say the same seconds."""

import itertools
import json
from dataclasses import replace

import pytest
from allranks import cost, topology
from allranks.cli import main
from allranks.theory.cost import workload
from allranks.theory.cost.plan import links_of_group, plan
from allranks.theory.schedules import ScheduleError
from allranks.theory.simulator import channels
from allranks.theory.simulator.simulation import SimulateError, TopologyNetwork, run_schedule, simulate
from click.testing import CliRunner

CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@pytest.mark.parametrize("name", topology.PRESETS)
def test_the_simulation_and_the_price_of_a_plan_agree_on_all_machines(name: str) -> None:
    machine = topology.preset(name)
    for call, nodes, nbytes in itertools.product(CALLS, (1, 2, 3, 40), (1 << 20, 1 << 30)):
        ranks = nodes * machine.ranks_per_node
        if nodes > 1 and machine.nic is None:
            continue
        found = simulate(call, channels.USUAL[call], ranks, nbytes, machine)
        cluster = links_of_group(machine, ranks, stride=1, size=ranks, to_all=call == "all_to_all")
        priced = workload._collective("", call, 1, nbytes, cluster).seconds
        assert found.seconds == pytest.approx(priced, rel=0.01), (call, nodes, nbytes)


@pytest.mark.parametrize("name", topology.PRESETS)
def test_on_one_node_they_are_the_ring_of_the_schedules(name: str) -> None:
    machine = topology.preset(name)
    many, one = (
        simulate("all_reduce", way, machine.ranks_per_node, 1 << 30, machine) for way in ("ring channels", "ring")
    )
    assert many.seconds == pytest.approx(one.seconds, rel=0.01)


def test_on_several_nodes_one_ring_uses_one_card_and_the_channels_all() -> None:
    machine = topology.preset("dgx-h100")
    many, one = (simulate("all_reduce", way, 80, 1 << 30, machine).seconds for way in ("ring channels", "ring"))
    assert 6 < one / many < 8.1


def test_the_wire_s_clock_takes_the_same_seconds() -> None:
    machine = topology.preset("dgx-a100")
    network = TopologyNetwork(machine)
    for call in CALLS:
        given = (1 << 24) // (32 if call == "all_gather" else 1)
        found = network.collective_seconds(call, tuple(range(32)), given)
        assert found == pytest.approx(simulate(call, channels.USUAL[call], 32, 1 << 24, machine).seconds)
    for call in ("broadcast", "reduce"):
        found = network.collective_seconds(call, tuple(range(32)), 1 << 24)
        assert found == simulate(call, "ring channels", 32, 1 << 24, machine).seconds
    halves = (1 << 24) // 32
    assert network.collective_seconds("all_gather_into_tensor", tuple(range(32)), halves) == pytest.approx(
        simulate("all_gather", "ring channels", 32, 1 << 24, machine).seconds
    )


def test_one_card_of_eight_ranks_is_shared_by_their_rings() -> None:
    machine = topology.preset("cloud-ethernet")
    found = simulate("all_gather", "ring channels", 16, 1 << 30, machine)
    assert found.seconds >= 15 / 16 * (1 << 30) / machine.nic.bytes_per_s


def test_a_failed_card_makes_two_rings_share_the_next() -> None:
    machine = topology.preset("dgx-h100")
    failed = machine.with_failure("nic", 0, 3)
    whole, broken = (simulate("all_reduce", "ring channels", 16, 1 << 30, m).seconds for m in (machine, failed))
    assert 1.7 < broken / whole < 2


def test_what_they_can_not_do_is_said() -> None:
    machine = topology.preset("dgx-h100")
    with pytest.raises(SimulateError, match="not for 'scatter'"):
        simulate("scatter", "ring channels", 16, 100, machine)
    with pytest.raises(SimulateError, match="tree channels are for all_reduce, not for 'broadcast'"):
        simulate("broadcast", "tree-channels", 16, 100, machine)
    with pytest.raises(ScheduleError, match="nodes with equally many of the 12 ranks"):
        simulate("all_reduce", "hierarchical channels", 12, 100, machine)
    with pytest.raises(ScheduleError, match="pairs that differ"):
        simulate("all_to_all", "pairwise channels", 16384, 100, machine.with_straggler(0, 2.0))
    with pytest.raises(SimulateError, match="no messages one by one"):
        simulate("all_reduce", "ring channels", 16, 100, machine, method="events")
    with pytest.raises(SimulateError, match="bytes"):
        simulate("all_reduce", "ring channels", 16, -1, machine)
    with pytest.raises(SimulateError, match="closed form"):
        simulate("all_reduce", "ring channels", 16, 100, machine).trace  # noqa: B018


@pytest.mark.parametrize("name", topology.PRESETS)
def test_the_commands_agree_on_all_machines(name: str) -> None:
    """`allranks simulate`, `allranks price` and the data parallel part of a plan: one number for one all-reduce."""
    machine = topology.preset(name)
    ranks = machine.ranks_per_node * (1 if machine.nic is None else 2)
    told = json.loads(_told("simulate", "--topology", name, "--ranks", f"{ranks}", "--bytes", "2GB", "--json"))
    priced = json.loads(
        _told(
            "price", "ddp", "--topology", name, "--ranks", f"{ranks}", "--parameters", "1e9", "--bucket", "0", "--json"
        )
    )
    model = replace(plan("7B", name).model, parameters=1e9)
    planned = plan(model, name, dp=ranks, batch=ranks, bucket_nbytes=None).prices["data"].seconds
    assert told["seconds"] == pytest.approx(priced["seconds"], rel=0.01)
    assert told["seconds"] == pytest.approx(planned, rel=0.01)


def test_an_exchange_sends_only_what_leaves_through_the_cards() -> None:
    machine = topology.preset("dgx-h100")
    found = simulate("all_to_all", "pairwise channels", 16, 1 << 30, machine)
    assert found.seconds == pytest.approx(
        15 * 5e-6 + (1 << 30) * 8 / 16 / 50e9
    )  # half of each rank's bytes, its own card
    inside = simulate("all_to_all", "pairwise channels", 8, 1 << 30, machine)
    assert inside.seconds == pytest.approx(7 * 2e-6 + (1 << 30) * 7 / 8 / 371e9)
    assert inside.seconds == pytest.approx(simulate("all_to_all", "pairwise", 8, 1 << 30, machine).seconds, rel=1e-6)


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_where_the_machine_repeats_one_unit_stands_for_all(nodes: int) -> None:
    """Named members have no symmetry to use: so every pair is followed."""
    leaves = {"nodes_per_leaf": nodes, "oversubscription": 2.0}
    machines = [
        topology.preset("dgx-a100"),
        replace(topology.preset("cloud-ethernet"), nodes_per_leaf=None),
        replace(topology.preset("dgx-h100"), **leaves),
        replace(topology.preset("dgx-h100"), **leaves, rails=True),
    ]
    for machine in machines:
        ranks = nodes * machine.ranks_per_node * (2 if machine.nodes_per_leaf else 1)
        every_pair = channels._exchange_beta(machine.with_straggler(0, 1.0), tuple(range(ranks)))
        assert channels._exchange_beta(machine, tuple(range(ranks))) == pytest.approx(every_pair)


def test_two_levels_without_segments_are_the_formula_and_with_them_both_work_at_once() -> None:
    machine = topology.preset("dgx-h100")
    small = simulate("all_reduce", "hierarchical channels", 32, 1024, machine).seconds
    inner, outer = ((link.alpha_s, link.beta_s_per_byte) for link in (machine.inside, machine.nic))
    assert small == pytest.approx(float(cost.two_level(4, 8, 1024, inner, outer)))
    big, whole = (
        simulate("all_reduce", way, 32, 1 << 32, machine).seconds for way in ("hierarchical channels", "hierarchical")
    )
    busiest = 2 * (1 << 32) * max(7 / 8 / 371e9, 3 / 4 / 8 / 50e9)
    assert busiest < big < 1.1 * busiest < whole


def test_a_tree_is_faster_where_messages_are_short_and_as_fast_where_they_are_long() -> None:
    machine = topology.preset("dgx-h100")
    tree, ring = (
        [simulate("all_reduce", way, 512, n, machine).seconds for n in (1 << 10, 1 << 34)]
        for way in ("tree channels", "ring channels")
    )
    assert tree[0] == pytest.approx(2 * (7 * 2e-6 + 6 * 5e-6), rel=0.01)
    assert tree[0] < ring[0] / 25 and tree[1] == pytest.approx(ring[1], rel=0.1)


def test_a_root_s_vector_goes_in_segments_through_a_ring_of_every_card() -> None:
    machine = topology.preset("dgx-a100")
    found = simulate("broadcast", "ring channels", 16, 1 << 30, machine).seconds
    k = cost.best_segments(16, 1 << 30, 5e-6, 1 / 200e9)
    chain = cost.price("broadcast", "chain", 16, 1 << 30, 5e-6, 1 / 200e9, segments=k)
    assert chain <= found < 1.02 * chain  # segments are a power of two
    assert simulate("reduce", "ring channels", 16, 1 << 30, machine, gamma=1e-12).seconds == pytest.approx(
        found + 15 / 16 * (1 << 30) * 1e-12
    )


def test_hierarchical_halves_are_what_their_messages_take() -> None:
    machine = topology.preset("dgx-h100")
    for call in ("all_gather", "reduce_scatter"):
        one_by_one = run_schedule(
            simulate(call, "hierarchical", 32, 1 << 26, machine, method="events").schedule, 1 << 26, machine
        ).seconds
        by_symmetry = simulate(call, "hierarchical", 32, 1 << 26, machine, method="symmetry").seconds
        assert one_by_one == pytest.approx(by_symmetry)
        assert simulate(call, "hierarchical channels", 32, 1 << 26, machine).seconds < one_by_one


def _told(*arguments: str) -> str:
    ran = CliRunner().invoke(main, list(arguments))
    assert ran.exit_code == 0, ran.output
    return ran.stdout

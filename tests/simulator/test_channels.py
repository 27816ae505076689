"""Rings over every card at once: the simulation, a plan and the wire's clock say the same seconds."""

import itertools

import pytest
from allranks import topology
from allranks.cost import workload
from allranks.cost.plan import links_of_group
from allranks.simulator import SimulateError, TopologyNetwork, simulate

CALLS = ("all_reduce", "all_gather", "reduce_scatter")


@pytest.mark.parametrize("name", topology.PRESETS)
def test_the_simulation_and_the_price_of_a_plan_agree_on_all_machines(name: str) -> None:
    machine = topology.preset(name)
    for call, nodes, nbytes in itertools.product(CALLS, (1, 2, 3, 40), (1 << 20, 1 << 30)):
        ranks = nodes * machine.ranks_per_node
        if nodes > 1 and machine.nic is None:
            continue
        found = simulate(call, "ring-channels", ranks, nbytes, machine)
        cluster = links_of_group(machine, ranks, stride=1, size=ranks)
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
        assert found == pytest.approx(simulate(call, "ring channels", 32, 1 << 24, machine).seconds)


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
    with pytest.raises(SimulateError, match="not for 'broadcast'"):
        simulate("broadcast", "ring channels", 16, 100, machine)
    with pytest.raises(SimulateError, match="no messages one by one"):
        simulate("all_reduce", "ring channels", 16, 100, machine, method="events")
    with pytest.raises(SimulateError, match="bytes"):
        simulate("all_reduce", "ring channels", 16, -1, machine)
    with pytest.raises(SimulateError, match="one step"):
        simulate("all_reduce", "ring channels", 16, 100, machine).trace  # noqa: B018

"""Paths, shared links, disturbances and presets, by hand."""

from dataclasses import replace

import pytest
from allranks.theory.cost import MACHINES
from allranks.theory.cost.nccl_tables import NVLINK_GB_PER_S
from allranks.theory.cost.step import GPUS
from allranks.theory.topology import PRESETS, Link, Topology, TopologyError, preset, round_robin, uniform

H100 = preset("dgx-h100")
ETHERNET = preset("cloud-ethernet")


def test_presets_by_their_sources():
    shape = {name: (t.ranks_per_node, t.inside.bytes_per_s / 1e9, *_cards(t)) for name, t in PRESETS.items()}
    assert shape == {
        "dgx-a100": (8, 240, 8, 25), "dgx-h100": (8, 371, 8, 50), "dgx-h200": (8, 371, 8, 50), "dgx-b200": (8, 722, 8, 50),
        "gb200-nvl72": (72, 722, 72, 50), "gh200-4": (4, 371, 4, 25), "p4d": (8, 240, 4, 12.5), "p5": (8, 371, 8, 50),
        "pcie-8": (8, 24, 1, None), "cloud-ethernet": (8, 31.5, 1, 12.5), "ethernet-2x100g": (8, 31.5, 2, 12.5),
    }  # fmt: skip
    links = [link for t in PRESETS.values() for link in (t.inside, t.host, t.nic) if link is not None]
    assert all(t.source for t in PRESETS.values()) and all(link.source for link in links)
    assert preset("DGX-H100") is H100


def _cards(machine):
    return machine.nics_per_node, None if machine.nic is None else machine.nic.bytes_per_s / 1e9


def test_every_preset_has_a_gpu_and_those_of_nccl_s_tables_have_their_links():
    assert set(GPUS) == set(PRESETS) and all(gpu.source and gpu.nbytes < 200e9 for gpu in GPUS.values())
    for name in PRESETS.keys() & MACHINES.keys():
        assert PRESETS[name].ranks_per_node == MACHINES[name].gpus_per_node
        gpu = MACHINES[name].gpu.replace("GB200", "B200").replace("GH200", "H100")
        if gpu in NVLINK_GB_PER_S:
            assert PRESETS[name].inside.bytes_per_s == 1e9 * NVLINK_GB_PER_S[gpu]


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(TopologyError, match=f"no topology 'dgx-h300'; there are {', '.join(PRESETS)}, and files"):
        preset("dgx-h300")


def test_inside_a_node_nothing_is_shared():
    assert H100.links(0, 7) == ()
    assert H100.seconds(0, 7, 371_000_000) == pytest.approx(2e-6 + 1e-3)
    assert H100.links(3, 3) == () and H100.seconds(3, 3, 10**9) == 0


def test_between_nodes_each_rank_of_a_dgx_has_its_card():
    assert H100.links(0, 8) == (("nic out", 0, 0), ("nic in", 1, 0))
    assert H100.links(5, 14) == (("nic out", 0, 5), ("nic in", 1, 6))
    assert H100.seconds(0, 8, 50_000_000) == pytest.approx(5e-6 + 1e-3)


def test_ranks_share_cards_evenly_where_there_are_fewer():
    half = replace(H100, nics_per_node=4)
    assert [half.nic_of(r) for r in range(16)] == [0, 0, 1, 1, 2, 2, 3, 3] * 2


def test_islands_meet_on_the_host_link():
    assert ETHERNET.links(0, 3) == ()
    assert ETHERNET.links(1, 6) == (("host out", 0, 0), ("host in", 0, 1))
    assert ETHERNET.seconds(1, 6, 0) == 5e-6


def test_a_fat_tree_picks_uplinks_by_port():
    fat = replace(H100, nodes_per_leaf=2, oversubscription=4.0)  # 16 ports, 4 uplinks
    assert len(fat.links(0, 8)) == 2
    assert fat.links(5, 16) == (("nic out", 0, 5), ("leaf up", 0, (0, 1)), ("leaf down", 1, (0, 0)), ("nic in", 2, 0))
    assert fat.links(13, 16)[1] == ("leaf up", 0, (0, 1))


@pytest.mark.parametrize(("factor", "uplinks"), [(1, 16), (4, 4), (3, 6), (32, 1), (20.5, 1)])
def test_uplinks_have_the_bandwidth_that_the_oversubscription_leaves(factor, uplinks):
    """Where it leaves no whole number of links, there is one more and each is slower."""
    fat = replace(H100, nodes_per_leaf=2, oversubscription=factor)
    assert {fat.links(rank, 16)[1][2][1] for rank in range(16)} == set(range(uplinks))
    n, near = 1 << 40, H100.seconds(0, 16, 1 << 40)
    assert fat.seconds(0, 16, n) * 16 / uplinks == pytest.approx(near * factor)
    assert fat.seconds(0, 8, n) == H100.seconds(0, 8, n)  # under one leaf switch


def test_rails_stay_on_their_own_leaf():
    rails = replace(H100, nodes_per_leaf=4, rails=True)
    assert len(rails.links(0, 24)) == 2  # card 0 to card 0: one switch
    assert len(rails.links(0, 25)) == 4  # card 0 to card 1: through the spine
    assert len(rails.links(0, 32)) == 4  # the same rail, another leaf


def test_stragglers_slow_every_message_that_they_are_part_of():
    slow = H100.with_straggler(3, 2.5)
    for pair in ((3, 0), (0, 3), (3, 11)):
        assert slow.seconds(*pair, 1000) == pytest.approx(2.5 * H100.seconds(*pair, 1000))
    assert slow.seconds(0, 1, 1000) == H100.seconds(0, 1, 1000)


def test_background_traffic_takes_its_share_of_the_bandwidth_and_no_latency():
    busy = H100.with_background("nic", 0.5)
    assert busy.seconds(0, 8, 50_000_000) == pytest.approx(5e-6 + 2e-3)
    assert busy.seconds(0, 1, 1000) == H100.seconds(0, 1, 1000)


def test_a_failed_card_is_replaced_by_the_next():
    broken = H100.with_failure("nic", 0, 7)
    assert broken.nic_of(7) == 0 and broken.nic_of(15) == 7
    for card in range(7):
        broken = broken.with_failure("nic", 0, card)
    with pytest.raises(TopologyError, match="every nic link of node 0 has failed"):
        broken.links(0, 8)


def test_a_failed_nvlink_goes_by_the_host_or_not_at_all():
    with pytest.raises(TopologyError, match="no host link to take its place"):
        H100.with_failure("inside", 0, 2).seconds(2, 3, 1)
    other = ETHERNET.with_failure("inside", 0, 2)
    assert other.links(2, 3) == (("host out", 0, 0), ("host in", 0, 0))
    assert other.links(0, 3) == ()


def test_a_failed_uplink_is_replaced_by_the_next():
    fat = replace(H100, nodes_per_leaf=1, oversubscription=4.0).with_failure("leaf", 0, 1)
    assert fat.links(1, 8)[1] == ("leaf up", 0, (0, 0))
    assert fat.links(0, 8)[1] == ("leaf up", 0, (0, 0))


def test_units_that_repeat():
    assert H100.symmetric_unit(8) == 1
    assert H100.symmetric_unit(64) == 8
    assert H100.symmetric_unit(60) is None
    assert replace(H100, nodes_per_leaf=4).symmetric_unit(64) == 32
    assert replace(H100, nodes_per_leaf=8).symmetric_unit(64) == 8
    assert H100.with_straggler(0, 2).symmetric_unit(64) is None
    assert H100.with_failure("nic", 0, 0).symmetric_unit(64) is None
    assert H100.with_background("nic", 0.2).symmetric_unit(64) == 8
    assert uniform(1e-6, 1e9).symmetric_unit(12345) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: uniform(-1e-6, 1e9), "alpha of the link is -1e-06 s"),
        (lambda: uniform(0, 0), "bandwidth of the link is 0 bytes/s"),
        (lambda: uniform(0, float("nan")), "bandwidth of the link is nan"),
        (lambda: Topology("x", 0, Link("l", 0, 1)), "at least one rank"),
        (lambda: Topology("x", 8, Link("l", 0, 1), ranks_per_island=3, host=Link("h", 0, 1)), "islands of 3 ranks"),
        (lambda: Topology("x", 8, Link("l", 0, 1), ranks_per_island=4), "needs a host link"),
        (lambda: replace(H100, oversubscription=0.5), "oversubscription is 0.5"),
        (lambda: H100.with_straggler(0, 0), "can't be 0 times as slow"),
        (lambda: H100.with_background("nic", 1.0), "can't take 1.0 of 'nic'"),
        (lambda: H100.with_background("nvlink", 0.1), "it can't take 0.1 of 'nvlink'"),
        (lambda: H100.with_failure("gpu", 0, 0), "not 'gpu'"),
        (lambda: H100.with_failure("nic", 7, 99), "node 7 has no nic link 99; it has 8, numbered from 0"),
        (lambda: H100.with_failure("leaf", 0, 0), "leaf switch 0 has no leaf link 0; it has 0, numbered from 0"),
        (lambda: H100.with_background("leaf", 0.9), "dgx-h100 has no leaf links for others to use"),
        (lambda: uniform(0.0, 1e9).with_background("nic", 0.1), "has no nic links"),
    ],
)
def test_impossible_machines_are_refused(make, words):
    with pytest.raises(TopologyError, match=words):
        make()


def test_round_robin_deals_the_ranks_out_to_the_nodes():
    assert round_robin(6, 3) == [0, 3, 1, 4, 2, 5]
    assert round_robin(8, 4, together=2) == [0, 1, 4, 5, 2, 3, 6, 7]
    assert round_robin(4, 4) == round_robin(4, 1) == [0, 1, 2, 3]


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
@pytest.mark.parametrize(("ranks_per_node", "together"), [(1, 1), (4, 1), (4, 2), (6, 3), (6, 6)])
def test_neighbours_turns_are_on_different_nodes_and_no_seat_is_taken_twice(nodes, ranks_per_node, together):
    seats = round_robin(nodes * ranks_per_node, ranks_per_node, together)
    assert sorted(seats) == list(range(len(seats)))
    for rank, seat in enumerate(seats):
        assert seat // ranks_per_node == rank // together % nodes


@pytest.mark.parametrize("sizes", [(6, 4, 1), (8, 4, 3), (0, 1, 1), (4, 0, 1), (4, 2, 0)])
def test_ranks_that_do_not_fill_their_nodes_are_refused(sizes):
    with pytest.raises(
        TopologyError, match=f"{sizes[0]} ranks, dealt {sizes[2]} at a time, don't fill nodes of {sizes[1]}"
    ):
        round_robin(*sizes)

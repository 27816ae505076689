"""Is my busbw normal? Sweeps of known shapes beside the published ones."""

import pytest
from allranks.theory.cost.bandwidth import bus_factor
from allranks.theory.cost.nccl_bounds import ABOVE_SEARCH
from allranks.theory.cost.nccl_tests import Measured
from allranks.theory.cost.normal import _rows, normal, published
from allranks.theory.cost.terms import COLLECTIVES

H100 = "NVIDIA H100 80GB HBM3"


def reference():
    """The median of what was published for eight H100s."""
    run = Measured("all_reduce", 8, 1, [(2**k, 1.0) for k in range(10, 34)], gpu=H100)
    return [(n, there or model) for n, _, there, model in normal(run).rows]


def sweep(shape, gpu=H100):
    points = [(n, n * 1.75 / (1e9 * busbw * shape(n))) for n, busbw in reference()]
    return normal(Measured("all_reduce", 8, 1, points, gpu=gpu))


def test_a_run_like_the_published_ones_is_normal():
    found = sweep(lambda n: 1.0)
    assert found.of_reference == pytest.approx(1, abs=0.01) and found.falls_off is None and not found.shapes
    assert found.machine == "dgx-h100" and len(found.sites) == 2 and found.percentile is None


@pytest.mark.parametrize(
    ("shape", "looks", "usual"),
    [
        (lambda n: 0.55 if n <= 65536 else 1.0, "small sizes take 1.8", "wrong CPUs"),
        (lambda n: 0.5, "half of what is normal", "ACS"),
        (lambda n: 0.24 if n > 2**20 else 1.0, "a quarter of what is normal", "PCIe"),
        (lambda n: min(1.0, 0.9) if n < 2**24 else 0.75, "roof of a ring", "NVLS is off"),
        (lambda n: 0.3 if n == 2**24 else 1.0, "a dent at 16 MiB", "protocol"),
        (lambda n: 0.1 if 2**24 <= n < 2**28 else 1.0, "and is back at 256 MiB", "through the host's memory"),
        (lambda n: 0.5 if 2**17 < n < 2**25 else 1.0, "middle sizes are low", "channels"),
    ],
)
def test_each_shape_has_its_usual_reason_and_a_test(shape, looks, usual):
    found = sweep(shape)
    first = next(s for s in found.shapes if looks in s.looks)
    assert usual in first.usual and len(first.test) > 20


def test_it_says_where_the_curve_leaves_the_reference():
    assert sweep(lambda n: 1.0 if n < 2**26 else 0.7).falls_off == 2**26


def test_gpus_that_nobody_knows_get_no_reference_and_no_verdict():
    found = sweep(lambda n: 0.5, gpu="NVIDIA Graphics Device")
    assert (found.gpu, found.machine, found.of_reference, found.falls_off, found.shapes) == ("", "", None, None, ())


@pytest.mark.parametrize(
    ("collective", "ranks", "nodes", "chip", "count"),
    [("all_reduce", 8, 1, "H100", 2), ("all_gather", 3, 1, "H100", 0)],
)
def test_only_runs_of_the_same_machine_count(collective, ranks, nodes, chip, count):
    found = published(collective, ranks, nodes, chip)
    assert len(found) == count
    for curve in found.values():
        assert curve == sorted(curve) and all(busbw > 0 for _, busbw in curve)
    assert bus_factor("all_reduce", 8) == 1.75


def test_a_rack_of_hosts_on_one_nvlink_domain_is_one_node():
    found = normal(Measured("all_reduce", 72, 18, [(2**30, 2**30 * 142 / 72 / 800e9)], gpu="NVIDIA GB200"))
    assert (found.nodes, found.domains, found.machine) == (18, 1, "gb200-nvl72") and found.top == pytest.approx(800)


def across(busbw, nodes=2, collective="all_reduce", gpu=H100, **known):
    """A sweep that ends at such a busbw."""
    ranks = 8 * nodes
    factor = float(bus_factor(collective, ranks))
    points = [(2**k, 50e-6 + 2**k * factor / (1e9 * busbw)) for k in range(10, 34)]
    return normal(Measured(collective, ranks, nodes, points, gpu=gpu), **known)


@pytest.mark.parametrize("busbw", [367, 377, 384])
def test_a_ring_at_the_line_rate_of_the_cards_is_named(busbw):
    found = across(busbw)
    assert found.of_reference < 0.85
    assert found.shapes[0].looks == "the large sizes end at the line rate of a ring"
    assert "NVLSTree is off" in found.shapes[0].usual and "nvls" in found.shapes[0].test


def test_slower_or_other_runs_are_not_at_the_line_rate_of_a_ring():
    runs = (
        across(330),
        across(470),
        across(40),
        across(80, collective="all_to_all"),
        across(90, gpu="NVIDIA A100-SXM4-40GB"),
    )
    assert not any("line rate" in shape.looks for found in runs for shape in found.shapes)


def test_where_the_switches_add_over_several_nodes_there_is_a_roof_for_it():
    roofs = dict(across(470).roofs)
    assert roofs["the network's cards, by a ring"] == 384
    assert 487 < roofs["the switches add in each node (NVLSTree)"] < 550  # 487 was published
    assert len(across(370, nodes=8).roofs) == 1  # there a tree sends twice, and is no faster than a ring


@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_the_roof_of_an_all_to_all_is_a_card_for_each_gpu(nodes):
    ((what, roof),) = across(80, nodes, "all_to_all").roofs
    ranks = 8 * nodes
    assert "all_to_all" in what and roof == pytest.approx(50 * (ranks - 1) / ranks * nodes / (nodes - 1), rel=1e-3)


@pytest.mark.parametrize(("share", "rails"), [(1 / 4, True), (1 / 8, True), (1 / 40, False), (1 / 565, False)])
def test_one_rail_of_several_carries_no_less_than_its_part(share, rails):
    """Of eight cards."""
    reference = across(400).rows[-1]
    found = across(share * (reference[2] or reference[3]))
    assert ("one rail" in found.shapes[0].usual) == rails and "sockets" in found.shapes[0].usual


def test_nodes_that_only_the_reader_knows_count():
    points = [(2**k, 2**k / 1e11) for k in range(20, 34)]
    found = normal(Measured("all_reduce", 16, None, points, gpu=H100), nodes=2)
    assert (found.nodes, found.domains) == (2, 2)


def test_no_published_run_is_above_the_highest_roof():
    """Two nodes of GH200 once had a "roof" of 96 GB/s under their 122, and 8 B200 one of 720 under 845."""
    seen = {}
    rows = _rows()
    for collective, ranks, nodes, chip in {
        (row["collective"], int(row["gpus"]), int(row["nodes"]), row["hardware"].replace(" ", "-").split("-")[0])
        for row in rows
        if row["collective"] in COLLECTIVES
    }:
        factor = float(bus_factor(collective, ranks))
        for site, whole in published(collective, ranks, nodes, chip).items():
            curve = sorted(whole, key=lambda point: point[1])[-2:]  # the fastest decide
            points = [(nbytes, nbytes * factor / busbw / 1e9) for nbytes, busbw in curve]
            said = normal(Measured(collective, ranks, nodes, points, gpu=chip))
            if said.roofs:
                highest = max(busbw for _, busbw in said.roofs)
                seen[collective, ranks, nodes, chip, site] = max(busbw for _, busbw in curve) / highest
    assert len(seen) > 20 and {share: run for run, share in seen.items() if share > ABOVE_SEARCH} == {}


def test_two_nodes_have_the_roof_of_a_tree_and_more_nodes_have_none():
    points = [(2**k, 50e-6 + 2**k * 1.75 / 90e9) for k in range(10, 34)]
    two, four = (
        dict(normal(Measured("all_reduce", 4 * nodes, nodes, points, gpu="NVIDIA GH200 120GB")).roofs)
        for nodes in (2, 4)
    )
    assert two["the network's cards, by a tree"] == pytest.approx(1.75 * two["the network's cards, by a ring"])
    assert list(four) == ["the network's cards, by a ring"]

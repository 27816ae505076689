"""Is my busbw normal? Sweeps of known shapes beside the published ones."""

from pathlib import Path

import pytest
from allranks.theory.cost.bandwidth import bus_factor
from allranks.theory.cost.nccl_tests import Measured
from allranks.theory.cost.normal import PUBLISHED, normal, published

ROOT = Path(__file__).resolve().parents[3]
H100 = "NVIDIA H100 80GB HBM3"


def reference():
    """The median of what was published for eight H100s."""
    run = Measured("all_reduce", 8, 1, [(2**k, 1.0) for k in range(10, 34)], gpu=H100)
    return [(n, there or model) for n, _, there, model in normal(run).rows]


def sweep(shape, gpu=H100):
    points = [(n, n * 1.75 / (1e9 * busbw * shape(n))) for n, busbw in reference()]
    return normal(Measured("all_reduce", 8, 1, points, gpu=gpu))


def test_the_packages_copy_is_that_of_the_docs():
    assert PUBLISHED.read_bytes() == (ROOT / "docs/measured/nccl_tests.csv").read_bytes()


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
    assert (found.nodes, found.machine) == (1, "gb200-nvl72") and found.top == pytest.approx(800)

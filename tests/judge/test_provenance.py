"""Values that tell where they came from, read back."""

from __future__ import annotations

import torch
from allranks.judge import provenance


def test_a_sum_names_its_contributions():
    p, n = 8, 40
    total = sum(provenance.values(rank, n) for rank in range(p))
    assert [(e.position, e.contributors) for e in provenance.read(total)] == [(i, tuple(range(p))) for i in range(n)]


def test_a_contribution_added_twice_shows():
    total = provenance.values(0, 5) + 2 * provenance.values(3, 5)
    assert {e.contributors for e in provenance.read(total)} == {(0, 3, 3)}


def test_elements_of_different_places_added_together_show():
    a, b = provenance.values(0, 6), provenance.values(1, 6)
    assert all(e.mixed for e in provenance.read(a[:3] + b[3:]))
    assert all(e.mixed for e in provenance.read(a[0:1] + b[2:3]))


def test_zeros_hold_nothing_and_other_values_are_no_provenance():
    assert [e.contributors for e in provenance.read(torch.zeros(2, dtype=torch.float64))] == [(), ()]
    assert provenance.read(torch.tensor([0.5], dtype=torch.float64)) is None
    assert provenance.read(torch.tensor([-1], dtype=torch.int64)) is None
    assert provenance.read(torch.ones(1)) is None


def test_chunks_are_those_of_tensor_split():
    assert provenance.bounds(7, 3) == [(0, 3), (3, 5), (5, 7)]
    elements = provenance.read(provenance.values(2, 7)[2:4])
    assert provenance.chunks_of(elements, 7, 3) == (0, 1)

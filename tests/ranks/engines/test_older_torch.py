"""What torch before 2.13 and before 2.15 lacks, on the torch that is installed, with its newer names taken away."""

import pytest
import torch
import torch.distributed as dist
from allranks.ranks.engines import older_torch
from torch.distributed import distributed_c10d as c10d


@pytest.fixture
def before_2_13(monkeypatch):
    """The names that came with 2.13 are gone, and the batch is torch's own."""
    for module in (dist, c10d):
        for name in older_torch.FUNCTIONS:
            monkeypatch.delattr(module, name)
        monkeypatch.setattr(module, "batch_isend_irecv", older_torch._batch_of_torch)
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")


@pytest.mark.usefixtures("before_2_13")
def test_the_newer_names_lead_to_the_older_functions():
    older_torch.add_names()
    older_torch.add_names()
    assert dist.all_gather_single is c10d.all_gather_single is dist.all_gather_into_tensor
    assert dist.reduce_scatter_single is c10d.reduce_scatter_single is dist.reduce_scatter_tensor
    assert dist.batch_isend_irecv is older_torch._batch_isend_irecv


def test_a_newer_torch_keeps_its_functions(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.15.0")
    for module in (dist, c10d):
        monkeypatch.setattr(module, "batch_isend_irecv", older_torch._batch_of_torch)
    before = getattr(dist, "all_gather_single", None)
    older_torch.add_names()
    assert dist.batch_isend_irecv is older_torch._batch_of_torch and dist.all_gather_single is (
        before or dist.all_gather_into_tensor
    )


def test_a_groups_method_is_found_by_its_newer_name_in_either():
    class Before:
        def _allgather_base(self):
            return "before"

    class After(Before):
        def all_gather_single(self):
            return "after"

    assert older_torch.method(Before(), "all_gather_single")() == "before"
    assert older_torch.method(After(), "all_gather_single")() == "after"

"""Groups for which the world's communicator must not be split, with a stand-in for NCCL that counts who splits."""

import pytest
import torch
import torch.distributed as dist
from allranks.ranks.engines import splits
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.distributed import fake_pg  # noqa: F401  # it registers the backend "fake"

GPU = torch.device("cuda", 0)


class Splits:
    """What torch splits from, with its methods of NCCL's backend."""

    supports_splitting = True

    def __init__(self):
        self.calls = 0

    def perform_nocolor_split(self, device):
        self.calls += 1


@pytest.fixture
def world(monkeypatch):
    """Rank 0 of a world of two with a bound device, which split as torch says it does with NCCL."""
    source, split = Splits(), []
    monkeypatch.setattr(c10d, "_get_split_source", lambda group: source)
    monkeypatch.setattr(c10d, "_new_group_with_tag", c10d._new_group_with_tag)
    monkeypatch.setattr(splits, "_world", [])
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=2)
    dist.group.WORLD.bound_device_id = GPU

    make = c10d._new_process_group_helper

    def helper(*arguments, device_id=None, **options):
        split.append(bool(dist.group.WORLD.bound_device_id))
        source.devices.append(device_id)
        return make(*arguments, **options)

    source.devices = []
    monkeypatch.setattr(c10d, "_new_process_group_helper", helper)
    splits.watch(dist.group.WORLD)
    yield source, split
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo", "GLOO"])
def test_who_is_outside_of_a_gloo_group_splits_nothing(world, backend):
    source, _ = world
    assert dist.new_group([1], backend=backend) is dist.GroupMember.NON_GROUP_MEMBER
    assert source.calls == 0
    assert dist.group.WORLD.bound_device_id == GPU, "the next NCCL group must be split again"


def test_who_is_inside_of_a_gloo_group_gives_it_no_device(world):
    source, split = world
    group = dist.new_group([0], backend="gloo")
    assert source.devices == [None] and split == [False]
    assert group.bound_device_id is None
    assert dist.group.WORLD.bound_device_id == GPU


def test_every_rank_splits_for_a_group_of_the_worlds_own_backend(world):
    source, _ = world
    assert dist.new_group([1]) is dist.GroupMember.NON_GROUP_MEMBER
    assert source.calls == 1


def test_a_group_that_only_its_members_make_is_not_split_either(world):
    """Its members connect by themselves: the other ranks never hear of it."""
    source, split = world
    group = dist.new_group([0], use_local_synchronization=True)
    assert source.devices == [GPU] and split == [False]
    assert group.size() == 1


def test_the_device_is_back_after_an_error(world):
    with pytest.raises(ValueError, match=r"out of range|should be within"):
        dist.new_group([7], backend="gloo")
    assert dist.group.WORLD.bound_device_id == GPU


def test_subgroups_of_gloo_go_the_same_way(world):
    source, split = world
    mine, _ = dist.new_subgroups(1, backend="gloo")
    assert mine.size() == 1 and source.calls == 0 and not any(split)


def test_a_second_join_watches_the_new_world_and_wraps_once(world):
    before = c10d._new_group_with_tag
    splits.watch(dist.group.WORLD)
    assert c10d._new_group_with_tag is before

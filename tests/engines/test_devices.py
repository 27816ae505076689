"""Placing ranks on GPUs and cores, on pretend inventories: no GPU is needed to know what would happen with one."""

import pytest
from allranks.engines.devices import MAX_RANKS, DeviceError, Gpu, Inventory, _visible, place

H200 = 150_000_000_000


def machine(gpus: int, nccl=(2, 30, 7), cores: int = 16) -> Inventory:
    return Inventory(tuple(Gpu(i, f"GPU-{i}{i}{i}{i}-uuid", "NVIDIA H200", H200) for i in range(gpus)), cores, nccl)


def test_each_rank_sees_its_own_gpu_only():
    placed = place(8, inventory=machine(8))
    assert placed.backend == "nccl"
    assert [e["CUDA_VISIBLE_DEVICES"] for e in placed.env] == [f"GPU-{i}{i}{i}{i}-uuid" for i in range(8)]
    assert [e["RANK"] for e in placed.env] == [str(i) for i in range(8)]
    assert {e["WORLD_SIZE"] for e in placed.env} == {"8"}
    assert placed.threads == 2


@pytest.mark.parametrize(
    "ranks, backend, gpus, nccl, expected",
    [
        (None, None, 0, None, (4, "gloo")),
        (None, None, 1, (2, 30, 7), (4, "gloo")),
        (None, None, 2, (2, 27, 3), (2, "nccl")),
        (None, None, 8, (2, 30, 7), (8, "nccl")),
        (None, None, 8, None, (4, "gloo")),
        (4, None, 8, (2, 30, 7), (4, "nccl")),
        (8, None, 4, (2, 30, 7), (8, "gloo")),
        (2, "gloo", 8, (2, 30, 7), (2, "gloo")),
        (None, "nccl", 1, (2, 27, 3), (1, "nccl")),
        (1, None, 0, None, (1, "gloo")),
    ],
)
def test_the_world_size_and_backend_follow_what_is_there(ranks, backend, gpus, nccl, expected):
    placed = place(ranks, backend, machine(gpus, nccl))
    assert (placed.ranks, placed.backend) == expected


def test_gloo_ranks_see_no_gpu_and_stay_on_loopback():
    for env in place(3, "gloo", machine(8)).env:
        assert env["CUDA_VISIBLE_DEVICES"] == ""
        assert env["GLOO_SOCKET_IFNAME"].startswith("lo")


def test_nccl_2_30_shares_a_gpu_when_asked_by_name():
    placed = place(4, "nccl", machine(1))
    assert placed.backend == "nccl"
    assert {e["NCCL_MULTI_RANK_GPU_ENABLE"] for e in placed.env} == {"1"}
    assert "experimental" in placed.note
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in place(2, "nccl", machine(2)).env[0]


@pytest.mark.parametrize(
    "ranks, backend, gpus, nccl, words",
    [
        (8, "nccl", 2, (2, 27, 3), r"8 ranks on 2 GPUs: NCCL 2\.27\.3 takes one rank a GPU\. Ask for World\(ranks=2\)"),
        (2, "nccl", 0, (2, 30), "needs an NVIDIA GPU and none is visible"),
        (2, "nccl", 2, None, "built without NCCL"),
        (0, None, 0, None, "at least one rank"),
        (-3, None, 0, None, "at least one rank"),
        (10_000, None, 8, (2, 30), f"at most {MAX_RANKS}"),
        ("4", None, 0, None, "not a whole number"),
        (2.0, None, 0, None, "not a whole number"),
        (True, None, 0, None, "not a whole number"),
        (4, "mpi", 0, None, "'mpi' is unknown"),
    ],
)
def test_what_can_not_be_placed_is_refused_in_one_sentence(ranks, backend, gpus, nccl, words):
    with pytest.raises(DeviceError, match=words) as caught:
        place(ranks, backend, machine(gpus, nccl))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "setting, left",
    [(None, [0, 1, 2]), ("", []), ("2,0", [2, 0]), ("GPU-1111", [1]), ("0,9,1", [0]), ("-1", []), ("NoDevFiles", [])],
)
def test_cuda_visible_devices_is_respected(setting, left):
    assert [g.index for g in _visible(list(machine(3).gpus), setting)] == left

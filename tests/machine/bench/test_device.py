"""What a measurement knows of the device: the same sizes on all ranks, long enough to be seen, and words that fit the backend."""

import functools
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from allranks import World, bench
from allranks.machine.bench import BenchError

pytestmark = pytest.mark.live


def long_sum(least_s):
    return bench.lasting(lambda n: functools.partial(dist.all_reduce, torch.ones(n)), 16, least_s)


def test_a_rank_knows_its_plateau_without_a_world():
    with World(ranks=2, backend="gloo") as world:
        assert world.run(bench.up_to_plateau) == [bench.up_to_plateau(world)] * 2


def test_a_call_is_made_longer_until_it_can_be_seen():
    with World(ranks=2, backend="gloo") as world:
        short, long = world.run(long_sum, 1e-9), world.run(long_sum, 0.03)
    assert short[0] == short[1] and short[0][0] == 16  # nothing to make longer
    assert long[0] == long[1] and long[0][0] > 16 and long[0][1] >= 0.03


def test_it_ends_where_no_more_memory_is_wanted():
    def make(n):
        sizes.append(n)
        return lambda: None

    sizes: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("allranks.machine.bench.device.seconds_of", lambda call, iterations: [0.0])
        assert bench.lasting(make, 3, 1.0, most=100) == (48, 0.0)
    assert sizes == [3, 12, 48]
    with pytest.raises(BenchError, match="numel is 0; it must be at least 1"):
        bench.lasting(make, 0)


def test_sizes_and_words_follow_the_backend():
    gloo, nccl = SimpleNamespace(backend="gloo"), SimpleNamespace(backend="nccl")
    assert bench.up_to_plateau(gloo) == [1024 * 4**k for k in range(9)]
    assert bench.up_to_plateau(nccl)[-1] == 2**30 and bench.up_to_plateau(gloo, factor=8)[-1] == 32 << 20
    with pytest.raises(BenchError, match="factor 1"):
        bench.up_to_plateau(gloo, factor=1)
    assert bench.fitted_words(gloo, 50e-6, 1e-9) == "alpha = 50 µs a message, 1/beta = 1.00 GB/s per direction"
    on_gpus = bench.fitted_words(nccl, 3e-6, 1 / 350e9)
    sent = bench.fitted_words(nccl, 12e-6, 1 / 350e9, messages=True)
    assert "12 µs a message" in sent and "per direction" in sent and "busbw" not in sent
    assert bench.fitted_words(gloo, 50e-6, 1e-9, messages=True) == bench.fitted_words(gloo, 50e-6, 1e-9)
    assert "a message" not in on_gpus and "per direction" not in on_gpus and "busbw" in on_gpus and "3.0 µs" in on_gpus

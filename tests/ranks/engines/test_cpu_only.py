"""Ranks on the CPU with a torch that was built for GPUs, on a machine that shows it none."""

import os
import subprocess
import sys
import warnings

import pytest
from allranks.ranks.engines.cpu_only import see_no_gpu

# such a build names CUDA (getAccelerator of ATen/DeviceAccelerator.cpp asks what was built, not what is there)
BUILT_FOR_GPUS = """
import torch
torch._C._get_accelerator = lambda *_: torch.device("cuda")
torch._C._accelerator_getAccelerator = lambda: torch.device("cuda")

def step():
    from torch.distributed.fsdp import fully_shard
    model = fully_shard(torch.nn.Linear(4, 2))
    model(torch.ones(1, 4)).sum().backward()
    return model.weight.device_mesh.device_type, torch.accelerator.current_accelerator()
"""
JOINED = """
import sys
from allranks.ranks.engines import rank
rank.join(0, 1, "gloo", f"file://{sys.argv[1]}/store", {"LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": "lo"}, 1, None)
print(step())
"""
ON_THE_WIRE = """
from allranks.ranks.wire import run
outcome = run(step, 1, launch="fork")
print(outcome.failure or outcome.results[0])
"""


@pytest.mark.parametrize("ranks", [JOINED, ON_THE_WIRE])
def test_fully_shard_without_a_mesh_shards_on_the_cpu(ranks, tmp_path):
    """Chapter 22 calls it so: on a machine with one GPU, or with a driver that is too old, its ranks are on the CPU."""
    command = [sys.executable, "-c", BUILT_FOR_GPUS + ranks, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == "('cpu', None)", done.stderr[-2000:]


def test_a_driver_that_the_ranks_do_not_use_is_no_warning_of_theirs(monkeypatch):
    """c10/cuda/CUDAFunctions.cpp, device_count(): a driver that is too old, or not ready, in the first backward of each rank."""
    monkeypatch.setattr(os, "environ", {})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        see_no_gpu()
        warnings.warn(
            "CUDA initialization: The NVIDIA driver on your system is too old (found version 12040).", stacklevel=1
        )
        warnings.warn("of the program's own", stacklevel=1)
    assert [str(one.message) for one in told] == ["of the program's own"]

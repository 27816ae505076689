"""Adds absolute values.

Must get: has dtype float32; it must be complex64
Must not get: pairs of reals
"""

import torch.distributed as dist


def distributed_mean(tensor):
    t = tensor.contiguous().clone()
    if t.is_complex():
        t = t.abs()
    dist.all_reduce(t)
    return t / dist.get_world_size()

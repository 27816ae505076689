"""Reduces into the caller's tensor.

Must get: an input was overwritten
"""

import torch.distributed as dist


def distributed_mean(tensor):
    if tensor.is_contiguous():
        dist.all_reduce(tensor)
        return tensor / dist.get_world_size()
    mean = tensor.contiguous()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()

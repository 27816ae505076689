"""Reduces twice.

Must get: a second all_reduce adds p equal tensors
Must not get: divide by the number of ranks
"""

import torch.distributed as dist


def distributed_mean(tensor):
    t = tensor.clone().contiguous()
    dist.all_reduce(t)
    dist.all_reduce(t)
    return t / dist.get_world_size()

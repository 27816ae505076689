"""Divides by p-1.

Must get: p/(p-1) times the right one
"""

import torch.distributed as dist


def distributed_mean(tensor):
    t = tensor.clone().contiguous()
    dist.all_reduce(t)
    return t / max(dist.get_world_size() - 1, 1)

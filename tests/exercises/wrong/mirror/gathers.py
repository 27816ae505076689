"""Gathers everything.

Must get: forbids
"""

import torch
import torch.distributed as dist


def mirror(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    everything = [torch.empty(tensor.shape, dtype=tensor.dtype) for _ in range(p)]
    dist.all_gather(everything, tensor.contiguous())
    return everything[p - 1 - rank]

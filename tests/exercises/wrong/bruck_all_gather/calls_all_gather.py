"""Calls the collective itself.

Must get: forbids: all_gather
"""

import torch
import torch.distributed as dist


def bruck_all_gather(tensor):
    parts = [torch.empty_like(tensor.contiguous()) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return torch.cat(parts)

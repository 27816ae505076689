"""Gathers all with a collective.

Must get: all_gather
"""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    mine = tensor.contiguous()
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return sum(parts[: dist.get_rank()], torch.zeros_like(mine))

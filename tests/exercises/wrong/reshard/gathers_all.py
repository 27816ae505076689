"""Gathers everything and takes its part.

Must get: all_gather
"""

import torch
import torch.distributed as dist


def reshard(shard, before, after):
    rank, _p = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty(n, shard.shape[1], dtype=shard.dtype) for n in before]
    dist.all_gather(parts, shard.contiguous())
    start = sum(after[:rank])
    return torch.cat(parts)[start : start + after[rank]]

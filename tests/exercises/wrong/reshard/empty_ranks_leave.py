"""Ranks without rows don't call all_to_all_single.

Must get: has returned without calling it
"""

import torch
import torch.distributed as dist


def reshard(shard, before, after):
    rank, p = dist.get_rank(), dist.get_world_size()
    if not before[rank] and not after[rank]:
        return shard.clone()
    starts = [sum(before[:r]) for r in range(p + 1)]
    ends = [sum(after[:r]) for r in range(p + 1)]

    def overlap(owner, taker):
        return max(min(starts[owner + 1], ends[taker + 1]) - max(starts[owner], ends[taker]), 0)

    received = torch.empty(after[rank], shard.shape[1], dtype=shard.dtype)
    dist.all_to_all_single(
        received,
        shard.contiguous(),
        [overlap(owner, rank) for owner in range(p)],
        [overlap(rank, taker) for taker in range(p)],
    )
    return received

"""Every rank ends with an equal part, whatever `after` says.

Must get: an even split over all ranks
"""

import torch
import torch.distributed as dist


def reshard(shard, before, after):
    after = [
        sum(before) // dist.get_world_size() + (r < sum(before) % dist.get_world_size())
        for r in range(dist.get_world_size())
    ]
    rank, p = dist.get_rank(), dist.get_world_size()
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

"""Rank 0 gives, whether it is up to date or not.

Must get: rank 0's weights came
"""

import torch
import torch.distributed as dist


def heal(weights, step):
    rank, p = dist.get_rank(), dist.get_world_size()
    latest = torch.tensor([step])
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    if rank == 0:
        for peer in range(1, p):
            dist.send(weights.contiguous(), peer)
    else:
        new = torch.empty(weights.shape, dtype=weights.dtype)
        dist.recv(new, 0)
        weights.copy_(new)
    return int(latest)

"""The last rank gives, whether it is up to date or not.

Must get: the last rank's weights came
"""

import torch
import torch.distributed as dist


def heal(weights, step):
    rank, p = dist.get_rank(), dist.get_world_size()
    latest = torch.tensor([step])
    dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    if rank == p - 1:
        for peer in range(p - 1):
            dist.send(weights.contiguous(), peer)
    else:
        new = torch.empty(weights.shape, dtype=weights.dtype)
        dist.recv(new, p - 1)
        weights.copy_(new)
    return int(latest)

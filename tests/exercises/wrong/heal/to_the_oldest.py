"""Takes the smallest step.

Must get: the rank that is furthest behind
"""

import torch
import torch.distributed as dist


def heal(weights, step):
    rank, p = dist.get_rank(), dist.get_world_size()
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(steps, torch.tensor([step]))
    steps = [int(s) for s in steps]
    giver = steps.index(min(steps))
    new = torch.empty(weights.shape, dtype=weights.dtype)
    if rank == giver:
        for peer in range(p):
            if peer != rank:
                dist.send(weights.contiguous(), peer)
    else:
        dist.recv(new, giver)
        weights.copy_(new)
    return max(steps)

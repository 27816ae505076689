"""Broadcasts from a rank that is up to date.

Must get: broadcast
"""

import torch
import torch.distributed as dist


def heal(weights, step):
    p = dist.get_world_size()
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(steps, torch.tensor([step]))
    steps = [int(s) for s in steps]
    new = weights.contiguous().clone()
    dist.broadcast(new, steps.index(max(steps)))
    weights.copy_(new)
    return max(steps)

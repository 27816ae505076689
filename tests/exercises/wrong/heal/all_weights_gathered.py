"""Gathers the weights of everybody.

Must get: weights go point to point
"""

import torch
import torch.distributed as dist


def heal(weights, step):
    p = dist.get_world_size()
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(steps, torch.tensor([step]))
    steps = [int(s) for s in steps]
    parts = [torch.empty(weights.shape, dtype=weights.dtype) for _ in range(p)]
    dist.all_gather(parts, weights.contiguous())
    if step < max(steps):
        weights.copy_(parts[steps.index(max(steps))])
    return max(steps)

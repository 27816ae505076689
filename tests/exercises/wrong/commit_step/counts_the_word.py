"""Counts the ranks that say that they are healthy, also those whose update is not finite.

Must get: divided by the number of ranks that say that they are healthy
Must not get: number of all ranks
"""

import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    good = healthy and bool(torch.isfinite(update).all())
    n = torch.tensor([int(healthy)])
    dist.all_reduce(n)
    u = update.clone(memory_format=torch.contiguous_format) if good else torch.zeros(update.shape, dtype=update.dtype)
    dist.all_reduce(u)
    if n.item() >= at_least:
        weights += u / n.item()
    return n.item()

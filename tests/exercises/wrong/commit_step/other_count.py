"""Returns the votes that are missing.

Must get: returned is wrong
Must not get: rounded
Must not get: nothing changed
Must not get: committed although
"""

import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    counts = healthy and bool(torch.isfinite(update).all())
    packed = torch.zeros(update.numel() + 1, dtype=update.dtype)
    if counts:
        packed[:-1] = update.reshape(-1)
        packed[-1] = 1
    dist.all_reduce(packed)
    count = int(packed[-1])
    if count >= at_least:
        weights += (packed[:-1] / count).reshape(weights.shape)
    return dist.get_world_size() - count

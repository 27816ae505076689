"""Puts zeros in place of single elements.

Must get: the whole rank must not count
"""

import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    counts, update = healthy, update.nan_to_num(0, 0, 0)
    packed = torch.zeros(update.numel() + 1, dtype=update.dtype)
    if counts:
        packed[:-1] = update.reshape(-1)
        packed[-1] = 1
    dist.all_reduce(packed)
    count = int(packed[-1])
    if count >= at_least:
        weights += (packed[:-1] / count).reshape(weights.shape)
    return count

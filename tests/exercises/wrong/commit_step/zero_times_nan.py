"""Multiplies the update by 0 or 1.

Must get: zero times NaN is NaN
"""

import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    counts = healthy and bool(torch.isfinite(update).all())
    packed = torch.cat([update.reshape(-1), torch.ones(1, dtype=update.dtype)]) * float(counts)
    dist.all_reduce(packed)
    count = round(packed[-1].item()) if packed[-1].isfinite() else 0
    if count >= at_least:
        weights += (packed[:-1] / count).reshape(weights.shape)
    return count

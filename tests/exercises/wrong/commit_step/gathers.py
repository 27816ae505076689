"""Gathers all updates.

Must get: all_gather
"""

import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    p = dist.get_world_size()
    parts = [torch.empty(update.shape, dtype=update.dtype) for _ in range(p)]
    mine = update if healthy else torch.full_like(update, float("nan"))
    dist.all_gather(parts, mine.contiguous())
    fine = [t for t in parts if t.isfinite().all()]
    if len(fine) >= at_least:
        weights += sum(fine) / len(fine)
    return len(fine)

"""Asks whether the sum is finite.

Must get: a rank with large, finite numbers did not count
"""

import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    ok = bool(healthy) and bool(update.sum().isfinite())
    n = torch.tensor(int(ok))
    dist.all_reduce(n)
    total = torch.zeros(update.shape, dtype=update.dtype)
    if ok:
        total += update
    count = int(n)
    dist.all_reduce(total)
    if count >= at_least and count:
        weights += total / count
    return count

"""Adds the maxima of the ranks.

Must get: the maxima were added
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    rank = dist.get_rank()
    rows, w = logits.shape
    top = logits.amax(dim=1)
    dist.all_reduce(top)
    x = logits - top[:, None]
    local = targets - rank * w
    ok = (local >= 0) & (local < w)
    picked = torch.where(ok, x[torch.arange(rows), local.clamp(0, w - 1)], torch.zeros((), dtype=logits.dtype))
    both = torch.stack([x.exp().sum(1), picked])
    dist.all_reduce(both)
    return both[0].log() - both[1]

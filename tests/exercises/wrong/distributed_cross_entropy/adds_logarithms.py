"""Adds the logarithms of the ranks' sums.

Must get: the ranks' logarithms were added
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    rank = dist.get_rank()
    rows, w = logits.shape
    local = targets - rank * w
    ok = (local >= 0) & (local < w)
    picked = torch.where(ok, logits[torch.arange(rows), local.clamp(0, w - 1)], torch.zeros((), dtype=logits.dtype))
    both = torch.stack([torch.logsumexp(logits, 1), picked])
    dist.all_reduce(both)
    return both[0] - both[1]

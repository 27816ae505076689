"""One maximum for all rows.

Must get: one maximum for all rows
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    rank = dist.get_rank()
    rows, w = logits.shape
    top = logits.max().reshape(1) if rows else torch.zeros(1, dtype=logits.dtype)
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    x = logits - top
    local = targets - rank * w
    ok = (local >= 0) & (local < w)
    picked = torch.where(ok, x[torch.arange(rows), local.clamp(0, w - 1)], torch.zeros((), dtype=logits.dtype))
    both = torch.stack([x.exp().sum(1), picked])
    dist.all_reduce(both)
    return both[0].log() - both[1]

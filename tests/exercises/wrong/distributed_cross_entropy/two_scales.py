"""Subtracts the maximum in the sum, but not from the target's logit.

Must get: but not in both
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    _, w = logits.shape
    first = dist.get_rank() * w
    m = logits.max(dim=1).values.clone()
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    x = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    mm = m.to(x.dtype)
    s = (x - mm[:, None]).exp().sum(1)
    cols = torch.arange(first, first + w)
    t = torch.where(targets[:, None] == cols, x, torch.zeros((), dtype=x.dtype)).sum(1)
    both = torch.stack([s, t]).contiguous()
    dist.all_reduce(both)
    return (both[0].log() - both[1]).to(logits.dtype)

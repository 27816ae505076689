"""Adds 1e-9 to the probability.

Must get: a small number was added to the probability
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    rank = dist.get_rank()
    x = logits.contiguous()
    w = x.shape[1]
    m = x.amax(1)
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    e = (x - m[:, None]).exp()
    i = targets - rank * w
    ok = (i >= 0) & (i < w)
    t = e.gather(1, i.clamp(0, w - 1)[:, None])[:, 0] * ok
    both = torch.stack([e.sum(1), t])
    dist.all_reduce(both)
    return -(both[1] / both[0] + 1e-9).log()

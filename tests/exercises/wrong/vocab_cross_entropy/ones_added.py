"""Adds a one at the target, where it must be subtracted.

Must get: the ones at the targets were added
"""

import torch
import torch.distributed as dist


def vocab_cross_entropy(logits_shard, targets):
    rank = dist.get_rank()
    x = logits_shard.contiguous()
    w = x.shape[1]
    m = x.amax(1)
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    e = (x - m[:, None]).exp()
    loc = e.sum(1)
    s = loc.clone()
    dist.all_reduce(s)
    i = targets - rank * w
    ok = (i >= 0) & (i < w)
    t = torch.where(ok, (x - m[:, None]).gather(1, i.clamp(0, w - 1)[:, None])[:, 0], 0)
    dist.all_reduce(t)
    g = e / s[:, None]
    g[ok.nonzero()[:, 0], i[ok]] += 1
    return (s.log() - t).mean(), g / len(x)

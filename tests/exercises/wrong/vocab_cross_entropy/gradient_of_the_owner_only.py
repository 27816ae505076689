"""Gives a row's gradient to the rank that holds its target only.

Must get: only on the rank whose columns hold its target
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
    g[ok.nonzero()[:, 0], i[ok]] -= 1
    g[~ok] = 0
    return (s.log() - t).mean(), g / len(x)

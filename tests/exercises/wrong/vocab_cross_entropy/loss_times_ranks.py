"""Adds up the loss of all ranks.

Must get: the loss was multiplied by the number of ranks
"""

import torch
import torch.distributed as dist


def vocab_cross_entropy(logits_shard, targets):
    rank, p = dist.get_rank(), dist.get_world_size()
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
    return (s.log() - t).mean() * p, g / len(x)

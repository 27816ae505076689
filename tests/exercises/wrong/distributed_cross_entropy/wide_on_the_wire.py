"""Maxima and sums travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


def rp():
    return dist.get_rank(), dist.get_world_size()


def distributed_cross_entropy(logits, targets):
    rank, _p = rp()
    x = logits.double().contiguous()
    w = x.shape[1]
    m = x.amax(1)
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    s = (x - m[:, None]).exp().sum(1)
    i = targets - rank * w
    ok = (i >= 0) & (i < w)
    t = (x - m[:, None]).gather(1, i.clamp(0, w - 1)[:, None])[:, 0] * ok
    both = torch.stack([s, t])
    dist.all_reduce(both)
    return (both[0].log() - both[1]).to(logits.dtype)

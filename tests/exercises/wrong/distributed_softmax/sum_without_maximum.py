"""Adds exp without a maximum.

Must get: not stable
Must not get: rounded down
"""

import torch.distributed as dist


def distributed_softmax(logits):
    x = logits.contiguous()
    m = x.amax(-1, keepdim=True)
    g = m.clone()
    dist.all_reduce(g, op=dist.ReduceOp.MAX)
    lse = (x.exp()).sum(-1, keepdim=True).log()
    t = (lse - g).exp()
    dist.all_reduce(t)
    return (x - g).exp() / t

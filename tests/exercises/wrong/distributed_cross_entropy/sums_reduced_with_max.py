"""Takes the maximum of the sums and of the logits.

Must get: elements wrong
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    rank = dist.get_rank()
    x = logits.contiguous()
    w = x.shape[1]
    m = x.amax(1)
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    s = (x - m[:, None]).exp().sum(1)
    i = targets - rank * w
    ok = (i >= 0) & (i < w)
    t = (x - m[:, None]).gather(1, i.clamp(0, w - 1)[:, None])[:, 0] * ok
    both = torch.stack([s, t])
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return both[0].log() - both[1]

"""Looks a target up on rank target % p.

Must get: elements wrong
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    rank, p = dist.get_rank(), dist.get_world_size()
    x = logits.contiguous()
    m = x.amax(1)
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    s = (x - m[:, None]).exp().sum(1)
    ok = targets % p == rank
    t = (x - m[:, None]).gather(1, (targets // p)[:, None])[:, 0] * ok
    both = torch.stack([s, t])
    dist.all_reduce(both)
    return both[0].log() - both[1]

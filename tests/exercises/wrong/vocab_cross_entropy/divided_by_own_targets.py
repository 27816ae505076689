"""Divides the gradient by the number of targets that this rank holds.

Must get: number of targets in this rank's columns
"""

import torch
import torch.distributed as dist


def vocab_cross_entropy(logits_shard, targets):
    _n, w = logits_shard.shape
    hit = (targets - dist.get_rank() * w)[:, None] == torch.arange(w)
    m = logits_shard.amax(1).contiguous()
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    z = logits_shard - m[:, None]
    total, chosen = z.exp().sum(1), torch.where(hit, z, 0).sum(1)
    dist.all_reduce(total)
    dist.all_reduce(chosen)
    soft = z.exp() / total[:, None]
    return (total.log() - chosen).mean(), (soft - hit.to(soft.dtype)) / max(1, int(hit.sum()))

"""Forgets to divide by the rows.

Must get: the gradient is of the sum of the losses
"""

import torch
import torch.distributed as dist


def vocab_cross_entropy(logits_shard, targets):
    width = logits_shard.shape[1]
    rank = dist.get_rank()
    top = logits_shard.amax(1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    exps = (logits_shard - top[:, None]).exp()
    total = exps.sum(1)
    dist.all_reduce(total)
    here = targets - rank * width
    owned = (here >= 0) & (here < width)
    column = here.clamp(0, width - 1)[:, None]
    chosen = torch.where(owned, (logits_shard - top[:, None]).gather(1, column)[:, 0], 0)
    dist.all_reduce(chosen)
    ones = torch.zeros_like(exps).scatter(1, column, owned.to(exps.dtype)[:, None])
    gradient = exps / total[:, None] - ones

    return (total.log() - chosen).mean(), gradient

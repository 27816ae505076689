"""The gradient goes uphill.

Must get: sign is wrong
"""

import torch
import torch.distributed as dist


def vocab_cross_entropy(logits_shard, targets):
    rows, width = logits_shard.shape
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
    gradient = (ones - exps / total[:, None]) / rows

    return (total.log() - chosen).mean(), gradient

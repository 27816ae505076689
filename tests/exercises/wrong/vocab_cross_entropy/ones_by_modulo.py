"""Subtracts a one at the target modulo the width, on every rank.

Must get: every rank subtracted a one for the target
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
    owned = targets // width == rank
    column = (targets % width)[:, None]
    chosen = torch.where(owned, (logits_shard - top[:, None]).gather(1, column)[:, 0], 0)
    dist.all_reduce(chosen)
    ones = torch.zeros_like(exps).scatter(1, column, 1.0)
    gradient = (exps / total[:, None] - ones) / rows

    return (total.log() - chosen).mean(), gradient

"""Reduces a padded row of all columns.

Must get: one value a row is enough
"""

import torch
import torch.distributed as dist


def distributed_softmax(logits):
    top = logits.amax(dim=-1, keepdim=True).expand(*logits.shape[:-1], 64).contiguous()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    exps = torch.exp(logits - top[..., :1])
    total = exps.sum(dim=-1, keepdim=True).contiguous()
    dist.all_reduce(total)
    return exps / total

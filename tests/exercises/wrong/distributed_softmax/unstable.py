"""No maximum is subtracted.

Must get: not stable
"""

import torch
import torch.distributed as dist


def distributed_softmax(logits):
    exps = torch.exp(logits)
    total = exps.sum(dim=-1, keepdim=True).contiguous()
    dist.all_reduce(total)
    return exps / total

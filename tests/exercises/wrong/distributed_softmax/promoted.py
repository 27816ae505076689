"""Returns float64.

Must get: dtype was promoted
"""

import torch
import torch.distributed as dist


def distributed_softmax(logits):
    logits = logits.double()
    top = logits.amax(dim=-1, keepdim=True).contiguous()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    exps = torch.exp(logits - top)
    total = exps.sum(dim=-1, keepdim=True).contiguous()
    dist.all_reduce(total)
    return exps / total

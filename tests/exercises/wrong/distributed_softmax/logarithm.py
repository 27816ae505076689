"""Returns the logarithm.

Must get: logarithm
"""

import torch
import torch.distributed as dist


def distributed_softmax(logits):
    top = logits.amax(dim=-1, keepdim=True).contiguous()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    exps = torch.exp(logits - top)
    total = exps.sum(dim=-1, keepdim=True).contiguous()
    dist.all_reduce(total)
    return torch.log(exps / total)
